"""The report: what it says first, which sections it has, and that it fits where it is printed."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections import Counter

import children
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import eventprof
from eventprof._words import show_bytes, show_ns
from eventprof.answers.tree import Tree
from eventprof.base.text import short_path
from eventprof.show import drawing
from eventprof.show import report as module
from eventprof.show.drawing import Curve, draw_bar, draw_lane, shorten

TIME = "Where the time went"
OWN = "In own code"
MEMORY = ["Where the memory went", "Memory over time", "Hot allocation sites"]
ALIVE, TEMPORARY = "Live at the end", "Temporary blocks"
WIDTHS = (40, 80, 100, 140)


def leaf(size):
    return bytearray(size)


def steps(count):
    for _ in range(count):
        leaf(301)
        yield


def work(rounds=10):
    kept = [leaf(12347) for _ in range(rounds)]
    for _ in steps(3):
        pass
    return kept


def recorded(run=work, **options):
    with eventprof.record(**options) as rec:
        kept = run()
    del kept
    return rec.trace


def two_threads():
    thread = threading.Thread(target=work, name="second")
    thread.start()
    thread.join()


def oddly_named():
    namespace: dict = {}
    path = "/somewhere/" + "/".join(f"directory_{i}" for i in range(20)) + "/module.py"
    source = "def " + "日本語" * 20 + "(f): return f()\ndef evil(): return bytearray(5000)"
    exec(compile(source, path, "exec"), namespace)
    evil = namespace["evil"]
    evil.__code__ = evil.__code__.replace(co_qualname="a\x1b[31m[bold]\n\ud800")
    return namespace["日本語" * 20](evil)


def one_waits():
    """The other thread's few events are kept, as its chunk is in use."""
    done, ready = threading.Event(), threading.Event()

    def wait():
        leaf(1)
        ready.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    work(40_000)  # 3.7 MiB with the fewest events, those of CPython 3.14
    done.set()
    thread.join()


CASES = {
    "everything": lambda: recorded(),
    "empty": lambda: recorded(int, events=["throw"]),
    "calls": lambda: recorded(memory=False),
    "memory": lambda: recorded(calls=False, c_calls=False),
    "no blocks": lambda: recorded(int, calls=False, c_calls=False, memory=["raw"]),
    "overwritten": lambda: recorded(lambda: work(30_000), buffer="1 MiB"),
    "one waits": lambda: recorded(one_waits, buffer="3 MiB"),
    "ended": lambda: recorded(lambda: work(30_000), buffer="1 MiB", on_full="stop"),
    "threads": lambda: recorded(two_threads),
    "names": lambda: recorded(oddly_named),
}


@pytest.fixture(scope="module")
def traces():
    return {name: make() for name, make in CASES.items()}


def titles(text):
    """The sections' titles, without what is said beside them."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if i and line[:1].isalpha() and not lines[i - 1]]
    return [re.split(" {2}| ─", lines[i])[0] for i in starts]


def section(text, title):
    """The lines of a section, its title first."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(title))
    after = [i for i, line in enumerate(lines) if i > first and line and line[0] != " "]
    return lines[first : min(after, default=len(lines))]


def notes(text):
    """The notes, one line each."""
    head = text.split("\n\n")[0]
    return re.sub(r"\n(?!Note)", " ", head).splitlines()


# ---- What is in it -------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("everything", [OWN, "What was recorded", TIME, *MEMORY, ALIVE, TEMPORARY, "Threads"]),
        ("calls", [OWN, "What was recorded", TIME, "Threads"]),
        ("memory", [OWN, "What was recorded", *MEMORY, ALIVE, TEMPORARY, "Threads"]),
        ("no blocks", ["What was recorded", "Where the memory went"]),
    ],
)
def test_sections_are_of_what_was_recorded(traces, case, expected):
    found = titles(module.text(traces[case]))

    # What stays and what goes at once is the interpreter's business too.
    may_lack = {ALIVE, TEMPORARY, "Threads"}
    assert found[: len(expected)] == [t for t in expected if t in found or t not in may_lack]


def test_an_empty_recording_says_so(traces):
    text = module.text(traces["empty"])

    assert text.startswith("Nothing lost, and nothing recorded: no event occurred.")
    assert "events       none" in text


