// Texts for people: numbers with units, and names in which no character can change the text around them.

export const FONT = "11px ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

const ODD =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Replaces characters by their codes if they are invisible or change the text's direction. @param {string} text */
export function clean(text) {
  return text.replace(ODD, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** @type {Map<string, Intl.NumberFormat>} */
const formats = new Map();

/**
 * Like toLocaleString, which would make a new format each time.
 * @param {number} value
 * @param {number} fewest
 * @param {number} most digits after the point
 */
function digitsOf(value, fewest, most) {
  const key = `${fewest},${most}`;
  let format = formats.get(key);
  if (!format)
    formats.set(
      key,
      (format = new Intl.NumberFormat("en", { minimumFractionDigits: fewest, maximumFractionDigits: most })),
    );
  return format.format(value);
}

/**
 * Returns value / size with three digits, halves rounded up: the arithmetic of three_digits() in _words.py, and so
 * its text. @param {number} value @param {number} size
 */
function threeDigits(value, size) {
  const number = value / size;
  const digits = number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
  return digitsOf(Math.floor((value * 10 ** digits) / size + 0.5) / 10 ** digits, digits, digits);
}

/** @param {number} ns */
export function showTime(ns) {
  const sign = ns < 0 ? "-" : "";
  const size = Math.abs(ns);
  if (size < 999.5 && Number.isInteger(size)) return `${sign}${size} ns`;
  for (const [unit, each] of /** @type {[string, number][]} */ ([
    ["ns", 1],
    ["us", 1e3],
    ["ms", 1e6],
  ])) {
    if (size < 999.5 * each) return `${sign}${threeDigits(size, each)} ${unit}`;
  }
  return `${sign}${threeDigits(size, 1e9)} s`;
}

/** @param {number} bytes */
export function showBytes(bytes) {
  const sign = bytes < 0 ? "-" : "";
  const size = Math.abs(bytes);
  if (size < 1000) return `${sign}${Math.floor(size + 0.5)} B`;
  for (const [unit, each] of /** @type {[string, number][]} */ ([
    ["KiB", 2 ** 10],
    ["MiB", 2 ** 20],
    ["GiB", 2 ** 30],
  ])) {
    if (size < 999.5 * each) return `${sign}${threeDigits(size, each)} ${unit}`;
  }
  return `${sign}${threeDigits(size, 2 ** 40)} TiB`;
}

/** @param {number} count */
export function showCount(count) {
  return digitsOf(count, 0, 0);
}

/** Returns a count with its noun: 1 call, 2 calls. @param {number} count @param {string} noun */
export function counted(count, noun) {
  return `${showCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Shows a time of the ruler, with as many digits as the step needs. @param {number} ns @param {number} step */
export function showTick(ns, step) {
  const [unit, each] = step >= 1e8 || ns >= 1e10 ? ["s", 1e9] : step >= 1e5 || ns >= 1e7 ? ["ms", 1e6] : ["us", 1e3];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(each / step) - 1e-9)));
  return `${digitsOf(ns / each, digits, digits)} ${unit}`;
}

/** Returns a round step, of which at most `count` fit into the span. @param {number} span @param {number} count */
export function roundStep(span, count) {
  const raw = span / Math.max(1, count);
  const base = 10 ** Math.floor(Math.log10(raw));
  for (const each of [1, 2, 5, 10]) if (each * base >= raw) return each * base;
  return 10 * base;
}

/**
 * Makes an element. Strings among the children become text, never markup.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Node|string)} children
 */
export function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key in element && key !== "role") /** @type {any} */ (element)[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * Shows words beside the pointer; null: hides them.
 *
 * @param {string[]|null} words @param {number} x @param {number} y
 */
export function showTip(words, x, y) {
  const tip = byId("tip");
  tip.hidden = !words;
  if (!words) return;
  tip.replaceChildren(
    ...words.filter(Boolean).map((text, n) => make("div", { class: n ? "" : "first" }, make("bdi", {}, text))),
  );
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 6))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
}

/** @type {Map<string, number>} */
const widths = new Map();
/** @type {Map<string, string>} */
const cuts = new Map();
const MEASURED = 50000;

/** Returns the width of a text in CSS pixels. @param {CanvasRenderingContext2D} context @param {string} text */
export function widthOf(context, text) {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size > MEASURED) widths.clear();
    width = context.measureText(text).width;
    widths.set(text, width);
  }
  return width;
}

/**
 * Cuts a text so that it fits; gives "" if there is no room for anything useful.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} room
 */
export function fit(context, text, room) {
  const width = widthOf(context, text);
  if (width <= room) return text;
  const steps = Math.floor(room / 4); // rooms of nearly the same size share an entry of `cuts`
  const key = `${steps} ${text}`;
  let cut = cuts.get(key);
  if (cut === undefined) {
    if (cuts.size > MEASURED) cuts.clear();
    cut = cutTo(context, text, steps * 4, width);
    cuts.set(key, cut);
  }
  return cut;
}

/**
 * Breaks a text between words so that its lines fit; the last has the rest, which may not fit.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} room
 * @param {number} most how many lines there can be
 */
export function linesOf(context, text, room, most) {
  const lines = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line ? `${line} ${word}` : word;
    if (line && lines.length < most - 1 && widthOf(context, longer) > room) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  lines.push(line);
  return lines;
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} room @param {number} width */
function cutTo(context, text, room, width) {
  let letters = Math.floor((text.length * room) / width);
  while (letters >= 2) {
    let cut = text.slice(0, letters);
    if (/[\ud800-\udbff]$/.test(cut)) cut = cut.slice(0, -1);
    cut += "\u2026";
    const over = context.measureText(cut).width - room;
    if (over <= 0) return cut;
    letters -= Math.max(1, Math.floor((over / width) * text.length));
  }
  return "";
}
