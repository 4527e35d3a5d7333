// The timeline: the calls of every thread, marks and counters, below one ruler.

import { cssOf, waitColour } from "./colour.js";
import { Raster, copyDown, hatch, paintRow, paintSlices } from "./draw.js";
import { GUTTER, RULER, ROW, layOut } from "./lanes.js";
import { lowerBound } from "./lod.js";
import { state } from "./state.js";
import { FONT, clean, fit, linesOf, roundStep, showCount, showTick, showTime, widthOf } from "./text.js";

const OPEN_AT_START = 1;
const OPEN_AT_END = 2;
const RAISED = 8;
const HALF_TEXT = 6; // CSS pixels, half of a line of text
const NAME_LINE = 13; // CSS pixels, from one line of a lane's name to the next

export class Timeline {
  /** @param {import("./data.js").Data} data @param {HTMLCanvasElement} canvas */
  constructor(data, canvas) {
    this.data = data;
    this.raster = new Raster(canvas);
    this.layout = layOut(data);
    this.numbers = new Int32Array(0);
    /**
     * The rows that are drawn: the row, where its numbers begin, its top and bottom in CSS pixels.
     * @type {{row: number, at: number, y: number, end: number}[]}
     */
    this.drawn = [];
    this.names = data.head.functions.name.map((/** @type {string|null} */ name) => clean(name || "(no name)"));
    this.names.push("(unknown)");
    /** @type {Uint8Array|null} */
    this.hits = null;
    /**
     * The lane of the lock, if it is drawn, with the tenure under each pixel.
     * @type {{y: number, end: number, numbers: Int32Array}|null}
     */
    this.lock = null;
    /**
     * The lanes of tasks that are drawn, with the step under each pixel.
     * @type {{y: number, end: number, numbers: Int32Array}[]}
     */
    this.tasks = [];
    /** The columns that are hatched, by thread; for tests. @type {Map<number, Uint8Array>} */
    this.hatched = new Map();
    this.cursor = /** @type {number|null} */ (null);
    this.hover = -1;
    this.drag = /** @type {[number, number]|null} */ (null);
    this.pending = false; // something in view is not decoded yet
  }

  relay() {
    this.layout = layOut(this.data);
  }

  /** The width of the part that shows time, in CSS pixels. */
  get span() {
    return Math.max(1, this.raster.wide - GUTTER);
  }

  /** @param {number} x CSS pixels in the canvas */
  timeAt(x) {
    return state.v0 + ((x - GUTTER) * (state.v1 - state.v0)) / this.span;
  }

  /** @param {number} time */
  xOf(time) {
    return GUTTER + ((time - state.v0) / (state.v1 - state.v0)) * this.span;
  }

