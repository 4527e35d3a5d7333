"""Traces to export, their contents, and readers of the exported files that use no code of eventprof."""

from __future__ import annotations

import collections
import gzip
import json
import pathlib
import struct
import sys
import tempfile
import threading
import types
import warnings
from time import sleep

import numpy as np

import eventprof
from eventprof.export._view import full_name
from eventprof.importing._build import C_CALL, Builder

ODD_NAMES = (
    'quote"d', "back\\slash", "semi;colon", "com,ma", "new\nline", "\x1b[31mred", "=1+1", "@cmd",
    "sur\udc80rogate", "né Ünï", "tab\there", "(1) number", "sp ace 12", "<b>&amp;</b>", "{}[]%s%d",
)  # fmt: skip


def odd_functions():
    """Python functions with every name that a format may stumble over."""

    def plain():
        return 1

    return [
        types.FunctionType(plain.__code__.replace(co_name=name, co_qualname=name), {}, name)
        for name in ODD_NAMES
    ]


def raising(depth):
    if depth == 0:
        raise LookupError
    raising(depth - 1)


def nasty_work():
    def numbers():
        yield bytearray(12347)
        yield bytearray(234)

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    for function in odd_functions():
        function()
    fib(9)
    list(numbers())
    generator = numbers()
    next(generator)
    generator.close()
    try:
        raising(4)
    except LookupError:
        pass
    kept = sorted([3, 1, 2], key=lambda x: -x)
    return kept, [bytearray(777) for _ in range(5)]


def nasty():
    """Threads, recursion, generators, unwinding, odd names, blocks that live on, marks."""
    kept = []
    with eventprof.record(gc=True) as rec:
        kept.append(nasty_work())
        thread = threading.Thread(target=nasty_work, name='odd "name";\n\x1b[0m')
        thread.start()
        thread.join()
        with eventprof.span("a span"):
            eventprof.mark("a mark; of mine")
            eventprof.counter("a counter", 1.5)
        eventprof.flow("a flow", 7, "begin")
        eventprof.flow("a flow", 7, "end")
    return rec.trace


def of_two_threads(work, **options):
    """A trace of two threads that do the same."""
    with eventprof.record(**options) as rec:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return rec.trace


def waiting(waits=False):
    """Two threads that both want the interpreter's lock; waits: with the events of waits."""

    def busy():
        for _ in range(60):
            sum(len(str(k)) for k in range(200))

    return of_two_threads(busy, waits=waits)


def waits():
    """A thread that sleeps while it has a lock, and one that wants it."""
    lock = threading.Lock()

    def turns():
        for _ in range(5):
            with lock:
                sleep(0.002)

    return of_two_threads(turns, waits=True)


def open_ends():
    """Calls that are open when the window begins, and others when it ends."""
    recorder = eventprof.record(memory=False)

    def begins():
        recorder.start()

    def ends():
        len("x")
        recorder.stop()

    def between():
        begins()
        len("y")
        ends()

    between()
    return recorder.trace


