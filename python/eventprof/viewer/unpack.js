// The sections of a page: gzip as text, each in an element of its own.

const FIRST = 0x4000; // the least character of the text of a large page
const LOW = 15; // the bits in a character of it

const HELPERS = 2; // workers

/** Gives the bytes that a text stands for: base64, or 15 bits in a character, as `wide` in planes.py makes it. @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function bytesOf(text) {
  const spare = text.charCodeAt(0) - FIRST;
  if (!(spare >= 0)) {
    const base64 = /** @type {any} */ (Uint8Array).fromBase64;
    return base64 ? base64(text) : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  }
  const high = (text.length - 1) / (LOW + 1);
  const words = new Uint16Array(high * LOW);
  for (let i = 0; i < high; i++) {
    const bits = text.charCodeAt(1 + LOW * high + i) - FIRST;
    for (let bit = 0, at = i; bit < LOW; bit++, at += high) words[at] = (text.charCodeAt(1 + at) - FIRST) | (((bits >> bit) & 1) << LOW);
  }
  return new Uint8Array(words.buffer, 0, words.byteLength - spare);
}

/** @param {Uint8Array<ArrayBuffer>} packed @returns {Promise<Uint8Array<ArrayBuffer>>} */
async function gunzip(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The code of a worker: it gives the bytes of each text that it is sent. Only `bytesOf` and `gunzip` are sent along with it. */
function serve() {
  self.onmessage = async ({ data: text }) => {
    const bytes = await gunzip(bytesOf(text)).catch(() => null); // the page then finds the error itself
    self.postMessage(bytes, /** @type {any} */ (bytes ? [bytes.buffer] : []));
  };
}

/** A worker answers in the order in which it was asked. @typedef {{worker: Worker, asked: {text: string, done: (bytes: any) => void}[]}} Helper */
/** @type {Helper[]|null} */
let helpers = null;

/** Starts the workers. If the browser allows none, gives an empty list, and the page unpacks all sections itself. @returns {Helper[]} */
function startHelpers() {
  const parts = [`const FIRST = ${FIRST}; const LOW = ${LOW};`, bytesOf, gunzip, `(${serve})();`];
  const made = /** @type {Helper[]} */ ([]);
  try {
    const url = URL.createObjectURL(new Blob(parts.map((part) => `${part}\n`), { type: "text/javascript" }));
    for (let n = 0; n < HELPERS; n++) {
      const helper = { worker: new Worker(url), asked: /** @type {Helper["asked"]} */ ([]) };
      helper.worker.onmessage = ({ data: bytes }) => {
        const next = helper.asked.shift();
        next?.done(bytes || gunzip(bytesOf(next.text)));
      };
      helper.worker.onerror = () => {
        made.length = 0;
        for (const { text, done } of helper.asked.splice(0)) done(gunzip(bytesOf(text)));
      };
      made.push(helper);
    }
  } catch {
    made.length = 0;
  }
  return made;
}

/** Sections that workers unpack, by id, until `unpack` is called for them. @type {Map<string, Promise<Uint8Array>>} */
const prepared = new Map();

/** Gives the text of a section, and removes its element. @param {string} id */
function take(id) {
  const element = document.getElementById(`data-${id}`);
  if (!element) throw new Error(`its section ${id} is missing: the file was cut off`);
  const text = element.textContent || "";
  element.remove(); // the text may be large
  return text;
}

/** Has a worker unpack a section that will be needed soon. @param {string} id */
export function prepare(id) {
  helpers ??= startHelpers();
  if (!helpers.length || prepared.has(id) || !document.getElementById(`data-${id}`)) return;
  const helper = helpers.reduce((a, b) => (b.asked.length < a.asked.length ? b : a));
  prepared.set(id, new Promise((done) => {
    const text = take(id);
    helper.asked.push({ text, done });
    helper.worker.postMessage(text);
  }));
}

/** Gives the bytes of a section, and removes its element. @param {string} id @returns {Promise<Uint8Array>} */
export async function unpack(id) {
  const here = prepared.get(id);
  prepared.delete(id);
  return here || gunzip(bytesOf(take(id)));
}

/** Says on the page that it cannot be shown. @param {any} error */
export function giveUp(error) {
  const box = /** @type {HTMLElement} */ (document.getElementById("limits"));
  box.className = "bad";
  box.textContent = `This page cannot be shown: ${error && error.message}`;
  console.error(error);
}
