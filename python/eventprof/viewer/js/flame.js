// Flame graphs of the selected range or instant, by a unit: time, waiting, calls, bytes, blocks, or live bytes.

import { cssOf } from "./colour.js";
import { state, update } from "./state.js";
import { FONT, clean, fit, make, showBytes, showCount, showTime } from "./text.js";
import { Context, invert } from "./tree.js";

export const UNITS = [
  ["self", "time"],
  ["waited", "waited"],
  ["calls", "calls"],
  ["allocated", "bytes allocated"],
  ["kept", "bytes not freed"],
  ["blocks", "blocks allocated"],
  ["live", "live bytes at the instant"],
];
const BAR = 18;
// CSS pixels of a bar; all that are narrower are one bar, so that no part of the width is left out.
const NARROWEST = 0.4;
const MOST_ROWS = 1000; // a canvas may not be higher

/** @param {string} unit @param {number} value */
export function showUnit(unit, value) {
  return unit === "self" || unit === "waited"
    ? showTime(value)
    : unit === "calls" || unit === "blocks"
      ? showCount(value)
      : showBytes(value);
}

export class Flame {
  /**
   * @param {import("./data.js").Data} data
   * @param {HTMLElement} pane
   * @param {(text: string[]|null, x: number, y: number) => void} tell
   */
  constructor(data, pane, tell) {
    this.data = data;
    this.tell = tell;
    /** @type {Context|null} */
    this.known = null;
    this.focus = 0;
    this.key = "";
    /** @type {{node: number, x: number, y: number, w: number}[]} */
    this.boxes = [];
    /**
     * What is too narrow for bars of its own: of each node, the rest of its children.
     * @type {{x: number, y: number, w: number, count: number, value: number}[]}
     */
    this.others = [];
    this.select = /** @type {HTMLSelectElement} */ (
      make("select", { "aria-label": "unit of the flame graph", onchange: () => update({ unit: this.select.value }) })
    );
    this.offered = ""; // the units that can be chosen
    this.turned = /** @type {HTMLInputElement} */ (
      make("input", { type: "checkbox", onchange: () => update({ inverted: this.turned.checked }) })
    );
    this.status = make("span", { class: "soft" });
    this.back = make(
      "button",
      {
        type: "button",
        onclick: () => {
          this.focus = 0;
          update({});
        },
      },
      "whole graph",
    );
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { tabIndex: 0, role: "img" }));
    this.box = make("div", { class: "scroll" }, this.canvas);
    pane.append(
      make(
        "div",
        { class: "bar" },
        this.select,
        make("label", {}, this.turned, " callees first (inverted)"),
        this.back,
        this.status,
      ),
      this.box,
    );
    this.canvas.addEventListener("click", (event) => {
      const node = this.under(event.offsetX, event.offsetY);
      if (node < 0) return;
      this.focus = node;
      update({ fn: this.graph.tree.func[node] });
    });
    this.canvas.addEventListener("mousemove", (event) => {
      const node = this.under(event.offsetX, event.offsetY);
      tell(node < 0 ? this.otherWords(event.offsetX, event.offsetY) : this.words(node), event.clientX, event.clientY);
    });
    this.canvas.addEventListener("mouseleave", () => tell(null, 0, 0));
    /** @type {{tree: import("./tree.js").Tree, self: Float64Array, total: Float64Array}} */
    this.graph = /** @type {any} */ (null);
  }

  /** Returns the units that were recorded, with their names. */
  units() {
    const { data } = this;
    const { known, recorded } = data.waiting;
    return UNITS.filter(
      ([unit]) => (data.blocks.count || ["self", "waited", "calls"].includes(unit)) && (unit !== "waited" || known),
    ).map(([unit, name]) => [
      unit,
      unit === "waited" && !recorded ? "waited: another thread had the interpreter's lock" : name,
    ]);
  }

  /** Offers the units that were recorded: whether threads waited is known only after a while. */
  offer() {
    const units = this.units();
    if (!units.some(([unit]) => unit === state.unit)) state.unit = "self";
    const key = units.join("\0");
    if (key !== this.offered)
      this.select.replaceChildren(...units.map(([value, text]) => make("option", { value }, text)));
    this.offered = key;
    this.select.value = state.unit;
  }

  /** The colour of a node. @param {import("./colour.js").Palette} look @param {number} node */
  colourOf(look, node) {
    return look.calls[this.graph.tree.func[node]];
  }

  /** Describes the time that the graph is about. */
  where() {
    const { peak } = this.data.head;
    if (state.unit !== "live")
      return state.range ? `${showTime(state.range[0])} to ${showTime(state.range[1])}` : "whole run";
    const at = `at ${showTime(state.instant ?? (peak ? peak[0] : this.data.duration))}${state.instant === null && peak ? ", the peak" : ""}`;
    return state.range ? `${at} (of the instant, not of the range)` : at;
  }

  /** What times were added up, where their sum may be longer than the run. */
  sumOf() {
    const threads = this.data.head.threads.length;
    return threads > 1 && (state.unit === "self" || state.unit === "waited")
      ? `, the sum of ${showCount(threads)} threads`
      : "";
  }

  get context() {
    if (!this.known) this.known = new Context(this.data);
    return this.known;
  }

  /** @param {number} node */
  words(node) {
    const { tree, self, total } = this.graph;
    const f = tree.func[node];
    const whole = total[0] || 1;
    return [
      clean(this.data.nameOf(f)),
      clean(this.data.placeOf(f)),
      `${showUnit(state.unit, total[node])} (${((100 * total[node]) / whole).toFixed(1)} %), self ${showUnit(state.unit, self[node] || 0)}`,
    ];
  }

  /** Computes the graph of what is selected, if that has changed. */
  compute() {
    const [t0, t1] = state.range || [0, this.data.duration];
    const key = [state.unit, state.unit === "live" ? (state.instant ?? t1) : `${t0},${t1}`, state.inverted].join();
    if (key === this.key) return;
    this.key = key;
    this.focus = 0;
    let self = this.context.values(
      state.unit,
      t0,
      t1 + (state.range ? 0 : 1),
      state.instant ?? (this.data.head.peak ? this.data.head.peak[0] : t1),
    );
    let tree = this.context.tree;
    if (state.inverted) ({ tree, self } = invert(tree, self));
    this.show(tree, self);
  }

  /** Takes a tree and the values of its nodes. @param {import("./tree.js").Tree} tree @param {Float64Array} self */
  show(tree, self) {
    this.graph = { tree, self, total: tree.totals(self) };
    this.children = /** @type {Map<number, number[]>} */ (new Map());
    for (let n = 1; n < tree.count; n++) {
      if (this.graph.total[n] <= 0) continue;
      const list = this.children.get(tree.parent[n]);
      if (list) list.push(n);
      else this.children.set(tree.parent[n], [n]);
    }
    for (const list of this.children.values()) list.sort((a, b) => this.graph.total[b] - this.graph.total[a]);
  }

  /** @param {import("./colour.js").Palette} look */
  draw(look) {
    this.offer();
    this.turned.checked = state.inverted;
    this.compute();
    const { tree, total } = this.graph;
    const wide = Math.max(50, this.box.clientWidth - 4);
    this.boxes = [];
    this.others = [];
    let deepest = 0;
    const focus = this.focus;
    const path = [];
    for (let n = focus; n > 0; n = tree.parent[n]) path.unshift(n);
    path.forEach((node, y) => this.boxes.push({ node, x: 0, y, w: wide }));
    const base = total[focus] || 1;
    const stack = [{ node: focus, x: 0, y: path.length - 1 }];
    while (stack.length) {
      const { node, x, y } = /** @type {any} */ (stack.pop());
      let left = x;
      const list = this.children?.get(node) || [];
      for (const [n, child] of list.entries()) {
        if (y + 1 >= MOST_ROWS) break;
        const w = (total[child] / base) * wide;
        if (w < NARROWEST) {
          // the children are sorted: all others are smaller
          const value = list.slice(n).reduce((sum, each) => sum + total[each], 0);
          const all = (value / base) * wide;
          if (all >= 1) {
            this.others.push({ x: left, y: y + 1, w: all, count: list.length - n, value });
            deepest = Math.max(deepest, y + 1);
          }
          break;
        }
        this.boxes.push({ node: child, x: left, y: y + 1, w });
        stack.push({ node: child, x: left, y: y + 1 });
        deepest = Math.max(deepest, y + 1);
        left += w;
      }
    }
    deepest = Math.max(deepest, path.length);
    const scale = window.devicePixelRatio || 1;
    const high = (deepest + 1) * BAR;
    const { canvas } = this;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.min(16000, Math.round(high * scale));
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = cssOf(look.back);
    context.fillRect(0, 0, wide, high);
    context.font = FONT;
    context.textBaseline = "middle";
    for (const { node, x, y, w } of this.boxes) {
      context.fillStyle = cssOf(this.colourOf(look, node));
      if (path.includes(node) && node !== focus) context.globalAlpha = 0.55;
      context.fillRect(x, y * BAR, Math.max(0.5, w - (w > 3 ? 1 : 0)), BAR - 1);
      context.globalAlpha = 1;
      if (w > 30) {
        context.fillStyle = look.text;
        context.fillText(fit(context, clean(this.data.nameOf(tree.func[node])), w - 8), x + 4, y * BAR + BAR / 2);
      }
    }
    for (const { x, y, w, count } of this.others) {
      context.fillStyle = cssOf(look.line);
      context.fillRect(x, y * BAR, Math.max(0.5, w - (w > 3 ? 1 : 0)), BAR - 1);
      context.fillStyle = look.soft;
      if (w > 30)
        context.fillText(
          fit(context, `other: ${showCount(count)} too narrow to draw`, w - 8),
          x + 4,
          y * BAR + BAR / 2,
        );
    }
    const where = this.where();
    const sum = total[0] > 0 ? `${showUnit(state.unit, total[0])}` : "nothing to show here";
    this.status.textContent = `${where}: ${sum}${this.sumOf()}`;
    canvas.setAttribute("aria-label", `Flame graph, ${where}: ${sum}${this.sumOf()}`);
    this.back.hidden = !focus;
  }

  /** Describes the bar of what is too narrow to draw, under a point. @param {number} x @param {number} y */
  otherWords(x, y) {
    const row = Math.floor(y / BAR);
    const found = this.others.find((each) => each.y === row && x >= each.x && x < each.x + each.w);
    if (!found) return null;
    const share = (100 * found.value) / (this.graph.total[0] || 1);
    return [
      `other: ${showCount(found.count)} too narrow to draw`,
      `${showUnit(state.unit, found.value)} (${share.toFixed(1)} %)`,
    ];
  }

  /** @param {number} x @param {number} y */
  under(x, y) {
    const row = Math.floor(y / BAR);
    const box = this.boxes.find((each) => each.y === row && x >= each.x && x < each.x + each.w);
    return box ? box.node : -1;
  }
}
