"""Files of pstats: sums by function, as cProfile and other tools write them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from . import Unreadable
from ._build import SAMPLED, Builder, of_samples, statistics
from ._escapes import unescaped

if TYPE_CHECKING:
    from ..tables.table import Table

_REF = 0x80
#: Digits of 15 bits of a number. Counts of calls need 5; of more, the time to read them is squared.
_DIGITS_MAX = 100
#: profiling.sampling writes this key. Its other keys have the executing line, not the first line.
_SAMPLED = ("__sampled__",)


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder. The file has functions and no events."""
    stats = _Reader(data).read()
    if not isinstance(stats, dict):
        raise Unreadable("it is no dict")
    if stats.pop(_SAMPLED, False):
        builder.statistics = _of_samples(stats, builder)
        return
    rows: list[tuple[str, str | None, str | None, int | None, str]] = []
    sums: dict[str, list[int] | None] = {
        "calls": [], "recursive": [], "total": [], "self": [], "resumes": [],
    }  # fmt: skip
    texts = unescaped({text for file, _, name in stats for text in (file, name)})
    for (file, line, name), (primitive, calls, own, total, *_) in stats.items():
        if file == "~":
            rows.append((_bare(texts[name]), None, None, None, "c"))
        else:
            rows.append((texts[name], None, texts[file], line, "python"))
        for key, value in (
            ("calls", calls),
            ("recursive", calls - primitive),
            ("total", round(total * 1e9)),
            ("self", round(own * 1e9)),
            ("resumes", 0),
        ):
            column = sums[key]
            assert column is not None
            column.append(value)
    if any(calls < 0 for calls in sums["calls"] or ()):
        # pyinstrument samples, and writes -1 for the calls that it did not count.
        sums.update(calls=None, recursive=None, resumes=None)
        builder.lacks.append("counts of calls: it was sampled")
        builder.loss_unknown = SAMPLED
    builder.lacks += ["events", "calls", "threads", "allocations", "order", "exceptions"]
    builder.statistics = statistics(rows, sums)


def _of_samples(stats: dict[Any, Any], builder: Builder) -> Table:
    """Make the table of functions from profiling.sampling's sums by function and line."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for (file, _, name), (_, _, own, total, *_) in stats.items():
        before = sums.get((file, name), (0, 0))
        sums[file, name] = before[0] + round(own * 1e9), before[1] + round(total * 1e9)
    builder.metadata["recorded_by"] = "profiling.sampling"
    builder.loss_unknown = SAMPLED
    return of_samples(builder, sums)


def _bare(name: str) -> str:
    """Return the bare name of a builtin. cProfile writes <built-in method builtins.len>."""
    for head in ("<built-in method ", "<method "):
        if name.startswith(head) and name.endswith(">"):
            return name[len(head) : -1]
    return name


class _Reader:
    """Reads the few types of such a file. The module marshal may crash with damaged files."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._refs: list[Any] = []

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) != size:
            raise Unreadable(f"it ends at offset {self._at}, in the middle of a value")
        self._at += size
        return found

    def _number(self, layout: str) -> Any:
        return struct.unpack("<" + layout, self._take(struct.calcsize("<" + layout)))[0]

    def read(self, depth: int = 0) -> Any:
        """Read the next object."""
        offset = self._at
        code = self._take(1)[0]
        type_ = chr(code & ~_REF)
        if depth > 16:
            raise Unreadable(f"offset {offset}: it is nested too deeply")
        if type_ == "r":
            return self._refs[self._number("I")]
        place = -1
        if code & _REF:
            place = len(self._refs)
            self._refs.append(None)
        value = self._value(type_, offset, depth)
        if place >= 0:
            self._refs[place] = value
        return value

    def _value(self, type_: str, offset: int, depth: int) -> Any:
        if type_ == "i":
            return self._number("i")
        if type_ == "g":
            return self._number("d")
        if type_ in "zZ":
            return self._take(self._take(1)[0]).decode("ascii")
        if type_ in "aA":
            return self._take(self._number("I")).decode("ascii")
        if type_ in "ut":
            return self._take(self._number("I")).decode("utf-8", "surrogatepass")
        if type_ in "()":
            count = self._take(1)[0] if type_ == ")" else self._number("I")
            return tuple(self.read(depth + 1) for _ in range(count))
        if type_ == "{":
            return self._dict(depth)
        if type_ == "l":
            return self._long()
        if type_ in "NTF":
            return {"N": None, "T": True, "F": False}[type_]
        raise Unreadable(f"offset {offset}: the type {type_!r} is not used in such files")

    def _dict(self, depth: int) -> dict[Any, Any]:
        found = {}
        while self._data[self._at : self._at + 1] != b"0":
            offset = self._at
            key = self.read(depth + 1)
            # Tuples in tuples may be made of references: then the hash of a few bytes takes hours.
            if not isinstance(key, tuple) or any(isinstance(part, tuple) for part in key):
                raise Unreadable(f"offset {offset}: a key that is not a file, a line and a name")
            found[key] = self.read(depth + 1)
        self._at += 1
        return found

    def _long(self) -> int:
        count = self._number("i")
        if abs(count) > _DIGITS_MAX:
            raise Unreadable(f"offset {self._at - 4}: a number of {abs(count):,} digits")
        value = 0
        for index in range(abs(count)):
            value |= self._number("H") << 15 * index
        return -value if count < 0 else value
