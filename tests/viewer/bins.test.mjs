import assert from "node:assert/strict";
import test from "node:test";

import { Bins, Sweep } from "./viewer/bins.js";

/** Numbers that are the same each time. */
function random(seed) {
  let x = seed >>> 0;
  return () => (x = (Math.imul(x, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

/** A row of calls that do not overlap: most are short, some are long, and there are holes. */
function row(count, next, before) {
  const start = new Float64Array(before + count);
  const dur = new Float64Array(before + count);
  const func = new Uint16Array(before + count);
  for (let i = before, time = 1000; i < before + count; i++) {
    time += Math.floor(next() * (next() < 0.001 ? 400000 : 30));
    start[i] = time;
    dur[i] = Math.floor(next() * (next() < 0.002 ? 60000 : 40));
    func[i] = Math.floor(next() * 500);
    time += dur[i];
  }
  return { start, dur, func };
}

class Noted {
  constructor(v0, v1, width) {
    this.each = (v1 - v0) / width;
    this.width = width;
    this.look = { hits: new Uint8Array(500) }; // a pen that searches is told which calls are in a pixel
    this.calls = [];
    this.pixels = [];
  }

  call(i) {
    this.calls.push(i);
  }

  pixel(x, best, func, total, from, to) {
    this.pixels.push({ x, best, func, total, from, to });
  }
}

test("each call of a pixel or more is drawn once, and all others are in the pixels", () => {
  const next = random(11);
  for (const count of [4096, 5000, 70000]) {
    const data = row(count, next, 17);
    const { start, dur, func } = data;
    const bins = new Bins(data, 17, 17 + count);
    const end = start[16 + count] + dur[16 + count];
    for (const [v0, v1] of [[0, end], [end * 0.2, end * 0.9], [-end, 2 * end], [end * 0.5, end * 0.501]]) {
      const pen = new Noted(v0, v1, 700);
      const level = bins.levelFor(pen.each);
      if (level < 0) continue;
      new Sweep(bins, data, v0, pen).draw(level);
      const inView = [];
      for (let i = 17; i < 17 + count; i++) if (start[i] < v1 && start[i] + dur[i] > v0) inView.push(i);
      const long = inView.filter((i) => dur[i] >= pen.each);
      assert.deepEqual(pen.calls.filter((i) => start[i] < v1), long);
      const short = inView.filter((i) => dur[i] < pen.each);
      const sum = short.reduce((all, i) => all + dur[i], 0);
      const drawn = pen.pixels.reduce((all, { total }) => all + total, 0);
      assert.ok(Math.abs(sum - drawn) <= pen.each + sum / 1e5, `${drawn} of ${sum}`); // those at the edges of the view
      for (const { x, best, func: whose, from, to } of pen.pixels) {
        assert.equal(whose, func[best]);
        assert.ok(best >= from && best < to && dur[best] < pen.each);
        const place = (start[best] - v0) / pen.each;
        assert.ok(place > x - 0.5 && place < x + 1.5, `${place} in pixel ${x}`);
      }
      // A short call that is alone does not vanish.
      const shown = new Set(pen.pixels.map(({ x }) => x));
      for (const i of short) {
        const place = Math.floor((start[i] - v0) / pen.each);
        assert.ok([-1, 0, 1].some((by) => shown.has(Math.max(0, place + by))), `call ${i}`);
      }
    }
  }
});

test("a view that a bin is too wide for has no level", () => {
  const data = row(4096, random(2), 0);
  const bins = new Bins(data, 0, 4096);
  assert.equal(bins.levelFor(bins.width * 3.9), -1);
  assert.equal(bins.levelFor(bins.width * 4), 0);
  assert.equal(bins.levelFor(bins.width * 8), 1);
});
