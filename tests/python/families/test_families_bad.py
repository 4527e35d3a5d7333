"""A family of which something is missing, damaged or killed: it is said, and the rest is used."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import families
import pytest
from families import calls_of, run, write

import eventprof
from eventprof import cli
from eventprof.files import family
from eventprof.files.merging import align

PROGRAM = """
    import os
    def work(n): return n
    for n in range(3):
        if os.fork() == 0:
            work(n)
            os._exit(0)
        os.wait()
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write(folder, main=PROGRAM)
    run(folder, "-o", "x.epd", "main.py")
    return folder / "x.epd"


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of a family: to be damaged."""
    return shutil.copytree(whole, tmp_path / "x.epd")


def children(folder):
    names = eventprof.open(folder).processes["file"].tolist()
    return [folder / name for name in names[1:]]


def only(folder, what, processes):
    """The one thing that is missing, or noted; the rest can be read, and the report says it."""
    trace = eventprof.open(folder)
    assert len(trace.processes) == processes
    assert sum(trace.processes["events"]) == len(trace.events) > 0
    assert len(trace.file["missing"]) == (what == "missing")
    assert trace.verify().ok == (what != "missing")
    (note,) = trace.file[what]
    assert note.partition(":")[0] in str(trace)
    return note


# ---- Files ---------------------------------------------------------------------------------------


def test_a_file_that_is_gone(folder):
    path = children(folder)[1]
    events = len(eventprof.open(path).events)
    pid = eventprof.open(path).metadata["pid"]
    path.unlink()

    note = only(folder, "missing", 3)

    assert note == f"{path.name}: the file is missing (process {pid}, {events:,} events)"


@pytest.mark.parametrize("length", [0, 5, 300, 5000])
def test_a_file_that_was_cut_off_at_its_head(folder, length):
    path = children(folder)[1]
    os.truncate(path, length)

    trace = eventprof.open(folder)

    assert len(trace.file["missing"]) >= 1
    assert all(line.startswith(f"{path.name}: ") for line in trace.file["missing"])
    assert sum(calls_of(trace, "work").values()) == 2


def test_a_file_that_was_cut_off_behind(folder):
    path = children(folder)[1]
    os.truncate(path, path.stat().st_size - 8192)

    trace = eventprof.open(folder)

    assert len(trace.processes) == 4
    assert trace.file["missing"]
    assert all(line.startswith(f"{path.name}: ") for line in trace.file["missing"])


def test_two_files_of_one_process(folder):
    path = children(folder)[0]
    shutil.copy(path, folder / "again.epr")

    note = only(folder, "notes", 4)

    assert "left out, it is of the same process as" in note
    assert {path.name, "again.epr"} <= set(note.replace(":", " ").replace(",", " ").split())
    assert sum(calls_of(eventprof.open(folder), "work").values()) == 3


def test_what_is_no_recording(folder):
    (folder / "notes.epr").write_text("buy milk")
    (folder / "readme.txt").write_text("not looked at")

    note = only(folder, "missing", 4)

    assert note.startswith("notes.epr: left out, it cannot be read: its format is unknown")


def test_nothing_is_left(folder, capsys):
    for path in folder.glob("*.epr"):
        path.unlink()

    with pytest.raises(eventprof.FormatError, match="no recording of this folder can be read"):
        eventprof.open(folder)
    assert cli.main(["report", str(folder)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_of_other_things(tmp_path):
    (tmp_path / "notes.txt").write_text("buy milk")

    with pytest.raises(IsADirectoryError):
        eventprof.open(tmp_path)


def test_a_folder_that_cannot_be_read_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        eventprof.open(tmp_path / "none.epd")


# ---- The manifest --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no manifest.json"),
        ("{", "manifest.json cannot be read (it is not JSON)"),
        ("\0\1", "manifest.json cannot be read"),
        ("[1, 2]", "manifest.json is damaged"),
        ('{"format": 1, "processes": [1]}', "manifest.json is damaged"),
        ('{"format": 99, "processes": []}', "manifest.json has format 99, this build reads 1"),
    ],
)
def test_a_manifest_that_is_damaged_or_gone(folder, text, message, capsys):
    path = folder / "manifest.json"
    path.unlink() if text is None else path.write_text(text)

    trace = eventprof.open(folder)

    (note,) = trace.file["notes"]
    assert note.startswith(message)
    assert trace.processes["parent"].tolist() == [None, 0, 0, 0]
    assert not trace.file["missing"]
    cli.main(["info", str(folder)])
    assert note in capsys.readouterr().out


def test_a_manifest_that_names_a_file_twice(folder):
    path = folder / "manifest.json"
    known = json.loads(path.read_text())
    known["processes"].append(known["processes"][1])
    path.write_text(json.dumps(known))

    note = only(folder, "notes", 4)

    assert note.endswith("manifest.json names it twice; the file says which process it is")


def test_a_manifest_that_cannot_be_written_is_said(tmp_path):
    write(tmp_path, main=PROGRAM + "    os.mkdir('x.epd/manifest.json')\n")

    made = run(tmp_path, "-o", "x.epd", "main.py")

    assert "eventprof: no manifest.json: Is a directory" in made.stderr
    assert len(eventprof.open(tmp_path / "x.epd").processes) == 4


# ---- Clocks --------------------------------------------------------------------------------------


def member(start_ns, monotonic_ns, **more):
    return {"start_ns": start_ns, "start_monotonic_ns": monotonic_ns, "hostname": "a", **more}


def test_one_boot_is_aligned_by_its_monotonic_clock():
    starts, explanation = align([member(1000, 10, boot="b"), member(1500, 110, boot="b")])

    assert starts[1] - starts[0] == 100
    assert explanation == "one machine: aligned by CLOCK_MONOTONIC, without error"


def test_a_clock_of_the_day_that_was_set_is_said():
    hour = 3600 * 10**9

    starts, explanation = align([member(0, 10, boot="b"), member(hour, 110, boot="b")])

    assert starts[1] - starts[0] == 100
    assert "its clock of the day was set by 3,600 s meanwhile" in explanation


def test_two_machines_are_aligned_by_the_clock_of_the_day_and_the_error_is_stated():
    every = [
        member(1000, 10, boot="a"),
        member(2000, 1030, boot="a"),  # the clock was adjusted by 20 ns
        member(1600, 77_000, boot="b", hostname="b"),
    ]

    starts, explanation = align(every)

    assert starts[1] - starts[0] == 1020
    assert abs(starts[2] - starts[0] - 600) <= 20
    assert "2 machines" in explanation and "up to 20 ns" in explanation


def test_recordings_that_do_not_tell_their_boot():
    day = 86400 * 10**9

    near, _ = align([member(1000, 10), member(1500, 110)])
    far, explanation = align([member(0, 10), member(day, 110)])

    assert near[1] - near[0] == 100
    assert far[1] - far[0] == day
    assert "clock of the day" in explanation


# ---- Ends that nobody planned --------------------------------------------------------------------

ENDLESS = """
    import os, signal, sys, time
    def work(n): return n
    def loop(name):
        with open(name, "wb", buffering=0) as file:
            n = 0
            while True:
                for _ in range(20): work(n)
                n += 20
                file.write(b"%d\\n" % n)
                time.sleep(0.0005)
    for child in range(3):
        if os.fork() == 0:
            loop(f"done-{child}")
    loop("done-parent")
