"""Whose code a function is: one answer, whoever asks. names/areas.h of the core has the rules."""

from __future__ import annotations

import csv
import json
import os
import zlib

import numpy as np
import pytest

import eventprof
from eventprof.plugins import counts
from eventprof.viewer import data

#: Module, file, whose code it is. The folders are those of another machine, too.
CASES = (
    ("shop", "/home/me/shop.py", "own"),
    ("shop", "relative.py", "own"),
    ("__main__", "/home/me/bin/tool", "own"),
    ("__main__", "/tmp/ipykernel_5/7.py", "own"),
    ("__main__", "<string>", "own"),
    ("__main__", "<stdin>", "own"),
    ("__main__", "<ipython-input-3-abc>", "own"),
    ("__main__", "<doctest shop[0]>", "own"),
    ("python", "/home/me/lib/python/x.py", "own"),
    ("shop", "<string>", "other"),  # as methods that dataclasses make
    ("shop", "<attrs generated init shop.Cart>", "other"),
    ("numpy", "<__array_function__ internals>", "other"),
    ("importlib._bootstrap", "<frozen importlib._bootstrap>", "stdlib"),
    ("json", os.path.abspath(json.__file__), "stdlib"),
    ("json", "/opt/else/lib/python3.9/json/decoder.py", "stdlib"),
    ("json", "/opt/else/lib64/python3.13t/json/decoder.py", "stdlib"),
    ("json", "/opt/else/lib/pypy3.11/json/decoder.py", "stdlib"),
    ("json", "/opt/pypy/lib-python/3/json/decoder.py", "stdlib"),
    ("_ctypes", "/opt/pypy/lib_pypy/_ctypes.py", "stdlib"),
    ("numpy", os.path.abspath(np.__file__), "installed"),
    ("numpy", "/opt/else/lib/python3.9/site-packages/numpy/x.py", "installed"),
    ("apt", "/usr/lib/python3/dist-packages/apt/x.py", "installed"),
    ("numpy", "site-packages/numpy/x.py", "installed"),
)


def made(number, module, file):
    """A function of that module and file, which makes a call."""
    space = {"__name__": module}
    exec(compile(f"def f{number}():\n    return len(())\n", file, "exec"), space)
    return space[f"f{number}"]


def recorded(cases, **options):
    functions = [made(number, module, file) for number, (module, file, _) in enumerate(cases)]
    with eventprof.record(memory=False, threads="current", **options) as rec:
        for function in functions:
            function()
    return rec.trace


def by_tree(trace, tmp_path):
    mask = trace._tree.is_own(trace._own_patterns)
    return {row[0] for row, is_own in zip(trace._core.functions(), mask, strict=False) if is_own}


def by_export(trace, tmp_path):
    trace.export(tmp_path / "calls.csv", own=True)
    with open(tmp_path / "calls.csv", newline="") as file:
        return {row["name"] for row in csv.DictReader(file)}


def of_the_page(trace):
    head = json.loads(zlib.decompress(data.sections(trace)[0], 47))
    areas = [head["areas"][area] for area in head["functions"]["area"]]
    return dict(zip(head["functions"]["name"], areas, strict=True))


def by_page(trace, tmp_path):
    return {name for name, area in of_the_page(trace).items() if area == "own"}


def names(cases, areas):
    return {f"f{number}" for number, case in enumerate(cases) if case[2] in areas}


@pytest.fixture(scope="module")
def trace():
    return recorded(CASES)


@pytest.mark.parametrize("asked", [by_tree, by_export, by_page])
def test_each_place_finds_the_same_own_functions(asked, trace, tmp_path):
    found = asked(trace, tmp_path)

    assert {name for name in found if name[1:].isdigit()} == names(CASES, ["own"])


def test_the_page_has_a_colour_for_each_area(trace):
    found = of_the_page(trace)

    assert {name: area for name, area in found.items() if name[1:].isdigit()} == {
        f"f{number}": area for number, (_, _, area) in enumerate(CASES)
    }
    assert found["len"] == "native"


def test_counts_of_tests_have_what_is_not_in_the_standard_library(trace):
    found = {name.rpartition(".")[2] for name in counts.count(trace).functions}

    assert found >= names(CASES, ["own", "other", "installed"])
    assert not found & names(CASES, ["stdlib"])


@pytest.mark.parametrize(("word", "area"), [("stdlib", "stdlib"), ("site-packages", "installed")])
def test_filters_leave_out_the_same_functions(word, area):
    trace = recorded(CASES, exclude=[word])

    kept = {name for name in trace.calls["name"] if name[1:].isdigit()}
    assert kept == names(CASES, ["own", "other", "installed", "stdlib"]) - names(CASES, [area])


def test_a_script_of_an_installer_is_not_own(tmp_path):
    (tmp_path / "python").touch()
    cases = [
        ("__main__", str(tmp_path / "pytest"), "other"),
        ("__main__", str(tmp_path / "mine.py"), "own"),
        ("shop", str(tmp_path / "pytest"), "own"),
    ]
    trace = recorded(cases)

    for asked in (by_tree, by_export, by_page):
        found = {name for name in asked(trace, tmp_path) if name[1:].isdigit()}
        assert found == names(cases, ["own"]), asked


def test_what_set_own_says_counts_everywhere(tmp_path):
    cases = [(module, file, "other") for module, file, _ in CASES[:3]]
    cases += [("json", "/opt/else/lib/python3.9/json/decoder.py", "own")]
    trace = recorded(cases)
    trace.set_own("js?n")

    for asked in (by_tree, by_export, by_page):
        found = {name for name in asked(trace, tmp_path) if name[1:].isdigit()}
        assert found == names(cases, ["own"]), asked
    assert of_the_page(trace)["f0"] == "other"