def test_the_first_line_counts_the_events(traces):
    trace = traces["everything"]

    first = module.text(trace).splitlines()[0]

    assert first == f"Nothing lost: all {len(trace.events):,} events are here."


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("overwritten", "the buffer was full, the oldest were overwritten."),
        ("ended", "and recording ended."),
    ],
)
def test_loss_comes_first_and_is_in_every_title(traces, case, why):
    trace = traces[case]
    total = trace.loss.total + len(trace.events)

    text = module.text(trace, width=140)

    first = text.splitlines()[0]
    assert first.startswith(f"LOSS: {trace.loss.total:,} of {total:,} events (")
    assert first.endswith(why)
    for word, count in trace.loss.by_kind.items():
        assert f"{count:,} {word}" in " ".join(text.split())
    found = titles(text)
    assert TIME in found
    assert all("with loss" in section(text, title)[0] for title in found)
    assert f" {trace.loss.total:,} " in "\n".join(section(text, "Threads"))


@pytest.mark.parametrize("case", ["overwritten", "one waits"])
def test_what_was_overwritten_is_marked_in_the_curve(traces, case):
    text = module.text(traces[case])

    assert "Nothing is missing from " in text
    curve = section(text, "Memory over time")
    assert all(re.search("[│┤]░", row) for row in curve[2:10]), "\n".join(curve)
    assert "░" not in module.text(traces["ended"])


def test_functions_stand_in_the_order_of_their_self_time(traces):
    trace = traces["everything"]
    own = trace.functions["self"]

    text = module.text(trace, limit=3)

    rows = section(text, TIME)[2:5]
    order = [trace.functions["name"][row] for row in np.argsort(-own, kind="stable")[:3]]
    assert [row.split()[-1].split(".")[-1] for row in rows] == [n.split(".")[-1] for n in order]
    assert re.fullmatch(r"  and \d+ more functions, .*", section(text, TIME)[5])


def test_resumes_are_told_from_calls(traces):
    text = module.text(traces["calls"])

    row = next(row for row in section(text, TIME) if row.endswith("steps"))
    assert " 1+3 " in row
    assert "1+2: calls+resumes" in text


def test_sums_of_memory_are_those_of_the_tables(traces):
    trace = traces["everything"]
    allocations = trace.allocations
    peak = trace.peak()

    text = " ".join(module.text(trace).split())

    sizes, blocks = allocations["size"].sum(), len(allocations)
    assert f" allocated {show_bytes(sizes)} in {blocks:,} blocks " in text
    assert f" peak {show_bytes(peak.bytes)} in {peak.blocks:,} blocks at " in text
    alive = allocations[np.ma.getmaskarray(allocations["end"])]
    assert f" at the end {show_bytes(alive['size'].sum())} in {len(alive):,} block" in text


def test_a_line_that_allocates_is_found_with_its_file(traces):
    text = module.text(traces["memory"], width=140)

    row = section(text, "Hot allocation sites")[2]
    line = leaf.__code__.co_firstlineno + 1
    assert f"test_report.py:{line} " in row
    assert row.endswith("leaf")


def test_blocks_that_stay_and_blocks_that_go_are_told_apart():
    stays = []

    def run():
        stays.append(bytearray(1 << 20))
        for _ in range(5):
            len(str(7) * 100_003)

    text = module.text(recorded(run, memory=["obj", "mem"]), width=140)

    assert re.match(r" *1\.00 MiB  \d.*run$", section(text, ALIVE)[2])
    temporary = "\n".join(section(text, TEMPORARY))
    assert re.search(r" 48\d KiB  ", temporary)
    assert "1.00 MiB" not in temporary


def test_threads_are_named_with_what_they_did(traces):
    trace = traces["threads"]

    text = module.text(trace)

    rows = section(text, "Threads")
    row = next(row for row in rows if " second (" in row)
    events = trace.threads["recorded"][list(trace.threads["name"]).index("second")]
    assert row.split()[0] == f"{events:,}"


def test_limit_shortens_the_tables(traces):
    text = module.text(traces["everything"], limit=1)

    assert all("and " in section(text, title)[3] for title in (TIME, "Hot allocation sites"))


# ---- What limits the conclusions -----------------------------------------------------------------


