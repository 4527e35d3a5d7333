import assert from "node:assert/strict";
import test from "node:test";

import { Waiting } from "./viewer/waiting.js";

/** Tenures of threads, [thread, start, end], as the page has them. */
function made(threads, tenures, grain = 1) {
  const waiting = new Waiting(threads, [2], 4);
  const starts = tenures.map(([, start]) => start);
  waiting.fill(
    Float64Array.from(starts, (start, n) => start - (n ? starts[n - 1] : 0)),
    Float64Array.from(tenures, ([, start, end]) => end - start),
    Float64Array.from(tenures, ([thread]) => thread), grain);
  return waiting;
}

const TENURES = [[0, 10, 20], [1, 25, 40], [0, 40, 40], [2, 50, 90], [1, 95, 100]];

test("a thread waits while others have the lock", () => {
  const waiting = made(3, TENURES);
  for (let thread = 0; thread < 3; thread++) {
    for (let t0 = 0; t0 <= 110; t0 += 3) {
      for (let t1 = t0; t1 <= 110; t1 += 7) {
        const wanted = TENURES.reduce((sum, [of, start, end]) => sum + (of === thread ? 0 : Math.max(0, Math.min(t1, end) - Math.max(t0, start))), 0);
        assert.equal(waiting.between(thread, t0, t1), wanted, `${thread} ${t0} ${t1}`);
      }
    }
  }
});

test("the holder at a time, and nobody between tenures", () => {
  const waiting = made(3, TENURES);
  assert.deepEqual([5, 10, 19, 20, 24, 25, 60, 90, 97, 100].map((time) => waiting.at(time)), [-1, 0, 0, -1, -1, 1, 3, -1, 4, -1]);
});

test("columns are marked in which a thread waited half of the time", () => {
  const marks = new Uint8Array(10);
  made(3, TENURES).mark(0, 0, 10, marks);
  assert.deepEqual([...marks], [0, 0, 1, 1, 0, 1, 1, 1, 1, 1]);
});

test("one thread alone never waits, and neither does anyone without tenures", () => {
  const alone = made(2, [[1, 0, 50], [1, 60, 70]]);
  assert.equal(alone.shared, false);
  assert.equal(alone.between(0, 0, 100), 0);
  assert.equal(made(2, []).at(5), -1);
});

test("times are multiples of the grain", () => {
  const waiting = made(2, [[0, 1, 3], [1, 4, 6]], 32);
  assert.equal(waiting.between(0, 0, 1000), 64);
  assert.equal(waiting.start[1], 128);
});
