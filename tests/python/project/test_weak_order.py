"""What the compiler makes for a processor that may change the order of loads, as arm64 does.

Tests on x86-64, and arm64 programs in an emulator on it, never see another order.
"""

from __future__ import annotations

import re
import shutil

import children
import pytest
from dev import shell

pytestmark = pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")

CORE = shell.ROOT / "eventprof"


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """The instructions of eventprof/record/log.c for arm64, by function."""
    folder = tmp_path_factory.mktemp("arm64")
    # The headers are those of this machine. Without its own macro they take the processor for i386.
    for name, text in (("gnu/stubs-32.h", ""), ("bits/wordsize.h", "#define __WORDSIZE 64\n")):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    multiarch = children.run("clang", "-print-multiarch", status=None)  # not every clang knows it
    command = [
        "clang", "--target=aarch64-linux-gnu", "-O2", "-std=c11", "-D_GNU_SOURCE",
        "-D__regparm__(n)=", '-DEP_VERSION="0"', f"-isystem{folder}", f"-isystem/usr/include/{multiarch.stdout.strip()}",
        *(f"-iquote{CORE / name}" for name in ("base", "names", "store")),
        "-S", "-o", str(folder / "log.s"), str(CORE / "record" / "log.c"),
    ]  # fmt: skip
    done = children.run(*command, status=None)
    if "fatal error" in done.stderr:
        pytest.skip(f"no headers that clang takes for arm64: {done.stderr.splitlines()[-3:]}")
    assert done.returncode == 0, done.stderr
    text = (folder / "log.s").read_text()
    return dict(re.findall(r"^(ep_\w+):(.*?)\.cfi_endproc", text, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("function", ["ep_cursor_settle", "ep_cursor_copy"])
def test_the_rest_of_a_record_is_read_before_its_first_word_is_read_again(functions, function):
    """Else word 1 may be that of another record, which was written there meanwhile."""
    ordered = re.findall(r"\b(ldar|ldapr|dmb\s+ishld|dmb\s+ish)\b", functions[function])
    again = ["ldar", "ldar"]

    assert any(
        before.startswith("dmb") and ordered[i + 1 : i + 3] == again
        for i, before in enumerate(ordered)
    ), f"{function}: no barrier between the loads of a record and those that check it: {ordered}"