def test_what_was_not_asked_for_is_noted():
    text = module.text(recorded(events=["call", "malloc"], memory=["obj"], threads="current"), 140)

    assert (
        "Note: only the thread that started the recorder was recorded, as threads='current' says."
        in text
    )
    assert (
        "Note: events= leaves out return, yield, resume, throw, unwind: calls and times are "
        "incomplete." in text
    )
    assert "realloc_free, free: bytes and blocks are" in text
    assert "Note: of Python's allocators only obj is recorded, as memory= says." in text
    assert "left out     calls of other functions" in text


def test_what_a_filter_switched_off_is_said():
    text = module.text(recorded(memory=False, c_calls=False, exclude=["*leaf"]))

    assert (
        "Note: calls of 1 function were switched off, as include= and exclude= say; how many "
        "calls there were is unknown." in " ".join(text.split())
    )


def test_what_a_filter_left_out_beside_another_recorder_is_counted():
    with eventprof.record(memory=False):  # wants all: nothing can be switched off
        text = module.text(recorded(memory=False, c_calls=False, exclude=["*leaf"]))

    assert "Note: 26 events of calls were left out, as include= and exclude= say." in text


def test_what_the_limits_left_out_is_counted():
    whole = recorded(memory=False, c_calls=False)
    limited = recorded(memory=False, c_calls=False, max_depth=0)
    deep = len(whole.calls) - len(limited.calls)
    assert f"Note: {deep} calls nested deeper than max_depth were left out." in module.text(limited)

    text = module.text(recorded(memory=False, c_calls=False, min_duration="1000 s"))
    assert "calls that took less than min_duration were left out." in text


def test_frees_of_older_blocks_are_counted():
    older = [bytearray(5000) for _ in range(7)]

    trace = recorded(older.clear, memory=["mem", "obj"])

    (note,) = [note for note in notes(module.text(trace)) if "older" in note]
    count = np.ma.getmaskarray(trace.events["size"])[trace.events["event"] == "free"].sum()
    assert note == (
        f"Note: {count} frees of blocks that were older than the recording: no sum contains "
        "their bytes."
    )
    assert count >= 14  # each a header and its bytes


class _Core:
    """A trace's core, with some facts changed."""

    def __init__(self, core, **facts):
        self._core, self._facts = core, facts

    def facts(self):
        return self._core.facts() | self._facts

    def __getattr__(self, name):
        return getattr(self._core, name)


def test_damage_and_displacement_are_noted(traces):
    trace = traces["everything"]
    hurt = eventprof.Trace(
        _Core(trace._core, damaged_chunks=2), {**trace.metadata, "displaced": ("profile",)}
    )

    found = notes(module.text(hurt))

    assert module.text(hurt, width=200).startswith(
        "DAMAGE: 2 parts of the recording could not be read, and its events are missing; "
        f"{len(trace.events):,} events are here."
    )
    assert "Nothing lost" not in module.text(hurt)
    assert any("took over the hook of 'profile'" in note for note in found)
    assert not any("displaced" in note or "took over" in note for note in notes(module.text(trace)))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9999])
def test_a_file_that_was_cut_off_says_so_first(tmp_path, share):
    with eventprof.record(output=tmp_path / "whole.epr"):
        work()
    data = (tmp_path / "whole.epr").read_bytes()
    # The header is needed: a file that is cut within it cannot be opened.
    kept = max(int(len(data) * share), 4096)
    (tmp_path / "cut.epr").write_bytes(data[:kept])

    text = module.text(eventprof.open(tmp_path / "cut.epr"), width=200)

    assert text.startswith("DAMAGE: ")
    assert "Nothing lost" not in text
    assert f"the file ends at byte {kept}, before" in text


# ---- Where it is printed -------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", CASES)
def test_it_fits_any_width_without_blanks_at_the_end(traces, case, width):
    lines = module.text(traces[case], width=width).splitlines()

    assert max(cell_len(line) for line in lines) <= width
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("case", CASES)
def test_ascii_is_enough(traces, case):
    bytes_ = io.BytesIO()
    file = io.TextIOWrapper(bytes_, encoding="ascii")

    module.report(traces[case], file=file, width=100)
    file.flush()

    lines = bytes_.getvalue().decode("ascii").splitlines()
    assert lines[2] == "" or lines[0]
    assert max(map(len, lines)) <= 100


