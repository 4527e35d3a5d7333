"""Every call of the system and of the C library that the extension makes fails once: nothing crashes, what
cannot be done says so, what is not recorded is counted, and the interpreter is as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import raw
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
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", HERE / "fail_calls.c", "-o", library, "-ldl"],
        check=True,
    )
    return library


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", ["memory", "ring", "file", "save"])
def test_every_call_may_fail(failing, scenario, tmp_path):
    environment = os.environ | {
        "LD_PRELOAD": str(failing),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(
            [os.path.dirname(raw.__file__), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }

    run = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            HERE / "failing.py",
            scenario,
            tmp_path,
            str(amount(3, 1)),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    failures = int(run.stdout.split(": ")[1].split()[0])
    assert failures > 20, run.stdout
