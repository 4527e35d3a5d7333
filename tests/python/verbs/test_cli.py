"""The verbs that look at recordings, and what is made of the same parsers: help, completion, man."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading

import children
import pytest

import eventprof
from eventprof import cli

PROGRAM = """
    import json, sys, threading

    def leaf(size):
        return bytearray(size)

    def work(rounds):
        kept = [leaf(12347) for _ in range(rounds)]
        json.dumps({"a": [1, 2.5]})
        return kept

    thread = threading.Thread(target=work, args=(3,), name="second")
    thread.start()
    thread.join()
    work(int(sys.argv[1]))
"""


def program(*arguments, cwd=None, **environment):
    env = {**os.environ, "COLUMNS": "100", **environment}
    for name in ("FORCE_COLOR", "NO_COLOR", "EVENTPROF"):
        if name not in environment:
            env.pop(name, None)
    return children.eventprof(*arguments, status=None, cwd=cwd, environment=env)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    (path / "main.py").write_text(textwrap.dedent(PROGRAM))
    for name, rounds in (("a", 5), ("b", 50)):
        made = program("run", "-q", "-o", f"{name}.epr", "main.py", rounds, cwd=path)
        assert (made.returncode, made.stderr) == (0, "")
    (path / "not.epr").write_text("this is no recording\n" * 100)
    return path


@pytest.fixture
def shown(folder, monkeypatch):
    """Run a verb in this process; give what it printed."""
    monkeypatch.chdir(folder)

    def run(*arguments, status=0):
        done = children.here(*arguments)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if status else done.stdout

    return run


# ---- Looking at a recording ----------------------------------------------------------------------


def test_report_prints_the_page(shown):
    page = shown("report", "a.epr", "--width", "90")

    assert page.startswith("Nothing lost: all ")
    assert "Where the time went" in page
    assert "\x1b" not in page
    assert max(map(len, page.splitlines())) <= 90


@pytest.mark.thorough
@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_colours_on_request_alone(folder, terminal):
    def page(*arguments):
        return program("report", "a.epr", *arguments, cwd=folder, TERM=terminal).stdout

    assert "\x1b[" not in page()
    assert "\x1b[" in page("--color", "always")
    assert "\x1b[" not in page("--color", "never")


def test_stats_has_the_functions_of_the_trace(shown, folder):
    trace = eventprof.open(folder / "b.epr")

    listed = json.loads(shown("stats", "b.epr", "--json", "--limit", 0))["rows"]

    assert len(listed) == len(trace.functions)
    assert [row["self"] for row in listed] == sorted(trace.functions["self"].tolist(), reverse=True)
    (leaf,) = [row for row in listed if row["name"] == "leaf"]
    assert leaf["calls"] == 53
    # Without monitoring, constructors are not seen, and their caller has the blocks.
    made = [row["allocated_self"] for row in listed if row["name"] in ("bytearray", "leaf")]
    assert sum(made) >= 53 * 12347


def test_stats_as_text_and_csv(shown):
    text = shown("stats", "b.epr", "--sort", "allocated_self", "--limit", 2).splitlines()
    table = list(
        csv.DictReader(io.StringIO(shown("stats", "b.epr", "--csv", "--function", "*leaf")))
    )

    assert text[0].split()[:4] == ["calls", "total", "self", "mean"]
    # On 3.13t modules that the program imports have more.
    assert any("bytearray" in line or "leaf" in line for line in text[1:3]), text
    assert "more; --limit 0 shows all" in text[3]
    assert [(row["name"], row["calls"]) for row in table] == [("leaf", "53")]


def test_stats_the_other_way_round(shown):
    up = shown("stats", "a.epr", "--json", "--sort", "calls", "--reverse", "--limit", 0)

    calls = [row["calls"] for row in json.loads(up)["rows"]]
    assert calls == sorted(calls)


def test_events_has_the_events_of_the_trace(shown, folder):
    trace = eventprof.open(folder / "a.epr")

    table = list(csv.DictReader(io.StringIO(shown("events", "a.epr", "--csv"))))

    assert tuple(table[0]) == trace.events.columns
    assert [int(row["time"]) for row in table] == trace.events["time"].tolist()
    assert [row["event"] for row in table] == list(trace.events["event"])
    assert len(shown("events", "a.epr").splitlines()) == len(table) + 1


@pytest.mark.parametrize(
    ("arguments", "check"),
    [
        (["--event", "call,c_call", "--event", "malloc"], lambda e: e["event"] in ("call", "c_call", "malloc")),
        (["--function", "*leaf"], lambda e: e["name"] == "leaf"),
        (["--from", "{middle} ns"], lambda e: e["time"] >= e["middle"]),
        (["--to", "{middle_us} us"], lambda e: e["time"] < e["middle"]),
        (["--thread", "sec*"], lambda e: e["thread_name"] == "second"),
        (["--limit", "7"], lambda e: True),
    ],
)  # fmt: skip
def test_events_are_chosen(shown, folder, arguments, check):
    trace = eventprof.open(folder / "a.epr")
    names = trace.threads["name"]
    # A time that some events are before and some after, however long the start took.
    middle = int(trace.events["time"][len(trace.events) // 2])
    arguments = [each.format(middle=middle, middle_us=middle / 1000) for each in arguments]
    expected = [
        row.time
        for row in trace.events
        if check({**row._asdict(), "thread_name": names[row.thread], "middle": middle})
    ]
    if "--limit" in arguments:
        expected = expected[:7]

    found = [
        json.loads(line) for line in shown("events", "a.epr", "--json", *arguments).splitlines()
    ]

    assert expected
    assert [row["time"] for row in found] == expected


@pytest.mark.parametrize(
    "choice", [[], ["--event", "call"], ["--event", "malloc", "--function", "*"]]
)
def test_the_last_events_are_the_end_of_all(shown, choice):
    whole = shown("events", "a.epr", "--json", *choice).splitlines()

    for count in (1, 7, len(whole) + 1):
        last = shown("events", "a.epr", "--json", *choice, "--last", str(count)).splitlines()
        assert last == whole[-count:]
    assert shown("events", "a.epr", "--csv", *choice, "--last", "0").count("\n") == 1


def test_info_says_what_the_file_is(shown, folder):
    printed = shown("info", "a.epr")
    facts = json.loads(shown("info", "a.epr", "--json"))
    trace = eventprof.open(folder / "a.epr")

    assert "main.py 5" in printed
    assert "complete: the recording was stopped" in printed
    (row,) = facts["rows"]
    assert facts["events"] == row["events"] == len(trace.events)
    assert row["metadata"]["pid"] == trace.metadata["pid"]
    assert row["file"]["unfinished"] is False


RECORDED = {
    "ring": ({"buffer": "1 MiB"}, True), "full": ({"buffer": "1 MiB", "on_full": "stop"}, True),
    "whole": ({"on_full": "grow"}, False), "no calls": ({"calls": False}, False),
}  # fmt: skip


@pytest.mark.parametrize(("options", "lossy"), RECORDED.values(), ids=RECORDED)
@pytest.mark.filterwarnings("ignore::eventprof.EventsLostWarning")
def test_info_counts_what_is_not_paired_without_columns(options, lossy, shown, tmp_path):
    path = tmp_path / "x.epr"
    older = [bytes(5003 + n) for n in range(99)]

    def work(n):
        kept = [bytes(n % 701) for n in range(n)]
        return [str(block) for block in kept[::9]]

    threads = [threading.Thread(target=work, args=(9001,)) for _ in range(3)]
    with eventprof.record(output=path, **options):
        older.clear()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    (row,) = json.loads(shown("info", path, "--json"))["rows"]

    trace = eventprof.open(path)
    assert row["pairing"] == trace.pairing
    assert not trace._core.has_columns()
    assert trace._core.pairing() == trace.pairing
    assert trace._core.has_columns()
    assert bool(trace.loss) == lossy
    assert trace.pairing["frees_of_older_blocks"] + trace.pairing["frees_of_lost_blocks"] >= 99


def test_diff_compares(shown):
    rows = json.loads(shown("diff", "a.epr", "b.epr", "--sort", "calls", "--json"))["rows"]
    text = shown("diff", "a.epr", "b.epr", "--limit", 3)

    assert {row["name"]: row["calls_change"] for row in rows}["leaf"] == 45
    assert len(text.splitlines()) == 6


def test_an_archive_has_the_same_events(shown, folder):
    printed = shown("save", "a.epr", "-o", "archive.epr")

    assert printed.startswith("archive.epr: ")
    assert shown("events", "archive.epr", "--csv") == shown("events", "a.epr", "--csv")
    assert "archive" in shown("info", "archive.epr")
    assert "exists already; -f replaces it" in shown("save", "a.epr", "-o", "archive.epr", status=1)
    shown("save", "a.epr", "-f", "-o", "archive.epr")


@pytest.mark.skipif(not hasattr(eventprof, "merge"), reason="no merge in this version")
def test_merged_recordings_have_all_events(shown, folder):
    shown("merge", "a.epr", "b.epr", "-o", "merged.epr")

    events = [
        len(eventprof.open(folder / name).events) for name in ("a.epr", "b.epr", "merged.epr")
    ]
    assert events[0] + events[1] == events[2]


# ---- Programs that still run, or did not end well ------------------------------------------------

ENDLESS = """
    import sys, time
    def step(n):
        return n + 1
    n = 0
    while n < int(sys.argv[1]):
        n = step(n)
        if n == 50: print("ready", flush=True)
        if n >= 50: time.sleep(0.01)
