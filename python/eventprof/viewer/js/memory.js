// Live memory under the timeline, on the same axis: a band for each of the largest holders, and one for all others.

import { cssOf } from "./colour.js";
import { Raster } from "./draw.js";
import { GUTTER } from "./lanes.js";
import { lowerBound, upperBound } from "./lod.js";
import { state } from "./state.js";
import { FONT, clean, fit, showBytes } from "./text.js";

const TOP = 26; // CSS pixels at the top for the line of text and the mark of the peak
const LINE = 16; // CSS pixels of the line of text
const CHOICE = 130; // CSS pixels at the top right that the choice of holders covers
const MANY = 1024; // with more events in a column, it is drawn by whole keyframes
const GROUPS = 4; // with more groups of keyframes in a column, it is drawn by whole groups
const FEW = 100; // fewer events than this are added one by one, which is faster than to look the sums up

export class Memory {
  /** @param {import("./data.js").Data} data @param {HTMLCanvasElement} canvas */
  constructor(data, canvas) {
    this.data = data;
    this.raster = new Raster(canvas);
    this.names = /** @type {string[]} */ ([]);
    this.by = "";
    this.columns = new Float64Array(0); // live bytes of each band in each column of pixels
    this.most = 1; // the bytes that the full height stands for
    this.line = new Uint32Array(0); // this and the next two: kept by paint(), to use them again
    this.begins = this.follows = new Int32Array(0);
    this.used = 0;
    canvas.addEventListener("pointermove", (event) => {
      canvas.title = this.legendUnder(event.offsetX, event.offsetY);
    });
  }

  /**
   * @param {number} wide
   * @param {number} high
   * @param {import("./colour.js").Palette} look
   * @param {number|null} cursor
   */
  draw(wide, high, look, cursor) {
    const { raster, data } = this;
    raster.resize(wide, high, GUTTER);
    const { width, height, scale, context } = raster;
    data.blocks.holdBy(state.hold);
    if (this.by !== data.blocks.by) {
      this.by = data.blocks.by;
      this.names = data.head.bands[data.blocks.by].map((/** @type {number} */ key) => clean(legendName(data, key)));
      this.names.push("all others");
    }
    this.fill(width);
    const { bands } = data.blocks;
    const { columns } = this;
    let most = 0;
    for (let x = 0, at = 0; x < width; x++) {
      let total = 0;
      for (const end = at + bands; at < end; at++) total += columns[at];
      if (total > most) most = total;
    }
    this.most = Math.max(1, most);
    const room = height - Math.round(TOP * scale);
    this.paint(room, look);
    raster.show();
    context.font = FONT;
    context.textBaseline = "middle";
    context.fillStyle = look.soft;
    const text = `live, up to ${showBytes(most)} in view`;
    context.fillText(text, GUTTER + 6, 8);
    this.used = GUTTER + 6 + context.measureText(text).width; // the part of the line of text that is used
    const right = wide - CHOICE; // the left edge of the choice of holders
    this.drawResident(high, right, look);
    this.drawPeak(high, right, look, room / scale);
    this.drawLegend(high, look);
    this.drawLines(high, wide, look, cursor);
  }

  /**
   * Draws the bands line by line from the bottom, in the order of memory: a line is a copy of the line below it,
   * changed in the columns in which another band begins.
   * @param {number} room the lines of pixels that `most` bytes take
   * @param {import("./colour.js").Palette} look
   */
  paint(room, look) {
    const { pixels, width, height } = this.raster;
    const { bands } = this.data.blocks;
    const colours = Uint32Array.from({ length: bands + 1 }, (_, b) =>
      b === bands ? look.back : look.bands[b === bands - 1 ? look.bands.length - 1 : b],
    );
    if (this.line.length !== width || this.follows.length !== width * (bands + 1) || this.begins.length !== height) {
      this.line = new Uint32Array(width);
      this.begins = new Int32Array(height);
      this.follows = new Int32Array(width * (bands + 1));
    }
    // The bands that begin in a line, as a linked list: its head, and what follows each.
    const { line, begins, follows } = this;
    begins.fill(-1);
    let highest = height;
    for (let x = 0; x < width; x++) highest = Math.min(highest, this.stack(x, room));
    pixels.fill(look.back, 0, Math.max(0, highest) * width);
    for (let y = height - 1; y >= highest; y--) {
      for (let place = begins[y]; place >= 0; place = follows[place]) {
        const b = Math.floor(place / width);
        line[place - b * width] = colours[b];
      }
      pixels.set(line, y * width);
    }
  }

  /**
   * Puts the bands of a column above each other; returns the highest line.
   * @param {number} x
   * @param {number} room lines for the most bytes
   */
  stack(x, room) {
    const { columns, begins, follows, most } = this;
    const { width, height } = this.raster;
    const { bands } = this.data.blocks;
    let sum = 0;
    let y = height;
    for (let b = 0, at = x * bands; b <= bands; b++, at++) {
      const isBack = b === bands;
      if (!isBack) sum += columns[at];
      const top = isBack ? 0 : height - Math.round((sum / most) * room);
      if (top >= y) continue;
      const place = b * width + x;
      follows[place] = begins[y - 1];
      begins[y - 1] = place;
      if (isBack) break;
      y = top;
    }
    return y;
  }

