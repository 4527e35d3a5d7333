"""Every call of the system and of the C library that the extension makes fails once: nothing crashes, what
cannot be done says so, what is not recorded is counted, and the interpreter is as it was."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import children
import pytest
from amounts import amount

pytestmark = pytest.mark.version

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """The library that makes calls fail, to be preloaded."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None or os.environ.get("LD_PRELOAD"):
        pytest.skip("needs Linux, a C compiler, and no other preloaded library")
    library = tmp_path_factory.mktemp("failing") / "fail_calls.so"
    children.run(compiler, "-shared", "-fPIC", "-O1", HERE / "fail_calls.c", "-o", library, "-ldl")
    return library


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", ["memory", "ring", "file", "save"])
def test_every_call_may_fail(failing, scenario, tmp_path):
    run = children.run(
        sys.executable, "-W", "ignore", HERE / "failing.py", scenario, tmp_path, amount(3, 1),
        LD_PRELOAD=str(failing), OPENBLAS_NUM_THREADS="1", PYTHONPATH=children.path(),
    )  # fmt: skip

    failures = int(run.stdout.split(": ")[1].split()[0])
    assert failures > 20, run.stdout
