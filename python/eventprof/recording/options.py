"""The options of a recorder, and the facts about a run that are known before it begins."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import Any, NamedTuple

from .. import _core
from ..base import areas
from ..base.arguments import ALL_DOMAINS
from .events import KINDS, words_of_kinds


class Options(NamedTuple):
    """The checked options of a recorder."""

    kinds: int
    limit_bytes: int
    on_full: str
    threads: str
    backend: str
    clock: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    max_depth: int | None = None
    min_duration: int = 0
    output: str | None = None
    force: bool = False
    overhead: bool = False
    marks: bool = True
    gc: bool = False
    refs: bool = False
    audit: tuple[str, ...] = ()
    waits: bool = False
    hpy: bool = False
    archive: bool = False
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def events(self) -> tuple[str, ...]:
        """The words of the events."""
        return words_of_kinds(self.kinds)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of the allocator events."""
        return tuple(
            domain
            for domain in ALL_DOMAINS
            if any(row[5] == domain and self.kinds >> row[0] & 1 for row in KINDS)
        )


#: The pattern of the files of forked children, where `eventprof run` puts them into a folder
#: (files/family.py). None: beside the file of the process.
child_pattern: str | None = None


def path_patterns(output: str) -> tuple[bytes, bytes]:
    """Return the path patterns for the core: for this process and for forked children.

    In them %p stands for the process id, %% for a %, and %u for a number if the name is used.
    """
    host = os.uname().nodename.replace("%", "%%")

    def with_host(pattern: str) -> str:
        return re.sub("%[phu%]", lambda found: host if found[0] == "%h" else found[0], pattern)

    own = with_host(output)
    child = own if child_pattern is None else with_host(child_pattern)
    if child_pattern is None and "p" not in re.findall("%(.)", own):
        stem, suffix = os.path.splitext(own)
        child = f"{stem}-%p{suffix}"
    return os.fsencode(own), os.fsencode(child)


@cache
def boot_id() -> str | None:
    """Return the kernel's name of this boot, within which CLOCK_MONOTONIC is one clock; or None."""
    try:
        fd = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 64).decode("ascii", "replace").strip() or None
    finally:
        os.close(fd)


def ancestors() -> tuple[int, ...]:
    """Return the ids of the process above this one, of the one above that, and so on.

    A shell may be between two recorded processes. Only Linux tells more than the first.
    """
    found = [os.getppid()]
    while found[-1] > 1 and len(found) < _ANCESTORS_MAX:
        try:
            fd = os.open(f"/proc/{found[-1]}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            break
        try:
            text = os.read(fd, 512)
        finally:
            os.close(fd)
        # The name, in parentheses, may hold anything. After it: state, parent.
        words = text[text.rfind(b")") + 1 :].split()
        if len(words) < 2 or not words[1].isdigit():
            break
        found.append(int(words[1]))
    return tuple(found)


_ANCESTORS_MAX = 32


#: The room in a log file, in bytes of JSON; argv is shortened until everything fits.
_METADATA_LIMIT = 60_000


def encode_metadata(options: Options) -> bytes:
    """Return the facts about the run as JSON that fits into a log file."""
    import json  # here: other recorders would record it, also at the start of this one

    metadata = {**describe_run(options), "ancestors": ancestors()}
    if uses_areas(options):
        metadata["areas"] = areas.folders()
    encoded = json.dumps(metadata, default=str).encode()
    if len(encoded) > _METADATA_LIMIT:
        metadata["argv"] = [*metadata["argv"][:1], "..."]
        encoded = json.dumps(metadata, default=str).encode()
    return encoded[:_METADATA_LIMIT]


def uses_areas(options: Options) -> bool:
    """Return whether a filter names an area, such as the standard library."""
    return not {*options.include, *options.exclude}.isdisjoint(areas.WORDS)


def describe_run(options: Options) -> dict[str, Any]:
    """Return the facts about a run that are known before it begins: options, program, machine."""
    system = os.uname()
    # Without an import, which running recorders would record: a measurement has imported it.
    costs = sys.modules.get(f"{__package__}.costs")
    known = None if costs is None else costs.known(**measured_as(options))
    return {
        **({} if known is None else {"overhead": known.as_dict()}),
        "options": {
            "events": options.events,
            "domains": options.domains,
            "buffer": options.limit_bytes,
            **{name: getattr(options, name) for name in Options._fields[2:] if name != "labels"},
        },
        **({"labels": dict(options.labels)} if options.labels else {}),
        "eventprof": _core.VERSION,
        "python": f"{sys.implementation.name} {sys.version.split()[0]}",
        "gil": has_gil(),
        "platform": f"{system.sysname} {system.release} {system.machine}",
        "hostname": system.nodename,
        "boot": boot_id(),
        "argv": _command(),
    }


def _command() -> tuple[str, ...]:
    """Return the program and its arguments; with -m and -c what these were given, too."""
    given = tuple(getattr(sys, "argv", ()))
    # Until the module is found, or the code runs, sys.argv says no more than the option.
    if given[:1] not in (("-m",), ("-c",)):
        return given
    rest, command = given[1:], tuple(getattr(sys, "orig_argv", ()))
    before = command[: len(command) - len(rest)]
    if len(before) < 2 or command[len(before) :] != rest:
        return given
    joined = re.match(f"-[a-zA-Z]*{given[0][1]}(.+)", before[-1], re.DOTALL)
    what = joined[1] if joined and not before[-2].endswith(given[0][1]) else before[-1]
    return (given[0], what, *rest)


def measured_as(options: Options) -> dict[str, Any]:
    """Return the arguments of `overhead` that fit a recorder."""
    words = options.events
    return {
        "calls": "call" in words,
        "c_calls": "c_call" in words,
        "memory": bool(options.domains),
        "backend": options.backend,
        "clock": options.clock,
    }


def has_gil() -> bool:
    """Whether the GIL is on: always, except in a free-threaded build without -X gil=1."""
    ask = getattr(sys, "_is_gil_enabled", None)
    return ask is None or bool(ask())


def has_jit() -> bool:
    """Whether the JIT of the interpreter (3.14 or later) is on."""
    jit = getattr(sys, "_jit", None)
    return jit is not None and bool(jit.is_enabled())