def test_names_do_not_reach_the_terminal_as_they_are(traces):
    text = module.text(traces["names"], width=140)

    assert "a\\x1b[31m[bold]\\n\\ud800" in text
    assert "\x1b" not in text
    assert "日本語" in text
    assert "module.py:2" in text


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def in_terminal(trace, monkeypatch, **environment):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file = _Terminal()
    module.report(trace, file=file, width=100)
    return file.getvalue()


COLOUR = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")


def test_a_terminal_gets_colours(traces, monkeypatch):
    text = in_terminal(traces["everything"], monkeypatch, TERM="xterm-256color")

    assert COLOUR.search(text)
    assert "─" in text


def test_no_color_is_heeded(traces, monkeypatch):
    text = in_terminal(traces["everything"], monkeypatch, TERM="xterm-256color", NO_COLOR="1")

    assert not COLOUR.search(text)
    assert "─" in text


def test_a_dumb_terminal_gets_ascii_without_escapes(traces, monkeypatch):
    text = in_terminal(traces["everything"], monkeypatch, TERM="dumb")

    assert text.isascii()
    assert "\x1b" not in text


def test_standard_output_is_where_it_goes(traces, capsys):
    module.report(traces["calls"], width=90)

    assert capsys.readouterr().out == module.text(traces["calls"], width=90) + "\n"


def test_text_can_be_printed_where_there_is_only_ascii(traces, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))

    text = module.text(traces["names"])

    assert text.isascii()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"width": 39}, ValueError, "width must be 40 or more, not 39"),
        ({"width": "wide"}, TypeError, "width must be a whole number, not 'wide'"),
        ({"limit": 0}, ValueError, "limit must be 1 or more, not 0"),
        ({"limit": True}, TypeError, "limit must be a whole number, not True"),
    ],
)
def test_bad_numbers_are_refused_before_anything_is_printed(
    traces, capsys, arguments, error, message
):
    for function in (module.report, module.text):
        with pytest.raises(error, match=message):
            function(traces["calls"], **arguments)

    assert capsys.readouterr().out == ""


def test_without_rich_the_error_names_it():
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "import eventprof\n"
        "try: import eventprof.show.report\n"
        "except ModuleNotFoundError as error: print(error.name, error)"
    )

    run = children.program(code)

    assert run.stdout.startswith("rich report() and str() of a trace need rich")
    assert "pip install rich" in run.stdout


# ---- Its parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (7, "7 ns"), (-2_000_000, "-2.00 ms"), (1_125_000, "1.13 ms"), (7.25, "7.25 ns"), (999, "999 ns"), (999.7, "1.00 us"),
        (1000, "1.00 us"), (12_345, "12.3 us"), (999_499, "999 us"), (999_500, "1.00 ms"),
        (4_210_000_000, "4.21 s"), (1_234_000_000_000, "1,234 s"),
    ],
)  # fmt: skip
def test_durations_have_three_digits_and_a_unit(ns, text):
    assert show_ns(ns) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (1024, "1.00 KiB"), (12347, "12.1 KiB"),
        (-2048, "-2.00 KiB"), (1 << 20, "1.00 MiB"), (3 << 40, "3.00 TiB"), (1 << 51, "2,048 TiB"), (1_034_000, "0.99 MiB"),
    ],
)  # fmt: skip
def test_sizes_have_three_digits_and_a_unit(size, text):
    assert show_bytes(size) == text


@pytest.mark.parametrize(
    ("text", "width", "separator", "short"),
    [
        ("json.dumps", 10, ".", "json.dumps"),
        ("json.encoder.Encoder.iterencode", 25, ".", "json…Encoder.iterencode"),
        ("json.encoder.Encoder.iterencode", 18, ".", "json…iterencode"),
        ("json.encoder.Encoder.iterencode", 12, ".", "…iterencode"),
        ("json.encoder.Encoder.iterencode", 8, ".", "it…ncode"),
        ("home/of/the/project/file.py:12", 20, "/", "…project/file.py:12"),
        ("home/of/the/project/file.py:12", 17, "/", "home…file.py:12"),
        ("a" * 60 + ".m", 16, ".", "aaaaa…aaaaaaaa.m"),
    ],
)
def test_names_lose_their_middle(text, width, separator, short):
    assert shorten(text, width, separator, "…") == short


