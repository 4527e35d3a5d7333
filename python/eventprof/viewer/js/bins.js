// The calls of a long row, summed up by the time when they begin. The whole run is drawn by reading one array from left
// to right. That is faster than a search for the calls of each pixel, which reads memory in no order.

import { lowerBound } from "./lod.js";

const CALLS = 16; // calls of a bin, on average
const LEAST = 4096; // a row with fewer calls has no bins
const PARTS = 4; // the least number of bins for a pixel
const FIELDS = 2; // fields of a bin in each of two arrays; their indexes are:
const LONGEST = 0;
const SUM = 1;
const PLACE = 0;
const FUNC = 1;

/** A level of bins. @typedef {{floats: Float32Array, whole: Uint32Array, bins: number}} Level */

/**
 * Sums up the calls that begin before `right`; returns the first of the next bin.
 * @param {Level} level
 * @param {number} bin
 * @param {Float64Array} start
 * @param {Float64Array} dur
 * @param {ArrayLike<number>} func
 * @param {number} i the first call
 * @param {number} end
 * @param {number} right
 */
function fillBin({ floats, whole }, bin, start, dur, func, i, end, right) {
  let longest = -1;
  let place = 0;
  let total = 0;
  for (; i < end && start[i] < right; i++) {
    const value = dur[i];
    total += value;
    if (value > longest) {
      longest = value;
      place = i;
    }
  }
  const at = bin * FIELDS;
  floats[at + LONGEST] = longest;
  floats[at + SUM] = total;
  whole[at + PLACE] = place;
  whole[at + FUNC] = longest < 0 ? 0 : func[place];
  return i;
}

/** Fills the bins of a level, each from two of the level below. @param {Level} below @param {Level} here */
function joinLevel(below, here) {
  for (let bin = 0, at = 0, child = 0; bin < here.bins; bin++, at += FIELDS, child += 2 * FIELDS) {
    const longer = below.floats[child + FIELDS + LONGEST] > below.floats[child + LONGEST] ? child + FIELDS : child;
    here.floats[at + LONGEST] = below.floats[longer + LONGEST];
    here.floats[at + SUM] = below.floats[child + SUM] + below.floats[child + FIELDS + SUM];
    here.whole[at + PLACE] = below.whole[longer + PLACE];
    here.whole[at + FUNC] = below.whole[longer + FUNC];
  }
}

export class Bins {
  /**
   * @param {{start: Float64Array, dur: Float64Array, func: import("./tiles.js").Small}} data
   * @param {number} first
   * @param {number} end the row's calls, which are all decoded
   */
  constructor({ start, dur, func }, first, end) {
    this.begin = start[first];
    const span = start[end - 1] - this.begin + 1;
    let count = 1;
    while (count * CALLS < end - first) count *= 2;
    /** The nanoseconds that a bin of level 0 covers; a bin of level n covers 2 ** n times as many. */
    this.width = span / count;
    /** The first call of each bin of level 0, and where the last one ends. */
    this.first = new Uint32Array(count + 1);
    /**
     * The fields of each bin: its longest duration (-1: it has no call) and the sum of durations; in another array,
     * which is read once for a pixel, the longest call and its function.
     * @type {Level[]}
     */
    this.levels = [];
    for (let bins = count; bins >= 1; bins /= 2) {
      const floats = new Float32Array(bins * FIELDS);
      this.levels.push({ floats, whole: new Uint32Array(bins * FIELDS), bins });
    }
    this.fill(start, dur, func, first, end);
    for (let level = 1; level < this.levels.length; level++) joinLevel(this.levels[level - 1], this.levels[level]);
  }

  /**
   * Fills the bins of level 0.
   * @param {Float64Array} start
   * @param {Float64Array} dur
   * @param {ArrayLike<number>} func
   * @param {number} first
   * @param {number} end
   */
  fill(start, dur, func, first, end) {
    const count = this.first.length - 1;
    for (let bin = 0, i = first; bin < count; bin++) {
      this.first[bin] = i;
      const right = bin + 1 < count ? this.begin + (bin + 1) * this.width : Infinity;
      i = fillBin(this.levels[0], bin, start, dur, func, i, end, right);
    }
    this.first[count] = end;
  }

  /**
   * Returns the highest level of which at least four bins fit into a pixel; -1: there is none.
   * @param {number} each nanoseconds of a pixel
   */
  levelFor(each) {
    let level = -1;
    for (let width = this.width; width * PARTS <= each && level < this.levels.length - 1; width *= 2) level++;
    return level;
  }
}

/** Whether a row is long enough for bins. @param {{first: number, end: number}} row */
export function isLong(row) {
  return row.end - row.first >= LEAST;
}

/**
 * Draws a row by its bins. A call of at least a pixel is drawn where it is. Shorter calls are drawn as one pixel, which
 * shows the longest call of its bins; so a short call may be drawn up to a pixel beside its place.
 */
