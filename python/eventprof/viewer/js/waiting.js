// How long threads waited: by recorded waits, or by which other thread had the interpreter's lock.

import { Pyramid, lowerBound, upperBound } from "./lod.js";

/** @typedef {{end: Float64Array, sum: Float64Array}} Held */
/** @typedef {{kind: Uint8Array, waker: Int32Array}} Kinds */

/** Tenures of the lock, in order of time: none overlaps another. */
export class Waiting {
  /**
   * @param {number} threads how many
   * @param {number[]} blocking functions that wait for something else than the lock
   * @param {number} functions how many
   */
  constructor(threads, blocking, functions) {
    this.threads = threads;
    /** Of each function: 1 if it waits for something else than the lock. */
    this.blocking = new Uint8Array(functions + 1);
    for (const f of blocking) this.blocking[f] = 1;
    this.count = 0;
    this.start = new Float64Array(0);
    this.dur = new Float64Array(0);
    this.func = new Uint16Array(0); // the thread: paintSlices colours by it
    this.pyramid = new Pyramid(this.dur, this.start);
    /** The ends of all tenures, and the sum of their durations up to each end. @type {Held} */
    this.all = { end: this.dur, sum: this.dur };
    /** The same for each thread. @type {Held[]} */
    this.each = [];
    /** Whether more than one thread had the lock; if not, no thread waited for it. */
    this.shared = false;
    /** Whether the recording has waits; if not, waiting is told from tenures. */
    this.recorded = false;
    /** What is waited for, by kind. @type {string[]} */
    this.words = [];
    /** The waits of each thread, in order of time: none overlaps another. @type {(Held & Kinds)[]} */
    this.waits = [];
  }

  /** Whether anything is known of how long threads waited. */
  get known() {
    return this.recorded || this.shared;
  }

  /**
   * @param {string[]} words what is waited for, by kind
   * @param {Float64Array[]} columns steps from start to start, lengths, threads, kinds, wakers + 1
   * @param {number} grain nanoseconds of a unit
   */
  fillWaits(words, [steps, lengths, threads, kinds, wakers], grain) {
    this.recorded = true;
    this.words = words;
    const counts = new Uint32Array(this.threads);
    for (const thread of threads) counts[thread]++;
    this.waits = Array.from(counts, (n) => ({
      end: new Float64Array(n),
      sum: new Float64Array(n),
      kind: new Uint8Array(n),
      waker: new Int32Array(n),
    }));
    const at = new Uint32Array(this.threads);
    let last = 0;
    for (let i = 0; i < steps.length; i++) {
      last += steps[i];
      const { end, sum, kind, waker } = this.waits[threads[i]];
      const k = at[threads[i]]++;
      end[k] = (last + lengths[i]) * grain;
      sum[k] = (k ? sum[k - 1] : 0) + lengths[i] * grain;
      kind[k] = kinds[i];
      waker[k] = wakers[i] - 1;
    }
  }

  /**
   * Returns the wait of a thread at a time: its kind, length and waker (-1: unknown). Null: it did not wait.
   * @param {number} thread
   * @param {number} time
   */
  waitAt(thread, time) {
    if (!this.recorded) return null;
    const { end, sum, kind, waker } = this.waits[thread];
    const k = upperBound(end, time, 0, end.length);
    if (k === end.length) return null;
    const length = sum[k] - (k ? sum[k - 1] : 0);
    return time < end[k] - length ? null : { kind: kind[k], length, waker: waker[k] };
  }

  /**
   * @param {Float64Array} steps from start to start
   * @param {Float64Array} lengths
   * @param {Float64Array} threads
   * @param {number} grain nanoseconds of a unit
   */
  fill(steps, lengths, threads, grain) {
    const n = steps.length;
    this.count = n;
    this.start = new Float64Array(n);
    this.dur = new Float64Array(n);
    this.func = Uint16Array.from(threads);
    const counts = new Uint32Array(this.threads + 1);
    for (let i = 0; i < n; i++) counts[this.func[i]]++;
    this.all = { end: new Float64Array(n), sum: new Float64Array(n) };
    this.each = Array.from({ length: this.threads }, (_, thread) => ({
      end: new Float64Array(counts[thread]),
      sum: new Float64Array(counts[thread]),
    }));
    const at = new Uint32Array(this.threads + 1);
    let last = 0;
    let total = 0;
    for (let i = 0; i < n; i++) {
      last += steps[i];
      const thread = threads[i];
      const tenures = this.each[thread];
      const k = at[thread]++;
      this.start[i] = last * grain;
      this.dur[i] = lengths[i] * grain;
      this.all.end[i] = tenures.end[k] = this.start[i] + this.dur[i];
      this.all.sum[i] = total += this.dur[i];
      tenures.sum[k] = (k ? tenures.sum[k - 1] : 0) + this.dur[i];
    }
    this.pyramid = new Pyramid(this.dur, this.start);
    this.pyramid.build(0, n);
    this.shared = this.each.filter(({ end }) => end.length).length > 1;
  }

  /** Returns how long a thread had waited before a time. @param {number} thread @param {number} time */
  before(thread, time) {
    if (this.recorded) return heldBefore(this.waits[thread], time);
    return heldBefore(this.all, time) - heldBefore(this.each[thread], time);
  }

  /**
   * Returns how long a thread waited between two times.
   * @param {number} thread
   * @param {number} t0
   * @param {number} t1
   */
  between(thread, t0, t1) {
    return this.known ? this.before(thread, t1) - this.before(thread, t0) : 0;
  }

  /** The tenure at a time, or -1. @param {number} time */
  at(time) {
    const last = upperBound(this.start, time, 0, this.count) - 1;
    return last >= 0 && time < this.start[last] + this.dur[last] ? last : -1;
  }

  /**
   * The kind of the wait at a time, or of the next one; 0 without waits.
   * @param {number} thread
   * @param {number} time
   */
  kindAt(thread, time) {
    if (!this.recorded) return 0;
    const { end, kind } = this.waits[thread];
    return kind[Math.min(upperBound(end, time, 0, end.length), end.length - 1)];
  }

  /**
   * Marks the columns in which a thread waited at least half of the time: 1, and of recorded waits 1 + the kind.
   * @param {number} thread
   * @param {number} v0
   * @param {number} each ns of a column
   * @param {Uint8Array} marks
   */
  mark(thread, v0, each, marks) {
    let before = this.before(thread, v0);
    for (let x = 0; x < marks.length; x++) {
      const now = this.before(thread, v0 + (x + 1) * each);
      marks[x] = now - before >= each / 2 ? 1 + this.kindAt(thread, v0 + (x + 0.5) * each) : 0;
      before = now;
    }
  }
}

/** Returns how much of some tenures lies before a time. @param {Held} held @param {number} time */
function heldBefore({ end, sum }, time) {
  const n = end.length;
  const at = lowerBound(end, time, 0, n); // all tenures before `at` ended before the time
  const known = at ? sum[at - 1] : 0;
  if (at === n) return known;
  const length = sum[at] - known;
  return known + Math.max(0, Math.min(length, time - (end[at] - length)));
}