  /** @param {number} wide @param {number} high @param {import("./colour.js").Palette} look */
  draw(wide, high, look) {
    const { raster, data } = this;
    raster.resize(wide, high, GUTTER);
    const { scale, pixels, width, height } = raster;
    const context = raster.context;
    state.scroll = Math.max(0, Math.min(state.scroll, this.layout.height - high + RULER));
    pixels.fill(look.back);
    this.drawn = [];
    const wanted = this.wanted();
    /** @type {[number, number, number, number][]} */
    const labels = [];
    let at = 0;
    const top = RULER - state.scroll;
    const visible = [];
    this.lock = null;
    this.tasks = [];
    this.hatched.clear();
    /** @type {[number, number, number, number][]} */
    const holders = [];
    for (const lane of this.layout.lanes) {
      if (lane.y + lane.height + top < RULER || lane.y + top > high) continue;
      visible.push(lane);
      const back = look.back;
      if (lane.kind === "lock") this.drawLock(lane.y + top, look, holders);
      else if (lane.kind === "task") this.drawSteps(lane, lane.y + top, look, labels);
      const from = this.drawn.length;
      for (const { row, y } of lane.rows) {
        const y0 = Math.round((y + top) * scale);
        const y1 = Math.round((y + top + lane.high) * scale) - (lane.folded ? 0 : 1);
        if (y1 <= RULER * scale || y0 >= height) continue;
        if (this.numbers.length < at + width) {
          const more = new Int32Array(Math.max(at + width, this.numbers.length * 2));
          more.set(this.numbers);
          this.numbers = more;
        }
        const line = Math.max(0, y0);
        paintRow(
          data,
          data.rows[row],
          state.v0,
          state.v1,
          width,
          pixels,
          line * width,
          this.numbers,
          at,
          { colours: look.calls, back, wanted, hits: this.hits },
          lane.folded ? () => {} : (call, x0, x1) => labels.push([call, x0, x1, y + top]),
        );
        copyDown(pixels, width, line, Math.min(height, y1) - line);
        this.drawn.push({ row, at, y: y0 / scale, end: y1 / scale });
        at += width;
      }
      if (lane.kind === "thread" && !lane.folded) this.hatchWaiting(lane.thread, this.drawn.slice(from), look);
    }
    raster.show();
    context.font = FONT;
    context.textBaseline = "middle";
    this.write(labels, look);
    for (const [thread, x0, x1, y] of holders) {
      if (!this.showsText(y + ROW / 2)) continue;
      context.fillStyle = look.text;
      context.fillText(
        fit(context, clean(data.head.threads[thread].name), (x1 - x0) / scale - 8),
        GUTTER + x0 / scale + 4,
        y + ROW / 2,
      );
    }
    for (const lane of visible) {
      if (lane.kind === "marks") this.drawMarks(lane, top, look);
      else if (lane.kind === "counter") this.drawCounter(lane, top, look);
      else if (lane.kind === "thread") this.drawGaps(lane, top, look);
    }
    this.drawSelection(high, look);
    this.drawGutter(visible, top, high, look);
    drawRuler(context, GUTTER, wide, 0, look);
    this.drawMore(high, look);
    this.drawCursor(high, look);
  }

  /**
   * Draws the tenures of the interpreter's lock; each thread has a colour.
   * @param {number} y CSS pixels
   * @param {import("./colour.js").Palette} look
   * @param {[number, number, number, number][]} labels
   */
  drawLock(y, look, labels) {
    const { width, height, scale, pixels } = this.raster;
    const y0 = Math.round(y * scale);
    const y1 = Math.min(height, Math.round((y + ROW) * scale) - 1);
    if (y0 < 0 || y1 <= y0) return;
    const { waiting } = this.data;
    const numbers = new Int32Array(width);
    const colours = Uint32Array.from(this.data.head.threads, (_, n) => look.bands[n % (look.bands.length - 1)]);
    paintSlices(
      waiting,
      0,
      waiting.count,
      state.v0,
      state.v1,
      width,
      pixels,
      y0 * width,
      numbers,
      0,
      { colours, back: look.back, wanted: null, hits: null },
      (tenure, x0, x1) => labels.push([waiting.func[tenure], x0, x1, y]),
    );
    copyDown(pixels, width, y0, y1 - y0);
    this.lock = { y: y0 / scale, end: y1 / scale, numbers };
  }

  /**
   * Draws the steps of a task: the calls that the event loop made for it.
   * @param {import("./lanes.js").Lane} lane
   * @param {number} y CSS pixels
   * @param {import("./colour.js").Palette} look
   * @param {[number, number, number, number][]} labels
   */
  drawSteps(lane, y, look, labels) {
    const { width, height, scale, pixels } = this.raster;
    const y0 = Math.max(0, Math.round(y * scale));
    const y1 = Math.min(height, Math.round((y + ROW) * scale) - 1);
    if (y1 <= y0) return;
    const { data } = this;
    const numbers = new Int32Array(width);
    paintSlices(
      data.steps,
      ...lane.steps,
      state.v0,
      state.v1,
      width,
      pixels,
      y0 * width,
      numbers,
      0,
      { colours: look.calls, back: look.back, wanted: null, hits: this.hits },
      (step, x0, x1) => {
        const call = data.steps.call[step];
        if (data.has(call)) labels.push([call, x0, x1, y]);
      },
    );
    copyDown(pixels, width, y0, y1 - y0);
    this.tasks.push({ y: y0 / scale, end: y1 / scale, numbers });
  }

