"""A program with child processes is one recording: NAME.epd, a file a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import children
import families
import pytest
import raw
from families import calls_of, open_one, programs, run, write

import eventprof
from eventprof import cli
from eventprof.files import family

FORKS = """
    import os
    def work(n): return n
    def parent(): pass
    for n in range(3):
        pid = os.fork()
        if pid == 0:
            work(n)
            os._exit(0)
        os.waitpid(pid, 0)
    parent()
"""

POOL = """
    import multiprocessing, sys
    def work(n): return n * n
    if __name__ == "__main__":
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            assert sum(pool.map(work, range(20), chunksize=1)) == 2470
            pool.close()
            pool.join()
"""


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forked")
    write(folder, main=FORKS)
    run(folder, "--no-waits", "-o", "main.epd", "main.py")
    return folder / "main.epd"


# ---- Each process's events are there, once, in the right place -----------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools(tmp_path, method):
    write(tmp_path, main=POOL)

    run(tmp_path, "main.py", method)

    trace = open_one(tmp_path)
    worked = calls_of(trace, "work")
    assert sum(worked.values()) == 20
    parents = trace.processes["parent"].tolist()
    assert parents[0] is None
    for worker in worked:
        above = parents[worker]
        if method == "forkserver":
            assert "forkserver" in trace.processes["name"][above]
            above = parents[above]
        assert above == 0
    assert trace.verify().ok


@pytest.mark.thorough
def test_a_chain_of_programs_with_a_shell_between(tmp_path):
    write(
        tmp_path,
        first="""
            import subprocess, sys
            def one(): pass
            one()
            subprocess.run(["sh", "-c", f"{sys.executable} second.py; true"], check=True)
        """,
        second="""
            import os, subprocess, sys
            def two(): pass
            two()
            if os.fork() == 0:
                subprocess.run([sys.executable, "third.py"], check=True)
                os._exit(0)
            os.wait()
        """,
        third="def three(): pass\nthree()",
    )

    run(tmp_path, "first.py")

    trace = open_one(tmp_path)
    found = {name: calls_of(trace, name) for name in ("one", "two", "three")}
    assert found == {"one": {0: 1}, "two": {1: 1}, "three": {3: 1}}
    assert programs(trace) == [
        (0, None, "first.py"), (1, 0, "second.py"), (2, 1, "second.py"), (3, 2, "third.py")
    ]  # fmt: skip


def test_a_program_that_replaces_itself_is_below_itself(tmp_path):
    write(
        tmp_path,
        main="import os, sys\ndef before(): pass\nbefore()\nos.execv(sys.executable, [sys.executable, 'next.py'])",
        next="def after(): pass\nafter()",
    )

    run(tmp_path, "-o", "main.epd", "main.py")

    trace = open_one(tmp_path)
    assert trace.processes["pid"][0] == trace.processes["pid"][1]
    assert programs(trace) == [(0, None, "main.py"), (1, 0, "next.py")]
    assert trace.processes["state"].tolist() == ["unfinished", "ended"]
    assert (calls_of(trace, "before"), calls_of(trace, "after")) == ({0: 1}, {1: 1})


@pytest.mark.thorough
@pytest.mark.parametrize("worker_class", ["sync", "gevent"])
def test_gunicorn(worker_class, tmp_path):
    pytest.importorskip("gunicorn")
    if worker_class == "gevent":
        pytest.importorskip("gevent")
    write(
        tmp_path,
        app="""
            import time
            def handle(): time.sleep(0.002)
            def app(environ, start_response):
                handle()
                start_response("200 OK", [("Content-Length", "2")])
                return [b"ok"]
        """,
    )
    command = [sys.executable, *families.RUN, "--no-memory", "-o", "web.epd", "-m", "gunicorn",
               "-k", worker_class, "-w", "3", "--bind", "unix:web.sock", "app:app"]  # fmt: skip
    server = subprocess.Popen(
        command, cwd=tmp_path, env=families.environment(tmp_path), stderr=subprocess.PIPE, text=True
    )
    try:
        answered = sum(ask(tmp_path / "web.sock") for _ in range(40))
        server.send_signal(signal.SIGTERM)
        errors = server.communicate(timeout=900)[1]
    finally:
        server.kill()
        server.wait()

    trace = eventprof.open(tmp_path / "web.epd")
    assert answered == 40
    assert sum(calls_of(trace, "handle").values()) == 40
    assert trace.verify(), trace.verify()
    assert trace.pairing["calls_misplaced"] == 0
    assert trace.processes["parent"].tolist() == [None, 0, 0, 0]
    assert sorted(trace.processes["worker"][1:]) == ["worker 1", "worker 2", "worker 3"]
    assert " of 4 processes in " in errors


def ask(path):
    """Send a request to a socket's path, once there is one; 1 if it is answered."""
    import socket

    end = time.monotonic() + 30
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                # A path of a socket is short: by a relative name.
                connection.connect(os.path.relpath(path))
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return int(connection.makefile("rb").read().endswith(b"ok"))
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@pytest.mark.thorough
def test_xdist(tmp_path, monkeypatch):
    pytest.importorskip("xdist")
    # To import the other plugins takes a second each time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    write(
        tmp_path,
        test_some="import pytest\n@pytest.mark.parametrize('n', range(12))\ndef test_it(n): pass",
    )

    run(tmp_path, "--no-memory", "--no-c-calls", "-o", "t.epd", "-m", "pytest", "-q", "-p", "xdist", "-n", "2",
        "-p", "no:cacheprovider", "test_some.py")  # fmt: skip

    trace = eventprof.open(tmp_path / "t.epd")
    found = calls_of(trace, "test_it")
    assert sum(found.values()) == 12
    assert {trace.processes["parent"][process] for process in found} == {0}


