"""Trees of calls, read by readers of other projects: equal calls, times and bytes."""

from __future__ import annotations

import collections
import gzip
import io
import marshal
import os
import pstats
import re
import shutil
import subprocess
import sys
import time

import children
import exported
import numpy as np
import pytest
from exported import TRACES, names_of, sums_of
from exporting import as_collapsed, export, one_line

import eventprof
from eventprof.export._tree import Tree
from eventprof.export._view import View

# ---- Trees ---------------------------------------------------------------------------------------


def test_collapsed_has_all_own_time(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "collapsed")
    expected = sums_of(any_trace, spell=str)

    own, total = collections.Counter(), collections.Counter()
    for line in path.read_bytes().split(b"\n")[:-1]:
        stack, _, weight = line.decode().rpartition(" ")
        assert int(weight) > 0
        assert line.decode().isprintable()
        frames = stack.split(";")
        own[frames[-1]] += int(weight)
        for frame in set(frames):
            total[frame] += int(weight)

    assert own == {as_collapsed(n): v for n, v in expected.own.items() if v}
    assert total == {as_collapsed(n): v for n, v in expected.total.items() if v}


def filters_of(trace):
    """Filters that choose something of a trace, and something else not."""
    table = trace.calls
    if not len(table):
        return []
    names = [name for name in table["name"][:200] if name and name.isidentifier()]
    thread = trace.threads["native_id"][int(table["thread"][-1])]
    return [
        *([] if thread is np.ma.masked else [{"threads": str(thread)}]),
        {"own": True},
        *({"functions": name} for name in (names[:1] + names[-1:])),
    ]


@pytest.mark.parametrize("word", ["collapsed", "callgrind", "pprof", "pstats"])
def test_chosen_nodes_are_those_of_chosen_calls(any_trace, tmp_path, word):
    """The calls that lie between the begin and the end of the trace are all calls."""
    whole = (0, any_trace.duration + 1)
    for chosen in filters_of(any_trace):
        of_tree = export(any_trace, tmp_path, word, **chosen).read_bytes()
        of_calls = export(any_trace, tmp_path, word, between=whole, **chosen).read_bytes()

        assert of_tree == of_calls, chosen


def test_nodes_of_threads_are_those_of_their_calls(any_trace):
    """Without the blocks outside all calls, which calls do not have."""
    whole = (0, any_trace.duration + 1)
    trees = [
        Tree(View(any_trace, between=between), sites=True, threads=True)
        for between in (None, whole)
    ]
    stacks = [stacks_of(tree) for tree in trees]

    for stack, figures in stacks[1].items():
        assert {name: stacks[0][stack][name] for name in ("calls", "self")} == {
            name: figures[name] for name in ("calls", "self")
        }
    assert not any(
        figures["calls"] or figures["self"]
        for stack, figures in stacks[0].items()
        if stack not in stacks[1]
    )


def stacks_of(tree):
    """Figures by stack: thread, and function and line of each call."""
    stacks, figures = [], {}
    for node, parent in enumerate(tree.parent.tolist()):
        here = (int(tree.function[node]), int(tree.line[node]))
        stacks.append((*(stacks[parent] if parent >= 0 else (int(tree.thread[node]),)), here))
        assert stacks[-1] not in figures
        figures[stacks[-1]] = {"calls": int(tree.calls[node]), "self": int(tree.self[node])}
    return figures


def test_an_export_of_the_tree_makes_no_columns(nasty, tmp_path):
    nasty.save(tmp_path / "run.epr")
    for word in ("collapsed", "callgrind", "pprof", "pstats"):
        trace = eventprof.open(tmp_path / "run.epr")

        of_file = export(trace, tmp_path, word).read_bytes()

        assert not trace._core.has_columns()
        assert of_file == export(nasty, tmp_path, word).read_bytes()


@pytest.mark.parametrize("weight", ["calls", "allocated", "blocks", "at_peak", "live"])
def test_collapsed_by_another_weight(nasty, tmp_path, weight):
    path = export(nasty, tmp_path, "collapsed", weight=weight)
    found = sum(int(line.rpartition(b" ")[2]) for line in path.read_bytes().splitlines())

    blocks = nasty.allocations
    functions = nasty.functions
    expected = {
        "calls": functions["calls"].sum() + functions["resumes"].sum(),
        "allocated": blocks["size"].sum(),
        "blocks": len(blocks),
        "live": blocks["size"][blocks["end"].mask].sum(),
        "at_peak": nasty.peak().bytes,
    }
    assert found == int(expected[weight])


