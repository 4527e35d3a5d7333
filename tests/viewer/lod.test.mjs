import assert from "node:assert/strict";
import test from "node:test";

import { Pyramid, gallop, leavesFor, lowerBound, upperBound } from "./viewer/lod.js";

/** Numbers that are the same each time. */
function* random(seed) {
  for (let x = seed >>> 0; ; ) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    yield x / 2 ** 32;
  }
}

test("the pyramid gives the first of the largest, and the sum, of any range", () => {
  const numbers = random(7);
  const next = () => numbers.next().value;
  for (const count of [1, 15, 16, 17, 4095, 4096, 4097, 20000]) {
    const values = Float64Array.from({ length: count }, () => Math.floor(next() * 50));
    const pyramid = new Pyramid(values, new Float64Array(count));
    for (let at = 0; at < count; at += 4096) pyramid.build(at, Math.min(count, at + 4096));
    for (let k = 0; k < 200; k++) {
      const from = Math.floor(next() * count);
      const to = from + 1 + Math.floor(next() * (count - from));
      pyramid.query(from, to);
      const part = values.subarray(from, to);
      const most = part.reduce((a, b) => Math.max(a, b));
      assert.equal(pyramid.best, from + part.indexOf(most));
      assert.equal(pyramid.total, part.reduce((a, b) => a + b, 0));
    }
  }
});

test("bounds are those of a walk", () => {
  const numbers = random(3);
  const values = Float64Array.from({ length: 300 }, () => Math.floor(numbers.next().value * 60)).sort();
  for (let x = -1; x <= 61; x++) {
    for (const [from, to] of [[0, 300], [17, 220], [5, 5], [299, 300]]) {
      let low = from;
      while (low < to && values[low] < x) low++;
      let high = from;
      while (high < to && values[high] <= x) high++;
      assert.equal(lowerBound(values, x, from, to), low);
      assert.equal(gallop(values, x, from, to), low);
      assert.equal(upperBound(values, x, from, to), high);
    }
  }
});

test("leaps find the place, or the next node", () => {
  const numbers = random(5);
  const starts = Float64Array.from({ length: 9000 }, () => Math.floor(numbers.next().value * 4000)).sort();
  const pyramid = new Pyramid(new Float64Array(9000).fill(1), starts);
  for (let at = 0; at < 9000; at += 4096) pyramid.build(at, Math.min(9000, at + 4096));
  for (let k = 0; k < 3000; k++) {
    const from = Math.floor(numbers.next().value * 9000);
    const to = from + Math.floor(numbers.next().value * (9001 - from));
    const x = Math.floor(numbers.next().value * 4100) - 50;
    const exact = lowerBound(starts, x, from, to);
    assert.equal(pyramid.next(x, from, to), exact);
    for (const leaves of [1, 4, 16]) {
      const size = 16 * leaves;
      const place = pyramid.leap(x, from, to, leaves);
      assert.ok(place === to || place % size === 0);
      assert.ok(place >= exact && place - exact < size);
    }
  }
});

test("a pixel has four or more of the nodes that stand for it", () => {
  assert.deepEqual([0, 63, 64, 255, 256, 1024, 1e9].map(leavesFor), [0, 0, 1, 1, 4, 16, 256]);
});
