"""The verbs, given names that a terminal or a spreadsheet would obey, damaged files and odd arguments."""

from __future__ import annotations

import csv
import io
import json
import random
import warnings

import children
import pytest
from amounts import amount

import eventprof
from eventprof.cli import rows

#: What makes a terminal do something, a spreadsheet compute something, or an encoder fail.
NAMES = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\nb", "=cmd|calc", "+1+1", "-1+1", "@SUM(1)", "\t=1+1",
    "\r=1+1", "\uff1d1+1", "\ud800lone", "\u202eevil", "\x9b31mC1",
)  # fmt: skip


def named(name):
    def function():
        return [bytearray(12347)]

    code = function.__code__
    function.__code__ = code.replace(
        co_name=name, co_qualname=name, co_filename=f"/tmp/{name}/x.py"
    )
    return function


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile")
    with eventprof.record(output=path / "names.epr") as rec:
        for name in NAMES:
            named(name)()
            eventprof.mark(name)
    rec.trace.save(path / "names-archive.epr")
    with eventprof.record(output=path / "small.epr"):
        [bytearray(100) for _ in range(20)]
        sorted([3, 1, 2])
    eventprof.open(path / "small.epr").save(path / "small-archive.epr")
    return path


@pytest.fixture
def verb(folder, monkeypatch):
    """Run a verb in this process; give its status, what it printed and what it said."""
    monkeypatch.chdir(folder)

    def run(*arguments, encoding="utf-8"):
        if arguments[0] == "run":
            # In a process of its own, which it makes look as the program expects it.
            done = children.eventprof(*arguments, status=None)
        else:
            done = children.here(*arguments, encoding=encoding)
        return done.returncode, done.stdout, done.stderr

    return run


def is_harmless(text):
    return all(c.isprintable() or c == "\n" for c in text)


# ---- Names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    "arguments",
    [("events", "--csv"), ("stats", "--csv", "--limit", "0"), ("events",), ("report", "--lines"),
     ("stats",), ("report",), ("info",), ("verify", "--all")],
    ids=" ".join,
)  # fmt: skip
def test_no_verb_prints_what_a_terminal_would_obey(verb, arguments, encoding):
    status, out, err = verb(arguments[0], "names.epr", *arguments[1:], encoding=encoding)

    assert status == 0, err
    assert is_harmless(out)
    assert is_harmless(err)


@pytest.mark.parametrize("arguments", [("events",), ("stats", "--limit", "0")], ids=" ".join)
def test_no_cell_of_csv_is_a_formula_and_numbers_stay_numbers(verb, arguments):
    _, out, _ = verb(arguments[0], "names.epr", *arguments[1:], "--csv")

    table = list(csv.DictReader(io.StringIO(out)))
    cells = [cell for row in table for cell in row.values()]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r", "\uff1d"))]
    assert {"'=cmd|calc", "'+1+1", "'-1+1", "'@SUM(1)", "\\t=1+1", "\\ud800lone"} <= set(cells)
    trace = eventprof.open("names.epr")
    if arguments[0] == "events":
        assert [int(row["time"]) for row in table] == trace.events["time"].tolist()
    else:
        assert sum(int(row["net_self"]) for row in table) == trace.functions["net_self"].sum()


@pytest.mark.parametrize(
    ("text", "cell"),
    [("plain", "plain"), ("-1", "'-1"), ("=1", "'=1"), ("a=1", "a=1"), ("", ""), ("<-", "<-")],
)
def test_cells(text, cell):
    assert rows.safe_cell(text, io.StringIO()) == cell


def test_names_of_files_are_escaped_in_messages(verb, folder):
    name = "\x1b]0;title\x07.epr"
    (folder / name).write_text("no recording")

    for arguments in (
        ("verify", name), ("report", name), ("verify", "\x1b[5mnone"), ("stats", "\x1b[5mnone"),
        ("merge", name, "-o", "out.epr"), ("diff", name, "small.epr"), ("\x1b[5m",),
        ("stats", "small.epr", "--\x1b[5m"), ("save", "small.epr", "-f", "-o", "\x1b[5msaved.epr"),
        ("run", "\x1b[5mnone.py"), ("stats", "small.epr", "--sort", "\x1b[5m"),
    ):  # fmt: skip
        _, out, err = verb(*arguments)
        assert is_harmless(out + err), arguments
        assert "x1b" in out + err, arguments


def test_a_long_name_takes_no_long_time():
    from eventprof.show.drawing import shorten

    name = "x" * 3_000_000  # quadratic, this would take days

    assert shorten(name, 40, ".", "…") == "x" * 13 + "…" + "x" * 26
    assert shorten(f"module.{name}", 40, ".", "…").endswith("…" + "x" * 26)
    assert shorten("界" * 3_000_000, 41, ".", "…").startswith("界" * 6 + "…")


