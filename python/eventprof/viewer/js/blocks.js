// The blocks of the page: births and deaths in order of time, who holds the live bytes, and how many there are when.

import { gallop, lowerBound, upperBound } from "./lod.js";
import { FAR, KEYFRAME, small } from "./tiles.js";

const GROUP = 8 * KEYFRAME; // events of a group; of each group the largest sum is known

export class Blocks {
  /** @param {import("./data.js").Data} data whose head and names it uses @param {import("./tiles.js").Common} common */
  constructor(data, common) {
    const { head, none } = data;
    this.data = data;
    const m = head.events;
    this.events = m;
    this.count = head.blocks;
    this.event = new Uint32Array(m); // twice the number of the event's block, plus 1 if the block is born
    this.distance = new Uint32Array(m); // ns from the first event of its keyframe; FAR: the time is in `far`
    /** All times of the keyframes that are too long for 32 bits. @type {Map<number, Float64Array>} */
    this.far = new Map();
    this.eventRow = small(common.row, m); // the row of its call, plus 1; 0: no call
    this.size = small(common.size, head.blocks);
    this.charge = small(common.charge, head.blocks); // the place of its holders in `chargesBy`
    const [whose, lines, ownLines] = head.charges;
    /**
     * The holders of each charge: a function, and rows of head.places for the line that was executing and the own line
     * that is charged.
     * @type {Record<string, number[]>}
     */
    this.chargesBy = {
      function: whose.map((/** @type {number} */ name) => (name ? name - 1 : none)),
      line: lines,
      own: ownLines,
    };
    // The holders of memory; holdBy() sets these.
    this.by = "";
    /** Of each charge. @type {number[]} */
    this.holders = [];
    this.holderCount = 0;
    this.bandOf = new Uint8Array(0); // by charge
    this.bands = 1;
    this.frames = new Float64Array(0);
    this.eventsHere = 0; // how many events are decoded; tiles of blocks are decoded in order
    this.frameCount = 0;
    this.holdBy("function");
    const frames = Math.ceil(m / KEYFRAME) + 1;
    this.frameCount = frames;
    this.frames = new Float64Array(frames * this.bands); // live bytes of each band before each keyframe
    this.frameMost = new Float64Array(frames); // the most live bytes after any event of a keyframe
    this.frameAt = new Uint32Array(frames); // that event
    this.frameTime = new Float64Array(frames); // the time of a keyframe's first event
    this.frameBirths = new Uint32Array(frames); // how many births are before a keyframe
    this.groupSize = GROUP;
    this.groupMost = new Float64Array(Math.ceil(m / GROUP)); // the most live bytes in each group of keyframes
    this.groupBands = new Float64Array(this.groupMost.length * this.bands); // the live bytes of each band at that time
    this.birthsHere = 0;
    /** Events whose call a search by time would not find, with the call. @type {Map<number, number>} */
    this.astray = new Map();
  }

  /**
   * Takes the next tile of events.
   * @param {any} made the decoded tile
   * @param {number} rows
   * @param {number} births
   */
  take(made, rows, births) {
    const from = this.eventsHere;
    const first = this.birthsHere;
    this.event.set(made.event, from);
    this.distance.set(made.time, from);
    for (const [frame, times] of made.far) this.far.set(from / KEYFRAME + frame, times);
    this.frameTime.set(made.base, from / KEYFRAME);
    this.eventRow.set(made.row, from);
    this.size.set(made.size, first);
    this.charge.set(made.charge, first);
    this.birthsHere += births;
    this.eventsHere += rows;
    this.keyframes(from, first);
  }

  /**
   * Sums up the bands from an event on.
   * @param {number} from the first event of a keyframe
   * @param {number} births before it
   */
  keyframes(from, births) {
    const { bands, frames, frameMost, frameAt } = this;
    const live = new Float64Array(bands);
    if (from) live.set(frames.subarray((from / KEYFRAME) * bands, (from / KEYFRAME + 1) * bands));
    // Each tile but the last is a whole number of keyframes.
    for (let at = from; at < this.eventsHere; at += KEYFRAME)
      births += this.keyframe(at, Math.min(this.eventsHere, at + KEYFRAME), births, live);
    frames.set(live, Math.ceil(this.eventsHere / KEYFRAME) * bands);
    for (let at = from, group = from / GROUP; at < this.eventsHere; at += GROUP, group++) {
      let best = at / KEYFRAME;
      for (let frame = best + 1; frame * KEYFRAME < Math.min(at + GROUP, this.eventsHere); frame++)
        if (frameMost[frame] > frameMost[best]) best = frame;
      this.groupMost[group] = frameMost[best];
      this.bandsBefore(frameAt[best] + 1, this.groupBands.subarray(group * bands, (group + 1) * bands));
    }
  }

