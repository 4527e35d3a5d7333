"""record(): checks what it is asked for, and makes the recorder.

Starting and stopping are the extension's, so that a window begins and ends inside one function of
ours. Code of this package is never recorded.
"""

from __future__ import annotations

import functools
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

from . import _core, areas
from ._words import did_you_mean

if TYPE_CHECKING:
    from .trace import Trace

_Function = TypeVar("_Function", bound=Callable[..., Any])

Domain: TypeAlias = Literal["raw", "mem", "obj"]
OnFull: TypeAlias = Literal["overwrite", "stop", "grow"]
Threads: TypeAlias = Literal["all", "current"]
Backend: TypeAlias = Literal["auto", "monitoring", "profile", "trace"]
Clock: TypeAlias = Literal["auto", "counter", "monotonic"]

DOMAINS = ("raw", "mem", "obj")
#: Of them and of other allocators: of NumPy's arrays, of C libraries.
ALL_DOMAINS = (*DOMAINS, "numpy", "libc")
ON_FULL = ("overwrite", "stop", "grow")  # the order of the core's ep_on_full
THREADS = ("all", "current")
BACKENDS = ("auto", "monitoring", "profile", "trace")
CLOCKS = ("auto", "counter", "monotonic")

_KINDS = [row for row in _core.kind_table() if row[2]]


def _words_of_groups(*groups: str) -> tuple[str, ...]:
    """Give the words of the kinds of some groups (events.def), each once."""
    return tuple(dict.fromkeys(row[2] for row in _KINDS if row[7] in groups))


#: Events that have a flag of record() of their own, by that.
_OF_CALLS = _words_of_groups("python")
_OF_C_CALLS = _words_of_groups("c")
#: What happens inside of functions, by the flag of record() that asks for it.
INSIDE = {
    "lines": _words_of_groups("line"),
    "instructions": _words_of_groups("instruction"),
    "exceptions": _words_of_groups("exception"),
    "branches": _words_of_groups("branch"),
}
_INSIDE_WORDS = tuple(word for words in INSIDE.values() for word in words)
#: Of them, what a trace hook sees.
_TRACED_WORDS = ("line", "instruction", "raise", "stop_iteration")
#: What has nothing to do with calls and blocks, by its flag.
_BESIDE = {
    "marks": _words_of_groups("span", "mark"),
    "gc": _words_of_groups("gc"),
    "refs": _words_of_groups("object"),
    "audit": _words_of_groups("audit"),
    "hpy": _words_of_groups("hpy"),
}
_BLOCK_WORDS = _words_of_groups("block")
_CODE_WORDS = (*_OF_CALLS, *_OF_C_CALLS, *_INSIDE_WORDS)
#: Of what filters of functions are about.
_CODE_KINDS = sum(1 << row[0] for row in _KINDS if row[2] in _CODE_WORDS)
EVENTS = tuple(dict.fromkeys(row[2] for row in _KINDS))
#: What is recorded without asking.
_DEFAULT_EVENTS = tuple(
    word for word in EVENTS if word in (*_OF_CALLS, *_OF_C_CALLS, *_BLOCK_WORDS, *_BESIDE["marks"])
)

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE_UNITS = "B, kB, MB, GB, TB, KiB, MiB, GiB and TiB"
_SIZE = re.compile(r"\s*(\d[\d_]*(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_TIME = re.compile(r"\s*(\d[\d_]*(?:\.\d+)?|\.\d+)\s*([a-zµ]*)\s*", re.IGNORECASE)
_MAX_DURATION = 2**62  # ns; more than any run takes, and the core's int64 holds it


#: Whether record() loads what traces are made of, and NumPy. The command line puts that off:
#: the program that it runs may never need it, and is to find the process as python leaves it.
load_tables = True

# ---- Arguments: each function names the argument, what it was, and what is allowed -------------


def _is_bool(value: object) -> bool:
    # What NumPy has of them counts, too: without NumPy there is none, nor while it is being loaded.
    return isinstance(value, (bool, getattr(sys.modules.get("numpy"), "bool_", bool)))


def _flag(name: str, value: object) -> bool:
    if _is_bool(value):
        return bool(value)
    raise TypeError(f"{name} must be True or False, not {value!r}")


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in allowed:
        return value
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"{name} must be {_one_of(allowed)}, not {value!r}{did_you_mean(value, allowed)}")


def _one_of(allowed: tuple[str, ...]) -> str:
    *most, last = map(repr, allowed)
    return f"{', '.join(most)} or {last}"


def _words(name: str, value: object, allowed: tuple[str, ...]) -> frozenset[str]:
    if isinstance(value, str):
        raise TypeError(f"{name} takes several words: write {name}=[{value!r}], not {value!r}")
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} must hold words of {_one_of(allowed)}, not {value!r}")
    words = list(value)
    for word in words:
        if not isinstance(word, str) or word not in allowed:
            error = ValueError if isinstance(word, str) else TypeError
            raise error(
                f"{name} may hold {_one_of(allowed)}, not {word!r}{did_you_mean(word, allowed)}"
            )
    return frozenset(words)


def _patterns(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"{name} takes several patterns: write {name}=[{value!r}], not {value!r}")
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} must hold patterns, as ['json.*', '*/site-packages/*'], "
                        f"not {value!r}")  # fmt: skip
    patterns = tuple(value)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"{name} may hold str, not {pattern!r}")
        if not pattern or "\0" in pattern:
            raise ValueError(f"{name} may not hold {pattern!r}: it matches nothing")
    return patterns


