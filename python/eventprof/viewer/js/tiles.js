// Tiles: decodes columns of calls and of blocks from planes of bytes, beside the page if it may have workers.

import { FIRST, LOW, bytesOf, gunzip, take, joinBits } from "./unpack.js";

const HELPERS = 2; // workers
export const LOW_BITS = 4; // of times, where they are apart from the rest
// Loops over all rows of a tile call a function for so many. A function that is called often is compiled as a whole;
// one that loops for long is compiled in the midst of its loop, and once more for its next call.
export const BLOCK = 2048;
export const KEYFRAME = 128; // events of blocks of which the first has its time in full
export const FAR = 2 ** 32 - 1; // of a keyframe that is at least so many ns long, the times are stored in full

/**
 * Joins planes of bytes to numbers. Small functions on arrays of one type each are compiled once, and well.
 * @param {Float64Array} out
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} width
 */
export function joinFloats(out, bytes, at, width) {
  const rows = out.length;
  if (width === 0) out.fill(0);
  else out.set(bytes.subarray(at, at + rows));
  for (let plane = 1, unit = 256; plane < width; plane++, unit *= 256) addFloats(out, bytes, at + plane * rows, unit);
}

/**
 * Joins planes to numbers whose low bits are apart: byte i of `low` has those of number i, and above them those of
 * number i + half of all.
 * @param {Float64Array} out
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} width
 * @param {Uint8Array} low
 */
export function joinLow(out, bytes, at, width, low) {
  const rows = out.length;
  const half = low.length;
  const mask = 2 ** LOW_BITS - 1;
  const first = width ? bytes.subarray(at, at + rows) : new Uint8Array(rows);
  for (let from = 0; from < rows - half; from += BLOCK)
    splitLow(out, first, low, from, Math.min(rows - half, from + BLOCK));
  if (rows % 2) out[half - 1] = (first[half - 1] << LOW_BITS) | (low[half - 1] & mask);
  for (let plane = 1, unit = 2 ** (8 + LOW_BITS); plane < width; plane++, unit *= 256)
    addFloats(out, bytes, at + plane * rows, unit);
}

/**
 * Joins pairs of numbers whose low bits are in one byte.
 * @param {Float64Array} out
 * @param {Uint8Array} first plane
 * @param {Uint8Array} low
 * @param {number} from
 * @param {number} to
 */
export function splitLow(out, first, low, from, to) {
  const mask = 2 ** LOW_BITS - 1;
  for (let i = from, k = from + low.length; i < to; i++, k++) {
    const two = low[i];
    out[i] = (first[i] << LOW_BITS) | (two & mask);
    out[k] = (first[k] << LOW_BITS) | (two >> LOW_BITS);
  }
}

/**
 * Returns the words of 32 bits in a plane: memory has them at multiples of 4.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} rows
 */
function wordsIn({ buffer, byteOffset }, at, rows) {
  const from = Math.ceil((byteOffset + at) / 4) * 4;
  const count = Math.floor((byteOffset + at + rows - from) / 4);
  return count > 0 ? new Uint32Array(buffer, from, count) : new Uint32Array(0);
}

/**
 * Adds a plane. Most bytes of high planes are 0, so four at once are looked at.
 * @param {Float64Array} out
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} unit
 */
export function addFloats(out, bytes, at, unit) {
  const rows = out.length;
  const words = wordsIn(bytes, at, rows);
  const before = words.length ? words.byteOffset - bytes.byteOffset - at : rows;
  for (let i = 0; i < before; i++) out[i] += bytes[at + i] * unit;
  for (let from = 0; from < words.length; from += BLOCK)
    addWords(out, words, before, unit, from, Math.min(words.length, from + BLOCK));
  for (let i = before + 4 * words.length; i < rows; i++) out[i] += bytes[at + i] * unit;
}

/**
 * @param {Float64Array} out
 * @param {Uint32Array} words
 * @param {number} before rows before the first word
 * @param {number} unit
 * @param {number} from
 * @param {number} to
 */
export function addWords(out, words, before, unit, from, to) {
  for (let k = from, i = before + 4 * from; k < to; k++, i += 4) {
    const word = words[k];
    if (word === 0) continue;
    out[i] += (word & 255) * unit;
    out[i + 1] += ((word >> 8) & 255) * unit;
    out[i + 2] += ((word >> 16) & 255) * unit;
    out[i + 3] += (word >>> 24) * unit;
  }
}