"""


def kill_at_random(folder, seed):
    """Kill the processes of a family one after another, at random moments; check what is left."""
    folder.mkdir()
    chance = random.Random(seed)
    write(folder, main=ENDLESS)
    process = subprocess.Popen(
        [sys.executable, *families.RUN, "-o", "x.epr", "--include", "*work", "main.py"],
        cwd=folder, env=families.environment(folder), start_new_session=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while len(list(folder.glob("done-*"))) < 4 and time.monotonic() < end:
            time.sleep(0.005)
        pids = [
            process.pid,
            *(int(path.stem.rpartition("-")[2]) for path in folder.glob("x.epd/*.epr")),
        ]
        chance.shuffle(pids)
        for pid in pids:
            time.sleep(chance.random() * 0.03)
            os.kill(pid, signal.SIGKILL)
            process.poll()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    trace = eventprof.open(folder / "x.epd")
    assert not trace.loss and not trace.file["missing"]
    assert trace.processes["parent"].tolist() == [None, 0, 0, 0]
    assert trace.verify().ok
    made = [int((path.read_bytes().split() or [b"0"])[-1]) for path in folder.glob("done-*")]
    calls = calls_of(trace, "work")
    kept = sorted(calls.get(row, 0) for row in range(4))  # 0: killed before its first call
    # Each process was in the middle of at most 20 calls more than it had told.
    assert len(kept) == len(made) == 4
    assert all(
        0 <= count - written <= 20 for count, written in zip(kept, sorted(made), strict=True)
    )


@pytest.mark.thorough
def test_processes_killed_at_random_moments_lose_nothing(tmp_path):
    for seed in range(10):
        kill_at_random(tmp_path / str(seed), seed)


def test_the_first_process_is_killed(tmp_path):
    write(
        tmp_path,
        main=PROGRAM + "    def parent(): pass\n    parent()\n    os.kill(os.getpid(), 9)\n",
    )

    run(tmp_path, "-o", "x.epr", "main.py", status=-9)

    assert (tmp_path / "x.epr").exists()
    trace = eventprof.open(tmp_path / "x.epd")
    assert trace.processes["parent"].tolist() == [None, 0, 0, 0]
    assert calls_of(trace, "parent") == {0: 1}
    assert not trace.file["missing"]
    assert trace.file["notes"][0].startswith("there is no manifest.json")


@pytest.mark.thorough
def test_a_disk_that_is_full_for_one_process(tmp_path):
    write(
        tmp_path,
        main="""
            import os, resource
            def work(n): return n
            for child in range(2):
                if os.fork() == 0:
                    if child:
                        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
                    for n in range(200_000): work(n)
                    os._exit(0)
                os.wait()
        """,
    )

    made = run(tmp_path, "--no-memory", "-o", "x.epd", "main.py")

    trace = eventprof.open(tmp_path / "x.epd")
    lost = trace.processes["lost"].tolist()
    assert lost[:2] == [0, 0] and lost[2] > 0
    assert trace.loss.total == lost[2]
    assert trace.loss.reason == "small_disk"
    assert calls_of(trace, "work")[1] == 200_000
    assert f"{lost[2]:,} LOST" in made.stderr


def test_the_folder_cannot_be_made(tmp_path):
    write(tmp_path, main="import os\nos.mkdir('x')\n" + PROGRAM.replace("\n    ", "\n"))
    (tmp_path / "x.epd").write_text("a file is in the way")

    refused = run(tmp_path, "-o", "x.epr", "main.py", status=2)

    assert "x.epd" in refused.stderr


def test_names_in_the_folder_say_nothing_to_the_pattern(tmp_path):
    inside = tmp_path / "100%p%u.d"
    inside.mkdir()
    write(inside, main=PROGRAM)

    run(inside, "-o", "x.epd", "main.py")

    assert len(eventprof.open(inside / "x.epd").processes) == 4
    assert family.paths(str(inside / "x.epd"))
