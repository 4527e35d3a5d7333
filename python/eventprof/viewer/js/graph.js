// Starts the page of a flame graph, of one recording or of two. Of two, the widths are those of one, and colours show
// the change.

import { AREA_NAMES, areaColour, blend, cssOf, palette, pixel } from "./colour.js";
import { Flame, UNITS, showUnit } from "./flame.js";
import { applyTheme, fromFragment, onChange, state, turnTheme, update, writeFragment } from "./state.js";
import { byId, clean, counted, make, showCount, showTip } from "./text.js";
import { Tree, invert } from "./tree.js";
import { giveUp, unpack } from "./unpack.js";

const SIDES = ["before", "after"];
const MOST_TABLE = 500; // the most rows of the table of functions

/** Returns a flame graph the data that it asks for, from the head of this page. */
class Stacks {
  /** @param {any} head */
  constructor(head) {
    this.head = head;
    this.none = head.functions.name.length;
    this.sides = head.titles.length;
    this.tree = new Tree();
    const count = head.parent.length;
    // The nodes are only found by their numbers here, so the tree's hash table stays empty.
    Object.assign(this.tree, { count, parent: Int32Array.from(head.parent), func: Int32Array.from(head.function) });
  }

  /** @param {number} f */
  nameOf(f) {
    return f >= 0 && f < this.none ? this.head.functions.name[f] || "(no name)" : "(unknown)";
  }

  /** @param {number} f */
  placeOf(f) {
    return f >= 0 && f < this.none ? this.head.functions.place[f] : "";
  }
}

/**
 * Returns the change of a value as a number from -1 (gone) over 0 (the same) to 1 (new).
 * @param {number} before
 * @param {number} after
 */
export function changeOf(before, after) {
  const most = Math.max(before, after);
  return most > 0 ? (after - before) / most : 0;
}

class Graph extends Flame {
  /**
   * @param {Stacks} stacks
   * @param {HTMLElement} pane
   * @param {(words: string[]|null, x: number, y: number) => void} tell
   */
  constructor(stacks, pane, tell) {
    super(/** @type {any} */ (stacks), pane, tell);
    this.stacks = stacks;
    /** The functions that the search found. @type {Set<number>} */
    this.hits = new Set();
    /** The values of each recording: of each node alone, and (`totals`) with all nodes below. @type {Float64Array[]} */
    this.sides = [];
    /** @type {Float64Array[]} */
    this.totals = [];
  }

  units() {
    const { values } = this.data.head;
    const ofRun = [
      ["at_peak", "bytes live at the peak"],
      ["live", "bytes live at the end"],
    ];
    return [...UNITS.filter(([unit]) => unit !== "live"), ...ofRun].filter(([unit]) => unit in values);
  }

  compute() {
    const { head, tree } = this.stacks;
    const key = [state.unit, state.inverted, state.side].join();
    if (key === this.key) return;
    if (!this.key.startsWith(`${state.unit},${state.inverted},`)) this.focus = 0;
    this.key = key;
    /** @type {Float64Array[]} */
    const sides = head.values[state.unit].map((/** @type {number[]} */ values) => Float64Array.from(values));
    let shape = tree;
    if (state.inverted) {
      // Both recordings share one tree, with the nodes that either has.
      const sum = Float64Array.from(sides[0], (_, n) => sides.reduce((all, side) => all + Math.max(0, side[n]), 0));
      const turned = invert(tree, sum);
      shape = turned.tree;
      this.sides = sides.map((side) => invertInto(tree, side, shape));
    } else this.sides = sides;
    this.totals = this.sides.map((side) => shape.totals(side));
    this.show(shape, this.sides[this.sides.length > 1 && state.side === "before" ? 0 : this.sides.length - 1]);
  }

  /** @param {import("./colour.js").Palette} look @param {number} node */
  colourOf(look, node) {
    const { tree } = this.graph;
    let colour = look.calls[tree.func[node]];
    if (this.totals.length > 1) colour = changeColour(look, changeOf(this.totals[0][node], this.totals[1][node]));
    if (state.search && !this.hits.has(tree.func[node])) return blend(colour, look.back, 60);
    return colour;
  }

  where() {
    return this.stacks.sides > 1 ? `width: ${state.side}` : "whole run";
  }

  sumOf() {
    const threads = this.stacks.head.threads;
    return threads > 1 && (state.unit === "self" || state.unit === "waited") ? `, the sum of ${threads} threads` : "";
  }

