"""A program does under ``eventprof run`` what it does without: output, messages, exit status."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import children
import pytest
from running import LINE, RUN, Case, both, environment, execute, same, script, write

import eventprof

pytestmark = pytest.mark.version

RECORDS_ITSELF = """
import eventprof
def leaf(n):
    return n
with eventprof.record(output="own-%p.epr", force=True):
    leaf(1)
print("worked")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["run", "environment", "environment and run", "run and run"])
def test_a_program_that_records_itself_works(by, tmp_path):
    """Each recording has its file, and the program ends as without."""
    (tmp_path / "main.py").write_text(RECORDS_ITSELF)
    run = [sys.executable, "-m", "eventprof", "run", "-q"]
    command = {
        "run": [*run, "-o", "1.epr", "main.py"],
        "environment": [sys.executable, "main.py"],
        "environment and run": [*run, "-o", "1.epr", "main.py"],
        "run and run": [
            *run,
            "-o",
            "1.epr",
            "-m",
            "eventprof",
            "run",
            "-q",
            "-o",
            "2.epr",
            "main.py",
        ],
    }[by]
    more = {"EVENTPROF": "1", "EVENTPROF_OUTPUT": "0.epr"} if by.startswith("environment") else {}

    done = children.run(*command, cwd=tmp_path, environment={**environment(), **more})

    assert (done.stdout, done.stderr) == ("worked\n", "")
    files = sorted(path.name for path in tmp_path.glob("*.epr"))
    own = [name for name in files if name.startswith("own-")]
    others = {"run": ["1.epr"], "environment": ["0.epr"], "environment and run": ["1.epr"],
              "run and run": ["1.epr", "2.epr"]}[by]  # fmt: skip
    assert files == sorted([*others, *own]) and len(own) == 1
    for name in files:
        trace = eventprof.open(tmp_path / name)
        called = [str(name) for name in trace.calls["name"]]
        assert called.count("leaf") == 1, name
        assert not trace.loss and not trace.file["unfinished"], name


# ---- Programs ------------------------------------------------------------------------------------


SEEN = """
    import json, os, sys
    names = {k: v for k, v in globals().items() if k not in ("json", "os", "sys")}
    names["__builtins__"] = type(names["__builtins__"]).__name__
    print({k: names[k] if isinstance(names[k], (str, dict, type(None))) else type(names[k]).__name__
           for k in sorted(names)})
    print(sys.argv, sys.path, os.path.basename(sys.orig_argv[0]), sys.orig_argv[1:])
    print(sys.modules["__main__"].__dict__ is globals(), sys.flags, sys.executable)
    print(sys.warnoptions, sys._xoptions, os.getcwd(), sorted(os.environ))
    print([stream.name for stream in (sys.stdin, sys.stdout, sys.stderr)])
"""


RAISES = """
    def inner():
        raise ValueError("odd \\N{SNOWMAN}")

    def outer():
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("wrapped") from error

    outer()
"""


ASYNCIO = """
    import asyncio

    async def echo(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async def ask(i):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello %d\\n" % i)
            answer = await reader.readline()
            writer.close()
            return answer
        async with asyncio.timeout(20), server:
            print(sorted(await asyncio.gather(*map(ask, range(5)))))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        except* KeyError as errors:
            print(errors.exceptions)

    async def fail():
        await asyncio.sleep(0)
        raise KeyError("task")

    asyncio.run(main())
"""


POOL = """
    import multiprocessing, sys

    class Thing:
        def __init__(self, n):
            self.n = n

    def double(thing):
        return Thing(thing.n * 2), __name__, multiprocessing.current_process().name != "MainProcess"

    if __name__ == "__main__":
        multiprocessing.set_start_method(sys.argv[1])
        with multiprocessing.Pool(2) as pool:
            found = pool.map(double, map(Thing, range(4)))
        print([(t.n, name, other) for t, name, other in found])
        child = multiprocessing.Process(target=sys.exit, args=(3,))
        child.start()
        child.join()
        print(child.exitcode)
"""


EXECUTOR = """
    import concurrent.futures as futures, multiprocessing
    def square(x):
        return x * x
    def fails():
        raise LookupError("in a worker")
    if __name__ == "__main__":
        for kind in futures.ThreadPoolExecutor, futures.ProcessPoolExecutor:
            with kind(2) as pool:
                print(list(pool.map(square, range(5))))
                print(repr(pool.submit(fails).exception()))
"""


PICKLES = """
    import copy, pickle
    class Point:
        def __init__(self, x): self.x = x
        def __repr__(self): return f"{type(self).__module__}.{type(self).__qualname__}({self.x})"
    data = pickle.dumps([Point(1), Point, len])
    print(pickle.loads(data), b"__main__" in data, copy.deepcopy(Point(2)))
"""


