"""Folds read the files of several processes side by side: the same answer as from columns."""

from __future__ import annotations

import os
import random
import shutil
import threading

import numpy as np
import pytest
import raw
from folding import answers, record

import eventprof
from eventprof import cli
from eventprof.export._view import View
from eventprof.files import opening
from eventprof.viewer.data import _tenures

needs_lock = pytest.mark.skipif(not raw.HAS_GIL, reason="no thread waits for an interpreter's lock")


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
    return sorted(every, key=lambda trace: trace._core.start())


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


@needs_lock
def test_what_calls_waited_is_what_their_own_process_says(folder):
    trace = eventprof.open(folder)
    calls = trace.calls

    for row, member in enumerate(members(folder)):
        of_member = calls[calls["process"] == row]
        assert of_member["waited"].tolist() == member.calls["waited"].tolist()
    assert calls["waited"].any()


@needs_lock
def test_functions_and_tenures_are_those_of_all(folder):
    trace, each = eventprof.open(folder), members(folder)

    wanted: dict = {}
    for member in each:
        for key, waited in by_function(member, "waited", "waited_self").items():
            wanted[key] = np.add(wanted.get(key, 0), waited).tolist()
    assert by_function(trace, "waited", "waited_self") == wanted
    first, thread = trace.processes["start"], 0
    gil = trace.gil
    for row, member in enumerate(each):
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


@needs_lock
def test_calls_that_an_export_cuts_wait_for_their_process(folder):
    trace = eventprof.open(folder)
    whole, cut = View(trace), View(trace, between=(0, trace.duration + 1))

    assert whole.has_waited
    assert cut.own_waited().tolist() == whole.own_waited().tolist()
    assert whole.own_waited().any()


@needs_lock
def test_the_page_has_no_lane_for_the_locks_of_several_processes(folder):
    trace = eventprof.open(folder)

    assert len(trace.gil)
    assert [len(column) for column in _tenures(trace, 1)] == [0, 0, 0]
    member = max(members(folder), key=lambda member: len(member.gil))
    assert [len(column) for column in _tenures(member, 1)] == [len(member.gil)] * 3


# ---- What ended processes held -------------------------------------------------------------------

MIB = 1 << 20


def peak_of_events(trace):
    """The most bytes that were alive, and the blocks then: event by event, in plain Python."""
    core = trace._core
    words, process = trace.events["event"].tolist(), trace.events["process"].tolist()
    time, address = core.events("time").tolist(), core.events("address").tolist()
    sizes = core.events("size").tolist()
    ends = sorted((end, row) for row, end in enumerate(trace.processes["end"].tolist()))
    alive: dict = {}
    most = (0, 0)
    for row, word in enumerate(words):
        while ends and time[row] > ends[0][0]:
            ended = ends.pop(0)[1]
            alive = {key: size for key, size in alive.items() if key[0] != ended}
        key = process[row], address[row]
        if word in ("malloc", "calloc", "realloc"):
            alive[key] = sizes[row]
            most = max(most, (sum(alive.values()), len(alive)), key=lambda found: found[0])
        elif word in ("free", "realloc_free"):
            alive.pop(key, None)
    return most


def test_processes_one_after_another_do_not_add_up_at_the_peak(tmp_path):
    family = tmp_path / "some.epd"
    family.mkdir()
    for number in range(4):
        with eventprof.record(output=family / f"{number}.epr"):
            kept = bytearray(50 * MIB)
        del kept

    passed, decoded = eventprof.open(family), eventprof.open(family)
    _ = decoded.events["time"]

    for trace in (passed, decoded):
        assert 50 * MIB <= trace.peak().bytes < 51 * MIB
        assert sum(trace.peak().by_site["bytes"]) == trace.peak().bytes
        assert sum(trace.leaks()["bytes"]) == trace._tree.facts["live"] >= 200 * MIB
    assert max(decoded.memory["live"].tolist()) == decoded.peak().bytes
    archive = tmp_path / "one.epa"
    decoded.save(archive)
    assert eventprof.open(archive).peak().bytes == decoded.peak().bytes


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_the_peak_of_random_families_is_that_of_their_events(tmp_path, seed):
    """Recordings that overlap and end with blocks that nobody freed."""
    chosen, kept, open_ones = random.Random(seed), [], []
    family = tmp_path / "some.epd"
    family.mkdir()
    for number in range(6):
        recorder = eventprof.record(output=family / f"{number}.epr", calls=number % 2 == 0)
        recorder.start()
        open_ones.append(recorder)
        for _ in range(chosen.randrange(60)):
            kept.append(bytearray(chosen.randrange(1, 50_000)))
            if chosen.random() < 0.4:
                kept.pop(chosen.randrange(len(kept)))
        if chosen.random() < 0.7:
            open_ones.pop(0).stop()
            kept.clear()
    for recorder in open_ones:
        recorder.stop()

    trace, other = eventprof.open(family), eventprof.open(family)
    wanted = peak_of_events(other)

    assert (trace.peak().bytes, trace.peak().blocks) == wanted
    assert other._core.peak(31)[1:3] == wanted


# ---- The same as columns give --------------------------------------------------------------------


def assert_same_without_columns(passed, decoded):
    decoded._core.events("time")
    assert decoded._core.has_columns()

    arrays, rest = answers(passed._core)
    wanted, wanted_rest = answers(decoded._core)

    assert not passed._core.has_columns()
    assert rest == wanted_rest
    assert arrays.keys() == wanted.keys()
    for name, values in wanted.items():
        assert np.array_equal(arrays[name], values), name
    assert passed.file == decoded.file
    assert str(passed.processes) == str(decoded.processes)
    assert passed.metadata.keys() == decoded.metadata.keys()