  /** @param {number} node */
  words(node) {
    const words = super.words(node);
    if (this.totals.length < 2) return words;
    const [before, after] = this.totals.map((total) => total[node]);
    return [
      ...words,
      `before ${showUnit(state.unit, before)}, after ${showUnit(state.unit, after)}: ${signed(after - before)}`,
    ];
  }
}

/** Returns the end of a path: its folder and its file. @param {string} path */
function tail(path) {
  return path.split("/").slice(-2).join("/");
}

/** @param {number} value */
function signed(value) {
  return value ? `${value > 0 ? "+" : "-"}${showUnit(state.unit, Math.abs(value))}` : "the same";
}

/**
 * Orange for more, blue for less, grey for about the same.
 * @param {import("./colour.js").Palette} look
 * @param {number} change
 */
function changeColour(look, change) {
  const same = pixel(look.dark ? [70, 75, 84] : [216, 220, 226]);
  const size = Math.abs(change);
  if (size < 0.02) return same;
  const end =
    change > 0
      ? pixel(look.dark ? [196, 104, 20] : [240, 138, 36])
      : pixel(look.dark ? [42, 110, 180] : [86, 160, 225]);
  return blend(end, same, Math.round(256 * Math.min(1, 0.25 + size)));
}

/**
 * Returns the values of a tree for the nodes of its inverse.
 * @param {Tree} tree
 * @param {Float64Array} self
 * @param {Tree} shape
 */
function invertInto(tree, self, shape) {
  const values = new Float64Array(shape.count);
  for (let n = 1; n < tree.count; n++) {
    if (self[n] <= 0) continue;
    let at = 0;
    for (let up = n, depth = 0; up > 0 && depth < 100; up = tree.parent[up], depth++)
      at = shape.child(at, tree.func[up]);
    values[at] += self[n];
  }
  return values;
}