"""


def endless(folder, steps):
    (folder / "endless.py").write_text(textwrap.dedent(ENDLESS))
    process = subprocess.Popen(
        [sys.executable, "-m", "eventprof", "run", "-q", "-o", "live.epr", "endless.py", str(steps)],
        cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.thorough
def test_follow_prints_what_comes_and_ends_with_the_program(tmp_path):
    choice = ["--event", "call", "--function", "*step", "--csv"]
    process = endless(tmp_path, 200)

    with process:
        followed = program("events", "live.epr", "--follow", *choice, cwd=tmp_path)
    after = program("events", "live.epr", *choice, cwd=tmp_path)

    assert followed.returncode == 0, followed.stderr
    assert len(after.stdout.splitlines()) == 201
    # Times may still move by a few ns, as long as the clock is measured.
    assert [row.partition(",")[2] for row in followed.stdout.splitlines()] == [
        row.partition(",")[2] for row in after.stdout.splitlines()
    ]


def test_ctrl_c_ends_follow_quietly(tmp_path):
    process = endless(tmp_path, 10**9)
    reader = subprocess.Popen(
        [sys.executable, "-m", "eventprof", "events", "live.epr", "--follow", "--csv"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    try:
        assert reader.stdout.readline().startswith("time,")
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate(timeout=900)
    finally:
        process.kill()
        process.communicate()

    assert reader.returncode in (0, 130)
    assert "Traceback" not in errors


def test_a_killed_program_is_readable(tmp_path, capsys):
    process = endless(tmp_path, 10**9)
    process.kill()
    process.communicate()

    done = program("info", "live.epr", cwd=tmp_path)
    listed = program("stats", "live.epr", "--function", "*step", "--json", cwd=tmp_path)

    assert "not finished" in done.stdout
    assert json.loads(listed.stdout)["rows"][0]["calls"] >= 50


def test_a_forked_child_writes_its_own_file(tmp_path):
    (tmp_path / "main.py").write_text(
        "import os\ndef child(): pass\ndef parent(): pass\n"
        "pid = os.fork()\n"
        "child() if pid == 0 else (os.waitpid(pid, 0), parent())\n"
    )

    made = program("run", "main.py", cwd=tmp_path)

    assert [line.startswith("eventprof:   ") for line in made.stderr.splitlines()] == [
        False,
        True,
        True,
    ]
    found = {}
    for path in tmp_path.glob("main-*.epd/*.epr"):
        trace = eventprof.open(path)
        assert str(trace.metadata["pid"]) == path.stem.rpartition("-")[2]
        found[path] = set(trace.functions["name"])
    assert len(found) == 2
    assert sorted(("child" in names, "parent" in names) for names in found.values()) == [
        (False, True),
        (True, False),
    ]


def test_forked_children_are_left_alone_on_request(tmp_path):
    (tmp_path / "main.py").write_text("import os\npid = os.fork()\npid and os.waitpid(pid, 0)\n")

    program("run", "--no-follow-fork", "main.py", cwd=tmp_path)

    assert len(list(tmp_path.glob("main-*.epr"))) == 1


def test_loss_is_in_the_line_and_beside_every_list(tmp_path):
    (tmp_path / "main.py").write_text("def f(): pass\nfor _ in range(400_000): f()\n")

    made = program("run", "--buffer", "1 MiB", "-o", "x.epr", "main.py", cwd=tmp_path)
    listed = program("stats", "x.epr", cwd=tmp_path)

    assert " LOST (the oldest were overwritten; see --buffer)" in made.stderr
    assert "events were lost" in listed.stdout.splitlines()[0]


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lossy")
    (folder / "main.py").write_text("def f(): pass\nfor _ in range(400_000): f()\n")
    program("run", "--buffer", "1 MiB", "-o", "x.epr", "main.py", cwd=folder)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["report"], ["report", "--short"], ["report", "--lines"], ["tree"], ["tree", "--at", "1us"],
        ["tree", "--slowest", "f"], ["analyze"], ["stats"], ["events"], ["info"], ["verify"],
        ["diff", "x.epr"], ["save", "-f", "-o", "y.epr"], ["merge", "-f", "-o", "z.epr"],
        ["export", "-o", "x.json"], ["view", "-f", "-o", "x.html"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_first_line_of_every_answer_says_that_events_were_lost(
    lossy, capsys, monkeypatch, words
):
    monkeypatch.chdir(lossy)
    cli.main([*words, "x.epr"])

    first = capsys.readouterr().out.splitlines()[0]
    lost = eventprof.open("x.epr").loss.total
    assert f"{lost:,}" in first
    assert re.search("lost|LOST|LOSS|loss", first)


@pytest.mark.parametrize("verb", ["report", "tree", "analyze", "stats", "info", "diff"])
def test_json_says_how_many_events_were_lost(lossy, capsys, monkeypatch, verb):
    monkeypatch.chdir(lossy)
    cli.main([verb, *(["x.epr"] * (2 if verb == "diff" else 1)), "--json"])

    document = json.loads(capsys.readouterr().out)
    assert document["lost"] == eventprof.open("x.epr").loss.total


def test_the_first_line_of_every_repr_says_that_events_were_lost(lossy):
    trace = eventprof.open(lossy / "x.epr")

    answers = [trace, trace.loss, trace.events, trace.functions, trace.calls, trace.tree, trace.own,
               trace.at(trace.duration), trace.between(0, trace.duration)]  # fmt: skip
    for answer in answers:
        first = repr(answer).splitlines()[0]
        assert f"{trace.loss.total:,}" in first, first


def test_a_file_that_exists_is_not_replaced_unasked(tmp_path):
    (tmp_path / "main.py").write_text("print('ran')")
    (tmp_path / "x.epr").write_text("precious")

    refused = program("run", "-o", "x.epr", "main.py", cwd=tmp_path)
    kept = (tmp_path / "x.epr").read_text()
    forced = program("run", "-f", "-o", "x.epr", "main.py", cwd=tmp_path)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith("x.epr: exists already; -f replaces it, -o names another\n")
    assert kept == "precious"
    assert forced.stdout == "ran\n"
    assert eventprof.open(tmp_path / "x.epr").events


@pytest.mark.parametrize("output", ["x.epr", "x.epd"])
def test_what_was_recorded_stays_if_the_recording_that_would_replace_it_cannot_begin(
    tmp_path, output
):
    (tmp_path / "main.py").write_text("print('ran')")
    (tmp_path / "sitecustomize.py").write_text("import gc; gc.callbacks = ()")
    command = ("run", "-f", "-o", output, "main.py")
    assert program(*command, cwd=tmp_path).stdout == "ran\n"
    before = contents(tmp_path)

    refused = program("run", "--gc", *command[1:], cwd=tmp_path, PYTHONPATH=str(tmp_path))

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "gc.callbacks is not a list" in refused.stderr
    assert contents(tmp_path) == before


def contents(folder):
    """All files of a folder and of those in it, without what was compiled."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def test_a_folder_takes_files_under_their_own_names(tmp_path):
    (tmp_path / "my app.py").write_text("")
    (tmp_path / "out").mkdir()

    made = program("run", "-o", "out", "my app.py", cwd=tmp_path)

    (path,) = (tmp_path / "out").iterdir()
    assert path.name.startswith("my_app-")
    assert made.stderr.rstrip().endswith(f"eventprof report out/{path.name}")


