// The sections of a page: gzip as text, each in an element of its own.

export const FIRST = 0x4000; // the least character of the text of a large page
export const LOW = 15; // the bits in a character of it

/**
 * Returns the bytes that a text stands for: base64, or 15 bits in a character, as `wide` in planes.py makes it.
 * @param {string} text
 * @param {ArrayBuffer} [room] used if it is large enough
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function bytesOf(text, room) {
  const spare = text.charCodeAt(0) - FIRST;
  if (!(spare >= 0)) {
    const base64 = /** @type {any} */ (Uint8Array).fromBase64;
    return base64 ? base64(text) : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  }
  const high = (text.length - 1) / (LOW + 1);
  const words = new Uint16Array(
    room && room.byteLength >= 2 * high * LOW ? room : new ArrayBuffer(2 * high * LOW),
    0,
    high * LOW,
  );
  for (let i = 0; i < high; i++) joinBits(text, words, i, high);
  return new Uint8Array(words.buffer, 0, words.byteLength - spare);
}

/**
 * Puts the words together whose high bits a character has.
 * @param {string} text
 * @param {Uint16Array} words
 * @param {number} i the character
 * @param {number} high how many such there are
 */
export function joinBits(text, words, i, high) {
  const bits = text.charCodeAt(1 + LOW * high + i) - FIRST;
  for (let bit = 0, at = i; bit < LOW; bit++, at += high)
    words[at] = (text.charCodeAt(1 + at) - FIRST) | (((bits >> bit) & 1) << LOW);
}

/**
 * Unpacks gzip into `room` if that is large enough, which saves new memory. The last four bytes of gzip are the size of
 * what was packed.
 * @param {Uint8Array<ArrayBuffer>} packed
 * @param {ArrayBuffer} [room]
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function gunzip(packed, room) {
  const size = new DataView(packed.buffer, packed.byteOffset).getUint32(packed.length - 4, true);
  const out = new Uint8Array(room && room.byteLength >= size ? room : new ArrayBuffer(size), 0, size);
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  for (const step of [writer.write(packed), writer.close()]) step.catch(() => {}); // the reader meets the same error
  const reader = readable.getReader();
  for (let at = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return out;
    out.set(value, at);
    at += value.length;
  }
}

/** Returns the text of a section, and removes its element. @param {string} id */
export function take(id) {
  const element = /** @type {HTMLTemplateElement|null} */ (document.getElementById(`data-${id}`));
  if (!element) throw new Error(`its section ${id} is missing: the file was cut off`);
  const text = element.content.textContent || "";
  element.remove(); // the text may be large
  return text;
}

/**
 * Returns the bytes of a section, and removes its element.
 * @param {string} id
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function unpack(id) {
  return gunzip(bytesOf(take(id)));
}

/** Says on the page that it cannot be shown. @param {any} error */
export function giveUp(error) {
  const box = /** @type {HTMLElement} */ (document.getElementById("limits"));
  box.className = "bad";
  box.textContent = `This page cannot be shown: ${error && error.message}`;
  console.error(error);
}