  /**
   * Sums up a keyframe; returns its births.
   * @param {number} from
   * @param {number} to its events
   * @param {number} births before it
   * @param {Float64Array} live bytes of the bands, which are brought up to date
   */
  keyframe(from, to, births, live) {
    const { bands, frames, bandOf, charge, event, size } = this;
    const frame = from / KEYFRAME;
    this.frameBirths[frame] = births;
    let total = 0;
    for (let b = 0, at = frame * bands; b < bands; b++) {
      frames[at + b] = live[b];
      total += live[b];
    }
    let born = 0;
    let most = -1;
    let place = from;
    for (let at = from; at < to; at++) {
      const birth = event[at] & 1;
      const block = event[at] >>> 1;
      const change = size[block] * (2 * birth - 1); // faster than a branch that cannot be foreseen
      born += birth;
      live[bandOf[charge[block]]] += change;
      total += change;
      if (total > most) {
        most = total;
        place = at;
      }
    }
    this.frameMost[frame] = most;
    this.frameAt[frame] = place;
    return born;
  }

  /** Chooses the kind of holders of memory. @param {string} by function, line or own */
  holdBy(by) {
    if (by === this.by) return;
    this.by = by;
    const { head } = this.data;
    this.holders = this.chargesBy[by];
    this.holderCount = by === "function" ? this.data.none + 1 : head.places[0].length;
    /** @type {number[]} */
    const bands = head.bands[by];
    const rest = bands.length;
    this.bandOf = Uint8Array.from(this.holders, (key) => (bands.includes(key) ? bands.indexOf(key) : rest));
    this.bands = bands.length + 1;
    if (!this.frameCount) return; // nothing is decoded yet
    this.frames = new Float64Array(this.frameCount * this.bands);
    this.groupBands = new Float64Array(this.groupMost.length * this.bands);
    this.keyframes(0, 0);
  }

  /** Names a holder. @param {number} key of `holders` */
  holderName(key) {
    if (this.by === "function") return this.data.nameOf(key);
    const [functions, lines] = this.data.head.places;
    if (key === 0) return this.by === "own" ? "(not in own code)" : "(unknown)";
    const f = functions[key];
    const place = f < 0 ? "" : this.data.head.functions.files[this.data.head.functions.file[f]] || "";
    const file = place.slice(place.lastIndexOf("/") + 1);
    return `${f < 0 ? "(unknown)" : this.data.nameOf(f)}${file || lines[key] ? ` ${file}${lines[key] ? `:${lines[key]}` : ""}` : ""}`;
  }

  /** Returns the line that was executing when a block was allocated; 0: unknown. @param {number} block */
  lineOf(block) {
    return this.data.head.places[1][this.chargesBy.line[this.charge[block]]];
  }

  /** Returns the function that a block is charged to. @param {number} block */
  functionOf(block) {
    return this.chargesBy.function[this.charge[block]];
  }

  /** Returns the holder of a block, of the chosen kind. @param {number} block */
  holderOf(block) {
    return this.holders[this.charge[block]];
  }

  /** Whether an event is a birth; if not, it is a death. @param {number} at */
  isBirth(at) {
    return (this.event[at] & 1) === 1;
  }

  /** @param {number} at */
  blockOf(at) {
    return this.event[at] >>> 1;
  }

  /** The time of an event. @param {number} at */
  timeOf(at) {
    const distance = this.distance[at];
    const frame = Math.floor(at / KEYFRAME);
    return distance === FAR
      ? /** @type {Float64Array} */ (this.far.get(frame))[at % KEYFRAME]
      : this.frameTime[frame] + distance;
  }