# ---- What went wrong is one line -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["rum"], 2, "eventprof: there is no verb 'rum'; did you mean 'run'?"),
        (["--versio"], 2, "eventprof: there is no option '--versio'"),
        (["main.py"], 2, "eventprof run main.py"),
        (["a.epr"], 2, "eventprof report a.epr"),
        (["stats"], 2, "the following arguments are required: FILE"),
        (["stats", "a.epr", "--sort", "alocated"], 2, "there is no 'alocated'; did you mean 'allocated'?"),
        (["stats", "a.epr", "--limmit", "3"], 2, "there is no option --limmit; did you mean '--limit'?"),
        (["stats", "a.epr", "--limit", "-3"], 2, "--limit"),
        (["stats", "a.epr", "b.epr"], 2, "too many arguments: b.epr"),
        (["report", "nosuch.epr"], 1, "eventprof report: nosuch.epr: there is no such file"),
        (["report", "/"], 1, "eventprof report: /: this is a directory"),
        (["report", "not.epr"], 1, "not.epr"),
        (["info", "not.epr"], 1, "not.epr"),
        (["report", "a.epr", "--width", "7"], 2, "--width must be 40 or more, not 7"),
        (["events", "a.epr", "--event", "cal"], 2, "there is no event 'cal'; did you mean 'call'?"),
        (["events", "a.epr", "--last", "3", "--limit", "3"], 2, "--last: not with --limit"),
        (["events", "a.epr", "--from", "soon"], 2, "a time is a number and a unit, such as '2.5ms', not 'soon'"),
        (["events", "a.epr", "--thread", "third"], 1, "there is no such thread; there are"),
        (["save", "a.epr", "-o", "no/such/folder/x.epr"], 1, "no/such/folder"),
        (["completion", "ksh"], 2, "there is no 'ksh'"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_with_a_remedy(shown, arguments, status, message):
    errors = shown(*arguments, status=status)

    assert message in errors
    assert errors.startswith("eventprof")
    assert len(errors.splitlines()) == 1 + ("Try '" in errors)


def test_a_closed_pipe_ends_it_quietly(folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "eventprof", "events", "b.epr", "--csv"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()

    assert process.wait(60) in (0, 141)
    assert errors == ""


@pytest.mark.thorough
def test_output_that_only_takes_ascii(folder):
    (folder / "odd.py").write_text(
        "def \N{LATIN SMALL LETTER E WITH ACUTE}(): pass\n\N{LATIN SMALL LETTER E WITH ACUTE}()",
        "utf-8",
    )
    program("run", "-q", "-f", "-o", "odd.epr", "odd.py", cwd=folder)

    for verb in ("stats", "events", "info", "report"):
        found = program(verb, "odd.epr", cwd=folder, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert (found.returncode, found.stderr) == (0, "")
    assert "\\xe9" in program("stats", "odd.epr", cwd=folder, PYTHONIOENCODING="ascii").stdout


# ---- Help, completion, man -----------------------------------------------------------------------


def test_help_names_every_verb(shown):
    page = shown("--help")

    assert shown() == shown("help") == page
    assert all(f"\n  {verb} " in page for verb in cli.VERBS)


def test_help_has_three_groups_and_the_rest_below_a_line(shown):
    verbs = shown("--help").partition("\n\nrecord:\n")[2].partition("\n\n")[0]

    groups, _, rest = verbs.partition(f"\n  {'-' * 72}\n")

    titles = re.findall(r"^(\w+):$", f"record:\n{groups}", re.MULTILINE)
    assert titles == ["record", "look", "exchange"]
    assert [row.split()[0] for row in rest.splitlines()] == ["demo", "man", "completion", "guide"]


def test_the_first_screen_of_run_has_ten_options_and_another_page_has_all(shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run = cli.make_parser("run", cli.load("run"))

    page, everything = shown("run", "--help"), shown("run", "--help-all")

    screen = page.splitlines()[:24]
    assert sum(line.startswith("  -") for line in screen) == 10
    assert f"\n{len(run._actions) - 2 - 10} more options: eventprof run --help-all\n" in page
    assert len(page.splitlines()) <= 2 * 24
    for action in run._actions:
        assert all(flag in everything for flag in action.option_strings)


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_a_page_with_an_example(shown, verb):
    page = shown(verb, "--help")

    assert page.startswith(f"usage: eventprof {verb}")
    assert f"  eventprof {verb}" in page.partition("examples:")[2]
    assert shown("help", verb) == page


def test_every_example_names_options_that_there_are():
    for verb in cli.VERBS:
        module = cli.load(verb)
        parser = cli.make_parser(verb, module)
        flags = {flag for action in parser._actions for flag in action.option_strings}
        for command, _ in module.EXAMPLES:
            own = command.partition(" | ")[0].partition(" > ")[0]
            for word in own.split()[2:]:
                assert not word.startswith("--") or word in flags, command


def test_version(shown):
    assert shown("--version") == f"eventprof {eventprof.__version__}\n"


def test_completion_of_bash_completes(shown, tmp_path):
    (tmp_path / "complete").write_text(shown("completion", "bash"))
    ask = (
        '. ./complete; ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _eventprof;'
        ' echo "${COMPREPLY[*]}"; };'
        "ask eventprof r; ask eventprof stats --so; ask eventprof stats x --sort p9;"
        "ask eventprof completion z; ask eventprof report comp"
    )

    found = children.run("bash", "-uc", ask, cwd=tmp_path)

    assert found.stdout.splitlines() == [
        "run report requests",
        "--sort",
        "p95 p99",
        "zsh",
        "complete",
    ]
    assert found.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells_is_their_language(shown, tmp_path, shell):
    text = shown("completion", shell)

    assert all(verb in text for verb in cli.VERBS)
    assert "--sort" in text or "-l sort" in text
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(text)
    children.run(shell, "-n", "script", cwd=tmp_path)


def test_the_manual_page_is_clean_roff(shown, tmp_path):
    page = shown("man")
    assert all(f'.SH "EVENTPROF {verb.upper()}"' in page for verb in cli.VERBS)
    if shutil.which("groff") is None:
        pytest.skip("no groff here")

    found = children.run("groff", "-ww", "-man", "-Tascii", stdin=page)

    assert found.stderr == ""
    plain = re.sub(".\x08", "", found.stdout)  # bold letters are struck twice
    assert "--follow" in plain
    assert "--min-duration" in plain  # --help has only the first options


def test_run_loads_no_more_than_it_needs(tmp_path):
    code = "import sys; print(*(m for m in ('numpy', 'rich', 'pandas', 'eventprof.show.report', 'eventprof.cli.verbs.stats') if m in sys.modules))"

    assert program("run", "-q", "-c", code, cwd=tmp_path).stdout == "\n"


def test_the_package_does_not_load_the_command_line():
    code = "import sys, eventprof; print([m for m in sys.modules if m.startswith('eventprof.cli')])"

    found = children.program(code)

    assert found.stdout == "[]\n"
