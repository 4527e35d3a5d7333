"""The kinds of events that a recorder was asked for, and whether they can be recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from .. import _core
from ..base.arguments import ALL_DOMAINS, DOMAINS, choices, is_bool, one_of, patterns

KINDS = [row for row in _core.kind_table() if row[2]]


def _words_of_groups(*groups: str) -> tuple[str, ...]:
    """Return the words of the kinds of some groups (events.def), each once."""
    return tuple(dict.fromkeys(row[2] for row in KINDS if row[7] in groups))


#: Events that have their own flag of record(), by flag.
OF_CALLS = _words_of_groups("python")
#: Events of asyncio's tasks, which are recorded with calls.
OF_TASKS = _words_of_groups("task")
OF_C_CALLS = _words_of_groups("c")
#: Events inside of functions, by the flag of record() that asks for them.
INSIDE = {
    "lines": _words_of_groups("line"),
    "instructions": _words_of_groups("instruction"),
    "exceptions": _words_of_groups("exception"),
    "branches": _words_of_groups("branch"),
}
_INSIDE_WORDS = tuple(word for words in INSIDE.values() for word in words)
#: The events inside of functions that a trace hook sees.
_TRACED_WORDS = ("line", "instruction", "raise", "stop_iteration")
#: Events that are neither calls nor blocks, by flag.
BESIDE = {
    "marks": _words_of_groups("span", "mark"),
    "gc": _words_of_groups("gc"),
    "refs": _words_of_groups("object"),
    "audit": _words_of_groups("audit"),
    "waits": _words_of_groups("wait"),
    "hpy": _words_of_groups("hpy"),
}
_BLOCK_WORDS = _words_of_groups("block")
_CODE_WORDS = (*OF_CALLS, *OF_C_CALLS, *_INSIDE_WORDS)
#: Events to which filters of functions apply.
CODE_KINDS = sum(1 << row[0] for row in KINDS if row[2] in _CODE_WORDS)
EVENTS = tuple(dict.fromkeys(row[2] for row in KINDS))
#: Events that are recorded by default.
DEFAULT_EVENTS = tuple(
    word
    for word in EVENTS
    if word in (*OF_CALLS, *OF_TASKS, *OF_C_CALLS, *_BLOCK_WORDS, *BESIDE["marks"])
)


def words_of_kinds(kinds: int) -> tuple[str, ...]:
    """Return the words of kinds, which are bits."""
    return tuple(dict.fromkeys(row[2] for row in KINDS if kinds >> row[0] & 1))


def need_ends(kinds: int, max_depth: int | None, min_duration: int) -> None:
    """Check that calls and their ends are recorded, because a limit needs them."""
    name = "max_depth" if max_depth is not None else "min_duration"
    if max_depth is None and not min_duration:
        return
    words = set(words_of_kinds(kinds))
    python, c = set(OF_CALLS), set(OF_C_CALLS)
    missing = [word for some in (python, c) if words & some for word in sorted(some - words)]
    if missing or not words & (python | c):
        what = f"events lacks {', '.join(missing)}" if missing else "no calls are recorded"
        raise ValueError(f"{name} needs calls and their ends, and {what}")


def numpy_choice(value: object) -> bool | None:
    """Whether NumPy's arrays are recorded; None: like the rest of the memory."""
    if isinstance(value, str) and value == "auto":
        return None
    if is_bool(value):
        return bool(value)
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"numpy must be 'auto', True or False, not {value!r}")


def need_numpy() -> None:
    """Check that NumPy 2 is there."""
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


def audit_patterns(value: object) -> tuple[str, ...]:
    """Return the patterns of audit events; for all events, one that matches all."""
    if is_bool(value):
        return ("*",) if value else ()
    return patterns("audit", value)


def domains_of_memory(memory: object) -> frozenset[str]:
    """Check `memory`; give the domains of Python's allocators that it means."""
    if is_bool(memory):
        return frozenset(DOMAINS if memory else ())
    if isinstance(memory, str) or not isinstance(memory, Iterable):
        raise TypeError(f"memory must be True, False, or some of {one_of(DOMAINS)} as in "
                        f"memory=['obj'], not {memory!r}")  # fmt: skip
    return domain_words(memory, "numpy=True and native=True record the others")


def domain_words(memory: Iterable[object], others: str) -> frozenset[str]:
    """Check words for domains; `others` says how to record the other domains."""
    words = list(memory)
    for word in words:
        if isinstance(word, str) and word in ALL_DOMAINS and word not in DOMAINS:
            raise ValueError(f"memory may hold {one_of(DOMAINS)}, not {word!r}: {others}")
    return choices("memory", words, DOMAINS)


