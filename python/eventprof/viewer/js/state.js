// The state of the page. All parts are drawn from it, and the URL's fragment stores it.

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
 * @property {string} hold the kind of holders of memory: function, line or own
 * @property {boolean} inverted whether the flame graph has callees first
 * @property {string} theme auto, light or dark
 * @property {string} colour area, module or function
 * @property {string} search what is searched for
 * @property {string} filter the text that filters the table of functions
 * @property {string} file whose source is shown
 * @property {string} side of two recordings, the one that gives the widths of the flame graph: before or after
 * @property {number[]} folded lanes that are folded
 */

/** @type {State} */
export const state = {
  v0: 0,
  v1: 1,
  scroll: 0,
  call: -1,
  fn: -1,
  instant: null,
  range: null,
  brush: null,
  tab: "functions",
  unit: "self",
  hold: "function",
  inverted: false,
  theme: "auto",
  colour: "area",
  search: "",
  filter: "",
  file: "",
  side: "after",
  folded: [],
};

/** @type {((changed: Partial<State>) => void)[]} */
const listeners = [];
/** @type {Partial<State>} */
let pending = {};
let asked = false;

/**
 * Registers a listener, which is called in the next frame after a change, with the changed properties.
 * @param {(changed: Partial<State>) => void} f
 */
export function onChange(f) {
  listeners.push(f);
}

/** Tells the listeners now, not in the next frame. */
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

/**
 * Returns the state as a URL's fragment, without the properties that have their default value.
 * @param {State} plain the defaults
 */
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

/** Reads a fragment; unknown properties and bad values are ignored. @param {string} text */
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

/** Gives the page the theme of the state. Returns whether it is dark. */
export function applyTheme() {
  const dark = state.theme === "dark" || (state.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return dark;
}

/** Turns dark to light and light to dark. */
export function turnTheme() {
  update({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
}

/** Writes the state to the address. @param {State} plain the defaults */
export function writeFragment(plain) {
  try {
    history.replaceState(null, "", `#${toFragment(plain)}`);
  } catch {
    // a frame without an address cannot store the state
  }
}
