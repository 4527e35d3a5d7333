"""How much room a recorder has, and what it says of events that found none."""

from __future__ import annotations

import builtins
import warnings

import pytest

import eventprof
from eventprof.base import quantities
from eventprof.tables.table import Table


def test_the_default_is_an_eighth_of_the_available_memory(monkeypatch):
    monkeypatch.setattr(quantities, "available_memory", lambda: 8 << 30)
    quantities.automatic_buffer.cache_clear()
    try:
        assert eventprof.record().options.limit_bytes == 1 << 30
        assert eventprof.record(buffer="auto").options.limit_bytes == 1 << 30
    finally:
        quantities.automatic_buffer.cache_clear()


def test_64_mib_at_least(monkeypatch):
    monkeypatch.setattr(quantities, "available_memory", lambda: 0)
    quantities.automatic_buffer.cache_clear()
    try:
        assert eventprof.record().options.limit_bytes == 64 << 20
    finally:
        quantities.automatic_buffer.cache_clear()


def test_available_memory_is_known_without_proc(monkeypatch):
    def refuse(*_):
        raise OSError("no such file")

    monkeypatch.setattr(builtins, "open", refuse)

    assert quantities.available_memory() > 0


def lose(rec=None):
    with rec or eventprof.record(buffer="1 MiB") as rec:
        for number in range(100_000):
            len(str(number))
    return rec


def test_lost_events_are_told_once_at_the_stop_with_the_remedy():
    with pytest.warns(eventprof.EventsLostWarning, match="larger buffer=") as caught:
        rec = lose()

    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rec.trace.loss
    assert f"{rec.trace.loss.total:,} events" in str(caught[0].message)


@pytest.mark.parametrize("how", ["stop", "decorator"])
def test_every_end_of_a_window_tells(how):
    rec = eventprof.record(buffer="1 MiB")

    def work():
        for number in range(100_000):
            len(str(number))

    with pytest.warns(eventprof.EventsLostWarning, match="found no room") as caught:
        if how == "stop":
            rec.start()
            work()
            rec.stop()
        else:
            rec(work)()
    assert [str(one.filename) for one in caught] == [__file__]


def test_a_window_of_one_thread_tells_of_what_it_lost_alone():
    with pytest.warns(eventprof.EventsLostWarning) as caught:
        rec = lose(eventprof.record(buffer="1 MiB", threads="current"))

    assert f"{rec.trace.loss.total:,} events" in str(caught[0].message)


def test_a_warning_that_is_an_error_leaves_the_trace():
    rec = eventprof.record(buffer="1 MiB")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(eventprof.EventsLostWarning):
            lose(rec)
        assert rec.state == "stopped"
        assert len(rec.trace.events) > 0


def test_nothing_lost_is_not_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with eventprof.record() as rec:
            len("text")
        assert not rec.trace.loss


def test_top_gives_the_largest_first():
    table = Table.from_columns("fruit", {"name": ["a", "b", "c"], "grams": [5, 9, 7]})

    assert table.top("grams", 2)["name"].tolist() == ["b", "c"]
    with pytest.raises(ValueError, match="is text"):
        table.top("name")
    with pytest.raises(ValueError, match="count must be 1 or more"):
        table.top("grams", 0)
    with pytest.raises(KeyError, match="did you mean"):
        table.top("gramms")