@pytest.mark.thorough
def test_joblib(tmp_path):
    pytest.importorskip("joblib")
    write(
        tmp_path,
        main="""
            import joblib
            import jobs
            found = joblib.Parallel(n_jobs=2)(joblib.delayed(jobs.work)(n) for n in range(20))
            assert found == list(range(20))
        """,
        jobs="def work(n): return n",
    )

    run(tmp_path, "--no-memory", "main.py")

    trace = open_one(tmp_path)
    found = calls_of(trace, "work")
    assert sum(found.values()) == 20
    assert 0 not in found
    assert all(trace.processes["worker"][row].startswith("LokyProcess-") for row in found)


@pytest.mark.thorough
def test_a_dask_cluster(tmp_path):
    pytest.importorskip("distributed")
    write(
        tmp_path,
        main="""
            import distributed
            import jobs
            if __name__ == "__main__":
                with distributed.LocalCluster(
                    n_workers=2, threads_per_worker=1, dashboard_address=None
                ) as cluster, distributed.Client(cluster) as client:
                    tasks = client.map(jobs.work, range(20), pure=False)
                    assert client.gather(tasks) == list(range(20))
        """,
        jobs="""
            import time
            def work(n):
                time.sleep(0.05)
                return n
        """,
    )

    run(tmp_path, "--no-memory", "--include", "jobs", "-o", "dask.epd", "main.py")

    trace = eventprof.open(tmp_path / "dask.epd")
    found = calls_of(trace, "work")
    assert sum(found.values()) == 20
    assert 0 not in found and len(found) <= 2
    assert {trace.processes["worker"][row] for row in found} <= {"dask worker 0", "dask worker 1"}
    assert trace.verify().ok


# ---- What is made --------------------------------------------------------------------------------


def test_without_children_there_is_one_file(tmp_path):
    write(tmp_path, main="print('done')")

    run(tmp_path, "main.py")

    (path,) = tmp_path.glob("main-*")
    assert path.suffix == ".epr"


def test_with_children_there_is_one_folder(tmp_path):
    write(tmp_path, main=FORKS)

    made = run(tmp_path, "main.py")

    (path,) = tmp_path.glob("main-*")
    assert path.suffix == ".epd"
    trace = eventprof.open(path)
    files = sorted(each.name for each in path.iterdir())
    assert files == ["manifest.json", *sorted(trace.processes["file"])]
    first, *lines, why = made.stderr.splitlines()
    assert first.startswith(f"eventprof: {len(trace.events):,} events of 4 processes in ")
    assert first.endswith(f"none lost; to look at them: eventprof report {path.name}")
    assert [line.split()[1] for line in lines] == [f"{name}:" for name in trace.processes["file"]]
    assert [", not stopped; " in line for line in lines] == [False, True, True, True]
    assert why.startswith("eventprof:   not stopped: killed, or ended by os._exit")


def test_a_directory_for_the_recording(tmp_path):
    (tmp_path / "out").mkdir()
    write(tmp_path, main=FORKS)

    run(tmp_path, "-o", "out", "main.py")

    (path,) = (tmp_path / "out").iterdir()
    assert path.name.startswith("main-") and path.suffix == ".epd"
    assert len(eventprof.open(path).processes) == 4


def test_more_processes_than_lines(tmp_path):
    write(tmp_path, main=FORKS.replace("range(3)", "range(15)"))

    made = run(tmp_path, "-o", "many.epd", "main.py")

    *lines, last, _ = made.stderr.splitlines()
    assert len(lines) == 13
    assert last == "eventprof:   and 4 more: eventprof info lists them"
    assert sum(calls_of(eventprof.open(tmp_path / "many.epd"), "work").values()) == 15


