// Level of detail: finds the place of the largest number of a range, and the sum of the range, in O(log n).
//
// A leaf summarises 16 values; a node summarises four nodes of the level below, up to 4096 values. Nodes are aligned in
// the whole array, not in a row of the picture; so the values at the edges of a range are read one by one.

const LEAF = 16;
const LEVELS = 5; // 16, 64, 256, 1024, 4096

export class Pyramid {
  /** @param {Float64Array} values @param {Float64Array} starts when each begins: sorted within a row of the picture */
  constructor(values, starts) {
    this.values = values;
    this.starts = starts;
    /**
     * The start of each leaf's first value: a search from leaf to leaf reads little memory, which stays in the cache.
     */
    this.begins = new Float64Array(Math.ceil(values.length / LEAF));
    /**
     * Of each node: the place of its largest value, that value again (reading it by its place would miss the cache),
     * the sum.
     * @type {Uint32Array[]}
     */
    this.place = [];
    /** @type {Float64Array[]} */
    this.most = [];
    /** @type {Float64Array[]} */
    this.sum = [];
    for (let level = 0, size = LEAF; level < LEVELS; level++, size *= 4) {
      this.place.push(new Uint32Array(Math.ceil(values.length / size)));
      this.most.push(new Float64Array(Math.ceil(values.length / size)));
      this.sum.push(new Float64Array(Math.ceil(values.length / size)));
    }
    /** The place of the largest of the last `query`. */
    this.best = -1;
    /** The sum of the last `query`. */
    this.total = 0;
  }

  /** Fills the nodes of a range that starts at a multiple of 4096. @param {number} from @param {number} to */
  build(from, to) {
    this.fillLeaves(from, to);
    for (let level = 1, size = LEAF; level < LEVELS; level++, size *= 4)
      this.fillLevel(level, from / size / 4, Math.ceil(to / size));
  }

  /** @param {number} from @param {number} to */
  fillLeaves(from, to) {
    for (let at = from; at < to; at += LEAF) this.leaf(at, Math.min(to, at + LEAF));
  }

  /** @param {number} level @param {number} from a node @param {number} end after the nodes of the level below */
  fillLevel(level, from, end) {
    for (let node = from; node * 4 < end; node++) this.node(level, node, Math.min(end, node * 4 + 4));
  }

  /** Fills a node of the lowest level. @param {number} from @param {number} to its values */
  leaf(from, to) {
    const { values } = this;
    const node = from / LEAF;
    let best = from;
    let most = values[from];
    let sum = 0;
    for (let i = from; i < to; i++) {
      const value = values[i];
      sum += value;
      if (value > most) {
        most = value;
        best = i;
      }
    }
    this.begins[node] = this.starts[from];
    this.place[0][node] = best;
    this.most[0][node] = most;
    this.sum[0][node] = sum;
  }

  /**
   * Fills another node from those below, the last of which is before `end`.
   * @param {number} level
   * @param {number} node
   * @param {number} end
   */
  node(level, node, end) {
    const most = this.most[level - 1];
    const sums = this.sum[level - 1];
    let best = node * 4;
    let sum = 0;
    for (let k = node * 4; k < end; k++) {
      sum += sums[k];
      if (most[k] > most[best]) best = k;
    }
    this.place[level][node] = this.place[level - 1][best];
    this.most[level][node] = most[best];
    this.sum[level][node] = sum;
  }

  /**
   * Sets `best` (of equal values the first) and `total` of a range that is not empty.
   * @param {number} from
   * @param {number} to
   */
  query(from, to) {
    const values = this.values;
    let best = from;
    let most = -1;
    let total = 0;
    let i = from;
    for (const edge = Math.min(to, Math.ceil(from / LEAF) * LEAF); i < edge; i++) {
      const value = values[i];
      total += value;
      if (value > most) {
        most = value;
        best = i;
      }
    }
    while (i + LEAF <= to) {
      let level = 0;
      let size = LEAF;
      while (level < LEVELS - 1 && i % (size * 4) === 0 && i + size * 4 <= to) {
        level++;
        size *= 4;
      }
      const node = i / size;
      total += this.sum[level][node];
      if (this.most[level][node] > most) {
        most = this.most[level][node];
        best = this.place[level][node];
      }
      i += size;
    }
    for (; i < to; i++) {
      const value = values[i];
      total += value;
      if (value > most) {
        most = value;
        best = i;
      }
    }
    this.best = best;
    this.total = total;
  }

  /**
   * Returns the first place in [from, to) of one row that starts at x or later. It is fast if that is near `from`.
   * @param {number} x
   * @param {number} from
   * @param {number} to
   */
  next(x, from, to) {
    const { starts, begins } = this;
    let i = from;
    for (const edge = Math.min(to, Math.ceil(from / LEAF) * LEAF); i < edge; i++) if (starts[i] >= x) return i;
    if (i >= to) return to;
    // Of the leaves in the range, the last that begins before x has the place, or the place is just after it.
    const node = gallop(begins, x, i / LEAF, Math.ceil(to / LEAF)) - 1;
    if (node * LEAF < i) return i;
    const end = Math.min(to, (node + 1) * LEAF);
    for (i = node * LEAF + 1; i < end; i++) if (starts[i] >= x) return i;
    return end;
  }

  /**
   * Like `next`, but rounded up to the begin of a node with so many leaves, or to `to`. If a pixel covers many nodes,
   * the difference cannot be seen.
   * @param {number} x
   * @param {number} from
   * @param {number} to
   * @param {number} leaves
   */
  leap(x, from, to, leaves) {
    const { begins } = this;
    const size = LEAF * leaves;
    const last = Math.ceil(to / size);
    let low = Math.ceil(from / size);
    let high = low;
    for (let step = 1; high < last && begins[high * leaves] < x; step *= 2) {
      low = high + 1;
      high += step;
    }
    high = Math.min(high, last);
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (begins[middle * leaves] < x) low = middle + 1;
      else high = middle;
    }
    return Math.min(to, low * size);
  }
}

/**
 * Returns the size in leaves of the largest node of which four fit into a pixel; 0: there is none.
 * @param {number} values that a pixel covers
 */
export function leavesFor(values) {
  let leaves = 0;
  for (let size = LEAF, many = 1; size * 4 <= values && many <= 256; size *= 4, many *= 4) leaves = many;
  return leaves;
}

/**
 * Returns the first place in [from, to) whose value is at least x, or `to`.
 * @param {ArrayLike<number>} a
 * @param {number} x
 * @param {number} from
 * @param {number} to
 */
export function lowerBound(a, x, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (a[middle] < x) from = middle + 1;
    else to = middle;
  }
  return from;
}

/**
 * Returns the first place in [from, to) whose value is above x, or `to`.
 * @param {ArrayLike<number>} a
 * @param {number} x
 * @param {number} from
 * @param {number} to
 */
export function upperBound(a, x, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (a[middle] <= x) from = middle + 1;
    else to = middle;
  }
  return from;
}

/**
 * Like `lowerBound`, but fast if the place is near `from`.
 * @param {ArrayLike<number>} a
 * @param {number} x
 * @param {number} from
 * @param {number} to
 */
export function gallop(a, x, from, to) {
  let step = 1;
  let low = from;
  let high = from;
  while (high < to && a[high] < x) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  return lowerBound(a, x, low, Math.min(high, to));
}