  /** Finds the bytes of each column, at the time in it when the most were live. @param {number} width */
  fill(width) {
    const { data } = this;
    const { head } = data;
    const { bands } = data.blocks;
    if (this.columns.length !== width * bands) this.columns = new Float64Array(width * bands);
    const columns = this.columns;
    const each = (state.v1 - state.v0) / width;
    if (data.blocks.eventsHere < data.blocks.events) {
      const curve = head.curve[data.blocks.by];
      const bins = curve.length ? curve[0].length : 0;
      for (let x = 0; x < width; x++) {
        const time = state.v0 + (x + 0.5) * each;
        const bin = Math.min(bins - 1, Math.floor((time / Math.max(1, data.duration)) * bins));
        for (let b = 0; b < bands; b++) columns[x * bands + b] = bin >= 0 && time >= 0 && bins ? curve[b][bin] : 0;
      }
      return;
    }
    const now = new Float64Array(bands); // after the events before `known`
    const most = new Float64Array(bands);
    let from = data.blocks.eventFrom(state.v0, 0);
    data.blocks.bandsBefore(from, now);
    let known = from;
    // If a column has many keyframes, a part of a keyframe cannot be seen.
    const inView = data.blocks.eventFrom(state.v1, from) - from;
    if (inView > GROUPS * data.blocks.groupSize * width) {
      this.fillByGroups(width, from, each);
      return;
    }
    const dense = inView > MANY * width;
    for (let x = 0; x < width; x++) {
      const to = data.blocks.eventFrom(state.v0 + (x + 1) * each, from, dense);
      if (to > from && to - known < FEW) {
        let total = now.reduce((a, b) => a + b, 0);
        let largest = -1;
        for (; known < to; known++) {
          total += data.blocks.apply(known, now);
          if (known >= from && total > largest) {
            largest = total;
            most.set(now);
          }
        }
        columns.set(most, x * bands);
      } else if (to > from) {
        known = data.blocks.mostIn(from, to) + 1;
        columns.set(data.blocks.bandsBefore(known, now), x * bands);
      } else {
        for (; known < from && from - known < FEW; known++) data.blocks.apply(known, now);
        if (known < from) data.blocks.bandsBefore((known = from), now);
        columns.set(now, x * bands);
      }
      from = to;
    }
  }

  /**
   * Like `fill`, by whole groups of keyframes.
   * @param {number} width
   * @param {number} from the first event
   * @param {number} each ns of a column
   */
  fillByGroups(width, from, each) {
    const { data, columns } = this;
    const { bands, groupMost, groupBands, groupSize } = data.blocks;
    const now = new Float64Array(bands);
    let known = -1; // `now` is after the events before
    let group = Math.ceil(from / groupSize);
    for (let x = 0; x < width; x++) {
      const end = Math.ceil(data.blocks.eventFrom(state.v0 + (x + 1) * each, from, true) / groupSize);
      let best = group;
      for (let g = group + 1; g < end; g++) if (groupMost[g] > groupMost[best]) best = g;
      if (end > group) {
        columns.set(groupBands.subarray(best * bands, (best + 1) * bands), x * bands);
        group = end;
        from = Math.min(end * groupSize, data.blocks.eventsHere);
      } else {
        if (known !== from) data.blocks.bandsBefore((known = from), now);
        columns.set(now, x * bands);
      }
    }
  }

  /** @param {number} time */
  xOf(time) {
    return GUTTER + ((time - state.v0) / (state.v1 - state.v0)) * (this.raster.wide - GUTTER);
  }

