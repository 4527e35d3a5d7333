"""%eventprof in a notebook, with a real kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

from eventprof.plugins.ipython import Options  # noqa: E402


def execute(*cells):
    """Run cells in a kernel; give the outputs of each."""
    book = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "x", "language": "python"}}
    )
    book.cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext eventprof", *cells)]
    nbclient.NotebookClient(book, timeout=200, kernel_name="python3", allow_errors=True).execute()
    nbformat.validate(book)
    return [cell.outputs for cell in book.cells[1:]]


@pytest.fixture(scope="module")
def outputs():
    return execute(
        "def f(n):\n    return [str(i) for i in range(n)]",
        "%%eventprof -o found\nkept = []\nfor i in range(50):\n    kept.append(f(12))\nlen(kept)",
        "import threading\nlen(kept), len(found.threads), found.loss.total, int(sum(found.functions['name'] == 'f'))",
        "%eventprof --page f(3)",
        "%%eventprof --all --no-memory --limit 1\nx = f(1)\ny = f(2)",
        "len(_eventprof.threads) > 1, len(_eventprof.allocations), (x, y)",
        "%%eventprof\nf(5)\nraise ValueError('mine')",
        "%eventprof --wrong f(1)",
        "%eventprof",
    )


def data(output):
    return output["data"]["text/plain"]


@pytest.mark.thorough
def test_the_own_cell_is_on_top(outputs):
    shown, value = outputs[1]

    lines = data(shown).splitlines()
    assert lines[0].startswith("eventprof: ") and lines[0].endswith("nothing lost")
    assert lines[1].split() == ["calls", "time", "allocated", "kept", "line", "of", "this", "cell"]
    rows = {line.rsplit("  ", 1)[-1]: line.split() for line in lines[2:-1]}
    assert [line.split("  ")[-1].strip() for line in lines[2:-1]] == [
        "for i in range(50):", "kept.append(f(12))", "len(kept)",
    ]  # fmt: skip
    assert rows["kept.append(f(12))"][0] == "100"
    assert lines[-1] == "the trace is in found"
    assert data(value) == "50"
    made = shown["data"]["text/html"]
    assert "&lt;module&gt;: " in made and "IPKernelApp" not in made


def test_names_stay_and_other_threads_are_left_out(outputs):
    assert data(outputs[2][0]) == "(50, 1, 0, 1)"


def test_the_summary_needs_no_script_and_the_page_is_in_a_frame(outputs):
    html = outputs[1][0]["data"]["text/html"]
    assert "<table>" in html and "<svg" in html and "<script" not in html and "iframe" not in html

    page = outputs[3][0]["data"]["text/html"]
    assert '<iframe sandbox="allow-scripts"' in page and "data-head" in page
    assert data(outputs[3][1]) == "['0', '1', '2']"


def test_options(outputs):
    assert len(data(outputs[4][0]).splitlines()) == 4
    assert data(outputs[5][0]) == "(True, 0, (['0'], ['0', '1']))"


def test_a_cell_that_raises_shows_what_it_did_and_the_error(outputs):
    shown, error = outputs[6]

    assert "f(5)" in data(shown)
    assert (error["output_type"], error["ename"], error["evalue"]) == (
        "error",
        "ValueError",
        "mine",
    )


def test_wrong_options_say_what_there_is(outputs):
    for cell in (7, 8):
        said = "".join(output.get("text", "") for output in outputs[cell])
        assert "usage: %eventprof [options] statement" in said


def test_without_ipython_the_error_names_the_extra():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['IPython'] = None; import eventprof; "
         "eventprof.load_ipython_extension(None)"],
        capture_output=True, text=True,
    )  # fmt: skip

    assert "pip install 'eventprof[notebook]'" in done.stderr


def test_options_are_read_from_a_line():
    found = Options("-o mine --no-memory --limit 3 print('-o x')")

    assert (found.name, found.memory, found.limit) == ("mine", False, 3)
    assert found.statement == "print('-o x')"
