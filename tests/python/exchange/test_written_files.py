"""One rule for everything that writes a file: what exists stays, unless the user says otherwise."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

import exported
import pytest
from exporting import require
from running import execute

import eventprof
from eventprof import cli
from eventprof.export import FORMATS
from eventprof.plugins import snapshot
from eventprof.tables import TABLES

PACKAGE = Path(__file__).parents[3] / "python" / "eventprof"
MINE = b"a file of the user\n"
#: The tables that each format is asked for.
EXPORTS = {
    word: [None, *TABLES] if known.takes == "table" else [None] for word, known in FORMATS.items()
}


@pytest.fixture(scope="module")
def trace():
    return exported.nasty()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(folder, *words, **env):
    """A process of eventprof."""
    return execute([sys.executable, *words], folder, **env)


@contextlib.contextmanager
def full_disk(after):
    """Every file of this process may have so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


# ---- Export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", EXPORTS)
def test_export_keeps_what_exists(trace, folder, word):
    require(word)
    path = folder / f"x{FORMATS[word].extensions[0]}"
    for table in EXPORTS[word]:
        path.write_bytes(MINE)
        path.chmod(0o640)

        with pytest.raises(FileExistsError, match="exists already; force=True replaces") as error:
            trace.export(path, word, table=table)

        assert error.value.filename == str(path)
        assert path.read_bytes() == MINE
        trace.export(path, word, table=table, force=True)
        assert path.read_bytes() != MINE, table
        assert path.stat().st_mode & 0o777 == 0o640, table
        assert os.listdir(folder) == [path.name]


@pytest.mark.parametrize("word", EXPORTS)
def test_the_default_name_is_no_file_of_the_program(trace, folder, capsys, word):
    require(word)
    trace.save("orders.epr")
    # Endings of files that programs read and write.
    files = {f"orders{ending}" for known in FORMATS.values() for ending in known.extensions}
    files |= {f"orders{ending}.gz" for ending in (".csv", ".json")}
    for name in files:
        Path(name).write_bytes(MINE)
    for table in EXPORTS[word]:
        words = ["export", "orders.epr", "--format", word, *(["--table", table] if table else [])]

        assert cli.main(words) == 0

        assert {name for name in files if Path(name).read_bytes() != MINE} == set()
        (made,) = set(os.listdir(folder)) - files - {"orders.epr"}
        assert capsys.readouterr().out.startswith(f"{made}: {word}, ")
        if FORMATS[word].takes == "table":
            assert made == f"orders.{table or 'calls'}{FORMATS[word].extensions[0]}"
        Path(made).write_bytes(MINE)
        assert cli.main(words) == 1
        said = capsys.readouterr().err
        assert f"{made}: exists already; -f replaces it, -o names another" in said
        assert Path(made).read_bytes() == MINE
        assert cli.main([*words, "-f"]) == 0
        capsys.readouterr()
        assert Path(made).read_bytes() != MINE
        os.unlink(made)


@pytest.mark.parametrize("word", FORMATS)
def test_a_full_disk_leaves_the_old_file_and_no_part_of_the_new(trace, folder, word):
    require(word)
    path = folder / f"x{FORMATS[word].extensions[0]}"
    path.write_bytes(MINE)

    with full_disk(100), pytest.raises(Exception, match=r".") as error:
        trace.export(path, word, force=True)

    assert path.read_bytes() == MINE
    assert os.listdir(folder) == [path.name]
    if isinstance(error.value, OSError):
        assert error.value.filename == str(path)
        assert "make room" in str(error.value)


@pytest.mark.parametrize("word", FORMATS)
def test_a_file_that_appears_meanwhile_stays(trace, folder, word, monkeypatch):
    require(word)
    path = folder / f"x{FORMATS[word].extensions[0]}"
    link = os.link

    def meanwhile(*args):
        path.write_bytes(MINE)
        return link(*args)

    monkeypatch.setattr(os, "link", meanwhile)
    with pytest.raises(FileExistsError, match="force=True"):
        trace.export(path, word)

    assert path.read_bytes() == MINE
    assert os.listdir(folder) == [path.name]