THREADS = """
    import atexit, sys, threading, time
    atexit.register(print, "at exit")
    def late():
        threading.main_thread().join()
        print("late")
    def leaves():
        sys.exit("not seen")
    def fails():
        raise ValueError("in a thread")
    threading.excepthook = lambda args: print("hook", args.exc_type, args.exc_value)
    for target in leaves, fails:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    threading.Thread(target=late).start()
    def daemon():
        while True:
            time.sleep(0.01)
    threading.Thread(target=daemon, daemon=True).start()
    print("main ends", threading.current_thread() is threading.main_thread())
"""


FORKS = """
    import os, sys, warnings
    warnings.simplefilter("error")
    print("before", flush=True)
    pid = os.fork()
    if pid == 0:
        print("child", flush=True)
        sys.exit(7)
    print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    pid = os.fork()
    if pid == 0:
        os._exit(8)
    print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


PROFILES = """
    import cProfile, pstats, io
    def f(n): return n and f(n - 1)
    profile = cProfile.Profile()
    profile.runcall(f, 10)
    stats = pstats.Stats(profile, stream=io.StringIO())
    print(sorted((key[2], value[:2]) for key, value in stats.stats.items()))
"""


TRACES_MEMORY = """
    import tracemalloc
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    kept = [bytes(10_007) for _ in range(10)]
    change = tracemalloc.take_snapshot().compare_to(before, "lineno")
    top = max(change, key=lambda row: row.size_diff)
    print(top.size_diff > 100_000, top.traceback[0].lineno)
"""


HTTP = """
    import http.server, threading, urllib.request
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.path.encode())
        def log_message(self, *args):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/there"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    print(opener.open(url, timeout=900).read())
    server.shutdown()
    thread.join()
    server.server_close()
"""


FLASK = """
    from flask import Flask
    app = Flask(__name__)
    @app.get("/<name>")
    def hello(name):
        return {"hello": name}
    print(app.name, app.root_path, app.test_client().get("/you").json)
"""


TEST_MODULE = """
    '''
    >>> 1 + 1
    2
    '''
    import unittest
    class Adds(unittest.TestCase):
        def test_right(self): self.assertEqual(1 + 1, 2)
        def test_wrong(self): self.assertEqual(1 + 1, 3)
        @unittest.expectedFailure
        def test_expected(self): self.fail()
    if __name__ == "__main__":
        unittest.main()
"""


PYTEST_MODULE = """
    import pytest
    @pytest.fixture
    def one(): return 1
    def test_adds(one): assert one + 1 == 2
    def test_fails(one): assert one == 2
    def test_raises():
        with pytest.raises(ZeroDivisionError): 1 / 0
    def test_prints(capsys):
        print("x")
        assert capsys.readouterr().out == "x\\n"
"""


INSPECTS = """
    import inspect, linecache, sys
    def function():
        return 1
    print(inspect.getsource(function), inspect.getfile(function) == __file__)
    print(inspect.getmodule(function) is sys.modules["__main__"], linecache.getline(__file__, 3))
"""


MOVES = """
    import os, sys
    os.chdir("/")
    for name in list(sys.modules):
        if name.startswith(("json", "email", "numpy", "eventprof")):
            del sys.modules[name]
    import json
    print(json.dumps({"cwd": os.getcwd()}))
    del sys.modules["__main__"]
    print(__name__)
"""


HANDLES_SIGNALS = """
    import os, signal, sys
    print({s.name: str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)})
    signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))
    os.kill(os.getpid(), signal.SIGTERM)
"""


AT_EXIT = """
    import atexit, sys
    atexit.register(lambda: print("first", globals().get("__file__")))
    @atexit.register
    def second():
        print("second")
        raise ValueError("at exit")
    class Finalized:
        def __del__(self): print("finalized")
    kept = Finalized()
"""


OWN_HOOK = """
    import sys
    sys.excepthook = lambda kind, value, tb: print(kind, value, tb.tb_frame.f_code.co_name, tb.tb_next)
    raise ValueError(1)
"""


BAD_HOOK = """
    import sys
    def hook(kind, value, tb):
        raise LookupError("in the hook")
    sys.excepthook = hook
    raise ValueError(1)
"""


POST_MORTEM = """
    import atexit, sys, traceback
    atexit.register(lambda: traceback.print_tb(sys.last_traceback))
    def f(): 1 / 0
    f()
"""


PDB = """
    def f(x):
        y = x + 1
        return y
    print(f(1))
