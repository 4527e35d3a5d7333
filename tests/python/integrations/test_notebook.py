"""%eventprof in a notebook, with a real kernel."""

from __future__ import annotations

import children
import numpy
import pytest
from running import RUN, environment

import eventprof

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
    nbclient.NotebookClient(book, timeout=900, kernel_name="python3", allow_errors=True).execute()
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
    assert [line.split("B  ")[-1].strip() for line in lines[2:-1]] == [
        "1  kept = []",
        "2  for i in range(50):",
        "2-3  for i in range(50):  (outside of its calls)",
        "3      kept.append(f(12))",
        "4  len(kept)",
        "(the whole cell)",
    ]
    assert lines[5].split()[0] == "100"
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
    assert len(data(outputs[4][0]).splitlines()) == 6
    assert "(1 more row: --limit)" in data(outputs[4][0])
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
        text = "".join(output.get("text", "") for output in outputs[cell])
        assert "usage: %eventprof [options] statement" in text


def test_without_ipython_the_error_names_the_extra():
    done = children.program(
        "import sys; sys.modules['IPython'] = None; import eventprof; "
        "eventprof.load_ipython_extension(None)",
        status=1,
    )

    assert "pip install 'eventprof[notebook]'" in done.stderr


@pytest.mark.thorough
def test_a_kernel_that_is_recorded_whole_answers(tmp_path):
    client = pytest.importorskip("jupyter_client")
    manager = client.KernelManager()
    manager._kernel_spec = client.kernelspec.KernelSpec(
        argv=[*RUN, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
    )
    manager.start_kernel(cwd=tmp_path, env=environment())
    kernel = manager.client()
    try:
        kernel.start_channels()
        kernel.wait_for_ready(timeout=900)
        assert (
            kernel.execute_interactive("assert __name__ == '__main__'", timeout=900)["content"][
                "status"
            ]
            == "ok"
        )
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)


# ---- The figures, in an IPython of this process ---------------------------------------------------


@pytest.fixture
def shown(monkeypatch):
    """Runs a cell in an IPython of this process; gives the summary."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from eventprof.plugins import ipython

    summaries = []
    monkeypatch.setattr(ipython, "_display", summaries.append)
    shell = InteractiveShell(user_ns={}, config=Config({"HistoryManager": {"enabled": False}}))
    ipython.load_ipython_extension(shell)

    def run(cell, options="", **names):
        shell.user_ns.update(names)
        shell.run_cell_magic("eventprof", options, cell)
        return summaries.pop()

    return run


CELL = """\
b = a @ a
total = 0
for i in range(3000):
    total += i * i
    if i == 5:
        str(i)
big = [i * 3 for i in range(2000)]
def f(n):
    c = a @ a
    return len(c)
x = f(1)
(lambda: a @ a)()
total += (len(b) +
    i)
"""


@pytest.mark.parametrize("options", ["", "--no-memory"])
def test_the_times_of_the_rows_add_up_to_the_cells(shown, options):
    summary = shown(CELL, options, a=numpy.ones((300, 300)))

    trace, rows = summary._trace, {row.place: row for row in summary._rows}
    statements = [str(file).startswith("<ipython-") for file in trace.calls["file"]]
    statements &= trace.calls["name"] == "<module>"
    assert statements.sum() == 8
    assert sum(row.time for row in rows.values()) == trace.calls["duration"][statements].sum()
    # What calls nothing has its time, too: on its line, or on that of the statement or function.
    assert {(1, 1), (2, 2), (3, 6), (7, 7), (8, 10), (11, 11), (12, 12), (13, 14)} <= set(rows)
    assert rows[1, 1].time == trace.calls["self"][statements][0]
    assert rows[3, 6].time > rows[2, 2].time > 0
    assert rows[3, 6].text == "for i in range(3000):  (outside of its calls)"
    assert rows[8, 10].text == "def f(n):  (outside of its calls)"


def test_what_is_not_shown_is_in_a_row_of_its_own(shown):
    whole, short = (shown("x = 1\ny = 2\nz = str(x)", options) for options in ("", "--limit 1"))

    assert [line.split("B  ")[-1].strip() for line in repr(whole).splitlines()[2:-1]] == [
        "1  x = 1", "2  y = 2", "3  z = str(x)", "(the whole cell)",
    ]  # fmt: skip
    assert "(2 more rows: --limit)" in repr(short) and "(the whole cell)" in repr(short)
    assert "(2 more rows: --limit)" in short._repr_html_()


def test_statements_run_as_in_a_cell_of_ipython(shown):
    """One by one, with the flags of __future__ for those that follow; the last expression is shown."""
    summary = shown(
        "from __future__ import annotations\nx: no_such_name = 1\ndef f(y: missing): ...\nf(x)"
    )

    assert [row.place for row in summary._rows][:2] == [(1, 1), (2, 2)]
    assert not shown("pass")._trace.loss


def test_lost_statements_are_not_told_apart(shown, monkeypatch):
    from eventprof.plugins import ipython

    monkeypatch.setattr(ipython, "record", lambda **how: eventprof.record(buffer="1 MiB", **how))
    with pytest.warns(eventprof.EventsLostWarning):
        summary = shown("x = 1\nfor i in range(200_000):\n    repr(i)\ny = 2", "--no-memory")

    assert summary._trace.loss
    assert (1, 4) in {row.place for row in summary._rows}
    assert sum(row.time for row in summary._rows) <= summary._trace.duration


def test_options_are_read_from_a_line():
    found = Options("-o mine --no-memory --limit 3 print('-o x')")

    assert (found.name, found.memory, found.limit) == ("mine", False, 3)
    assert found.statement == "print('-o x')"