def test_the_file_is_looked_at_before_the_recording_is_read(folder, capsys):
    Path("x.json").write_bytes(MINE)
    for words in (["-o", "x.json"], ["-o", "absent/x.json"]):
        assert cli.main(["export", "absent.epr", *words]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "x.json: exists already" in first
    assert "absent/x.json: No such file or directory" in second


def test_a_base_is_not_written_into_a_pipe(trace, folder):
    os.mkfifo("x.sqlite")

    with pytest.raises(ValueError, match="not a regular file"):
        trace.export("x.sqlite", force=True)

    assert os.listdir(folder) == ["x.sqlite"]


def test_devices_are_written_to(trace):
    trace.export("/dev/null", "chrome")
    with pytest.raises(OSError, match="make room"):
        trace.export("/dev/full", "chrome")


def test_names_may_be_as_long_as_the_file_system_allows(trace, folder):
    path = folder / f"{'x' * 250}.epr"
    trace.save(path)
    assert len(eventprof.open(path).calls) == len(trace.calls)


# ---- The verbs -----------------------------------------------------------------------------------

PROGRAM = "def work():\n    return [n * n for n in range(9)]\nwork()\n"


def files_of_verb(verb):
    """Arguments of a verb that writes `path`; {} stands for its name."""
    return {
        "run": ["-o", "{}.epr", "program.py"],
        "export": ["a.epr", "-o", "{}.json"],
        "save": ["a.epr", "-o", "{}.epr"],
        "merge": ["a.epr", "b.epr", "-o", "{}.epr"],
        "trim": ["a.epr", "-o", "{}.epr"],
        "view": ["a.epr", "-o", "{}.html"],
        "flamegraph": ["a.epr", "-o", "{}.svg"],
        "heatmap": ["a.epr", "-o", "{}.html"],
        "demo": ["--out", "{}.epr"],
        "dataset": ["a.epr", "-o", "{}"],
    }[verb]


def writing_verbs():
    """The verbs that take the name of a file to write."""
    for verb in cli.VERBS:
        flags = [
            f for a in cli.make_parser(verb, cli.load(verb))._actions for f in a.option_strings
        ]
        if {"-o", "--output", "--out"} & set(flags):
            yield verb


@pytest.mark.thorough
@pytest.mark.parametrize("verb", list(writing_verbs()))
def test_a_verb_keeps_what_exists(trace, folder, verb):
    for name in ("a.epr", "b.epr"):
        trace.save(name)
    Path("program.py").write_text(PROGRAM)
    words = [
        word.format("mine") for word in files_of_verb(verb)
    ]  # KeyError: add the new verb there
    path = next(Path(word) for word in words if word.startswith("mine"))
    path.write_bytes(MINE)

    refused = started(folder, "-m", "eventprof", verb, *words)

    assert refused.returncode in (1, 2), refused
    assert path.read_bytes() == MINE
    assert f"{path}" in refused.stderr
    if verb != "dataset":  # it writes into a folder
        assert "exists already; -f replaces it" in refused.stderr
    if verb not in ("dataset", "demo"):
        place = 0 if verb == "run" else len(words)
        done = started(folder, "-m", "eventprof", verb, *words[:place], "-f", *words[place:])
        assert done.returncode == 0, done
        assert path.read_bytes() != MINE
    left = {"a.epr", "b.epr", "program.py", path.name}
    assert set(os.listdir(folder)) == left


@pytest.mark.parametrize("suffix", ["html", "svg"])
@pytest.mark.parametrize("verb", ["view", "flamegraph"])
def test_pictures_keep_what_exists(trace, folder, capsys, verb, suffix):
    trace.save("a.epr")
    Path(f"x.{suffix}").write_bytes(MINE)

    assert cli.main([verb, "a.epr", "-o", f"x.{suffix}"]) == 1

    assert "exists already; -f replaces it, -o names another" in capsys.readouterr().err
    assert Path(f"x.{suffix}").read_bytes() == MINE
    with full_disk(100):
        assert cli.main([verb, "a.epr", "-f", "-o", f"x.{suffix}"]) == 1
    assert "make room" in capsys.readouterr().err
    assert Path(f"x.{suffix}").read_bytes() == MINE
    assert cli.main([verb, "a.epr", "-f", "-o", f"x.{suffix}"]) == 0
    assert sorted(os.listdir(folder)) == ["a.epr", f"x.{suffix}"]


def test_a_wrong_option_of_run_costs_no_recording(folder):
    Path("program.py").write_text(
        "import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\n"
    )
    run = ["-m", "eventprof", "run", "-f", "-o", "x.epr"]
    assert started(folder, *run, "program.py").returncode == 0
    before = sorted(folder.glob("x.ep*")) + sorted(folder.glob("x.epd/*"))
    assert len(before) == 5

    assert started(folder, *run, "--backend", "nosuch", "program.py").returncode == 2

    assert sorted(folder.glob("x.ep*")) + sorted(folder.glob("x.epd/*")) == before


def test_a_recording_that_cannot_be_made_costs_no_file(folder):
    Path("x.epr").write_bytes(MINE)
    recorder = eventprof.record(output="x.epr", force=True, memory=False)

    with full_disk(100), pytest.raises(OSError, match=r"x\.epr"):
        recorder.start()

    assert Path("x.epr").read_bytes() == MINE
    assert os.listdir(folder) == ["x.epr"]
    recorder.start()
    recorder.stop()
    assert len(eventprof.open("x.epr").events) == len(recorder.trace.events)
    assert os.listdir(folder) == ["x.epr"]


def test_default_names_of_recordings_are_unused_ones(folder):
    Path("program.py").write_text(
        "import os, sys\nif len(sys.argv) == 1:\n    name = f'{sys.argv[0][:-3]}-{os.getpid()}'\n"
    )
    # exec keeps the process id: the name that the recording would have is known in advance.
    start = (
        "import os, sys; path = f'{sys.argv[1]}-{os.getpid()}.epr'; open(path, 'w').write('mine');"
        "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    )
    run = ["-m", "eventprof", "run", "program.py"]
    assert started(folder, "-c", start, "program", *run).returncode == 0
    made = sorted(path.name for path in folder.glob("program-*.epr"))
    assert [Path(name).read_bytes() == b"mine" for name in made] == [False, True]
    assert made[0].endswith("-2.epr")

    done = started(folder, "-c", start, "eventprof", "program.py", EVENTPROF="memory=0")
    assert done.stderr == ""


# ---- What is recorded because of the environment -------------------------------------------------


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"EVENTPROF": "memory=0", "EVENTPROF_OUTPUT": "mine.epr"}, "mine.epr"),
        ({"EVENTPROF": "count,report=mine.txt"}, "mine.txt"),
    ],
)
def test_the_environment_keeps_what_exists(folder, env, name):
    Path("program.py").write_text(PROGRAM)
    Path(name).write_bytes(MINE)

    done = started(folder, "program.py", **env)

    assert done.returncode == 0
    assert Path(name).read_bytes() == MINE
    assert f"{name}: exists already; name another file" in done.stderr
    assert "-f" not in done.stderr.replace(str(folder), "")
    assert done.stderr.count("\n") == 1
    os.unlink(name)
    assert started(folder, "program.py", **env).stderr == ""
    assert Path(name).read_bytes() != MINE