  /**
   * Hatches the time in which a thread waited: by recorded waits, each kind in its colour; or in which another thread
   * had the interpreter's lock, except where the innermost call waits for something else.
   * @param {number} thread
   * @param {{row: number, at: number, y: number, end: number}[]} rows
   * @param {import("./colour.js").Palette} look
   */
  hatchWaiting(thread, rows, look) {
    const { waiting, func } = this.data;
    if (!waiting.known || !rows.length) return;
    const { width, scale } = this.raster;
    const marks = new Uint8Array(width);
    waiting.mark(thread, state.v0, (state.v1 - state.v0) / width, marks);
    for (let x = 0; x < width && !waiting.recorded; x++) {
      if (!marks[x]) continue;
      let inner = -1;
      for (const { at } of rows) if (this.numbers[at + x] >= 0) inner = this.numbers[at + x];
      if (inner >= 0 && waiting.blocking[func[inner]]) marks[x] = 0;
    }
    hatch(
      this.raster,
      rows.map(({ at, y, end }) => ({
        at,
        from: Math.max(0, Math.round(y * scale)),
        to: Math.min(this.raster.height, Math.round(end * scale)),
      })),
      this.numbers,
      marks,
      waiting.recorded ? waiting.words.map((_, kind) => waitColour(look, kind)) : [look.back],
    );
    this.hatched.set(thread, marks);
  }

  /** The tenure of the lock under a point, or -1. @param {number} x @param {number} y */
  tenureUnder(x, y) {
    const column = Math.floor((x - GUTTER) * this.raster.scale);
    if (!this.lock || column < 0 || column >= this.raster.width || y < this.lock.y || y >= this.lock.end) return -1;
    return this.lock.numbers[column];
  }

  /**
   * Returns the whole names of the lanes whose names are cut, or out of sight, at a point of the gutter.
   * @param {number} y
   */
  gutterWords(y) {
    const { above, below } = this.outOfSight(this.raster.high);
    if (above.length && y < RULER) return above.map((lane) => clean(lane.name));
    if (below.length && y >= this.raster.high - RULER) return below.map((lane) => clean(lane.name));
    const lane = y < RULER ? undefined : this.laneAt(y);
    return lane ? [clean(lane.name)] : null;
  }

  /**
   * Describes the wait of a call's thread under a point, and what its task awaited before.
   * @param {number} call
   * @param {number} x
   */
  waitWords(call, x) {
    const { thread } = this.data.rows[this.data.rowOf(call)];
    const ready = this.data.readyOf(call);
    const words = this.data.waitWords(thread, this.timeAt(x));
    if (ready) words.push(this.data.readyWords(call, ready));
    const cause = this.data.causeOf(call, this.timeAt(x));
    return cause < 0 ? words : [...words, "Alt+click: what that thread did then"];
  }

  /** Describes the tenure, or the name of a lane, under a point. @param {number} x @param {number} y */
  tenureWords(x, y) {
    if (x < GUTTER) return this.gutterWords(y);
    const tenure = this.tenureUnder(x, y);
    if (tenure < 0) return null;
    const { waiting, head } = this.data;
    return [
      `${clean(head.threads[waiting.func[tenure]].name)} had the interpreter's lock`,
      `${showTime(waiting.dur[tenure])}, from ${showTime(waiting.start[tenure])} on: no other thread has an event there`,
      "unless it slept or blocked meanwhile, which releases the lock",
    ];
  }

  /** Returns a function that says which calls are not faded, if durations are marked in the histogram. */
  wanted() {
    if (!state.brush || state.fn < 0) return null;
    const [low, high] = state.brush;
    const { dur, func } = this.data;
    return (/** @type {number} */ call) => func[call] === state.fn && dur[call] >= low && dur[call] <= high;
  }

  /** Whether a line of text is not cut by the ruler or the end of the picture. @param {number} middle CSS pixels */
  showsText(middle) {
    return middle - HALF_TEXT >= RULER && middle + HALF_TEXT <= this.raster.high;
  }

