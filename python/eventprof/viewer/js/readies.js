// When tasks of asyncio could go on, and which thread made them ready: one for each step that follows.

/** @typedef {{time: number, thread: number, word: string, by: number}} Ready */

export class Readies {
  constructor() {
    /** By thread and begin of the step. @type {Map<string, Ready>} */
    this.found = new Map();
    /** The step of each call that is one; made when it is asked for. @type {Map<number, number>|null} */
    this.steps = null;
  }

  /**
   * @param {string[]} words what is awaited, by kind
   * @param {Float64Array[]} columns from begin to begin, how long it was ready before, threads, kinds, makers + 1
   * @param {number} grain nanoseconds of a unit
   */
  fill(words, [begins, queued, threads, kinds, makers], grain) {
    let begin = 0;
    for (let i = 0; i < begins.length; i++) {
      begin += begins[i];
      const time = (begin - queued[i]) * grain;
      this.found.set(`${threads[i]},${begin * grain}`, {
        time,
        thread: threads[i],
        word: words[kinds[i]],
        by: makers[i] - 1,
      });
    }
  }

  /**
   * The step of a task that a call is; -1: none.
   * @param {number} call
   * @param {Float64Array} calls of the steps
   */
  stepOf(call, calls) {
    if (!this.found.size) return -1;
    if (this.steps === null) {
      this.steps = new Map();
      for (let i = 0; i < calls.length; i++) this.steps.set(calls[i], i);
    }
    return this.steps.get(call) ?? -1;
  }

  /** @param {number} thread @param {number} begin of the step */
  of(thread, begin) {
    return this.found.get(`${thread},${begin}`) ?? null;
  }
}
