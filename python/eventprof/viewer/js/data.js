// The data of the page: decodes sections, and answers questions about calls; blocks.js answers those about blocks.

import { Bins, isLong } from "./bins.js";
import { Blocks } from "./blocks.js";
import { Pyramid, lowerBound, upperBound } from "./lod.js";
import { Readies } from "./readies.js";
import { clean, showTime } from "./text.js";
import { Reader, Tiles, namesIn, small } from "./tiles.js";
import { unpack } from "./unpack.js";
import { Waiting } from "./waiting.js";

const AHEAD = 8; // the most tiles that are being decoded, or are decoded and wait to be copied
const WORKERLESS = 2; // workers are started for more tiles than this: two are decoded before a worker has started

/**
 * A row of the picture: the calls of one thread and depth, from `first` to before `end`, and their coarse groups.
 * @typedef
 *   {{thread: number, depth: number, first: number, end: number, coarse: number, coarseEnd: number, bins: Bins|null}}
 *   Row
 */

export class Data {
  /** @param {any} head */
  constructor(head) {
    this.head = head;
    const n = head.calls;
    const functions = head.functions.name.length;
    this.none = functions; // the number of the unknown function
    this.duration = head.duration;
    // Of calls
    this.count = n;
    this.start = new Float64Array(n);
    this.dur = new Float64Array(n);
    this.func = small(functions, n);
    // Plus 1; 0: the usual kind of the function. Most pages never touch most of this memory.
    this.kind = new Uint8Array(n);
    this.flags = new Uint8Array(n);
    const bytes = (/** @type {number|number[]} */ width) => (typeof width === "number" ? width : width[0] + width[2]);
    const widest = (/** @type {any[]} */ tiles, /** @type {number} */ column) =>
      256 ** tiles.reduce((most, tile) => Math.max(most, bytes(tile.widths[column])), 0) - 1;
    /** @type {import("./tiles.js").Common} */
    const common = {
      grain: head.grain,
      none: functions,
      line: widest(head.tiles.c, 5),
      task: head.tasks.length || -1,
      size: widest(head.tiles.m, 4),
      charge: head.charges[0].length,
      row: head.rows.length,
    };
    this.line = small(common.line, n);
    this.task = head.tasks.length ? small(common.task, n) : null;
    this.pyramid = new Pyramid(this.dur, this.start);
    this.tileRows = head.tiles.c.length ? head.tiles.c[0].rows : 1;
    this.callTiles = new Uint8Array(head.tiles.c.length); // 0 not decoded, 1 being decoded, 2 here
    this.blockTiles = new Uint8Array(head.tiles.m.length);
    /** Events and births before each tile of blocks. @type {{from: number, first: number}[]} */
    const before = [];
    let from = 0;
    let first = 0;
    for (const { rows, births } of head.tiles.m) {
      before.push({ from, first });
      from += rows;
      first += births;
    }
    this.tiles = new Tiles(common, (id) => {
      const number = Number(id.slice(1));
      return id[0] === "c"
        ? { ...head.tiles.c[number], from: number * this.tileRows }
        : { ...head.tiles.m[number], ...before[number] };
    });
    /** @type {Row[]} */
    this.rows = [];
    this.rowAt = new Map();
    let coarse = 0;
    for (const [thread, depth, first, count] of head.rows) {
      const groups = Math.ceil(count / head.coarse.size);
      this.rowAt.set(`${thread},${depth}`, this.rows.length);
      this.rows.push({ thread, depth, first, end: first + count, coarse, coarseEnd: coarse + groups, bins: null });
      coarse += groups;
    }
    this.groups = coarse;
    // Of each group of calls: its start and duration, the function and duration of its longest call, the sum of
    // durations.
    const none = new Float64Array(0);
    this.coarse = { start: none, span: none, func: none, most: none, sum: none };
    this.blocks = new Blocks(this, common);
    this.waiting = new Waiting(head.threads.length, head.blocking, functions);
    // Steps of asyncio's tasks, lane by lane, with the call of each.
    const nothing = new Float64Array(0);
    this.steps = { start: nothing, dur: nothing, func: nothing, call: nothing, pyramid: new Pyramid(nothing, nothing) };
    this.readies = new Readies();
    this.linked = false; // whether the links, steps and tenures are decoded
    /** Calls whose parent a search by time would not find, with the parent. @type {Map<number, number>} */
    this.orphans = new Map();
    /** The orphans of each parent. @type {Map<number, number[]>} */
    this.strays = new Map();
  }

