"""Collapsed stacks: ``a;b;c 1234`` a line, outermost first."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ._tree import Tree
from ._view import one_line, utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def frame(name: str) -> str:
    """Escape what ends a frame or a line."""
    return one_line(name).replace(";", "\\x3b")


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write them, weighed by ns of a stack's own, or by what was asked for."""
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
    """Give the weights of the nodes themselves."""
    if weight == "self":
        return tree.self
    if weight == "calls":
        return tree.calls + tree.resumes
    memory = tree.memory()
    if not memory:
        raise ValueError(f"weight: {weight} needs allocations, which were not recorded")
    return memory[weight]
