import assert from "node:assert/strict";
import test from "node:test";

import { Tree, invert } from "./viewer/tree.js";

/** A tree of paths with their values. */
function grown(paths) {
  const tree = new Tree();
  const values = [];
  for (const [path, value] of paths) {
    const node = path.reduce((at, f) => tree.child(at, f), 0);
    values[node] = (values[node] || 0) + value;
  }
  return { tree, self: Float64Array.from({ length: tree.count }, (_, n) => values[n] || 0) };
}

test("a node is a function below a node, however many there are", () => {
  const tree = new Tree();
  const known = new Map();
  for (let k = 0; k < 30000; k++) {
    const parent = (k * 7919) % Math.max(1, known.size);
    const f = k % 13;
    const node = tree.child(parent, f);
    const key = `${parent},${f}`;
    assert.equal(known.get(key) ?? node, node);
    known.set(key, node);
    assert.deepEqual([tree.parent[node], tree.func[node]], [parent, f]);
  }
  assert.equal(tree.count, known.size + 1);
});

test("totals have what is below", () => {
  const { tree, self } = grown([[[1], 5], [[1, 2], 7], [[1, 2, 3], 11], [[4], 13]]);
  assert.deepEqual([...tree.totals(self)].slice(0, 4), [36, 23, 18, 11]);
});

test("turned over, what is below the root is the self values of each function", () => {
  const { tree, self } = grown([[[1, 2], 7], [[3, 2], 11], [[2], 2], [[1], 5], [[1, 1], -3]]);
  const turned = invert(tree, self);
  const total = turned.tree.totals(turned.self);
  const top = new Map();
  for (let n = 1; n < turned.tree.count; n++) if (turned.tree.parent[n] === 0) top.set(turned.tree.func[n], total[n]);
  assert.deepEqual(top, new Map([[2, 20], [1, 5]]));
});
