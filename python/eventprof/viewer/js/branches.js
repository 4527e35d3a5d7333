// The tree of the calls inside of a call, beside that of another call of the same function; a branch is a function.

/**
 * @typedef {object} Branch
 * @property {string} path
 * @property {number} fn
 * @property {number} depth
 * @property {[number[], number[]]} calls
 * @property {[number, number]} time
 * @property {boolean} opened
 * @property {boolean} leaf
 */

const MOST_CALLS = 20000; // a branch of more calls is opened only by a click
const MOST_BRANCHES = 400;
const DEEPEST = 12; // from this depth on a branch is opened only by a click

/**
 * Returns the branches below a branch: the calls that its calls made, by function, the longest time first.
 * @param {import("./data.js").Data} data
 * @param {{path: string, depth: number, calls: [number[], number[]]}} branch
 * @returns {Branch[]}
 */
export function below(data, branch) {
  /** @type {Map<number, Branch>} */
  const found = new Map();
  branch.calls.forEach((calls, side) => {
    for (const call of calls) {
      for (const child of data.childrenOf(call)) {
        const fn = data.func[child];
        let one = found.get(fn);
        if (!one)
          found.set(
            fn,
            (one = {
              path: `${branch.path}/${fn}`,
              fn,
              depth: branch.depth + 1,
              calls: [[], []],
              time: [0, 0],
              opened: false,
              leaf: false,
            }),
          );
        one.calls[side].push(child);
        one.time[side] += data.dur[child];
      }
    }
  });
  return [...found.values()].sort((a, b) => Math.max(...b.time) - Math.max(...a.time));
}

/**
 * Returns the rows of the tree, from top to bottom. A branch is open if it takes a twentieth of the time, or if it was
 * clicked.
 * @param {import("./data.js").Data} data
 * @param {number} call
 * @param {number} other
 * @param {Map<string, boolean>} choice which branches were opened (true) and closed, by path
 */
export function branches(data, call, other, choice) {
  /** @type {Branch[]} */
  const rows = [];
  const limit = Math.max(data.dur[call], data.dur[other]) / 20;
  const walk = (/** @type {Branch[]} */ list) => {
    for (const one of list) {
      if (rows.length >= MOST_BRANCHES) return;
      rows.push(one);
      const few = one.calls[0].length + one.calls[1].length <= MOST_CALLS;
      const wanted = choice.get(one.path) ?? (few && Math.max(...one.time) >= limit && one.depth < DEEPEST);
      const inside = few || wanted ? below(data, one) : null;
      one.leaf = inside !== null && !inside.length;
      one.opened = wanted && !one.leaf;
      if (one.opened && inside) walk(inside);
    }
  };
  walk(below(data, { path: "", depth: -1, calls: [[call], other === call ? [] : [other]] }));
  return { rows, more: rows.length >= MOST_BRANCHES };
}