  static async open() {
    const head = JSON.parse(new TextDecoder().decode(await unpack("head")));
    const data = new Data(head);
    const read = new Reader(await unpack("coarse"), head.coarse.widths);
    data.coarse.start = read.differences(data.groups);
    data.coarse.span = read.numbers(data.groups);
    data.coarse.func = read.numbers(data.groups);
    data.coarse.most = read.numbers(data.groups);
    data.coarse.sum = read.numbers(data.groups);
    const grain = head.grain;
    for (let i = 0; i < data.groups; i++) {
      data.coarse.start[i] *= grain;
      data.coarse.span[i] *= grain;
      data.coarse.most[i] *= grain;
      data.coarse.sum[i] *= grain;
      data.coarse.func[i] = data.coarse.func[i] ? data.coarse.func[i] - 1 : data.none;
    }
    return data;
  }

  get complete() {
    return this.linked && this.callTiles.every((x) => x === 2) && this.blockTiles.every((x) => x === 2);
  }

  /** Decodes the links that a search by time would not find, the steps of tasks, and the tenures. */
  async links() {
    for (const [name, map] of /** @type {[string, Map<number, number>][]} */ ([
      ["orphans", this.orphans],
      ["astray", this.blocks.astray],
    ])) {
      const { rows, widths } = this.head[name];
      const read = new Reader(await unpack(name), widths);
      const from = read.differences(rows);
      const to = read.differences(rows);
      for (let i = 0; i < rows; i++) map.set(from[i], to[i]);
    }
    for (const [child, parent] of this.orphans) {
      const found = this.strays.get(parent);
      if (found) found.push(child);
      else this.strays.set(parent, [child]);
    }
    await this.readSteps();
    const { rows, widths } = this.head.tenures;
    const read = new Reader(await unpack("tenures"), widths);
    this.waiting.fill(read.numbers(rows), read.numbers(rows), read.numbers(rows), this.head.grain);
    const { waits, readies, grain } = this.head;
    if (waits) this.waiting.fillWaits(waits.words, await columnsOf("waits", waits), grain);
    if (readies) this.readies.fill(readies.words, await columnsOf("readies", readies), grain);
    this.linked = true;
  }

  /** Decodes the steps of tasks. */
  async readSteps() {
    const {
      steps: { rows, widths },
      grain,
    } = this.head;
    const read = new Reader(await unpack("steps"), widths);
    const start = read.differences(rows);
    const dur = read.numbers(rows);
    for (let i = 0; i < rows; i++) {
      start[i] *= grain;
      dur[i] *= grain;
    }
    const func = new Float64Array(rows);
    namesIn(read.next(rows), this.none, func);
    this.steps = { start, dur, func, call: read.numbers(rows), pyramid: new Pyramid(dur, start) };
    this.steps.pyramid.build(0, rows);
  }

  /**
   * Has the next tiles decoded by workers, those in view first, then blocks.
   * @param {number[]} calls tiles of calls in view
   * @param {boolean} rest whether the others will be decoded, too
   */
  ahead(calls, rest) {
    if (this.callTiles.length + this.blockTiles.length <= WORKERLESS) return;
    let left = AHEAD;
    const ask = (/** @type {string} */ id) => {
      if (left <= 0 || !this.tiles.here(id)) return;
      this.tiles.prepare(id);
      left--;
    };
    for (const n of calls) ask(`c${n}`);
    if (!rest) return;
    for (const [letter, tiles] of /** @type {[string, Uint8Array][]} */ ([
      ["m", this.blockTiles],
      ["c", this.callTiles],
    ])) {
      for (let n = tiles.indexOf(0); n >= 0 && n < tiles.length && left > 0; n++) {
        if (!this.tiles.here(`${letter}${n}`)) break; // the browser reads them in order
        if (!tiles[n] && (letter === "m" || !calls.includes(n))) ask(`${letter}${n}`);
      }
    }
  }

