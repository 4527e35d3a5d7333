"""speedscope's JSON: an evented profile for each thread, and sampled profiles of bytes."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._tree import Tree
from ._view import Texts, json_text

if TYPE_CHECKING:
    from . import Options
    from ._view import View

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_MEMORY = {"allocated": "allocated", "at_peak": "live at the peak", "live": "live at the end"}


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the profiles. Frames are the functions, in the order of `Trace.functions`."""
    title = view.title + (f" (with loss: {view.loss})" if view.loss else "")
    out.write(
        f'{{"$schema":"{_SCHEMA}","exporter":"eventprof {_core.VERSION}","name":{json_text(title)},'
        '"activeProfileIndex":0,"shared":{"frames":[\n'.encode()
    )
    out.write(",\n".join(_frames(view)).encode())
    out.write(b"\n]},\n" + b'"profiles":[')
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
        for word, values in tree.own(*_MEMORY).items():
            if values.any():
                out.write(b"\n" if first else b",\n")
                first = False
                _write_memory(tree, out, _MEMORY[word], values)
    if first:
        # The viewer needs at least one profile.
        out.write(
            b'\n{"type":"evented","name":"nothing was called","unit":"nanoseconds",'
            b'"startValue":0,"endValue":%d,"events":[]}' % view.trace.duration
        )
    out.write(b"\n]}\n")


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


def _write_memory(tree: Tree, out: IO[bytes], name: str, values: Any) -> None:
    stacks: list[list[int]] = []
    for parent, function in zip(tree.parent.tolist(), tree.function.tolist(), strict=True):
        stacks.append([*(stacks[parent] if parent >= 0 else ()), function])
    chosen = np.flatnonzero(values).tolist()
    weights = [int(values[node]) for node in chosen]
    samples = ",\n".join(str(stacks[node]).replace(" ", "") for node in chosen)
    out.write(
        f'{{"type":"sampled","name":{json_text(name)},"unit":"bytes","startValue":0,'
        f'"endValue":{sum(weights)},"samples":[\n{samples}],"weights":'
        f"{str(weights).replace(' ', '')}}}".encode()
    )
