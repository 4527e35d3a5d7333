// Draws pixels into an array. A row of the picture is one line of the array, copied down; one putImageData shows all
// rows. To draw a rectangle for each call would take 80 ms a frame for 60,000 calls; this takes 1 ms. Beside each line
// of colours there is a line of numbers, which say what call a pixel shows.

import { Sweep } from "./bins.js";
import { blend } from "./colour.js";
import { leavesFor, lowerBound } from "./lod.js";

const SHORT = 40; // fewer pixels than this are filled faster by a loop than by the array's own fill

export class Raster {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.width = 0; // this and the height: pixels of the device
    this.height = 0;
    this.scale = 1;
    /** @type {ImageData|null} */
    this.image = null;
    this.pixels = new Uint32Array(0);
    /** CSS pixels */
    this.wide = 0;
    this.high = 0;
  }

  /**
   * Fits the canvas to its box, if it has another size.
   * @param {number} wide
   * @param {number} high in CSS pixels
   * @param {number} left CSS pixels at the left that the raster leaves free
   */
  resize(wide, high, left) {
    const scale = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round(wide * scale));
    const height = Math.max(1, Math.round(high * scale));
    if (width === this.canvas.width && height === this.canvas.height && this.image) return;
    this.canvas.width = width;
    this.canvas.height = height;
    this.canvas.style.height = `${high}px`;
    this.wide = wide;
    this.high = high;
    this.scale = scale;
    this.left = Math.round(left * scale);
    this.width = Math.max(1, width - this.left);
    this.height = height;
    this.image = new ImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  show() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.putImageData(/** @type {ImageData} */ (this.image), this.left || 0, 0);
    this.context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
  }
}

/**
 * @typedef {object} Look how calls are drawn
 * @property {Uint32Array} colours by function
 * @property {number} back the background
 * @property {((call: number) => boolean)|null} wanted says whether a call has its full colour; null: all have. Others
 *   are faded
 * @property {Uint8Array|null} hits 1 for each function that the search found; null: there is no search
 */

/**
 * Draws a row of calls into a line of pixels, and the call that each pixel shows into a line of numbers.  A call of at
 * least a pixel is drawn by itself. Shorter calls that begin within one pixel are drawn as that pixel: it has the
 * colour of the longest, as strong as the part of the pixel that they take, but at least a quarter.
 * @param {import("./data.js").Data} data
 * @param {import("./data.js").Row} row
 * @param {number} v0
 * @param {number} v1
 * @param {number} width
 * @param {Uint32Array} pixels
 * @param {number} line where the line begins
 * @param {Int32Array} numbers
 * @param {number} at where its numbers begin
 * @param {Look} look
 * @param {(call: number, x0: number, x1: number) => void} wide is called for each call that has room for text
 */
export function paintRow(data, row, v0, v1, width, pixels, line, numbers, at, look, wide) {
  const level = row.bins ? row.bins.levelFor((v1 - v0) / width) : -1;
  if (row.bins && level >= 0) {
    numbers.fill(-1, at, at + width);
    new Sweep(row.bins, data, v0, new Pen(data, v0, v1, width, pixels, line, numbers, at, look, wide)).draw(level);
  } else if (inView(data, row, v0, v1))
    paintSlices(data, row.first, row.end, v0, v1, width, pixels, line, numbers, at, look, wide);
  else {
    numbers.fill(-1, at, at + width);
    paintCoarse(data, row, v0, v1, width, pixels, line, look);
  }
}

/**
 * Draws slices like `paintRow`. They must not overlap, and be sorted by start.
 * @param {{start: Float64Array, dur: Float64Array, func: ArrayLike<number>, pyramid: import("./lod.js").Pyramid}} data
 * @param {number} first
 * @param {number} end
 * @param {number} v0
 * @param {number} v1
 * @param {number} width
 * @param {Uint32Array} pixels
 * @param {number} line
 * @param {Int32Array} numbers
 * @param {number} at
 * @param {Look} look
 * @param {(call: number, x0: number, x1: number) => void} wide
 */