def test_memory_that_was_not_recorded_is_no_weight(tmp_path):
    with pytest.raises(ValueError, match="weight: live needs allocations, which were not recorded"):
        exported.zero_length().export(tmp_path / "x.collapsed", weight="live")


def read_callgrind(path):
    """Own and inclusive costs by function, as callgrind_annotate computes them, and calls."""
    own, inclusive, calls = (collections.defaultdict(collections.Counter) for _ in range(3))
    function, callee, count = None, None, 0
    for line in path.read_text().split("\n"):
        if line.startswith("fn="):
            function = line[3:]
        elif line.startswith("cfn="):
            callee = line[4:]
        elif line.startswith("events: "):
            events = line.split()[1:]
        elif line.startswith("calls="):
            count = int(line[6:].split()[0])
        elif re.fullmatch(r"\d+( -?\d+)+", line):
            costs = list(map(int, line.split()[1:]))
            for event, cost in zip(events, costs, strict=True):
                inclusive[function][event] += cost
                if callee is None:
                    own[function][event] += cost
            if callee is not None:
                calls[callee]["calls"] += count
                callee = None
    return own, inclusive, calls


def test_callgrind_has_all_times(any_trace, tmp_path):
    own, inclusive, _ = read_callgrind(export(any_trace, tmp_path, "callgrind"))
    expected = sums_of(any_trace, spell=str)

    assert {n: c["ns"] for n, c in own.items() if c["ns"]} == {
        spelt(n): v for n, v in expected.own.items() if v
    }
    assert {n: c["ns"] for n, c in inclusive.items() if c["ns"] and n != "(not recorded)"} == {
        spelt(n): v for n, v in expected.total.items() if v
    }


def test_callgrind_annotate_reads_it(any_trace, tmp_path):
    """It takes the costs of all calls of a function as the inclusive cost."""
    if shutil.which("callgrind_annotate") is None:
        pytest.skip("valgrind's callgrind_annotate is not installed")
    path = export(any_trace, tmp_path, "callgrind")

    heading, *rows = annotated(path, "--inclusive=yes")
    own = dict(annotated(path, "--inclusive=no")[1:])

    expected = sums_of(any_trace, spell=str)
    assert heading == ("PROGRAM TOTALS", sum(expected.own.values()))
    of_function = zip(any_trace.functions["file"], names_of(any_trace, str), strict=True)
    names = {f"{one_line(file or '~')}:{spelt(name)}".strip(): name for file, name in of_function}
    names["~:(not recorded)"] = None  # who calls the outermost functions
    names["~:(unknown)"] = "(unknown)"
    for found, sums in ((dict(rows), expected.total), (own, expected.own)):
        of_name = {names[key]: ns for key, ns in found.items() if names[key] is not None}
        assert called(of_name) == called(sums)


def called(sums):
    """Without pytest's own functions, which call each other in turn: their calls have two sums."""
    pytests = ("_pytest.", "pluggy.", "xdist.", "execnet.", "__channelexec__.")
    return {name: ns for name, ns in sums.items() if ns and not name.startswith(pytests)}


def annotated(path, *options):
    """What callgrind_annotate tells of each function: its name with the file, and ns."""
    command = ["callgrind_annotate", "--threshold=100", "--show=ns", "--auto=no", *options, path]
    lines = children.run(*command, cwd=path.parent, LC_ALL="C.UTF-8").stdout.split("\n")
    return [
        (
            match[2].strip().removesuffix(" (calculated)"),
            int(match[1].replace(",", "").replace(".", "") or 0),
        )
        for line in lines
        if (match := re.fullmatch(r" *(\.|[\d,]*)(?: \( ?[\d.]+%\))?  (\S.*| .*)", line))
    ]


def spelt(name):
    """A function's name in callgrind's format."""
    name = one_line(name)
    if not name.strip():
        return "\\x20"
    return f" {name}" if name.startswith("(") and name != "(unknown)" else name


def test_a_backslash_and_a_line_end_are_two_functions(tmp_path):
    names = ["\n", "\\n", "\\\n"]

    def fill(builder):
        thread = builder.thread(0, "only")
        for number, name in enumerate(names):
            thread.begin(10 * number, builder.function(name))
            thread.end(10 * number + number + 1)

    trace = exported.made(fill)
    expected = {one_line(name): ns for ns, name in enumerate(names, 1)}
    own, _, _ = read_callgrind(export(trace, tmp_path, "callgrind"))
    samples = read_pprof(export(trace, tmp_path, "pprof"))
    assert {name: costs["ns"] for name, costs in own.items()} == expected
    assert {stack[0]: values["wall"] for stack, values in samples} == expected


