"""What eventprof's own code allocates beside the program's events and leaves behind: such a block has no allocation in
the trace, so its free has no place there either, whoever frees it.

An object that stands for OpenTelemetry's library is what runs in such a section: eventprof.label() asks it for its span
while the thread is muted."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import types

import pytest

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

NAMES_IN_CACHE = 4096


class Context:
    is_valid = False


class Library(types.ModuleType):
    """Does in eventprof's section what a test wants."""

    def __init__(self, work):
        super().__init__("opentelemetry.trace")
        self.work = work

    def get_current_span(self):
        self.work()
        return self

    def get_span_context(self):
        return Context


@pytest.fixture
def in_section(monkeypatch):
    """Calls a function where eventprof's own code runs."""
    module = Library(lambda: None)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)

    def call(work):
        module.work = work
        with eventprof.label(section=1):
            module.work = lambda: None

    with eventprof.record():
        call(lambda: None)  # it imports, and its names are made
    return call


def know_addresses():
    """The free of an address that was not seen could be of an older block, so it is no error: now all were seen."""
    blocks = [bytes(size) for size in range(1, 480, 16) for _ in range(300)]
    blocks += [bytearray(size) for size in range(1, 480, 16) for _ in range(300)]
    lists = [[None] * size for size in range(60) for _ in range(100)]
    del blocks, lists


def texts(count):
    return [f"{number:05d}" for number in range(count)]


def assert_content(trace):
    found = trace.verify(all=True)
    assert found.ok, found
    assert not found.excused, found.excused


def test_the_program_frees_what_a_section_left(backend, in_section):
    kept = []
    with eventprof.record(backend=backend) as rec:
        know_addresses()
        in_section(lambda: kept.extend(texts(2000)))
        kept.clear()
        know_addresses()

    assert_content(rec.trace)
    assert rec.trace.pairing["frees_lost"] == 0


def test_blocks_alone(in_section):
    """Nothing of the mechanism is kept out then: the table is used for these blocks alone."""
    kept = []
    with eventprof.record(calls=False) as rec:
        know_addresses()
        in_section(lambda: kept.extend(texts(2000)))
        kept.clear()
        know_addresses()

    assert_content(rec.trace)


def test_another_thread_frees_it(backend, in_section):
    kept, full = [], threading.Event()

    def free():
        know_addresses()
        full.wait()
        kept.clear()
        know_addresses()

    thread = threading.Thread(target=free)
    with eventprof.record(backend=backend) as rec:
        know_addresses()
        thread.start()
        in_section(lambda: kept.extend(texts(2000)))
        full.set()
        thread.join()

    assert_content(rec.trace)


def test_another_thread_frees_it_before_the_section_ends(backend, in_section):
    kept, full, freed = [], threading.Event(), threading.Event()

    def free():
        know_addresses()
        full.wait()
        kept.clear()
        know_addresses()
        freed.set()

    def work():
        kept.extend(texts(2000))
        full.set()
        freed.wait()

    thread = threading.Thread(target=free)
    with eventprof.record(backend=backend) as rec:
        know_addresses()
        thread.start()
        in_section(work)
        thread.join()

    assert_content(rec.trace)


def test_the_program_makes_it_larger(backend, in_section):
    """From then on it is the program's."""
    array, row = bytearray(), []

    def work():
        array.extend(b"x" * 100)
        row.extend(range(20))

    with eventprof.record(backend=backend) as rec:
        know_addresses()
        in_section(work)
        array.extend(b"x" * 300)
        row.extend(range(100))
        array.clear()
        row.clear()
        know_addresses()

    assert_content(rec.trace)


def test_a_section_makes_larger_what_a_section_left(backend, in_section):
    array = bytearray()
    with eventprof.record(backend=backend) as rec:
        know_addresses()
        for _ in range(4):
            in_section(lambda: array.extend(b"x" * 60))
        array.clear()
        know_addresses()

    assert_content(rec.trace)


def test_names_that_the_interpreters_cache_holds(backend, in_section):
    """From 3.13 on it holds the name of each lookup, until one of the program's takes its place."""
    holder = Context()

    def look_up(names):
        for name in names:
            getattr(holder, name, None)

    with eventprof.record(backend=backend, on_full="grow") as rec:
        know_addresses()
        in_section(lambda: look_up(texts(200)))
        look_up([f"{number:030d}" for number in range(4 * NAMES_IN_CACHE)])
        know_addresses()

    assert_content(rec.trace)