/**
 * As `joinFloats`, for numbers of less than 2 ** 32.
 * @param {Uint32Array} out
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} width
 */
export function joinWhole(out, bytes, at, width) {
  const rows = out.length;
  if (width === 0) out.fill(0);
  else out.set(bytes.subarray(at, at + rows));
  for (let plane = 1; plane < width; plane++) addWhole(out, bytes, at + plane * rows, 8 * plane);
}

/** As `addFloats`. @param {Uint32Array} out @param {Uint8Array} bytes @param {number} at @param {number} shift */
export function addWhole(out, bytes, at, shift) {
  const rows = out.length;
  const words = wordsIn(bytes, at, rows);
  const before = words.length ? words.byteOffset - bytes.byteOffset - at : rows;
  for (let i = 0; i < before; i++) out[i] |= bytes[at + i] << shift;
  for (let from = 0; from < words.length; from += BLOCK)
    addWholeWords(out, words, before, shift, from, Math.min(words.length, from + BLOCK));
  for (let i = before + 4 * words.length; i < rows; i++) out[i] |= bytes[at + i] << shift;
}

/**
 * @param {Uint32Array} out
 * @param {Uint32Array} words
 * @param {number} before rows before the first word
 * @param {number} shift
 * @param {number} from
 * @param {number} to
 */
export function addWholeWords(out, words, before, shift, from, to) {
  for (let k = from, i = before + 4 * from; k < to; k++, i += 4) {
    const word = words[k];
    if (word === 0) continue;
    out[i] |= (word & 255) << shift;
    out[i + 1] |= ((word >> 8) & 255) << shift;
    out[i + 2] |= ((word >> 16) & 255) << shift;
    out[i + 3] |= (word >>> 24) << shift;
  }
}

/** Reads columns one after the other; planes.h says what their bytes mean. */
export class Reader {
  /**
   * Each column is decoded into one of these first: loops that always see the same type of array are several times as
   * fast.
   */
  static scratch = new Float64Array(0);
  static kept = new Float64Array(0);
  static scratch32 = new Uint32Array(0); // of columns that are surely less than 2 ** 32

  /**
   * @param {Uint8Array<ArrayBuffer>} bytes
   * @param {(number|number[])[]} forms the `widths` of the head
   * @param {number} [at] where the first column is
   */
  constructor(bytes, forms, at = 0) {
    this.bytes = bytes;
    this.forms = forms;
    this.column = 0;
    this.at = at;
  }

  /** Returns the number of the next column's planes of all rows. */
  width() {
    const form = this.forms[this.column];
    return typeof form === "number" ? form : form[0];
  }

  /**
   * Returns the rows that have more bytes than the planes of the next column, each followed by what the bytes add; goes
   * on to the column after.
   * @param {number} rows
   * @returns {number[]}
   */
  more(rows) {
    const form = this.forms[this.column];
    const { bytes } = this;
    const found = [];
    let at = this.at + this.width() * rows;
    if (typeof form !== "number") {
      const [width, few, more] = form;
      for (let k = 0, row = 0; k < few; k++) {
        row += bytes[at + k] | (bytes[at + few + k] << 8) | (bytes[at + 2 * few + k] << 16);
        let value = 0;
        for (let byte = 0; byte < more; byte++) value += bytes[at + (3 + byte) * few + k] * 256 ** (width + byte);
        found.push(row, value);
      }
      at += (3 + more) * few;
    }
    this.at = at;
    this.column++;
    return found;
  }

  /**
   * Decodes the next column; the result is valid until the next call.
   * @param {number} rows
   * @param {Uint8Array} [low] its low bits, if they are apart
   */
  next(rows, low) {
    if (Reader.scratch.length < rows) Reader.scratch = new Float64Array(rows);
    const out = Reader.scratch.subarray(0, rows);
    if (low) joinLow(out, this.bytes, this.at, this.width(), low);
    else joinFloats(out, this.bytes, this.at, this.width());
    const more = this.more(rows);
    const unit = low ? 2 ** LOW_BITS : 1;
    for (let k = 0; k < more.length; k += 2) out[more[k]] += more[k + 1] * unit;
    return out;
  }