def test_a_folder(folder):
    assert_same_without_columns(eventprof.open(folder), eventprof.open(folder))


def test_a_folder_of_archives_and_logs(folder, tmp_path):
    mixed = tmp_path / "mixed.epd"
    mixed.mkdir()
    for number, path in enumerate(sorted(folder.glob("*.epr"))):
        (shutil.copy if number else lambda old, new: eventprof.open(old).save(new))(
            path, mixed / path.name
        )

    assert_same_without_columns(eventprof.open(mixed), eventprof.open(mixed))
    trace, other = eventprof.open(mixed), eventprof.open(folder)
    assert by_function(trace, "total", "waited", "live", "at_peak_self") == by_function(
        other, "total", "waited", "live", "at_peak_self"
    )


def test_members_that_a_filter_and_damage_leave_out_of(folder, tmp_path):
    other = tmp_path / "other.epd"
    shutil.copytree(folder, other)
    record(other / "d.epr", threads=2, count=200, max_depth=2)
    record(other / "e.epr", threads=2, count=3000, buffer="1 MiB")
    size = os.path.getsize(other / "b.epr")
    with open(other / "b.epr", "r+b") as file:
        for where in range(1 << 15, size, 1 << 15):
            file.seek(where + 64)
            file.write(b"\xff" * 64)
    os.truncate(other / "c.epr", os.path.getsize(other / "c.epr") * 2 // 3)

    trace = eventprof.open(other)
    assert_same_without_columns(trace, eventprof.open(other))

    assert {line.partition(":")[0] for line in trace.file["missing"]} == {"b.epr", "c.epr"}
    assert trace.loss


def test_a_member_whose_program_still_writes(folder, tmp_path):
    live = shutil.copytree(folder, tmp_path / "live.epd")
    with eventprof.record(output=live / "z.epr"):
        sorted("text")
        trace = eventprof.open(live)
        names = {trace._tree.name(node) for node in range(trace._tree.count)}

        assert trace.file["live"]
        assert trace.processes["state"].tolist().count("running") == 1
    assert {"sorted", "branch"} <= {name.rpartition(".")[2] for name in names}


def test_more_members_than_files_may_be_open(folder, monkeypatch):
    monkeypatch.setattr(opening, "_open_files_at_most", lambda: 1)

    assert_same_without_columns(eventprof.open(folder), eventprof.open(folder))


def test_open_files_are_counted():
    assert 0 < opening._open_files_at_most() < 1 << 31


# ---- Traces that are merged ----------------------------------------------------------------------


def test_parts_of_a_merge_get_no_columns_and_stay_as_they_are(folder):
    parts = members(folder)
    with eventprof.record(memory=False) as rec:
        len("text")
    every = [*parts, rec.trace, parts[0]]

    merged = eventprof.merge(every)
    peak = merged.peak()
    calls = sum(merged.functions["calls"])

    assert not merged._core.has_columns()
    assert not any(part._core.has_columns() for part in parts[1:])
    assert parts[0]._core.has_columns()  # it is there twice: a file is read by one at a time
    assert calls == sum(sum(part.functions["calls"]) for part in every)
    assert merged.processes["events"].tolist() == [part._facts["events"] for part in every]
    most = [part.peak().bytes for part in every]
    assert max(most) <= peak.bytes <= sum(most)
    assert len(merged.events) == sum(len(part.events) for part in every)
    assert merged.peak().bytes == peak.bytes


def test_a_merge_of_merges_keeps_blocks_apart(folder, tmp_path):
    first, second = eventprof.open(folder), eventprof.open(folder)
    first.save(tmp_path / "one.epr")
    one = eventprof.open(tmp_path / "one.epr")

    merged = eventprof.merge([one, second])

    assert len(merged.processes) == 6
    assert merged.leaks()["bytes"].sum() == 2 * first.leaks()["bytes"].sum()
    assert len(set((merged.allocations["address"] >> np.uint64(48)).tolist())) == 6
    if raw.HAS_GIL:
        assert sum(merged.functions["waited"]) == 2 * sum(first.functions["waited"])
    alone = eventprof.merge([eventprof.open(folder)])
    assert alone.functions["waited"].tolist() == first.functions["waited"].tolist()


def test_a_part_and_the_whole_are_asked_by_several_threads(folder):
    parts = members(folder)
    merged = [eventprof.merge(parts), eventprof.merge(reversed(parts))]
    asked = [*merged, *parts, *merged]
    found = [None] * len(asked)

    def ask(number):
        found[number] = asked[number]._core.tree(0, True)["peak"]

    workers = [threading.Thread(target=ask, args=(number,)) for number in range(len(asked))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert found == [trace._core.tree(0, True)["peak"] for trace in asked]


# ---- Verbs ---------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["report"], ["report", "--short"], ["report", "--json"], ["stats"], ["stats", "--sort", "p99"],
        ["tree"], ["tree", "--all", "--json"], ["diff", "SAME"], ["info"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_verb_makes_no_columns_of_a_folder(folder, monkeypatch, capsys, words):
    opened = []

    def open(path):
        opened.append(opening.open(path))
        return opened[-1]

    monkeypatch.setattr(eventprof, "open", open)
    verb, *rest = (str(folder) if word == "SAME" else word for word in words)

    assert cli.main([verb, str(folder), *rest]) == 0

    assert capsys.readouterr().out
    assert opened and not any(trace._core.has_columns() for trace in opened)


def test_questions_make_no_columns_of_a_folder(folder):
    trace = eventprof.open(folder)

    peak, _ = trace.peak(), (trace.leaks(), trace.temporary(), trace.functions["p95"])
    _ = len(peak.by_site), len(peak.by_stack), trace.functions.top("self", 3), trace.own, trace.gil

    assert not trace._core.has_columns()