class Asked:
    """The arguments of record() that say what is recorded; each is checked by itself.

    It is not a named tuple, because running recorders would record how one is made.
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
        more = {"calls": OF_CALLS, "c_calls": OF_C_CALLS, "memory": _BLOCK_WORDS, **INSIDE,
                **BESIDE, "span": _words_of_groups("span")}  # fmt: skip
        for word in events:
            if isinstance(word, str) and word not in EVENTS and word in more:
                raise ValueError(f"events may hold words of single events, not {word!r}: put "
                                 f"{', '.join(map(repr, more[word]))} into it")  # fmt: skip
    return choices("events", events, EVENTS)


def _check_agreement(words: frozenset[str], asked: Asked) -> None:
    """Check that no other argument contradicts `events`."""
    for flag, of_flag in (*INSIDE.items(), *BESIDE.items()):
        given = asked.inside.get(flag, asked.beside.get(flag))
        if given and flag not in ("marks", "audit"):
            raise ValueError(
                f"events says exactly what is recorded, but {flag} is given, too: put "
                f"{', '.join(map(repr, of_flag))} into events, or leave events out"
            )
    if asked.beside["audit"] and "audit" not in words:
        raise ValueError("audit= says which audit events are recorded, and events says that none "
                         "are: put 'audit' into events, or leave audit out")  # fmt: skip
    some_domain = not is_bool(asked.memory) or asked.memory or asked.numpy or asked.native
    for argument, of_argument, is_off in (
        ("calls=False", OF_CALLS, not asked.calls),
        ("c_calls=False", OF_C_CALLS, not asked.c_calls),
        ("memory=False", _BLOCK_WORDS, not some_domain),
        ("marks=False", BESIDE["marks"], not asked.beside["marks"]),
        ("audit=False", BESIDE["audit"], is_bool(asked.audit) and not asked.audit),
    ):
        named = [word for word in of_argument if word in words]
        if is_off and named:
            raise ValueError(f"events holds {', '.join(map(repr, named))}, and {argument} says "
                             "that there are none: leave one of the two out")  # fmt: skip
    of_blocks = {"memory": not is_bool(asked.memory), "numpy": asked.numpy, "native": asked.native}
    for flag, is_on in of_blocks.items():
        if is_on and words.isdisjoint(_BLOCK_WORDS):
            raise ValueError(
                f"{flag} says whose blocks are recorded, and events says that none are: put "
                f"{one_of(_BLOCK_WORDS)} into events, or leave {flag} out"
            )


def _domains_of(asked: Asked) -> frozenset[str]:
    more = {word for word, is_on in (("numpy", asked.numpy), ("libc", asked.native)) if is_on}
    if asked.numpy is None and asked.domains == frozenset(DOMAINS):
        more.add("numpy")
    return asked.domains | more


def _chosen(words: frozenset[str], domains: frozenset[str]) -> int:
    # A span that does not nest is two flows (source_marks.c).
    with_flow = words | {"flow"} if words & {"span_begin", "span_end"} else words
    return sum(1 << row[0] for row in KINDS if row[2] in with_flow and row[5] in (None, *domains))


def chosen_kinds(events: object, asked: Asked, backend: str) -> int:
    """Return the kinds asked for, as bits."""
    if events is not None:
        words = _event_words(events)
        if not words:
            raise ValueError(f"nothing to record: events must hold some of {one_of(EVENTS)}")
        _check_agreement(words, asked)
        return _chosen(words, _domains_of(asked))
    words = frozenset(
        word
        for of_flag, is_on in (
            (OF_CALLS, asked.calls),
            (OF_TASKS, asked.calls),
            (OF_C_CALLS, asked.c_calls),
            (_BLOCK_WORDS, True),
            *((INSIDE[name], is_on) for name, is_on in asked.inside.items()),
            *((BESIDE[name], value) for name, value in asked.beside.items()),
        )
        for word in (of_flag if is_on else ())
    )
    if _hook_inside(backend) == "trace":
        words -= {"reraise", "handled"}  # of exceptions, those that the hook can see
    kinds = _chosen(words, _domains_of(asked))
    if not kinds:
        raise ValueError(
            f"nothing to record: one of calls, c_calls, memory, {', '.join(INSIDE)}, numpy, "
            "native, marks, gc, refs, waits, hpy and audit must be on"
        )
    return kinds


def _hook_inside(backend: str) -> str:
    """Report which hook reports events inside of functions."""
    if backend != "auto":
        return backend
    return "monitoring" if sys.version_info >= (3, 12) else "trace"


def need_support(kinds: int, backend: str) -> None:
    """Check that the hook sees the wanted events inside of functions."""
    hook = _hook_inside(backend)
    words = [word for word in words_of_kinds(kinds) if word in _INSIDE_WORDS]
    seen = {"profile": (), "trace": _TRACED_WORDS}.get(hook, _INSIDE_WORDS)
    missing = [word for word in words if word not in seen]
    if not missing:
        return
    can = ["monitoring"]
    if all(word in _TRACED_WORDS for word in missing):
        can.append("trace")
    here = [name for name in can if name != "monitoring" or sys.version_info >= (3, 12)]
    how = (
        f"backend={one_of(tuple(here))} can"
        if here
        else "sys.monitoring can, which needs Python 3.12; this is "
        f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    raise _core.UnsupportedError(f"the {hook} hook does not see {', '.join(missing)}: {how}")