# ---- Arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("stats", "small.epr"), ("stats", "small.epr", "--csv"), ("events", "small.epr"),
     ("report", "small.epr", "--lines")],
    ids=" ".join,
)  # fmt: skip
def test_a_pattern_that_matches_nothing_is_an_error(verb, arguments):
    status, out, err = verb(*arguments, "--function", "nothing*")

    assert (status, out) == (1, "")
    assert "no function of this recording matches 'nothing*'" in err


def test_a_function_that_was_meant_is_named(verb):
    _, _, err = verb("stats", "small.epr", "--function", "sortd")

    assert "did you mean 'sorted'?" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("events", "small.epr", "--from", "1.5"), "its unit is missing; there are ns, us"),
        (("events", "small.epr", "--to", "10"), "its unit is missing; there are ns, us"),
        (("run", "--min-duration", "10", "x.py"), "its unit is missing; there are ns, us"),
        (("run", "--buffer", "1XB", "-c", "0"), "there is no unit 'XB', but B, kB, MB"),
    ],
)  # fmt: skip
def test_a_number_without_its_unit_is_refused(verb, arguments, message):
    status, _, err = verb(*arguments)

    assert status == 2
    assert message in err


# ---- Damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1000, 3600])  # inside of the header, and after it
@pytest.mark.parametrize(
    "arguments",
    [("report",), ("stats",), ("events",), ("diff", "small.epr"), ("info",)],
    ids=" ".join,
)
def test_a_stub_is_damage_and_a_status(verb, folder, arguments, kept):
    (folder / "stub.epr").write_bytes((folder / "small.epr").read_bytes()[:kept])

    status, out, err = verb(*arguments, "stub.epr")

    assert status == 1
    if kept == 1000:
        assert "stub.epr: cut off at byte 1000, inside of its header: nothing is left" in err
        return
    assert f"the file ends at byte {kept}" in out + err
    assert arguments[0] == "info" or "DAMAGE" in err


def use(path):
    """Ask a file for nearly everything that there is."""
    trace = eventprof.open(path)
    str(trace), repr(trace), trace.file, trace.metadata, trace.pairing
    trace.events.to_numpy(), trace.functions.to_numpy(), trace.calls["duration"]
    trace.allocations.to_numpy(), trace.threads.to_numpy(), trace.lines.to_numpy()
    trace.verify(all=True), trace.peak(), trace.leaks(), trace.at(trace.duration)
    trace.between(0, trace.duration)
    merged = eventprof.merge([trace, trace])
    repr(merged), merged.calls["duration"].min(initial=0)


def assert_said(folder, data, what):
    (folder / "flipped.epr").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            use(folder / "flipped.epr")
        except (eventprof.FormatError, eventprof.UnsupportedError):
            pass
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["small.epr", "small-archive.epr"])
def test_no_flip_in_the_head_of_a_file_is_anything_but_a_format_error(folder, name):
    whole = (folder / name).read_bytes()

    for offset in range(0, 512, amount(23, 3)):
        damaged = bytearray(whole)
        damaged[offset] ^= 0x80 if offset % 2 else 0xFF
        assert_said(folder, damaged, f"{name}, byte {offset}")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["small.epr", "small-archive.epr"])
def test_no_flips_anywhere_are_anything_but_a_format_error(folder, name):
    whole = (folder / name).read_bytes()
    used = [number for number, byte in enumerate(whole) if byte]
    rng = random.Random(name)

    for number in range(amount(12, 60)):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 3, 20, 100])):
            damaged[rng.choice(used)] ^= rng.randrange(1, 256)
        cut = rng.randrange(len(whole)) if number % 4 == 0 else len(whole)
        assert_said(folder, damaged[:cut], f"{name}, {number}")


def test_the_words_of_a_damaged_header_are_no_text(folder):
    whole = bytearray((folder / "small.epr").read_bytes())
    offset = whole.index(b"monitoring" if b"monitoring" in whole[:512] else b"profile")
    whole[offset] = 0xFF
    (folder / "flipped.epr").write_bytes(whole)

    trace = eventprof.open(folder / "flipped.epr")

    assert len(trace.events) > 0
    assert any("words of its header are damaged" in line for line in trace.file["missing"])


def test_json_of_a_hostile_name_is_json(verb):
    _, out, _ = verb("stats", "names.epr", "--json", "--limit", "0")

    assert {row["name"] for row in json.loads(out)["rows"]} >= set(NAMES)
