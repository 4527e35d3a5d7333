// The panels of one call, beside the median call of its function, and of one instant.

import { branches } from "./branches.js";
import { showUnit } from "./flame.js";
import { state, update } from "./state.js";
import { clean, make, showBytes, showCount, showTime } from "./text.js";

const FLAG_WORDS = /** @type {[number, string][]} */ ([
  [1, "open when recording began"],
  [2, "open when recording ended"],
  [4, "suspended by a yield"],
  [8, "ended by an exception"],
  [16, "its end was not recorded"],
  [32, "recursive"],
]);
const WAITS = "the time in which the thread did not run: it waited, or others had the processors";
const WAITED = "the time in which another thread had the interpreter's lock, as far as events show";
const MOST = 60; // the most calls of a path
const MOST_BLOCKS = 20;
const MOST_HOLDERS = 200;

/** @param {import("./data.js").Data} data @param {number} call */
export function wordsOf(data, call) {
  const { head } = data;
  const parent = data.linked ? data.parentOf(call) : -1; // without the links, of some calls a wrong one
  const kind = head.kinds[data.kindOf(call)];
  const thread = head.threads[data.rows[data.rowOf(call)].thread];
  const words = [clean(data.nameOf(data.func[call])), clean(data.placeOf(data.func[call]))];
  words.push(
    `${showTime(data.dur[call])}${data.flags[call] & 19 ? " at least" : ""}, began at ${showTime(data.start[call])}, ${kind}, ${clean(thread.name)}`,
  );
  if (parent >= 0) {
    words.push(
      `called by ${clean(data.nameOf(data.func[parent]))}${data.line[call] ? `, line ${data.line[call]}` : ""}`,
    );
  } else if (data.line[call]) words.push(`called from line ${data.line[call]}`);
  if (data.task && data.task[call]) words.push(`task ${clean(head.tasks[data.task[call] - 1])}`);
  const flags = FLAG_WORDS.filter(([bit]) => data.flags[call] & bit).map(([, word]) => word);
  if (flags.length) words.push(flags.join(", "));
  return words;
}

export class CallDetail {
  /**
   * @param {import("./data.js").Data} data
   * @param {HTMLElement} pane
   * @param {import("./histogram.js").Histogram} histogram
   * @param {(call: number) => void} go
   * @param {(file: string, line: number) => void} open shows a line of the source
   */
  constructor(data, pane, histogram, go, open) {
    this.data = data;
    this.histogram = histogram;
    this.go = go;
    this.open = open;
    /** Files whose source is in the page. */
    this.sources = new Set(data.head.source.map((/** @type {{file: string}} */ each) => each.file));
    this.box = make("div", { class: "scroll text" });
    pane.append(this.box);
    this.key = "";
    /** @type {Map<string, boolean>} */
    this.choice = new Map();
  }

  /** Where a function is; a link if its source is in the page. @param {number} f @param {string} text */
  placeLink(f, text) {
    const { files, file, line } = this.data.head.functions;
    const path = f < this.data.none ? files[file[f]] : null;
    const shown = make("bdi", {}, text);
    return this.sources.has(path)
      ? make("button", { type: "button", class: "link", onclick: () => this.open(path, line[f]) }, shown)
      : shown;
  }

  draw() {
    const { data } = this;
    const { call } = state;
    const key = `${call},${data.complete}`;
    if (key === this.key) return;
    this.key = key;
    this.choice.clear();
    this.fill();
  }

