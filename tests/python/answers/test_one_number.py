"""A column of `functions` is one number: in memory, from a file, from a folded tree, in a dataset."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tree_programs import PROGRAMS, Machine

import eventprof
from eventprof.answers.tree import OTHER, Tree

DATA = Path(__file__).parents[2] / "data"
LOGS = sorted(path for path in DATA.rglob("*.epr"))


def columns_of(trace):
    """Return every column of `functions`, as lists; None where it is null."""
    table = trace.functions
    return {name: list(table._column(name).items()) for name in table.columns}


def folded(path, max_nodes):
    """Open a recording whose tree has few nodes."""
    trace = eventprof.open(path)
    trace.__dict__["_tree"] = tree = Tree(trace, max_nodes)
    return trace, tree


def assert_one_number(path):
    """Assert that all ways to the functions of a recording give the same. Return how many were folded."""
    passed, decoded = eventprof.open(path), eventprof.open(path)
    assert passed._tree.count
    assert len(decoded.events) and decoded._core.has_columns()
    of_file = columns_of(passed)
    assert not passed._core.has_columns()
    assert columns_of(decoded) == of_file

    small, tree = folded(path, 8)
    of_tree = columns_of(small)
    assert {name: of_tree[name] for name in of_file} == of_file
    assert (tree.function == OTHER).any() == (tree.facts["folded"] > 0)
    assert not small._core.has_columns()
    return of_file, tree.facts["folded"]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_one_number_of_random_programs(program):
    with eventprof.record() as rec:
        Machine().run(program * 5)
    assert len(rec.trace.events)

    with tempfile.TemporaryDirectory() as folder:
        rec.trace.save(Path(folder) / "run.epr")
        of_file, _ = assert_one_number(Path(folder) / "run.epr")

    assert columns_of(rec.trace) == of_file


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_one_number_of_given_recordings(path):
    assert_one_number(path)


#: Functions whose blocks are alive after the tree has folded their calls, and are freed then.
KEPT = """
def deeper(n, kept):
    kept.append([bytes(100 + n) for _ in range(3)])
    if n:
        deeper(n - 1, kept)
    return [bytes(50) for _ in range(n)]
"""


def test_what_is_folded_away_keeps_its_bytes_by_function(tmp_path):
    space: dict = {}
    exec(KEPT + "".join(f"def f{n}(kept): deeper({n % 7}, kept)\n" for n in range(200)), space)
    kept: list = []
    with eventprof.record(output=tmp_path / "run.epr"):
        for turn in range(3):
            for n in range(200):
                space[f"f{n}"](kept)
            del kept[:: turn + 2]
        held = [bytes(1000) for _ in range(500)]  # a peak after the most has been folded
        del kept[100:], held

    of_file, count = assert_one_number(tmp_path / "run.epr")

    assert count > 200
    assert sum(of_file["live_self"]) > 0 and sum(of_file["at_peak_self"]) > 500_000


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
