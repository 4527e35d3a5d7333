"""doc/events.rst says what this interpreter has."""

from __future__ import annotations

import events_page
import pytest
import raw

from eventprof import _core

pytestmark = pytest.mark.usefixtures("restored")

HOW = "run tools/pages/events_page.py with each CPython"


def test_the_page_says_what_is_recorded_here():
    known = events_page.read()
    if events_page.VERSION not in events_page.versions_of(known):
        pytest.skip(f"the page does not know CPython {events_page.VERSION}: {HOW}")

    assert events_page.of_version(known, events_page.VERSION) == events_page.facts(), HOW


def test_the_page_is_as_it_would_be_written():
    known = events_page.read()

    assert events_page.render(known) == events_page.PAGE.read_text(), HOW


def test_every_event_has_a_meaning():
    meanings = {}
    for _, _, word, *_, meaning in _core.kind_table():
        meanings.setdefault(word, []).append(meaning)

    assert all(first and not any(others) for first, *others in meanings.values()), meanings


def test_every_source_says_what_its_hook_is():
    assert all(hook for _, _, hook in _core.source_table())


def test_what_there_is_comes_from_there():
    """The program's events of a kind, where its source says that it gives them."""

    def work():
        return [sorted([i, 0]) for i in range(3)]

    facts = events_page.facts()
    for word in ("call", "return", "c_call", "c_return"):
        for source in facts[word]:
            if source not in raw.BACKENDS:
                continue  # another test's: not all of them record calls of all sorts
            with raw.recorder(raw.bits(word.upper()), backend=source) as rec:
                work()
            assert {row.word for row in raw.rows(rec)} == {word}, source
    for word in ("malloc", "free"):
        assert "alloc" in facts[word]
        with raw.recorder(raw.MEMORY) as rec:
            work()
        assert word in {row.word for row in raw.rows(rec)}