def test_a_file_that_the_user_named_stays(tmp_path):
    write(tmp_path, main=FORKS)

    run(tmp_path, "-o", "out.epr", "main.py")

    assert len(eventprof.open(tmp_path / "out.epd").processes) == 4
    own = eventprof.open(tmp_path / "out.epr")
    assert "parent" in own.functions["name"]
    assert any((tmp_path / "out.epr").samefile(path) for path in (tmp_path / "out.epd").iterdir())


def test_a_folder_that_exists_is_not_replaced_unasked(tmp_path):
    write(tmp_path, main=FORKS)
    run(tmp_path, "-o", "out.epd", "main.py")

    refused = run(tmp_path, "-o", "out.epd", "main.py", status=2)
    run(tmp_path, "-f", "-o", "out.epd", "main.py")

    assert refused.stderr.endswith("out.epd: exists already; -f replaces it, -o names another\n")
    assert len(eventprof.open(tmp_path / "out.epd").processes) == 4


def test_archives_of_all(tmp_path):
    write(tmp_path, main=FORKS)

    run(tmp_path, "--archive", "-o", "out.epr", "main.py")

    trace = eventprof.open(tmp_path / "out.epd")
    assert not trace.file["missing"]
    assert trace.processes["parent"].tolist() == [None, 0, 0, 0]
    assert calls_of(trace, "work") == {1: 1, 2: 1, 3: 1}
    for path in (tmp_path / "out.epr", *(tmp_path / "out.epd").glob("*.epr")):
        assert eventprof.open(path).file["version"] == (3, 0)


def test_by_the_environment(tmp_path):
    write(tmp_path, main=FORKS)

    for _ in range(2):
        children.run(
            sys.executable, "main.py", cwd=tmp_path, environment=families.environment(tmp_path),
            EVENTPROF="memory=0", EVENTPROF_OUTPUT="all.epd",
        )  # fmt: skip

    trace = eventprof.open(tmp_path / "all.epd")
    assert trace.processes["parent"].tolist() == [None, 0, 0, 0, None, 4, 4, 4]
    assert sum(calls_of(trace, "work").values()) == 6


def test_an_id_that_is_used_again_gets_another_name(tmp_path):
    paths = []
    for _ in range(3):
        with eventprof.record(output=tmp_path / "new.epd" / "%p%u.epr", memory=False) as rec:
            pass
        paths.append(os.path.basename(rec.output))

    assert paths == [f"{os.getpid()}.epr", f"{os.getpid()}-2.epr", f"{os.getpid()}-3.epr"]


def test_a_recorder_writes_into_a_folder_too(tmp_path):
    for _ in range(2):
        with eventprof.record(output=tmp_path / "some.epd", memory=False):
            len("text")
            if (pid := os.fork()) == 0:
                sum([1])
                os._exit(0)
            os.waitpid(pid, 0)

    trace = eventprof.open(tmp_path / "some.epd")
    assert trace.processes["parent"].tolist() == [None, 0, None, 2]
    assert trace.functions[trace.functions["name"] == "sum"]["calls"].tolist() == [2]


def test_parents_where_ids_are_used_again():
    def process(pid, parent, start, state="ended"):
        return {"pid": pid, "boot": "b", "ancestors": (parent, 1), "start_monotonic_ns": start,
                "state": state}  # fmt: skip

    found = family.find_parents(
        [process(10, 1, 0), process(20, 10, 1), process(30, 20, 2), process(20, 10, 3),
         process(40, 20, 4), {**process(50, 10, 5), "boot": "other"}]
    )  # fmt: skip

    assert found == [None, 0, 1, 0, 3, None]


# ---- One trace -----------------------------------------------------------------------------------


def test_the_manifest_has_what_the_files_say(forked):
    known = json.loads((forked / "manifest.json").read_text())
    processes = eventprof.open(forked).processes

    assert known["format"] == 1
    assert [each["file"] for each in known["processes"]] == processes["file"].tolist()
    assert [each["events"] for each in known["processes"]] == processes["events"].tolist()
    assert [each["pid"] for each in known["processes"]] == processes["pid"].tolist()
    assert [each["state"] for each in known["processes"]] == ["ended", *["unfinished"] * 3]
    first, *rest = known["processes"]
    assert first["parent"] is None and {each["parent"] for each in rest} == {first["file"]}


def test_events_have_their_process_and_lie_in_its_time(forked):
    trace = eventprof.open(forked)

    for row, process in enumerate(trace.processes):
        events = trace.events[trace.events["process"] == row]
        assert len(events) == process.events > 0
        assert process.start <= events["time"].min() <= events["time"].max() <= process.end
        assert (trace.allocations["process"] == row).any()
        assert (trace.threads["process"] == row).sum() == 1
    calls = trace.calls
    ends = trace.processes["end"][calls["process"]]
    assert (calls["start"] + calls["duration"] <= ends).all()


