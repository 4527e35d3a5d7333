"""The page's columns, decoded again without a browser, beside the tables that they are made of."""

from __future__ import annotations

import asyncio
import gzip
import json

import numpy as np
import pytest
from page_program import program, values

import eventprof
from eventprof import _core
from eventprof.answers.own import find_areas
from eventprof.importing._build import Builder
from eventprof.viewer import data as page_data
from eventprof.viewer import page_calls, planes

TILE, COARSE = 512, 64


def decode(raw, widths, rows):
    """Return columns from planes; rows: of each column."""
    offset, columns = 0, []

    def joined(planes, count):
        nonlocal offset
        column = np.zeros(count, dtype=np.uint64)
        for plane in range(planes):
            column |= np.frombuffer(raw, np.uint8, count, offset).astype(np.uint64) << (8 * plane)
            offset += count
        return column

    for form, count in zip(widths, rows, strict=True):
        width, few, more = (form, 0, 0) if isinstance(form, int) else form
        column = joined(width, count)
        places = np.cumsum(joined(3 if few else 0, few)).astype(int)
        column[places] |= joined(more, few) << (8 * width)
        columns.append(column.astype(np.int64))
    assert offset == len(raw)
    return columns


def low_bits(tile, raw):
    """Return the low bits of each column of times (0: not apart), and all that follows."""
    found, offset, rows = [], 0, tile["rows"]
    half = (rows + 1) // 2
    for bits in tile["low"]:
        both = np.frombuffer(raw, np.uint8, half if bits else 0, offset).astype(np.int64)
        found.append((np.r_[both & 15, both >> 4][:rows], bits) if bits else (0, 0))
        offset += len(both)
    return found, raw[offset:]


def signed(zigzag):
    return (zigzag >> 1) ^ -(zigzag & 1)


