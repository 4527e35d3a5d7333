"""What findings ask about single calls and live blocks: one pass gives what the columns have."""

import random
import threading

import numpy as np
import pytest

import eventprof
from eventprof.answers import findings

NOT_WHOLE, RECURSIVE = 1 | 2 | 16, 32
KEPT = []


def fall(depth, rng):
    if depth == 0:
        raise ValueError
    return fall(depth - 1, rng) if rng.random() < 0.9 else steps(depth)


def steps(count):
    return sum(step for step in (number for number in range(count)))


def hold(size):
    KEPT.append([bytearray(600 + size), str(size)])
    if len(KEPT) % 3 == 0:
        KEPT[-1] = None


def work(seed):
    rng = random.Random(seed)
    for number in range(300):
        hold(number)
        try:
            fall(rng.randrange(9), rng)
        except ValueError:
            pass


@pytest.fixture(params=["whole", "ring", "outer"])
def trace(request, tmp_path):
    path = tmp_path / "x.epr"
    small = {"buffer": "1 MiB"} if request.param == "ring" else {"on_full": "grow"}
    rec = eventprof.record(output=path, **small)
    KEPT.clear()

    def run():
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        work(9)
        for thread in threads:
            thread.join()

    def begin():
        rec.start()
        run()

    (begin if request.param == "outer" else lambda: (rec.start(), run()))()
    rec.stop()
    yield eventprof.open(path)
    KEPT.clear()


def inside_of(parent):
    """Count the calls in each call, and itself."""
    counts = np.ones(len(parent), np.int64)
    for row in range(len(parent) - 1, -1, -1):
        if parent[row] >= 0:
            counts[parent[row]] += counts[row]
    return counts


def blocked_of(parent, duration, blocks):
    """Sum the time of blocking calls in each call, itself included."""
    sums = np.where(blocks, duration, 0)
    for row in range(len(parent) - 1, -1, -1):
        if parent[row] >= 0:
            sums[parent[row]] += sums[row]
    return sums


@pytest.mark.filterwarnings("ignore::eventprof.EventsLostWarning")
@pytest.mark.parametrize("without", [0, NOT_WHOLE, NOT_WHOLE | RECURSIVE])
def test_picked_calls_are_those_of_the_table(trace, without):
    functions = trace._tree.functions
    chosen = np.array(
        [row[0] in ("fall", "steps", "work") or row[4] == "builtin" for row in functions]
    )
    blocking = np.array([row[0] in ("str", "hold") for row in functions])

    calls, sums, quarters = trace._core.picked(
        chosen.tobytes(), blocking.tobytes(), None, without, 1 << 62, -1, -1
    )
    assert not trace._core.has_columns()

    core = trace._core
    column = {
        name: core.calls(name)
        for name in ("function", "caller", "flags", "parent", "start", "duration", "thread")
    }
    rows = np.flatnonzero(chosen[column["function"]] & (column["flags"] & without == 0))
    assert len(rows) > 1000
    order = np.argsort(calls["call"])
    found = {name: values[order] for name, values in calls.items()}
    assert found["call"].tolist() == rows.tolist()
    for name in ("function", "caller", "start", "duration", "thread"):
        assert found[name].tolist() == column[name][rows].tolist(), name
    assert found["inside"].tolist() == inside_of(column["parent"])[rows].tolist()
    blocks = blocking[column["function"]]
    expected = blocked_of(column["parent"], column["duration"], blocks)[rows]
    assert found["blocked"].tolist() == expected.tolist()
    for function in np.flatnonzero(chosen):
        of_function = rows[column["function"][rows] == function]
        assert sums["calls"][function] == len(of_function)
        assert sums["total"][function] == column["duration"][of_function].sum()
    assert quarters == (0, 0, 0, 0)


@pytest.mark.filterwarnings("ignore::eventprof.EventsLostWarning")
def test_live_blocks_of_a_line_by_quarters_of_all_allocations(trace):
    functions = trace._tree.functions
    own = np.array([row[0] in ("hold", "fall") for row in functions])
    hold = next(number for number, row in enumerate(functions) if row[0] == "hold")
    none = bytes(len(own))

    *_, quarters = trace._core.picked(none, none, own.tobytes(), 0, 0, hold, -1)
    assert not trace._core.has_columns()

    core = trace._core
    functions_of, parents = core.calls("function"), core.calls("parent")
    charged = np.zeros(len(parents), bool)
    for row, (function, parent) in enumerate(zip(functions_of, parents, strict=True)):
        caller = core.calls("caller", row, 1)[0] if not own[function] else -1
        by_own = caller >= 0 and own[caller]
        decides = own[function] or by_own or parent < 0
        charged[row] = function == hold if decides else charged[parent]
    end, size, call = (core.allocations(name) for name in ("end", "size", "call"))
    live = np.flatnonzero((end < 0) & (size > 0) & (call >= 0))
    live = live[charged[call[live]]]
    expected = np.bincount(live * 4 // len(end), minlength=4)

    assert list(quarters) == expected.tolist()
    assert sum(quarters) > 100


def test_of_many_calls_some_are_left_out_but_no_long_ones_and_sums_have_all(tmp_path):
    def leaf(number):
        return sum(range(3000)) if number % 5000 == 0 else number

    with eventprof.record(output=tmp_path / "x.epr", memory=False, c_calls=False) as rec:
        for number in range(150_000):
            leaf(number)

    trace = rec.trace
    functions = trace._tree.functions
    chosen = np.array([(row[0] or "").endswith("leaf") for row in functions])
    (row,) = np.flatnonzero(chosen)
    column = trace._core.calls("duration")[trace._core.calls("function") == row]
    longest = int(np.sort(column)[-20])

    calls, sums, _ = trace._core.picked(
        chosen.tobytes(), bytes(len(chosen)), None, 0, longest, -1, -1
    )

    assert sums["calls"][row] == len(column) == 150_000
    assert sums["total"][row] == column.sum()
    assert 10_000 < len(calls["duration"]) <= 65_536
    kept = np.sort(calls["duration"])[-np.count_nonzero(column >= longest) :]
    assert kept.tolist() == np.sort(column[column >= longest]).tolist()
    # What is left is like the whole.
    assert abs(np.median(calls["duration"]) - np.median(column)) <= 0.5 * np.median(column)


def test_masks_must_be_of_as_many_functions(trace):
    with pytest.raises(ValueError, match="as many functions"):
        trace._core.picked(b"\1", b"\1\1", None, 0, 0, -1, -1)


def test_findings_of_a_file_make_no_columns(tmp_path):
    def growing():
        def add(number):
            for other in range(number * number // 99):
                abs(other)

        for number in range(300):
            add(number)

    def slow():
        def once(count):
            for number in range(count):
                abs(number)

        for number in range(60):
            once(200_000 if number == 30 else 5)

    for program, rule in ((growing, "growing-calls"), (slow, "one-slow-call")):
        for attempt in range(5):  # one that lost its processor may be slow elsewhere
            path = tmp_path / f"{rule}-{attempt}.epr"
            with eventprof.record(output=path, on_full="grow"):
                program()
            trace = eventprof.open(path)

            found = findings.find(trace, ["*test_picked*"])

            assert not trace._core.has_columns()
            if rule in {finding.rule for finding in found}:
                break
        assert rule in {finding.rule for finding in found}