  /** @param {[number, number, number, number][]} labels @param {import("./colour.js").Palette} look */
  write(labels, look) {
    const { context, scale } = this.raster;
    const { func, flags, dur } = this.data;
    for (const [call, x0, x1, y] of labels) {
      const middle = y + ROW / 2;
      if (!this.showsText(middle)) continue;
      const left = GUTTER + x0 / scale;
      const room = (x1 - x0) / scale - 8;
      const dim = this.hits && !this.hits[func[call]];
      context.fillStyle = dim ? look.soft : look.text;
      let name = this.names[func[call]];
      if (flags[call] & RAISED) name = `\u2717 ${name}`;
      const shown = fit(context, name, room);
      if (!shown) continue;
      context.fillText(shown, left + 4, middle);
      if (shown === name) {
        const used = widthOf(context, name) + 10;
        if (room - used < 24) continue;
        const time = showTime(dur[call]) + (flags[call] & (OPEN_AT_START | OPEN_AT_END) ? " or more" : "");
        const more = widthOf(context, time);
        if (room - used > more + 4) {
          context.globalAlpha = 0.7;
          context.fillText(time, left + 4 + room - more, middle);
          context.globalAlpha = 1;
        }
      }
    }
  }

  /** @param {import("./lanes.js").Lane} lane @param {number} top @param {import("./colour.js").Palette} look */
  drawMarks(lane, top, look) {
    const { context } = this.raster;
    const { marks, flows } = this.data.head;
    const y = lane.y + top;
    let free = -1e9;
    for (const [time, , name] of marks) {
      const x = this.xOf(time);
      if (x < GUTTER || x > this.raster.wide) continue;
      context.fillStyle = look.accent;
      context.fillRect(x, y, 1, lane.height);
      const shown = clean(name || "");
      if (x > free && this.showsText(y + lane.height / 2)) {
        context.fillStyle = look.text;
        context.fillText(shown, x + 4, y + lane.height / 2);
        free = x + 10 + context.measureText(shown).width;
      }
    }
    /** @type {Map<string, [number, number]>} */
    const last = new Map();
    for (const [time, thread, name, id] of flows) {
      const here = /** @type {[number, number]} */ ([this.xOf(time), this.middleOf(thread) ?? y]);
      const before = last.get(`${name}\0${id}`);
      if (before) this.drawCurve(before, here, look);
      last.set(`${name}\0${id}`, here);
    }
  }

  /** The height at which curves of a thread begin and end; null: it has no lane. @param {number} thread */
  middleOf(thread) {
    const lane = this.layout.lanes.find((each) => each.kind === "thread" && each.thread === thread);
    return lane ? lane.y + RULER - state.scroll + Math.min(lane.height, ROW) / 2 : null;
  }

  /**
   * Draws a curve from what comes first to what follows from it.
   * @param {[number, number]} from CSS pixels
   * @param {[number, number]} to
   * @param {import("./colour.js").Palette} look
   */
  drawCurve(from, to, look) {
    const { context, wide, high } = this.raster;
    if (Math.max(from[0], to[0]) <= GUTTER || Math.min(from[0], to[0]) >= wide) return;
    context.save();
    context.beginPath();
    context.rect(GUTTER, RULER, wide, high);
    context.clip();
    context.strokeStyle = look.accent;
    context.lineWidth = 1;
    context.globalAlpha = 0.6;
    context.beginPath();
    const bend = Math.max(12, (to[0] - from[0]) / 2);
    context.moveTo(...from);
    context.bezierCurveTo(from[0] + bend, from[1], to[0] - bend, to[1], ...to);
    context.stroke();
    context.restore();
  }

  /**
   * Where the curve to a step of a task begins and ends: from who made the task ready, when it did; CSS pixels. Null:
   * the call is no step, or that is not known.
   * @param {number} call
   * @returns {[[number, number], [number, number]]|null}
   */
  curveTo(call) {
    const ready = call < 0 ? null : this.data.readyOf(call);
    if (!ready) return null;
    const step = this.data.readies.stepOf(call, this.data.steps.call);
    const lane = this.layout.lanes.find(({ steps: [first, end] }) => step >= first && step < end);
    const from = this.middleOf(ready.by < 0 ? ready.thread : ready.by);
    if (!lane || from === null) return null;
    const to = lane.y + RULER - state.scroll + ROW / 2;
    return [
      [this.xOf(ready.time), from],
      [this.xOf(this.data.start[call]), to],
    ];
  }

