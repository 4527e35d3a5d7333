// The whole run as one strip: the number of calls that began over time, live bytes as a line, and a frame around the
// view.

import { cssOf } from "./colour.js";
import { GUTTER } from "./lanes.js";
import { state } from "./state.js";
import { FONT } from "./text.js";

const STRIP = 34; // CSS pixels

export class Overview {
  /** @param {import("./data.js").Data} data @param {HTMLCanvasElement} canvas */
  constructor(data, canvas) {
    this.data = data;
    canvas.style.height = `${STRIP}px`; // before the first picture: it is as high as the rest leaves
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.density = new Float64Array(0);
    this.wide = 1;
    /** The part of the picture that does not depend on the view: drawn once. */
    this.still = document.createElement("canvas");
    /** @type {import("./colour.js").Palette|null} */
    this.look = null;
  }

  /** @param {number} x */
  timeAt(x) {
    return ((x - GUTTER) / Math.max(1, this.wide - GUTTER)) * this.data.duration;
  }

  /** Counts the calls that began in each column. @param {number} width */
  count(width) {
    const { data } = this;
    this.density = new Float64Array(width);
    const each = Math.max(1, data.duration) / width;
    const starts = data.coarse.start;
    const spans = data.coarse.span;
    for (const row of data.rows) {
      for (let g = row.coarse; g < row.coarseEnd; g++) {
        const calls = Math.min(data.head.coarse.size, row.end - row.first - (g - row.coarse) * data.head.coarse.size);
        const x0 = Math.min(width - 1, Math.floor(starts[g] / each));
        const x1 = calls === 1 ? x0 : Math.min(width - 1, Math.floor((starts[g] + spans[g]) / each));
        this.spread(x0, x1, calls);
      }
    }
  }

  /** @param {number} x0 @param {number} x1 the last column @param {number} calls */
  spread(x0, x1, calls) {
    for (let x = x0; x <= x1; x++) this.density[x] += calls / (x1 - x0 + 1);
  }

  /** @param {number} wide @param {import("./colour.js").Palette} look */
  draw(wide, look) {
    const scale = window.devicePixelRatio || 1;
    const { canvas, context, data, still } = this;
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(STRIP * scale)) {
      canvas.width = still.width = Math.round(wide * scale);
      canvas.height = still.height = Math.round(STRIP * scale);
      this.look = null;
    }
    this.wide = wide;
    const width = Math.max(1, Math.floor(wide - GUTTER));
    if (this.look !== look) this.drawStill(width, scale, look);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(still, 0, 0);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const x0 = GUTTER + (state.v0 / Math.max(1, data.duration)) * width;
    const x1 = GUTTER + (state.v1 / Math.max(1, data.duration)) * width;
    context.fillStyle = look.dark ? "rgb(0 0 0 / .55)" : "rgb(90 100 120 / .28)";
    if (x0 > GUTTER) context.fillRect(GUTTER, 0, x0 - GUTTER, STRIP);
    if (x1 < wide) context.fillRect(Math.max(GUTTER, x1), 0, wide - Math.max(GUTTER, x1), STRIP);
    context.strokeStyle = look.soft;
    context.lineWidth = 1;
    const left = Math.max(GUTTER, x0);
    context.strokeRect(left + 0.5, 0.5, Math.max(2, Math.min(wide, x1) - left - 1), STRIP - 1);
  }

  /** @param {number} width @param {number} scale @param {import("./colour.js").Palette} look */
  drawStill(width, scale, look) {
    this.look = look;
    const { data } = this;
    const context = /** @type {CanvasRenderingContext2D} */ (this.still.getContext("2d", { alpha: false }));
    if (this.density.length !== width) this.count(width);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = cssOf(look.back);
    context.fillRect(0, 0, this.wide, STRIP);
    context.font = FONT;
    context.textBaseline = "middle";
    context.fillStyle = look.soft;
    context.fillText("whole run", 6, 10);
    context.fillText(data.blocks.count ? "calls begun, live bytes" : "calls begun", 6, 24);
    const most = this.density.reduce((a, b) => Math.max(a, b), 1);
    context.fillStyle = cssOf(look.bands[look.bands.length - 1]);
    for (let x = 0; x < width; x++) {
      const part = Math.sqrt(this.density[x] / most) * (STRIP - 6);
      if (part) context.fillRect(GUTTER + x, STRIP - 2 - part, 1, part);
    }
    const curve = data.head.curve.function;
    if (curve.length) {
      const bins = curve[0].length;
      const totals = Array.from({ length: bins }, (_, bin) =>
        curve.reduce((/** @type {number} */ sum, /** @type {number[]} */ band) => sum + band[bin], 0),
      );
      const top = Math.max(1, ...totals);
      context.beginPath();
      totals.forEach((total, bin) =>
        context.lineTo(GUTTER + ((bin + 0.5) / bins) * width, STRIP - 2 - (total / top) * (STRIP - 6)),
      );
      context.strokeStyle = look.accent;
      context.lineWidth = 1.5;
      context.stroke();
    }
  }
}
