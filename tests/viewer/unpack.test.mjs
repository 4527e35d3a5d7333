import assert from "node:assert/strict";
import test from "node:test";

import { bytesOf } from "./viewer/unpack.js";

/** What `wide` in planes.py makes, bit by bit. @param {Uint8Array} bytes */
function wide(bytes) {
  const spare = (30 - (bytes.length % 30)) % 30;
  const words = new Uint16Array((bytes.length + spare) / 2);
  new Uint8Array(words.buffer).set(bytes);
  const high = new Uint16Array(words.length / 15);
  words.forEach((word, at) => (high[at % high.length] |= (word >> 15) << Math.floor(at / high.length)));
  return [spare, ...words.map((word) => word & 0x7fff), ...high].map((unit) => String.fromCharCode(0x4000 + unit)).join("");
}

test("the bytes of a text are those that it was made of", () => {
  for (const length of [0, 1, 29, 30, 31, 60, 12347]) {
    const bytes = Uint8Array.from({ length }, (_, at) => Math.imul(at + 1, 2654435761) >>> 24);
    assert.deepEqual(bytesOf(wide(bytes)), bytes);
    assert.deepEqual(Uint8Array.from(bytesOf(Buffer.from(bytes).toString("base64"))), bytes);
  }
});