  /** Whether a call is decoded. @param {number} call */
  has(call) {
    return this.callTiles[Math.floor(call / this.tileRows)] === 2;
  }

  /** @param {number} number */
  async callTile(number) {
    if (this.callTiles[number]) return;
    this.callTiles[number] = 1;
    const from = number * this.tileRows;
    const { rows } = this.head.tiles.c[number];
    const made = await this.tiles.get(`c${number}`);
    this.start.set(made.start, from);
    this.dur.set(made.dur, from);
    this.func.set(made.func, from);
    for (const [out, all, rare] of [
      [this.kind, made.kind, made.rareKinds],
      [this.flags, made.flags, made.rareFlags],
    ]) {
      if (all.length) out.set(all, from);
      else for (let k = 0; k < rare.length; k += 2) out[from + rare[k]] = rare[k + 1];
    }
    this.line.set(made.line, from);
    if (this.task) this.task.set(made.task, from);
    this.tiles.giveBack(made);
    this.pyramid.build(from, from + rows);
    this.callTiles[number] = 2;
    this.sumUp(from, from + rows);
  }

  /**
   * Makes the bins of long rows that some calls completed.
   * @param {number} from
   * @param {number} to the calls, just decoded
   */
  sumUp(from, to) {
    const { rows, tileRows, callTiles } = this;
    const decoded = (/** @type {Row} */ row) => {
      for (let tile = Math.floor(row.first / tileRows); tile * tileRows < row.end; tile++)
        if (callTiles[tile] !== 2) return false;
      return true;
    };
    for (let n = this.rowOf(from); n < rows.length && rows[n].first < to; n++) {
      const row = rows[n];
      if (isLong(row) && decoded(row)) row.bins = new Bins(this, row.first, row.end);
    }
  }

  /** Decodes the next tile of blocks. @param {number} number */
  async blockTile(number) {
    if (this.blockTiles[number]) return;
    this.blockTiles[number] = 1;
    const { rows, births } = this.head.tiles.m[number];
    const made = await this.tiles.get(`m${number}`);
    this.blocks.take(made, rows, births);
    this.tiles.giveBack(made);
    this.blockTiles[number] = 2;
  }

  // ---- Names -------------------------------------------------------------------------------------

  /** @param {number} f */
  nameOf(f) {
    return f < this.none ? this.head.functions.name[f] || "(no name)" : "(unknown)";
  }

  /** @param {number} f */
  placeOf(f) {
    if (f >= this.none) return "";
    const { files, file, line, modules, module } = this.head.functions;
    const name = files[file[f]];
    if (!name) return modules[module[f]] || "";
    return line[f] >= 0 ? `${name}:${line[f]}` : name;
  }

  // ---- Calls -------------------------------------------------------------------------------------