  fill() {
    const { data } = this;
    const { call } = state;
    if (call < 0 || call >= data.count || !data.complete) {
      this.box.replaceChildren(
        make(
          "p",
          { class: "soft" },
          "Click a call on the timeline to see what it did, beside the median call of its function.",
        ),
      );
      return;
    }
    const f = data.func[call];
    const before = state.fn;
    state.fn = f;
    this.histogram.compute();
    state.fn = before;
    const { calls } = this.histogram;
    const median = calls[calls.length >> 1];
    const both = [call, median];
    const path = [];
    for (let up = data.parentOf(call); up >= 0 && path.length < MOST; up = data.parentOf(up)) path.unshift(up);
    const memory = both.map((each) => data.memoryOf(each));
    const [title, ...rest] = wordsOf(data, call);
    const link = (/** @type {number} */ to, /** @type {string} */ text) =>
      make("button", { type: "button", class: "link", onclick: () => this.go(to) }, make("bdi", {}, text));
    const fact = (/** @type {string} */ name, /** @type {(each: number, n: number) => string} */ value, title = "") =>
      make(
        "tr",
        { title },
        make("th", { scope: "row" }, name),
        ...both.map((each, n) => make("td", { class: "number" }, value(each, n))),
      );
    const { rows, more } = branches(data, call, median, this.choice);
    const toggle = (/** @type {import("./branches.js").Branch} */ row) => {
      const text = `${row.opened ? "\u25be" : "\u25b8"} ${clean(data.nameOf(row.fn))}`;
      const turn = () => {
        this.choice.set(row.path, !row.opened);
        this.fill();
        /** @type {HTMLElement|undefined} */ (
          [...this.box.querySelectorAll("button")].find((each) => each.dataset.path === row.path)
        )?.focus();
      };
      const button = make(
        "button",
        { type: "button", class: "toggle", "aria-expanded": String(row.opened), onclick: turn },
        make("bdi", {}, text),
      );
      button.dataset.path = row.path;
      return button;
    };
    const branch = (/** @type {import("./branches.js").Branch} */ row) => {
      const head = make(
        "th",
        { scope: "row" },
        row.leaf ? make("bdi", { class: "toggle" }, `\u2002 ${clean(data.nameOf(row.fn))}`) : toggle(row),
      );
      head.style.paddingLeft = `${row.depth * 14}px`;
      const sides = median === call ? [0] : [0, 1];
      return make(
        "tr",
        {},
        head,
        ...sides.map((n) =>
          make(
            "td",
            { class: "number" },
            row.calls[n].length ? `${showTime(row.time[n])} in ${showCount(row.calls[n].length)}` : "-",
          ),
        ),
      );
    };
    this.box.replaceChildren(
      make("h2", {}, make("bdi", {}, title)),
      ...rest.map((text, n) =>
        make("div", { class: "soft" }, n === 0 ? this.placeLink(f, text) : make("bdi", {}, text)),
      ),
      make(
        "div",
        { class: "path" },
        ...path.flatMap((each) => [link(each, clean(data.nameOf(data.func[each]))), " \u203a "]),
        title,
      ),
      ...this.readyOf(call, link),
      make(
        "table",
        { class: "facts" },
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            make("td"),
            make("th", { scope: "col" }, "this call"),
            make(
              "th",
              { scope: "col" },
              median === call ? "the median is this call" : link(median, `median of ${showCount(calls.length)}`),
            ),
          ),
        ),
        make(
          "tbody",
          {},
          fact("time", (each) => showTime(data.dur[each])),
          fact("self", (each) => showTime(data.selfOf(each))),
          ...(data.waiting.known
            ? [fact("waited", (each) => showTime(data.waitedOf(each)), data.waiting.recorded ? WAITS : WAITED)]
            : []),
          ...(data.blocks.count
            ? [
                fact("allocated, self", (_, n) => `${showBytes(memory[n].bytes)} in ${showCount(memory[n].blocks)}`),
                fact(
                  "allocated, total",
                  (_, n) => `${showBytes(memory[n].below)} in ${showCount(memory[n].blocksBelow)}`,
                ),
              ]
            : []),
          ...rows.map(branch),
        ),
      ),
      ...(more ? [make("div", { class: "soft" }, "and more functions")] : []),
      ...this.blocks(call, link),
    );
  }

  /**
   * Says what a task awaited before a step of it, and who made it ready.
   * @param {number} call
   * @param {(to: number, text: string) => HTMLElement} link
   */
  readyOf(call, link) {
    const { data } = this;
    const ready = data.readyOf(call);
    if (!ready) return [];
    const maker = data.makerOf(ready);
    const more = maker < 0 ? [] : [": ", link(maker, clean(data.nameOf(data.func[maker])))];
    return [make("div", { class: "soft" }, data.readyWords(call, ready), ...more)];
  }

  /**
   * Shows the largest blocks that a call allocated itself, each with the call that freed it.
   * @param {number} call
   * @param {(to: number, text: string) => HTMLElement} link
   */
  blocks(call, link) {
    const { data } = this;
    const row = data.rowOf(call);
    const found = [];
    const last = data.blocks.eventAfter(data.start[call] + data.dur[call]);
    for (let at = data.blocks.eventAt(data.start[call]); at < last; at++) {
      if (data.blocks.isBirth(at) && data.blocks.eventRow[at] === row + 1 && data.callOfEvent(at) === call)
        found.push(data.blocks.blockOf(at));
    }
    if (!found.length) return [];
    found.sort((a, b) => data.blocks.size[b] - data.blocks.size[a]);
    const shown = found.slice(0, MOST_BLOCKS);
    const deaths = data.blocks.deathsOf(shown);
    return [
      make(
        "h3",
        {},
        `Blocks it allocated itself${found.length > MOST_BLOCKS ? `, the ${MOST_BLOCKS} largest of ${showCount(found.length)}` : ""}`,
      ),
      make(
        "table",
        { class: "facts" },
        make(
          "tbody",
          {},
          ...shown.map((block) => {
            const death = deaths.get(block);
            const in_ = death === undefined ? -1 : data.callOfEvent(death);
            return make(
              "tr",
              {},
              make("td", { class: "number" }, showBytes(data.blocks.size[block])),
              make("td", {}, data.blocks.lineOf(block) ? `line ${data.blocks.lineOf(block)}` : ""),
              make(
                "td",
                {},
                death === undefined
                  ? "live at the end"
                  : `lived ${showTime(data.blocks.timeOf(death) - data.blocks.timeOf(data.blocks.birthOf(block)))}`,
              ),
              make("td", {}, ...(in_ >= 0 ? ["freed in ", link(in_, clean(data.nameOf(data.func[in_])))] : [])),
            );
          }),
        ),
      ),
    ];
  }
}

