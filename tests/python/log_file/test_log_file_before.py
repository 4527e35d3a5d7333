"""Files that were kept open with the answers that they had; of other versions, none opens."""

from __future__ import annotations

import collections
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import pytest
from archiving import open_or_skip

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


DATA = Path(__file__).parent.parent.parent / "data" / "log"


EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))


def file_of_before(name, folder):
    """Unpack a file that was kept."""
    import gzip

    path = folder / name.removesuffix(".gz")
    with gzip.open(DATA / name) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return path


def test_every_file_of_before_has_its_answers():
    assert {path.name for path in DATA.glob("*.gz")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_before_give_the_answers_that_their_own_version_gave(name, tmp_path):
    expected = EXPECTED[name]

    trace = open_or_skip(file_of_before(name, tmp_path))

    assert len(trace.events) == expected["events"]
    assert len(trace.calls) == expected["calls"]
    assert len(trace.allocations) == expected["allocations"]
    assert len(trace.functions) == expected["functions"]
    assert len(trace.threads) == expected["threads"]
    assert {k: v for k, v in trace.loss.by_kind.items() if v} == expected["lost"]
    assert trace.file["unfinished"] == expected["unfinished"]
    assert not trace.file["missing"]
    assert collections.Counter(trace.events["event"].tolist()) == expected["words"]
    assert {
        f"{row.module}.{row.name}": row.calls
        for row in trace.functions
        if row.name in ("tick", "work")
    } == expected["by_name"]
    assert int(trace.allocations["size"].sum()) == expected["bytes"]
    assert trace.peak().bytes == expected["peak"]
    assert trace.duration == expected["duration_ns"]
    assert trace.verify().ok


@pytest.mark.parametrize(
    ("name", "offset", "version", "message"),
    [
        ("2.2-finished.epr.gz", 8, (1, 4), "version 1.4 of the log format; this eventprof reads 2.2 and 3.0"),
        ("2.2-finished.epr.gz", 8, (2, 1), "version 2.1 of the log format; this eventprof reads 2.2 and 3.0"),
        ("3.0-packed.epr.gz", 8, (4, 0), "reads 2.2 and 3.0: use a newer one"),
        ("archive-1.4.epr.gz", 12, (1, 3), "it has format 1.3, and this is eventprof"),
    ],
)  # fmt: skip
def test_files_of_other_versions_are_refused_by_name(name, offset, version, message, tmp_path):
    path = file_of_before(name, tmp_path)
    data = bytearray(path.read_bytes())
    data[offset : offset + 4] = struct.pack("<HH", *version)
    if name.startswith("archive"):
        data[60:64] = struct.pack("<I", zlib.crc32(data[:60]))
    path.write_bytes(data)

    with pytest.raises(
        (eventprof.FormatError, eventprof.UnsupportedError), match=re.escape(message)
    ):
        eventprof.open(path)


LATE = """
    import os, signal, eventprof
    def both():
        pass
    first = eventprof.record(output="first.epr", memory=False)
    first.start()
    second = eventprof.record(output="second.epr", memory=False)
    second.start()
    both()
    if {stops}:
        second.stop()
        second = eventprof.record(output="third.epr", memory=False)
        second.start()
    print("recorded", flush=True)
    input()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("stops", [False, True])
def test_a_second_file_says_that_it_is_written_at_its_stop(tmp_path, stops):
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LATE.format(stops=stops))],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout.readline() == "recorded\n"
    late = tmp_path / ("third.epr" if stops else "second.epr")

    trace = eventprof.open(late)
    assert len(trace.events) == 0
    assert trace.file["live"] and trace.file["awaits_stop"] and not trace.file["missing"]
    assert "the events are in memory" in " ".join(str(trace).split())
    assert "Nothing lost" not in str(trace)

    program.communicate("\n", timeout=900)
    assert program.returncode == -signal.SIGKILL
    trace = eventprof.open(late)
    assert len(trace.events) == 0
    assert not trace.file["live"]
    assert trace.file["awaits_stop"]
    assert "was not stopped" in trace.file["missing"][0]
    assert str(trace).startswith("DAMAGE: 1 part")
    assert "what both recorded is in the other file" in " ".join(str(trace).split())
    assert "both" in set(eventprof.open(tmp_path / "first.epr").functions["name"])
    assert eventprof.open(tmp_path / "first.epr").file["awaits_stop"] is False
    if stops:
        stopped = eventprof.open(tmp_path / "second.epr")
        assert "both" in set(stopped.functions["name"])
        assert stopped.file["awaits_stop"] is False and not stopped.file["missing"]