export class Sweep {
  /**
   * @param {Bins} bins
   * @param {{start: Float64Array, dur: Float64Array, func: ArrayLike<number>}} data
   * @param {number} v0
   * @param {import("./draw.js").Pen} pen
   */
  constructor(bins, { start, dur, func }, v0, pen) {
    this.bins = bins;
    this.start = start;
    this.dur = dur;
    this.func = func;
    this.v0 = v0;
    this.pen = pen;
    this.each = pen.each;
    // The pixel that is being summed up: its column, the time where it ends, its longest call, that call's function and
    // duration, the sum of durations.
    this.x = -1;
    this.right = -Infinity;
    this.best = -1;
    this.whose = -1;
    this.most = -1;
    this.total = 0;
    // Its first call and the end of its calls; or, as ~number, bins of level 0: to look up their calls takes long, and
    // few pixels need them.
    this.from = 0;
    this.to = 0;
  }

  /** @param {number} level */
  draw(level) {
    const { bins, v0, each, start, dur, func } = this;
    const { first, begin } = bins;
    const step = 2 ** level;
    const width = bins.width * step;
    const v1 = v0 + each * this.pen.width;
    const { floats, bins: count } = bins.levels[level];
    const before = lowerBound(start, v0, first[0], first[first.length - 1]) - 1;
    if (before >= first[0] && start[before] + dur[before] > v0) {
      if (dur[before] >= each) this.pen.call(before);
      else this.pen.pixel(0, before, func[before], start[before] + dur[before] - v0, before, before + 1);
    }
    const { whole } = bins.levels[level];
    const last = Math.min(count, Math.ceil((v1 - begin) / width));
    // In this loop, which takes most of the time of a picture of the whole run, the pixel is in variables.
    let { right, most, total } = this;
    let top = -1; // the bin of the longest call; -1: `best` has the call
    let end = -1; // after the last bin; -1: the pixel is in the fields
    for (let bin = Math.max(0, Math.floor((v0 - begin) / width)); bin < last; bin++) {
      const longest = floats[bin * FIELDS + LONGEST];
      if (longest < 0) continue;
      const time = begin + bin * width;
      if (longest >= each || time >= right) {
        if (end >= 0) this.keep(whole, top, most, total, end * step);
        top = end = -1;
        if (longest >= each) this.visit(level, bin);
        else this.go(time, ~(bin * step));
        ({ right, most, total } = this);
        if (longest >= each) continue;
      }
      total += floats[bin * FIELDS + SUM];
      if (longest > most) {
        most = longest;
        top = bin;
      }
      end = bin + 1;
    }
    if (end >= 0) this.keep(whole, top, most, total, end * step);
    this.finish();
  }

  /**
   * Puts the pixel into the fields.
   * @param {Uint32Array} whole of the level
   * @param {number} top the bin of its longest call, or -1: that was not changed
   * @param {number} most
   * @param {number} total
   * @param {number} end after its last bin of level 0
   */
  keep(whole, top, most, total, end) {
    this.total = total;
    this.most = most;
    this.to = ~end;
    if (top < 0) return;
    this.best = whole[top * FIELDS + PLACE];
    this.whose = whole[top * FIELDS + FUNC];
  }

  /** @param {number} level @param {number} bin that is not empty */
  visit(level, bin) {
    const { bins, each, start, dur, func, v0 } = this;
    const { floats, whole } = bins.levels[level];
    const at = bin * FIELDS;
    const most = floats[at + LONGEST];
    const step = 2 ** level;
    if (most < each) {
      this.go(bins.begin + bin * step * bins.width, ~(bin * step));
      this.add(whole[at + PLACE], most, floats[at + SUM], whole[at + FUNC]);
      this.to = ~((bin + 1) * step);
    } else if (level) {
      const below = bins.levels[level - 1].floats;
      if (below[bin * 2 * FIELDS + LONGEST] >= 0) this.visit(level - 1, bin * 2);
      if (below[(bin * 2 + 1) * FIELDS + LONGEST] >= 0) this.visit(level - 1, bin * 2 + 1);
    } else {
      let long = true; // whether the call before was long: the first short call after it gives the pixel
      for (let i = bins.first[bin]; i < bins.first[bin + 1]; i++) {
        const value = dur[i];
        if (value >= each) {
          if (start[i] < v0) continue;
          this.finish();
          this.pen.call(i);
          long = true;
          continue;
        }
        if (long) this.go(start[i], i);
        long = false;
        this.add(i, value, value, func[i]);
        this.to = i + 1;
      }
    }
  }

  /**
   * Ends the current pixel if a time is beyond it, and begins the next one.
   * @param {number} time
   * @param {number} call
   */
  go(time, call) {
    if (time < this.right) return;
    this.finish();
    this.x = Math.max(0, Math.floor((time - this.v0) / this.each));
    this.right = this.v0 + (this.x + 1) * this.each;
    this.from = call;
  }

  /** @param {number} place @param {number} most @param {number} sum @param {number} func */
  add(place, most, sum, func) {
    this.total += sum;
    if (most > this.most) {
      this.most = most;
      this.best = place;
      this.whose = func;
    }
  }

  finish() {
    if (this.best >= 0 && this.x < this.pen.width) {
      const { from, to } = this;
      const { first } = this.bins;
      if (this.pen.look.hits)
        this.pen.pixel(
          this.x,
          this.best,
          this.whose,
          this.total,
          from < 0 ? first[~from] : from,
          to < 0 ? first[~to] : to,
        );
      else this.pen.pixel(this.x, this.best, this.whose, this.total, 0, 0);
    }
    this.best = this.most = -1;
    this.total = 0;
  }
}