  /** @param {number} high @param {number} wide @param {import("./colour.js").Palette} look */
  drawResident(high, wide, look) {
    const [times, bytes, alone] = this.data.head.resident;
    if (times.length < 2) return;
    const { context } = this.raster;
    const most = bytes.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b), 1);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, wide + CHOICE, high);
    context.clip();
    context.beginPath();
    const y = (/** @type {number} */ value) => high - 1 - (value / most) * (high - TOP - 1);
    // Only the part in view is drawn: dashes of a line of a million pixels would take 50 ms.
    const first = Math.max(0, upperBound(times, state.v0, 0, times.length) - 1);
    const last = Math.min(times.length - 1, lowerBound(times, state.v1, 0, times.length));
    for (let n = first; n <= last; n++) {
      const x = Math.max(GUTTER - 20, Math.min(this.xOf(times[n]), wide + CHOICE + 20));
      if (n === first) context.moveTo(x, y(bytes[n]));
      else {
        context.lineTo(x, y(bytes[n - 1]));
        context.lineTo(x, y(bytes[n]));
      }
    }
    context.strokeStyle = look.text;
    context.setLineDash([5, 3]);
    context.lineWidth = 1.25;
    context.stroke();
    context.restore();
    context.fillStyle = look.soft;
    const label = alone ? "resident set without the recorder's log" : "resident set";
    const text = `- - ${label}, up to ${showBytes(most)} (own scale)`;
    const need = context.measureText(text).width;
    if (this.used + need + 30 > wide) return;
    context.fillText(text, this.used + 24, 8);
    this.used += 24 + need;
  }

  /** @param {number} high @param {number} wide @param {import("./colour.js").Palette} look @param {number} room */
  drawPeak(high, wide, look, room) {
    const { peak } = this.data.head;
    if (!peak) return;
    const x = this.xOf(peak[0]);
    if (x < GUTTER || x > wide + CHOICE) return;
    const { context } = this.raster;
    const y = high - (peak[1] / this.most) * room;
    context.fillStyle = cssOf(look.hit);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 4, y - 7);
    context.lineTo(x + 4, y - 7);
    context.fill();
    const text = `peak ${showBytes(peak[1])}`;
    const need = context.measureText(text).width;
    if (x + 7 > this.used + 12 && x + need + 12 < wide) context.fillText(text, x + 7, 8);
    else if (Math.min(x - 7, wide) - need > this.used + 12) context.fillText(text, Math.min(x - 7, wide) - need, 8);
    else if (this.used + need + 40 < wide && x < this.used) context.fillText(text, this.used + 24, 8);
  }

  /** The height of a line of the legend; 0: there is no room for it. @param {number} high */
  legendStep(high) {
    const step = Math.min(14, (high - 4) / this.names.length);
    return step < 9 ? 0 : step;
  }

  /** The whole name in the legend under a point in CSS pixels; "": none. @param {number} x @param {number} y */
  legendUnder(x, y) {
    const step = this.legendStep(this.raster.high);
    const row = Math.floor((y - 3) / step);
    return step && x < GUTTER && row >= 0 && row < this.names.length ? this.names[this.names.length - 1 - row] : "";
  }

  /** @param {number} high @param {import("./colour.js").Palette} look */
  drawLegend(high, look) {
    const { context } = this.raster;
    context.fillStyle = cssOf(look.back);
    context.fillRect(0, 0, GUTTER, high);
    context.fillStyle = cssOf(look.line);
    context.fillRect(GUTTER - 1, 0, 1, high);
    const rows = this.names.length;
    const step = this.legendStep(high);
    if (!step) {
      context.fillStyle = look.text;
      context.fillText("live memory", 6, 10);
      return;
    }
    for (let n = 0; n < rows; n++) {
      const b = rows - 1 - n; // in the order in which the bands are stacked
      const y = 3 + step * (n + 0.5);
      context.fillStyle = cssOf(look.bands[b === rows - 1 ? look.bands.length - 1 : b]);
      context.fillRect(6, y - 4, 9, 9);
      context.fillStyle = look.text;
      context.fillText(fit(context, this.names[b], GUTTER - 28), 20, y + 1);
    }
  }

  /**
   * @param {number} high
   * @param {number} wide
   * @param {import("./colour.js").Palette} look
   * @param {number|null} cursor
   */
  drawLines(high, wide, look, cursor) {
    const { context } = this.raster;
    if (state.range) {
      const x0 = Math.max(GUTTER, this.xOf(state.range[0]));
      const x1 = Math.min(wide, this.xOf(state.range[1]));
      context.fillStyle = look.accent;
      context.globalAlpha = 0.13;
      if (x1 > x0) context.fillRect(x0, 0, x1 - x0, high);
      context.globalAlpha = 1;
    }
    for (const [time, colour] of /** @type {[number|null, string][]} */ ([
      [cursor, look.soft],
      [state.instant, cssOf(look.hit)],
    ])) {
      if (time === null) continue;
      const x = this.xOf(time);
      if (x < GUTTER) continue;
      const top = x < this.used + 4 ? LINE : 0; // the text is not crossed
      context.fillStyle = colour;
      context.fillRect(Math.round(x), top, 1, high - top);
    }
  }

  /** Returns the band under a point in CSS pixels; -1: none. @param {number} x @param {number} y */
  under(x, y) {
    const { bands } = this.data.blocks;
    const column = Math.floor((x - GUTTER) * this.raster.scale);
    if (column < 0 || column * bands >= this.columns.length) return -1;
    const room = this.raster.high - TOP;
    const bytes = ((this.raster.high - y) / room) * this.most;
    for (let b = 0, sum = 0; b < bands; b++) {
      sum += this.columns[column * bands + b];
      if (sum > bytes) return b;
    }
    return -1;
  }
}

/**
 * Names a holder of memory. Of a line, its file and number are first, because long names are cut at the end.
 * @param {import("./data.js").Data} data
 * @param {number} key
 */
function legendName(data, key) {
  const whole = data.blocks.holderName(key);
  if (data.blocks.by === "function" || key === 0) return whole;
  const f = data.head.places[0][key];
  const name = f < 0 ? "(unknown)" : data.nameOf(f);
  const place = whole.slice(name.length + 1);
  return place ? `${place} ${name}` : whole;
}