def test_a_python_that_a_forked_child_becomes_has_a_file_of_its_own(folder):
    """subprocess forks where there is a preexec_fn, so that the child has a file before its exec."""
    Path("program.py").write_text(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', ''], preexec_fn=int)\n"
        "child.wait()\nprint(os.getpid(), child.pid)\n"
    )
    done = started(folder, "-m", "eventprof", "run", "-q", "-o", "x-%p.epr", "program.py")

    assert done.stderr == ""
    parent, child = done.stdout.split()
    names = {f"x-{parent}.epr", f"x-{child}.epr", f"x-{child}-2.epr"}
    assert {name for name in os.listdir(folder) if name.endswith(".epr")} == names
    for name in names:
        assert eventprof.open(name).verify().ok


def test_counts_of_a_run_keep_what_exists(folder):
    Path("program.py").write_text("open('later.txt', 'w').write('mine')\n")
    count = ["-m", "eventprof", "run", "--count", "-o"]
    Path("mine.txt").write_bytes(MINE)

    assert (
        "mine.txt: exists already; -f" in started(folder, *count, "mine.txt", "program.py").stderr
    )
    assert Path("mine.txt").read_bytes() == MINE
    assert not Path("later.txt").exists()  # the program was not run

    done = started(folder, *count, "later.txt", "program.py")
    assert "later.txt: exists already; -f" in done.stderr
    assert Path("later.txt").read_text() == "mine"
    assert started(folder, *count, "mine.txt", "-f", "program.py").returncode == 0
    assert Path("mine.txt").read_bytes() != MINE