def test_callgrind_has_bytes(nasty, tmp_path):
    own, _, _ = read_callgrind(export(nasty, tmp_path, "callgrind"))

    assert sum(c["Allocated"] for c in own.values()) == int(nasty.allocations["size"].sum())
    assert sum(c["Blocks"] for c in own.values()) == len(nasty.allocations)


def test_pstats_has_calls_and_times(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "pstats")
    if not len(any_trace.calls):
        assert marshal.loads(path.read_bytes()) == {}  # pstats takes no file without functions
        return
    stats = pstats.Stats(str(path))

    calls, own, total, recursive = (collections.Counter() for _ in range(4))
    for (_, _, name), (primitive, count, own_s, total_s, _) in stats.stats.items():
        calls[name] += count
        recursive[name] += count - primitive
        own[name] += round(own_s * 1e9)
        total[name] += round(total_s * 1e9)
    functions = any_trace.functions
    expected = collections.Counter()
    expected_own = collections.Counter()
    for row, shown in enumerate(names_of(any_trace, str)):
        name = one_line(shown if functions["file"][row] is None else functions["name"][row])
        expected[name] += int(functions["calls"][row] + functions["resumes"][row])
        expected_own[name] += int(functions["self"][row])
    assert +calls == +expected
    assert sum(recursive.values()) == int(functions["recursive"].sum())
    if any_trace.duration < 1 << 50:  # seconds in a double
        assert {n: v for n, v in own.items() if v} == {n: v for n, v in expected_own.items() if v}
    stats.stream = io.StringIO()
    stats.sort_stats("tottime").print_stats()
    stats.print_callers()


def test_pstats_agrees_with_cprofile_on_callers(tmp_path):
    import cProfile

    def leaf():
        pass

    def one():
        leaf()
        leaf()

    def two(n):
        leaf()
        if n:
            two(n - 1)

    def run():
        one()
        two(3)

    profile = cProfile.Profile()
    profile.runcall(run)
    with eventprof.record(memory=False, c_calls=False) as rec:
        run()
    path = export(rec.trace, tmp_path, "pstats")

    def callers(stats):
        names = {leaf.__name__, one.__name__, two.__name__}
        return {
            (caller[2].split(".")[-1], callee[2].split(".")[-1]): counts[:2]
            for callee, (_, _, _, _, callers) in stats.stats.items()
            if callee[2].split(".")[-1] in names
            for caller, counts in callers.items()
        }

    found, expected = callers(pstats.Stats(str(path))), callers(pstats.Stats(profile))
    assert found == expected


@pytest.mark.parametrize("word", ["pstats", "callgrind", "collapsed"])
def test_gprof2dot_reads_them(any_trace, tmp_path, word, capsys):
    gprof2dot = pytest.importorskip("gprof2dot")
    if word == "pstats" and not len(any_trace.calls):
        return  # pstats opens no file without functions
    path = export(any_trace, tmp_path, word)
    with open(path, encoding="utf-8") as file:
        parser = {
            "pstats": lambda: gprof2dot.PstatsParser(str(path)),
            "callgrind": lambda: gprof2dot.CallgrindParser(file),
            "collapsed": lambda: gprof2dot.CollapseParser(file),
        }[word]()
        profile = parser.parse()

    own = gprof2dot.TIME if word == "pstats" else gprof2dot.SAMPLES
    found = profile.functions.values()
    scale = 1e9 if word == "pstats" else 1
    expected = sum(sums_of(any_trace, spell=str).own.values())
    assert sum(f[own] for f in found if own in f.events) * scale == pytest.approx(expected)
    if word == "pstats":
        functions = any_trace.functions
        calls = int(functions["calls"].sum() + functions["resumes"].sum())
        assert sum(function.called or 0 for function in found) == calls
    gprof2dot.DotWriter(sys.stdout).graph(profile, gprof2dot.themes["color"])
    dot = capsys.readouterr().out
    assert dot.startswith("digraph") and dot.count(" -> ") == sum(len(f.calls) for f in found)


