"""EVENTPROF in the environment records what something else starts, and disturbs nothing."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import textwrap

import children
import pytest
import raw

import eventprof
from eventprof.cli.options import parse_modes, parse_time, parse_words

pytestmark = pytest.mark.version

PTH = pathlib.Path(__file__).parents[3] / "python" / "eventprof.pth"


@pytest.fixture
def folder(tmp_path):
    """A directory whose eventprof.pth is processed at start, as if it were installed."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(PTH, site)
    # Twice, as in a virtual environment.
    (site / "sitecustomize.py").write_text(
        f"import site\nfor _ in 0, 1: site.addsitedir({str(site)!r})"
    )
    (tmp_path / "work").mkdir()
    return tmp_path


def python(folder, *arguments, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EVENTPROF")}
    paths = [str(folder / "site"), *filter(None, [env.get("PYTHONPATH")])]
    env |= {"PYTHONPATH": os.pathsep.join(paths), **environment}
    return children.run(
        sys.executable, *arguments, status=None, cwd=folder / "work", environment=env
    )


def traces(folder):
    return [eventprof.open(path) for path in sorted((folder / "work").glob("*.epr"))]


PROGRAM = "def called(): return bytearray(12347)\ncalled()\nprint('done')"


def test_the_line_is_short_and_imports_nothing_of_ours():
    (line,) = PTH.read_text().splitlines()

    assert line.startswith("import os;")
    assert len(line) < 130


@pytest.mark.parametrize("value", [None, "", "0", "off"])
def test_without_it_nothing_is_imported(folder, value):
    environment = {} if value is None else {"EVENTPROF": value}
    code = "import sys; print('numpy' in sys.modules, 'eventprof' in sys.modules)"

    found = python(folder, "-c", code, **environment)

    loaded = value not in (None, "")
    assert (found.stdout, found.stderr) == (f"False {loaded}\n", "")
    assert not list((folder / "work").iterdir())


SUBINTERPRETERS = """
import sys
code = "def inside(): return [str(i) for i in range(3)]\\nprint('inside', inside(), flush=True)"
def each():
    if sys.version_info >= (3, 14):
        import concurrent.interpreters as interpreters
        from concurrent.futures import InterpreterPoolExecutor
        interpreter = interpreters.create()
        interpreter.exec(code)
        interpreter.close()
        with InterpreterPoolExecutor(1) as pool:
            print(pool.submit(sum, (1, 2)).result(), flush=True)
    elif sys.version_info >= (3, 13):
        import _interpreters
        for sort in "isolated", "legacy":
            number = _interpreters.create(sort)
            assert _interpreters.exec(number, code) is None
            _interpreters.destroy(number)
    else:
        import _xxsubinterpreters
        for isolated in True, False:
            number = _xxsubinterpreters.create(isolated=isolated)
            _xxsubinterpreters.run_string(number, code)
            _xxsubinterpreters.destroy(number)
each()
"""
INSIDE = "inside ['0', '1', '2']\n"


@pytest.mark.parametrize("way", ["EVENTPROF", "count", "run"])
def test_a_sub_interpreter_is_neither_recorded_nor_disturbed(folder, way):
    program = folder / "work" / "p.py"
    program.write_text(SUBINTERPRETERS)

    if way == "run":
        found = python(folder, "-m", "eventprof", "run", "--follow-exec", "-o", "p-%p.epr", program)
        assert len(found.stderr.splitlines()) == 1 and "none lost" in found.stderr
    else:
        value = "1" if way == "EVENTPROF" else "count,report=counts.txt"
        found = python(folder, program, EVENTPROF=value)
        assert found.stderr == ""

    assert found.returncode == 0
    assert found.stdout == (f"{INSIDE}3\n" if sys.version_info >= (3, 14) else INSIDE * 2)
    for trace in traces(folder):
        assert "each" in trace.functions["name"] and "inside" not in trace.functions["name"]
        assert trace.verify(all=True)


def test_with_it_a_program_is_recorded_in_silence(folder):
    found = python(folder, "-c", PROGRAM, EVENTPROF="1")

    assert (found.stdout, found.stderr, found.returncode) == ("done\n", "", 0)
    (trace,) = traces(folder)
    assert "called" in trace.functions["name"]
    assert trace.file["unfinished"] is False
    (path,) = (folder / "work").iterdir()
    assert path.name == f"eventprof-{trace.metadata['pid']}.epr"


def test_its_options_and_its_file(folder):
    found = python(
        folder, "-c", PROGRAM,
        EVENTPROF="memory=0,include=__main__*,buffer=64 MiB", EVENTPROF_OUTPUT="out-%h-%p.epr",
    )  # fmt: skip

    assert found.stderr == ""
    (trace,) = traces(folder)
    assert "malloc" not in trace.events["event"]
    assert "called" in trace.functions["name"]
    (path,) = (folder / "work").iterdir()
    assert path.name == f"out-{os.uname().nodename}-{trace.metadata['pid']}.epr"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("memroy=0", "there is no option 'memroy'; did you mean 'memory'?"),
        ("buffer=lots", "buffer must be bytes"),
        ("buffer", "buffer needs a value: buffer=..."),
        ("calls=perhaps", "calls: it must be 1 or 0, not 'perhaps'"),
        ("on_full=explode", "on_full must be"),
        ("native", "start the program by 'eventprof run --native'"),
    ],
)
def test_a_wrong_value_is_one_line_and_the_program_runs(folder, value, message):
    found = python(folder, "-c", PROGRAM, EVENTPROF=value)

    assert (found.stdout, found.returncode) == ("done\n", 0)
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"eventprof: EVENTPROF={value}: ")
    assert message in line
    assert line.endswith("; nothing is recorded")
    assert not list((folder / "work").iterdir())


