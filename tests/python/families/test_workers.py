"""What a pool or a server calls its processes stands in their recordings."""

from __future__ import annotations

import json
import sys

import pytest
from families import open_one, run, write

import eventprof
from eventprof import cli
from eventprof.cli import gathering
from eventprof.viewer.data import notes_of

pytestmark = pytest.mark.newest

WORK = """
    import multiprocessing, sys
    def work(n): return n
    def outer():
        inner = context.Process(target=work, args=(1,), name="inner")
        inner.start()
        inner.join()
    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        {}
"""
NAMED = """
        one = context.Process(target=work, args=(1,), name="re\\u00e4der")
        one.start()
        one.join()
        two = context.Process(target=work, args=(1,))
        two.start()
        two.join()
"""
#: Its workers are ended by a signal.
POOL = """
        every = context.Barrier(3)
        with context.Pool(2, every.wait):
            every.wait()
"""
EXECUTOR = """
        from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(1, context) as pool:
            list(pool.map(work, range(4)))
"""


def workers_of(trace):
    return sorted(name for name in trace.processes["worker"] if name)


def words(method):
    return {"fork": "Fork", "spawn": "Spawn", "forkserver": "ForkServer"}[method]


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("options", [(), ("--include", "nothing.at.all")], ids=["all", "filtered"])
def test_processes_have_their_names(tmp_path, method, options):
    write(tmp_path, main=WORK.format(NAMED.strip()))

    run(tmp_path, *options, "main.py", method)

    trace = open_one(tmp_path)
    assert workers_of(trace) == [f"{words(method)}Process-2", "reäder"]
    assert trace.processes["worker"][0] is None


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_pool_have_their_names_though_they_are_killed(tmp_path, method):
    write(tmp_path, main=WORK.format(POOL.strip()))

    run(tmp_path, "--no-memory", "main.py", method)

    assert workers_of(open_one(tmp_path)) == [
        f"{words(method)}PoolWorker-{number}" for number in (1, 2)
    ]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_an_executor(tmp_path, method):
    write(tmp_path, main=WORK.format(EXECUTOR.strip()))

    run(tmp_path, "--no-memory", "main.py", method)

    assert workers_of(open_one(tmp_path)) == [f"{words(method)}Process-1"]


def test_a_worker_of_a_worker_has_its_own_name(tmp_path):
    outer = """
        outside = context.Process(target=outer, name="outside")
        outside.start()
        outside.join()
    """
    write(tmp_path, main=WORK.format(outer.strip()))

    run(tmp_path, "main.py", "fork")

    trace = open_one(tmp_path)
    assert trace.processes["worker"].tolist() == [None, "outside", "inner"]
    assert trace.processes["parent"].tolist() == [None, 0, 1]


def test_a_child_that_a_worker_forks_has_no_name(tmp_path):
    bare = """
        import os
        def fork():
            if (pid := os.fork()) == 0:
                work(3)
                os._exit(0)
            os.waitpid(pid, 0)
        outside = context.Process(target=fork, name="outside")
        outside.start()
        outside.join()
    """
    write(tmp_path, main=WORK.format(bare.strip()))

    run(tmp_path, "main.py", "fork")

    assert open_one(tmp_path).processes["worker"].tolist() == [None, "outside", None]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_where_only_memory_is_recorded(tmp_path, method):
    write(tmp_path, main=WORK.format(NAMED.strip()))

    run(tmp_path, "--no-calls", "--no-c-calls", "main.py", method)

    assert workers_of(open_one(tmp_path)) == [f"{words(method)}Process-2", "reäder"]


def stand_in(package, **modules):
    """Write a package that comes before an installed one of its name."""
    package.mkdir()
    write(package, __init__="", **modules)


