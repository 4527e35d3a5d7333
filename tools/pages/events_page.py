"""doc/events.rst: which events there are, and on which interpreters they come from where.

Every interpreter knows what it has itself. test_events_page.py compares that with the page; where it is no longer
right, this writes it, once with each interpreter whose build is on the path:

    python tools/pages/events_page.py
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from eventprof import _core

PAGE = Path(__file__).parents[2] / "doc/events.rst"

#: What an event says, by its word.
MEANING = {row[2]: row[8] for row in reversed(_core.kind_table()) if row[8]}

#: What cannot be asked of an interpreter, because something must be installed or loaded first.
GIVEN = {
    "hpy": sys.version_info < (3, 14),
    "native": sys.platform == "linux",
}
NEEDS = {name: hook for name, _, hook in _core.source_table()}
#: Of these, one is chosen by ``backend=``.
BACKENDS = ("monitoring", "profile", "trace")
SIZES_OF_FORMS = {"call": "8", "alloc": "16", "free": "16", "point": "8", "value": "16"}

HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}{'' if HAS_GIL else 't'}"


def _starts(source: str, kinds: int) -> bool:
    recorder = _core.Recorder(kinds=kinds, backend=source if source in BACKENDS else "auto")
    try:
        recorder.start()
    except _core.UnsupportedError:
        return False
    recorder.stop()
    return True


def has(source: str, kinds: int) -> int:
    """Of a source's kinds, those that it gives here."""
    if source in GIVEN:
        return kinds if GIVEN[source] else 0
    if (source == "monitoring" and sys.version_info < (3, 12)) or (
        source in ("profile", "trace") and not HAS_GIL
    ):
        return 0
    if _starts(source, kinds):
        return kinds
    each = [1 << number for number in range(128) if kinds >> number & 1]
    return sum(kind for kind in each if _starts(source, kind))


def facts() -> dict[str, list[str]]:
    """The sources of each event, of this interpreter."""
    sources = [(name, has(name, kinds)) for name, kinds, _ in _core.source_table()]
    found: dict[str, list[str]] = {}
    for number, _, word, *_ in _core.kind_table():
        names = found.setdefault(word, [])
        names += [name for name, kinds in sources if kinds >> number & 1 and name not in names]
    return {word: names for word, names in found.items() if names}


def read() -> dict[str, dict[str, list[str]]]:
    """What the page says: the versions of each source of each event."""
    found: dict[str, dict[str, list[str]]] = {}
    if PAGE.exists():
        for word, cell in re.findall(
            r"^   \* - ``(\w+)``\n(?:     -.*\n)+?     - from (.*)$",
            PAGE.read_text(),
            re.MULTILINE,
        ):
            found[word] = {
                source: versions.split(", ")
                for source, versions in re.findall(r"(\w+) \(([^)]*)\)", cell)
            }
    return found


def of_version(known, version: str) -> dict[str, list[str]]:
    """What the page says of one interpreter."""
    found = {
        word: [source for source, versions in by_source.items() if version in versions]
        for word, by_source in known.items()
    }
    return {word: sources for word, sources in found.items() if sources}


def versions_of(known) -> list[str]:
    """Every interpreter that the page knows."""
    every = {v for by_source in known.values() for versions in by_source.values() for v in versions}
    return sorted(every, key=_order)


def _order(version: str) -> tuple[int, bool]:
    return int(version.rstrip("t").partition(".")[2]), version.endswith("t")


def merge(known, own) -> dict[str, dict[str, list[str]]]:
    """The page's facts, with those of this interpreter in place of what it said of it."""
    merged: dict[str, dict[str, list[str]]] = {}
    for _, _, word, *_ in _core.kind_table():
        sources = {name for name in known.get(word, {})} | {*own.get(word, [])}
        for source, *_ in _core.source_table():
            if source not in sources:
                continue
            versions = {v for v in known.get(word, {}).get(source, []) if v != VERSION}
            if source in own.get(word, []):
                versions.add(VERSION)
            if versions:
                merged.setdefault(word, {})[source] = sorted(versions, key=_order)
    return merged


def render(known) -> str:
    rows = {row[2]: row for row in reversed(_core.kind_table())}
    sources = [name for name in NEEDS if any(name in by for by in known.values())]
    out = [
        "Events",
        "======",
        "",
        ".. Written by tools/pages/events_page.py; change that.",
        "",
        *textwrap.wrap(
            "An event is one thing that happened at one time on one thread. The table has every event that "
            "this version can record: its meaning, the bytes of its record, whether it opens or closes a row "
            "of ``calls`` or ``allocations``, and the hooks that report it, with the versions of CPython. "
            "``3.13t`` is a free-threaded build. :doc:`pypy` has the events of PyPy. The hooks are:",
            118,
        ),
        "",
    ]
    for name in sources:
        out += [f"**{name}**", f"    {NEEDS[name]}"]
    out += [
        "",
        *textwrap.wrap(
            "If monitoring, profile and trace all report an event, ``backend=`` chooses one of them. The "
            "default is monitoring, where the interpreter has it.",
            118,
        ),
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :class: longtable",
        "",
        "   * - event",
        "     - meaning",
        "     - bytes",
        "     - pairing",
        "     - comes from (CPython)",
    ]
    for word, by_source in known.items():
        _, _, _, _, form, _, pairing, *_ = rows[word]
        out += [
            f"   * - ``{word}``",
            f"     - {MEANING[word]}",
            f"     - {SIZES_OF_FORMS[form]}",
            f"     - {'' if pairing == 'neither' else pairing}".rstrip(),
            "     - from "
            + ", ".join(f"{name} ({', '.join(versions)})" for name, versions in by_source.items()),
        ]
    return "\n".join([*out, ""])


def main() -> None:
    PAGE.write_text(render(merge(read(), facts())))
    print(f"{PAGE.name}: CPython {VERSION}")


if __name__ == "__main__":
    main()