def _output(value: object) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"output must be a path, not {value!r}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"output must be a path as text, not {value!r}")
    if not path or "\0" in path:
        raise ValueError(f"output must be a path, not {value!r}")
    for found in re.finditer("%(.?)", path):
        if found[1] not in ("p", "h", "%"):
            raise ValueError(f"output may hold %p, %h and %%, not {found[0]!r} as in {path!r}")
    # Absolute: the program may go elsewhere before it forks.
    return os.path.abspath(path)


def _path_patterns(output: str) -> tuple[bytes, bytes]:
    """Give the patterns of the core, which knows %p and %%: of this process, and of children."""
    host = os.uname().nodename.replace("%", "%%")
    own = re.sub("%[ph%]", lambda found: host if found[0] == "%h" else found[0], output)
    child = own
    if "p" not in re.findall("%(.)", own):
        stem, suffix = os.path.splitext(own)
        child = f"{stem}-%p{suffix}"
    return os.fsencode(own), os.fsencode(child)


#: What a log file has room for, in bytes of JSON; argv is cut until the rest fits.
_METADATA_LIMIT = 60_000


def _encode_metadata(options: Options) -> bytes:
    # Not in the recorder's start: importing it is seen by other recorders.
    import json

    metadata = describe_run(options)
    if _uses_areas(options):
        metadata["areas"] = areas.folders()
    encoded = json.dumps(metadata, default=str).encode()
    if len(encoded) > _METADATA_LIMIT:
        metadata["argv"] = [*metadata["argv"][:1], "..."]
        encoded = json.dumps(metadata, default=str).encode()
    return encoded[:_METADATA_LIMIT]


def _uses_areas(options: Options) -> bool:
    return not {*options.include, *options.exclude}.isdisjoint(areas.WORDS)


def describe_run(options: Options) -> dict[str, Any]:
    """Give what is known of a run before it begins: options, program, interpreter, machine."""
    system = os.uname()
    # Not by an import, which recorders that run would see: who measured it has imported it.
    costs = sys.modules.get(f"{__package__}.costs")
    known = None if costs is None else costs.known(**_measured_as(options))
    return {
        **({} if known is None else {"overhead": known.as_dict()}),
        "options": {
            "events": options.events,
            "domains": options.domains,
            "buffer": options.limit_bytes,
            **{name: getattr(options, name) for name in Options._fields[2:]},
        },
        "eventprof": _core.VERSION,
        "python": f"{sys.implementation.name} {sys.version.split()[0]}",
        "gil": _has_gil(),
        "platform": f"{system.sysname} {system.release} {system.machine}",
        "hostname": system.nodename,
        "argv": _command(),
    }


def _command() -> tuple[str, ...]:
    """Give the program and its arguments; with -m and -c what these were given, too."""
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


def _is_loading(module: str) -> bool:
    """Whether a module is being imported: by code below, where a signal's handler calls us."""
    loaded = sys.modules.get(module)
    return bool(getattr(getattr(loaded, "__spec__", None), "_initializing", False))


@functools.cache
def _automatic_buffer() -> int:
    """Give an eighth of the memory that is available, in whole MiB; 64 MiB at least."""
    available = _available_memory()
    return max(available // 8 >> 20 << 20, 64 << 20)


def _available_memory() -> int:
    """Give the bytes that this process could still take: the system's, and what its group may."""
    try:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        available = 0
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    available = int(line.split()[1]) << 10
                    break
        # Of a container: version 2 of cgroups.
        with open("/sys/fs/cgroup/memory.max", "rb") as file:
            most = int(file.read())
        with open("/sys/fs/cgroup/memory.current", "rb") as file:
            available = min(available, max(most - int(file.read()), 0))
    except (OSError, ValueError):
        pass  # there is no such file, or no limit
    return available


def parse_size(name: str, value: object) -> int:
    """Read a size in bytes.

    Parameters
    ----------
    name : str
        The argument, for the message.
    value : int or str
        Bytes, or a number and a unit: B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, in any case.

    Returns
    -------
    int
        Bytes, 1 or more.

    Raises
    ------
    TypeError
        It is neither a whole number nor text.
    ValueError
        It is less than 1, or the text cannot be read.
    MemoryError
        It is more than the machine has.
    """
    form = "must be bytes as an int, or text as '64 MiB'"
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            units = f"; there is no unit {found[2]!r}, but {_SIZE_UNITS}" if found else ""
            raise ValueError(f"{name} {form}, not {value!r}{units}")
        size = int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
    elif _is_bool(value):
        raise TypeError(f"{name} {form}, not {value!r}")
    else:
        try:
            size = operator.index(cast(Any, value))
        except TypeError:
            raise TypeError(f"{name} {form}, not {value!r}") from None
    if size < 1:
        raise ValueError(f"{name} must be 1 byte or more, not {value!r}")
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = sys.maxsize
    if size > memory > 0:
        raise MemoryError(
            f"{name}={value!r}: more than this machine's memory, {memory / 2**30:.1f} GiB"
        )
    return size


def _no_time_unit(found: re.Match[str] | None) -> str:
    """Give the end of a message about a time whose unit is missing or is none."""
    if found is None:
        return ""
    if not found[2]:
        return f": a unit is missing, as in '{found[1]} us'; there are ns, us, ms and s"
    return f"; there is no unit {found[2]!r}, but ns, us, ms and s"


def parse_duration(name: str, value: object) -> int:
    """Read a duration in nanoseconds.

    Parameters
    ----------
    name : str
        The argument, for the message.
    value : int or str
        Nanoseconds, or a number and a unit: ns, us, ms or s, in any case.

    Returns
    -------
    int
        Nanoseconds, 0 or more.

    Raises
    ------
    TypeError
        It is neither a whole number nor text.
    ValueError
        It is negative, or more than 146 years, or the text cannot be read.
    """
    form = "must be nanoseconds as an int, or text as '10 us'"
    if isinstance(value, str):
        found = _TIME.fullmatch(value.replace("\N{GREEK SMALL LETTER MU}", "µ"))
        unit = None if found is None else _TIMES.get(found[2].lower())
        if found is not None and not found[2] and float(found[1]) == 0:
            unit = 1  # of nothing, no unit is needed
        if found is None or unit is None:
            raise ValueError(f"{name} {form}, not {value!r}{_no_time_unit(found)}")
        time = int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
    elif _is_bool(value):
        raise TypeError(f"{name} {form}, not {value!r}")
    else:
        try:
            time = operator.index(cast(Any, value))
        except TypeError:
            raise TypeError(f"{name} {form}, not {value!r}") from None
    if not 0 <= time <= _MAX_DURATION:
        raise ValueError(f"{name} must be between 0 and {_MAX_DURATION} ns, not {value!r}")
    return time


def _depth(value: object) -> int | None:
    if value is None:
        return None
    if not _is_bool(value):
        try:
            depth = operator.index(cast(Any, value))
        except TypeError:
            pass
        else:
            if 0 <= depth < 2**32 - 1:
                return depth
            raise ValueError(f"max_depth must be 0 or more (and fit 32 bits), not {value!r}")
    raise TypeError(f"max_depth must be a whole number, or None, not {value!r}")


def _words_of(kinds: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row[2] for row in _KINDS if kinds >> row[0] & 1))


