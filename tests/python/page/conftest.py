"""The page in a headless Chromium. Without one, what needs it is skipped; EVENTPROF_CHROMIUM names one."""

from __future__ import annotations

import sys

import browser as chromium
import numpy as np
import pytest
from page_program import program

import eventprof
from eventprof.viewer import data as page_data
from eventprof.viewer import page_calls, planes, write


@pytest.fixture(scope="module")
def browser():
    if chromium.find() is None:
        pytest.skip("no chromium here: apt-get install chromium, or EVENTPROF_CHROMIUM=PATH")
    started = chromium.Browser()
    yield started
    started.close()


@pytest.fixture(scope="module")
def trace():
    with eventprof.record() as rec:
        program()
    return rec.trace


@pytest.fixture(scope="module")
def path(trace, tmp_path_factory):
    # Small tiles, so that there are many.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "TILE", 4096)
        for module in (page_calls, page_data):
            patch.setattr(module, "COARSE", 64)
        path = tmp_path_factory.mktemp("page") / "page.html"
        write(trace, path, title="a program")
    return path


@pytest.fixture(scope="module")
def large(trace, tmp_path_factory):
    """Return the path of the page, written as a large one is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "TILE", 4096)
        patch.setattr(sys.modules["eventprof.viewer.page"], "WIDE", 0)
        path = tmp_path_factory.mktemp("page") / "large.html"
        write(trace, path, title="a program")
    return path


@pytest.fixture
def shown(browser, path):
    """The page, as when it is opened; nothing is on its console at the end."""
    browser.size(1400, 900)
    browser.open(path)
    yield browser
    assert browser.console == []


@pytest.fixture(scope="module")
def order(trace):
    """The row of `trace.calls` that each call of the page is."""
    calls = trace.calls
    return np.lexsort((np.arange(len(calls)), calls["depth"], calls["thread"]))