def with_loss():
    """A ring that was overwritten, in the middle of a recursion."""

    def down(n):
        for _ in range(200):  # lines fill the ring, and are no calls
            pass
            pass
        if n:
            down(n - 1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that events were lost
        with eventprof.record(memory=False, lines=True, buffer="1 MiB") as rec:
            for _ in range(30):
                down(20)
    assert rec.trace.loss
    return rec.trace


def with_hole():
    """A log file with a damaged chunk: begins and ends of calls are missing in the middle."""
    import log_children

    def down(n):
        for _ in range(50):  # lines fill the chunks
            pass
            pass
        if n:
            down(n - 1)

    def outer():
        for _ in range(10):
            down(12)

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "damaged.epr"
        thread = threading.Thread(target=outer)  # whose first chunks are small
        with eventprof.record(memory=False, lines=True, output=path):
            thread.start()
            thread.join()
        data = path.read_bytes()
        sealed = struct.pack("<II", 0x43505645, 2)
        chunks = [
            offset for offset in log_children.slots_of(data) if data[offset : offset + 8] == sealed
        ]
        path.write_bytes(log_children.put(data, chunks[2] + 56, "Q", 1 << 62))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a part is missing
            trace = eventprof.open(path)
            assert len(trace.calls) and len(trace.events)
    assert trace._core.file_facts()["missing_count"]
    return trace


def made(fill, **known):
    builder = Builder("test", "test", 0)
    fill(builder)
    for name, value in known.items():
        setattr(builder, name, value)
    return builder.trace()


def zero_length():
    """Calls without any duration, at every edge of those around them."""

    def fill(builder):
        thread = builder.thread(0, "only", 71)
        outer, inner, c = (builder.function(n, "m", "f.py", 3) for n in ("outer", "inner", "c"))
        for time in (0, 10):
            thread.begin(time, outer, 5)
            thread.begin(time, inner, 6)
            thread.end(time)
            thread.begin(time + 3, inner, 7)
            thread.begin(time + 3, c, 8, C_CALL)
            thread.end(time + 3)
            thread.end(time + 10)
            thread.begin(time + 10, inner, 9)
            thread.end(time + 10, raised=True)
            thread.end(time + 10)
        thread.begin(20, c, -1, C_CALL)
        thread.end(20)

    return made(fill)


def late():
    """Times beyond what a double holds."""
    base = (1 << 53) + 1

    def fill(builder):
        thread = builder.thread(0, "late")
        function = builder.function("late", "m", "f.py", 1)
        inner = builder.function("inner", "m", "f.py", 2)
        thread.begin(1, function)
        for k in range(5):
            thread.begin(base + 2 * k, inner, 4)
            thread.end(base + 2 * k + 1)
        thread.end(base + 101)

    return made(fill)


#: Each character that a format, a terminal or a spreadsheet may take for its own.
QUOTING = [
    *map(chr, range(0x21)), *(chr(c) for c in range(0x21, 0x7F) if not chr(c).isalnum()),
    "\x7f", "\x85", "\x9b31m", "\xa0", "\xad", "\u2028", "\u2029", "\u202e", "\ufeff", "\udcff",
    "\U0001f600", "]]>", "<!--", "</script>", "${x}", "$(id)", "%n", "\r\n",
]  # fmt: skip


def quoting():
    """Such characters alone, at the begin and at the end of names, of everything that has a name."""

    def fill(builder):
        thread = builder.thread(0, "".join(QUOTING), 71)
        for number, c in enumerate(QUOTING):
            for name in (c, f"{c}x 1", f"x {c}"):
                thread.begin(10 * number, builder.function(name, None, f"{c}f{c}.py", 3), 4)
            thread.mark(10 * number + 2, f"mark {c}")
            thread.counter(10 * number + 2, f"counter {c}", number)
            thread.flow(10 * number + 2, f"flow {c}", number + 1, 0)
            thread.flow(10 * number + 3, f"flow {c}", number + 1, 2)
            for later in (5, 7, 8):
                thread.end(10 * number + later)

    return made(fill)


def empty():
    return made(lambda builder: None)


def many_threads():
    def fill(builder):
        function = builder.function("work", "m", "f.py", 1)
        for k in range(3000):
            thread = builder.thread(k, f"worker {k}", k + 1)
            thread.begin(2 * k, function)
            thread.end(2 * k + 1)

    return made(fill)


def deep():
    """Deeper than what Perfetto's importer keeps."""

    def fill(builder):
        thread = builder.thread(0, "deep")
        function = builder.function("down", "m", "f.py", 1)
        for k in range(600):
            thread.begin(k, function, 2)
        for k in range(600):
            thread.end(1000 + k)

    return made(fill)


TRACES = {
    made.__name__: made
    for made in (
        nasty, open_ends, with_loss, with_hole, zero_length, late, quoting, empty, many_threads, deep,
        *([waits] if sys.platform == "linux" else []),
    )
}  # fmt: skip

# ---- What is in a trace --------------------------------------------------------------------------


def text(name):
    """A name as every format has it: UTF-8 cannot hold surrogates."""
    return name.encode("utf-8", "backslashreplace").decode()


def names_of(trace, spell=text):
    table = trace.functions
    return [spell(full_name(n, m)) for n, m in zip(table["name"], table["module"], strict=True)]


class Sums:
    """Calls, own and total time by name: of recursive calls the outermost. Times in ns."""

    def __init__(self):
        self.calls = collections.Counter()
        self.own = collections.Counter()
        self.total = collections.Counter()

    def add(self, thread_steps):
        """Take (time, name or None for an end) of a thread, in order."""
        stack, last = [], None
        for time, name in thread_steps:
            assert last is None or time >= last
            if stack:
                self.own[stack[-1]] += time - last
                for each in set(stack):
                    self.total[each] += time - last
            last = time
            if name is None:
                stack.pop()
            else:
                self.calls[name] += 1
                stack.append(name)
        assert not stack

    def of_texts_without_nul(self):
        """Names as a format has them that cannot hold a NUL."""
        for sums in (self.calls, self.own, self.total):
            for name in [name for name in sums if "\0" in name]:
                sums[name.replace("\0", "\\x00")] = sums.pop(name)
        return self

    def __eq__(self, other):
        return (self.calls, +self.own, +self.total) == (other.calls, +other.own, +other.total)

    def __repr__(self):
        return f"{self.calls}\n{+self.own}\n{+self.total}"


def sums_of(trace, depth_max=None, spell=text):
    """The sums of a trace's table of calls."""
    calls, names = trace.calls, names_of(trace, spell)
    starts, durations = calls["start"].tolist(), calls["duration"].tolist()
    parents = np.ma.filled(calls["parent"], -1).tolist()
    functions = calls["function"].tolist()
    depths = [0] * len(parents)
    sums = Sums()
    for thread in range(len(trace.threads)):
        steps, stack = [], []
        for row in np.flatnonzero(calls["thread"] == thread).tolist():
            depths[row] = depths[parents[row]] + 1 if parents[row] >= 0 else 0
            if depth_max is not None and depths[row] >= depth_max:
                continue
            while stack and stack[-1] != parents[row]:
                ended = stack.pop()
                steps.append((starts[ended] + durations[ended], None))
            steps.append((starts[row], names[functions[row]]))
            stack.append(row)
        while stack:
            ended = stack.pop()
            steps.append((starts[ended] + durations[ended], None))
        sums.add(steps)
    return sums


# ---- Readers -------------------------------------------------------------------------------------


def read_json(path):
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def chrome_ns(text):
    whole, _, rest = str(text).partition(".")
    return int(whole) * 1000 + int(rest.ljust(3, "0") if rest else 0)


def sums_of_chrome(path):
    """By nesting in the file's order, which has parents first."""
    whole = json.loads(path.read_bytes(), parse_float=str)
    by_thread = collections.defaultdict(list)
    for event in whole["traceEvents"]:
        if event["ph"] == "X":
            start = chrome_ns(event["ts"])
            by_thread[event["tid"]].append(
                (start, start + chrome_ns(event["dur"]), event["name"], event["args"].get("depth"))
            )
    sums = Sums()
    for events in by_thread.values():
        steps, ends = [], []
        for start, end, name, depth in events:
            while ends and (len(ends) >= depth if depth is not None else ends[-1] <= start):
                steps.append((ends.pop(), None))
            steps.append((start, name))
            ends.append(end)
        steps.extend((end, None) for end in reversed(ends))
        sums.add(steps)
    return sums


def sums_of_speedscope(path):
    whole = read_json(path)
    frames = [frame["name"] for frame in whole["shared"]["frames"]]
    sums = Sums()
    for profile in whole["profiles"]:
        if profile["type"] != "evented":
            continue
        steps, open_frames = [], []
        for event in profile["events"]:
            if event["type"] == "O":
                open_frames.append(event["frame"])
                steps.append((event["at"], frames[event["frame"]]))
            else:
                assert open_frames.pop() == event["frame"]
                steps.append((event["at"], None))
            assert profile["startValue"] <= event["at"] <= profile["endValue"]
        sums.add(steps)
    return sums


def sums_of_firefox(path):
    profile = json.loads(path.read_bytes(), parse_float=str)
    shared = profile["shared"]
    stacks = shared["stackTable"]
    func_of, func_names = shared["frameTable"]["func"], shared["funcTable"]["name"]
    known = {None: []}

    # Parents come before their children.
    for stack, (back, frame) in enumerate(
        zip(stacks["prefixOffset"], stacks["frame"], strict=True)
    ):
        assert 0 <= back <= stack
        known[stack] = [*(known[stack - back] if back else ()), func_of[frame]]

    sums = Sums()
    for thread in profile["threads"]:
        samples = thread["samples"]
        steps, before = [], []
        for stack, time in zip(samples["stack"], samples["time"], strict=True):
            now = known[stack]
            ns = round_ms(time)
            if len(now) < len(before):
                assert now == before[:-1]
                steps.append((ns, None))
            else:
                assert now[:-1] == before
                steps.append((ns, shared["stringArray"][func_names[now[-1]]]))
            before = now
        sums.add(steps)
    return sums


def round_ms(text):
    mantissa, _, exponent = str(text).partition("e")
    assert exponent in ("-3", "-6", "")
    return int(mantissa) if exponent == "-6" else chrome_ns(mantissa)


class PerfettoReader:
    """What Perfetto's importer makes of slices and counters, from its own protobuf classes."""

    def __init__(self, path):
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        self.packets = trace.packet
        self.sums = Sums()
        self.counters = collections.defaultdict(list)
        self.names = {}
        self.lines = collections.Counter()
        self.instants = []
        self.flows = collections.defaultdict(list)
        self.stacks = collections.defaultdict(collections.Counter)
        self._read()

    def _read(self):
        states, steps = {}, collections.defaultdict(list)
        for packet in self.packets:
            assert packet.trusted_packet_sequence_id > 0
            if packet.sequence_flags & 1:
                states[packet.trusted_packet_sequence_id] = {"names": {}, "sites": {}, "clock": {}}
            state = states.get(packet.trusted_packet_sequence_id)
            if packet.HasField("trace_packet_defaults"):
                state["defaults"] = packet.trace_packet_defaults
            for name in packet.interned_data.event_names:
                assert name.iid > 0 and name.iid not in state["names"]
                state["names"][name.iid] = name.name
            for site in packet.interned_data.source_locations:
                assert site.iid > 0 and site.iid not in state["sites"]
                state["sites"][site.iid] = site
            if packet.HasField("clock_snapshot"):
                clocks = {clock.clock_id: clock for clock in packet.clock_snapshot.clocks}
                assert {1, 3} <= clocks.keys()
                if 64 in clocks:
                    assert clocks[64].is_incremental
                    state["now"] = clocks[64].timestamp
                self.start = clocks[3].timestamp
            if packet.HasField("track_descriptor"):
                described = packet.track_descriptor
                assert described.uuid not in self.names
                self.names[described.uuid] = described.name
            for known in ("frames", "callstacks", "function_names", "source_paths",
                          "stack_sample_counter_descriptors", "stack_sample_task_contexts"):  # fmt: skip
                for entry in getattr(packet.interned_data, known):
                    assert entry.iid > 0 and (known, entry.iid) not in state
                    state[known, entry.iid] = entry
            if packet.HasField("stack_sample"):
                self._stack(packet.stack_sample, self._time(packet, state), state)
            if packet.HasField("track_event"):
                self._event(packet, state, steps)
        for thread_steps in steps.values():
            self.sums.add(thread_steps)

    def _stack(self, sample, time, state):
        assert state["defaults"].stack_sample_defaults.source == "eventprof"
        assert state["stack_sample_task_contexts", sample.task_context_iid].pid > 0
        measure = state["stack_sample_counter_descriptors", sample.primary_descriptor_iid]
        assert measure.unit == sample.UNIT_BYTES
        frames = []
        for number in state["callstacks", sample.callstack_iid].frame_ids:
            frame = state["frames", number]
            assert state["source_paths", frame.source_path_iid].iid
            frames.append(state["function_names", frame.function_name_id].str.decode())
        self.stacks[measure.name, time][tuple(frames)] += sample.primary_weight

    def _time(self, packet, state):
        if packet.timestamp_clock_id:
            return packet.timestamp - self.start
        assert state["defaults"].timestamp_clock_id == 64
        state["now"] += packet.timestamp
        return state["now"] - self.start

    def _event(self, packet, state, steps):
        event = packet.track_event
        time = self._time(packet, state)
        track = event.track_uuid or state["defaults"].track_event_defaults.track_uuid
        assert track in self.names
        if event.type == event.TYPE_SLICE_BEGIN:
            steps[track].append((time, state["names"][event.name_iid]))
            if event.source_location_iid:
                site = state["sites"][event.source_location_iid]
                self.lines[site.file_name, site.line_number] += 1
        elif event.type == event.TYPE_SLICE_END:
            steps[track].append((time, None))
        elif event.type == event.TYPE_COUNTER:
            value = (
                event.counter_value
                if event.HasField("counter_value")
                else event.double_counter_value
            )
            self.counters[self.names[track]].append((time, value))
        else:
            self.instants.append((time, event.name, self.names[track]))
            for number in event.flow_ids:
                self.flows[number].append("on")
            for number in event.terminating_flow_ids:
                self.flows[number].append("end")
