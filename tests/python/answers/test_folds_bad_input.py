"""Input that is extreme or damaged: folds answer what is there, say what is missing, in bounded memory."""

from __future__ import annotations

import os
import re
import sys
import types

import children
import numpy as np
import pytest
from amounts import amount
from folding import assert_same_without_columns
from log_children import of_a_later_version

import eventprof
from eventprof.answers.tree import Tree
from eventprof.show.tree import headline

#: A fold is C code over a recording, the same on each Python.
needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="needs Linux's /proc"
)
READ = """
import sys
from eventprof.answers.tree import Tree
from eventprof.cli import main
path, max_nodes, *verb = sys.argv[1:]
Tree.__init__.__defaults__ = (int(max_nodes), *Tree.__init__.__defaults__[1:])
status = main([*verb, path])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(status)
"""


def leaf(size):
    return bytes(size)


def work(count):
    return len([leaf(600 + number % 700) for number in range(count)])


def down(depth):
    return down(depth - 1) + 1 if depth else 0


@pytest.fixture
def ask(forks):
    """Return what a verb printed, and the KiB that its process held at most; 0 nodes: the usual bound."""

    def ask(path, *verb, max_nodes=0):
        done = forks.run(READ, path, max_nodes, *verb)
        assert done.returncode == 0, done.stderr
        text, kib = done.stdout.rstrip("\n").rsplit("\n", 1)
        return text, int(kib)

    return ask


# ---- Kinds of events, among them domains of memory, that this version does not know --------------


def test_unknown_kinds_are_left_out_of_folds_and_counted(tmp_path):
    now, later = tmp_path / "now.epr", tmp_path / "later.epr"
    with eventprof.record(output=now):
        for _ in range(50):
            eventprof.mark("here")
            work(3)
    later.write_bytes(of_a_later_version(now.read_bytes(), 101))

    known, unknown = eventprof.open(now), eventprof.open(later)
    tree = Tree(unknown)

    assert_same_without_columns(later)
    assert tree.facts["peak"] == Tree(known).facts["peak"]
    assert unknown.file["unknown_events"] == 50
    assert unknown._facts["events"] == known._facts["events"] - 50
    line = "50 events of kinds that this eventprof does not know (later) are left out"
    assert line in headline(unknown, tree)
    assert "nothing lost" not in headline(unknown, tree)


# ---- Recursion -----------------------------------------------------------------------------------


@pytest.fixture
def deep(tmp_path):
    """A file of 100,000 calls inside each other."""
    if sys.version_info < (3, 12):
        pytest.skip("before 3.12 a recursion this deep may need more of the C stack than there is")
    path, limit = tmp_path / "deep.epr", sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    try:
        with eventprof.record(output=path):
            down(100_000)
    finally:
        sys.setrecursionlimit(limit)
    return path


@pytest.mark.thorough
def test_deep_recursion_is_counted_once(deep):
    trace = eventprof.open(deep)
    tree = Tree(trace)
    row_of = {name: row for row, (name, *_) in enumerate(tree.functions)}
    functions = tree.by_function()

    assert tree.count > 100_000
    row = row_of["down"]
    assert functions["calls"][row] == 100_001
    assert functions["total"][row] <= trace.duration
    assert tree.depth.max() >= 100_001


@needs_proc
@pytest.mark.thorough
@pytest.mark.parametrize("verb", [["tree"], ["report", "--short"]], ids=" ".join)
def test_deep_recursion_is_shown_in_a_page(deep, verb, ask):
    text, kib = ask(deep, *verb)

    assert len(text.splitlines()) < 40
    assert "nothing lost" in text.splitlines()[0]
    assert kib < 400 * 1024


# ---- Functions -----------------------------------------------------------------------------------


@needs_proc
@pytest.mark.slow
@pytest.mark.thorough
def test_more_functions_than_nodes_are_folded_into_other_and_that_is_said(tmp_path, ask):
    path, count = tmp_path / "many.epr", amount(110_000, 1_100_000)
    max_nodes = amount(100_000, 1 << 20)
    script = tmp_path / "many.py"
    script.write_text(
        "import sys, types, eventprof\n"
        "code = (lambda: None).__code__\n"
        "with eventprof.record(output=sys.argv[1], c_calls=False, memory=False):\n"
        f"    for i in range({count}):\n"
        "        types.FunctionType(code.replace(co_name=f'f{i}', co_qualname=f'f{i}'), {})()\n",
        encoding="utf-8",
    )
    children.run(sys.executable, script, path)

    text, kib = ask(path, "tree", max_nodes=amount(max_nodes, 0))
    head = text.splitlines()[0]

    folded = int(
        re.search(r"([\d,]+) small nodes are folded into 'other'", head)[1].replace(",", "")
    )
    assert folded > count - max_nodes
    assert "nothing lost" in head
    # 40 MiB of modules. 128 bytes a node of the bound; the rest is text and tuples of functions. 1.15 to 1.22 KiB a
    # function by how the allocator's arenas fall; a copy of the sums would make it 1.9.
    assert kib < 40 * 1024 + count * 1.5


def test_a_bound_on_nodes_loses_no_calls():
    code = leaf.__code__
    with eventprof.record(memory=False, c_calls=False) as rec:
        for number in range(500):
            types.FunctionType(
                code.replace(co_name=f"f{number}", co_qualname=f"f{number}"), globals()
            )(1)
    whole, bound = rec.trace._core.tree(0, True), rec.trace._core.tree(100, True)

    assert bound["folded"] > 300
    for name in ("calls", "self"):
        assert bound["nodes"][name].sum() == whole["nodes"][name].sum()


# ---- A cut file ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "whole.epr"
    with eventprof.record(output=path):
        work(20_000)
    return path.read_bytes()


@pytest.mark.parametrize("part", np.random.default_rng(12347).random(12).round(4).tolist())
def test_a_cut_file_gives_what_is_there_and_says_what_is_missing(tmp_path, whole, part):
    path = tmp_path / "cut.epr"
    path.write_bytes(whole[: int(len(whole) * part)])

    try:
        trace = eventprof.open(path)
    except eventprof.FormatError as error:
        assert part < 0.2
        assert path.name in str(error)
        return
    tree = Tree(trace)
    decoded = eventprof.open(path)
    decoded._core.events("time")

    assert Tree(decoded).facts == tree.facts
    assert trace.file["missing"]
    assert trace._facts["events"] == len(decoded.events)


# ---- Loss ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_full", ["overwrite", "stop"])
def test_loss_is_in_the_first_line_and_the_rest_adds_up(tmp_path, on_full):
    path = tmp_path / "loss.epr"
    with (
        pytest.warns(eventprof.EventsLostWarning),
        eventprof.record(output=path, buffer="1 MiB", on_full=on_full),
    ):
        work(50_000)

    trace = assert_same_without_columns(path)
    tree = Tree(trace)

    words = trace.events["event"]
    assert re.search(r"[\d,]+ EVENTS LOST: all numbers are too small", headline(trace, tree))
    assert tree.nodes["calls"].sum() == np.isin(words, ["call", "c_call"]).sum()
