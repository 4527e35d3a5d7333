// The data of the page: decodes sections, and answers questions about calls and blocks. No other module knows the bytes.

import { Pyramid, lowerBound, upperBound } from "./lod.js";
import { Waiting } from "./waiting.js";

const KEYFRAME = 256; // events of blocks between two known sums

/** @param {string} id */
async function unpack(id) {
  const element = document.getElementById(`data-${id}`);
  if (!element) throw new Error(`the page lacks its section ${id}: it was cut short`);
  const text = element.textContent || "";
  element.remove(); // the text may be large
  /** @type {Uint8Array<ArrayBuffer>} */
  const packed = /** @type {any} */ (Uint8Array).fromBase64
    ? /** @type {any} */ (Uint8Array).fromBase64(text)
    : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads columns one after the other. */
class Reader {
  /** @param {Uint8Array} bytes @param {number} rows @param {number[]} widths */
  constructor(bytes, rows, widths) {
    this.bytes = bytes;
    this.rows = rows;
    this.widths = widths;
    this.column = 0;
    this.at = 0;
  }

  /** Puts the next column into `out`, from `to` on. @param {any} out @param {number} to */
  into(out, to) {
    const { bytes, rows } = this;
    const width = this.widths[this.column++];
    if (width === 0) out.fill(0, to, to + rows);
    let scale = 1;
    for (let plane = 0; plane < width; plane++, scale *= 256) {
      const from = this.at;
      this.at += rows;
      if (plane === 0) for (let i = 0; i < rows; i++) out[to + i] = bytes[from + i];
      else for (let i = 0; i < rows; i++) if (bytes[from + i]) out[to + i] += bytes[from + i] * scale;
    }
  }

  numbers() {
    const out = new Float64Array(this.rows);
    this.into(out, 0);
    return out;
  }

  /** Signed numbers that are differences. */
  differences() {
    const out = this.numbers();
    for (let i = 0, sum = 0; i < out.length; i++) {
      const zigzag = out[i];
      out[i] = sum += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    }
    return out;
  }
}

export class Data {
  /** @param {any} head */
  constructor(head) {
    this.head = head;
    const n = head.calls;
    const functions = head.functions.name.length;
    const Small = functions < 65535 ? Uint16Array : Uint32Array;
    this.none = functions; // what stands for "no function is known"
    this.duration = head.duration;
    // Of calls
    this.count = n;
    this.start = new Float64Array(n);
    this.dur = new Float64Array(n);
    this.func = new Small(n);
    this.kind = new Uint8Array(n);
    this.flags = new Uint8Array(n);
    this.line = new Uint32Array(n);
    this.task = head.tasks.length ? new Uint32Array(n) : null;
    this.pyramid = new Pyramid(this.dur);
    this.tileRows = head.tiles.c.length ? head.tiles.c[0].rows : 1;
    this.callTiles = new Uint8Array(head.tiles.c.length); // 0 not decoded, 1 being decoded, 2 here
    this.blockTiles = new Uint8Array(head.tiles.m.length);
    /** @type {{thread: number, depth: number, first: number, end: number, coarse: number, coarseEnd: number}[]} */
    this.rows = [];
    this.rowAt = new Map();
    let coarse = 0;
    for (const [thread, depth, first, count] of head.rows) {
      const groups = Math.ceil(count / head.coarse.size);
      this.rowAt.set(`${thread},${depth}`, this.rows.length);
      this.rows.push({ thread, depth, first, end: first + count, coarse, coarseEnd: coarse + groups });
      coarse += groups;
    }
    this.groups = coarse;
    // Of blocks: births and deaths in order of time
    const m = head.events;
    this.events = m;
    this.blocks = head.blocks;
    this.time = new Float64Array(m);
    this.block = new Uint32Array(m); // whose event it is
    this.born = new Uint8Array(m);
    this.birth = new Uint32Array(head.blocks); // its event
    this.death = new Uint32Array(head.blocks); // 0: it lives on
    this.size = new Float64Array(head.blocks);
    this.holder = new Small(head.blocks);
    this.place = new Uint32Array(head.blocks); // the line that was executing, as a row of head.places
    this.ownPlace = new Uint32Array(head.blocks); // the own line that it is charged to
    this.eventThread = new Uint16Array(m);
    const deepest = head.rows.reduce((/** @type {number} */ most, /** @type {number[]} */ row) => Math.max(most, row[1]), 0);
    this.eventDepth = deepest < 65000 ? new Uint16Array(m) : new Uint32Array(m); // of its call, and 1
    this.waiting = new Waiting(head.threads.length, head.blocking, functions);
    // Who holds memory: holdBy() sets these.
    this.by = "";
    /** @type {Uint16Array|Uint32Array} */
    this.holders = this.holder;
    this.bandOf = new Uint8Array(0);
    this.bands = 1;
    this.frames = new Float64Array(0);
    this.eventsHere = 0; // events that are decoded: tiles of blocks come in order
    this.frameCount = 0;
    this.holdBy("function");
    const frames = Math.ceil(m / KEYFRAME) + 1;
    this.frameCount = frames;
    this.frames = new Float64Array(frames * this.bands); // live bytes of each band before an event
    this.frameMost = new Float64Array(frames); // the most live bytes after one of its events
    this.frameAt = new Uint32Array(frames); // which event that is
    this.birthsHere = 0;
    this.orphans = new Map();
    /** Of a parent its orphans. @type {Map<number, number[]>} */
    this.strays = new Map();
    this.astray = new Map();
  }

  static async open() {
    const head = JSON.parse(new TextDecoder().decode(await unpack("head")));
    const data = new Data(head);
    const read = new Reader(await unpack("coarse"), data.groups, head.coarse.widths);
    data.coarseStart = read.differences();
    data.coarseSpan = read.numbers();
    data.coarseFunc = read.numbers();
    data.coarseMost = read.numbers();
    data.coarseSum = read.numbers();
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
    return this.callTiles.every((x) => x === 2) && this.blockTiles.every((x) => x === 2);
  }

  /** Decodes what links calls and blocks where a search would err. */
  async links() {
    for (const [name, map] of /** @type {[string, Map<number, number>][]} */ ([["orphans", this.orphans], ["astray", this.astray]])) {
      const { rows, widths } = this.head[name];
      const read = new Reader(await unpack(name), rows, widths);
      const from = read.differences();
      const to = read.differences();
      for (let i = 0; i < rows; i++) map.set(from[i], to[i]);
    }
    for (const [child, parent] of this.orphans) {
      const found = this.strays.get(parent);
      if (found) found.push(child);
      else this.strays.set(parent, [child]);
    }
    const { rows, widths } = this.head.tenures;
    const read = new Reader(await unpack("tenures"), rows, widths);
    this.waiting.fill(read.numbers(), read.numbers(), read.numbers(), this.head.grain);
  }

  /** @param {number} number */
  async callTile(number) {
    if (this.callTiles[number]) return;
    this.callTiles[number] = 1;
    const { rows, widths, begins, starts } = this.head.tiles.c[number];
    const grain = this.head.grain;
    const read = new Reader(await unpack(`c${number}`), rows, widths);
    const from = number * this.tileRows;
    const { start, dur, func } = this;
    read.into(start, from);
    read.into(dur, from);
    read.into(func, from);
    read.into(this.kind, from);
    read.into(this.flags, from);
    read.into(this.line, from);
    if (this.task) read.into(this.task, from);
    let next = 0;
    let last = 0;
    for (let i = from; i < from + rows; i++) {
      last = begins[next] === i ? starts[next++] : last + start[i];
      start[i] = last * grain;
      dur[i] *= grain;
      func[i] = func[i] ? func[i] - 1 : this.none;
    }
    this.pyramid.build(from, from + rows);
    this.callTiles[number] = 2;
  }

  /** Decodes the next tile of blocks. @param {number} number */
  async blockTile(number) {
    if (this.blockTiles[number]) return;
    this.blockTiles[number] = 1;
    const { rows, widths, start } = this.head.tiles.m[number];
    const grain = this.head.grain;
    const read = new Reader(await unpack(`m${number}`), rows, widths);
    const from = this.eventsHere;
    read.into(this.time, from);
    const ref = read.numbers();
    const size = read.numbers();
    const func = read.numbers();
    const line = read.numbers();
    const own = read.numbers();
    read.into(this.eventThread, from);
    read.into(this.eventDepth, from);
    const { time } = this;
    let last = start;
    for (let i = 0, at = from; i < rows; i++, at++) {
      time[at] = (last += time[at]) * grain;
      let block;
      if (ref[i] === 0) {
        block = this.birthsHere++;
        this.birth[block] = at;
        this.size[block] = size[i];
        this.holder[block] = func[i] ? func[i] - 1 : this.none;
        this.place[block] = line[i];
        this.ownPlace[block] = own[i];
        this.born[at] = 1;
      } else {
        block = this.birthsHere - ref[i];
        this.death[block] = at;
      }
      this.block[at] = block;
    }
    this.eventsHere += rows;
    this.keyframes(from);
    this.blockTiles[number] = 2;
  }

  /** Sums up the bands from an event on, which a keyframe begins with. @param {number} from */
  keyframes(from) {
    const { bands, frames, bandOf, holders } = this;
    const live = new Float64Array(bands);
    if (from) live.set(frames.subarray((from / KEYFRAME) * bands, (from / KEYFRAME + 1) * bands));
    let total = live.reduce((a, b) => a + b, 0);
    // Tiles are whole keyframes but for the last one.
    for (let at = from; at < this.eventsHere; at++) {
      const frame = Math.floor(at / KEYFRAME);
      if (at % KEYFRAME === 0) {
        frames.set(live, frame * bands);
        this.frameMost[frame] = -1;
      }
      const block = this.block[at];
      const change = this.born[at] ? this.size[block] : -this.size[block];
      live[bandOf[holders[block]]] += change;
      total += change;
      if (total > this.frameMost[frame]) {
        this.frameMost[frame] = total;
        this.frameAt[frame] = at;
      }
    }
    frames.set(live, Math.ceil(this.eventsHere / KEYFRAME) * bands);
  }

  /** Chooses by whom memory is held: function, line or own. @param {string} by */
  holdBy(by) {
    if (by === this.by) return;
    this.by = by;
    const { head } = this;
    this.holders = by === "line" ? this.place : by === "own" ? this.ownPlace : this.holder;
    const most = by === "function" ? this.none : head.places[0].length - 1;
    /** @type {number[]} */
    const bands = head.bands[by];
    this.bandOf = new Uint8Array(most + 1).fill(bands.length);
    bands.forEach((key, at) => (this.bandOf[key] = at));
    this.bands = bands.length + 1;
    if (!this.frameCount) return; // nothing is decoded yet
    this.frames = new Float64Array(this.frameCount * this.bands);
    this.keyframes(0);
  }

  /** Names who holds a block. @param {number} key of `holders` */
  holderName(key) {
    if (this.by === "function") return this.nameOf(key);
    const [functions, lines] = this.head.places;
    if (key === 0) return this.by === "own" ? "(not in own code)" : "(unknown)";
    const f = functions[key];
    const place = f < 0 ? "" : this.head.functions.files[this.head.functions.file[f]] || "";
    const file = place.slice(place.lastIndexOf("/") + 1);
    return `${f < 0 ? "(unknown)" : this.nameOf(f)}${file || lines[key] ? ` ${file}${lines[key] ? `:${lines[key]}` : ""}` : ""}`;
  }

  /** The line that was executing when a block was born; 0: not known. @param {number} block */
  lineOf(block) {
    return this.head.places[1][this.place[block]];
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

  /** The last call of a row that had begun by a time, or -1. @param {number} thread @param {number} depth @param {number} time */
  sought(thread, depth, time) {
    const row = this.rowAt.get(`${thread},${depth}`);
    if (row === undefined) return -1;
    const { first, end } = this.rows[row];
    const at = upperBound(this.start, time, first, end) - 1;
    return at < first ? -1 : at;
  }

  /** The call that made a call, or -1. @param {number} call */
  parentOf(call) {
    const known = this.orphans.get(call);
    if (known !== undefined) return known;
    const { thread, depth } = this.rows[this.rowOf(call)];
    return depth ? this.sought(thread, depth - 1, this.start[call]) : -1;
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
      let at = upperBound(this.start, time, first, end) - 1;
      if (at >= first && time < this.start[at] + this.dur[at]) found.push(at);
    }
    return found;
  }

  /** What began in a call, and what is under it: bytes, blocks. @param {number} call */
  memoryOf(call) {
    const own = { bytes: 0, blocks: 0, below: 0, blocksBelow: 0 };
    const { thread, depth } = this.rows[this.rowOf(call)];
    const to = this.start[call] + this.dur[call];
    let at = lowerBound(this.time, this.start[call], 0, this.eventsHere);
    for (; at < this.eventsHere && this.time[at] <= to; at++) {
      if (!this.born[at] || this.eventThread[at] !== thread || this.eventDepth[at] <= depth) continue;
      let made = this.callOfEvent(at);
      const self = made === call;
      const edge = this.time[at] === this.start[call] || this.time[at] === to;
      if (edge) while (made >= 0 && made !== call) made = this.parentOf(made);
      if (edge && made !== call) continue;
      const size = this.size[this.block[at]];
      own.below += size;
      own.blocksBelow++;
      if (self) {
        own.bytes += size;
        own.blocks++;
      }
    }
    return own;
  }

  /** Sums by function of what happened from t0 up to t1. @param {number} t0 @param {number} t1 */
  sums(t0, t1) {
    const n = this.none + 1;
    const self = new Float64Array(n);
    const calls = new Float64Array(n);
    const allocated = new Float64Array(n);
    const blocks = new Float64Array(n);
    const kept = new Float64Array(n);
    const temporaryOf = new Float64Array(n);
    const freedOf = new Float64Array(n);
    for (const { first, end } of this.rows) {
      let i = Math.max(first, lowerBound(this.start, t0, first, end) - 1);
      for (; i < end && this.start[i] < t1; i++) {
        const last = this.start[i] + this.dur[i];
        const begins = this.start[i] >= t0;
        if (!begins && last <= t0) continue;
        if (begins) calls[this.func[i]]++;
        if (last <= t0) continue;
        const inside = Math.min(last, t1) - Math.max(this.start[i], t0);
        self[this.func[i]] += inside;
        const parent = this.parentOf(i);
        if (parent >= 0) self[this.func[parent]] -= inside;
      }
    }
    let bytes = 0;
    let freed = 0;
    let temporary = 0;
    let made = 0;
    const last = lowerBound(this.time, t1, 0, this.eventsHere);
    for (let at = lowerBound(this.time, t0, 0, this.eventsHere); at < last; at++) {
      const block = this.block[at];
      const size = this.size[block];
      if (this.born[at]) {
        const f = this.holder[block];
        bytes += size;
        made++;
        allocated[f] += size;
        blocks[f]++;
        const death = this.death[block];
        if (death === 0 || death >= last) kept[f] += size;
        else {
          temporary += size;
          temporaryOf[f] += size;
        }
      } else {
        freed += size;
        freedOf[this.holder[block]] += size;
      }
    }
    return { self, calls, allocated, blocks, kept, temporaryOf, freedOf, bytes, made, freed, temporary, keptBytes: bytes - temporary };
  }

  // ---- Blocks ------------------------------------------------------------------------------------

  /** The call in which a block was born or freed, or -1. @param {number} at */
  callOfEvent(at) {
    const known = this.astray.get(at);
    if (known !== undefined) return known;
    const depth = this.eventDepth[at];
    return depth ? this.sought(this.eventThread[at], depth - 1, this.time[at]) : -1;
  }

  /** Live bytes of each band after the events up to `event` (not in it). @param {number} event @param {Float64Array} out */
  bandsBefore(event, out) {
    const frame = Math.floor(event / KEYFRAME);
    out.set(this.frames.subarray(frame * this.bands, (frame + 1) * this.bands));
    for (let at = frame * KEYFRAME; at < event; at++) this.apply(at, out);
    return out;
  }

  /** Adds an event to the bytes of its band; gives its bytes. @param {number} at @param {Float64Array} bands */
  apply(at, bands) {
    const block = this.block[at];
    const change = this.born[at] ? this.size[block] : -this.size[block];
    bands[this.bandOf[this.holders[block]]] += change;
    return change;
  }

  /** Live bytes of each band at a time, to the byte. @param {number} time */
  bandsAt(time) {
    return this.bandsBefore(upperBound(this.time, time, 0, this.eventsHere), new Float64Array(this.bands));
  }

  /** The event in [from, to) after which the most bytes were live; -1: there is none. @param {number} from @param {number} to */
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
        const size = this.size[this.block[at]];
        total += this.born[at] ? size : -size;
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

  /** Calls `f(block)` for each block that is alive at a time. @param {number} time @param {(block: number) => void} f */
  alive(time, f) {
    const last = upperBound(this.time, time, 0, this.eventsHere);
    for (let block = 0; block < this.birthsHere && this.birth[block] < last; block++) {
      if (this.death[block] === 0 || this.death[block] >= last) f(block);
    }
  }
}