@given(st.text(st.sampled_from("ab.語/"), max_size=60), st.integers(1, 70))
def test_a_shortened_name_fits(text, width):
    for dots in ("…", "..."):
        assert cell_len(shorten(text, width, ".", dots)) <= width


def test_paths_lose_what_every_path_has():
    here = os.getcwd()

    assert short_path(f"{here}/package/module.py") == "package/module.py"
    assert short_path(f"{here}/.venv/lib/python3.12/site-packages/numpy/x.py") == "numpy/x.py"
    assert short_path("/usr/lib/python3.13/json/encoder.py") == "json/encoder.py"
    assert short_path(os.path.expanduser("~") + "/elsewhere/x.py").endswith("elsewhere/x.py")
    assert short_path("<string>") == "<string>"


@pytest.mark.parametrize(("share", "cells"), [(0, ""), (0.0001, ""), (0.002, "▏"), (0.5, "█████"),
                                              (1, "█" * 10), (2, "█" * 10)])  # fmt: skip
def test_a_bar_is_as_long_as_its_share(share, cells):
    assert draw_bar(share, 10, plain=False).plain == cells


def test_a_lane_shows_when():
    assert draw_lane(0, 100, 100, 10, plain=True).plain == "=========="
    assert draw_lane(55, 61, 100, 10, plain=True).plain == ".....==..."
    assert draw_lane(100, 100, 100, 10, plain=True).plain == ".........="
    assert draw_lane(0, 0, 0, 4, plain=True).plain == "=..."


def drawn(low, high, peak, *, plain, known_from=0, width=40):
    def bins(count):
        places = np.arange(count) * len(low) // count
        return np.array(low)[places], np.array(high)[places]

    curve = Curve(bins, 4000, peak, known_from=known_from, plain=plain)
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(curve)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_curve_marks_its_peak_and_its_axes():
    lines = drawn([0, 8, 4, 0], [0, 8, 8, 1], (1000, 8), plain=True, width=46)

    assert lines == [
        "               v peak 8 B at 1.00 us",
        "8 B |           ##########::::::::::",
        "    |           ##########::::::::::",
        "    |           ##########::::::::::",
        "    |           ##########::::::::::",
        "4 B |           ####################",
        "    |           ####################",
        "    |           ####################",
        "    |           ####################::::::::::",
        "0 B +----------+---------+---------+---------+",
        "     0      1.00 us   2.00 us          4.00 us",
    ]


def test_the_curve_is_stippled_between_the_least_and_the_most():
    lines = drawn([0, 32], [32, 32], (0, 32), plain=False)

    left, right = lines[4].split("│")[1][:4], lines[4][-4:]
    assert right == "⣿" * 4
    assert left == "⡪" * 4


def test_the_curve_hides_what_is_not_known():
    lines = drawn([8, 8], [8, 8], (2000, 8), plain=True, known_from=2000)

    rows = [line.split("|")[1] for line in lines[1:9]]
    assert {row.count("?") for row in rows} == {17}
    assert all(row.startswith("?" * 17 + "#") for row in rows)


@pytest.mark.parametrize("seed", range(3))
def test_places_add_up(seed):
    rng = np.random.default_rng(seed)
    count = 2000
    functions = rng.integers(-1, 9, count).astype(np.int32)
    lines = np.where(functions < 0, -1, rng.integers(-1, 40, count) + 7 * functions).astype(
        np.int32
    )
    lines[functions == 4] = 400
    functions[functions == 6] = 5  # one without blocks
    sizes = rng.integers(0, 1000, count)

    result = Tree.summed(functions, lines, sizes, np.ones(count, dtype=np.int64))

    expected: Counter = Counter()
    blocks: Counter = Counter()
    for *place, size in zip(functions.tolist(), lines.tolist(), sizes.tolist(), strict=True):
        expected[tuple(place)] += size
        blocks[tuple(place)] += 1
    owners, owner_lines, size_sums, block_sums = (column.tolist() for column in result)
    places = list(zip(owners, owner_lines, strict=True))
    assert dict(zip(places, size_sums, strict=True)) == expected
    assert dict(zip(places, block_sums, strict=True)) == blocks
    assert size_sums == sorted(size_sums, reverse=True)


def test_drawing_knows_nothing_of_traces():
    assert not hasattr(drawing, "Trace")
