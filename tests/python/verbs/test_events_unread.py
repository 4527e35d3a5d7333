"""`eventprof events` with a limit or times reads no more of a file than it prints, and prints the same."""

import threading

import children
import pytest
from amounts import pairs

import eventprof
from eventprof.cli.verbs import events
from eventprof.tables.batches import unread

ROUNDS = 20_000

CHOICES = [
    ["--limit", "5"],
    ["--limit", "20000"],
    ["--limit", "700", "--event", "return,free,malloc"],
    ["--limit", "50", "--thread", "second"],
    ["--to", "{early}ns"],
    ["--from", "{early}ns", "--to", "{later}ns"],
    ["--from", "{later}ns", "--event", "span_begin,span_end,flow"],
    ["--last", "40"],
    ["--last", "40", "--thread", "second", "--event", "return"],
    ["--limit", "5", "--event", "line"],
]


def leaf(number):
    return [number]


def loose():
    with eventprof.span("loose"):
        yield


def work():
    kept = []
    for number in range(ROUNDS):
        kept.append(leaf(number))
        if number % 500 == 0:
            list(loose())
            eventprof.flow("flow", number, "begin")
            kept.clear()


def record(path, **options):
    with eventprof.record(output=path, on_full="grow", **options):
        second = threading.Thread(target=work, name="second")
        work()
        second.start()
        second.join()
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unread")
    log = record(folder / "log.epr")
    eventprof.open(log).save(folder / "archive.epr")
    record(folder / "packed.epr", archive=True)
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "kind"), pairs(["--text", "--csv", "--json"], ["log", "packed", "archive"])
)
def test_what_is_printed_is_the_same_as_where_all_is_read_first(
    recordings, kind, form, monkeypatch
):
    form = [] if form == "--text" else [form]
    path = recordings / f"{kind}.epr"
    times = eventprof.open(path).events["time"]
    early, later = int(times[len(times) // 50]), int(times[len(times) // 25])
    choices = [[word.format(early=early, later=later) for word in choice] for choice in CHOICES]
    assert unread(eventprof.open(path)) is not None

    found = [children.here("events", path, *form, *choice) for choice in choices]

    monkeypatch.setattr(events, "glance", lambda path: (None, None))
    for choice, each in zip(choices, found, strict=True):
        expected = children.here("events", path, *form, *choice)
        assert (each.returncode, each.stdout, each.stderr) == (0, expected.stdout, ""), choice
        assert ("line" in choice) != (len(each.stdout.splitlines()) > 2), choice


def late_chunk(data):
    """A place in a full chunk of a log file, of the thread that was the last.

    The last two chunks may be the last of two threads, and empty from there on.
    """
    chunks = [at for at in range(0, len(data), 4096) if data[at : at + 4] == b"EVPC"]
    assert len(chunks) >= 6
    return chunks[-3] + 1024


@pytest.mark.parametrize(
    ("kind", "place_in"), [("log", late_chunk), ("archive", lambda data: len(data) * 3 // 4)]
)
def test_what_is_not_printed_is_not_read(recordings, kind, place_in, tmp_path, monkeypatch):
    path, whole = tmp_path / "a.epr", recordings / f"{kind}.epr"
    data = bytearray(whole.read_bytes())
    place = place_in(data)
    data[place : place + 64] = b"\xff" * 64  # no event is of kind 127
    path.write_bytes(data)

    first = children.here("events", path, "--limit", "5")
    every = children.here("events", path, "--limit", "0", "--event", "flow")

    assert first.stdout == children.here("events", whole, "--limit", "5").stdout
    assert (first.returncode, first.stderr) == (0, "")
    monkeypatch.setattr(events, "glance", lambda path: (None, None))
    expected = children.here("events", path, "--limit", "0", "--event", "flow").stdout.splitlines()
    assert expected[0].startswith("(with loss: ")
    # What is missing was found on the way.
    assert every.stdout.splitlines() == [*expected[1:], expected[0]]


@pytest.mark.filterwarnings("ignore::eventprof.EventsLostWarning")
@pytest.mark.parametrize("buffer", ["1 MiB", "64 MiB"])
def test_what_lacks_events_or_has_filters_is_read_first(buffer, tmp_path):
    with eventprof.record(output=tmp_path / "ring.epr", buffer=buffer) as rec:
        work()
    assert (unread(eventprof.open(tmp_path / "ring.epr")) is None) == (rec.trace.loss.total > 0)
    assert (rec.trace.loss.total > 0) == (buffer == "1 MiB")
    printed = children.here("events", tmp_path / "ring.epr", "--limit", "5").stdout
    assert printed.startswith("(with loss: ") == (buffer == "1 MiB")

    with eventprof.record(output=tmp_path / "filtered.epr", max_depth=2):
        leaf(1)
    assert unread(eventprof.open(tmp_path / "filtered.epr")) is None
