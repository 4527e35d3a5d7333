// The layout of the timeline: its lanes, which are marks, counters, the lock, threads with their rows, and tasks.

import { state } from "./state.js";

export const GUTTER = 150; // CSS pixels left of all lanes, for their names
export const RULER = 22;
export const ROW = 17;
const SMALL = 4; // the height of a row of a folded lane
const SMALL_ROWS = 10; // the most rows of a folded lane
const GAP = 8;

/**
 * @typedef {object} Lane
 * @property {"thread"|"marks"|"counter"|"lock"|"task"} kind
 * @property {number} thread
 * @property {string} name
 * @property {number} y
 * @property {number} height
 * @property {boolean} folded
 * @property {number} high
 * @property {{row: number, y: number}[]} rows
 * @property {[number, number|null][]} series
 * @property {[number, number]} steps
 */

/** @param {import("./data.js").Data} data */
export function layOut(data) {
  /** @type {Lane[]} */
  const lanes = [];
  let y = 4;
  const { head } = data;
  const base = {
    thread: -1,
    folded: false,
    rows: [],
    series: [],
    high: 0,
    steps: /** @type {[number, number]} */ ([0, 0]),
  };
  if (head.marks.length || head.flows.length) {
    lanes.push({ ...base, kind: "marks", name: "marks", y, height: 20 });
    y += 20 + GAP;
  }
  /** @type {Map<string, [number, number|null][]>} */
  const counters = new Map();
  for (const [time, name, value] of head.counters) {
    if (!counters.has(name)) counters.set(name, []);
    /** @type {any} */ (counters.get(name)).push([time, value]);
  }
  for (const [name, series] of counters) {
    lanes.push({ ...base, kind: "counter", name: name || "(no name)", y, height: 34, series });
    y += 34 + GAP;
  }
  if (data.waiting.shared) {
    lanes.push({ ...base, kind: "lock", name: "interpreter lock", y, height: ROW, high: ROW });
    y += ROW + GAP;
  }
  /** @type {Map<number, number[]>} */
  const byThread = new Map();
  data.rows.forEach((row, n) => {
    if (!byThread.has(row.thread)) byThread.set(row.thread, []);
    /** @type {number[]} */ (byThread.get(row.thread)).push(n);
  });
  head.threads.forEach((/** @type {any} */ thread, /** @type {number} */ n) => {
    const rows = byThread.get(n) || [];
    if (!rows.length && !thread.lost) return;
    const folded = state.folded.includes(n);
    const high = folded ? SMALL : ROW;
    const shown = folded ? rows.slice(0, SMALL_ROWS) : rows;
    const top = y + 2;
    const height = Math.max(ROW + 2, shown.length * high + 4);
    lanes.push({
      ...base,
      kind: "thread",
      thread: n,
      name: thread.name,
      y,
      height,
      folded,
      high,
      rows: shown.map((row, k) => ({ row, y: top + k * high })),
    });
    y += height + GAP;
  });
  let first = 0;
  if (data.steps.start.length) {
    for (const [name, count] of head.steps.lanes) {
      lanes.push({ ...base, kind: "task", name, y, height: ROW, high: ROW, steps: [first, first + count] });
      y += ROW + GAP;
      first += count;
    }
  }
  return { lanes, height: y };
}
