// The calling-context tree: a node is a function below the node that called it. Flame graphs show sums over this tree.

import { lowerBound } from "./lod.js";

/** Nodes in order of creation: a parent comes before its children. Node 0 is the root. */
export class Tree {
  constructor() {
    this.count = 1;
    this.parent = new Int32Array(1024).fill(-1);
    this.func = new Int32Array(1024).fill(-1);
    this.slots = new Int32Array(4096).fill(-1);
  }

  /** @param {number} parent @param {number} func */
  child(parent, func) {
    let mask = this.slots.length - 1;
    let at = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(func + 1, 0x85ebca6b)) >>> 7;
    for (at &= mask; this.slots[at] >= 0; at = (at + 1) & mask) {
      const node = this.slots[at];
      if (this.parent[node] === parent && this.func[node] === func) return node;
    }
    const node = this.count++;
    if (node === this.parent.length) {
      for (const name of /** @type {("parent"|"func")[]} */ (["parent", "func"])) {
        const more = new Int32Array(2 * node).fill(-1);
        more.set(this[name]);
        this[name] = more;
      }
    }
    this.parent[node] = parent;
    this.func[node] = func;
    this.slots[at] = node;
    if (this.count * 2 > this.slots.length) {
      this.slots = new Int32Array(this.slots.length * 2).fill(-1);
      mask = this.slots.length - 1;
      for (let n = 1; n < this.count; n++) {
        let slot = (Math.imul(this.parent[n], 0x9e3779b1) ^ Math.imul(this.func[n] + 1, 0x85ebca6b)) >>> 7;
        for (slot &= mask; this.slots[slot] >= 0; slot = (slot + 1) & mask);
        this.slots[slot] = n;
      }
    }
    return node;
  }

  /**
   * Returns the value of each node together with all nodes below it.
   * @param {Float64Array} self the values of each node alone
   */
  totals(self) {
    const total = self.slice(0, this.count);
    for (let n = this.count - 1; n > 0; n--) total[this.parent[n]] += total[n];
    return total;
  }
}

/** All calls of a trace as a tree. */
export class Context {
  /** @param {import("./data.js").Data} data */
  constructor(data) {
    this.data = data;
    this.tree = new Tree();
    const { start, func, rows, orphans } = data;
    /** The node of each call. */
    this.node = new Int32Array(data.count);
    for (const { thread, depth, first, end } of rows) {
      const above = depth ? data.rowAt.get(`${thread},${depth - 1}`) : undefined;
      let walk = above === undefined ? -1 : rows[above].first - 1;
      const last = above === undefined ? -1 : rows[above].end;
      for (let i = first; i < end; i++) {
        while (walk + 1 < last && start[walk + 1] <= start[i]) walk++;
        let parent = above !== undefined && walk >= rows[above].first ? walk : -1;
        if (orphans.size) parent = orphans.get(i) ?? parent;
        this.node[i] = this.tree.child(parent < 0 ? 0 : this.node[parent], func[i]);
      }
    }
  }

  /**
   * Returns the node of the call that allocated a block; without a call, the node of the block's function.
   * @param {number} block
   * @param {number} birth the event
   */
  nodeOfBlock(block, birth) {
    const call = this.data.callOfEvent(birth);
    return call >= 0 ? this.node[call] : this.tree.child(0, this.data.blocks.functionOf(block));
  }

  /**
   * Returns the values of each node alone.
   * @param {string} unit
   * @param {number} t0
   * @param {number} t1
   * @param {number|null} instant
   */
  values(unit, t0, t1, instant) {
    const { data, tree, node } = this;
    let self = new Float64Array(tree.count);
    const add = (/** @type {number} */ at, /** @type {number} */ value) => {
      if (at >= self.length) {
        const more = new Float64Array(2 * Math.max(at, tree.count));
        more.set(self);
        self = more;
      }
      self[at] += value;
    };
    if (unit === "live") {
      data.blocks.live(instant ?? t1, (block, birth) => add(this.nodeOfBlock(block, birth), data.blocks.size[block]));
    } else if (unit === "self" || unit === "waited") {
      const { start, dur, waiting } = data;
      for (const { thread, first, end } of data.rows) {
        for (let i = Math.max(first, lowerBound(start, t0, first, end) - 1); i < end && start[i] < t1; i++) {
          const from = Math.max(start[i], t0);
          const to = Math.min(start[i] + dur[i], t1);
          if (to <= from) continue;
          const inside = unit === "self" ? to - from : waiting.between(thread, from, to);
          if (!inside) continue;
          add(node[i], inside);
          const parent = tree.parent[node[i]];
          if (parent > 0) add(parent, -inside);
        }
      }
    } else if (unit === "calls") {
      for (const { first, end } of data.rows) {
        const last = lowerBound(data.start, t1, first, end);
        for (let i = lowerBound(data.start, t0, first, end); i < last; i++) add(node[i], 1);
      }
    } else {
      const from = data.blocks.eventAt(t0);
      const last = data.blocks.eventAt(t1);
      const dead = unit === "kept" ? data.blocks.diedIn(from, last) : null;
      for (let at = from; at < last; at++) {
        if (!data.blocks.isBirth(at)) continue;
        const block = data.blocks.blockOf(at);
        if (dead && dead[block]) continue;
        add(this.nodeOfBlock(block, at), unit === "blocks" ? 1 : data.blocks.size[block]);
      }
    }
    if (self.length < tree.count) {
      const more = new Float64Array(tree.count);
      more.set(self);
      self = more;
    }
    return self;
  }
}

const INVERTED_DEPTH = 100;

/**
 * Turns a tree around: the functions with values of their own are below the root, and their callers below them.
 * @param {Tree} tree
 * @param {Float64Array} self
 */
export function invert(tree, self) {
  const made = new Tree();
  let values = new Float64Array(1024);
  for (let n = 1; n < tree.count; n++) {
    if (self[n] <= 0) continue;
    let at = 0;
    for (let up = n, depth = 0; up > 0 && depth < INVERTED_DEPTH; up = tree.parent[up], depth++)
      at = made.child(at, tree.func[up]);
    if (at >= values.length) {
      const more = new Float64Array(at * 2);
      more.set(values);
      values = more;
    }
    values[at] += self[n];
  }
  return { tree: made, self: values.slice(0, made.count) };
}