async function startGraph() {
  const head = JSON.parse(new TextDecoder().decode(await unpack("head")));
  const stacks = new Stacks(head);
  const plain = { ...state };
  Object.assign(state, fromFragment(location.hash));
  if (!(state.unit in head.values)) state.unit = "self";
  if (!SIDES.includes(state.side)) state.side = "after";
  const two = stacks.sides > 1;
  byId("title").textContent = head.titles.map(clean).join(" \u2192 ");
  byId("summary").textContent = two ? head.times.join(" \u2192 ") : head.summary;
  const lost = head.notes.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.lost, 0);
  const unsure = head.notes
    .map((/** @type {any} */ each) => each.unsure)
    .filter(Boolean)
    .join(", ");
  byId("notes").textContent = lost ? `${counted(lost, "event")} lost` : unsure || "nothing lost";
  byId("notes").className = lost || unsure ? "bad" : "good";
  byId("limits").replaceChildren(
    ...head.notes.flatMap((/** @type {any} */ notes, /** @type {number} */ n) =>
      notes.limits.map((/** @type {string} */ text) =>
        make("span", { dir: "auto" }, `${two ? `${SIDES[n]}: ` : ""}${clean(text)}`),
      ),
    ),
  );
  const flame = new Graph(stacks, byId("graph"), showTip);
  if (two) {
    const side = /** @type {HTMLSelectElement} */ (
      make(
        "select",
        { id: "side", "aria-label": "recording that gives the widths", onchange: () => update({ side: side.value }) },
        make("option", { value: "after" }, "widths of after"),
        make("option", { value: "before" }, "widths of before"),
      )
    );
    flame.select.after(side);
  }
  /** @type {{by: string, down: boolean}} */
  const order = { by: two ? "change" : "alone", down: true };
  const table = make("table");
  byId("table").append(make("div", { class: "scroll" }, table));
  let filled = "";

  const fill = () => {
    const key = [state.unit, order.by, order.down, state.search].join("\0");
    if (key === filled) return;
    filled = key;
    const each = head.table[state.unit].map((/** @type {[number[], number[]]} */ [alone, below]) => ({ alone, below }));
    const last = each[each.length - 1];
    const rows = Array.from({ length: stacks.none }, (_, f) => ({
      f,
      alone: last.alone[f],
      below: last.below[f],
      ...(two
        ? {
            before: each[0].alone[f],
            belowBefore: each[0].below[f],
            change: last.alone[f] - each[0].alone[f],
            changeBelow: last.below[f] - each[0].below[f],
          }
        : {}),
    }))
      .filter((/** @type {any} */ row) => row.below || row.belowBefore)
      .filter(({ f }) => !state.search || flame.hits.has(f));
    rows.sort(
      (/** @type {any} */ a, /** @type {any} */ b) =>
        (Math.abs(b[order.by]) - Math.abs(a[order.by])) * (order.down ? 1 : -1),
    );
    const columns = two
      ? [
          ["before", "self before"],
          ["alone", "self after"],
          ["change", "change"],
          ["belowBefore", "total before"],
          ["below", "total after"],
          ["changeBelow", "change"],
        ]
      : [
          ["alone", "self"],
          ["below", "total"],
        ];
    const show = (/** @type {string} */ name, /** @type {number} */ value) =>
      name.startsWith("change")
        ? make(
            "td",
            { class: `number ${value > 0 ? "more" : value < 0 ? "less" : "soft"}` },
            value ? signed(value) : "=",
          )
        : make("td", { class: "number" }, showUnit(state.unit, value));
    const others = rows.slice(MOST_TABLE);
    const ofCallees = ["below", "belowBefore", "changeBelow"]; // of functions that call each other, these do not add up
    table.replaceChildren(
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...columns.map(([name, text]) =>
            make(
              "th",
              { class: "number", "aria-sort": order.by === name ? (order.down ? "descending" : "ascending") : "none" },
              make(
                "button",
                {
                  type: "button",
                  onclick: () => {
                    order.down = order.by === name ? !order.down : true;
                    order.by = name;
                    update({});
                  },
                },
                `${text}${order.by === name ? (order.down ? " \u25be" : " \u25b4") : ""}`,
              ),
            ),
          ),
          make("th", {}, "function"),
          make("th", {}, "place"),
        ),
      ),
      make(
        "tbody",
        {},
        ...rows
          .slice(0, MOST_TABLE)
          .map((/** @type {any} */ row) =>
            make(
              "tr",
              {},
              ...columns.map(([name]) => show(name, row[name])),
              make("td", {}, make("bdi", {}, clean(stacks.nameOf(row.f)))),
              make(
                "td",
                { class: "soft", title: clean(stacks.placeOf(row.f)) },
                make("bdi", {}, clean(tail(stacks.placeOf(row.f)))),
              ),
            ),
          ),
      ),
      ...(others.length
        ? [
            make(
              "tfoot",
              {},
              make(
                "tr",
                {},
                ...columns.map(([name]) =>
                  ofCallees.includes(name)
                    ? make("td")
                    : show(
                        name,
                        others.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row[name], 0),
                      ),
                ),
                make("td", { class: "soft" }, `all others: ${showCount(others.length)} functions`),
                make("td"),
              ),
            ),
          ]
        : []),
    );
  };

  let look = palette(head.functions, "area", false);
  const draw = () => {
    const dark = applyTheme();
    look = palette(head.functions, "area", dark);
    const words = state.search.toLowerCase();
    flame.hits = new Set(
      head.functions.name.flatMap((/** @type {string|null} */ name, /** @type {number} */ f) =>
        words && (`${name}`.toLowerCase().includes(words) || head.functions.place[f].toLowerCase().includes(words))
          ? [f]
          : [],
      ),
    );
    byId("found").textContent = state.search ? `${flame.hits.size} functions` : "";
    flame.draw(look);
    fill();
    const side = byId("side");
    if (side) side.value = state.side;
    if (byId("search") !== document.activeElement) byId("search").value = state.search;
    const used = new Set(head.functions.area);
    const swatch = (/** @type {string} */ colour, /** @type {string} */ text) => {
      const box = make("i");
      box.style.background = colour;
      return make("span", {}, box, text);
    };
    const css = (/** @type {number} */ change) => cssOf(changeColour(look, change));
    byId("legend").replaceChildren(
      ...(two
        ? [
            swatch(css(1), "more than before, or new"),
            swatch(css(0), "about the same"),
            swatch(css(-1), "less than before"),
          ]
        : AREA_NAMES.flatMap((name, area) => (used.has(area) ? [swatch(areaColour(area, dark), name)] : []))),
    );
    writeFragment(plain);
  };
  onChange(draw);
  byId("search").addEventListener("input", () => update({ search: byId("search").value }));
  byId("theme").addEventListener("click", turnTheme);
  window.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLInputElement) return;
    if (event.key === "/") {
      event.preventDefault();
      byId("search").focus();
    } else if (event.key === "Escape" && flame.focus) {
      flame.focus = 0;
      update({});
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => update({}));
  window.addEventListener("hashchange", () => update({ ...plain, ...fromFragment(location.hash) }));
  new ResizeObserver(() => update({})).observe(byId("graph"));
  draw();
  Object.assign(window, {
    eventprofGraph: { head, stacks, flame, state, update, rows: () => table.querySelectorAll("tbody tr").length },
  });
}

startGraph().catch(giveUp);
