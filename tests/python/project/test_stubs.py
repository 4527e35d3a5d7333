"""_core.pyi: its declarations agree with the extension."""

from __future__ import annotations

import ast

import columns_stub
import pytest

import eventprof
from eventprof import _core

STUB = columns_stub.STUB.read_text(encoding="utf-8")
#: By the stub's name. A span is made by a function, and its type is no name of the module.
TYPES = {
    "Recorder": _core.Recorder,
    "Counter": _core.Counter,
    "Trace": _core.Trace,
    "LegacyLog": _core.LegacyLog,
    "Span": type(_core.span("one")),
    "Label": type(_core.label(one=1)),
}


def test_columns_are_those_of_columns_def():
    assert columns_stub.written(STUB) == STUB, "python tools/pages/columns_stub.py writes it"


@pytest.fixture(scope="module")
def core():
    with eventprof.record(lines=True) as recorder:
        sorted([3, 1, 2], key=lambda number: -number)
    return recorder.trace._core


@pytest.mark.parametrize("table", columns_stub.METHODS)
def test_the_type_of_each_column_is_that_of_its_array(core, table):
    load = getattr(core, table)

    found = {name: load(name).dtype.name for name in columns_stub.columns()[table]}

    assert found == columns_stub.columns()[table]
    with pytest.raises((KeyError, ValueError)):
        load("no such column")


def test_the_types_that_tables_name_are_those_of_the_stub():
    shown = {(row[0], row[1]): row[2] for row in _core.column_table()}
    listed = columns_stub.columns()

    assert {listed[table][name] == kind for (table, name), kind in shown.items()} == {True}


def members(body):
    """The public names of a module or a class in the stub."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id


def test_every_name_of_the_stub_is_in_the_extension_and_the_other_way_round():
    tree = ast.parse(STUB)
    described = {name for name in members(tree.body) if not name.startswith("_")} - {
        "Span",
        "Label",
    }

    there = {name for name in dir(_core) if not name.startswith("_")}

    assert described - there == set()
    assert there - described == set()


@pytest.mark.parametrize("name", TYPES)
def test_every_method_of_the_stub_is_in_the_type_and_the_other_way_round(name):
    (node,) = (
        one for one in ast.parse(STUB).body if isinstance(one, ast.ClassDef) and one.name == name
    )
    described = {one for one in members(node.body) if not one.startswith("__")}

    there = {one for one in vars(TYPES[name]) if not one.startswith("__")}

    assert described == there
