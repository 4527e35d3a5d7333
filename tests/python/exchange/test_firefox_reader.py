"""Firefox Profiler's own code reads our files: profiler-cli, which Mozilla makes from the viewer.

It is on the PATH, or EVENTPROF_PROFILER_CLI names its file profiler-cli.js.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import shutil
import signal
from pathlib import Path

import children
import pytest
from exported import TRACES, names_of, sums_of
from exporting import export

pytestmark = pytest.mark.slow


@pytest.fixture
def profiler(tmp_path):
    """Ask profiler-cli; its sessions end with the test."""
    script = os.environ.get("EVENTPROF_PROFILER_CLI") or shutil.which("profiler-cli")
    node = shutil.which("node")
    if script is None or node is None:
        pytest.skip("no profiler-cli here")
    # The path of a socket is in it, and must be short.
    session = os.path.relpath(tmp_path / "s")

    def ask(*words, attempts=20):
        done = children.run(
            node, Path(script).resolve(), *words, status=None, PROFILER_CLI_SESSION_DIR=session
        )
        late = re.search(r"may still be running as pid (\d+)", done.stderr)
        if late and attempts:  # it gives its daemon half a second, which a busy machine may not
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(late[1]), signal.SIGKILL)
            return ask(*words, attempts=attempts - 1)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout

    yield ask
    ask("stop", "--all")


def functions_of(profiler, threads):
    """Own and total ms of each function."""
    own, total = collections.Counter(), collections.Counter()
    for thread in threads:
        words = ("--thread", thread["threadHandle"], "--limit", "0", "--include-idle", "--json")
        for function in profiler("thread", "functions", *words)["functions"]:
            own[function["name"]] += function["selfSamples"]
            total[function["name"]] += function["totalSamples"]
    return own, total


@pytest.mark.parametrize("name", TRACES)
def test_all_times_of_all_threads(profiler, tmp_path, name):
    trace = TRACES[name]()
    profiler("load", str(export(trace, tmp_path, "firefox")))

    if name == "empty":
        assert profiler("profile", "meta", "--json")["preprocessedProfileVersion"] >= 70
        return
    (process,) = profiler("profile", "info", "--all", "--json")["processes"]

    threads = process["threads"]
    assert len(threads) == len(trace.threads)
    # A question each; and each of the many has a call of one ns.
    own, total = functions_of(profiler, threads[:3])
    expected = sums_of(trace)
    if name == "many_threads":
        assert own == {"m.work": pytest.approx(3e-6)}
        return
    if name == "quoting":  # what looks like arguments or templates is not shown
        assert sum(own.values()) == pytest.approx(sum(expected.own.values()) / 1e6)
        return
    assert own.keys() | total.keys() <= set(names_of(trace))
    # Its times are doubles of ms.
    near = 1e-6 if name != "late" else 1e-2
    for found, sums in ((own, expected.own), (total, expected.total)):
        assert +found == {
            each: pytest.approx(ns / 1e6, abs=near) for each, ns in sums.items() if ns
        }


def test_memory_and_markers(profiler, tmp_path):
    trace = TRACES["nasty"]()
    profiler("load", str(export(trace, tmp_path, "firefox")))

    counters = profiler("counter", "list", "--json")["counters"]
    markers = profiler("thread", "markers", "--json")["byType"]

    found = {counter["label"]: counter["rangeSampleCount"] for counter in counters}
    live = {f"Live: {d}": len(trace.memory_of(d)) for d in ("raw", "mem", "obj")}
    expected = {"Resident set": len(trace.resident), **{k: n for k, n in live.items() if n}}
    assert found == expected
    assert {"a mark; of mine", "a span"} <= {marker["markerName"] for marker in markers}