export class InstantDetail {
  /** @param {import("./data.js").Data} data @param {HTMLElement} pane @param {(call: number) => void} go */
  constructor(data, pane, go) {
    this.data = data;
    this.go = go;
    this.box = make("div", { class: "scroll text" });
    pane.append(this.box);
    this.key = "";
  }

  draw() {
    const { data } = this;
    const key = `${state.instant},${data.complete},${state.hold}`;
    if (key === this.key) return;
    this.key = key;
    if (state.instant === null || !data.complete) {
      this.box.replaceChildren(
        make(
          "p",
          { class: "soft" },
          "Click the picture of memory, or an empty place of the timeline, to see what was running and what was live at that instant.",
        ),
      );
      return;
    }
    const time = state.instant;
    data.blocks.holdBy(state.hold);
    const { bytes, blocks, rows, largest } = liveByHolder(data, time);
    const deaths = data.blocks.deathsOf(largest);
    const open = data.openAt(time);
    this.box.replaceChildren(
      make("h2", { title: `${showCount(time)} ns` }, `At ${showTime(time)}`),
      make(
        "div",
        { class: "columns" },
        make(
          "div",
          {},
          make("h3", {}, `Running: ${showCount(open.length)} open calls`),
          make(
            "table",
            {},
            make(
              "tbody",
              {},
              ...open.slice(0, 400).map((call) => {
                const row = data.rows[data.rowOf(call)];
                return make(
                  "tr",
                  {},
                  make(
                    "td",
                    { class: "soft" },
                    row.depth === 0 || call === open[0]
                      ? make("bdi", {}, clean(data.head.threads[row.thread].name))
                      : "",
                  ),
                  make("td", { class: "number" }, showTime(time - data.start[call])),
                  make(
                    "td",
                    {},
                    make(
                      "button",
                      { type: "button", class: "link", onclick: () => this.go(call) },
                      make("bdi", {}, clean(data.nameOf(data.func[call]))),
                    ),
                    ...this.waitOf(call, open, time),
                  ),
                );
              }),
            ),
          ),
        ),
        data.blocks.count
          ? make(
              "div",
              {},
              make(
                "h3",
                {},
                `Live: ${showBytes(bytes)} in ${showCount(blocks)} blocks `,
                make(
                  "button",
                  { type: "button", onclick: () => update({ tab: "flame", unit: "live" }) },
                  "as a flame graph",
                ),
              ),
              ...(rows.length > MOST_HOLDERS
                ? [
                    make(
                      "div",
                      { class: "soft" },
                      `the first ${showCount(MOST_HOLDERS)} of ${showCount(rows.length)}, by bytes`,
                    ),
                  ]
                : []),
              make(
                "table",
                {},
                make(
                  "thead",
                  {},
                  make(
                    "tr",
                    {},
                    make("th", { class: "number" }, "bytes"),
                    make("th", { class: "number" }, "blocks"),
                    make("th", {}, "holder"),
                  ),
                ),
                make(
                  "tbody",
                  {},
                  ...rows
                    .slice(0, MOST_HOLDERS)
                    .map(([f, size, count]) =>
                      make(
                        "tr",
                        {},
                        make("td", { class: "number" }, showUnit("live", size)),
                        make("td", { class: "number" }, showCount(count)),
                        make("td", {}, make("bdi", {}, clean(data.blocks.holderName(f)))),
                      ),
                    ),
                ),
              ),
              make("h3", {}, largest.length < blocks ? `The ${largest.length} largest blocks` : "Blocks"),
              make(
                "table",
                { class: "blocks" },
                make("tbody", {}, ...largest.map((block) => this.blockRow(block, deaths.get(block)))),
              ),
            )
          : make("div", { class: "soft" }, "Memory was not recorded."),
      ),
    );
  }

