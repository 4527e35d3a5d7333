"""Each tool beside a recorder, in every order of start and stop, with each backend: neighbours.py says how."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import children
import neighbours
import pytest
import raw

pytestmark = pytest.mark.version


@pytest.fixture(scope="module")
def results(request):
    """The verdicts, for the page in doc/ if --neighbours asks for it."""
    found = []
    yield found
    directory = request.config.getoption("--neighbours")
    if directory:
        python = platform.python_version()
        out = {"python": python, "versions": neighbours.versions(), "cells": found}
        path = Path(directory, f"neighbours-{python}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(out))


@pytest.mark.thorough
@pytest.mark.parametrize("tool", neighbours.TOOLS)
def test_each_order_of_start_and_stop(tool, results, tmp_path):
    if not neighbours.is_here(tool):
        pytest.skip(f"{tool} is not here")
    if tool == "cProfile" and not raw.HAS_GIL and sys.version_info < (3, 14):
        pytest.skip("of threads that run at once it loses calls, or hangs, without a recorder, too")
    debug = {"PYTHONMALLOC": "debug"} if "PYTHONMALLOC=debug" in tool else {}
    process = children.run(
        sys.executable, neighbours.__file__, tool,
        **debug, PYTHONPATH=children.path(), TMPDIR=str(tmp_path),
    )  # fmt: skip

    cells = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]

    assert len(cells) == len(neighbours.ORDERS) * len(raw.BACKENDS)
    wrong = []
    for cell in cells:
        key = cell["tool"], cell["order"], cell["backend"]
        word, problems = neighbours.verdict(cell)
        results.append([*key, word])
        wrong += [f"{key}: {problem}"[:2000] for problem in problems]
        if word != neighbours.expected(*key):
            wrong.append(f"{key}: {word}, and it ought to be: {neighbours.expected(*key)}")
    assert not wrong, "\n".join(wrong)
