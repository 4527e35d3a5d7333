// The data of the page: decodes sections, and answers questions about calls and blocks. Only this module reads their
// bytes.

import { Bins, isLong } from "./bins.js";
import { Pyramid, gallop, lowerBound, upperBound } from "./lod.js";
import { FAR, KEYFRAME, Reader, Tiles, namesIn, small } from "./tiles.js";
import { unpack } from "./unpack.js";
import { Waiting } from "./waiting.js";

const AHEAD = 8; // the most tiles that are being decoded, or are decoded and wait to be copied
const WORKERLESS = 2; // workers are started for more tiles than this: two are decoded before a worker has started
const GROUP = 8 * KEYFRAME; // events of a group; of each group the largest sum is known

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
    this.coarseStart = this.coarseSpan = this.coarseFunc = this.coarseMost = this.coarseSum = new Float64Array(0);
    // Of blocks: births and deaths in order of time
    const m = head.events;
    this.events = m;
    this.blocks = head.blocks;
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
      function: whose.map((/** @type {number} */ name) => (name ? name - 1 : functions)),
      line: lines,
      own: ownLines,
    };
    this.waiting = new Waiting(head.threads.length, head.blocking, functions);
    // Steps of asyncio's tasks, lane by lane, with the call of each.
    const nothing = new Float64Array(0);
    this.steps = { start: nothing, dur: nothing, func: nothing, call: nothing, pyramid: new Pyramid(nothing, nothing) };
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
    this.linked = false; // whether the links, steps and tenures are decoded
    /** Calls whose parent a search by time would not find, with the parent. @type {Map<number, number>} */
    this.orphans = new Map();
    /** The orphans of each parent. @type {Map<number, number[]>} */
    this.strays = new Map();
    /** Events whose call a search by time would not find, with the call. @type {Map<number, number>} */
    this.astray = new Map();
  }

  static async open() {
    const head = JSON.parse(new TextDecoder().decode(await unpack("head")));
    const data = new Data(head);
    const read = new Reader(await unpack("coarse"), head.coarse.widths);
    data.coarseStart = read.differences(data.groups);
    data.coarseSpan = read.numbers(data.groups);
    data.coarseFunc = read.numbers(data.groups);
    data.coarseMost = read.numbers(data.groups);
    data.coarseSum = read.numbers(data.groups);
    const grain = head.grain;
    for (let i = 0; i < data.groups; i++) {
      data.coarseStart[i] *= grain;
      data.coarseSpan[i] *= grain;
      data.coarseMost[i] *= grain;
      data.coarseSum[i] *= grain;
      data.coarseFunc[i] = data.coarseFunc[i] ? data.coarseFunc[i] - 1 : data.none;
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
      ["astray", this.astray],
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
    const from = this.eventsHere;
    const first = this.birthsHere;
    const made = await this.tiles.get(`m${number}`);
    this.event.set(made.event, from);
    this.distance.set(made.time, from);
    for (const [frame, times] of made.far) this.far.set(from / KEYFRAME + frame, times);
    this.frameTime.set(made.base, from / KEYFRAME);
    this.eventRow.set(made.row, from);
    this.size.set(made.size, first);
    this.charge.set(made.charge, first);
    this.tiles.giveBack(made);
    this.birthsHere += births;
    this.eventsHere += rows;
    this.keyframes(from, first);
    this.blockTiles[number] = 2;
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
   * Sums up a keyframe; gives its births.
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
    const { head } = this;
    this.holders = this.chargesBy[by];
    this.holderCount = by === "function" ? this.none + 1 : head.places[0].length;
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
    if (this.by === "function") return this.nameOf(key);
    const [functions, lines] = this.head.places;
    if (key === 0) return this.by === "own" ? "(not in own code)" : "(unknown)";
    const f = functions[key];
    const place = f < 0 ? "" : this.head.functions.files[this.head.functions.file[f]] || "";
    const file = place.slice(place.lastIndexOf("/") + 1);
    return `${f < 0 ? "(unknown)" : this.nameOf(f)}${file || lines[key] ? ` ${file}${lines[key] ? `:${lines[key]}` : ""}` : ""}`;
  }

  /** Gives the line that was executing when a block was allocated; 0: unknown. @param {number} block */
  lineOf(block) {
    return this.head.places[1][this.chargesBy.line[this.charge[block]]];
  }

  /** Gives the function that a block is charged to. @param {number} block */
  functionOf(block) {
    return this.chargesBy.function[this.charge[block]];
  }

  /** Gives the holder of a block, of the chosen kind. @param {number} block */
  holderOf(block) {
    return this.holders[this.charge[block]];
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

  /** Time of a call in which another thread had the interpreter's lock. @param {number} call */
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

  /** Gives the bytes and blocks that a call allocated: itself, and with the calls inside. @param {number} call */
  memoryOf(call) {
    const own = { bytes: 0, blocks: 0, below: 0, blocksBelow: 0 };
    const row = this.rowOf(call);
    const { thread } = this.rows[row];
    let deepest = row; // the last row of the thread
    while (deepest + 1 < this.rows.length && this.rows[deepest + 1].thread === thread) deepest++;
    const to = this.start[call] + this.dur[call];
    const last = this.eventAfter(to);
    for (let at = this.eventAt(this.start[call]); at < last; at++) {
      if (!this.isBirth(at) || this.eventRow[at] <= row || this.eventRow[at] > deepest + 1) continue;
      let made = this.callOfEvent(at);
      const self = made === call;
      const time = this.timeOf(at);
      const edge = time === this.start[call] || time === to;
      if (edge) while (made >= 0 && made !== call) made = this.parentOf(made);
      if (edge && made !== call) continue;
      const size = this.size[this.blockOf(at)];
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

  /** Gives sums by function of what happened from t0 to before t1. @param {number} t0 @param {number} t1 */
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
    const since = this.eventAt(t0);
    const last = this.eventAt(t1);
    const dead = this.diedIn(since, last);
    for (let at = since; at < last; at++) {
      const block = this.blockOf(at);
      const size = this.size[block];
      const f = this.functionOf(block);
      if (this.isBirth(at)) {
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

  // ---- Blocks ------------------------------------------------------------------------------------

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
   * Gives the first event in [from, to), which is a part of one keyframe, at a time or later, or `to`.
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

  /** Gives the first decoded event at a time or later. @param {number} time */
  eventAt(time) {
    const frame = lowerBound(this.frameTime, time, 0, Math.ceil(this.eventsHere / KEYFRAME));
    return this.firstFrom(time, Math.max(0, frame - 1) * KEYFRAME, Math.min(frame * KEYFRAME, this.eventsHere));
  }

  /** Gives the first decoded event after a time. @param {number} time */
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
    const first = blocks.reduce((least, block) => Math.min(least, this.birthOf(block)), this.eventsHere);
    for (let at = first; at < this.eventsHere && found.size < wanted.size; at++) {
      const value = event[at];
      if (!(value & 1) && few[(value >>> 1) & 0xffff] && wanted.has(value >>> 1)) found.set(value >>> 1, at);
    }
    return found;
  }

  /** Gives 1 for each block that died in some events. @param {number} from @param {number} to the end of the events */
  diedIn(from, to) {
    const { event } = this;
    const dead = new Uint8Array(this.birthsHere);
    for (let at = from; at < to; at++) if (!(event[at] & 1)) dead[event[at] >>> 1] = 1;
    return dead;
  }

  /** The call in which a block was born or freed, or -1. @param {number} at */
  callOfEvent(at) {
    const known = this.astray.get(at);
    if (known !== undefined) return known;
    const row = this.eventRow[at];
    return row ? this.sought(row - 1, this.timeOf(at)) : -1;
  }

  /**
   * Gives the live bytes of each band after all events before `event`.
   * @param {number} event
   * @param {Float64Array} out
   */
  bandsBefore(event, out) {
    const frame = Math.floor(event / KEYFRAME);
    out.set(this.frames.subarray(frame * this.bands, (frame + 1) * this.bands));
    for (let at = frame * KEYFRAME; at < event; at++) this.apply(at, out);
    return out;
  }

  /** Adds an event to the bytes of its band; gives its bytes. @param {number} at @param {Float64Array} bands */
  apply(at, bands) {
    const event = this.event[at];
    const block = event >>> 1;
    const change = this.size[block] * (2 * (event & 1) - 1);
    bands[this.bandOf[this.charge[block]]] += change;
    return change;
  }

  /** Gives the exact live bytes of each band at a time. @param {number} time */
  bandsAt(time) {
    return this.bandsBefore(this.eventAfter(time), new Float64Array(this.bands));
  }

  /**
   * Gives the first decoded event at a time or later. It is fast if that is near `from`.
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