def _need_ends(kinds: int, max_depth: int | None, min_duration: int) -> None:
    """Check that calls and their ends are recorded, where that is what a limit goes by."""
    name = "max_depth" if max_depth is not None else "min_duration"
    if max_depth is None and not min_duration:
        return
    words = set(_words_of(kinds))
    python, c = set(_OF_CALLS), set(_OF_C_CALLS)
    missing = [word for some in (python, c) if words & some for word in sorted(some - words)]
    if missing or not words & (python | c):
        what = f"events lacks {', '.join(missing)}" if missing else "no calls are recorded"
        raise ValueError(f"{name} goes by calls and their ends, and {what}")


def _numpy(value: object) -> bool | None:
    """Give what is asked for of NumPy's arrays; None: as the rest of the memory."""
    if isinstance(value, str) and value == "auto":
        return None
    if _is_bool(value):
        return bool(value)
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"numpy must be 'auto', True or False, not {value!r}")


def _need_numpy() -> None:
    try:
        import numpy
    except ImportError as error:
        raise _core.UnsupportedError(
            f"numpy=True needs NumPy 2, which does not load here ({error}); install it, or leave "
            "numpy='auto'"
        ) from None
    if int(numpy.__version__.partition(".")[0]) < 2:
        raise _core.UnsupportedError(
            f"numpy=True needs NumPy 2, and this is {numpy.__version__}; upgrade it, or leave "
            "numpy='auto'"
        )


def _audit(value: object) -> tuple[str, ...]:
    """Give the patterns of audit events; of all, the one that matches all."""
    if _is_bool(value):
        return ("*",) if value else ()
    return _patterns("audit", value)


def _domains(memory: object) -> frozenset[str]:
    if _is_bool(memory):
        return frozenset(DOMAINS if memory else ())
    if isinstance(memory, str) or not isinstance(memory, Iterable):
        raise TypeError(f"memory must be True, False, or some of {_one_of(DOMAINS)} as in "
                        f"memory=['obj'], not {memory!r}")  # fmt: skip
    return _domain_words(memory, "numpy=True and native=True ask for the others")


def _domain_words(memory: Iterable[object], others: str) -> frozenset[str]:
    words = list(memory)
    for word in words:
        if isinstance(word, str) and word in ALL_DOMAINS and word not in DOMAINS:
            raise ValueError(f"memory may hold {_one_of(DOMAINS)}, not {word!r}: {others}")
    return _words("memory", words, DOMAINS)


class _Asked:
    """The arguments of record() that say what is recorded, each by itself checked.

    No named tuple: making one is seen by recorders that run.
    """

    calls: bool
    c_calls: bool
    memory: object  # as it was given
    domains: frozenset[str]
    numpy: bool | None
    native: bool
    inside: dict[str, bool]
    beside: dict[str, Any]  # audit: patterns
    audit: object  # as it was given


def _event_words(events: object) -> frozenset[str]:
    if not isinstance(events, str) and isinstance(events, Iterable):
        events = list(events)
        more = {"calls": _OF_CALLS, "c_calls": _OF_C_CALLS, "memory": _BLOCK_WORDS, **INSIDE,
                **_BESIDE, "span": _words_of_groups("span")}  # fmt: skip
        for word in events:
            if isinstance(word, str) and word not in EVENTS and word in more:
                raise ValueError(f"events may hold words of single events, not {word!r}: put "
                                 f"{', '.join(map(repr, more[word]))} into it")  # fmt: skip
    return _words("events", events, EVENTS)