  /**
   * Like `next`, but the result is valid until the next call of `keep`. New memory for each column would take longer.
   * @param {number} rows
   * @param {Uint8Array} [low]
   */
  keep(rows, low) {
    [Reader.scratch, Reader.kept] = [Reader.kept, Reader.scratch];
    const out = this.next(rows, low);
    [Reader.scratch, Reader.kept] = [Reader.kept, Reader.scratch];
    return out;
  }

  /**
   * Decodes the next column, of less than 2 ** 32, to whole numbers: these are faster. The result is valid until the
   * next call.
   * @param {number} rows
   */
  whole(rows) {
    if (Reader.scratch32.length < rows) Reader.scratch32 = new Uint32Array(rows);
    const out = Reader.scratch32.subarray(0, rows);
    joinWhole(out, this.bytes, this.at, this.width());
    const more = this.more(rows);
    for (let k = 0; k < more.length; k += 2) out[more[k]] += more[k + 1];
    return out;
  }

  /** Like `whole`; a column of bytes is not copied. @param {number} rows */
  narrow(rows) {
    if (this.forms[this.column] !== 1) return this.whole(rows);
    this.column++;
    return this.bytes.subarray(this.at, (this.at += rows));
  }

  /**
   * Returns the next column, which has a bit of each row, the first in the lowest bit of a byte.
   * @param {number} rows
   */
  bits(rows) {
    this.column++;
    return this.bytes.subarray(this.at, (this.at += Math.ceil(rows / 8)));
  }