  /** @param {import("./lanes.js").Lane} lane @param {number} top @param {import("./colour.js").Palette} look */
  drawCounter(lane, top, look) {
    const { context } = this.raster;
    const values = lane.series.map((each) => each[1]).filter((value) => value !== null);
    const most = values.reduce((a, b) => Math.max(a, b), 0);
    const lowest = values.reduce((a, b) => Math.min(a, b), 0);
    const y = (/** @type {number} */ value) =>
      lane.y + top + lane.height - 2 - ((value - lowest) / (most - lowest || 1)) * (lane.height - 4);
    context.save();
    context.beginPath();
    context.rect(GUTTER, RULER, this.raster.wide, this.raster.high);
    context.clip();
    context.beginPath();
    let open = false;
    for (const [time, value] of lane.series) {
      if (value === null) {
        open = false;
        continue;
      }
      const x = Math.max(GUTTER - 20, Math.min(this.xOf(time), this.raster.wide + 20));
      if (!open) context.moveTo(x, y(value));
      else {
        context.lineTo(x, this.lastY || 0);
        context.lineTo(x, y(value));
      }
      this.lastY = y(value);
      open = true;
    }
    if (open) context.lineTo(Math.min(this.raster.wide, this.xOf(this.data.duration)), this.lastY || 0);
    context.strokeStyle = look.accent;
    context.lineWidth = 1.5;
    context.stroke();
    context.fillStyle = look.soft;
    const middle = lane.y + top + 7;
    if (this.showsText(middle))
      context.fillText(`${lowest.toLocaleString("en")} to ${most.toLocaleString("en")}`, GUTTER + 4, middle);
    context.restore();
  }

  /**
   * Hatches the time in which events of a thread were lost.
   * @param {import("./lanes.js").Lane} lane
   * @param {number} top
   * @param {import("./colour.js").Palette} look
   */
  drawGaps(lane, top, look) {
    const { head } = this.data;
    const thread = head.threads[lane.thread];
    if (!thread.lost) return;
    const overwritten = head.notes.reason === "overwritten";
    const t0 = overwritten ? 0 : (thread.last ?? 0);
    const t1 = overwritten ? (thread.first ?? this.data.duration) : this.data.duration;
    const x0 = Math.max(GUTTER, this.xOf(t0));
    const x1 = Math.min(this.raster.wide, this.xOf(t1));
    if (x1 <= x0) return;
    const { context } = this.raster;
    context.save();
    context.beginPath();
    context.rect(x0, lane.y + top, x1 - x0, lane.height);
    context.clip();
    context.strokeStyle = look.line === 0 ? look.soft : cssOf(look.hit);
    context.globalAlpha = 0.35;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = x0 - lane.height; x < x1; x += 7) {
      context.moveTo(x, lane.y + top + lane.height);
      context.lineTo(x + lane.height, lane.y + top);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = look.text;
    const shown = fit(context, `${showCount(thread.lost)} events lost`, x1 - x0 - 8);
    const middle = Math.min(lane.y + top + lane.height, this.raster.high) - 9;
    if (this.showsText(middle)) context.fillText(shown, x0 + 4, middle);
    context.restore();
  }

  /** @param {number} high @param {import("./colour.js").Palette} look */
  drawSelection(high, look) {
    const { context } = this.raster;
    const range = this.drag || state.range;
    if (range) {
      const x0 = Math.max(GUTTER, this.xOf(range[0]));
      const x1 = Math.min(this.raster.wide, this.xOf(range[1]));
      if (x1 > x0) {
        context.fillStyle = look.accent;
        context.globalAlpha = 0.13;
        context.fillRect(x0, RULER, x1 - x0, high);
        context.globalAlpha = 1;
        context.fillRect(x0, RULER, 1, high);
        context.fillRect(x1 - 1, RULER, 1, high);
      }
    }
    for (const [call, colour, thick] of /** @type {[number, string, number][]} */ ([
      [this.hover, look.strong, 1],
      [state.call, look.strong, 2],
    ])) {
      const place = call < 0 ? null : this.placeOf(call);
      if (!place) continue;
      const x0 = Math.max(GUTTER - 2, place.x0);
      const x1 = Math.min(this.raster.wide + 2, place.x1);
      if (x1 < GUTTER || x0 > this.raster.wide) continue;
      context.strokeStyle = colour;
      context.lineWidth = thick;
      context.strokeRect(x0 + thick / 2, place.y + thick / 2, Math.max(2, x1 - x0 - thick), ROW - 1 - thick);
    }
    for (const call of new Set([this.hover, state.call])) {
      const curve = this.curveTo(call);
      if (curve) this.drawCurve(...curve, look);
    }
    if (state.instant !== null) {
      const x = this.xOf(state.instant);
      if (x >= GUTTER) {
        context.fillStyle = cssOf(look.hit);
        context.fillRect(Math.round(x), RULER, 1, high);
      }
    }
  }

