"""The bar of verbs that take long: on a terminal only, and only after a while."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console

from eventprof.cli import progress


def drawn(monkeypatch, seconds, after, *steps):
    monkeypatch.setattr(progress, "AFTER", after)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    with progress.Bar("reading x.epr", console) as bar:
        for done in steps:
            bar(*done)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (
            time.monotonic() < deadline - 30 + seconds
            or (after == 0 and "reading" not in file.getvalue())
        ):
            time.sleep(0.01)
    return file.getvalue()


def test_what_is_soon_done_has_no_bar(monkeypatch):
    assert drawn(monkeypatch, 0, 1000) == ""


def test_what_takes_long_has_one_and_it_goes_away(monkeypatch):
    text = drawn(monkeypatch, 0.3, 0)

    assert "reading x.epr" in text
    assert text.rstrip().endswith("\x1b[2K")


def test_it_says_how_far_it_is_where_that_is_known(monkeypatch):
    text = drawn(monkeypatch, 0.5, 0, (25, 100))

    assert "25 %" in text


def test_without_a_terminal_there_is_no_thread_and_no_rich(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    before = threading.active_count()

    with progress.Bar("reading"):
        assert threading.active_count() == before


@pytest.mark.skipif(sys.platform == "win32", reason="no pty here")
def test_a_verb_on_a_terminal_shows_it(tmp_path):
    import os
    import pty

    code = (
        "import sys, time, eventprof\n"
        "from eventprof.cli import main, progress\n"
        "progress.AFTER = 0\n"
        "opened = eventprof.open\n"
        "def slow(path):\n"
        "    time.sleep(1)\n"
        "    return opened(path)\n"
        "with eventprof.record(output='x.epr'): pass\n"
        "eventprof.open = slow\n"
        "sys.exit(main(['info', 'x.epr']))\n"
    )
    try:
        ours, theirs = pty.openpty()
    except OSError:
        pytest.skip("this machine gives no pseudo-terminal (a bare chroot has no /dev/pts)")
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as process:  # fmt: skip
        os.close(theirs)
        out = process.stdout.read()
        output = b""
        try:
            while part := os.read(ours, 4096):
                output += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)

    assert process.returncode == 0
    assert b"reading x.epr" in output
    assert b"reading" not in out
