// Tiles: decodes columns of calls and of blocks from planes of bytes, beside the page if it may have workers.

import { FIRST, LOW, bytesOf, gunzip, take } from "./unpack.js";

const HELPERS = 2; // workers

/** Reads columns one after the other. */
export class Reader {
  /** Each column is decoded into one of these first: loops that always see the same type of array are several times as fast. */
  static scratch = new Float64Array(0);
  static kept = new Float64Array(0);
  static scratch32 = new Uint32Array(0); // of columns that are surely less than 2 ** 32

  /** @param {Uint8Array<ArrayBuffer>} bytes @param {number[]} widths */
  constructor(bytes, widths) {
    this.bytes = bytes;
    this.widths = widths;
    this.column = 0;
    this.at = 0;
  }

  /** Decodes the next column; the result is valid until the next call. @param {number} rows */
  next(rows) {
    if (Reader.scratch.length < rows) Reader.scratch = new Float64Array(rows);
    const { bytes } = this;
    const width = this.widths[this.column++];
    const a = this.at;
    this.at += width * rows;
    const out = Reader.scratch.subarray(0, rows);
    if (width === 0) return out.fill(0);
    const b = a + rows;
    const c = b + rows;
    if (width === 1) out.set(bytes.subarray(a, b));
    else if (width === 2) for (let i = 0; i < rows; i++) out[i] = bytes[a + i] | (bytes[b + i] << 8);
    else for (let i = 0; i < rows; i++) out[i] = bytes[a + i] | (bytes[b + i] << 8) | (bytes[c + i] << 16);
    for (let plane = 3, scale = 2 ** 24, from = c + rows; plane < width; plane++, scale *= 256, from += rows) {
      for (let i = 0; i < rows; i++) if (bytes[from + i]) out[i] += bytes[from + i] * scale;
    }
    return out;
  }

  /** Like `next`, but the result is valid until the next call of `keep`. New memory for each column would take longer. @param {number} rows */
  keep(rows) {
    [Reader.scratch, Reader.kept] = [Reader.kept, Reader.scratch];
    const out = this.next(rows);
    [Reader.scratch, Reader.kept] = [Reader.kept, Reader.scratch];
    return out;
  }

  /** Decodes the next column, of less than 2 ** 32, to whole numbers: these are faster. The result is valid until the next call. @param {number} rows */
  whole(rows) {
    if (Reader.scratch32.length < rows) Reader.scratch32 = new Uint32Array(rows);
    const { bytes } = this;
    const width = this.widths[this.column++];
    const a = this.at;
    this.at += width * rows;
    const out = Reader.scratch32.subarray(0, rows);
    if (width === 0) return out.fill(0);
    out.set(bytes.subarray(a, a + rows));
    for (let plane = 1, from = a + rows; plane < width; plane++, from += rows) {
      const shift = 8 * plane;
      for (let i = 0; i < rows; i++) out[i] |= bytes[from + i] << shift;
    }
    return out;
  }

  /** Puts the next column into `out`. @param {Small} out */
  into(out) {
    const rows = out.length;
    const width = this.widths[this.column];
    if (width !== 1) {
      out.set(width > 4 ? this.next(rows) : this.whole(rows));
      return;
    }
    this.column++;
    out.set(this.bytes.subarray(this.at, (this.at += rows))); // a column of bytes needs no scratch
  }

  /** @param {number} rows */
  numbers(rows) {
    return this.next(rows).slice();
  }

  /** Decodes a column of differences to a column of sums. @param {number} rows */
  differences(rows) {
    const out = this.numbers(rows);
    for (let i = 0, sum = 0; i < out.length; i++) {
      out[i] = sum += unzigzag(out[i]);
    }
    return out;
  }
}

/** Gives the signed number that a zigzag number stands for. @param {number} zigzag */
export function unzigzag(zigzag) {
  return zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
}

/** Gives the place of each row in a column that is sorted by keys. @param {ArrayLike<number>} keys @param {number} rows @param {number} most all keys are less */
export function placesOf(keys, rows, most) {
  const next = new Uint32Array(most + 1);
  for (let i = 0; i < rows; i++) next[keys[i] + 1]++;
  for (let key = 0; key < most; key++) next[key + 1] += next[key];
  const places = new Uint32Array(rows);
  for (let i = 0; i < rows; i++) places[i] = next[keys[i]]++;
  return places;
}

/** @typedef {Uint8Array|Uint16Array|Uint32Array|Float64Array} Small */

/** The smallest type of array that holds whole numbers up to `most`. @param {number} most @returns {any} */
export function smallType(most) {
  if (most < 2 ** 8) return Uint8Array;
  if (most < 2 ** 16) return Uint16Array;
  return most < 2 ** 32 ? Uint32Array : Float64Array;
}

/** Makes an array of the smallest type. @param {number} most @param {number} length @returns {Small} */
export function small(most, length) {
  return new (smallType(most))(length);
}