class Decoded:
    """A page's columns: of calls in its order, of births and deaths in order of time."""

    def __init__(self, trace, grain):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planes, "TILE", TILE)
            for module in (page_calls, page_data):
                patch.setattr(module, "COARSE", COARSE)
            head, coarse, tiles = page_data.sections(trace, grain=grain)
        self.head = json.loads(gzip.decompress(head))
        self.tiles = {name: gzip.decompress(raw) for name, raw in tiles}
        groups = sum(-(-count // COARSE) for *_, count in self.head["rows"])
        widths = self.head["coarse"]["widths"]
        start, *rest = decode(gzip.decompress(coarse), widths, [groups] * 5)
        self.coarse = [np.cumsum(signed(start)), *rest]
        self.calls = self._calls()
        self.events, self.born = self._blocks()

    def _calls(self):
        made = []
        for n, tile in enumerate(self.head["tiles"]["c"]):
            (low_gap, low_length), raw = low_bits(tile, self.tiles[f"c{n}"])
            gap, length, function, kind, flags, line, task = decode(
                raw, tile["widths"], [tile["rows"]] * 7
            )
            gap = (gap << low_gap[1]) + low_gap[0]
            length = (length << low_length[1]) + low_length[0]
            back = np.empty_like(function)
            back[np.argsort(function, kind="stable")] = np.arange(len(function))
            gap = (signed(gap) if tile["signed"] else gap)[back]
            length = length[back]
            start = np.empty_like(gap)
            begins = dict(zip(tile["begins"], tile["starts"], strict=True))
            end = 0
            for i in range(len(gap)):
                start[i] = begins.get(n * TILE + i, end + gap[i])
                end = start[i] + length[i]
            function = np.where(function < len(self.head["functions"]["name"]), function, -1)
            usual = np.array(self.head["usual"])[function + 1]
            kind = np.where(kind, kind - 1, usual)
            made.append(np.stack([start, length, function, kind, flags, line, task - 1]))
        return np.concatenate(made, axis=1) if made else np.zeros((7, 0), int)

    def _blocks(self):
        events, born, births = [], [], 0
        for n, tile in enumerate(self.head["tiles"]["m"]):
            rows, count = tile["rows"], tile["births"]
            (low, _), raw = low_bits(tile, self.tiles[f"m{n}"])
            step, bits, back, row, size, charge = decode(
                raw, tile["widths"], [rows, (rows + 7) // 8, rows - count, rows, count, count]
            )
            step = (step << low[1]) + low[0]
            made = np.unpackbits(bits.astype(np.uint8), count=rows, bitorder="little").astype(bool)
            number = births + np.cumsum(made)
            block = number - 1
            block[~made] = number[~made] - back
            events.append(
                np.stack([tile["start"] + np.cumsum(step), made, block, np.cumsum(signed(row))])
            )
            holders = [np.array(each, dtype=int)[charge] for each in self.head["charges"]]
            born.append(np.stack([size, *holders]))
            births += count
        if not events:
            return np.zeros((4, 0), int), np.zeros((4, 0), int)
        return np.concatenate(events, axis=1), np.concatenate(born, axis=1)

    def links(self, name):
        facts = self.head[name]
        columns = decode(self.tiles[name], facts["widths"], [facts["rows"]] * 2)
        keys, linked = (np.cumsum(signed(column)).tolist() for column in columns)
        return dict(zip(keys, linked, strict=True))

    def sought(self, thread, depth, time):
        """Find the call of a thread and depth that had begun at a time, as data.js does."""
        for row, (row_thread, row_depth, *_) in enumerate(self.head["rows"]):
            if (row_thread, row_depth) == (thread, depth):
                return self.sought_in(row, time)
        return -1

    def sought_in(self, row, time):
        """Find the call of a row that had begun at a time."""
        _, _, first, count = self.head["rows"][row]
        found = int(np.searchsorted(self.calls[0][first : first + count], time, "right"))
        return first + found - 1 if found else -1


def record_threads():
    with eventprof.record(gc=True) as rec:
        program()
    return rec.trace


def record_tasks():
    async def job(count):
        for k in range(count):
            json.dumps([k])
            await asyncio.sleep(0)

    async def jobs():
        await asyncio.gather(*(asyncio.create_task(job(n), name=f"job {n}") for n in range(9)))

    with eventprof.record() as rec:
        asyncio.run(jobs())
    return rec.trace


def make_lost():
    """An address is given out again without a free; ends without begins, and calls without ends."""
    built = Builder("nothing", "-", 0)
    thread = built.thread(1, "MainThread")
    outer, inner = (built.function(name, "m", f"/home/{name}.py", 1) for name in ("outer", "inner"))
    thread.begin(0, outer)
    for k in range(2000):
        time = 10 * k
        thread.begin(time, inner if k % 3 else outer, 7)
        thread.block(time, "MALLOC_OBJ", 64 * (k % 50), k, inner, k % 9)
        if k % 4 == 0:
            thread.block(time, "FREE_OBJ", 64 * (k % 50), -1)
        if k % 7:
            thread.end(time + k % 5)
    return built.trace()


def make_nothing():
    return Builder("nothing", "-", 0).trace()


TRACES = {
    "threads": record_threads, "tasks": record_tasks, "lost": make_lost, "nothing": make_nothing,
}  # fmt: skip


@pytest.fixture(scope="module", params=TRACES)
def recorded(request):
    return TRACES[request.param]()


@pytest.fixture(scope="module", params=[1, 32, 5000])
def both(recorded, request):
    return recorded, request.param, Decoded(recorded, request.param)


def places_of(trace):
    """The rows of calls in the order of the page, and the place of each."""
    calls = trace.calls
    order = np.lexsort((np.arange(len(calls)), values(calls, "depth"), values(calls, "thread")))
    place = np.empty(len(order) + 1, dtype=int)
    place[order] = np.arange(len(order))
    place[-1] = -1
    return order, place


def test_calls_are_those_of_the_table(both):
    trace, grain, page = both
    calls, (order, place) = trace.calls, places_of(both[0])
    start, end = values(calls, "start"), values(calls, "start") + values(calls, "duration")
    kinds = list(calls["kind"])
    tasks = list(calls["task"])

    made = page.calls

    assert page.head["calls"] == len(calls)
    assert (made[0] == (start // grain)[order]).all()
    assert (made[1] == (end // grain - start // grain)[order]).all()
    assert (made[2] == values(calls, "function")[order]).all()
    assert [page.head["kinds"][code] for code in made[3]] == [kinds[row] for row in order]
    assert (made[4] == values(calls, "flags")[order]).all()
    assert (made[5] == np.maximum(values(calls, "caller_line"), 0)[order]).all()
    names = [*page.head["tasks"], None]
    assert [names[code] for code in made[6]] == [tasks[row] for row in order]
    rows = [(thread, depth) for thread, depth, _, count in page.head["rows"] for _ in range(count)]
    assert rows == list(
        zip(values(calls, "thread")[order], values(calls, "depth")[order], strict=True)
    )
    orphans = page.links("orphans")
    depth = values(calls, "depth")
    found = [
        orphans.get(
            number, page.sought(values(calls, "thread")[row], depth[row] - 1, made[0][number])
        )
        for number, row in enumerate(order)
    ]
    assert found == place[values(calls, "parent")][order].tolist()


def test_what_is_known_of_calls_without_their_tiles(both):
    trace, _, page = both
    start, length, function, *_ = page.calls
    number = 0
    for _, _, first, count in page.head["rows"]:
        for begin in range(first, first + count, COARSE):
            part = slice(begin, min(begin + COARSE, first + count))
            longest = begin + int(length[part].argmax())
            last = part.stop - 1
            assert [int(column[number]) for column in page.coarse] == [
                start[begin], start[last] + length[last] - start[begin], function[longest] + 1,
                length[longest], length[part].sum(),
            ]  # fmt: skip
            number += 1
    calls = trace.calls
    whole = (values(calls, "flags") & (1 | 2 | 16)) == 0
    for number, median in enumerate(page.head["functions"]["p50"]):
        found = np.sort(values(calls, "duration")[whole & (values(calls, "function") == number)])
        exact = found[(len(found) + 1) // 2 - 1] if len(found) else -1
        # As p50 of Trace.functions: exact below 128 ns, else within 1 %.
        assert median == exact if exact < 128 else abs(median - exact) * 100 < exact


def test_births_and_deaths_are_those_of_the_table(both):
    trace, grain, page = both
    blocks, (_, place) = trace.allocations, places_of(both[0])
    start, end = values(blocks, "start"), values(blocks, "end")
    time, made, block, row = page.events
    born, died = made == 1, made == 0

    assert page.head["events"] == len(time) == len(start) + (end >= 0).sum()
    assert (np.diff(time) >= 0).all()
    assert (time[born] == start // grain).all()
    assert (block[born] == np.arange(len(start))).all()
    assert sorted(block[died]) == np.flatnonzero(end >= 0).tolist()
    assert (time[died] == end[block[died]] // grain).all()
    assert (page.born[0] == np.maximum(values(blocks, "size"), 0)).all()
    astray = page.links("astray")
    found = np.array(
        [
            astray.get(number, page.sought_in(row[number] - 1, time[number]) if row[number] else -1)
            for number in range(len(time))
        ],
        dtype=int,
    )
    assert (found[born] == place[values(blocks, "call")]).all()
    assert (found[died] == place[values(blocks, "freed_in")][block[died]]).all()


def test_holders_and_curves_add_up_to_the_live_bytes(both):
    trace, _, page = both
    calls, blocks, head = trace.calls, trace.allocations, page.head
    executing, line = values(blocks, "function"), values(blocks, "line")
    own_function, own_line = owners(trace)
    call = values(blocks, "call")
    areas = find_areas(trace._core.functions(), trace._own_patterns)
    own = areas == _core.AREAS.index("own")
    by_call = np.r_[values(calls, "function"), -1]
    functions, lines = (np.array(column) for column in head["places"])

    assert (page.born[1] - 1 == np.where(call >= 0, by_call[call], executing)).all()
    assert (functions[page.born[2]] == executing).all()
    assert (lines[page.born[2]] == np.maximum(line, 0)).all()
    is_own = own[executing]
    assert (functions[page.born[3]] == np.where(is_own, executing, own_function[call])).all()
    assert (lines[page.born[3]] == np.maximum(np.where(is_own, line, own_line[call]), 0)).all()
    size, end = np.maximum(values(blocks, "size"), 0), values(blocks, "end")
    length = max(trace.duration, 1)
    for number, by in enumerate(("function", "line", "own")):
        keys = page.born[number + 1] - (by == "function")
        bands = head["bands"][by]
        assert len(head["curve"][by]) == (len(bands) + 1 if len(size) else 0)
        if len(size):
            band = np.array([bands.index(key) if key in bands else len(bands) for key in keys])
            for bin_ in (0, 1, 17, 500, 1022):
                limit = -(-(bin_ + 1) * length // 1024)
                live = (values(blocks, "start") < limit) & ~((end >= 0) & (end < limit))
                expected = np.bincount(band, weights=size * live, minlength=len(bands) + 1)
                assert [curve[bin_] for curve in head["curve"][by]] == expected.tolist()
            assert [curve[1023] for curve in head["curve"][by]] == np.bincount(
                band, weights=size * (end < 0), minlength=len(bands) + 1
            ).tolist()


def owners(trace):
    """The own function and line that each call's blocks are charged to, and -1 at the end."""
    calls = trace.calls
    areas = find_areas(trace._core.functions(), trace._own_patterns)
    own = areas == _core.AREAS.index("own")
    columns = [
        values(calls, name).tolist() for name in ("function", "caller", "caller_line", "parent")
    ]
    function, line = (np.full(len(calls) + 1, -1) for _ in range(2))
    for row, (callee, caller, caller_line, parent) in enumerate(zip(*columns, strict=True)):
        if own[callee]:
            function[row] = callee
        elif own[caller]:
            function[row], line[row] = caller, caller_line
        elif parent >= 0:
            function[row], line[row] = function[parent], line[parent]
    return function, line


def test_page_data_refuses_what_is_no_trace_of_it():
    core = make_lost()._core
    codes = bytes(256)
    with pytest.raises(TypeError, match=r"a _core\.Trace is needed"):
        _core.PageData(3, b"", codes, 1, TILE, COARSE, 5)
    for own, grain, tile in ((b"", 1, 9), (bytes(9), 0, 9), (bytes(9), 1, 0)):
        with pytest.raises(ValueError, match="a byte for each function"):
            _core.PageData(core, own, codes, grain, tile, COARSE, 5)
    data = _core.PageData(core, bytes(9), codes, 1, TILE, COARSE, 5)
    with pytest.raises(ValueError):
        data.call_tile(99)
    with pytest.raises(ValueError):
        data.block_tile(0)  # no bands are set
    with pytest.raises(IndexError):
        data.place(10**9)
    with pytest.raises(ValueError, match="an int32 for each call"):
        data.set_tasks(np.zeros(3, np.int32))
    with pytest.raises(ValueError):
        data.set_bands(1, np.array([10**9]))
    with pytest.raises(ValueError, match="0, 1 or 2"):
        data.held(3)