def test_one_process_of_a_folder(forked):
    every = eventprof.open(forked)
    pid, name = every.processes["pid"].tolist()[2], every.processes["file"][2]

    one, same = eventprof.open(forked, process=pid), eventprof.open(forked, process=f"*{name}")

    assert len(one.events) == len(same.events) == every.processes["events"][2]
    with pytest.raises(ValueError, match="no recording of process 1"):
        eventprof.open(forked, process=1)
    with pytest.raises(ValueError, match="is a file"):
        eventprof.open(forked / name, process=pid)


def test_an_archive_of_a_family_has_its_processes(forked, tmp_path):
    trace = eventprof.open(forked)
    trace.save(tmp_path / "one.epr")

    saved = eventprof.open(tmp_path / "one.epr")

    assert str(saved.processes) == str(trace.processes)
    assert saved.calls["process"].tolist() == trace.calls["process"].tolist()


def test_one_process_does_not_wait_for_the_lock_of_another(forked):
    waited = eventprof.open(forked).calls["waited"]

    # Without a lock nobody waits for it.
    assert waited.mask.tolist() == [not raw.HAS_GIL] * len(waited)
    assert not waited.any()  # each has one thread


def test_a_trace_of_one_process_has_a_row(tmp_path):
    with eventprof.record(memory=False) as rec:
        len("text")

    (process,) = rec.trace.processes

    assert (process.pid, process.parent, process.events) == (os.getpid(), None, 2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["report"], ["report", "--lines"], ["stats"], ["tree"], ["tree", "--slowest", "work"],
        ["analyze"], ["events"], ["info"], ["verify"], ["diff", "SAME"], ["save", "-o", "x.epr"],
        ["merge", "SAME", "-o", "x.epr"], ["export", "-o", "x.json"], ["view", "-o", "x.html"],
        ["flamegraph", "-o", "x.svg"], ["info", "--json"], ["report", "--json"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_verb_takes_a_folder(forked, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    verb, *rest = (str(forked) if word == "SAME" else word for word in words)

    assert cli.main([verb, str(forked), *rest]) == 0
    assert capsys.readouterr().out


def test_info_lists_the_processes(forked, capsys):
    cli.main(["info", str(forked)])

    printed = capsys.readouterr().out
    for process in eventprof.open(forked).processes:
        assert f"process {process.pid}" in printed and process.file in printed
    assert "aligned by CLOCK_MONOTONIC" in printed


# ---- The limit of all ----------------------------------------------------------------------------

BUSY = """
    import os
    def leaf(n): return n
    for _ in range(3):
        if os.fork() == 0:
            for n in range(60_000): leaf(n)
            os._exit(0)
    for n in range(60_000): leaf(n)
    for _ in range(3): os.wait()
"""


@pytest.mark.thorough
def test_all_files_share_a_limit_and_what_is_lost_is_counted(tmp_path):
    write(tmp_path, main=BUSY)
    options = ("--no-memory", "--no-c-calls", "--no-waits", "--include", "*leaf")

    run(tmp_path, *options, "-o", "all.epd", "main.py")
    made = run(tmp_path, *options, "--buffer", "2 MiB", "-o", "few.epd", "main.py")

    whole, few = eventprof.open(tmp_path / "all.epd"), eventprof.open(tmp_path / "few.epd")
    assert whole.functions[whole.functions["name"] == "leaf"]["calls"].tolist() == [240_000]
    assert not whole.loss
    assert len(few.events) + few.loss.total == 480_000
    assert few.file["bytes"] < (3 << 20) < whole.file["bytes"]
    assert f"{few.loss.total:,} LOST" in made.stderr


def test_a_warning_with_the_rate_comes_before_the_limit(tmp_path):
    program = """
        import sys
        from eventprof.cli import options
        from eventprof.files import family, quota
        quota.begin(6 << 20, warns=True, export=False)
        folder = sys.argv[1]
        rec = options.make_recorder({"memory": False}, family.member_pattern(folder), False, folder)
        rec.start()
        def leaf(n): return n
        for n in range(1_000_000): leaf(n)
        rec.stop()
        print(rec.trace.loss.reason)
    """
    write(tmp_path, main=program)

    found = children.run(
        sys.executable, "-W", "ignore", "main.py", "x.epd",
        cwd=tmp_path, environment=families.environment(tmp_path),
    )  # fmt: skip

    (line,) = found.stderr.splitlines()
    assert line.startswith("eventprof: ")
    assert re.fullmatch(
        r"eventprof: all processes together have used [\d.]+ of 10 MiB after [\d.e-]+ s; at [\d.e+]+ MiB/s events will be "
        r"lost in [\d.e-]+ s\. Record less \(--no-memory, --include\) or raise --buffer", line
    )  # fmt: skip
    assert found.stdout == "family\n"