/** Makes arrays that share one piece of memory, `room` if that is large enough. @param {Record<string, [any, number]>} wanted types and lengths @param {ArrayBuffer} [room] @returns {any} */
export function arraysIn(wanted, room) {
  const bytes = Object.values(wanted).reduce((sum, [type, length]) => sum + Math.ceil((type.BYTES_PER_ELEMENT * length) / 8) * 8, 0);
  const buffer = room && room.byteLength >= bytes ? room : new ArrayBuffer(bytes);
  /** @type {any} */
  const made = {};
  let at = 0;
  for (const [name, [type, length]] of Object.entries(wanted)) {
    made[name] = new type(buffer, at, length);
    at += Math.ceil((type.BYTES_PER_ELEMENT * length) / 8) * 8;
  }
  return made;
}

/** Turns a column, in which 0 is "unknown", into numbers of functions. @param {Float64Array|Uint32Array} column @param {number} none */
export function namesIn(column, none) {
  for (let i = 0; i < column.length; i++) column[i] = column[i] ? column[i] - 1 : none;
}

/**
 * What all tiles have in common. The largest value of a column says which type its array has; task -1: there are no tasks.
 * @typedef {{grain: number, usual: number[], none: number, line: number, task: number, size: number, place: number, thread: number, depth: number}} Common
 */

/** Decodes a tile of calls. @param {Uint8Array<ArrayBuffer>} bytes @param {any} tile what the head says of it, and `from` @param {Common} common @param {ArrayBuffer} [room] */
export function decodeCalls(bytes, tile, common, room) {
  const { rows, widths, begins, starts, signed, from } = tile;
  const { grain, usual, none } = common;
  const made = arraysIn({
    start: [Float64Array, rows], dur: [Float64Array, rows], func: [smallType(none), rows], line: [smallType(common.line), rows],
    task: [smallType(common.task), common.task < 0 ? 0 : rows], kind: [Uint8Array, rows], flags: [Uint8Array, rows],
  }, room);
  const { start, dur, kind, flags } = made;
  const read = new Reader(bytes, widths);
  const gaps = read.keep(rows);
  const lengths = read.next(rows);
  const whose = read.whole(rows); // the function of each call, plus 1; 0: unknown
  const places = placesOf(whose, rows, none + 1);
  let next = 0;
  let last = 0; // when the call before ended
  for (let i = 0; i < rows; i++) {
    const place = places[i];
    if (begins[next] === from + i) last = starts[next++];
    else last += signed ? unzigzag(gaps[place]) : gaps[place];
    start[i] = last * grain;
    dur[i] = lengths[place] * grain;
    last += lengths[place];
    kind[i] = usual[whose[i]];
  }
  namesIn(whose, none);
  made.func.set(whose);
  if (widths[read.column]) {
    const kinds = read.whole(rows);
    for (let i = 0; i < rows; i++) if (kinds[places[i]]) kind[i] = kinds[places[i]] - 1;
  } else read.column++;
  if (widths[read.column]) {
    const sorted = read.whole(rows);
    for (let i = 0; i < rows; i++) flags[i] = sorted[places[i]];
  } else {
    flags.fill(0);
    read.column++;
  }
  read.into(made.line);
  if (common.task >= 0) read.into(made.task);
  return made;
}

/** Decodes a tile of blocks. @param {Uint8Array<ArrayBuffer>} bytes @param {any} tile what the head says of it, `from` and `first`: events and births before it @param {Common} common @param {ArrayBuffer} [room] */
export function decodeBlocks(bytes, tile, common, room) {
  const { rows, births, widths, start, from, first } = tile;
  const { grain, none } = common;
  const made = arraysIn({
    time: [Float64Array, rows], block: [Uint32Array, rows], birth: [Uint32Array, births], size: [smallType(common.size), births],
    holder: [smallType(none), births], place: [smallType(common.place), births], ownPlace: [smallType(common.place), births],
    thread: [smallType(common.thread), rows], depth: [smallType(common.depth), rows], born: [Uint8Array, rows],
  }, room);
  const { time, block, birth, born, depth } = made;
  const read = new Reader(bytes, widths);
  const steps = read.next(rows);
  const ref = read.whole(rows);
  // Steps of time are sorted by the kinds of the two events around them: the next step of each pair of kinds.
  const places = new Uint32Array(5);
  for (let i = 0, before = 0; i < rows; i++) {
    const birthHere = ref[i] === 0 ? 1 : 0;
    places[2 * birthHere + before + 1]++;
    before = birthHere;
  }
  for (let kinds = 0; kinds < 4; kinds++) places[kinds + 1] += places[kinds];
  let here = 0;
  let last = start;
  for (let i = 0, before = 0; i < rows; i++) {
    const back = ref[i];
    const birthHere = back === 0 ? 1 : 0;
    last += steps[places[2 * birthHere + before]++];
    time[i] = last * grain;
    before = birthHere;
    born[i] = birthHere;
    block[i] = first + here - back;
    if (birthHere) birth[here++] = from + i;
  }
  read.into(made.thread);
  const deeper = read.whole(rows); // than the event before
  for (let i = 0, now = 0; i < rows; i++) {
    const change = deeper[i];
    now += (change >>> 1) ^ -(change & 1);
    depth[i] = now;
  }
  read.into(made.size);
  const holder = read.whole(births);
  namesIn(holder, none);
  made.holder.set(holder);
  read.into(made.place);
  read.into(made.ownPlace);
  return made;
}