# ---- The API -------------------------------------------------------------------------------------


def in_flight(path, **force):
    with eventprof.flight_recorder("1 MiB", memory=False) as flight:
        flight.write_to(path, **force)


def trimmed(trace, path, **force):
    with tempfile.TemporaryDirectory() as elsewhere:
        trace.save(f"{elsewhere}/whole.epr")
        eventprof.trim(f"{elsewhere}/whole.epr", path, **force)


METHODS = {
    "Trace.save": (lambda trace, path, **force: trace.save(path, **force), "x.epr"),
    "Trace.show": (lambda trace, path, **force: trace.show(path, **force), "x.html"),
    "Trace.export": (lambda trace, path, **force: trace.export(path, **force), "x.json"),
    "FlightRecorder.write_to": (lambda trace, path, **force: in_flight(path, **force), "x.epr"),
    "record": (
        lambda trace, path, **force: eventprof.record(output=path, memory=False, **force).start(),
        "x.epr",
    ),
    "trim": (trimmed, "x.epr"),
}
#: Public functions with such an argument that write no file, or into a folder of their own.
OTHERS = {
    "open", "follow", "Dataset", "write_dataset", "dataset",
}  # fmt: skip


def public():
    for name in dir(eventprof):
        found = getattr(eventprof, name)
        if name.startswith("_") or not callable(found):
            continue
        yield name, found
        if inspect.isclass(found):
            for each, method in vars(found).items():
                if not each.startswith("_") and callable(method):
                    yield f"{name}.{each}", method


def test_every_public_function_that_takes_a_path_is_known():
    taking = set()
    for name, function in public():
        with contextlib.suppress(TypeError, ValueError):
            words = inspect.signature(function).parameters
            if {"path", "output"} & set(words):
                taking.add(name)
    assert taking - OTHERS == set(METHODS), "add it to METHODS: what exists must stay"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_what_exists(trace, folder, name):
    write, path = METHODS[name]
    Path(path).write_bytes(MINE)

    with pytest.raises(FileExistsError, match="exists already; force=True replaces it"):
        write(trace, path)

    assert Path(path).read_bytes() == MINE
    write(trace, path, force=True)
    assert Path(path).read_bytes() != MINE
    assert os.listdir(folder) == [path]


@pytest.mark.parametrize("text", [b"{}", b'{"format": 1}', b"[1]", b"mine"])
def test_a_dataset_is_not_made_in_a_folder_of_the_user(trace, folder, text):
    pytest.importorskip("pyarrow")
    trace.save("a.epr")
    Path("mine").mkdir()
    Path("mine/dataset.json").write_bytes(text)

    with pytest.raises(ValueError, match="not a dataset"):
        eventprof.write_dataset("a.epr", "mine")

    assert os.listdir("mine") == ["dataset.json"]
    assert Path("mine/dataset.json").read_bytes() == text


# ---- Who may read it -----------------------------------------------------------------------------


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(path):
    """Return the access rights of a file, or of all that is below a folder, and whether each is a folder."""
    found = [path, *path.rglob("*")] if path.is_dir() else [path]
    return {(each.is_dir(), oct(each.stat().st_mode & 0o777)) for each in found}


@pytest.mark.parametrize("word", EXPORTS)
def test_an_export_is_for_its_owner(trace, folder, no_umask, word):
    require(word)
    for table in EXPORTS[word]:
        trace.export(f"new-{table}", word, table=table)

        assert modes(folder / f"new-{table}") == {(False, "0o600")}


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_writes_is_for_its_owner(trace, folder, no_umask, name):
    write, path = METHODS[name]
    write(trace, path)

    assert modes(folder / path) == {(False, "0o600")}


