"""The page's modules that need no browser, in node: without a node they are skipped."""

from __future__ import annotations

import json
import re
import shutil
from importlib import resources
from pathlib import Path

import children
import pytest

from eventprof._words import show_bytes, show_ns
from eventprof.viewer import flamegraph, heatmap
from eventprof.viewer.page import MODULES, code

TESTS = Path(__file__).parents[2] / "viewer"


def node():
    """A node with a test runner of its own: 18 and later."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("no node here: apt-get install nodejs")
    printed = children.run(found, "--version").stdout
    if int(printed.removeprefix("v").partition(".")[0]) < 18:
        pytest.skip(f"node {printed.strip()} has no test runner")
    return found


@pytest.mark.parametrize("modules", [MODULES, flamegraph.MODULES, heatmap.MODULES])
def test_the_modules_joined_are_one_script(tmp_path, modules):
    """No name at the top of a module is used by another one, too."""
    (tmp_path / "page.cjs").write_text(code(modules))
    children.run(node(), "--check", "page.cjs", cwd=tmp_path)


@pytest.mark.parametrize("modules", [MODULES, flamegraph.MODULES, heatmap.MODULES])
def test_a_page_has_the_code_without_comments_and_indentation(modules):
    lines = code(modules).splitlines()

    assert [line for line in lines if not line or line != line.lstrip()] == []
    assert [line for line in lines if re.fullmatch(r"//.*|/\*\*(.*\*/)?|\* .*|\*/", line)] == []
    # They would lose their indentation, too.
    assert [line for line in lines if line.count("`") % 2] == []


def copy_modules(folder):
    """Put the modules where node finds them."""
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "module"}')
    for source in resources.files("eventprof.viewer").joinpath("js").iterdir():
        if source.name.endswith(".js"):
            (folder / source.name).write_bytes(source.read_bytes())


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(path.name for path in TESTS.glob("*.test.mjs")))
def test_modules_in_node(tmp_path, name):
    copy_modules(tmp_path / "viewer")
    shutil.copy(TESTS / name, tmp_path)

    done = children.run(node(), "--test", name, cwd=tmp_path)

    assert re.search(r"\bpass [1-9]", done.stdout), done.stdout


def test_the_page_writes_times_and_sizes_as_reports_do(tmp_path):
    copy_modules(tmp_path / "viewer")
    ends = [
        digits * 10**power + step
        for digits in (1, 5, 9, 11, 125, 995, 999, 9995, 99950, 99949, 1005, 12345)
        for power in range(13)
        for step in (-1, 0, 1)
    ]
    values = [*ends, *(each * 2**power for power in range(45) for each in (1, 1000, 1023, 1.125))]
    values = [0, 0.25, 7.25, 999.4, 999.7, *values, *(-value for value in values)]
    script = """
        import { showBytes, showTime } from "./viewer/text.js";
        const values = JSON.parse(process.argv[2]);
        console.log(JSON.stringify(values.map((value) => [showTime(value), showBytes(value)])));
        """
    (tmp_path / "shown.mjs").write_text(script)

    done = children.run(node(), "shown.mjs", json.dumps(values), cwd=tmp_path)

    assert json.loads(done.stdout) == [[show_ns(value), show_bytes(value)] for value in values]