def test_a_file_that_cannot_be_made_is_one_line_and_the_program_runs(folder):
    found = python(folder, "-c", PROGRAM, EVENTPROF="1", EVENTPROF_OUTPUT="/nosuch/x-%p.epr")

    assert found.stdout == "done\n"
    assert len(found.stderr.splitlines()) == 1
    assert "/nosuch" in found.stderr


def test_every_process_has_its_own_file(folder):
    code = (
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'def started(): pass\\nstarted()'], check=True)\n"
        "def forked(): pass\n"
        "pid = os.fork()\n"
        "forked() if pid == 0 else os.waitpid(pid, 0)\n"
    )

    found = python(folder, "-c", code, EVENTPROF="1")

    assert found.stderr == ""
    names = [set(trace.functions["name"]) for trace in traces(folder)]
    assert len(names) == 3
    assert sum("started" in name for name in names) == sum("forked" in name for name in names) == 1


def test_our_own_verbs_are_not_recorded(folder):
    found = python(folder, "-m", "eventprof", "--version", EVENTPROF="1")
    ran = python(folder, "-m", "eventprof", "run", "-o", "x.epr", "-c", "pass", EVENTPROF="1")

    assert found.stdout == f"eventprof {eventprof.__version__}\n"
    assert ran.stderr.startswith("eventprof: ")
    assert [path.name for path in (folder / "work").iterdir()] == ["x.epr"]


def test_run_follows_what_the_program_starts(folder):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'def started(): pass\\nstarted()'])"

    python(folder, "-m", "eventprof", "run", "-q", "--follow-exec", "-o", "x.epr", "-c", code)

    trace = eventprof.open(folder / "work" / "x.epd")
    assert trace.processes["parent"].tolist() == [None, 0]
    assert list(trace.functions["name"]).count("started") == 1
    assert "started" not in eventprof.open(folder / "work" / "x.epr").functions["name"]


# ---- Counting ------------------------------------------------------------------------------------

COUNTED = (
    "import json\ndef called(n): return n and called(n - 1)\n"
    "called(6)\njson.dumps([1])\nprint('done')"
)


def test_a_program_is_counted_and_reports_at_its_end(folder):
    found = python(folder, "-c", COUNTED, EVENTPROF="count,include=__main__*")
    whole = python(folder, "-c", COUNTED, EVENTPROF="count")

    assert (found.stdout, found.returncode) == (whole.stdout, whole.returncode) == ("done\n", 0)
    assert whole.stderr.startswith("eventprof: ")
    assert len(whole.stderr.splitlines()) == 28
    first, *lines = found.stderr.splitlines()
    assert first.startswith("eventprof: ")
    assert "calls of" in first
    (line,) = (line for line in lines if line.endswith("__main__.called (<string>:2)"))
    assert line.split()[0] == "7"
    assert not list((folder / "work").iterdir())