def test_a_block_of_the_programs_at_the_same_address(backend, in_section):
    """The free of the section's block is not seen, because the recorder rests: that of the next block there is."""
    kept = []
    rec = eventprof.record(backend=backend)
    with rec:
        know_addresses()
        in_section(lambda: kept.extend(texts(2000)))
    kept.clear()
    with rec:
        own = texts(2000)
        know_addresses()
        del own
        know_addresses()

    assert_content(rec.trace)
    assert rec.trace.pairing["frees_lost"] == 0


def test_the_next_window_and_another_recorder(backend, in_section):
    kept, second = [], eventprof.record(calls=False)
    first = eventprof.record(backend=backend)
    with first:
        know_addresses()
        in_section(lambda: kept.extend(texts(200)))
        second.start()
        know_addresses()
        kept.pop()
        snapshot = first.snapshot()
        kept.pop()
    know_addresses()
    kept.pop()
    second.stop()
    with first:
        kept.clear()
        know_addresses()

    for trace in (snapshot, first.trace, second.trace):
        assert_content(trace)


def test_many_sections_leave_no_room_taken(in_section):
    """As many blocks as the table has places, and again, are freed one after the other."""
    with eventprof.record(calls=False, buffer="4 MiB", on_full="overwrite") as rec:
        for _ in range(30):
            kept = []
            in_section(lambda kept=kept: kept.extend(texts(20_000)))
            del kept
        know_addresses()
        kept = []
        in_section(lambda: kept.extend(texts(2000)))
        kept.clear()
        know_addresses()

    assert_content(rec.trace)


# ---- All public calls ----------------------------------------------------------------------------


def step(number):
    eventprof.mark(f"mark {number % 40}")
    eventprof.counter(f"counter {number % 40}", number)
    eventprof.flow(f"flow {number % 40}", number, "begin")
    with (
        eventprof.span(f"span {number % 40}"),
        eventprof.label(number=number, text="x" * number) as label,
    ):
        label.add(more=number)
        eventprof.flow(f"flow {number % 40}", number, "step")
    eventprof.flow(f"flow {number % 40}", number, "end")


@eventprof.span("decorated")
def decorated(number):
    return [number] * 10


@eventprof.request("/generated", kind="generator")
def generated():
    yield from range(3)


@eventprof.label(kind="coroutine")
async def coroutine(number):
    await asyncio.sleep(0)
    with eventprof.span("in a coroutine"):
        return decorated(number)


async def answer(scope, receive, send):
    await asyncio.gather(*map(coroutine, range(3)))
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    if scope["path"] == "/fails":
        raise ValueError(scope["path"])


async def ask(application, paths):
    async def send(message):
        await asyncio.sleep(0)

    for path in paths:
        with contextlib.suppress(ValueError):
            await application({"type": "http", "method": "GET", "path": path}, None, send)


def wsgi(environ, start_response):
    start_response("200 OK", [])
    return (part for part in [b"a", b"b"])


def everything(flight):
    for number in range(60):
        step(number)
        decorated(number)
        list(generated())
        with eventprof.request("/job", method="task", number=number) as job:
            job.add(status=number)
    with flight.watch("slow", longer_than="3600 s"):
        decorated(1)
    application = eventprof.ASGIMiddleware(answer, flight=flight, longer_than="3600 s")
    asyncio.run(ask(application, ["/", "/fails"] * 10))
    body = eventprof.WSGIMiddleware(wsgi)(
        {"PATH_INFO": "/", "REQUEST_METHOD": "GET"}, lambda *_: None
    )
    list(body)
    body.close()


def test_all_public_calls(backend, in_section, tmp_path, monkeypatch):
    holder = Context()
    kept = []

    def library():
        for name in texts(30):
            getattr(holder, name, None)
        kept.append(texts(5))
        del kept[:-20]

    monkeypatch.setattr(sys.modules["opentelemetry.trace"], "work", library)
    flight = eventprof.flight_recorder(folder=tmp_path, buffer="4 MiB", backend=backend)
    rec = eventprof.record(backend=backend, on_full="grow")
    traces = []
    with flight, rec:
        know_addresses()
        everything(flight)
        traces.append(rec.snapshot())
        with eventprof.record(memory=False, backend=rec.backend) as calls, eventprof.count():
            everything(flight)
        traces.append(calls.trace)
    kept.clear()
    everything(flight)
    with rec:
        threads = [threading.Thread(target=everything, args=(flight,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept.clear()
        for name in [f"{number:030d}" for number in range(4 * NAMES_IN_CACHE)]:
            getattr(holder, name, None)
        know_addresses()
    traces.append(rec.trace)

    for trace in traces:
        assert_content(trace)
