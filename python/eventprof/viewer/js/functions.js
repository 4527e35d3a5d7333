// The table of functions, of the whole run or of the selected range.

import { state, update } from "./state.js";
import { clean, counted, make, showBytes, showCount, showTime } from "./text.js";

const ROWS = 200;

/** What the columns mean, by key. */
const MEANINGS = /** @type {Record<string, string>} */ ({
  self: "time in the function itself, without the calls that it made",
  total: "time in the function with the calls that it made; of recursive calls, that of the outermost",
  p50: "the median of its calls",
  max: "its slowest call",
  allocated: "bytes of the blocks that the function itself allocated, without the calls that it made",
  blocks: "how many blocks the function itself allocated",
  at_peak: "of the bytes that it allocated: those that were live at the peak",
  live: "of the bytes that it allocated: those that were live at the end",
  kept: "of the bytes that it allocated in the range: those that were not freed in the range",
  temporary: "of the bytes that it allocated in the range: those that were freed in the range",
  freed: "of the bytes that it allocated at any time: those that were freed in the range",
});

export class Functions {
  /**
   * @param {import("./data.js").Data} data
   * @param {HTMLElement} pane
   * @param {import("./histogram.js").Histogram} histogram
   */
  constructor(data, pane, histogram) {
    this.data = data;
    this.sumsKey = ""; // the range whose sums are in `known`
    this.histogram = histogram;
    this.order = "self";
    this.filter = /** @type {HTMLInputElement} */ (
      make("input", {
        type: "search",
        placeholder: "filter: name, module or file:line",
        "aria-label": "filter functions",
        oninput: () => update({ filter: this.filter.value }),
      })
    );
    this.status = make("span", { class: "soft", role: "status" });
    this.head = make("tr");
    this.body = make("tbody");
    this.whole = make("button", { type: "button", onclick: () => update({ range: null }) }, "whole run");
    pane.append(
      make("div", { class: "bar" }, this.filter, this.whole, this.status),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, this.head), this.body)),
    );
    this.key = "";
  }

  /** @returns {{key: string, text: string, values: ArrayLike<number>, show: (value: number) => string}[]} */
  columns() {
    const f = this.data.head.functions;
    const blocks = this.data.blocks.count > 0;
    if (!state.range) {
      return [
        { key: "self", text: "self", values: f.self, show: showTime },
        { key: "total", text: "total", values: f.total, show: showTime },
        { key: "calls", text: "calls", values: f.calls, show: showCount },
        { key: "p50", text: "median", values: f.p50, show: (v) => (v < 0 ? "-" : showTime(v)) },
        { key: "max", text: "slowest", values: f.max, show: (v) => (v < 0 ? "-" : showTime(v)) },
        ...(blocks
          ? [
              { key: "allocated", text: "allocated", values: f.allocated, show: showBytes },
              { key: "blocks", text: "blocks", values: f.blocks, show: showCount },
              { key: "at_peak", text: "at the peak", values: f.at_peak, show: showBytes },
              { key: "live", text: "at the end", values: f.live, show: showBytes },
            ]
          : []),
      ];
    }
    const sums = this.sums();
    return [
      { key: "self", text: "self", values: sums.self, show: showTime },
      { key: "calls", text: "calls begun", values: sums.calls, show: showCount },
      ...(blocks
        ? [
            { key: "allocated", text: "allocated", values: sums.allocated, show: showBytes },
            { key: "blocks", text: "blocks", values: sums.blocks, show: showCount },
            { key: "kept", text: "kept", values: sums.kept, show: showBytes },
            { key: "temporary", text: "temporary", values: sums.temporaryOf, show: showBytes },
            { key: "freed", text: "freed", values: sums.freedOf, show: showBytes },
          ]
        : []),
    ];
  }

  sums() {
    const [t0, t1] = /** @type {[number, number]} */ (state.range);
    const key = `${t0},${t1}`;
    if (this.sumsKey !== key) {
      this.sumsKey = key;
      this.known = this.data.sums(t0, t1);
    }
    return /** @type {ReturnType<import("./data.js").Data["sums"]>} */ (this.known);
  }

  /**
   * The calls that a click goes through, the slowest first: those of the selected function that begin in the range, if
   * there is one.
   */
  stepped() {
    this.histogram.compute();
    const { calls } = this.histogram;
    if (!state.range) return calls;
    const [t0, t1] = state.range;
    const { start } = this.data;
    return calls.filter((call) => start[call] >= t0 && start[call] < t1);
  }

  /**
   * Goes to the slowest call of a function. If the function is selected already, goes to the next slowest call, after
   * the last to the first.
   * @param {number} f
   */
  step(f) {
    if (!this.data.complete) {
      update({ fn: f, brush: null, tab: "durations" });
      return;
    }
    const again = state.fn === f && state.brush === null;
    update({ fn: f, brush: null });
    const calls = this.stepped();
    const at = again ? calls.indexOf(state.call) + 1 : 0;
    if (calls.length) this.histogram.go(calls[at % calls.length]);
  }

  /** Says the rank of the selected call among the calls of its function, the slowest first. */
  rank() {
    const { data } = this;
    if (!data.complete || state.fn < 0 || state.fn >= data.none) return "";
    const calls = this.stepped();
    const name = clean(data.nameOf(state.fn));
    if (state.range && !calls.length) return `; no call of ${name} begins in the range`;
    const at = state.call < 0 ? -1 : calls.indexOf(state.call);
    return at < 0
      ? ""
      : `; ${name}: call ${showCount(at + 1)} of ${showCount(calls.length)}${state.range ? " in the range" : ""}, the slowest first`;
  }

  draw() {
    const key = JSON.stringify([state.range, state.filter, state.fn, state.call, this.order]);
    if (key === this.key) return;
    this.key = key;
    if (this.filter.value !== state.filter) this.filter.value = state.filter;
    const columns = this.columns();
    if (!columns.some((column) => column.key === this.order)) this.order = "self";
    const by = /** @type {(typeof columns)[0]} */ (columns.find((column) => column.key === this.order)).values;
    const { head, none } = this.data;
    const matches = matcher(this.data, state.filter);
    const rows = [];
    for (let f = 0; f < none; f++) {
      if (state.range && !columns.some((column) => column.values[f])) continue;
      if (matches(f)) rows.push(f);
    }
    rows.sort((a, b) => by[b] - by[a]);
    this.head.replaceChildren(
      ...columns.map(({ key: name, text }) =>
        make(
          "th",
          {
            scope: "col",
            class: `number ${name}`,
            title: MEANINGS[name] || "",
            "aria-sort": name === this.order ? "descending" : "none",
          },
          make(
            "button",
            {
              type: "button",
              onclick: () => {
                this.order = name;
                update({});
              },
            },
            name === this.order ? `${text} \u25be` : text,
          ),
        ),
      ),
      make("th", { scope: "col" }, "function"),
      make("th", { scope: "col" }, "module"),
      make("th", { scope: "col" }, "where"),
    );
    this.body.replaceChildren(
      ...rows.slice(0, ROWS).map((f) => {
        const place = this.data.placeOf(f);
        const short = place.split("/").slice(-2).join("/");
        return make(
          "tr",
          {
            tabIndex: 0,
            class: f === state.fn ? "chosen" : "",
            onclick: () => this.step(f),
            onkeydown: (/** @type {KeyboardEvent} */ event) => {
              if (event.key === "Enter") this.step(f);
            },
          },
          ...columns.map(({ key: name, values, show }) => make("td", { class: `number ${name}` }, show(values[f]))),
          make("td", {}, make("bdi", {}, clean(this.data.nameOf(f)))),
          make("td", {}, make("bdi", {}, clean(head.functions.modules[head.functions.module[f]] || ""))),
          make("td", { title: clean(place), class: "soft" }, make("bdi", {}, clean(short))),
        );
      }),
    );
    let text = rows.length > ROWS ? `the first ${ROWS} of ${showCount(rows.length)}` : counted(rows.length, "function");
    if (state.range) {
      const sums = this.sums();
      const [t0, t1] = state.range;
      const calls = sums.calls.reduce((a, b) => a + b, 0);
      text = `range ${showTime(t0)} to ${showTime(t1)}, ${showTime(t1 - t0)}: ${counted(calls, "call")} begun`;
      if (this.data.blocks.count) {
        text += `; ${showBytes(sums.bytes)} allocated in ${counted(sums.made, "block")}: `;
        text += `${showBytes(sums.keptBytes)} kept, ${showBytes(sums.temporary)} temporary; ${showBytes(sums.freed)} freed`;
      }
    }
    this.status.textContent = text + this.rank();
    this.whole.hidden = !state.range;
  }
}