def test_counting_and_recording_by_module(folder):
    found = python(
        folder, "-c", COUNTED,
        EVENTPROF="json:count,__main__:record,memory=0,report=counts-%p.txt",
    )  # fmt: skip

    assert (found.stdout, found.stderr) == ("done\n", "")
    (trace,) = traces(folder)
    called = trace.functions[trace.functions["calls"] > 0]
    assert "called" in called["name"]
    assert "dumps" not in called["name"]
    (counts,) = (folder / "work").glob("counts-*.txt")
    text = counts.read_text()
    assert counts.name == f"counts-{trace.metadata['pid']}.txt"
    assert "json.dumps (" in text
    assert "json.encoder.JSONEncoder.encode (" in text
    assert "called" not in text.replace("calls", "")
    assert "allocated" not in text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("count,buffer=64 MiB", "buffer is for recording; counting has calls, c_calls"),
        ("json:cuont", "it must be MODULE:count or MODULE:record, not 'json:cuont'"),
        ("report=x.txt", "report=FILE goes with count"),
        ("count,report", "report needs a file"),
        ("count,calls=0,c_calls=0", "nothing to count"),
        ("count,native", "native is for recording: counting has the blocks of Python's allocators"),
        ("count,numpy=1", "numpy is for recording: counting has the blocks of Python's allocators"),
        ("count,domains=libc", "not counted: record them, by record(numpy=True, native=True)"),
    ],
)
def test_what_counting_does_not_know_is_one_line(folder, value, message):
    found = python(folder, "-c", PROGRAM, EVENTPROF=value)

    assert (found.stdout, found.returncode) == ("done\n", 0)
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"eventprof: EVENTPROF={value}: ")
    assert message in line


def test_run_counts(folder):
    (folder / "work" / "program.py").write_text(COUNTED)

    shown = python(folder, "-m", "eventprof", "run", "--count", "--include=__main__*", "program.py")
    kept = python(folder, "-m", "eventprof", "run", "--count", "-o", "out.txt", "--no-memory",
                  "--include", "json*", "program.py")  # fmt: skip
    again = python(folder, "-m", "eventprof", "run", "--count", "-o", "out.txt", "program.py")
    wrong = python(folder, "-m", "eventprof", "run", "--count", "--buffer", "9 MB", "program.py")

    assert shown.stdout == kept.stdout == "done\n"
    assert "__main__.called (program.py:2)" in shown.stderr
    assert kept.stderr == ""
    assert "json.dumps (" in (folder / "work" / "out.txt").read_text()
    assert "called (" not in (folder / "work" / "out.txt").read_text()
    assert again.returncode == wrong.returncode == 2
    assert "exists already; -f replaces it" in again.stderr
    assert "buffer is for recording" in wrong.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--native"], "native is for recording: counting has the blocks of Python's allocators"),
        (["--numpy", "1"], "numpy is for recording: counting has the blocks of Python's"),
        (["--domains", "numpy"], "not counted: record them, by record(numpy=True, native=True)"),
    ],
)
def test_run_does_not_count_what_counting_does_not_have(folder, options, message):
    found = python(folder, "-m", "eventprof", "run", "--count", *options, "-c", "print('ran')")

    assert (found.stdout, found.returncode) == ("", 2)
    assert message in found.stderr


def test_run_counts_what_the_program_starts(folder):
    code = (
        "import subprocess, sys; "
        "subprocess.run([sys.executable, '-c', 'def started(): pass\\nstarted()'])"
    )

    python(folder, "-m", "eventprof", "run", "--count", "--follow-exec", "-o", "x.txt", "-c", code)

    texts = {path.name: path.read_text() for path in (folder / "work").iterdir()}
    assert len(texts) == 2
    assert "subprocess.run (" in texts.pop("x.txt")
    ((name, text),) = texts.items()
    assert name.startswith("x-")
    assert "__main__.started (" in text


def test_modes_are_read():
    everything = parse_modes("1")
    both = parse_modes("a:count,b.c:record,d:count,c_calls=0,buffer=1 GiB,include=e")

    assert everything == ({}, None, None)
    assert parse_modes("count") == (None, {}, None)
    assert parse_modes("count,record,report=x") == ({}, {}, "x")
    assert both.counted == {"c_calls": False, "include": ["e", "a", "a.*", "d", "d.*"]}
    assert both.recorded == {"c_calls": False, "buffer": "1 GiB", "include": ["e", "b.c", "b.c.*"]}


