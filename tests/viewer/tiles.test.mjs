import assert from "node:assert/strict";
import test from "node:test";

import { BLOCK, FAR, KEYFRAME, Reader, decodeBlocks } from "./viewer/tiles.js";

/** Writes columns as planes.h says: all rows have `width` planes, those of a value that needs more bytes are listed. */
function written(columns) {
  const bytes = [];
  const forms = [];
  const put = (values, from, planes) => {
    for (let plane = from; plane < from + planes; plane++) for (const value of values) bytes.push(Math.floor(value / 256 ** plane) % 256);
  };
  for (const { values, width, more } of columns) {
    put(values, 0, width);
    const rows = [...values.keys()].filter((row) => values[row] >= 256 ** width);
    if (more) {
      put(rows.map((row, k) => row - (k ? rows[k - 1] : 0)), 0, 3);
      put(rows.map((row) => values[row]), width, more);
    }
    forms.push(more ? [width, rows.length, more] : width);
  }
  return [Uint8Array.from(bytes), forms];
}

test("a column has its values, whichever way its planes are read", () => {
  const columns = [
    { values: [1, 2, 3, 0], width: 1, more: 0 },
    { values: [0, 0, 0, 0], width: 0, more: 0 },
    { values: [7, 300, 65535, 2 ** 24 + 5], width: 2, more: 2 },
    { values: [2 ** 40 + 1, 1, 2 ** 48, 3], width: 1, more: 6 },
    { values: [0, 0, 9, 0], width: 0, more: 1 },
    { values: [2 ** 32 - 1, 5, 0, 1], width: 4, more: 0 },
    { values: [200, 0, 255, 1000], width: 1, more: 1 },
  ];
  const [bytes, forms] = written(columns);
  const small = (values) => Math.max(...values) < 2 ** 32;
  for (const read of [(r) => r.next(4), (r) => r.keep(4), (r, v) => (small(v) ? r.whole(4) : r.next(4)), (r, v) => (small(v) ? r.narrow(4) : r.next(4))]) {
    const reader = new Reader(bytes, forms);
    for (const { values } of columns) assert.deepEqual([...read(reader, values)], values);
    assert.equal(reader.at, bytes.length);
  }
  const reader = new Reader(bytes, forms);
  for (const { values } of columns) {
    const out = small(values) ? new Uint32Array(4) : new Float64Array(4);
    reader.into(out);
    assert.deepEqual([...out], values);
  }
  const last = new Reader(bytes, forms);
  for (let k = 0; k < 4; k++) last.next(4);
  assert.deepEqual(last.more(4), [2, 9]);
});

test("planes behind the first are added wherever they begin in memory", () => {
  const values = Array.from({ length: 2 * BLOCK * 4 + 3 }, (_, i) => (i % 11 ? i % 200 : i * 300 + 2 ** 17));
  for (const rows of [1, 2, 3, 4, 7, 8, 64, values.length]) {
    for (const before of [0, 1, 2, 3]) {
      const given = [{ values: Array(before).fill(0), width: 1, more: 0 }, { values: values.slice(-rows), width: 4, more: 0 }];
      const [bytes, forms] = written(given);
      for (const read of [(r) => r.next(rows), (r) => r.whole(rows)]) {
        const reader = new Reader(bytes, forms);
        reader.next(before);
        assert.deepEqual([...read(reader)], given[1].values);
      }
    }
  }
});

test("low bits that are apart are below the rest", () => {
  const all = Array.from({ length: BLOCK * 2 + 5 }, (_, i) => (i === 9 ? 2 ** 45 + 7 : (i * 7919) % 70000));
  for (const values of [[37], [16, 300], [5, 6, 7], all]) {
    for (const width of [0, 1, 2]) {
      const half = (values.length + 1) >> 1;
      const low = Uint8Array.from({ length: half }, (_, i) => (values[i] % 16) + 16 * ((values[i + half] || 0) % 16));
      const [bytes, forms] = written([{ values: values.map((value) => Math.floor(value / 16)), width, more: 6 - width }]);
      assert.deepEqual([...new Reader(bytes, forms).next(values.length, low)], values);
    }
  }
});

test("events have their blocks and times, and those of a long keyframe are in full", () => {
  const count = 3 * BLOCK + KEYFRAME + 1;
  const steps = [];
  const born = [];
  const back = [];
  const expected = [];
  let time = 1000;
  let births = 5; // of the tiles before
  for (let i = 0; i < count; i++) {
    const birth = i % 3 !== 2 || i > count - 9; // no death is behind the last births
    const step = i === 0 ? 0 : i === KEYFRAME + 7 ? FAR : i % 5;
    time += step;
    steps.push(step);
    born.push(birth);
    if (!birth) back.push(1 + (i % 2));
    expected.push([time * 2, birth ? 2 * births + 1 : 2 * (births - back[back.length - 1])]);
    births += birth ? 1 : 0;
  }
  const made = births - 5;
  const bits = Array.from({ length: (count + 7) >> 3 }, (_, byte) => [0, 1, 2, 3, 4, 5, 6, 7].reduce((sum, bit) => sum + (born[8 * byte + bit] ? 2 ** bit : 0), 0));
  const [bytes, widths] = written([
    { values: steps, width: 1, more: 3 }, { values: bits, width: 1, more: 0 }, { values: back, width: 1, more: 0 },
    { values: steps.map((_, i) => (i ? 0 : 4)), width: 1, more: 0 }, // row 2
    ...[1, 3].map((value) => ({ values: Array(made).fill(value), width: 1, more: 0 })),
  ]);
  const tile = { rows: count, births: made, widths, low: [0, 0], start: 1000, first: 5 };

  const found = decodeBlocks(bytes, tile, { grain: 2, none: 9, line: 1, task: -1, size: 255, charge: 4, row: 3 });

  assert.deepEqual(found.far.map(([frame]) => frame), [1]);
  const [[, times]] = found.far;
  for (const [i, [when, event]] of expected.entries()) {
    const frame = Math.floor(i / KEYFRAME);
    assert.equal(found.time[i] === FAR ? times[i % KEYFRAME] : found.base[frame] + found.time[i], when, `event ${i}`);
    assert.equal(found.time[i] === FAR, frame === 1);
    assert.equal(found.event[i], event);
    assert.equal(found.row[i], 2);
  }
  assert.deepEqual([...new Set(found.size)], [1]);
  assert.deepEqual([...new Set(found.charge)], [3]);
});