  /** @param {number} high @param {import("./colour.js").Palette} look */
  drawCursor(high, look) {
    if (this.cursor === null) return;
    const x = this.xOf(this.cursor);
    if (x < GUTTER) return;
    const { context } = this.raster;
    context.fillStyle = look.soft;
    context.globalAlpha = 0.6;
    context.fillRect(Math.round(x), RULER, 1, high);
    context.globalAlpha = 1;
    drawFlag(context, x, showTick(this.cursor, (state.v1 - state.v0) / 1000), this.raster.wide, look);
  }

  /**
   * @param {import("./lanes.js").Lane[]} lanes
   * @param {number} top
   * @param {number} high
   * @param {import("./colour.js").Palette} look
   */
  drawGutter(lanes, top, high, look) {
    const { context } = this.raster;
    context.fillStyle = cssOf(look.back);
    context.fillRect(0, 0, GUTTER, high);
    context.fillStyle = cssOf(look.line);
    context.fillRect(GUTTER - 1, 0, 1, high);
    for (const lane of lanes) {
      const middle = Math.min(lane.y + top + lane.height - 9, Math.max(lane.y + top + 9, RULER + 9));
      context.fillStyle = look.text;
      const sign = lane.kind === "thread" ? (lane.folded ? "\u25b8 " : "\u25be ") : "";
      // A process's worker and its thread may be too long for one line, and differ in the last letters.
      const most = 1 + Math.max(0, Math.floor((lane.y + top + lane.height - 9 - middle) / NAME_LINE));
      linesOf(context, sign + clean(lane.name), GUTTER - 16, most).forEach((line, number) => {
        context.fillText(fit(context, line, GUTTER - 16), 6, middle + number * NAME_LINE);
      });
      context.fillStyle = cssOf(look.line);
      if (lane.y + top + lane.height + 3 > RULER)
        context.fillRect(0, lane.y + top + lane.height + 3, this.raster.wide, 1);
    }
  }

  /** Lanes whose names are out of sight. @param {number} high CSS pixels */
  outOfSight(high) {
    const top = RULER - state.scroll;
    const atEnd = state.scroll >= this.layout.height - high + RULER;
    return {
      above: this.layout.lanes.filter((lane) => lane.y + lane.height + top < RULER + 9 + HALF_TEXT),
      below: atEnd ? [] : this.layout.lanes.filter((lane) => lane.y + top + 18 > high - RULER),
    };
  }

  /**
   * Says which lanes are above and below.
   * @param {number} high CSS pixels
   * @param {import("./colour.js").Palette} look
   */
  drawMore(high, look) {
    const { context } = this.raster;
    const { above, below } = this.outOfSight(high);
    for (const [lanes, sign, y] of /** @type {[import("./lanes.js").Lane[], string, number][]} */ ([
      [above, "\u2191", 0],
      [below, "\u2193", high - RULER],
    ])) {
      if (!lanes.length) continue;
      context.fillStyle = cssOf(look.line);
      context.fillRect(0, y, GUTTER - 1, RULER);
      context.fillStyle = look.text;
      const names = lanes.map((lane) => clean(lane.name)).join(", ");
      context.fillText(fit(context, `${sign} ${lanes.length}: ${names}`, GUTTER - 12), 6, y + RULER / 2);
    }
  }

  /** Where to scroll to after a click on what `drawMore` wrote; null beside it. @param {number} y CSS pixels */
  scrollOf(y) {
    const { above, below } = this.outOfSight(this.raster.high);
    if (above.length && y < RULER) return above[above.length - 1].y;
    return below.length && y >= this.raster.high - RULER ? below[0].y : null;
  }