  /** The row of the picture that a call is in. @param {number} call */
  rowOf(call) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.rows[middle].end <= call) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The kind of a call: an index of the head's kinds. @param {number} call */
  kindOf(call) {
    const f = this.func[call];
    return this.kind[call] ? this.kind[call] - 1 : this.head.usual[f < this.none ? f + 1 : 0];
  }

  /** The last call of a row that had begun by a time, or -1. @param {number} row @param {number} time */
  sought(row, time) {
    const { first, end } = this.rows[row];
    const at = upperBound(this.start, time, first, end) - 1;
    return at < first ? -1 : at;
  }

  /** The call that made a call, or -1. @param {number} call */
  parentOf(call) {
    const known = this.orphans.get(call);
    if (known !== undefined) return known;
    const { thread, depth } = this.rows[this.rowOf(call)];
    const above = depth ? this.rowAt.get(`${thread},${depth - 1}`) : undefined;
    return above === undefined ? -1 : this.sought(above, this.start[call]);
  }

  /** The calls that a call made. @param {number} call */
  childrenOf(call) {
    const { thread, depth } = this.rows[this.rowOf(call)];
    const row = this.rowAt.get(`${thread},${depth + 1}`);
    const found = [];
    if (row !== undefined) {
      const { first, end } = this.rows[row];
      const last = this.start[call] + this.dur[call];
      for (let i = lowerBound(this.start, this.start[call], first, end); i < end && this.start[i] <= last; i++) {
        if (this.parentOf(i) === call) found.push(i);
      }
    }
    for (const child of this.strays.get(call) || []) if (!found.includes(child)) found.push(child);
    return found;
  }

  /** Time of a call in which its thread waited. @param {number} call */
  waitedOf(call) {
    const { thread } = this.rows[this.rowOf(call)];
    return this.waiting.between(thread, this.start[call], this.start[call] + this.dur[call]);
  }

  /** Time of a call without the calls that it made. @param {number} call */
  selfOf(call) {
    return this.childrenOf(call).reduce((rest, child) => rest - this.dur[child], this.dur[call]);
  }

  /** The calls that are open at a time, by thread and depth. @param {number} time */
  openAt(time) {
    const found = [];
    for (const { first, end } of this.rows) {
      const at = upperBound(this.start, time, first, end) - 1;
      if (at >= first && time < this.start[at] + this.dur[at]) found.push(at);
    }
    return found;
  }

  /** The innermost call of a thread that is open at a time; -1: none. @param {number} thread @param {number} time */
  innermostAt(thread, time) {
    const calls = this.openAt(time).filter((call) => this.rows[this.rowOf(call)].thread === thread);
    return calls.length ? calls[calls.length - 1] : -1;
  }

  /** Describes the wait of a thread at a time, if it waits then. @param {number} thread @param {number} time */
  waitWords(thread, time) {
    const wait = this.waiting.waitAt(thread, time);
    if (!wait) return [];
    const by = wait.waker < 0 ? "" : `; ${clean(this.head.threads[wait.waker].name)} let it go on`;
    return [`waits ${showTime(wait.length)} for ${this.waiting.words[wait.kind]}${by}`];
  }

  /**
   * Returns the innermost call, at a time, of the thread that ended another one's wait of then; -1: it is not known.
   * @param {number} thread the one that waits
   * @param {number} time
   */
  holderAt(thread, time) {
    const wait = this.waiting.waitAt(thread, time);
    if (!wait || wait.waker < 0) return -1;
    return this.innermostAt(wait.waker, time);
  }

  /** When the task could go on whose step a call is; null: it is none, or that is not known. @param {number} call */
  readyOf(call) {
    if (this.readies.stepOf(call, this.steps.call) < 0) return null;
    return this.readies.of(this.rows[this.rowOf(call)].thread, this.start[call]);
  }

  /** The innermost call that made a task ready; -1: it is not known. @param {import("./readies.js").Ready} ready */
  makerOf({ time, by }) {
    return by < 0 ? -1 : this.innermostAt(by, time);
  }

  /**
   * Describes what a task awaited before a step of it, and for how long it could have gone on already.
   * @param {number} call
   * @param {import("./readies.js").Ready} ready
   */
  readyWords(call, { time, word, by }) {
    const what = word === "start" ? "this task was made" : `its task awaited: ${word}; it was ready`;
    const who = by < 0 ? "" : `, by ${clean(this.head.threads[by].name)}`;
    return `${what} ${showTime(this.start[call] - time)} before${who}`;
  }

  /**
   * Returns the call that let a call's thread, or its task, go on at a time; -1: it is not known.
   * @param {number} call
   * @param {number} time
   */
  causeOf(call, time) {
    const holder = this.holderAt(this.rows[this.rowOf(call)].thread, time);
    const ready = holder < 0 ? this.readyOf(call) : null;
    return ready ? this.makerOf(ready) : holder;
  }

  /** Returns the bytes and blocks that a call allocated: itself, and with the calls inside. @param {number} call */
  memoryOf(call) {
    const own = { bytes: 0, blocks: 0, below: 0, blocksBelow: 0 };
    const row = this.rowOf(call);
    const { thread } = this.rows[row];
    let deepest = row; // the last row of the thread
    while (deepest + 1 < this.rows.length && this.rows[deepest + 1].thread === thread) deepest++;
    const to = this.start[call] + this.dur[call];
    const last = this.blocks.eventAfter(to);
    for (let at = this.blocks.eventAt(this.start[call]); at < last; at++) {
      if (!this.blocks.isBirth(at) || this.blocks.eventRow[at] <= row || this.blocks.eventRow[at] > deepest + 1)
        continue;
      let made = this.callOfEvent(at);
      const self = made === call;
      const time = this.blocks.timeOf(at);
      const edge = time === this.start[call] || time === to;
      if (edge) while (made >= 0 && made !== call) made = this.parentOf(made);
      if (edge && made !== call) continue;
      const size = this.blocks.size[this.blocks.blockOf(at)];
      own.below += size;
      own.blocksBelow++;
      if (self) {
        own.bytes += size;
        own.blocks++;
      }
    }
    return own;
  }

  /**
   * Adds what the calls of a row took from t0 to before t1, and those that began then.
   * @param {Row} row
   * @param {number} t0
   * @param {number} t1
   * @param {Float64Array} self
   * @param {Float64Array} calls both by function
   */
  sumsOfRow({ thread, depth, first, end }, t0, t1, self, calls) {
    const { start, dur, func, orphans } = this;
    const above = this.rows[this.rowAt.get(`${thread},${depth - 1}`)];
    let i = Math.max(first, lowerBound(start, t0, first, end) - 1);
    // As `parentOf`, but the calls above are passed once: a search for each call would take most of the time.
    let next = above && i < end ? upperBound(start, start[i], above.first, above.end) : 0;
    for (; i < end && start[i] < t1; i++) {
      const last = start[i] + dur[i];
      if (start[i] >= t0) calls[func[i]]++;
      if (last <= t0) continue;
      const inside = Math.min(last, t1) - Math.max(start[i], t0);
      self[func[i]] += inside;
      if (above) while (next < above.end && start[next] <= start[i]) next++;
      const known = orphans.size ? orphans.get(i) : undefined;
      const parent = known ?? (above && next > above.first ? next - 1 : -1);
      if (parent >= 0) self[func[parent]] -= inside;
    }
  }

  /** Returns sums by function of what happened from t0 to before t1. @param {number} t0 @param {number} t1 */
  sums(t0, t1) {
    const n = this.none + 1;
    const self = new Float64Array(n);
    const calls = new Float64Array(n);
    const allocated = new Float64Array(n);
    const blocks = new Float64Array(n);
    const kept = new Float64Array(n);
    const temporaryOf = new Float64Array(n);
    const freedOf = new Float64Array(n);
    for (const row of this.rows) this.sumsOfRow(row, t0, t1, self, calls);
    let bytes = 0;
    let freed = 0;
    let temporary = 0;
    let made = 0;
    const since = this.blocks.eventAt(t0);
    const last = this.blocks.eventAt(t1);
    const dead = this.blocks.diedIn(since, last);
    for (let at = since; at < last; at++) {
      const block = this.blocks.blockOf(at);
      const size = this.blocks.size[block];
      const f = this.blocks.functionOf(block);
      if (this.blocks.isBirth(at)) {
        bytes += size;
        made++;
        allocated[f] += size;
        blocks[f]++;
        if (dead[block]) {
          temporary += size;
          temporaryOf[f] += size;
        } else kept[f] += size;
      } else {
        freed += size;
        freedOf[f] += size;
      }
    }
    return {
      self,
      calls,
      allocated,
      blocks,
      kept,
      temporaryOf,
      freedOf,
      bytes,
      made,
      freed,
      temporary,
      keptBytes: bytes - temporary,
    };
  }

  /** The call in which a block was born or freed, or -1. @param {number} at */
  callOfEvent(at) {
    const known = this.blocks.astray.get(at);
    if (known !== undefined) return known;
    const row = this.blocks.eventRow[at];
    return row ? this.sought(row - 1, this.blocks.timeOf(at)) : -1;
  }
}

/**
 * Decodes a section of five columns of numbers.
 * @param {string} name
 * @param {{rows: number, widths: any}} section of the head
 * @returns {Promise<Float64Array[]>}
 */
async function columnsOf(name, { rows, widths }) {
  const read = new Reader(await unpack(name), widths);
  return Array.from({ length: 5 }, () => read.numbers(rows));
}