@pytest.mark.thorough
@pytest.mark.parametrize("verb", list(writing_verbs()))
def test_what_a_verb_writes_is_for_its_owner(trace, folder, no_umask, verb):
    for name in ("a.epr", "b.epr"):
        trace.save(name)
    Path("program.py").write_text(PROGRAM)
    words = [word.format("mine") for word in files_of_verb(verb)]
    path = next(Path(word) for word in words if word.startswith("mine"))

    # One round of what the demonstration measures: it needs 9 s for five.
    once = "from eventprof import cli, demo; demo._ROUNDS = 1; raise SystemExit(cli.main())"
    start = ["-c", once] if verb == "demo" else ["-m", "eventprof"]

    done = started(folder, *start, verb, *words)

    assert done.returncode == 0, done
    assert modes(folder / path) <= {(False, "0o600"), (True, "0o700")}


def test_a_folder_of_recordings_is_for_its_owner(folder, no_umask):
    Path("program.py").write_text("import os\nif not os.fork(): os._exit(0)\nos.wait()\n")
    done = started(
        folder, "-m", "eventprof", "run", "--follow-fork", "-o", "made.eprs", "program.py"
    )

    assert done.returncode == 0, done
    made = next(each for each in folder.iterdir() if each.is_dir())
    assert modes(made) == {(False, "0o600"), (True, "0o700")}


def test_what_pytest_writes_is_for_its_owner(folder, no_umask):
    Path("test_it.py").write_text(SUITE)
    words = ["-m", "pytest", "-q", "-p", "eventprof", "-p", "no:cacheprovider", "--eventprof"]
    words += ["--eventprof-keep=all", "--eventprof-json=found.json", "--eventprof-dir=made"]

    done = started(folder, *words)

    assert done.returncode == 0, done.stdout
    assert modes(folder / "made") == {(False, "0o600"), (True, "0o700")}
    assert modes(folder / "found.json") == {(False, "0o600")}


def test_a_recording_that_the_environment_asks_for_is_for_its_owner(folder, no_umask):
    done = started(folder, "-c", "print(1)", EVENTPROF="1", EVENTPROF_OUTPUT="made.epr")

    assert done.returncode == 0, done
    assert modes(folder / "made.epr") == {(False, "0o600")}


def test_a_file_of_other_rights_keeps_them(trace, folder):
    Path("x.epr").touch(0o644)
    Path("x.epr").chmod(0o644)
    trace.save("x.epr", force=True)

    assert modes(folder / "x.epr") == {(False, "0o644")}


def test_counts_of_a_suite_are_not_written_over_another_file(folder):
    for text in ("mine", "{}", "[1]", '{"format": 7}'):
        Path("eventprof.counts.json").write_text(text)
        with pytest.raises(ValueError, match="counts"):
            snapshot.Snapshot(Path("eventprof.counts.json"))
        assert Path("eventprof.counts.json").read_text() == text


SUITE = """\
import pytest
@pytest.mark.eventprof
def test_a():
    sorted([3, 1, 2])
"""


def test_pytest_replaces_its_own_files_alone(folder):
    Path("test_it.py").write_text(SUITE)
    kept = Path("mine")
    kept.mkdir()
    (kept / "test_it.py-test_a.epr").write_bytes(MINE)
    Path("found.json").write_text('{"format": 1, "tests": "mine"}')
    words = ["-m", "pytest", "-q", "-p", "eventprof", "-p", "no:cacheprovider", "--eventprof"]
    words += ["--eventprof-keep=all", "--eventprof-json=found.json", "--eventprof-dir=mine"]

    done = started(folder, *words)

    assert done.returncode == 0, done.stdout
    assert Path("found.json").read_text() == '{"format": 1, "tests": "mine"}'
    assert "found.json" in done.stdout and "exists already" in done.stdout
    assert os.listdir(kept) == ["test_it.py-test_a.epr"]  # no .gitignore, which hides all files
    assert (kept / "test_it.py-test_a.epr").read_bytes() == MINE

    os.unlink("found.json")
    os.unlink(kept / "test_it.py-test_a.epr")
    for _ in range(2):  # the second run replaces what the first one wrote
        done = started(folder, *words)
        assert "exists already" not in done.stdout, done.stdout
    assert set(json.loads(Path("found.json").read_text())) == {"format", "python", "tests"}
    assert len(eventprof.open(kept / "test_it.py-test_a.epr").events)


