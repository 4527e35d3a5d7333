// The one state of the page. Everything draws from it; the URL's fragment holds it.

/**
 * @typedef {object} State
 * @property {number} v0 left edge of the view, ns
 * @property {number} v1 right edge of the view, ns
 * @property {number} scroll how far the lanes are scrolled, CSS pixels
 * @property {number} call the selected call, or -1
 * @property {number} fn the selected function, or -1
 * @property {number|null} instant the selected instant, ns
 * @property {[number, number]|null} range the selected range, ns
 * @property {[number, number]|null} brush durations of `fn` that are marked, ns
 * @property {string} tab the open tab
 * @property {string} unit of the flame graph
 * @property {string} hold by whom memory is held: function, line or own
 * @property {boolean} inverted the flame graph's direction
 * @property {string} theme auto, light or dark
 * @property {string} colour area, module or function
 * @property {string} search what is searched for
 * @property {string} filter of the table of functions
 * @property {string} file whose source is shown
 * @property {string} side of two recordings the one whose widths a flame graph has: before or after
 * @property {number[]} folded lanes that are folded
 */

/** @type {State} */
export const state = {
  v0: 0, v1: 1, scroll: 0, call: -1, fn: -1, instant: null, range: null, brush: null, tab: "functions",
  unit: "self", hold: "function", inverted: false, theme: "auto", colour: "area", search: "", filter: "", file: "", side: "after", folded: [],
};

/** @type {((changed: Partial<State>) => void)[]} */
const listeners = [];
/** @type {Partial<State>} */
let pending = {};
let asked = false;

/** Calls `f` in the next frame after a change, with what changed. @param {(changed: Partial<State>) => void} f */
export function onChange(f) {
  listeners.push(f);
}

/** Runs what waits for the next frame now. */
export function flush() {
  asked = false;
  const changed = pending;
  pending = {};
  for (const f of listeners) f(changed);
}

/** Changes the state; draws in the next frame. @param {Partial<State>} patch */
export function update(patch) {
  Object.assign(state, patch);
  Object.assign(pending, patch);
  if (!asked) {
    asked = true;
    requestAnimationFrame(() => {
      if (asked) flush();
    });
  }
}

const NUMBERS = new Set(["v0", "v1", "scroll", "call", "fn", "instant"]);
const PAIRS = new Set(["range", "brush", "folded"]);

/** Gives the state as a URL's fragment; without what is as it is by itself. @param {State} plain */
export function toFragment(plain) {
  const parts = [];
  for (const [key, value] of Object.entries(state)) {
    const before = /** @type {any} */ (plain)[key];
    if (value === null || JSON.stringify(value) === JSON.stringify(before)) continue;
    const text = Array.isArray(value) ? value.join(",") : typeof value === "boolean" ? "1" : String(value);
    parts.push(`${key}=${encodeURIComponent(text.toWellFormed ? text.toWellFormed() : text)}`);
  }
  return parts.join("&");
}

/** Reads a fragment: what is not understood is left out. @param {string} text */
export function fromFragment(text) {
  /** @type {any} */
  const patch = {};
  for (const part of text.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at < 0) continue;
    const key = part.slice(0, at);
    let value = "";
    try {
      value = decodeURIComponent(part.slice(at + 1));
    } catch {
      continue;
    }
    if (!Object.hasOwn(state, key)) continue;
    if (NUMBERS.has(key)) {
      if (Number.isFinite(Number(value))) patch[key] = Number(value);
    } else if (PAIRS.has(key)) {
      const numbers = value.split(",").map(Number);
      if (numbers.every(Number.isFinite) && (key === "folded" || numbers.length === 2)) patch[key] = numbers;
    } else if (key === "inverted") patch[key] = value === "1";
    else patch[key] = value;
  }
  return patch;
}