def read_pprof(path):
    """Samples of a profile: stacks of names, leaf first, and values by type."""
    from eventprof.importing.perfetto import fields

    whole = collections.defaultdict(list)
    for field, value in fields(gzip.decompress(path.read_bytes())):
        whole[field].append(value)
    strings = [value.decode() for value in whole[6]]
    assert strings[0] == ""

    def numbers(data):
        found = []
        offset = shift = value = 0
        for byte in data:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                found.append(value)
                value = shift = 0
            offset += 1
        return found

    functions, locations = {}, {}
    for message in whole[5]:
        known = dict(fields(message))
        assert known[1] > 0
        functions[known[1]] = strings[known[2]]
    for message in whole[4]:
        known = dict(fields(message))
        locations[known[1]] = functions[dict(fields(known[4]))[1]]
    types = [strings[dict(fields(message))[1]] for message in whole[1]]
    samples = []
    for message in whole[2]:
        known = dict(fields(message))
        stack = [locations[number] for number in numbers(known[1])]
        samples.append((stack, dict(zip(types, numbers(known[2]), strict=True))))
    return samples


def test_pprof_has_all_times(any_trace, tmp_path):
    samples = read_pprof(export(any_trace, tmp_path, "pprof"))
    expected = sums_of(any_trace, spell=str)

    own, total = collections.Counter(), collections.Counter()
    calls = 0
    for stack, values in samples:
        own[stack[0]] += values["wall"]
        calls += values["calls"]
        for name in set(stack):
            total[name] += values["wall"]

    assert +own == {one_line(name): ns for name, ns in (+expected.own).items()}
    assert +total == {one_line(name): ns for name, ns in (+expected.total).items()}
    functions = any_trace.functions
    assert calls == int(functions["calls"].sum() + functions["resumes"].sum())


def test_pprof_has_bytes(nasty, tmp_path):
    samples = read_pprof(export(nasty, tmp_path, "pprof"))

    blocks = nasty.allocations
    assert sum(v["allocated"] for _, v in samples) == int(blocks["size"].sum())
    assert sum(v["blocks"] for _, v in samples) == len(blocks)
    assert sum(v["live"] for _, v in samples) == int(blocks["size"][blocks["end"].mask].sum())
    assert sum(v["at_peak"] for _, v in samples) == nasty.peak().bytes


# ---- The tree, from the fold or from the calls ---------------------------------------------------


def tree_sums(trace, *, sites=True, threads=False, **chosen):
    """Each path of functions and lines with what it has itself."""
    from eventprof.export._tree import MEMORY, Tree
    from eventprof.export._view import View

    tree = Tree(View(trace, **chosen), sites=sites, threads=threads)
    columns = {"calls": tree.calls, "self": tree.self, **tree.own("waited", *MEMORY)}
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    paths, found = [], {}
    for node, (parent, function, line) in enumerate(
        zip(tree.parent.tolist(), tree.function.tolist(), tree.line.tolist(), strict=True)
    ):
        paths.append(((*paths[parent],) if parent >= 0 else ()) + ((function, line),))
        key = paths[-1]
        found[key] = tuple(
            map(sum, zip(found.get(key, (0,) * len(columns)), rows[node], strict=True))
        )
    return list(columns), {path: row for path, row in found.items() if any(row)}


@pytest.mark.parametrize("sites", [True, False])
@pytest.mark.parametrize(
    "name", ["nasty", "open_ends", "with_loss", "zero_length", "late", "waiting"]
)
def test_the_fold_and_the_calls_make_one_tree(name, sites):
    trace = exported.waiting() if name == "waiting" else TRACES[name]()

    names, of_fold = tree_sums(trace, sites=sites)
    names_of_calls, of_calls = tree_sums(trace, sites=sites, threads=True)

    assert names == names_of_calls
    assert of_fold == of_calls
    if name == "waiting" and trace.has_lock:
        assert sum(row[names.index("waited")] for row in of_fold.values()) > 0


def test_the_whole_window_is_no_other_choice(waiting):
    """Cut at the edges of the window, calls wait as long as they do."""
    names, whole = tree_sums(waiting)

    part_names, part = tree_sums(waiting, between=(0, waiting.duration + 1))

    upto = names.index("waited") + 1 if waiting.has_lock else 2
    assert part_names == names
    in_calls = {path: row[:upto] for path, row in whole.items() if any(row[:upto])}
    assert {path: row[:upto] for path, row in part.items() if any(row[:upto])} == in_calls