  /** Returns the place of a call on the canvas; null if its row is not laid out. @param {number} call */
  placeOf(call) {
    const row = this.data.rowOf(call);
    for (const lane of this.layout.lanes) {
      for (const each of lane.rows) {
        if (each.row === row && !lane.folded) {
          const x0 = this.xOf(this.data.start[call]);
          return {
            x0,
            x1: Math.max(x0 + 2, this.xOf(this.data.start[call] + this.data.dur[call])),
            y: each.y + RULER - state.scroll,
            lane,
          };
        }
      }
    }
    return null;
  }

  /** The call under a point of the canvas, CSS pixels; -1: none. @param {number} x @param {number} y */
  under(x, y) {
    if (x < GUTTER || y < RULER) return -1;
    const column = Math.floor((x - GUTTER) * this.raster.scale);
    if (column >= this.raster.width) return -1;
    for (const { at, y: from, end } of this.drawn) if (y >= from && y < end) return this.numbers[at + column];
    for (const { y: from, end, numbers } of this.tasks) {
      if (y < from || y >= end || numbers[column] < 0) continue;
      const call = this.data.steps.call[numbers[column]];
      return this.data.has(call) ? call : -1;
    }
    return -1;
  }

  /** The lane at a height. @param {number} y */
  laneAt(y) {
    const at = y - RULER + state.scroll;
    return this.layout.lanes.find((lane) => at >= lane.y && at < lane.y + lane.height);
  }

  /**
   * Returns the first call after a time, or the last before it, of the functions that the search found.
   * @param {Uint8Array} hits
   * @param {number} time
   * @param {boolean} forward
   */
  nextHit(hits, time, forward) {
    const { start, func, rows } = this.data;
    let best = -1;
    for (const { first, end } of rows) {
      if (forward) {
        let i = lowerBound(start, time, first, end);
        while (i < end && (start[i] <= time || !hits[func[i]])) {
          i++;
          if (best >= 0 && i < end && start[i] >= start[best]) break;
        }
        if (i < end && start[i] > time && hits[func[i]] && (best < 0 || start[i] < start[best])) best = i;
      } else {
        let i = lowerBound(start, time, first, end) - 1;
        while (i >= first && !hits[func[i]]) {
          i--;
          if (best >= 0 && i >= first && start[i] <= start[best]) break;
        }
        if (i >= first && hits[func[i]] && (best < 0 || start[i] > start[best])) best = i;
      }
    }
    return best;
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {string} text
 * @param {number} wide
 * @param {import("./colour.js").Palette} look
 */
export function drawFlag(context, x, text, wide, look) {
  const room = context.measureText(text).width + 8;
  const left = Math.max(GUTTER, Math.min(x - room / 2, wide - room));
  context.fillStyle = look.strong;
  context.fillRect(left, 2, room, RULER - 5);
  context.fillStyle = cssOf(look.back);
  context.fillText(text, left + 4, RULER / 2);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} from
 * @param {number} wide
 * @param {number} y
 * @param {import("./colour.js").Palette} look
 */
export function drawRuler(context, from, wide, y, look) {
  context.fillStyle = cssOf(look.back);
  context.fillRect(0, y, wide, RULER - 1);
  context.fillStyle = cssOf(look.line);
  context.fillRect(0, y + RULER - 1, wide, 1);
  const span = state.v1 - state.v0;
  const step = roundStep(span, (wide - from) / 110);
  for (let tick = Math.ceil(state.v0 / step) * step; tick <= state.v1; tick += step) {
    const x = from + ((tick - state.v0) / span) * (wide - from);
    context.fillStyle = cssOf(look.line);
    context.fillRect(Math.round(x), y + RULER - 7, 1, 6);
    const text = showTick(Math.abs(tick) < step / 1e6 ? 0 : tick, step);
    if (x + 4 + context.measureText(text).width < wide) {
      context.fillStyle = look.soft;
      context.fillText(text, x + 4, y + RULER / 2);
    }
    if (tick + step === tick) break; // the step is less than the precision of a number
  }
}
