"""Other names for what a recording tells of its program, the same wherever the same text stands."""

from __future__ import annotations

import json
import os
import re
import string
from collections.abc import Mapping
from typing import Any

from ..base.areas import STANDARD_MODULES
from ..base.output import put

#: A row of `_core.Trace.functions`: qualified name, module, file, line, kind.
Row = tuple[str | None, str | None, str | None, int | None, str]

#: Parts of a path that say what kind of place it is, and nothing of the program.
_PUBLIC_FOLDERS = re.compile(
    r"|usr|lib|lib64|local|bin|src|site-packages|dist-packages|python3(\.\d+)?t?|__pycache__"
)
#: Parts of a qualified name that the interpreter gives, as <lambda> and __init__.
_GIVEN_NAME = re.compile(r"<\w+>|__\w+__|")
_STDLIB_FILE = re.compile(r".*/lib(?:64)?/(python3\.\d+t?/(?!(?:site|dist)-packages/).*)")
_GIVEN_THREAD = re.compile(r"MainThread|Thread-\d+|Dummy-\d+")
_GIVEN_TASK = re.compile(r"Task-\d+")
_DIGITS = string.digits + string.ascii_lowercase

#: The facts of a run that tell nothing of the program or its machine.
_KEPT = (
    "backend", "clock", "clock_frequency_hz", "damaged_chunks", "displaced", "duration_ns",
    "eventprof", "filtered", "gil", "locks", "overhead", "python", "start_monotonic_ns",
    "start_ns", "trimmed",
)  # fmt: skip
_KEPT_OPTIONS = (
    "archive", "backend", "buffer", "clock", "domains", "events", "gc", "hpy", "marks",
    "max_depth", "min_duration", "on_full", "overhead", "refs", "threads", "waits",
)  # fmt: skip


class Pseudonyms:
    """Gives each text of a program a name that stands for it.

    What the interpreter and its standard library bring has its own name still: everybody has it.

    Parameters
    ----------
    known : mapping, optional
        What `as_dict` returned for another recording: its texts have the same names again.

    Raises
    ------
    ValueError
        `known` is not such a mapping.
    """

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        self._names: dict[str, dict[str, str]] = {}
        for kind, names in (known or {}).items():
            texts = names.items() if isinstance(names, dict) else ()
            if not isinstance(names, dict) or not all(isinstance(name, str) for _, name in texts):
                raise ValueError("it is not a mapping that 'eventprof trim --mapping' wrote")
            self._names[kind] = dict(texts)

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return the name of each text, by what the text is of."""
        return self._names

    def _of(self, kind: str, text: str) -> str:
        names = self._names.setdefault(kind, {})
        return names.setdefault(text, f"{kind}{len(names) + 1}")

    # ---- Functions -------------------------------------------------------------------------------

    def function(self, row: Row) -> Row:
        """Return a function under its other name."""
        qualname, module, file, line, kind = row
        if kind in ("gc", "hpy"):
            return row
        if kind == "user":
            return (qualname and self._of("event", qualname), None, None, line, kind)
        if kind == "audit":
            return (qualname and self._audit(qualname), None, None, line, kind)
        place = file and _STDLIB_FILE.fullmatch(file)
        if place:
            return (qualname, module, f"/lib/{place[1]}", line, kind)
        is_public = (module or "").partition(".")[0] in STANDARD_MODULES
        is_frozen = file is not None and file.startswith("<frozen ")
        if (is_public and file is None) or (is_frozen and (is_public or module is None)):
            return row
        return (
            qualname and self._dotted(qualname),
            module if module in (None, "__main__") else self._dotted(module),
            file and self.path(file),
            line,
            kind,
        )

    def _dotted(self, name: str) -> str:
        parts = name.split(".")
        return ".".join(p if _GIVEN_NAME.fullmatch(p) else self._of("name", p) for p in parts)

    def _audit(self, name: str) -> str:
        first = name.partition(".")[0]
        is_public = first in STANDARD_MODULES or first in ("open", "exec", "compile", "import")
        return name if is_public else self._of("event", name)

    def path(self, path: str) -> str:
        """Return a path of as many parts; its ending stays."""
        if path.startswith("<"):
            return path if path in ("<string>", "<stdin>") else f"<{self._of('name', path)}>"
        parts = path.split("/")
        changed = [p if _PUBLIC_FOLDERS.fullmatch(p) else self._of("name", p) for p in parts[:-1]]
        stem, ending = os.path.splitext(parts[-1])
        stem = stem if _GIVEN_NAME.fullmatch(stem) else self._of("name", stem)
        return "/".join([*changed, stem + ending])

    # ---- Others ----------------------------------------------------------------------------------

    def thread(self, name: str | None) -> str | None:
        """Return the name of a thread: those that threading gives stay."""
        if name is None or _GIVEN_THREAD.fullmatch(name):
            return name
        return self._of("thread", name)

    def task(self, name: str) -> str:
        """Return the name of a task: those that asyncio gives stay."""
        return name if _GIVEN_TASK.fullmatch(name) else self._of("task", name)

    def label(self, value: bytes) -> bytes:
        """Return another value of as many bytes. Values of one or two bytes may run out of them."""
        text = value.decode("utf-8", "backslashreplace")
        names = self._names.setdefault(f"label of {len(value)} bytes", {})
        if text not in names:
            number, digits = len(names), ""
            for _ in value:
                number, digit = divmod(number, len(_DIGITS))
                digits = _DIGITS[digit] + digits
            names[text] = digits
        return names[text].encode()

    def facts(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a run without those that tell whose it was."""
        found = {key: metadata[key] for key in _KEPT if key in metadata}
        options = metadata.get("options") or {}
        found["options"] = {key: options[key] for key in _KEPT_OPTIONS if key in options}
        words = str(metadata.get("platform", "")).split()
        found["platform"] = " ".join([*words[:1], *words[-1:]])
        program = [self.path(str(word)) for word in (metadata.get("argv") or ())[:1]]
        found["argv"] = tuple(program)
        return found


def read_mapping(path: str) -> Pseudonyms:
    """Return the names of a mapping that exists; new ones if there is no such file.

    Raises
    ------
    ValueError
        The file is not one that `write_mapping` wrote.
    OSError
        It cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except FileNotFoundError:
        return Pseudonyms()
    except ValueError:
        known = []
    if not isinstance(known, dict):
        raise ValueError(f"{path}: it is not a mapping that 'eventprof trim --mapping' wrote")
    try:
        return Pseudonyms(known)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def write_mapping(path: str, names: Pseudonyms) -> None:
    """Write a mapping that only its owner may read, over one that is there.

    Raises
    ------
    OSError
        It cannot be written.
    """
    put(path, [json.dumps(names.as_dict(), indent=1).encode("ascii"), b"\n"], True)
