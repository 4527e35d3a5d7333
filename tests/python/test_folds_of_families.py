"""Folds read the files of several processes side by side: the same answer as from columns."""

from __future__ import annotations

import numpy as np
import pytest
from test_folds_of_files import record

import eventprof

pytestmark = pytest.mark.newest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three recordings one after another, each of threads that take turns."""
    made = tmp_path_factory.mktemp("family") / "some.epd"
    made.mkdir()
    record(made / "b.epr", threads=3, count=300)
    record(made / "a.epr", threads=1, count=200)
    record(made / "c.epr", threads=2, count=300)
    return made


def members(folder):
    every = [eventprof.open(path) for path in folder.glob("*.epr")]
    return sorted(every, key=lambda trace: trace.metadata["start_ns"])


def by_function(trace, *columns):
    """Columns of functions, by what a function is; several functions are never the same."""
    functions = trace.functions
    keys = zip(
        *(functions[name].tolist() for name in ("name", "module", "file", "line", "kind")),
        strict=True,
    )
    rows = zip(*(functions[name].tolist() for name in columns), strict=True)
    return dict(zip(keys, map(list, rows), strict=True))


# ---- Waiting -------------------------------------------------------------------------------------


def test_what_calls_waited_is_what_their_own_process_says(folder):
    trace = eventprof.open(folder)
    calls = trace.calls

    for row, member in enumerate(members(folder)):
        mine = calls[calls["process"] == row]
        assert mine["waited"].tolist() == member.calls["waited"].tolist()
    assert calls["waited"].any()


def test_functions_and_tenures_are_those_of_all(folder):
    trace, of = eventprof.open(folder), members(folder)

    wanted: dict = {}
    for member in of:
        for key, waited in by_function(member, "waited", "waited_self").items():
            wanted[key] = np.add(wanted.get(key, 0), waited).tolist()
    assert by_function(trace, "waited", "waited_self") == wanted
    first, thread = trace.processes["start"], 0
    gil = trace.gil
    for row, member in enumerate(of):
        some = gil[(gil["thread"] >= thread) & (gil["thread"] < thread + len(member.threads))]
        assert (some["thread"] - thread).tolist() == member.gil["thread"].tolist()
        assert (some["start"] - first[row]).tolist() == member.gil["start"].tolist()
        assert some["events"].tolist() == member.gil["events"].tolist()
        thread += len(member.threads)


def test_an_archive_of_several_processes_knows_their_locks(folder, tmp_path):
    trace = eventprof.open(folder)
    trace.save(tmp_path / "one.epr")

    saved, again = eventprof.open(tmp_path / "one.epr"), eventprof.open(tmp_path / "one.epr")
    _ = again.events["time"]

    wanted = trace.functions["waited"].tolist()
    assert saved.functions["waited"].tolist() == wanted
    assert again.functions["waited"].tolist() == wanted
    assert saved.calls["waited"].tolist() == trace.calls["waited"].tolist()
    assert eventprof.merge([saved]).functions["waited"].tolist() == wanted