export function paintSlices(data, first, end, v0, v1, width, pixels, line, numbers, at, look, wide) {
  const { start, dur, func, pyramid } = data;
  const each = (v1 - v0) / width;
  const pen = new Pen(data, v0, v1, width, pixels, line, numbers, at, look, wide);
  numbers.fill(-1, at, at + width);
  let i = Math.max(first, lowerBound(start, v0, first, end) - 1);
  if (i < end && start[i] < v0 && start[i] + dur[i] <= v0) i++;
  const leaves = leavesFor((lowerBound(start, v1, i, end) - i) / width);
  while (i < end && start[i] < v1) {
    const x0 = Math.max(0, Math.floor((start[i] - v0) / each));
    if (x0 >= width) break;
    if (dur[i] >= each) {
      pen.call(i);
      i++;
      continue;
    }
    const right = v0 + (x0 + 1) * each;
    let best = i;
    let total = dur[i];
    let next = i;
    if (leaves) {
      next = pyramid.leap(right, i + 1, end, leaves);
      pyramid.query(i, next);
      best = pyramid.best;
      total = pyramid.total;
    }
    if (!leaves || dur[best] >= each) {
      next = pyramid.next(right, i + 1, end);
      if (next - i > 1 && dur[next - 1] >= each) next--;
      best = i;
      total = dur[i];
      if (next - i > 1) {
        pyramid.query(i, next);
        best = pyramid.best;
        total = pyramid.total;
      }
    }
    pen.pixel(x0, best, func[best], total, i, next);
    i = next;
  }
}

/** Draws calls into a line of pixels and a line of numbers. */
export class Pen {
  /**
   * @param {{start: Float64Array, dur: Float64Array, func: ArrayLike<number>}} data
   * @param {number} v0
   * @param {number} v1
   * @param {number} width
   * @param {Uint32Array} pixels
   * @param {number} line
   * @param {Int32Array} numbers
   * @param {number} at
   * @param {Look} look
   * @param {(call: number, x0: number, x1: number) => void} wide
   */
  constructor(data, v0, v1, width, pixels, line, numbers, at, look, wide) {
    this.data = data;
    this.v0 = v0;
    this.each = (v1 - v0) / width;
    this.width = width;
    this.pixels = pixels;
    this.line = line;
    this.numbers = numbers;
    this.at = at;
    this.look = look;
    this.wide = wide;
  }

  /** The colour of a call. @param {number} i @param {number} f its function */
  colourOf(i, f) {
    const { colours, hits, wanted, back } = this.look;
    return (hits && !hits[f]) || (wanted && !wanted(i)) ? blend(colours[f], back, 60) : colours[f];
  }

  /** Draws a call of at least a pixel. @param {number} i */
  call(i) {
    const { v0, each, width, pixels, line, numbers, at } = this;
    const { start, dur, func } = this.data;
    const x0 = Math.max(0, Math.floor((start[i] - v0) / each));
    if (x0 >= width) return;
    const x1 = Math.min(width, Math.max(x0 + 1, Math.round((start[i] + dur[i] - v0) / each)));
    const colour = this.colourOf(i, func[i]);
    if (x1 - x0 < SHORT) {
      for (let x = x0; x < x1; x++) {
        pixels[line + x] = colour;
        numbers[at + x] = i;
      }
    } else {
      pixels.fill(colour, line + x0, line + x1);
      numbers.fill(i, at + x0, at + x1);
    }
    // A border before the next call.
    if (x1 - x0 >= 3 && x1 < width) pixels[line + x1 - 1] = blend(colour, this.look.back, 130);
    if (x1 - x0 >= 26) this.wide(i, x0, x1);
  }