  /**
   * Returns the first event in [from, to), which is a part of one keyframe, at a time or later, or `to`.
   * @param {number} time
   * @param {number} from
   * @param {number} to
   */
  firstFrom(time, from, to) {
    const { distance } = this;
    const frame = Math.floor(from / KEYFRAME);
    if (from < to && distance[from] === FAR) {
      const times = /** @type {Float64Array} */ (this.far.get(frame));
      return frame * KEYFRAME + lowerBound(times, time, from % KEYFRAME, to - frame * KEYFRAME);
    }
    const wanted = time - this.frameTime[frame];
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (distance[middle] < wanted) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  /** Returns the first decoded event at a time or later. @param {number} time */
  eventAt(time) {
    const frame = lowerBound(this.frameTime, time, 0, Math.ceil(this.eventsHere / KEYFRAME));
    return this.firstFrom(time, Math.max(0, frame - 1) * KEYFRAME, Math.min(frame * KEYFRAME, this.eventsHere));
  }

  /** Returns the first decoded event after a time. @param {number} time */
  eventAfter(time) {
    const frame = upperBound(this.frameTime, time, 0, Math.ceil(this.eventsHere / KEYFRAME));
    let at = Math.max(0, frame - 1) * KEYFRAME;
    for (const end = Math.min(frame * KEYFRAME, this.eventsHere); at < end && this.timeOf(at) <= time; ) at++;
    return at;
  }

  /** The event with which a block was born. @param {number} block */
  birthOf(block) {
    const frames = Math.ceil(this.eventsHere / KEYFRAME);
    let at = (upperBound(this.frameBirths, block, 0, frames) - 1) * KEYFRAME;
    while (this.event[at] !== 2 * block + 1) at++;
    return at;
  }

  /**
   * The events with which some blocks died; a block that was not freed is not in the map.
   * @param {number[]} blocks
   * @returns {Map<number, number>}
   */
  deathsOf(blocks) {
    const { event } = this;
    const found = new Map();
    const wanted = new Set(blocks);
    // By the low bits of blocks: a look into the set for each event would take longer.
    const few = new Uint8Array(1 << 16);
    for (const block of blocks) few[block & 0xffff] = 1;
    const first = blocks.reduce((first, block) => Math.min(first, this.birthOf(block)), this.eventsHere);
    for (let at = first; at < this.eventsHere && found.size < wanted.size; at++) {
      const value = event[at];
      if (!(value & 1) && few[(value >>> 1) & 0xffff] && wanted.has(value >>> 1)) found.set(value >>> 1, at);
    }
    return found;
  }

  /**
   * Returns 1 for each block that died in some events.
   * @param {number} from
   * @param {number} to the end of the events
   */
  diedIn(from, to) {
    const { event } = this;
    const dead = new Uint8Array(this.birthsHere);
    for (let at = from; at < to; at++) if (!(event[at] & 1)) dead[event[at] >>> 1] = 1;
    return dead;
  }

  /**
   * Returns the live bytes of each band after all events before `event`.
   * @param {number} event
   * @param {Float64Array} out
   */
  bandsBefore(event, out) {
    const frame = Math.floor(event / KEYFRAME);
    out.set(this.frames.subarray(frame * this.bands, (frame + 1) * this.bands));
    for (let at = frame * KEYFRAME; at < event; at++) this.apply(at, out);
    return out;
  }

  /** Adds an event to the bytes of its band; returns its bytes. @param {number} at @param {Float64Array} bands */
  apply(at, bands) {
    const event = this.event[at];
    const block = event >>> 1;
    const change = this.size[block] * (2 * (event & 1) - 1);
    bands[this.bandOf[this.charge[block]]] += change;
    return change;
  }

  /** Returns the exact live bytes of each band at a time. @param {number} time */
  bandsAt(time) {
    return this.bandsBefore(this.eventAfter(time), new Float64Array(this.bands));
  }

  /**
   * Returns the first decoded event at a time or later. It is fast if that is near `from`.
   * @param {number} time
   * @param {number} from
   * @param {boolean} [whole] gives the first event of a keyframe, not the exact one
   */
  eventFrom(time, from, whole) {
    const frame = gallop(this.frameTime, time, Math.ceil(from / KEYFRAME), Math.ceil(this.eventsHere / KEYFRAME));
    if (whole) return Math.min(this.eventsHere, frame * KEYFRAME);
    return this.firstFrom(time, Math.max(from, (frame - 1) * KEYFRAME), Math.min(frame * KEYFRAME, this.eventsHere));
  }

  /**
   * The event in [from, to) after which the most bytes were live; -1: there is none.
   * @param {number} from
   * @param {number} to
   */
  mostIn(from, to) {
    let best = -1;
    let most = -1;
    const one = (/** @type {number} */ low, /** @type {number} */ high) => {
      if (low >= high) return;
      const frame = Math.floor(low / KEYFRAME);
      if (this.frameMost[frame] <= most) return; // none of them can be more
      let total = 0;
      for (let b = 0; b < this.bands; b++) total += this.frames[frame * this.bands + b];
      for (let at = frame * KEYFRAME; at < high; at++) {
        const event = this.event[at];
        total += this.size[event >>> 1] * (2 * (event & 1) - 1);
        if (at >= low && total > most) {
          most = total;
          best = at;
        }
      }
    };
    const first = Math.ceil(from / KEYFRAME);
    const last = Math.floor(to / KEYFRAME);
    if (first > last || first * KEYFRAME >= to) {
      one(from, to);
      return best;
    }
    one(from, first * KEYFRAME);
    for (let frame = first; frame < last; frame++) {
      if (this.frameMost[frame] > most) {
        most = this.frameMost[frame];
        best = this.frameAt[frame];
      }
    }
    one(last * KEYFRAME, to);
    return best;
  }

  /**
   * Calls `f` for each block that is live at a time, with the event of its birth.
   * @param {number} time
   * @param {(block: number, birth: number) => void} f
   */
  live(time, f) {
    const last = this.eventAfter(time);
    const dead = this.diedIn(0, last);
    for (let at = 0; at < last; at++)
      if (this.event[at] & 1 && !dead[this.event[at] >>> 1]) f(this.event[at] >>> 1, at);
  }
}