def _check_agreement(words: frozenset[str], asked: _Asked) -> None:
    """Check that no other argument says something else than `events`."""
    for flag, of_flag in (*INSIDE.items(), *_BESIDE.items()):
        given = asked.inside.get(flag, asked.beside.get(flag))
        if given and flag not in ("marks", "audit"):
            raise ValueError(
                f"events says exactly what is recorded, and {flag} is given, too: put "
                f"{', '.join(map(repr, of_flag))} into events, or leave events out"
            )
    if asked.beside["audit"] and "audit" not in words:
        raise ValueError("audit= says which audit events are recorded, and events says that none "
                         "are: put 'audit' into events, or leave audit out")  # fmt: skip
    some_domain = not _is_bool(asked.memory) or asked.memory or asked.numpy or asked.native
    for argument, of_argument, is_off in (
        ("calls=False", _OF_CALLS, not asked.calls),
        ("c_calls=False", _OF_C_CALLS, not asked.c_calls),
        ("memory=False", _BLOCK_WORDS, not some_domain),
        ("marks=False", _BESIDE["marks"], not asked.beside["marks"]),
        ("audit=False", _BESIDE["audit"], _is_bool(asked.audit) and not asked.audit),
    ):
        named = [word for word in of_argument if word in words]
        if is_off and named:
            raise ValueError(f"events holds {', '.join(map(repr, named))}, and {argument} says "
                             "that there are none: leave one of both out")  # fmt: skip
    of_blocks = {"memory": not _is_bool(asked.memory), "numpy": asked.numpy, "native": asked.native}
    for flag, is_on in of_blocks.items():
        if is_on and words.isdisjoint(_BLOCK_WORDS):
            raise ValueError(
                f"{flag} says whose blocks are recorded, and events says that none are: put "
                f"{_one_of(_BLOCK_WORDS)} into events, or leave {flag} out"
            )


def _domains_of(asked: _Asked) -> frozenset[str]:
    more = {word for word, is_on in (("numpy", asked.numpy), ("libc", asked.native)) if is_on}
    if asked.numpy is None and asked.domains == frozenset(DOMAINS):
        more.add("numpy")
    return asked.domains | more


def _chosen(words: frozenset[str], domains: frozenset[str]) -> int:
    # A span that does not nest is two flows (source_marks.c).
    with_flow = words | {"flow"} if words & {"span_begin", "span_end"} else words
    return sum(1 << row[0] for row in _KINDS if row[2] in with_flow and row[5] in (None, *domains))


def _kinds(events: object, asked: _Asked, backend: str) -> int:
    """Give the kinds asked for, as bits."""
    if events is not None:
        words = _event_words(events)
        if not words:
            raise ValueError(f"nothing to record: events must hold some of {_one_of(EVENTS)}")
        _check_agreement(words, asked)
        return _chosen(words, _domains_of(asked))
    words = frozenset(
        word
        for of_flag, is_on in (
            (_OF_CALLS, asked.calls),
            (_OF_C_CALLS, asked.c_calls),
            (_BLOCK_WORDS, True),
            *((INSIDE[name], is_on) for name, is_on in asked.inside.items()),
            *((_BESIDE[name], value) for name, value in asked.beside.items()),
        )
        for word in (of_flag if is_on else ())
    )
    if _hook_inside(backend) == "trace":
        words -= {"reraise", "handled"}  # of exceptions, what can be had
    kinds = _chosen(words, _domains_of(asked))
    if not kinds:
        raise ValueError(
            f"nothing to record: one of calls, c_calls, memory, {', '.join(INSIDE)}, numpy, "
            "native, marks, gc, refs, hpy and audit must be on"
        )
    return kinds


def _hook_inside(backend: str) -> str:
    """Say which hook tells what happens inside of functions."""
    if backend != "auto":
        return backend
    return "monitoring" if sys.version_info >= (3, 12) else "trace"