# ---- No writer of its own ------------------------------------------------------------------------

#: What writes files by other means than base/output.py, and why it may.
OTHER_WRITERS = {
    "cli/__init__.py: os.open": "the null device",
    "datasets/writing.py: replace": "files of the dataset, named by process",
    "datasets/writing.py: mkdir": "folders of the dataset",
    "datasets/writing.py: ParquetWriter": "a file in a folder of its own, which is moved when it is whole",
    "datasets/compacting.py: os.open": "the lock, an empty file",
    "datasets/compacting.py: mkdir": "the folder of new files in a dataset",
    "datasets/compacting.py: replace": "a new file with a name of its own, in place of those that are in it",
    "demo.py: to_parquet": "the new file of output.create",
    "demo.py: to_pickle": "the new file of output.create",
    "export/__init__.py: open": "the descriptor of output.create",
    "export/arrow.py: new_file": "the new file of output.create",
    "export/parquet.py: ParquetWriter": "the new file of output.create",
    "cli/options.py: open": "the descriptor of output.create",
    "_pypy/archive.py: open": "the descriptor of output.create",
    "files/family.py: os.link": "a recording gets a second name; an existing file stays",
    "files/family.py: os.rename": "after a look at the new name, in a folder of eventprof",
    "recording/flight.py: os.makedirs": "the folder that the user named",
    "plugins/pytest_runs.py: mkdir": "the folder that the user named",
    "viewer/page.py: mkdtemp": "a temporary folder",
}
_CREATES = {"mkdir", "makedirs", "mkstemp", "mkdtemp", "NamedTemporaryFile", "write_text", "write_bytes", "touch",
            "rename", "replace", "link", "symlink", "to_csv", "to_parquet", "to_pickle", "to_json",
            "ParquetWriter", "new_file", "write_table", "savefig", "copyfile", "copy2", "move"}  # fmt: skip


def writers(path):
    """Calls in a module that create, move or write files, as far as one sees that."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = getattr(getattr(function, "value", None), "id", "")
        words = [each.value for each in node.args if isinstance(each, ast.Constant)]
        keywords = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
        if name == "open" and owner != "os":
            mode = keywords.get("mode") or next((w for w in words[-1:] if isinstance(w, str)), "")
            if set(str(mode)) & set("wax+") and set(str(mode)) <= set("rwaxbt+"):
                yield name
        elif name == "open" and owner == "os":
            if "O_CREAT" in ast.unparse(node) or "O_WRONLY" in ast.unparse(node):
                yield "os.open"
        elif name == "replace":
            # Of texts and named tuples it has two arguments or none; Path.replace has one.
            if owner == "os" or (len(node.args) == 1 and not node.keywords):
                yield "os.replace" if owner == "os" else name
        elif name in _CREATES and owner not in ("writer", "rows"):
            yield f"os.{name}" if owner == "os" else name


def test_no_module_writes_files_by_a_rule_of_its_own():
    found = {
        f"{path.relative_to(PACKAGE)}: {call}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE) != Path("base/output.py")
        for call in writers(path)
    }
    assert found - OTHER_WRITERS.keys() == set(), "use base/output.py: create() or put()"
    assert OTHER_WRITERS.keys() - found == set(), "no longer there"


#: Takes the names of the next 500 process ids, and forks; prints the id of the child.
TAKE_NAMES = """\
import eventprof, os
while True:
    probe = os.fork()
    if probe == 0:
        os._exit(0)
    os.waitpid(probe, 0)
    taken = range(probe + 1, probe + 501)
    for number in taken:
        with open(f"x-{number}.epr", "w") as file:
            file.write("mine")
    with eventprof.record(output="x.epr", force=True, memory=False):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    if child in taken:
        break
print(child)
"""


def test_a_forked_child_leaves_the_file_of_an_earlier_process_of_its_id(folder):
    Path("program.py").write_text(TAKE_NAMES)

    child = started(folder, "program.py").stdout.strip()

    assert Path(f"x-{child}.epr").read_text() == "mine"
    assert eventprof.open(f"x-{child}-2.epr").file["parent_pid"]