  /**
   * Draws shorter calls as one pixel.
   * @param {number} x
   * @param {number} best the longest call
   * @param {number} f its function
   * @param {number} total the sum of durations
   * @param {number} first
   * @param {number} end the calls
   */
  pixel(x, best, f, total, first, end) {
    const { pixels, line, numbers, at } = this;
    const { hits, back } = this.look;
    const { func, dur } = this.data;
    if (hits && !hits[f] && end - first <= 4096) {
      for (let k = first; k < end; k++)
        if (hits[func[k]] && dur[k] < this.each) {
          best = k;
          f = func[k];
          break;
        } // a call that the search found is always shown
    }
    const share = Math.min(256, 64 + Math.round((192 * total) / this.each));
    const before = numbers[at + x] < 0 ? back : pixels[line + x];
    pixels[line + x] = blend(this.colourOf(best, f), before, share);
    numbers[at + x] = best;
  }
}

/**
 * Whether all calls of a row that are in view are decoded.
 * @param {import("./data.js").Data} data
 * @param {any} row
 * @param {number} v0
 * @param {number} v1
 */
function inView(data, row, v0, v1) {
  const { callTiles, tileRows } = data;
  const [from, to] = rangeInView(data, row, v0, v1);
  for (let tile = Math.floor(from / tileRows); tile * tileRows < to; tile++) if (callTiles[tile] !== 2) return false;
  return true;
}

/**
 * Returns the calls of a row that can be in view, as its coarse groups say.
 * @param {import("./data.js").Data} data
 * @param {any} row
 * @param {number} v0
 * @param {number} v1
 */
export function rangeInView(data, row, v0, v1) {
  const { size } = data.head.coarse;
  const starts = data.coarse.start;
  const from = Math.max(row.coarse, lowerBound(starts, v0, row.coarse, row.coarseEnd) - 1);
  const to = lowerBound(starts, v1, row.coarse, row.coarseEnd);
  return [row.first + (from - row.coarse) * size, Math.min(row.end, row.first + (to - row.coarse) * size)];
}

/**
 * @param {import("./data.js").Data} data
 * @param {any} row
 * @param {number} v0
 * @param {number} v1
 * @param {number} width
 * @param {Uint32Array} pixels
 * @param {number} line
 * @param {Look} look
 */
function paintCoarse(data, row, v0, v1, width, pixels, line, look) {
  const each = (v1 - v0) / width;
  const starts = data.coarse.start;
  const spans = data.coarse.span;
  const sums = data.coarse.sum;
  const func = data.coarse.func;
  for (let g = row.coarse; g < row.coarseEnd; g++) {
    const end = starts[g] + spans[g];
    if (end < v0) continue;
    if (starts[g] >= v1) break;
    const x0 = Math.max(0, Math.floor((starts[g] - v0) / each));
    const x1 = Math.min(width, Math.max(x0 + 1, Math.round((end - v0) / each)));
    const share = 64 + Math.round(192 * Math.min(1, sums[g] / Math.max(1, spans[g])));
    const colour = blend(look.colours[func[g]], look.back, share);
    pixels.fill(colour, line + x0, line + x1);
  }
}

/**
 * Hatches the marked columns of some rows of a lane, as far as something is drawn there.
 * @param {Raster} raster
 * @param {{at: number, from: number, to: number}[]} rows of each, the lines of pixels and where its numbers begin
 * @param {Int32Array} numbers
 * @param {Uint8Array} marks 0, or 1 + the number of a colour
 * @param {number[]} colours
 */
export function hatch({ pixels, width, scale }, rows, numbers, marks, colours) {
  const period = Math.round(6 * scale);
  const thick = Math.round(2 * scale);
  for (let x = 0; x < width; x++) {
    if (!marks[x]) continue;
    const colour = colours[marks[x] - 1];
    for (const { at, from, to } of rows) {
      if (numbers[at + x] < 0) continue;
      for (let y = from; y < to; y++) {
        if ((x + y) % period < thick) pixels[y * width + x] = blend(pixels[y * width + x], colour, 110);
      }
    }
  }
}

/** Copies a line down. @param {Uint32Array} pixels @param {number} width @param {number} y @param {number} high */
export function copyDown(pixels, width, y, high) {
  const line = y * width;
  for (let k = 1; k < high; k++) pixels.copyWithin(line + k * width, line, line + width);
}