@pytest.mark.parametrize("text", ["1", "on", "true"])
def test_words_for_everything(text):
    assert parse_words(text) == {}


def test_words_are_read():
    found = parse_words("memory=0, include=a.*,include=b,min_duration=10us,max-depth=3,c_calls")

    assert found == {
        "memory": False,
        "include": ["a.*", "b"],
        "min_duration": 10_000,
        "max_depth": 3,
        "c_calls": True,
    }


@pytest.mark.parametrize(
    ("text", "ns"),
    [("0", 0), ("0.0", 0), ("17ns", 17), ("1.5 ms", 1_500_000), ("2s", 2 * 10**9), (".5us", 500),
     ("1_000us", 10**6), ("2min", 120 * 10**9)],
)  # fmt: skip
def test_times_are_read(text, ns):
    assert parse_time(text) == ns


@pytest.mark.parametrize("text", ["", "ms", "10", "1.5", "1 week", "-1s", "1e3", "nan"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="a time is a number and a unit"):
        parse_time(text)


# ---- The end by an exception ---------------------------------------------------------------------


RAISING = """
    import sys, threading

    def fails():
        raise ValueError("the end")

    fails()
"""


def files_that_show_errors(trace):
    """Of what is called or has blocks. (Blocks of the program may be freed there.)"""
    functions = trace.functions
    busy = [
        row
        for row in range(len(functions))
        if any(functions[each][row] > 0 for each in ("calls", "allocated"))
    ]
    files = {os.path.basename(file) for file in functions["file"][busy] if file}
    return files & {"traceback.py", "linecache.py", "tokenize.py", "_colorize.py"}


@pytest.mark.parametrize("start", [[], ["-m", "eventprof", "run", "-q", "-o", "end.epr"]])
def test_printing_the_traceback_is_not_recorded(tmp_path, start):
    (tmp_path / "main.py").write_text(textwrap.dedent(RAISING))
    env = {**os.environ, **({} if start else {"EVENTPROF": "1", "EVENTPROF_OUTPUT": "end.epr"})}

    done = children.run(sys.executable, *start, "main.py", status=1, cwd=tmp_path, environment=env)

    assert done.stderr.startswith("Traceback (most recent call last):\n  File ")
    assert done.stderr.endswith("ValueError: the end\n")
    assert "excepthook" not in done.stderr
    trace = eventprof.open(tmp_path / "end.epr")
    words = trace.events["event"].tolist()
    assert "unwind" in words
    last = max(row for row, word in enumerate(words) if word == "unwind")
    assert trace.file["unfinished"] is False
    # What the interpreter does at its end is recorded, with and without an exception.
    assert not files_that_show_errors(trace)
    assert len(words) - last < 500
    assert trace.verify().ok


RAISING_BESIDE = """
    import atexit, threading, time

    def last():
        print("at exit")

    def fails():
        raise ValueError("of a thread")

    def works(done=threading.Event()):
        done.wait()
        goes_on()

    def goes_on():
        return [bytes(12347) for _ in range(3)]

    atexit.register(last)
    done = threading.Event()
    other = threading.Thread(target=works, args=(done,))
    other.start()
    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
    assert threading.excepthook is threading.__excepthook__
    done.set()
    raise ValueError("the end")
"""


@pytest.mark.parametrize("start", [[], ["-m", "eventprof", "run", "-q", "-o", "end.epr"]])
@pytest.mark.parametrize("words", ["", "backend=profile", "calls=off", "memory=off"])
def test_an_exception_is_shown_unrecorded_beside_what_goes_on(tmp_path, start, words):
    if words == "backend=profile" and not raw.HAS_GIL:
        pytest.skip("profile needs the GIL")
    (tmp_path / "main.py").write_text(textwrap.dedent(RAISING_BESIDE))
    env = {**os.environ}
    if start:
        given = {"": [], "backend=profile": ["--backend", "profile"]}
        start = [*start, *given.get(words, [f"--no-{words.partition('=')[0]}"])]
    else:
        env.update(EVENTPROF=words or "1", EVENTPROF_OUTPUT="end.epr")

    done = children.run(sys.executable, *start, "main.py", status=1, cwd=tmp_path, environment=env)

    assert done.stdout == "at exit\n"
    assert done.stderr.count("Traceback (most recent call last):\n  File ") == 2
    assert "eventprof" not in done.stderr.replace(sys.base_prefix, "")
    assert done.stderr.endswith("ValueError: the end\n")
    trace = eventprof.open(tmp_path / "end.epr")
    assert not files_that_show_errors(trace)
    assert trace.verify().ok, trace.verify()
    if words != "calls=off":
        assert {"last", "fails", "goes_on", "works"} <= set(trace.functions["name"])
    if words != "memory=off":
        assert trace.allocations["size"].tolist().count(sys.getsizeof(bytes(12347))) == 3
        unknown = (trace.events["event"] == "free") & (trace.events["size"].mask)
        # A collector without generations comes early upon what was garbage before the recording: 450 blocks.
        assert unknown.sum() < (200 if raw.HAS_GIL else 1000)


CHURNING = """
    import atexit, gc, threading

    def churns():
        held = []
        for n in range(8_000):
            held.append([n] * (n % 50 + 1))
            if len(held) > 200:
                held.clear()

    def fails():
        raise ValueError("the end")

    def last():
        gc.collect()
        churns()
        gc.collect()

    atexit.register(last)
    churns()
"""
OF_THREADS = """
    for _ in range(2):
        threads = [threading.Thread(target=fails) for _ in range(3)]
        for thread in threads:
            thread.start()
        churns()
        for thread in threads:
            thread.join()
        last()
"""


@pytest.mark.parametrize("options", [[], ["--no-calls", "--no-c-calls"]])
@pytest.mark.parametrize(("where", "shown"), [(OF_THREADS, 6), ("    fails()\n", 1)])
def test_what_showing_an_exception_leaves_the_program_frees(tmp_path, where, shown, options):
    """The interpreter's free lists hand it on, also to other threads."""
    (tmp_path / "main.py").write_text(textwrap.dedent(CHURNING + where))
    done = children.eventprof(
        "run", "-q", "-o", "end.epr", *options, "main.py", status=None, cwd=tmp_path
    )
    # Threads write at the same time: a line may be torn, but not this text, which the source has, too.
    assert done.stderr.count("the end") == 2 * shown, done.stderr
    trace = eventprof.open(tmp_path / "end.epr")
    assert trace.verify().ok, trace.verify()
    assert not files_that_show_errors(trace)


def test_a_hook_of_the_programs_and_its_threads_are_recorded(tmp_path):
    (tmp_path / "main.py").write_text(
        textwrap.dedent("""
        import sys, threading, time

        def hook(*_):
            inside_of_the_hook()

        def inside_of_the_hook():
            pass

        def other():
            main.join()
            after_the_end()

        def after_the_end():
            pass

        main = threading.main_thread()
        if sys.argv[1] == "hook":
            sys.excepthook = hook
        else:
            assert sys.excepthook is sys.__excepthook__
            event = threading.Event()
            threading.Thread(target=lambda: (event.wait(), after_the_end())).start()
            threading.Timer(0.2, event.set).start()
        raise ValueError
        """)
    )
    for word, name in (("hook", "inside_of_the_hook"), ("thread", "after_the_end")):
        for start in ([], ["-m", "eventprof", "run", "-q", "-f", "-o", f"{word}.epr"]):
            env = {**os.environ, **({} if start else {"EVENTPROF": "1"})}
            env["EVENTPROF_OUTPUT"] = f"{word}-env.epr"
            children.run(
                sys.executable, *start, "main.py", word, status=1, cwd=tmp_path, environment=env
            )
            trace = eventprof.open(tmp_path / (f"{word}.epr" if start else f"{word}-env.epr"))
            assert name in set(trace.functions["name"])


def test_record_in_a_signals_handler_while_numpy_is_loaded(tmp_path):
    done = children.program(
        """
            import signal, sys
            import eventprof
            assert "numpy" not in sys.modules
            recorders = []

            def handler(*_):
                if not recorders:
                    recorders.append(eventprof.record(memory=False))
                    recorders[0].start()

            signal.signal(signal.SIGALRM, handler)

            class Finder:
                def find_spec(self, name, path=None, target=None):
                    if name == "numpy.version":
                        signal.raise_signal(signal.SIGALRM)

            sys.meta_path.insert(0, Finder())
            import numpy
            recorders[0].stop()
            print(len(recorders[0].trace.events) > 0, numpy.arange(3).sum())
        """
    )

    assert (done.stdout, done.stderr) == ("True 3\n", "")
