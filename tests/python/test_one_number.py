"""A column of `functions` is one number: in memory, from a file, in a dataset."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tree_programs import PROGRAMS, Machine

import eventprof

pytestmark = pytest.mark.newest

DATA = Path(__file__).parents[1] / "data"
LOGS = sorted(path for path in DATA.rglob("*.epr"))


def columns_of(trace):
    """Return every column of `functions`, as lists; None where it is null."""
    table = trace.functions
    return {name: list(table._column(name).items()) for name in table.columns}


def assert_one_number(path):
    """Assert that all ways to the functions of a recording give the same, and return it."""
    passed, decoded = eventprof.open(path), eventprof.open(path)
    assert passed._tree.count
    assert len(decoded.events) and decoded._core.has_columns()
    of_file = columns_of(passed)
    assert not passed._core.has_columns()
    assert columns_of(decoded) == of_file

    return of_file


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_one_number_of_random_programs(program):
    with eventprof.record() as rec:
        Machine().run(program * 5)
    assert len(rec.trace.events)

    with tempfile.TemporaryDirectory() as folder:
        rec.trace.save(Path(folder) / "run.epr")
        of_file = assert_one_number(Path(folder) / "run.epr")

    assert columns_of(rec.trace) == of_file


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_one_number_of_given_recordings(path):
    assert_one_number(path)


def test_one_number_of_a_dataset(tmp_path):
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    with eventprof.record(output=tmp_path / "run.epr"):
        machine = Machine()
        machine.run(
            [("call", [("keep", 100), ("generate", [("keep", 3)]), ("call", [("brief", 10)])])] * 50
        )
    eventprof.write_dataset(tmp_path / "run.epr", tmp_path / "DS")
    trace, dataset = eventprof.open(tmp_path / "run.epr"), eventprof.dataset(tmp_path / "DS")
    one, many = trace.functions, dataset.functions
    key = ("name", "module", "file", "line", "kind")

    def rows(table, name):
        return dict(zip(zip(*(table._column(column).items() for column in key), strict=True),
                        table._column(name).items(), strict=True))  # fmt: skip

    assert len(one) > 5
    assert set(one.columns) <= set(many.columns)
    for name in one.columns:
        of_dataset = rows(many, name)
        for function, value in rows(one, name).items():
            if any(np.ma.filled(one[each], 0)[list(rows(one, name)).index(function)]
                   for each in ("calls", "resumes", "allocated", "freed")):  # fmt: skip
                assert of_dataset[function] == value, (name, function)
