"""Checks of the arguments of record() and count(): one function for each argument.

Errors name the argument, the given value, and what is allowed.
"""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

from .._words import did_you_mean

Domain: TypeAlias = Literal["raw", "mem", "obj"]
OnFull: TypeAlias = Literal["overwrite", "stop", "grow"]
Threads: TypeAlias = Literal["all", "current"]
Backend: TypeAlias = Literal["auto", "monitoring", "profile", "trace"]
Clock: TypeAlias = Literal["auto", "counter", "monotonic"]

DOMAINS = ("raw", "mem", "obj")
#: These, and the domains of NumPy's arrays and of C libraries.
ALL_DOMAINS = (*DOMAINS, "numpy", "libc")
ON_FULL = ("overwrite", "stop", "grow")  # the order of the core's ep_on_full
THREADS = ("all", "current")
BACKENDS = ("auto", "monitoring", "profile", "trace")
CLOCKS = ("auto", "counter", "monotonic")


def is_bool(value: object) -> bool:
    """Whether a value is True or False, of Python or of NumPy."""
    # NumPy's bool counts, too. Without NumPy, or while it is being loaded, no value is one.
    return isinstance(value, (bool, getattr(sys.modules.get("numpy"), "bool_", bool)))


def flag(name: str, value: object) -> bool:
    """Check an argument that is True or False."""
    if is_bool(value):
        return bool(value)
    raise TypeError(f"{name} must be True or False, not {value!r}")


def choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Check an argument that is one of some words."""
    if isinstance(value, str) and value in allowed:
        return value
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"{name} must be {one_of(allowed)}, not {value!r}{did_you_mean(value, allowed)}")


def one_of(allowed: tuple[str, ...]) -> str:
    """Return words as a list in a sentence."""
    *most, last = map(repr, allowed)
    return f"{', '.join(most)} or {last}"


def choices(name: str, value: object, allowed: tuple[str, ...]) -> frozenset[str]:
    """Check an argument that holds some of several words."""
    if isinstance(value, str):
        raise TypeError(f"{name} takes several words: write {name}=[{value!r}], not {value!r}")
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} must hold words of {one_of(allowed)}, not {value!r}")
    words = list(value)
    for word in words:
        if not isinstance(word, str) or word not in allowed:
            error = ValueError if isinstance(word, str) else TypeError
            raise error(
                f"{name} may hold {one_of(allowed)}, not {word!r}{did_you_mean(word, allowed)}"
            )
    return frozenset(words)


#: A recording keeps labels in a part of its file whose size is bound.
_LABELS_CHARACTERS = 4096


def labels(name: str, value: object) -> tuple[tuple[str, str], ...]:
    """Check an argument that maps names to values."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must map names to values, as {{'release': 'A'}}, not {value!r}")
    found = []
    for key, text in value.items():
        if not isinstance(key, str) or re.fullmatch(r"[^\W\d][\w.-]*", key) is None:
            raise ValueError(
                f"{name}: a name is a letter, then letters, digits, '_', '.' or '-', not {key!r}"
            )
        found.append((key, str(text)))
    if sum(len(key) + len(text) for key, text in found) > _LABELS_CHARACTERS:
        raise ValueError(f"{name} may have {_LABELS_CHARACTERS:,} characters together")
    return tuple(found)


def patterns(name: str, value: object) -> tuple[str, ...]:
    """Check an argument that holds globs."""
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


#: The folder of a family (files/family.py), and the names of the files in it: the core puts in the
#: process, and a number if the name is used.
SUFFIX = ".epd"
MEMBER = "%h-%p%u.epr"


def output_path(value: object) -> str:
    """Check the path of a recording; give it as an absolute path."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"output must be a path, not {value!r}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"output must be a path as text, not {value!r}")
    if not path or "\0" in path:
        raise ValueError(f"output must be a path, not {value!r}")
    for found in re.finditer("%(.?)", path):
        if found[1] not in ("p", "h", "u", "%"):
            raise ValueError(f"output may hold %p, %h, %u and %%, not {found[0]!r} as in {path!r}")
    if path.endswith(SUFFIX):
        path = os.path.join(path, MEMBER)
    # Absolute, because the program may change its directory before it forks.
    return os.path.abspath(path)


def depth(value: object) -> int | None:
    """Check the depth up to which calls are recorded; None: at any depth."""
    if value is None:
        return None
    if not is_bool(value):
        try:
            depth = operator.index(cast(Any, value))
        except TypeError:
            pass
        else:
            if 0 <= depth < 2**32 - 1:
                return depth
            raise ValueError(f"max_depth must be 0 or more (and fit 32 bits), not {value!r}")
    raise TypeError(f"max_depth must be a whole number, or None, not {value!r}")