@pytest.mark.skipif(sys.platform != "linux", reason="waits are recorded on Linux alone")
def test_a_wait_that_a_window_cuts_counts_as_far_as_it_is_inside():
    def nap():
        time.sleep(0.1)

    with eventprof.record(waits=True, memory=False) as rec:
        nap()
    trace = rec.trace
    (row,) = np.flatnonzero(trace.waits["kind"] == "sleep")
    start, duration = (int(trace.waits[name][row]) for name in ("start", "duration"))

    names, whole = tree_sums(trace, sites=True, between=(0, trace.duration + 1))
    _, part = tree_sums(trace, sites=True, between=(start + duration // 4, start + duration // 2))

    at = names.index("waited")
    assert sum(row[at] for row in whole.values()) >= duration
    assert sum(row[at] for row in part.values()) == duration // 2 - duration // 4


@pytest.mark.parametrize("count", [0, 1, 997])
def test_tenures_of_many_processes_are_added_up_as_one_by_one(count):
    from eventprof.export._view import TimesOfGroups

    rng = np.random.default_rng(12347)
    groups = 13  # the last has no tenure
    # One after the other, some at once, some of no length; those of different groups at once.
    edges = np.sort(rng.integers(0, 5000, (groups - 1, 2 * count)), axis=1)
    begin, end = edges[:, ::2].ravel(), edges[:, 1::2].ravel()
    group = np.repeat(np.arange(groups - 1, dtype=np.int32), count)
    shuffled = rng.permutation(len(begin))
    shuffled = shuffled[np.argsort(begin[shuffled], kind="stable")]
    wanted = rng.integers(0, groups, 500).astype(np.int32)
    start = rng.integers(-10, 5010, 500)
    stop = start + rng.integers(0, 1000, 500)

    tenures = TimesOfGroups(begin[shuffled], end[shuffled], group[shuffled])
    found = tenures.during(start, stop, wanted)

    expected = [
        int(
            np.maximum(
                np.minimum(end[group == each], b) - np.maximum(begin[group == each], a), 0
            ).sum()
        )
        for a, b, each in zip(start.tolist(), stop.tolist(), wanted.tolist(), strict=True)
    ]
    assert found.tolist() == expected


def test_trees_say_how_long_calls_waited(waiting, tmp_path):
    if not waiting.has_lock:
        pytest.skip("this Python has no lock to wait for")
    expected = int(waiting.functions["waited_self"].sum())

    own, _, _ = read_callgrind(export(waiting, tmp_path, "callgrind"))
    samples = read_pprof(export(waiting, tmp_path, "pprof"))
    lines = export(waiting, tmp_path, "collapsed", weight="waited").read_bytes().splitlines()

    assert sum(costs["Waited"] for costs in own.values()) == expected > 0
    assert sum(values["waited"] for _, values in samples) == expected
    assert sum(int(line.rpartition(b" ")[2]) for line in lines) == expected


@pytest.fixture(scope="module")
def go_pprof():
    """Run Go's pprof. Go builds it when it is first asked for: that is waited for once."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("Go is not installed")

    def run(*arguments):
        return subprocess.run(
            [go, "tool", "pprof", *arguments], capture_output=True, timeout=900,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOPROXY": "off"},
        )  # fmt: skip

    try:
        if b"no such tool" in run("-h").stderr:
            pytest.skip("this Go has no pprof")
    except subprocess.TimeoutExpired:
        pytest.skip("Go builds its pprof when first asked for it, and was not done in 200 s")
    return run


@pytest.mark.slow
def test_go_tool_pprof_reads_it(any_trace, tmp_path, go_pprof):
    path = export(any_trace, tmp_path, "pprof")

    done = go_pprof("-raw", path)

    assert done.returncode == 0, done.stderr
    found, expected = raw_samples(done.stdout.decode()), read_pprof(path)
    assert [values for _, values in found] == [values for _, values in expected]
    for (lines, _), (stack, _) in zip(found, expected, strict=True):
        assert all(map(str.startswith, lines, [f"{name} " for name in stack]))


def raw_samples(text):
    """What pprof tells of a profile, as `read_pprof` has it; names with file and line."""
    samples, _, locations = text.partition("Samples:\n")[2].partition("\nLocations\n")
    types, *rows = samples.split("\n")
    words = [kind.split("/")[0] for kind in types.split()]
    names = {}
    for line in locations.split("\n"):
        if known := re.fullmatch(r" *(\d+): 0x0 M=1 (.*)", line):
            names[known[1]] = known[2]
    found = []
    for row in rows:
        if values := re.fullmatch(r"([ \d-]+): ([\d ]+)", row):
            numbers = map(int, values[1].split())
            stack = [names[number] for number in values[2].split()]
            found.append((stack, dict(zip(words, numbers, strict=True))))
    return found
