"""Collapsed stacks: a line ``a;b;c 1234`` for each stack, outermost function first."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ._tree import Tree
from ._view import one_line, utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def frame(name: str) -> str:
    """Escape semicolons and line ends."""
    return one_line(name).replace(";", "\\x3b")


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write each stack with its own value: ns, or the weight that the user chose."""
    tree = Tree(view)
    weights = weigh(tree, options.weight)
    names = [frame(name) for name in view.names]
    stacks: list[str] = []
    sums: dict[str, int] = {}
    rows = zip(tree.parent.tolist(), tree.function.tolist(), weights.tolist(), strict=True)
    for parent, function, weight in rows:
        stack = names[function] if parent < 0 else f"{stacks[parent]};{names[function]}"
        stacks.append(stack)
        if weight > 0:
            sums[stack] = sums.get(stack, 0) + weight
    out.write(b"".join(utf8(f"{stack} {weight}\n") for stack, weight in sums.items()))
    if view.loss:
        options.notes.append(f"with loss: {view.loss}")


def weigh(tree: Tree, weight: str):  # type: ignore[no-untyped-def]
    """Give the weight of each node without its children."""
    if weight == "self":
        return tree.self
    if weight == "calls":
        return tree.calls
    found = tree.own(weight)
    if not found:
        lacks = "several threads and a lock" if weight == "waited" else "allocations"
        raise ValueError(f"weight: {weight} needs {lacks}, which were not recorded")
    return found[weight]
