// Colours by area (the palette of Okabe and Ito, which colour-blind people can tell apart), by module and by function,
// for both themes.

/** Hue and saturation of each area, in the order of the core (names/areas.h). The theme gives the lightness. */
const HUES = [
  [38, 88],
  [203, 72],
  [163, 55],
  [56, 60],
  [220, 8],
  [320, 45],
  [14, 82],
];
export const AREA_NAMES = [
  "own code",
  "installed packages",
  "standard library",
  "other Python code",
  "C and builtins",
  "spans and marks",
  "garbage collector",
];
const NATIVE = 4;
const BAND_HUES = [
  [203, 78, 0],
  [38, 90, 0],
  [163, 60, 0],
  [320, 45, 6],
  [14, 80, 0],
  [56, 85, 0],
  [215, 80, -14],
  [163, 55, -16],
  [38, 75, -18],
  [320, 40, -14],
  [14, 60, -16],
  [270, 40, 4],
];

/** @param {number} h @param {number} s @param {number} l @returns {[number, number, number]} */
function rgb(h, s, l) {
  const a = (s / 100) * Math.min(l / 100, 1 - l / 100);
  const f = (/** @type {number} */ n) => {
    const k = (n + h / 30) % 12;
    return Math.round(255 * (l / 100 - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [f(0), f(8), f(4)];
}

/** Returns a colour as a pixel of ImageData. @param {[number, number, number]} c */
export function pixel(c) {
  return (0xff000000 | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0;
}

/** @param {number} p */
export function cssOf(p) {
  return `rgb(${p & 255} ${(p >> 8) & 255} ${(p >> 16) & 255})`;
}

/** Mixes two colours. @param {number} a @param {number} b @param {number} share of a, 0 to 256 */
export function blend(a, b, share) {
  const rest = 256 - share;
  const rb = (((a & 0xff00ff) * share + (b & 0xff00ff) * rest) >>> 8) & 0xff00ff;
  const g = (((a & 0x00ff00) * share + (b & 0x00ff00) * rest) >>> 8) & 0x00ff00;
  return (0xff000000 | rb | g) >>> 0;
}

/** Returns a number from 0 to 1 that looks random, the same each time. @param {number} n */
function scatter(n) {
  let x = Math.imul(n + 1, 0x9e3779b1);
  x = Math.imul(x ^ (x >>> 15), 0x85ebca6b);
  return ((x ^ (x >>> 13)) >>> 0) / 2 ** 32;
}

/**
 * @typedef {object} Palette
 * @property {boolean} dark
 * @property {number} back
 * @property {number} line
 * @property {string} text
 * @property {string} soft
 * @property {string} strong
 * @property {string} accent
 * @property {number} hit
 * @property {Uint32Array} calls
 * @property {number[]} bands
 */

/**
 * The colour of the hatching of a kind of wait: it must differ from those of calls.
 * @param {Palette} look
 * @param {number} kind
 */
export function waitColour({ bands, dark }, kind) {
  return blend(bands[kind % (bands.length - 1)], pixel(dark ? [255, 255, 255] : [0, 0, 0]), 175);
}

/**
 * @param {any} functions of the head
 * @param {string} by
 * @param {boolean} dark
 * @returns {Palette}
 */
export function palette(functions, by, dark) {
  const count = functions.name.length;
  const calls = new Uint32Array(count + 1);
  const base = dark ? 40 : 70;
  for (let n = 0; n < count; n++) {
    const area = functions.area[n];
    const shade = base + (scatter(n) - 0.5) * (dark ? 12 : 14);
    let [hue, saturation] = HUES[area];
    if (by !== "area" && area <= NATIVE) {
      hue = 360 * scatter(by === "module" ? functions.module[n] + 7919 : n + 104729);
      saturation = 50;
    }
    calls[n] = pixel(
      rgb(hue, saturation * (dark ? 0.72 : 1), area === NATIVE && by === "area" ? shade + (dark ? -6 : 10) : shade),
    );
  }
  calls[count] = pixel(rgb(0, 0, base)); // for an unknown function
  const bands = BAND_HUES.map(([h, s, l]) => pixel(rgb(h, s * (dark ? 0.75 : 0.95), (dark ? 48 : 62) + l)));
  bands.push(pixel(rgb(0, 0, dark ? 42 : 74)));
  return {
    dark,
    calls,
    bands,
    back: pixel(dark ? [23, 25, 29] : [255, 255, 255]),
    line: pixel(dark ? [46, 50, 57] : [226, 229, 234]),
    hit: pixel(dark ? [255, 92, 190] : [200, 0, 120]),
    text: dark ? "#e8eaee" : "#15181d",
    soft: dark ? "#a3aab6" : "#5a626e",
    strong: dark ? "#ffffff" : "#000000",
    accent: dark ? "#6cb6ff" : "#0b5cad",
  };
}

/** @param {number} area @param {boolean} dark */
export function areaColour(area, dark) {
  const [hue, saturation] = HUES[area];
  return cssOf(
    pixel(rgb(hue, saturation * (dark ? 0.72 : 1), (dark ? 40 : 70) + (area === NATIVE ? (dark ? -6 : 10) : 0))),
  );
}