"""


PROGRAMS = {
    "script": script(SEEN, "a", "--help", "-m", "-o"),
    "module": Case(["-m", "pack.mod", "-x"], {"pack/__init__.py": "print('pack')", "pack/mod.py": SEEN}),
    "package": Case(["-m", "pack", "1"], {"pack/__init__.py": "", "pack/__main__.py": SEEN}),
    "directory": Case(["tree", "1"], {"tree/__main__.py": SEEN}),
    "elsewhere": Case(["sub/main.py"], {"sub/main.py": "import beside\n" + textwrap.dedent(SEEN), "sub/beside.py": ""}),
    "code": Case(["-c", textwrap.dedent(SEEN), "-q", "b"]),
    "glued code": Case(["-cimport sys; print(sys.argv)", "b"]),
    "stdin": Case(["-", "a"], stdin=textwrap.dedent(SEEN)),
    "excepthook of threads": Case(["-c", "import threading as t; print(t.excepthook.__module__, t.excepthook.__name__)"]),
    "raises": script(RAISES, status=1),
    "raises in code": Case(["-c", "def f():\n  1/0\nf()"], status=1),
    "raises in stdin": Case(["-"], stdin="x = 1\nx/0\n", status=1),
    "raises in a module": Case(["-m", "mod"], {"mod.py": RAISES}, status=1),
    "recursion": script("def f(): f()\nf()", varies=r"\[Previous line repeated \d+ more times\]", status=1),
    "group": script("raise ExceptionGroup('all', [ValueError(1), KeyError(2)])", status=1),
    "own base": script("class Odd(BaseException): pass\nraise Odd(1)", status=1),
    "bad syntax": script("def f(:\n", status=1, line=False),
    "bad syntax in code": Case(["-c", "1+"], status=1, line=False),
    "bad syntax in a module": Case(["-m", "mod"], {"mod.py": "1+"}, status=1),
    "no such module": Case(["-m", "surely_not"], status=1, line=False),
    "no __main__": Case(["empty"], {"empty/x.py": ""}, status=1),
    "hook": script(OWN_HOOK, status=1),
    "bad hook": script(BAD_HOOK, status=1),
    "post mortem": script(POST_MORTEM, status=1),
    "exit number": script("import sys; sys.exit(5)", status=5),
    "exit text": script("import sys; sys.exit('said')", status=1),
    "exit none": script("import sys; sys.exit()"),
    "exit large": script("raise SystemExit(257)", status=1),
    "exit object": script("raise SystemExit([1])", status=1),
    "exit of code": Case(["-c", "raise SystemExit(4)"], status=4),
    "exit of a module": Case(["-m", "mod"], {"mod.py": "exit(6)"}, status=6),
    "os._exit": script("import os; print('x', flush=True); os._exit(3)", status=3, line=False),
    "killed": script("import os; os.kill(os.getpid(), 9)", status=-9, line=False),
    "terminated": script("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", status=-15, line=False),
    "aborted": script("import os; os.abort()", status=-6, line=False),
    "interrupted": script("import os, signal; os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass", status=-2),
    "interrupts itself": Case(["-m", "mod"], {"mod.py": "raise KeyboardInterrupt"}, status=-2),
    "interrupts code": Case(["-c", "raise KeyboardInterrupt"], status=-2),
    "signals": script(HANDLES_SIGNALS, status=9),
    "exec": script("import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])", line=False),
    "re-executes itself": script(
        "import os, sys\nprint(sys.argv, flush=True)\n"
        "if len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], 'again'])",
        line=False,
    ),
    "fork": script(FORKS),
    "threads": script(THREADS),
    "at exit": script(AT_EXIT, varies="0x[0-9a-f]+"),
    "no stdout": script("import os, sys; os.close(1); sys.stdout = None"),
    "closes stderr": script("import sys; sys.stderr.close()", line=False),
    "inspects": script(INSPECTS),
    "moves": script(MOVES),
    "asyncio": script(ASYNCIO),
    "pool, fork": script(POOL, "fork"),
    "pool, spawn": script(POOL, "spawn"),
    "pool, forkserver": script(POOL, "forkserver"),
    "pool of a module": Case(["-m", "mod", "spawn"], {"mod.py": POOL}),
    "executors": script(EXECUTOR),
    "pickles": script(PICKLES),
    "cProfile inside": script(PROFILES),
    "tracemalloc inside": script(TRACES_MEMORY),
    "http.server": script(HTTP),
    "pip": Case(["-m", "pip", "--version"]),
    "json.tool": Case(["-m", "json.tool", "--sort-keys"], stdin='{"b": [1, 2.5], "a": null}'),
    "json.tool on bad input": Case(["-m", "json.tool"], stdin="{", status=1),
    "compileall": Case(["-m", "compileall", "-f", "tree"], {"tree/a.py": "x = 1", "tree/b.py": "1+"}, status=1),
    "unittest": Case(["-m", "unittest", "-v", "mod"], {"mod.py": TEST_MODULE}, varies=r"in \d+\.\d+s", status=1),
    "unittest of a script": script(TEST_MODULE, varies=r"in \d+\.\d+s", status=1),
    "pytest": Case(["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "test_mod.py"], {"test_mod.py": PYTEST_MODULE, "pytest.ini": "[pytest]"}, varies=r"=+ .* in \d+\.\d+s =+", status=1),
    "doctest": Case(["-m", "doctest", "-v", "mod.py"], {"mod.py": TEST_MODULE}),
    "dis": Case(["-m", "dis", "mod.py"], {"mod.py": "x = [i for i in range(3)]"}, varies="0x[0-9a-f]+"),
    "tokenize": Case(["-m", "tokenize", "mod.py"], {"mod.py": TEST_MODULE}),
    "ast": Case(["-m", "ast"], stdin="x = 1"),
    "timeit": Case(["-m", "timeit", "-n", "10", "-r", "2", "1 + 1"], varies=r"[\d.]+ [num]?sec|(?s:\n?:0: UserWarning.*)"),
    "zipapp": Case(["-m", "zipapp", "tree", "-o", "-"], {"tree/__main__.py": "print(1)"}, varies="(?s).*"),
    "pdb": Case(["-m", "pdb", "mod.py"], {"mod.py": PDB}, stdin="b f\nc\np x\nn\np y\nw\nc\nq\n", varies=r"(?m)^.*(bdb|pdb|runpy|cli/.*|__main__)\.?(py)?>?\(\d+\).*\n.*\n"),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_without(name, tmp_path):
    case = PROGRAMS[name]
    write(case.files, tmp_path)

    plain, recorded, lines = both(tmp_path, *case.arguments, stdin=case.stdin)

    if case.varies:
        for result in (plain, recorded):
            result.stdout = re.sub(case.varies, "", result.stdout)
            result.stderr = re.sub(case.varies, "", result.stderr)
    same(plain, recorded)
    assert plain.returncode == case.status
    assert len(lines) == case.line


@pytest.mark.thorough
def test_flask(tmp_path):
    pytest.importorskip("flask")
    write({"main.py": FLASK}, tmp_path)

    same(*both(tmp_path, "main.py")[:2])


def test_an_archive_is_run(tmp_path):
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", textwrap.dedent(SEEN))

    same(*both(tmp_path, "app.zip", "x")[:2])


def test_a_compiled_file_is_run(tmp_path):
    import py_compile

    write({"mod.py": "import sys; print(__file__, sys.argv, type(__loader__))"}, tmp_path)
    py_compile.compile(str(tmp_path / "mod.py"), str(tmp_path / "mod.pyc"))

    same(*both(tmp_path, "mod.pyc", "x")[:2])


def test_options_of_the_interpreter_stay(tmp_path):
    write({"main.py": SEEN}, tmp_path)
    options = ["-X", "utf8", "-W", "ignore", "-O", "-P"]

    plain = execute([sys.executable, *options, "main.py", "x"], tmp_path)
    recorded = execute([sys.executable, *options, *RUN[1:], "-q", "main.py", "x"], tmp_path)

    same(plain, recorded)


def wait_until_asleep(pid):
    """It has said its last word and waits: no more in the middle of print()."""
    asleep = 0
    while asleep < 20:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.01)


def test_ctrl_c_ends_it_as_it_ends_python(tmp_path):
    write({"main.py": "import time\nprint('ready', flush=True)\ntime.sleep(60)"}, tmp_path)
    results = []
    for command in ([sys.executable], RUN):
        process = subprocess.Popen(
            [*command, "main.py"], cwd=tmp_path, env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        wait_until_asleep(process.pid)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=900)
        results.append((output, LINE.sub("", errors), process.returncode))

    assert results[0] == results[1]
    assert results[0][2] == -signal.SIGINT


def test_a_server_answers_while_it_is_recorded(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    write({"page.txt": "the page"}, tmp_path)
    process = subprocess.Popen(
        [*RUN, "-m", "http.server", "--bind", "127.0.0.1", str(port)],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for _ in range(1200):
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=900)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        with connection:
            connection.sendall(b"GET /page.txt HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
    finally:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=900)

    assert answer.endswith(b"the page")
    assert "Keyboard interrupt received, exiting." in output
    assert process.returncode == 0
    assert LINE.search(errors)
