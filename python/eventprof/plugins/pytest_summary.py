"""The summary of all tests: lines in the terminal, the file of counts, and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from .._words import plural, printable, show_bytes, show_ns
from ..base import output
from .limits import COUNTS, SIZES
from .snapshot import VERSION, Snapshot
from .window import say

#: The most frequent reason; it is not listed, because pytest shows such tests anyway.
DOES_NOT_PASS = "it does not pass"
#: The states in the order in which they are shown, with the words for tests in each.
_STATES = (
    ("equal", "as counted before"),
    ("counted", "counted"),
    ("written", "written"),
    ("changed", "changed"),
    ("limit", "above a limit"),
    ("new", "new: --eventprof-update writes them"),
    ("recorded", "recorded"),
    ("drifts", "not compared, their counts drift"),
    ("uncounted", "not counted"),
)
_MOST_REASONS = 20


def _is_own(path: str) -> bool:
    """Return whether a file was written by --eventprof-json."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and list(found) == ["format", "python", "tests"]


class Summary:
    """Collects the results of tests, also from pytest-xdist's workers.

    Parameters
    ----------
    config : pytest.Config
        The configuration of this session.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._results: dict[str, dict[str, Any]] = {}
        self._problem = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take the result of a test."""
        found = getattr(report, "eventprof", None)
        if found is not None:
            self._results[report.nodeid] = found

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        """Write the files."""
        option = self._config.option
        if self._is_worker or not self._results:
            return
        try:
            if option.eventprof_update:
                self._update(session)
            if option.eventprof_json:
                self._write_json(option.eventprof_json)
        except Exception as error:
            self._problem = say(error)

    def _update(self, session: Any) -> None:
        snapshot = Snapshot(self._config.rootpath / self._config.getini("eventprof_file"))
        tests = {name: each["entry"] for name, each in self._results.items() if "entry" in each}
        gone = [name for name in snapshot.tests if self._is_gone(name)]
        snapshot.update(tests, gone)

    def _is_gone(self, name: str) -> bool:
        """Whether it is known that a test with counts does not exist any more."""
        path = name.partition("::")[0]
        if not (self._config.rootpath / path).exists():
            return True
        narrowed = self._config.option.keyword or self._config.option.markexpr
        given = any("::" in each for each in self._config.args)
        ran = any(each.partition("::")[0] == path for each in self._results)
        return bool(ran and not narrowed and not given and name not in self._results)

    def _write_json(self, path: str) -> None:
        tests = {
            name: {key: value for key, value in each.items() if key != "entry"}
            for name, each in sorted(self._results.items())
        }
        text = json.dumps({"format": 1, "python": VERSION, "tests": tests}, indent=1)
        # CI writes the same file in each run, so the one of an earlier run is replaced.
        output.put(path, [f"{text}\n".encode()], force=_is_own(path))

    # ---- The terminal ----------------------------------------------------------------------------

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the summary."""
        if not self._results and not self._config.option.eventprof_update:
            return
        terminalreporter.section("eventprof", sep="-", blue=True)
        try:
            for line in self._lines():
                terminalreporter.line(line)
        except Exception as error:
            terminalreporter.line(f"not told: {say(error)}", red=True)

    def _lines(self) -> Iterator[str]:
        if not self._results:
            yield "nothing written: no test has the mark; with --eventprof-counts all tests count"
            return
        states = Counter(each["state"] for each in self._results.values())
        counts = [f"{states[state]:,} {words}" for state, words in _STATES if states[state]]
        yield f"{plural(len(self._results), 'test')}: {', '.join(counts)}"
        if self._problem:
            yield f"not written: {self._problem}"
        yield from self._reasons("drifts", "counts drift")
        yield from self._reasons("uncounted", "not counted")
        yield from self._top(self._config.option.eventprof_top)
        archives = [each["archive"] for each in self._results.values() if "archive" in each]
        if archives:
            folder = self._config.option.eventprof_dir
            yield f"{plural(len(archives), 'archive')} in {folder}, the last one:"
            yield f"  eventprof report {archives[-1]}"

    def _reasons(self, state: str, title: str) -> Iterator[str]:
        reasons: dict[str, list[str]] = {}
        for name, each in sorted(self._results.items()):
            if each["state"] == state and each["why"] != DOES_NOT_PASS:
                reasons.setdefault(each["why"], []).append(name)
        for index, (why, names) in enumerate(sorted(reasons.items())):
            if index == _MOST_REASONS:
                yield f"... and {len(reasons) - index:,} more reasons: --eventprof-json"
                return
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            yield f"{title}: {names[0]}{more}"
            yield f"  {printable(why)}"

    def _top(self, limit: int) -> Iterator[str]:
        if limit <= 0:
            return
        counted = [(name, each) for name, each in self._results.items() if "calls" in each]
        counted.sort(key=lambda row: (-row[1]["calls"] - row[1]["c_calls"], row[0]))
        rows = [[*(word.replace("_", " ") for word in COUNTS), "time", "test"]]
        for name, each in counted[:limit]:
            cells = [
                show_bytes(each[word]) if word in SIZES else f"{each[word]:,}" for word in COUNTS
            ]
            rows.append([*cells, show_ns(each["time"]) if "time" in each else "-", name])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            yield "  ".join([*cells[:-1], row[-1]])