/**
 * Returns the functions that contain a line: those of each such file with the greatest first line up to it. The last
 * lines of functions are not known.
 * @param {import("./data.js").Data} data
 * @param {string} ending of the file's path, whole names
 * @param {number} wanted
 */
function containing(data, ending, wanted) {
  const { files, file, line } = data.head.functions;
  const slashed = (/** @type {string} */ path) => `/${path}`.toLowerCase().replace(/^\/+|\\/g, "/");
  const fits = files.map((/** @type {string} */ each) => slashed(each).endsWith(slashed(ending)));
  /** The greatest first line, by file. @type {Map<number, number>} */
  const first = new Map();
  const isBefore = (/** @type {number} */ f) => fits[file[f]] && line[f] >= 0 && line[f] <= wanted;
  for (let f = 0; f < data.none; f++) if (isBefore(f)) first.set(file[f], Math.max(first.get(file[f]) ?? 0, line[f]));
  return (/** @type {number} */ f) => isBefore(f) && line[f] === first.get(file[f]);
}

/**
 * Returns a function that says whether a function matches a text: by a part of its name, module or file, or by
 * file:line.
 * @param {import("./data.js").Data} data
 * @param {string} text
 */
export function matcher(data, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return () => true;
  const { name, modules, module, files, file } = data.head.functions;
  const place = /^(.+):(\d+)$/.exec(wanted);
  const contains = place ? containing(data, place[1], Number(place[2])) : () => false;
  return (/** @type {number} */ f) =>
    (name[f] || "").toLowerCase().includes(wanted) ||
    `${modules[module[f]] || ""}.${name[f] || ""}`.toLowerCase().includes(wanted) ||
    (files[file[f]] || "").toLowerCase().includes(wanted) ||
    contains(f);
}
