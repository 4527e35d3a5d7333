"""speedscope's JSON: an evented profile for each thread, and sampled profiles of bytes.

With a weight: a sampled profile for each thread, in place of these.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from ._tree import Tree
from ._view import Texts, json_text

if TYPE_CHECKING:
    from ..tables.column import Array
    from . import Options
    from ._view import View

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"self": "nanoseconds", "waited": "nanoseconds", "calls": "none", "blocks": "none"}
_MEMORY = {"allocated": "allocated", "at_peak": "live at the peak", "live": "live at the end"}


class _Sums(NamedTuple):
    """A sampled profile: a figure of the nodes of a tree."""

    name: str
    tree: Tree
    values: Array
    unit: str


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the profiles. Frames are the functions, in the order of `Trace.functions`."""
    sums = _weigh(view, options.weight) if options.weight else None
    title = view.title + (f" (with loss: {view.loss})" if view.loss else "")
    out.write(
        f'{{"$schema":"{_SCHEMA}","exporter":"eventprof {_core.VERSION}","name":{json_text(title)},'
        '"activeProfileIndex":0,"shared":{"frames":[\n'.encode()
    )
    out.write(",\n".join(_frames(view)).encode())
    out.write(b"\n]},\n" + b'"profiles":[')
    first = not (_write_calls(view, out) if sums is None else _write_sums(sums, out, first=True))
    if first:
        # The viewer needs at least one profile.
        out.write(
            b'\n{"type":"evented","name":"nothing was called","unit":"nanoseconds",'
            b'"startValue":0,"endValue":%d,"events":[]}' % view.trace.duration
        )
    out.write(b"\n]}\n")


def _weigh(view: View, weight: str) -> list[_Sums]:
    """Return the sums of each thread."""
    tree = Tree(view, threads=True)
    values, unit = tree.weigh(weight), _UNITS.get(weight, "bytes")
    return [
        _Sums(
            f"{view.thread_names[max(thread, 0)]}: {weight}",
            tree,
            np.where(tree.thread == thread, values, 0),
            unit,
        )
        for thread in np.unique(tree.thread).tolist()
    ]


def _write_calls(view: View, out: IO[bytes]) -> bool:
    """Write the calls of each thread in order, and bytes by stack; False: there is nothing."""
    first = True
    heads = Texts(
        [
            b'{"type":"%c","frame":%d,"at":' % (letter, row)
            for row in range(len(view.names))
            for letter in b"OC"
        ]
    )
    for thread, steps in enumerate(view.steps):
        if len(steps):
            out.write(b"\n" if first else b",\n")
            first = False
            _write_thread(view, out, thread, steps, heads)
    if view.has_memory:
        tree = Tree(view)
        sums = [
            _Sums(_MEMORY[word], tree, values, "bytes")
            for word, values in tree.own(*_MEMORY).items()
        ]
        first = not _write_sums(sums, out, first=first)
    return not first


def _frames(view: View) -> list[str]:
    frames = []
    for name, file, line in zip(view.names, view.files, view.first_lines, strict=True):
        text = f'{{"name":{json_text(name)}'
        if file is not None:
            text += f',"file":{json_text(file)}'
        if line is not None:
            text += f',"line":{line}'
        frames.append(text + "}")
    return frames


def _write_thread(view: View, out: IO[bytes], thread: int, steps: Any, heads: Texts) -> None:
    name = json_text(view.thread_names[thread])
    out.write(f'{{"type":"evented","name":{name},"unit":"nanoseconds","events":['.encode())
    begin, last, separator = None, 0, b"\n"
    for part in steps.parts():
        view.tell(len(part))
        begin = max(int(view.start[part[0]]), 0) if begin is None else begin
        text, last = _core.speedscope_events(
            part, view.start, view.duration, view.function, heads.offsets, heads.bytes, last
        )
        out.write(separator)
        out.write(memoryview(text)[:-2])
        separator = b",\n"
    out.write(f'],"startValue":{begin},"endValue":{last}}}'.encode())


def _write_sums(profiles: list[_Sums], out: IO[bytes], *, first: bool) -> bool:
    """Write sampled profiles after what was written; False: nothing was, before or now."""
    for name, tree, values, unit in profiles:
        if not values.any():
            continue
        out.write(b"\n" if first else b",\n")
        first = False
        stacks: list[list[int]] = []
        for parent, function in zip(tree.parent.tolist(), tree.function.tolist(), strict=True):
            stacks.append([*(stacks[parent] if parent >= 0 else ()), function])
        chosen = np.flatnonzero(values).tolist()
        weights = [int(values[node]) for node in chosen]
        samples = ",\n".join(str(stacks[node]).replace(" ", "") for node in chosen)
        out.write(
            f'{{"type":"sampled","name":{json_text(name)},"unit":"{unit}","startValue":0,'
            f'"endValue":{sum(weights)},"samples":[\n{samples}],"weights":'
            f"{str(weights).replace(' ', '')}}}".encode()
        )
    return not first