// ---- Workers -------------------------------------------------------------------------------------

/** The code of a worker: the first message has what all tiles have in common, each other one a tile. The functions of `WORK` are sent along with it. */
function serve() {
  /** @type {any} */
  let common = null;
  /** @type {Uint8Array<ArrayBuffer>|undefined} */
  let packed; // the memory of the section before: new memory for each would take longer
  const answer = async (/** @type {any} */ { text, tile, isCalls, room }) => {
    let made = null; // the page then finds the error itself
    try {
      packed = await gunzip(bytesOf(text), packed && packed.buffer);
      made = (isCalls ? decodeCalls : decodeBlocks)(packed, tile, common, room);
    } catch {
      packed = undefined;
    }
    self.postMessage(made, /** @type {any} */ (made ? [(made.kind || made.born).buffer] : []));
  };
  let before = Promise.resolve(); // one after the other: they share `packed`, and the page expects their order
  self.onmessage = ({ data }) => {
    if (common) before = before.then(() => answer(data));
    else common = data;
  };
}

/** What a worker needs besides. */
const WORK = [bytesOf, gunzip, Reader, unzigzag, placesOf, smallType, arraysIn, namesIn, decodeCalls, decodeBlocks];

/** A worker answers in the order in which it was asked. @typedef {{worker: Worker, asked: {id: string, text: string, tile: any, done: (made: any) => void}[]}} Helper */

/** The tiles of the page: workers decode them, if the browser allows workers. */
export class Tiles {
  /** @param {Common} common @param {(id: string) => any} tileOf gives what `decodeCalls` and `decodeBlocks` need to know of a tile */
  constructor(common, tileOf) {
    this.common = common;
    this.tileOf = tileOf;
    /** @type {Helper[]|null} */
    this.helpers = null;
    /** Tiles that workers decode, by id, until `get` is called for them. @type {Map<string, Promise<any>>} */
    this.prepared = new Map();
    /** Memory of tiles that the page has copied, for the next ones. @type {ArrayBuffer[]} */
    this.rooms = [];
  }

  /** Starts the workers. If the browser allows none, gives an empty list, and the page decodes all tiles itself. @returns {Helper[]} */
  start() {
    const parts = [`const FIRST = ${FIRST}; const LOW = ${LOW};`, ...WORK, `(${serve})();`];
    const made = /** @type {Helper[]} */ ([]);
    try {
      const url = URL.createObjectURL(new Blob(parts.map((part) => `${part}\n`), { type: "text/javascript" }));
      for (let n = 0; n < HELPERS; n++) {
        const helper = { worker: new Worker(url), asked: /** @type {Helper["asked"]} */ ([]) };
        helper.worker.onmessage = ({ data }) => {
          const next = helper.asked.shift();
          next?.done(data || this.decode(next.id, next.text, next.tile));
        };
        helper.worker.onerror = () => {
          made.length = 0;
          for (const { id, text, tile, done } of helper.asked.splice(0)) done(this.decode(id, text, tile));
        };
        helper.worker.postMessage(this.common);
        made.push(helper);
      }
    } catch {
      made.length = 0;
    }
    return made;
  }

  /** @param {string} id @param {string} text @param {any} tile */
  async decode(id, text, tile) {
    const bytes = await gunzip(bytesOf(text));
    return (id[0] === "c" ? decodeCalls : decodeBlocks)(bytes, tile, this.common, this.rooms.pop());
  }

  /** Has a worker decode a tile that will be needed soon. @param {string} id */
  prepare(id) {
    this.helpers ??= this.start();
    if (!this.helpers.length || this.prepared.has(id) || !document.getElementById(`data-${id}`)) return;
    const helper = this.helpers.reduce((a, b) => (b.asked.length < a.asked.length ? b : a));
    this.prepared.set(id, new Promise((done) => {
      const text = take(id);
      const tile = this.tileOf(id);
      const room = this.rooms.pop();
      helper.asked.push({ id, text, tile, done });
      helper.worker.postMessage({ text, tile, isCalls: id[0] === "c", room }, room ? [room] : []);
    }));
  }

  /** Gives a tile's arrays, which are valid until they are given back, and removes its element. @param {string} id */
  async get(id) {
    const here = this.prepared.get(id);
    this.prepared.delete(id);
    return here || this.decode(id, take(id), this.tileOf(id));
  }

  /** @param {any} made the arrays of a tile that were copied */
  giveBack(made) {
    this.rooms.push((made.kind || made.born).buffer);
  }
}