  /**
   * What the thread of a call waits for, beside its innermost call, with the call of who lets it go on.
   * @param {number} call
   * @param {number[]} open all that are open then, the outermost of each thread first
   * @param {number} time
   */
  waitOf(call, open, time) {
    const { data } = this;
    const threadOf = (/** @type {number} */ each) => data.rows[data.rowOf(each)].thread;
    const next = open[open.indexOf(call) + 1];
    const words = data.waitWords(threadOf(call), time);
    if (!words.length || (next !== undefined && threadOf(next) === threadOf(call))) return [];
    const holder = data.holderAt(threadOf(call), time);
    return [
      make("span", { class: "soft" }, ` ${words.join("")}`),
      ...(holder < 0
        ? []
        : [
            make("span", { class: "soft" }, ", then in "),
            make(
              "button",
              { type: "button", class: "link", onclick: () => this.go(holder) },
              make("bdi", {}, clean(data.nameOf(data.func[holder]))),
            ),
          ]),
    ];
  }

  /**
   * Shows a block with the call that allocated it and the call that freed it.
   * @param {number} block
   * @param {number|undefined} death the event
   */
  blockRow(block, death) {
    const { data } = this;
    const link = (/** @type {string} */ text, /** @type {number} */ event) => {
      const call = data.callOfEvent(event);
      if (call < 0) return [`${text} by no recorded call`];
      return [
        `${text} by `,
        make(
          "button",
          { type: "button", class: "link", onclick: () => this.go(call) },
          make("bdi", {}, clean(data.nameOf(data.func[call]))),
        ),
      ];
    };
    const birth = data.blocks.birthOf(block);
    return make(
      "tr",
      {},
      make("td", { class: "number" }, showBytes(data.blocks.size[block])),
      make("td", {}, ...link(`made at ${showTime(data.blocks.timeOf(birth))}`, birth)),
      make(
        "td",
        {},
        ...(death === undefined ? ["live at the end"] : link(`freed at ${showTime(data.blocks.timeOf(death))}`, death)),
      ),
    );
  }
}

/**
 * Returns the live bytes and blocks at a time by holder, the most bytes first, and the largest blocks.
 * @param {import("./data.js").Data} data
 * @param {number} time
 */
export function liveByHolder(data, time) {
  const size = new Float64Array(data.blocks.holderCount);
  const count = new Float64Array(data.blocks.holderCount);
  /** @type {number[]} */
  const largest = [];
  let bytes = 0;
  let blocks = 0;
  data.blocks.live(time, (block) => {
    size[data.blocks.holderOf(block)] += data.blocks.size[block];
    count[data.blocks.holderOf(block)]++;
    if (largest.length < MOST_BLOCKS || data.blocks.size[block] > data.blocks.size[largest[largest.length - 1]]) {
      let at = largest.length;
      while (at > 0 && data.blocks.size[largest[at - 1]] < data.blocks.size[block]) at--;
      largest.splice(at, 0, block);
      if (largest.length > MOST_BLOCKS) largest.pop();
    }
    bytes += data.blocks.size[block];
    blocks++;
  });
  /** @type {[number, number, number][]} */
  const rows = [];
  for (let f = 0; f < count.length; f++) if (count[f]) rows.push([f, size[f], count[f]]);
  rows.sort((a, b) => b[1] - a[1]);
  return { bytes, blocks, rows, largest };
}
