"""Collapsed stacks: a line ``a;b;c 1234`` for each stack, outermost function first."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import numpy as np

from .. import _core
from .._words import escaped
from ._tree import Tree, add_up, fold
from ._view import Texts, utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def frame(name: str) -> str:
    """Escape semicolons, line ends and backslashes; importing/collapsed.py reverses it."""
    return escaped(name).replace(";", "\\x3b")


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write each stack with its own value: ns, or the weight that the user chose."""
    tree = Tree(view)
    weights = tree.weigh(options.weight or "self")
    # Functions with one name are one frame.
    numbers: dict[bytes, int] = {}
    number_of = [numbers.setdefault(utf8(frame(name)), len(numbers)) for name in view.names]
    names = np.array(number_of, np.int32)[tree.function]
    node, parent, (code,) = fold(tree.parent, [names])
    sums = add_up(len(parent), node, np.maximum(weights, 0))
    _, codes, offsets, texts = Texts(list(numbers)).part(code)
    begin = 0
    while begin < len(parent):
        lines, begin = _core.collapsed_stacks(parent, sums, codes, offsets, texts, begin)
        out.write(lines)
    if view.loss:
        options.notes.append(f"with loss: {view.loss}")
