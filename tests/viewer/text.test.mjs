import assert from "node:assert/strict";
import test from "node:test";

import { fromFragment, state, toFragment } from "./viewer/state.js";
import { clean, linesOf, roundStep, showBytes, showCount, showTick, showTime } from "./viewer/text.js";

test("numbers have units, and as many digits as are worth reading", () => {
  assert.deepEqual([0, 7, 1234, 56789, 12e6, 3.5e9, -2e6].map(showTime), ["0 ns", "7 ns", "1.23 us", "56.8 us", "12.0 ms", "3.50 s", "-2.00 ms"]);
  assert.deepEqual([0, 1023, 1024, 1536 * 1024, 2 ** 31].map(showBytes), ["0 B", "1.00 KiB", "1.00 KiB", "1.50 MiB", "2.00 GiB"]);
  assert.equal(showCount(1234567), "1,234,567");
  assert.equal(showTick(1_500_000, 500_000), "1.5 ms");
  for (const span of [1, 37, 1e3, 123456, 2 ** 53]) {
    const step = roundStep(span, 10);
    assert.ok(step >= span / 10 && step <= span / 2);
  }
});

test("what cannot be seen, or turns others around, is shown as its code", () => {
  assert.equal(clean("a\u202eb"), "a\\u202eb");
  assert.equal(clean("\ud800x\udfff"), "\\ud800x\\udfff");
  assert.equal(clean("\u{1f40d} \u05d0"), "\u{1f40d} \u05d0");
  assert.equal(clean("\0\n\u001b"), "\\u0000\\u000a\\u001b");
});

test("a name is broken between words, into as many lines as there is room for", () => {
  const context = { measureText: (/** @type {string} */ text) => ({ width: 6 * text.length }) };
  const lines = (/** @type {string} */ text, /** @type {number} */ most) => linesOf(/** @type {any} */ (context), text, 6 * 20, most);
  assert.deepEqual(lines("\u25be 4711 MainThread", 3), ["\u25be 4711 MainThread"]);
  assert.deepEqual(lines("\u25be 4711 ForkPoolWorker-12 MainThread", 3), ["\u25be 4711", "ForkPoolWorker-12", "MainThread"]);
  assert.deepEqual(lines("\u25be 4711 ForkPoolWorker-12 MainThread", 2), ["\u25be 4711", "ForkPoolWorker-12 MainThread"]);
  assert.deepEqual(lines("\u25be 4711 ForkPoolWorker-12 MainThread", 1), ["\u25be 4711 ForkPoolWorker-12 MainThread"]);
  assert.deepEqual(lines("one-word-that-is-longer-than-the-room", 3), ["one-word-that-is-longer-than-the-room"]);
});

test("a fragment gives the state back, and nothing but what is known", () => {
  const plain = { ...state };
  Object.assign(state, { v0: 5, v1: 17.25, range: [3, 9], search: "a & b=\"<c>%", inverted: true, folded: [1, 4], hold: "own" });
  const fragment = toFragment(plain);
  const read = fromFragment(`#${fragment}`);
  assert.deepEqual({ ...plain, ...read }, { ...state });
  assert.deepEqual(fromFragment("#v0=x&nosuch=1&__proto__=2&range=1&search=%E0%A4%A&tab=flame"), { tab: "flame" });
  Object.assign(state, plain);
});
