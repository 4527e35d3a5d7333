"""Writing and opening the page: what needs no browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import children
import pytest

import eventprof
from eventprof import _core, cli
from eventprof.answers.own import find_areas
from eventprof.viewer import data as page_data
from eventprof.viewer import page


def sections_of(raw):
    return dict(re.findall(r'<template id="data-(\w+)">([^<]*)</template>', raw.decode()))


def test_the_page_is_one_file_and_the_same_each_time(trace):
    raw = page(trace)
    assert raw == page(trace)
    assert not re.search(rb"""(src|href)\s*=\s*["']?\s*(http|//|\./)""", raw)
    assert raw.count(b"<script>") == 1
    found = sections_of(raw)
    head = json.loads(gzip.decompress(base64.b64decode(found["head"])))
    assert head["calls"] == len(trace.calls)
    assert set(found) == {"head", "coarse", "orphans", "astray", "tenures", "steps", "c0", "m0"}


def narrow(text):
    """The bytes of a section's text in a large page."""
    spare, *units = (ord(char) - 0x4000 for char in text)
    count = len(units) // 16
    words = [unit | (units[15 * count + n % count] >> n // count & 1) << 15
             for n, unit in enumerate(units[: 15 * count])]  # fmt: skip
    raw = b"".join(word.to_bytes(2, "little") for word in words)
    return raw[: len(raw) - spare]


def test_a_large_page_is_in_utf_16_with_the_same_data(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["eventprof.viewer.page"], "WIDE", 0)
    trace.show(tmp_path / "page.html", title="\ud800 <b>")
    small, large = page(trace, title="\ud800 <b>"), (tmp_path / "page.html").read_text("utf-16")
    assert small.startswith(b"<!doctype html>")
    assert large.startswith("<!doctype html>")
    assert "<meta charset" not in large
    assert "<title>\\ud800 &lt;b&gt; - eventprof</title>" in large
    expected = sections_of(small)
    found = sections_of(large.encode())
    assert found.keys() == expected.keys()
    assert all(narrow(found[name]) == base64.b64decode(expected[name]) for name in found)
    assert len(large.split('id="data-c0">')[1]) * 2 < len(small.split(b'id="data-c0">')[1])


def test_medians_are_those_of_the_table_of_functions(trace):
    head = json.loads(gzip.decompress(page_data.sections(trace)[0]))
    expected = trace.functions._column("p50").values()
    assert head["functions"]["p50"] == expected.tolist()
    assert (expected >= 0).sum() > 5


def test_view_writes_a_page(trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trace.save("a.epr")
    assert cli.main(["view", "a.epr", "-o", "page.html"]) == 0
    assert capsys.readouterr().out.startswith(f"page.html: {len(trace.events):,} events, ")
    assert set(sections_of((tmp_path / "page.html").read_bytes())) >= {"head", "c0"}
    assert cli.main(["view", "a.epr", "-o", "page.html"]) == 1
    assert (
        capsys.readouterr().err
        == "eventprof view: page.html: exists already; -f replaces it, -o names another\n"
    )
    before = (tmp_path / "page.html").stat().st_size
    assert (
        cli.main(
            ["view", "a.epr", "-f", "-o", "page.html", "--time-grain", "1us", "--title", "a <b>"]
        )
        == 0
    )
    assert (tmp_path / "page.html").stat().st_size < before
    assert "<title>a &lt;b&gt; - eventprof</title>" in (tmp_path / "page.html").read_text()
    with pytest.raises(SystemExit):
        cli.main(["view", "a.epr", "--time-grain", "0ns"])
    assert "a time from 1ns to 1000ms" in capsys.readouterr().err
    assert cli.main(["view", "a.epr", "-o", "nosuch/page.html"]) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.epr", "page.html"]


def test_the_text_of_files_that_may_hold_secrets_is_in_no_page(tmp_path):
    secret = "-".join("abc")  # which the text of this file does not have

    def page_of(name):
        path = tmp_path / name
        path.write_text(f"def work():\n    return len(str('{secret}').split('x'))\n")
        scope = {}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        with eventprof.record() as recorder:
            scope["work"]()
        found = sections_of(page(recorder.trace, source=True))
        return b"".join(gzip.decompress(base64.b64decode(each)) for each in found.values())

    assert secret.encode() in page_of("plain.py")
    for name in ("api_key.py", ".env", ".env.local", "Secrets.py", "server.pem"):
        assert secret.encode() not in page_of(name)


def test_view_without_a_name_opens_the_browser(trace, tmp_path, monkeypatch, capsys):
    import tempfile
    import webbrowser

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = trace.show()
    assert opened == [f"file://{shown}"]
    trace.save(tmp_path / "a.epr")
    assert cli.main(["view", str(tmp_path / "a.epr")]) == 0
    assert len(opened) == 2


def test_run_opens_the_page_when_the_program_has_ended(tmp_path):
    (tmp_path / "main.py").write_text(
        "import atexit\ndef work(): return [bytes(99) for _ in range(9)]\nwork()\natexit.register(print, 'last')\n"
    )
    (tmp_path / "opened.sh").write_text('#!/bin/sh\necho "$1" > opened\n')
    (tmp_path / "opened.sh").chmod(0o755)
    made = children.eventprof(
        "run", "--view", "-o", "a.epr", "main.py",
        cwd=tmp_path, BROWSER=str(tmp_path / "opened.sh"), TMPDIR=str(tmp_path),
    )  # fmt: skip
    assert made.stdout == "last\n"
    page = re.search(r"^eventprof: the page is (.*)$", made.stderr, re.MULTILINE)
    assert page, made.stderr
    assert set(sections_of(Path(page[1]).read_bytes())) >= {"head", "c0"}
    assert (tmp_path / "opened").read_text() == f"{Path(page[1]).as_uri()}\n"


def test_show_refuses_what_it_cannot_do(trace, tmp_path):
    with pytest.raises(ValueError, match="grain must be 1 ns or more, not 0"):
        trace.show(tmp_path / "x.html", grain=0)
    trace.show(tmp_path / "x.html")
    with pytest.raises(FileExistsError, match="force=True replaces it"):
        trace.show(tmp_path / "x.html")
    assert trace.show(tmp_path / "x.html", force=True) == str(tmp_path / "x.html")


def test_a_folder_that_is_not_there_is_told_by_the_name_that_was_given(trace, tmp_path):
    path = tmp_path / "absent" / "page.html"
    with pytest.raises(FileNotFoundError) as raised:
        trace.show(path)
    assert raised.value.filename == str(path)


def test_areas_tell_whose_code_it_is():
    areas = defaultdict(list)
    for kind, file in (
        ("python", "/home/me/x.py"), ("python", "/usr/lib/python3.12/json/__init__.py"),
        ("python", "/v/lib/python3.12/site-packages/pandas/a.py"), ("python", "/usr/lib/python3/dist-packages/a.py"),
        ("python", "<frozen importlib._bootstrap>"), ("c", None), ("type", None), ("user", None), ("gc", None),
        ("python", "<string>"), ("python", None),
    ):  # fmt: skip
        module = "__main__" if file == "<string>" else "m"
        (area,) = find_areas([("f", module, file, None, kind)])
        areas[_core.AREAS[area]].append((kind, file))
    assert {area: len(found) for area, found in areas.items()} == {
        "own": 2, "stdlib": 2, "installed": 2, "native": 3, "span": 1, "gc": 1,
    }  # fmt: skip
