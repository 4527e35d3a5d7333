"""The file of committed counts: by Python's minor version and test, one line for each function."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base import output
from .counts import Counts, Row
from .limits import COUNTS, SIZES

FORMAT = 1
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}" + (
    "t" if not getattr(sys, "_is_gil_enabled", lambda: True)() else ""
)
#: Smaller differences of blocks or bytes mean nothing: the interpreter's free lists cause them.
FREE_BLOCKS, FREE_BYTES = 16, 2048


class Snapshot:
    """The counts of a suite.

    Parameters
    ----------
    path : Path
        The file, which may not exist yet.

    Raises
    ------
    ValueError
        The file is not a file of counts, or its format is another one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole: dict[str, Any] = {"format": FORMAT}
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        try:
            self._whole = json.loads(text, object_hook=_packed)
            known = self._whole["format"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: this is not a file of counts ({error})") from None
        if known != FORMAT:
            raise ValueError(
                f"{path}: format {known!r}, this eventprof reads {FORMAT}: upgrade it, or write "
                "the file anew with --eventprof-update"
            )

    @property
    def tests(self) -> Mapping[str, Any]:
        """The entry of each test, for this version of Python."""
        found: Mapping[str, Any] = self._whole.get(VERSION, {}).get("tests", {})
        return found

    @property
    def python(self) -> str:
        """The release of Python that counted, such as 3.13.0."""
        return str(self._whole.get(VERSION, {}).get("python", ""))

    def update(self, tests: Mapping[str, Any], gone: Iterable[str] = ()) -> None:
        """Write the file with these tests, for this version of Python.

        Parameters
        ----------
        tests : mapping of str to dict
            Entries, which `entry` makes, or ``{"drifts": why}``.
        gone : iterable of str
            Tests that do not exist any more: their entries are removed.
        """
        known = {**self.tests, **tests}
        for name in gone:
            known.pop(name, None)
        python = ".".join(map(str, sys.version_info[:3]))
        self._whole[VERSION] = {"python": python, "tests": known}
        # The constructor refuses a file that has no counts: an existing file is its own.
        output.put(self.path, [_encode(self._whole).encode()], force=True, rights=0o666)


def _encode(whole: Mapping[str, Any]) -> str:
    """Return JSON with one line for each function, so that version control shows what changed."""
    lines = ["{", f' "format": {FORMAT}']
    for version in sorted(key for key in whole if key != "format"):
        known = whole[version]
        lines[-1] += ","
        lines += [f" {json.dumps(version)}: {{", f'  "python": {json.dumps(known["python"])},']
        lines.append('  "tests": {')
        for name, test in sorted(known["tests"].items()):
            rows = test.get("functions")
            first = json.dumps({key: value for key, value in test.items() if key != "functions"})
            if rows is None:
                lines.append(f"   {json.dumps(name)}: {first},")
                continue
            lines += [f"   {json.dumps(name)}: {{", f"    {first[1:-1]},", '    "functions": {']
            rows = json.loads(rows)
            lines += [f"     {json.dumps(key)}: {json.dumps(rows[key])}," for key in sorted(rows)]
            lines[-1] = lines[-1].removesuffix(",")
            lines += ["    }", "   },"]
        lines[-1] = lines[-1].removesuffix(",")
        lines += ["  }", " }"]
    return "\n".join([*lines, "}"]) + "\n"


def entry(counts: Counts, functions: bool = True) -> dict[str, Any]:
    """Make the entry of a test, with or without its functions."""
    found: dict[str, Any] = {name: counts.sums[name] for name in COUNTS}
    if functions:
        found["functions"] = {
            name: [_shortened(row) for row in rows] for name, rows in counts.functions.items()
        }
    return _packed(found)


def _packed(known: dict[str, Any]) -> dict[str, Any]:
    """Return a test's functions as text: as lists, those of a thousand tests take gigabytes."""
    if "functions" in known and not isinstance(known["functions"], str):
        known["functions"] = json.dumps(known["functions"], separators=(",", ":"))
    return known


def _shortened(row: Row) -> list[Any]:
    # Trailing zeros are left out: a call of a Python function needs two values.
    return list(row) if not row[0] else list(row[: 2 + row[2]])


def rows_of(known: Mapping[str, Any]) -> dict[str, list[Row]] | None:
    """Return the functions of an entry; None if it has none."""
    if "functions" not in known:
        return None
    found: dict[str, list[Row]] = {}
    for name, rows in json.loads(known["functions"]).items():
        found[name] = [tuple((*row, 0, 0)[:4]) for row in rows]
    return found


def differing(
    known: Mapping[str, Any], sums: Mapping[str, int], calls: float, sizes: float
) -> list[str]:
    """Report which counts differ by more than is tolerated.

    Parameters
    ----------
    known : mapping
        The entry of the test.
    sums : mapping of str to int
        The sums of this run.
    calls, sizes : float
        The tolerances in percent, for calls and for blocks and bytes.

    Returns
    -------
    list of str
        The words of COUNTS whose counts differ.
    """
    found = []
    for name in COUNTS:
        before, after = known[name], sums[name]
        if name in ("calls", "c_calls"):
            free = before * calls / 100
        else:
            free = max(before * sizes / 100, FREE_BYTES if name in SIZES else FREE_BLOCKS)
            free = free if sizes else 0
        if abs(after - before) > free:
            found.append(name)
    return found