def _need_support(kinds: int, backend: str) -> None:
    """Check that the hook sees what is wanted of the inside of functions."""
    hook = _hook_inside(backend)
    words = [word for word in _words_of(kinds) if word in _INSIDE_WORDS]
    seen = {"profile": (), "trace": _TRACED_WORDS}.get(hook, _INSIDE_WORDS)
    missing = [word for word in words if word not in seen]
    if not missing:
        return
    can = ["monitoring"]
    if all(word in _TRACED_WORDS for word in missing):
        can.append("trace")
    here = [name for name in can if name != "monitoring" or sys.version_info >= (3, 12)]
    how = (
        f"backend={_one_of(tuple(here))} can"
        if here
        else "sys.monitoring can, which needs Python 3.12; this is "
        f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    raise _core.UnsupportedError(f"the {hook} hook does not see {', '.join(missing)}: {how}")


class Options(NamedTuple):
    """What a recorder was asked for, checked."""

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
    hpy: bool = False

    @property
    def events(self) -> tuple[str, ...]:
        """The words of the events."""
        return _words_of(self.kinds)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of the allocator events."""
        return tuple(
            domain
            for domain in ALL_DOMAINS
            if any(row[5] == domain and self.kinds >> row[0] & 1 for row in _KINDS)
        )


def record(
    *,
    calls: bool = True,
    c_calls: bool = True,
    memory: bool | Iterable[Domain] = True,
    numpy: bool | Literal["auto"] = "auto",
    native: bool = False,
    lines: bool = False,
    instructions: bool = False,
    exceptions: bool = False,
    branches: bool = False,
    events: Iterable[str] | None = None,
    buffer: int | str = "auto",
    on_full: OnFull = "overwrite",
    threads: Threads = "all",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    max_depth: int | None = None,
    min_duration: int | str = 0,
    backend: Backend = "auto",
    clock: Clock = "auto",
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    overhead: bool = False,
    marks: bool = True,
    gc: bool = False,
    refs: bool = False,
    audit: bool | Iterable[str] = (),
    hpy: bool = False,
) -> Recorder:
    """Make a recorder: a context manager, a decorator, or something to start and stop.

    Parameters
    ----------
    calls : bool
        Record calls of Python functions and how they end.
    c_calls : bool
        Record calls of functions that are not in Python.
    memory : bool or iterable of {'raw', 'mem', 'obj'}
        Record what Python's allocators give out and take back; of these domains only.
    numpy : {'auto', True, False}
        Record the data of NumPy's arrays, as domain ``numpy``, on every NumPy 2. With 'auto' that
        is done together with all three domains of `memory`, and begins when the program loads
        NumPy.
    native : bool
        Record what C libraries allocate, as domain ``libc``: by malloc and its relatives, and
        pages by mmap. Needs a library that is loaded before Python, as ``eventprof run --native``
        does; of Linux.
    lines : bool
        Record each line that begins to run, for `Trace.lines`.
    instructions : bool
        Record each instruction of the interpreter's that runs: 10 to 50 times as many events as
        calls.
    exceptions : bool
        Record where an exception is raised, in each function that it passes through; and, with
        monitoring, where it is raised again and handled; and where an iteration ended by one.
    branches : bool
        Record which way branches and jumps went; needs monitoring.
    events : iterable of str, optional
        Exactly these events, in place of what the flags for them say, and no more is asked of the
        interpreter: call, return, yield, resume, throw, unwind, c_call, c_return, c_exception;
        malloc, calloc, realloc, realloc_free, realloc_failed, free, whose domains `memory` still
        chooses (with `numpy` and `native`); line, instruction, raise, reraise, handled,
        stop_iteration, branch, jump; span_begin, span_end, mark, counter, flow; gc_start, gc_stop,
        gc_collected; create, destroy; audit, of which `audit` still chooses; hpy_call, hpy_return.
        Marks are among them only if they are named. A flag that says something else is an error.
    buffer : int or str
        Bytes that the recording may take, or text as ``"64 MiB"`` or ``"1.5 GB"``; rounded up to
        whole MiB. A call event takes 8 bytes, an allocation 16. With ``"auto"`` an eighth of the
        memory that was available when the process first asked, 64 MiB at least.
    on_full : {'overwrite', 'stop', 'grow'}
        What happens then: the oldest events go, the new ones go, or `buffer` is no limit.
    threads : {'all', 'current'}
        Every thread, or only the one that starts it.
    include, exclude : iterable of str
        Globs that say which functions' calls are recorded; each is matched against the module, the
        file, the qualified name, and module and qualified name with a dot between; one with a '/'
        against the file only. Two words are no globs: ``"stdlib"`` is all of the standard library,
        builtins included, ``"site-packages"`` all installed packages. `exclude` wins. A function
        that is not in Python goes with its caller. Allocator events are all kept. With
        monitoring, code that is left out is switched off in the interpreter: after its first call
        it costs nothing.
    max_depth : int, optional
        Leave out calls nested deeper than this. Counted, of the calls that `include` and `exclude`
        keep, from where each thread was when the recording began: with 0, what is called from
        there, and nothing below.
    min_duration : int or str
        Leave out calls that took less: nanoseconds, or text as ``"10 us"``. What was still running
        at the end stays.
    backend : {'auto', 'monitoring', 'profile', 'trace'}
        Which hook calls come from, and what happens inside of functions; monitoring needs Python
        3.12. profile sees calls only. trace sees no branches and jumps, and of exceptions only
        where they are raised; a trace function that is there already goes on beside it. On 3.11
        'auto' evaluates frames beside the profile hook where no calls of C functions are asked
        for, at half the cost.
    clock : {'auto', 'counter', 'monotonic'}
        The processor's counter, or CLOCK_MONOTONIC, which is slower.
    output : str or os.PathLike, optional
        Record into this file: its pages are the buffer itself, so that whatever ends the program,
        `eventprof.open` reads all that it did. In the name, ``%p`` is the process's number, ``%h``
        the host's name, ``%%`` a ``%``. A forked child has a file of its own; where there is no
        ``%p`` its number is put before the suffix.
    force : bool
        Replace `output` if it is there already.
    overhead : bool
        Measure first what an event costs, as `eventprof.overhead` does: once a process and choice
        of options, some 50 ms. It is in the trace's metadata then, and tables can be corrected
        for it. Otherwise it is there if it was measured before.
    marks : bool
        Record what the program says of itself: `mark`, `span`, `counter` and `flow`. A program that
        does not call these has no such events.
    gc : bool
        Record runs of the garbage collector, by a function in ``gc.callbacks``.
    refs : bool
        Record objects that are created and destroyed, with their types. Needs Python 3.13.
    audit : bool or iterable of str
        Record audit events, without their arguments: those that match one of these globs, as
        ``["open", "socket.*"]``, or all. The hook for them, one a process, cannot be removed; it is
        idle when nothing records.
    hpy : bool
        Record the calls that HPy's trace mode sees: of HPy's functions, by extension modules that
        are loaded with ``HPY=trace``. Needs the package hpy.

    Returns
    -------
    Recorder
        Not started yet.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it should be; nothing was changed.
    MemoryError
        `buffer` is more than the machine has.
    UnsupportedError
        This interpreter has no such backend, or the backend cannot see such events, or there is
        no reference tracer; NumPy or HPy is not there; the library for `native` was not loaded.
    StateError
        `overhead` was asked for while a recorder runs.

    See Also
    --------
    open : reads the file of `output`.

    Examples
    --------
    >>> with eventprof.record() as rec:
    ...     sorted([3, 1, 2])
    [1, 2, 3]
    >>> functions = rec.trace.functions
    >>> functions[functions["calls"] > 0][["name", "module", "calls"]]
    functions: 1 row, 3 columns
       name    module    calls
    0  sorted  builtins      1
    """
    # In a signal's handler NumPy may be half loaded; then the first trace loads the tables.
    if load_tables and not _is_loading("numpy"):
        from . import trace  # noqa: F401 - now, so that no window sees it
    backend_word = _choice("backend", backend, BACKENDS)
    inside = {
        "lines": lines,
        "instructions": instructions,
        "exceptions": exceptions,
        "branches": branches,
    }
    beside = {"marks": marks, "gc": gc, "refs": refs, "hpy": hpy}
    asked = _Asked()
    asked.calls, asked.c_calls = _flag("calls", calls), _flag("c_calls", c_calls)
    asked.memory, asked.domains = memory, _domains(memory)
    asked.numpy, asked.native = _numpy(numpy), _flag("native", native)
    asked.inside = {name: _flag(name, value) for name, value in inside.items()}
    asked.beside = {name: _flag(name, value) for name, value in beside.items()}
    asked.beside["audit"], asked.audit = _audit(audit), audit
    kinds = _kinds(events, asked, backend_word)
    flags: dict[str, Any] = {
        name: not set(_BESIDE[name]).isdisjoint(_words_of(kinds)) for name in beside
    }
    flags["audit"] = asked.beside["audit"] or (("*",) if "audit" in _words_of(kinds) else ())
    options = Options(
        kinds,
        _automatic_buffer() if buffer == "auto" else parse_size("buffer", buffer),
        _choice("on_full", on_full, ON_FULL),
        _choice("threads", threads, THREADS),
        backend_word,
        _choice("clock", clock, CLOCKS),
        _patterns("include", include),
        _patterns("exclude", exclude),
        _depth(max_depth),
        parse_duration("min_duration", min_duration),
        None if output is None else _output(output),
        _flag("force", force),
        _flag("overhead", overhead),
        **flags,
    )
    if options.refs and sys.version_info < (3, 13):
        raise _core.UnsupportedError(
            "refs=True, or create and destroy in events, needs Python 3.13 "
            "(PyRefTracer_SetTracer); this is "
            f"{sys.version_info.major}.{sys.version_info.minor}"
        )
    if options.hpy:
        _import_hpy()
    _need_ends(kinds, options.max_depth, options.min_duration)
    if _is_bool(numpy) and numpy:
        _need_numpy()
    if _is_bool(native) and native:
        from . import native as preloaded

        preloaded.require()
    if options.backend == "monitoring" and sys.version_info < (3, 12):
        raise _core.UnsupportedError(
            "backend='monitoring' needs Python 3.12 (sys.monitoring); this is "
            f"{sys.version_info.major}.{sys.version_info.minor}, which has 'profile' and 'trace'"
        )
    if options.backend in ("profile", "trace") and not _has_gil():
        raise _core.UnsupportedError(
            f"backend={options.backend!r} needs the GIL, which is off here: without it the "
            f"interpreter cannot change other threads' {options.backend} functions while they run; "
            "use backend='monitoring', or start Python with -X gil=1"
        )
    _need_support(kinds, options.backend)
    if "instruction" in options.events:
        import opcode

        _core.set_opcode_names(tuple(opcode.opname[:256]))
    if kinds & _CODE_KINDS and _has_jit():
        import warnings

        warnings.warn(
            "the JIT of this interpreter is on: together with sys.monitoring, which calls are "
            "recorded by, it may corrupt local variables (CPython issue gh-156319, open); set "
            "PYTHON_JIT=0, or record with calls=False, c_calls=False",
            RuntimeWarning,
            stacklevel=2,
        )
    if options.overhead:
        from . import costs

        costs.overhead(**_measured_as(options))
    return Recorder(options)


def _warn_of_loss(lost: int, options: Options, reason: str | None) -> None:
    import warnings

    from ._words import EventsLostWarning

    causes = {
        "memory": "no memory was left",
        "disk": "the disk of the file was full",
        "small_disk": "the disk of the file was full before the buffer was",
        "cut": "somebody cut the file off while it was written",
    }
    if reason in causes:
        warnings.warn(
            f"{lost:,} events found no room, as {causes[reason]}: what the trace says is too small",
            EventsLostWarning,
            stacklevel=3,
        )
        return
    kept = "the oldest went" if options.on_full == "overwrite" else "the newest went"
    warnings.warn(
        f"{lost:,} events found no room in {-(-options.limit_bytes // 2**20):,} MiB ({kept}): what "
        "the trace says is too small; record with a larger buffer=, with on_full='grow', or less "
        "of it (include=, memory=False)",
        EventsLostWarning,
        stacklevel=3,
    )


def _import_hpy() -> None:
    """Load what is hooked: now, so that no window sees it."""
    try:
        import hpy.universal  # noqa: F401
    except ImportError as error:
        raise _core.UnsupportedError(
            "hpy=True, or hpy_call and hpy_return in events, needs the package hpy, which does not "
            f"load ({error}): install eventprof[hpy]"
        ) from error


def _measured_as(options: Options) -> dict[str, Any]:
    """Give the arguments of `overhead` that fit a recorder."""
    words = options.events
    return {
        "calls": "call" in words,
        "c_calls": "c_call" in words,
        "memory": bool(options.domains),
        "backend": options.backend,
        "clock": options.clock,
    }


def _has_gil() -> bool:
    """Whether threads take turns: always, but in a free-threaded build that was not told to."""
    ask = getattr(sys, "_is_gil_enabled", None)
    return ask is None or bool(ask())


def _has_jit() -> bool:
    """Whether the interpreter (3.14 or later) compiles what it runs."""
    jit = getattr(sys, "_jit", None)
    return jit is not None and bool(jit.is_enabled())


class Recorder(_core.Recorder):
    """Records what happens between its start and its stop; made by `record`.

    Use it in a ``with`` statement, as a decorator, or call `start` and `stop`. Started again, it
    gives up what it recorded before. Several may run at once.

    Parameters
    ----------
    options : Options
        From `record`, which checks them.

    Attributes
    ----------
    state : {'new', 'running', 'stopped'}
        Where it is.
    backend : {None, 'monitoring', 'profile', 'trace'}
        Where the calls of the last window came from, and what happened inside of functions.
    clock : {None, 'counter', 'monotonic'}
        The clock of the last window.
    output : str or None
        Path of the last window's log file.
    displaced : tuple of str
        Sources whose hook another tool took over during the window, for good or for a while: what
        came meanwhile is missing. ``alloc`` while the window is open: such a tool sits on top, and
        nothing is missing unless it takes ours away with its own.
    """

    options: Options
    _trace: Trace | None
    _trace_window: int

    def __new__(cls, options: Options) -> Self:
        """Make a recorder that is not started."""
        if _uses_areas(options):
            areas.tell()
        file: dict[str, Any] = {}
        if options.output is not None:
            own, child = _path_patterns(options.output)
            file = {
                "output": own,
                "child_output": child,
                "metadata": _encode_metadata(options),
                "replace": options.force,
            }
            _name_threads()
        self = super().__new__(
            cls,
            kinds=options.kinds,
            limit_bytes=options.limit_bytes,
            on_full=ON_FULL.index(options.on_full),
            backend=options.backend,
            clock=options.clock,
            current_thread=options.threads == "current",
            include=options.include,
            exclude=options.exclude,
            max_depth=-1 if options.max_depth is None else options.max_depth,
            min_duration_ns=options.min_duration,
            audit=() if options.audit == ("*",) else options.audit,
            **file,
        )
        self.options = options
        self._trace = None
        self._trace_window = 0
        return self

    @property
    def trace(self) -> Trace:
        """What the last window recorded.

        Returns
        -------
        Trace
            The same each time, until the recorder is started again.

        Raises
        ------
        StateError
            The recorder is running: stop it, or call `snapshot`. Or it was never started.
        """
        if self.state == "running":
            raise _core.StateError("this recorder is running: stop it first, or use snapshot()")
        if self.state == "new":
            raise _core.StateError("this recorder was never started, so there is no trace")
        if self._trace is None or self._trace_window != self._windows:
            self._trace_window = self._windows
            self._trace = self._make_trace()
            lost = self._trace._core.lost()
            if lost:
                _warn_of_loss(lost, self.options, self._count()[2])
        return self._trace

    def snapshot(self) -> Trace:
        """Give what was recorded so far, and go on recording.

        Returns
        -------
        Trace
            A new one each time; of a stopped recorder, its `trace`.

        Raises
        ------
        StateError
            The recorder was never started.
        """
        return self._make_trace() if self.state == "running" else self.trace

    @property
    def stats(self) -> dict[str, int | None]:
        """What recording holds, in bytes and in counts.

        Returns
        -------
        dict of str to int or None
            Of this recorder: ``chunks`` of records that it keeps and ``chunk_bytes``, in memory or
            in its file; ``list_bytes``, its lists of them and of threads; ``file_bytes``, what its
            file takes on the disk, None without. Of the process, for all recorders:
            ``all_chunks``, ``free_chunks`` among them, ready to be used, and
            ``all_chunk_bytes``; ``threads`` that ever recorded, ``logs`` of living ones and
            ``log_bytes``; ``names``, ``sites`` and ``name_bytes``, with their texts, which are
            never given back.

        Notes
        -----
        A chunk has 4 KiB to 1 MiB of address space; memory is behind those parts that were written
        to, or are soon. Chunks that recorders share are counted for each.
        """
        chunks, chunk_bytes, file_bytes_held, list_bytes = self._held()
        engine = _core.engine_stats()
        file_bytes = None
        if self.output is not None:
            try:
                file_bytes = os.stat(self.output).st_blocks * 512
            except OSError:  # removed, or elsewhere by now
                file_bytes = file_bytes_held
        return {
            "chunks": chunks,
            "chunk_bytes": chunk_bytes,
            "list_bytes": list_bytes,
            "file_bytes": file_bytes,
            "all_chunks": engine["chunks_mapped"],
            "free_chunks": engine["chunks_free"],
            "all_chunk_bytes": engine["bytes_mapped"],
            "threads": engine["threads"],
            "logs": engine["logs"],
            "log_bytes": engine["log_bytes"],
            "names": engine["names"],
            "sites": engine["sites"],
            "name_bytes": engine["names_bytes"],
        }

    def _make_trace(self) -> Trace:
        # The capture first: what follows may be seen by recorders that run.
        core = self._capture()
        trace_class = _trace_class()
        return trace_class(core, self._metadata())

    def _save(self, path: str) -> None:
        """Write an archive in place of whatever is there; as `trace.save`, without a trace."""
        from .saving import save

        save(self._capture(), self._metadata(), path, force=True)

    def _metadata(self) -> dict[str, Any]:
        _name_threads()
        return {
            "clock": self.clock,
            "backend": self.backend,
            "displaced": self.displaced,
            "pid": os.getpid(),
            **describe_run(self.options),
        }

    def __call__(self, function: _Function) -> _Function:
        """Record every run of a function: the decorator.

        Parameters
        ----------
        function : callable
            A function, or a coroutine function, generator function or asynchronous generator
            function, which are recorded from their first step to their end.

        Returns
        -------
        callable
            Wraps it. Its ``recorder`` is this recorder, whose trace is that of the last run. A run
            inside a run, or on another thread meanwhile, is part of the same window.

        Raises
        ------
        TypeError
            It is a class, or cannot be called.
        """
        return decorate("recorder", self, lambda: _outermost(self), function)

    def __repr__(self) -> str:
        options = self.options
        words = options.events
        if set(_BESIDE["marks"]) <= set(words) and words != _BESIDE["marks"]:  # as ever
            words = tuple(word for word in words if word not in _BESIDE["marks"])
        is_all = set(options.events) == set(_DEFAULT_EVENTS)
        events = "all events" if is_all else " ".join(words)
        domains = f" ({' '.join(options.domains)})" if options.domains else ""
        displaced = f", displaced: {' '.join(self.displaced)}" if self.displaced else ""
        return (
            f"<eventprof.Recorder: {self.state}; {events}{domains}; "
            f"{options.limit_bytes / 2**20:,.6g} MiB, {options.on_full}{displaced}>"
        )


class _Nothing:
    """A context that does nothing; contextlib's would be recorded."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


_NOTHING = _Nothing()


class _First:
    """Records unless that is done already, on any thread: asked and begun in one step."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._began = False

    def __enter__(self) -> None:
        self._began = self._recorder._begin()

    def __exit__(self, *_: object) -> None:
        if self._began:
            self._recorder.__exit__(None, None, None)


def _outermost(recorder: Recorder) -> Recorder | _Nothing | _First:
    """Give what records from here on, if nothing on the way here does.

    With a GIL no other thread comes between the question and what `with` does next.
    """
    if not _has_gil():
        return _First(recorder)
    return recorder if recorder.state != "running" else _NOTHING


def decorate(word: str, owner: Any, context: Callable[[], Any], function: _Function) -> _Function:
    """Wrap a function, which shows its recorder or counter under that word; else TypeError."""
    import inspect

    if isinstance(function, (staticmethod, classmethod)):
        inner = decorate(word, owner, context, function.__func__)
        return cast(_Function, type(function)(inner))
    if inspect.isclass(function) or not callable(function):
        what = f"the class {function.__name__}" if inspect.isclass(function) else repr(function)
        raise TypeError(f"a {word} decorates functions and methods, not {what}")
    wrapper = wrap(context, function)
    functools.update_wrapper(wrapper, function)
    wrapper.__dict__[word] = owner
    return cast(_Function, wrapper)


def wrap(context: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function of the same sort that runs in a context, asked for at each run.

    `with` calls the extension's own __enter__, and no signal or other thread comes between the
    question whether it runs, the start, and the block. No frame of ours is recorded.
    """
    import inspect

    if inspect.isasyncgenfunction(function):

        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            with context():
                steps = function(*args, **kwargs)
                step, given = steps.asend, None
                while True:
                    try:
                        value = await step(given)
                    except StopAsyncIteration:
                        return
                    try:
                        step, given = steps.asend, (yield value)
                    except GeneratorExit:
                        await steps.aclose()
                        raise
                    except BaseException as error:
                        step, given = steps.athrow, error

        return async_generator

    if inspect.iscoroutinefunction(function):

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await function(*args, **kwargs)

        return coroutine

    if inspect.isgeneratorfunction(function):

        def generator(*args: Any, **kwargs: Any) -> Any:
            with context():
                return (yield from function(*args, **kwargs))

        return generator

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return wrapper


def _trace_class() -> type[Trace]:
    # An import statement runs code of importlib's, which recorders would see.
    loaded = sys.modules.get(f"{__package__}.trace")
    if loaded is None:
        from . import trace

        return trace.Trace
    kind: type[Trace] = loaded.Trace
    return kind


def _name_threads() -> None:
    """Tell the extension the names of living threads that it does not know yet."""
    _core.name_thread(os.getpid(), "MainThread")  # on Linux, that is its native id
    # Not threading.enumerate(): that is Python code of somebody else's, and would be recorded.
    active = getattr(sys.modules.get("threading"), "_active", {})
    for thread in list(active.values()):
        native_id = getattr(thread, "_native_id", None)
        name = getattr(thread, "_name", None)
        if isinstance(native_id, int) and isinstance(name, str):
            _core.name_thread(native_id, name)
