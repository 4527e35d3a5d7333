import assert from "node:assert/strict";
import test from "node:test";

import { FAR, KEYFRAME, Reader, decodeBlocks } from "./viewer/tiles.js";

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

test("events have their blocks and times, and those of a long keyframe are in full", () => {
  const count = 3 * KEYFRAME;
  const steps = [];
  const refs = [];
  const expected = [];
  let time = 1000;
  let births = 5; // of the tiles before
  for (let i = 0; i < count; i++) {
    const born = i % 3 !== 2;
    const step = i === 0 ? 0 : i === KEYFRAME + 7 ? FAR : i % 5;
    time += step;
    steps.push(step);
    refs.push(born ? 0 : 1 + (i % 2));
    expected.push([time * 2, born ? 2 * births + 1 : 2 * (births - refs[i])]);
    births += born ? 1 : 0;
  }
  const kindOf = (i) => (refs[i] ? 0 : 2) + (i && !refs[i - 1] ? 1 : 0);
  const order = [...steps.keys()].sort((a, b) => kindOf(a) - kindOf(b) || a - b);
  const kinds = [0, 1, 2, 3].map((kind) => order.filter((i) => kindOf(i) < kind).length);
  const made = births - 5;
  const zeros = Array(made).fill(0);
  const [bytes, widths] = written([
    { values: order.map((i) => steps[i]), width: 1, more: 3 }, { values: refs, width: 1, more: 0 },
    { values: refs.map((_, i) => (i ? 0 : 4)), width: 1, more: 0 }, // row 2
    ...[1, 3, 0, 0].map((value) => ({ values: zeros.map(() => value), width: 1, more: 0 })),
  ]);
  const tile = { rows: count, births: made, widths, start: 1000, first: 5, kinds };

  const found = decodeBlocks(bytes, tile, { grain: 2, none: 9, line: 1, task: -1, size: 255, place: 1, row: 3 });

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
  assert.deepEqual([...new Set(found.holder)], [2]);
});