def test_a_server_that_forks_as_gunicorn(tmp_path):
    stand_in(
        tmp_path / "gunicorn",
        arbiter="""
            import os
            class Worker:
                def __init__(self, age): self.age = age
            class Arbiter:
                def spawn_worker(self, age):
                    worker = Worker(age)
                    kept = lambda: worker    # a cell: in another version it may be one
                    if os.fork() == 0:
                        os._exit(len([worker]) - 1)
                    os.wait()
        """,
    )
    write(
        tmp_path,
        main="from gunicorn.arbiter import Arbiter\nfor age in (1, 2): Arbiter().spawn_worker(age)",
    )

    run(tmp_path, "main.py")

    assert workers_of(open_one(tmp_path)) == ["worker 1", "worker 2"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_billiard(tmp_path, method):
    """Celery's workers are of this library."""
    pytest.importorskip("billiard")
    text = WORK.format(NAMED.strip()).replace("multiprocessing", "billiard")
    write(tmp_path, main=text)

    run(tmp_path, "--no-memory", "main.py", method)

    words = {"fork": "ForkProcess-2", "spawn": "SpawnProcess-2"}
    assert workers_of(open_one(tmp_path)) == [words[method], "reäder"]


def test_a_pool_that_forks_as_celery(tmp_path):
    stand_in(
        tmp_path / "billiard",
        popen_fork="""
            import os
            class Popen:
                def __init__(self, process_obj): self._launch(process_obj)
                def _launch(self, process_obj):
                    if os.fork() == 0:
                        os._exit(process_obj.run())
                    os.wait()
        """,
    )
    write(
        tmp_path,
        main="""
            from billiard.popen_fork import Popen
            class Worker:
                def __init__(self, number): self._name = f"ForkPoolWorker-{number}"
                def run(self): return 0
            for number in (1, 2):
                Popen(Worker(number))
        """,
    )

    run(tmp_path, "main.py")

    assert workers_of(open_one(tmp_path)) == ["ForkPoolWorker-1", "ForkPoolWorker-2"]


def test_a_recorder_that_a_worker_makes(tmp_path):
    made = """
        import eventprof
        def record(path):
            with eventprof.record(output=path) as rec:
                len("")
            with eventprof.record() as rec:
                len("")
            rec.trace.save(path + ".archive")
        reader = context.Process(target=record, args=("x.epr",), name="reader")
        reader.start()
        reader.join()
    """
    import subprocess

    write(tmp_path, main=WORK.format(made.strip()))
    subprocess.run([sys.executable, "main.py", "fork"], cwd=tmp_path, check=True)

    for name in ("x.epr", "x.epr.archive"):
        assert eventprof.open(tmp_path / name).processes["worker"].tolist() == ["reader"]


def test_where_the_names_are_shown(tmp_path, capsys):
    write(tmp_path, main=WORK.format(NAMED.strip()))

    made = run(tmp_path, "-o", "m.epd", "main.py", "fork")

    folder = tmp_path / "m.epd"
    assert "; reäder, main.py fork\n" in made.stderr
    known = json.loads((folder / "manifest.json").read_text())["processes"]
    assert [each["worker"] for each in known] == [None, "reäder", "ForkProcess-2"]
    trace = eventprof.open(folder)
    trace.save(tmp_path / "one.epr")
    for each in (trace, eventprof.open(tmp_path / "one.epr")):
        assert each.processes["worker"].tolist() == [None, "reäder", "ForkProcess-2"]
        pid = each.processes["pid"].tolist()[1]
        assert f"{pid} reäder MainThread" in each.threads["name"]
    assert cli.main(["info", str(folder)]) == 0
    assert "; reäder, main.py fork\n" in capsys.readouterr().out
    child = folder / trace.processes["file"][1]
    for verb, text in (("report", "worker"), ("info", f"{pid} on ")):
        assert cli.main([verb, str(child)]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "reäder" in line]
        assert text in line
    assert "reäder" in notes_of(eventprof.open(child))["facts"]
    trace.export(tmp_path / "x.json", "chrome")
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    names = {each["args"]["name"] for each in events if each["name"] == "process_name"}
    assert {"reäder", "ForkProcess-2"} <= names


def test_a_dataset_has_the_names(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    write(tmp_path, main=WORK.format(NAMED.strip()))
    run(tmp_path, "-o", "m.epd", "main.py", "fork")

    eventprof.write_dataset(tmp_path / "m.epd", tmp_path / "data")

    found = eventprof.dataset(tmp_path / "data").processes["worker"]
    assert sorted(name or "" for name in found) == ["", "ForkProcess-2", "reäder"]


@pytest.mark.parametrize(
    "code",
    [
        "from multiprocessing.resource_tracker import main;main(7)",
        "from multiprocessing.forkserver import main; main(3, 4, ['__main__'], **{})",
        "from joblib.externals.loky.backend.resource_tracker import main; main(7, False)",
    ],
)
def test_processes_of_python_itself_are_not_still_recorded(code):
    class Recorded:
        displaced = ()

        @staticmethod
        def _count():
            return 3, 0, None, 1_000

    each = {"file": "x.epr", "events": 3, "lost": 0, "state": "running", "command": ["-c", code]}
    program = {**each, "state": "ended", "command": ["main.py"]}

    text = gathering._summary("x.epd", Recorded, [program, each])

    assert "still recorded" not in text
    assert "Python's own process, which ends by itself" in gathering._line(each)
    server = {**each, "command": ["server.py"]}
    assert "1 still recorded" in gathering._summary("x.epd", Recorded, [program, server])