  /** Puts the next column into `out`. @param {Small} out */
  into(out) {
    const form = this.forms[this.column];
    if (form === 1)
      out.set(this.narrow(out.length)); // bytes need no scratch
    else
      out.set(
        (typeof form === "number" ? form : form[0] + form[2]) > 4 ? this.next(out.length) : this.whole(out.length),
      );
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

/** Returns the signed number that a zigzag number stands for. @param {number} zigzag */
export function unzigzag(zigzag) {
  if (zigzag < 2 ** 31) return (zigzag >>> 1) ^ -(zigzag & 1);
  return zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
}

/**
 * Returns for each key where its first row is in a column that is sorted by keys.
 * @param {ArrayLike<number>} keys
 * @param {number} rows
 * @param {number} most all keys are less
 */
export function firstOf(keys, rows, most) {
  const first = new Uint32Array(most + 1);
  for (let from = 0; from < rows; from += BLOCK) countKeys(first, keys, from, Math.min(rows, from + BLOCK));
  for (let key = 0; key < most; key++) first[key + 1] += first[key];
  return first;
}

/** @param {Uint32Array} counts @param {ArrayLike<number>} keys @param {number} from @param {number} to */
export function countKeys(counts, keys, from, to) {
  for (let i = from; i < to; i++) counts[keys[i] + 1]++;
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

/**
 * Makes arrays that share one piece of memory, `room` if that is large enough.
 * @param {Record<string, [any, number]>} wanted types and lengths
 * @param {ArrayBuffer} [room]
 * @returns {any}
 */
export function arraysIn(wanted, room) {
  const bytes = Object.values(wanted).reduce(
    (sum, [type, length]) => sum + Math.ceil((type.BYTES_PER_ELEMENT * length) / 8) * 8,
    0,
  );
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

/**
 * Turns a column, in which 0 is "unknown", into numbers of functions.
 * @param {ArrayLike<number>} column
 * @param {number} none
 * @param {Small} out
 */
export function namesIn(column, none, out) {
  for (let i = 0; i < out.length; i++) {
    const name = column[i];
    out[i] = name ? name - 1 : none;
  }
}

/**
 * What all tiles have in common. The largest value of a column says which type its array has; task -1: there are no
 * tasks.
 * @typedef {{grain: number, none: number, line: number, task: number, size: number, charge: number, row: number}}
 *   Common
 */

/**
 * Returns a reader of a tile's columns, and the low bits of each column of times that has them apart.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {any} tile
 * @returns {[Reader, (Uint8Array|undefined)[]]}
 */
function readerOf(bytes, { rows, low, widths }) {
  let at = 0;
  const found = low.map((/** @type {number} */ bits) =>
    bits ? bytes.subarray(at, (at += (rows + 1) >> 1)) : undefined,
  );
  return [new Reader(bytes, widths, at), found];
}

/**
 * Decodes a tile of calls. Kinds and flags that are 0 but for a few calls are lists of calls and values: `rareKinds`,
 * `rareFlags`.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {any} tile what the head says of it, and `from`
 * @param {Common} common
 * @param {ArrayBuffer} [room]
 */
export function decodeCalls(bytes, tile, common, room) {
  const { rows, widths } = tile;
  const { none } = common;
  const isRare = (/** @type {number|number[]} */ form) => form === 0 || (typeof form !== "number" && form[0] === 0);
  const made = arraysIn(
    {
      start: [Float64Array, rows],
      dur: [Float64Array, rows],
      func: [smallType(none), rows],
      line: [smallType(common.line), rows],
      task: [smallType(common.task), common.task < 0 ? 0 : rows],
      kind: [Uint8Array, isRare(widths[3]) ? 0 : rows],
      flags: [Uint8Array, isRare(widths[4]) ? 0 : rows],
    },
    room,
  );
  const [read, [lowGaps, lowLengths]] = readerOf(bytes, tile);
  const gaps = read.keep(rows, lowGaps);
  const lengths = read.next(rows, lowLengths);
  const whose = read.whole(rows); // the function of each call
  if (tile.signed) unzigzagAll(gaps);
  timesOfCalls(gaps, lengths, whose, firstOf(whose, rows, none + 1), tile, common.grain, made.start, made.dur);
  made.func.set(whose);
  made.rareKinds = made.kind.length ? read.into(made.kind) : read.more(rows);
  made.rareFlags = made.flags.length ? read.into(made.flags) : read.more(rows);
  read.into(made.line);
  if (common.task >= 0) read.into(made.task);
  return made;
}

/** @param {Float64Array} column */
export function unzigzagAll(column) {
  for (let i = 0; i < column.length; i++) column[i] = unzigzag(column[i]);
}

/**
 * Sums up the times of calls.
 * @param {Float64Array} gaps since the end of the call before
 * @param {Float64Array} lengths both sorted by function
 * @param {Uint32Array} whose the functions
 * @param {Uint32Array} next where the next call of each function is in both
 * @param {any} tile
 * @param {number} grain
 * @param {Float64Array} start
 * @param {Float64Array} dur
 */
export function timesOfCalls(gaps, lengths, whose, next, { rows, begins, starts, from }, grain, start, dur) {
  for (let part = 0, i = 0; part < begins.length; part++) {
    let time = starts[part]; // when the call begins
    const end = part + 1 < begins.length ? begins[part + 1] - from : rows;
    gaps[next[whose[i]]] = 0; // its start is known
    for (; i < end; i += BLOCK)
      time = timesOfSome(gaps, lengths, whose, next, time, i, Math.min(end, i + BLOCK), grain, start, dur);
    i = end;
  }
}

/**
 * Returns when the last call ends.
 * @param {Float64Array} gaps
 * @param {Float64Array} lengths
 * @param {Uint32Array} whose
 * @param {Uint32Array} next
 * @param {number} time when the call before ended
 * @param {number} from
 * @param {number} to
 * @param {number} grain
 * @param {Float64Array} start
 * @param {Float64Array} dur
 */
export function timesOfSome(gaps, lengths, whose, next, time, from, to, grain, start, dur) {
  for (let i = from; i < to; i++) {
    const place = next[whose[i]]++;
    const length = lengths[place];
    time += gaps[place];
    start[i] = time * grain;
    dur[i] = length * grain;
    time += length;
  }
  return time;
}

/**
 * Decodes a tile of blocks. An event is twice the number of its block, plus 1 if the block is born. Its time is a
 * distance from the first event of its keyframe; `far` has all times of a keyframe in which a distance is FAR.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {any} tile what the head says of it, and `first`: births before it
 * @param {Common} common
 * @param {ArrayBuffer} [room]
 */
export function decodeBlocks(bytes, tile, common, room) {
  const { rows, births } = tile;
  const { grain } = common;
  const made = arraysIn(
    {
      base: [Float64Array, Math.ceil(rows / KEYFRAME)],
      time: [Uint32Array, rows],
      event: [Uint32Array, rows],
      size: [smallType(common.size), births],
      row: [smallType(common.row), rows],
      charge: [smallType(common.charge), births],
    },
    room,
  );
  const [read, [low]] = readerOf(bytes, tile);
  made.far = sumUpTimes(read.next(rows, low), tile.start, grain, made.base, made.time);
  numberEvents(read.bits(rows), read.whole(rows - births), tile.first, made.event);
  sumUpRows(read.narrow(rows), made.row);
  read.into(made.size);
  read.into(made.charge);
  return made;
}

/**
 * Sums up the steps of time. Gives the keyframes that are too long, with their times.
 * @param {Float64Array} steps
 * @param {number} start the time of the first event
 * @param {number} grain
 * @param {Float64Array} base
 * @param {Uint32Array} time
 */
export function sumUpTimes(steps, start, grain, base, time) {
  const far = /** @type {[number, Float64Array][]} */ ([]);
  const rows = time.length;
  let now = start;
  for (let i = 0, frame = 0; i < rows; frame++) {
    const end = Math.min(rows, i + KEYFRAME);
    const begin = now + steps[i];
    steps[i] = 0;
    const length = sumUpFrame(steps, i, end, grain, time);
    base[frame] = begin * grain;
    now = begin + length;
    if (length * grain >= FAR) {
      const times = new Float64Array(KEYFRAME);
      for (let k = i, each = begin; k < end; k++) times[k - i] = (each += steps[k]) * grain;
      time.fill(FAR, i, end);
      far.push([frame, times]);
    }
    i = end;
  }
  return far;
}

/**
 * Returns the length of a keyframe.
 * @param {Float64Array} steps
 * @param {number} from
 * @param {number} to
 * @param {number} grain
 * @param {Uint32Array} time
 */
export function sumUpFrame(steps, from, to, grain, time) {
  let sum = 0;
  for (let i = from; i < to; i++) time[i] = (sum += steps[i]) * grain;
  return sum;
}

/**
 * Returns each event the number of its block. Which event is a birth cannot be foreseen, so branches on it would take
 * longer than all else here.
 * @param {Uint8Array} born bits
 * @param {Uint32Array} back of each death: how many births ago the block was born
 * @param {number} first births before
 * @param {Uint32Array} event
 */
export function numberEvents(born, back, first, event) {
  for (let from = 0, births = first; from < event.length; from += BLOCK) {
    births = numberSome(born, back, births, from - (births - first), from, Math.min(event.length, from + BLOCK), event);
  }
}

/**
 * Returns the births before `to`.
 * @param {Uint8Array} born
 * @param {Uint32Array} back
 * @param {number} births before
 * @param {number} deaths before
 * @param {number} from
 * @param {number} to
 * @param {Uint32Array} event
 */
export function numberSome(born, back, births, deaths, from, to, event) {
  const last = back.length - 1;
  for (let i = from; i < to; i++) {
    const birth = (born[i >> 3] >> (i & 7)) & 1;
    event[i] = ((births - (back[Math.min(deaths, last)] & (birth - 1))) << 1) | birth;
    births = (births + birth) | 0;
    deaths = (deaths + 1 - birth) | 0;
  }
  return births;
}

/** @param {Uint8Array|Uint32Array} changes zigzag numbers: the difference to the row before @param {Small} rows */
export function sumUpRows(changes, rows) {
  for (let from = 0, now = 0; from < rows.length; from += BLOCK)
    now = sumUpSome(changes, now, from, Math.min(rows.length, from + BLOCK), rows);
}

/**
 * Returns the row before `to`.
 * @param {Uint8Array|Uint32Array} changes
 * @param {number} now the row before
 * @param {number} from
 * @param {number} to
 * @param {Small} rows
 */
export function sumUpSome(changes, now, from, to, rows) {
  for (let i = from; i < to; i++) {
    const change = changes[i];
    now += (change >>> 1) ^ -(change & 1);
    rows[i] = now;
  }
  return now;
}

// ---- Workers -------------------------------------------------------------------------------------

/**
 * The code of a worker: the first message has what all tiles have in common, each other one a tile. The functions of
 * `WORK` are sent along with it.
 */
function serve() {
  /** @type {any} */
  let common = null;
  /** @type {Uint8Array<ArrayBuffer>|undefined} */
  let packed; // this and the next: the memory of the section before; new memory for each would take longer
  /** @type {Uint8Array<ArrayBuffer>|undefined} */
  let bytes;
  const answer = async (/** @type {any} */ { text, tile, isCalls, room }) => {
    let made = null; // the page then finds the error itself
    try {
      packed = bytesOf(text, packed && packed.buffer);
      bytes = await gunzip(packed, bytes && bytes.buffer);
      made = (isCalls ? decodeCalls : decodeBlocks)(bytes, tile, common, room);
    } catch {
      packed = bytes = undefined;
    }
    self.postMessage(made, /** @type {any} */ (made ? [made.func ? made.func.buffer : made.base.buffer] : []));
  };
  let before = Promise.resolve(); // one after the other: they share `packed`, and the page expects their order
  self.onmessage = ({ data }) => {
    if (common) before = before.then(() => answer(data));
    else common = data;
  };
}

/** What a worker needs besides. */
const WORK = [
  bytesOf,
  joinBits,
  gunzip,
  joinFloats,
  joinLow,
  splitLow,
  wordsIn,
  addFloats,
  addWords,
  joinWhole,
  addWhole,
  addWholeWords,
  Reader,
  unzigzag,
  unzigzagAll,
  readerOf,
  firstOf,
  countKeys,
  smallType,
  arraysIn,
  namesIn,
  decodeCalls,
  timesOfCalls,
  timesOfSome,
  decodeBlocks,
  sumUpTimes,
  sumUpFrame,
  numberEvents,
  numberSome,
  sumUpRows,
  sumUpSome,
];

/**
 * A worker answers in the order in which it was asked.
 * @typedef {{worker: Worker, asked: {id: string, text: string, tile: any, done: (made: any) => void}[]}} Helper
 */

/** The tiles of the page: workers decode them, if the browser allows workers. */
export class Tiles {
  /**
   * @param {Common} common
   * @param {(id: string) => any} tileOf gives what `decodeCalls` and `decodeBlocks` need to know of a tile
   */
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

  /**
   * Starts the workers. If the browser allows none, gives an empty list, and the page decodes all tiles itself.
   * @returns {Helper[]}
   */
  start() {
    const parts = [
      `const FIRST = ${FIRST}; const LOW = ${LOW}; const LOW_BITS = ${LOW_BITS}; const BLOCK = ${BLOCK}; const KEYFRAME = ${KEYFRAME}; const FAR = ${FAR};`,
      ...WORK,
      `(${serve})();`,
    ];
    const made = /** @type {Helper[]} */ ([]);
    try {
      const url = URL.createObjectURL(
        new Blob(
          parts.map((part) => `${part}\n`),
          { type: "text/javascript" },
        ),
      );
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

  /** Whether a tile can be decoded, or was: the browser has read its section. @param {string} id */
  here(id) {
    if (document.readyState !== "loading" || this.prepared.has(id)) return true;
    return !!document.getElementById(`data-${id}`)?.nextElementSibling; // the last section may be read in part
  }

  /** Has a worker decode a tile that will be needed soon. @param {string} id */
  prepare(id) {
    if (this.prepared.has(id) || !this.here(id) || !document.getElementById(`data-${id}`)) return;
    this.helpers ??= this.start();
    if (!this.helpers.length) return;
    const helper = this.helpers.reduce((a, b) => (b.asked.length < a.asked.length ? b : a));
    this.prepared.set(
      id,
      new Promise((done) => {
        const text = take(id);
        const tile = this.tileOf(id);
        const room = this.rooms.pop();
        helper.asked.push({ id, text, tile, done });
        helper.worker.postMessage({ text, tile, isCalls: id[0] === "c", room }, room ? [room] : []);
      }),
    );
  }

  /** Returns a tile's arrays, which are valid until they are given back, and removes its element. @param {string} id */
  async get(id) {
    const here = this.prepared.get(id);
    this.prepared.delete(id);
    return here || this.decode(id, take(id), this.tileOf(id));
  }

  /** Ends the workers and gives their memory back, after the last tile. */
  end() {
    for (const { worker } of this.helpers || []) worker.terminate();
    this.helpers = [];
    this.rooms = [];
  }

  /** @param {any} made the arrays of a tile that were copied */
  giveBack(made) {
    this.rooms.push((made.func || made.base).buffer);
  }
}
