// A histogram of the durations of one function's calls, on a logarithmic scale. Bars can be marked by dragging ("the
// brush"); the timeline then shows the calls of these bars, and others fade.

import { cssOf } from "./colour.js";
import { state, update } from "./state.js";
import { FONT, clean, counted, make, showCount, showTime } from "./text.js";

const HIGH = 150;

export class Histogram {
  /**
   * @param {import("./data.js").Data} data
   * @param {HTMLElement} pane
   * @param {(call: number) => void} go
   * @param {(words: string[]|null, x: number, y: number) => void} say shows words beside the pointer
   */
  constructor(data, pane, go, say) {
    this.data = data;
    this.say = say;
    this.go = go;
    this.fn = -1;
    /** Calls of the function, the slowest first. */
    this.calls = new Uint32Array(0);
    this.bars = new Float64Array(0);
    this.low = 0;
    this.ratio = 1;
    this.title = make("strong");
    this.status = make("span", { class: "soft", role: "status" });
    const step = (/** @type {string} */ text, /** @type {number} */ by) =>
      make("button", { type: "button", onclick: () => this.step(by) }, text);
    this.steps = [step("slowest", 0), step("next slower", -1), step("next faster", 1)];
    this.unmark = make("button", { type: "button", onclick: () => update({ brush: null }) }, "unmark");
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { role: "img" }));
    this.box = make("div", { class: "scroll" }, this.canvas);
    this.bar = make("div", { class: "bar" }, this.title, ...this.steps, this.unmark, this.status);
    pane.append(this.bar, this.box);
    this.wide = 1;
    this.bindBrush();
  }

  bindBrush() {
    const { canvas } = this;
    let from = -1; // the bar at which dragging began
    let drawn = -1; // the bar to which the brush reaches
    const brush = (/** @type {number} */ to) => {
      if (to === drawn) return;
      drawn = to;
      update({ brush: [this.edge(Math.min(from, to)), this.edge(Math.max(from, to) + 1) - 1e-6] });
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.calls.length) return;
      from = this.barAt(event.offsetX);
      drawn = -1;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.calls.length) return;
      const bar = this.barAt(event.offsetX);
      if (from >= 0) brush(bar);
      this.say(this.words(bar), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (from >= 0) brush(this.barAt(event.offsetX));
      from = -1;
    });
    canvas.addEventListener("pointercancel", () => (from = -1));
    canvas.addEventListener("pointerleave", () => this.say(null, 0, 0));
  }

  /** The bar at a place. @param {number} x CSS pixels */
  barAt(x) {
    const bars = this.bars.length;
    return Math.max(0, Math.min(bars - 1, Math.floor((x / this.wide) * bars)));
  }

  /** The bar that counts a call. @param {number} call */
  barOf(call) {
    const dur = this.data.dur[call];
    const bar = dur <= this.low ? 0 : Math.floor(Math.log(dur / this.low) / Math.log(this.ratio));
    return Math.min(this.bars.length - 1, bar);
  }

  /** What a bar stands for. @param {number} bar */
  words(bar) {
    const low = bar === 0 ? this.data.dur[this.calls[this.calls.length - 1]] : this.edge(bar);
    return [`${showTime(low)} to ${showTime(this.edge(bar + 1))}`, counted(this.bars[bar], "call")];
  }

  /** The lower edge of a bar, ns. @param {number} bar */
  edge(bar) {
    return bar === 0 ? 0 : this.low * this.ratio ** bar;
  }

  /** The calls that the brush marks, or all; the slowest first. */
  chosen() {
    if (!state.brush) return this.calls;
    const [low, high] = state.brush;
    return this.calls.filter((call) => this.data.dur[call] >= low && this.data.dur[call] <= high);
  }

  /** Goes to the slowest call (0), or so many calls on from the selected call. @param {number} by */
  step(by) {
    const calls = this.chosen();
    if (!calls.length) return;
    const at = by === 0 ? 0 : calls.indexOf(state.call) + by;
    this.go(calls[Math.max(0, Math.min(calls.length - 1, at))]);
  }

  compute() {
    if (this.fn === state.fn) return;
    this.fn = state.fn;
    const { func, dur, count } = this.data;
    let n = 0;
    for (let i = 0; i < count; i++) if (func[i] === this.fn) n++;
    this.calls = new Uint32Array(n);
    n = 0;
    for (let i = 0; i < count; i++) if (func[i] === this.fn) this.calls[n++] = i;
    this.calls.sort((a, b) => dur[b] - dur[a] || a - b);
    const bars = 60;
    this.bars = new Float64Array(bars);
    if (!n) return;
    this.low = Math.max(1, dur[this.calls[n - 1]]);
    const high = Math.max(this.low * 1.01, dur[this.calls[0]]);
    this.ratio = (high / this.low) ** (1 / bars) * (1 + 1e-9);
    for (const call of this.calls) this.bars[this.barOf(call)]++;
  }

  /** @param {import("./colour.js").Palette} look */
  draw(look) {
    const known = state.fn >= 0 && state.fn < this.data.none;
    if (known) this.compute();
    for (const button of this.steps) button.hidden = !known || !this.calls.length;
    this.unmark.hidden = !known || !state.brush;
    if (!known) {
      this.title.textContent = "Click a function in the table, a flame graph or a call to see how long its calls took.";
      this.status.textContent = "";
      this.canvas.hidden = true;
      return;
    }
    this.canvas.hidden = false;
    this.title.textContent =
      clean(this.data.nameOf(state.fn)) + (state.range ? " (in the whole run, not only in the range)" : "");
    const { calls, bars } = this;
    const wide = Math.max(50, this.box.clientWidth - 4);
    this.wide = wide;
    const scale = window.devicePixelRatio || 1;
    const { canvas } = this;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(HIGH * scale);
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${HIGH}px`;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = cssOf(look.back);
    context.fillRect(0, 0, wide, HIGH);
    context.font = FONT;
    context.textBaseline = "middle";
    const most = bars.reduce((a, b) => Math.max(a, b), 1);
    const each = wide / bars.length;
    for (let bar = 0; bar < bars.length; bar++) {
      const marked = !state.brush || (this.edge(bar) <= state.brush[1] && this.edge(bar + 1) >= state.brush[0] + 1e-3);
      const high = bars[bar] ? Math.max(2, (bars[bar] / most) * (HIGH - 40)) : 0;
      context.fillStyle = cssOf(look.calls[state.fn]);
      context.globalAlpha = marked ? 1 : 0.3;
      context.fillRect(bar * each + 0.5, HIGH - 20 - high, each - 1, high);
    }
    context.globalAlpha = 1;
    const selected = state.call >= 0 && this.data.func[state.call] === state.fn ? state.call : -1;
    if (selected >= 0) this.drawSelected(context, this.barOf(selected), each, most, look);
    context.fillStyle = look.soft;
    let free = 0;
    for (let bar = 0; bar < bars.length; bar += 6) {
      const text = showTime(bar === 0 ? this.low : this.edge(bar));
      const x = bar * each;
      if (x < free || x + context.measureText(text).width > wide) continue;
      context.fillText(text, x, HIGH - 9);
      free = x + context.measureText(text).width + 12;
    }
    context.fillText(
      `highest bar: ${counted(most, "call")}; logarithmic scale; drag over bars to mark their calls`,
      4,
      9,
    );
    const { dur } = this.data;
    const chosen = this.chosen();
    const at = selected < 0 ? -1 : chosen.indexOf(selected);
    const resumes = this.data.head.functions.resumes[state.fn];
    const parts = resumes
      ? ` (a coroutine or generator: each time that it was resumed counts as one, ${showCount(resumes)} of these)`
      : "";
    this.status.textContent = calls.length
      ? `${counted(calls.length, "call")}${parts}, median ${showTime(dur[calls[calls.length >> 1]])}, slowest ${showTime(dur[calls[0]])}` +
        (state.brush ? `; marked: ${showCount(chosen.length)}` : "") +
        (at < 0
          ? ""
          : `; call ${showCount(at + 1)} of ${showCount(chosen.length)}${state.brush ? " marked" : ""}, the slowest first`)
      : "no call of this function was recorded";
    canvas.setAttribute("aria-label", `Durations of ${clean(this.data.nameOf(state.fn))}: ${this.status.textContent}`);
  }

  /**
   * Marks the bar that the selected call is in.
   * @param {CanvasRenderingContext2D} context
   * @param {number} bar
   * @param {number} each width of a bar
   * @param {number} most calls of the highest bar
   * @param {import("./colour.js").Palette} look
   */
  drawSelected(context, bar, each, most, look) {
    const high = Math.max(2, (this.bars[bar] / most) * (HIGH - 40));
    const x = (bar + 0.5) * each;
    const y = HIGH - 20 - high - 3;
    context.fillStyle = context.strokeStyle = look.strong;
    context.lineWidth = 1;
    context.strokeRect(bar * each + 0.5, HIGH - 20 - high, each - 1, high);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 4, y - 6);
    context.lineTo(x + 4, y - 6);
    context.fill();
  }
}
