// Level of detail: of any range of numbers, the place of the largest and the sum, in O(log n).
//
// Leaves stand for 16 values, and a node for four of the level below, up to 4096. Nodes are aligned in the whole
// array, not in a row of the picture: the edges of a range are looked at one by one.

const LEAF = 16;
const LEVELS = 5; // 16, 64, 256, 1024, 4096

export class Pyramid {
  /** @param {Float64Array} values */
  constructor(values) {
    this.values = values;
    /** @type {Uint32Array[]} */
    this.place = [];
    /** @type {Float64Array[]} */
    this.sum = [];
    for (let level = 0, size = LEAF; level < LEVELS; level++, size *= 4) {
      this.place.push(new Uint32Array(Math.ceil(values.length / size)));
      this.sum.push(new Float64Array(Math.ceil(values.length / size)));
    }
    /** The place of the largest of the last `query`. */
    this.best = -1;
    /** The sum of the last `query`. */
    this.total = 0;
  }

  /** Fills the nodes of a range that starts at a multiple of 4096. @param {number} from @param {number} to */
  build(from, to) {
    const values = this.values;
    for (let at = from, node = from / LEAF; at < to; at += LEAF, node++) {
      const end = Math.min(to, at + LEAF);
      let best = at;
      let sum = 0;
      for (let i = at; i < end; i++) {
        sum += values[i];
        if (values[i] > values[best]) best = i;
      }
      this.place[0][node] = best;
      this.sum[0][node] = sum;
    }
    for (let level = 1, size = LEAF * 4; level < LEVELS; level++, size *= 4) {
      const below = this.place[level - 1];
      const sums = this.sum[level - 1];
      const last = Math.ceil(to / (size / 4));
      for (let at = from, node = from / size; at < to; at += size, node++) {
        const end = Math.min(last, node * 4 + 4);
        let best = below[node * 4];
        let sum = 0;
        for (let k = node * 4; k < end; k++) {
          sum += sums[k];
          if (values[below[k]] > values[best]) best = below[k];
        }
        this.place[level][node] = best;
        this.sum[level][node] = sum;
      }
    }
  }

  /** Sets `best` (the first of several) and `total` of a range that is not empty. @param {number} from @param {number} to */
  query(from, to) {
    const values = this.values;
    let best = from;
    let most = -1;
    let total = 0;
    let i = from;
    for (; i < to && i % LEAF; i++) {
      total += values[i];
      if (values[i] > most) most = values[(best = i)];
    }
    while (i + LEAF <= to) {
      let level = 0;
      let size = LEAF;
      while (level < LEVELS - 1 && i % (size * 4) === 0 && i + size * 4 <= to) {
        level++;
        size *= 4;
      }
      const node = i / size;
      const place = this.place[level][node];
      total += this.sum[level][node];
      if (values[place] > most) most = values[(best = place)];
      i += size;
    }
    for (; i < to; i++) {
      total += values[i];
      if (values[i] > most) most = values[(best = i)];
    }
    this.best = best;
    this.total = total;
  }
}

/** The first place in [from, to) whose value is at least x. @param {ArrayLike<number>} a @param {number} x @param {number} from @param {number} to */
export function lowerBound(a, x, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (a[middle] < x) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The first place in [from, to) whose value is above x. @param {ArrayLike<number>} a @param {number} x @param {number} from @param {number} to */
export function upperBound(a, x, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (a[middle] <= x) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** `lowerBound` where the place is likely near `from`. @param {ArrayLike<number>} a @param {number} x @param {number} from @param {number} to */
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
