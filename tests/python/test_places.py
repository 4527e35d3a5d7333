"""Adding to the core touches the places that doc/architecture.rst names, and no others: tried in a copy of the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "doc" / "architecture.rst").read_text(encoding="utf-8")
MESON = Path(sys.prefix) / "bin" / "meson"

#: A program that records a call with an event of the kind WAIT inside, into the log file argv[1].
PROGRAM = r"""
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "file.h"
#include "log.h"
#include "names.h"
#include "threads.h"

static uint64_t now;

static uint64_t
tick(void)
{
    return ++now;
}

int
main(int count, char **words)
{
    ep_error error;
    ep_file *file;
    ep_recorder recorder;
    if (count != 2 || ep_engine_init() != EP_OK || ep_names_init() != EP_OK) {
        return 1;
    }
    ep_clock_injected = tick;
    ep_file_options to = {
        .path = words[1], .child_path = words[1], .metadata = "{}", .metadata_bytes = 2};
    ep_recorder_options options = {
        .kinds = EP_KIND_BIT(EP_KIND_CALL) | EP_KIND_BIT(EP_KIND_RETURN) | EP_KIND_BIT(EP_KIND_WAIT),
        .limit_bytes = 4 * EP_CHUNK_BYTES,
        .on_full = EP_ON_FULL_STOP,
        .clock = EP_CLOCK_INJECTED,
    };
    ep_name_text text = {
        .qualname = {"main", 4}, .module = {"m", 1}, .file = {"m.py", 4}, .line = 7, .kind = EP_NAME_PYTHON};
    uint32_t name = ep_name_of_text(&text);
    uint32_t site = ep_site_of_names(&(ep_site){.callee = name, .line = -1});
    if (ep_file_create(&to, &file, &error) != EP_OK) {
        return 2;
    }
    ep_recorder_init(&recorder, &options);
    ep_recorder_set_file(&recorder, file, 0);
    if (ep_recorder_start(&recorder, &error) != EP_OK) {
        return 3;
    }
    ep_log *log = ep_log_mine();
    ep_log_put(log, tick(), EP_KIND_CALL, site);
    ep_log_put(log, tick(), EP_KIND_WAIT, site);
    ep_log_put(log, tick(), EP_KIND_RETURN, name);
    if (ep_recorder_stop(&recorder, &error) != EP_OK) {
        return 4;
    }
    ep_recorder_clear(&recorder);
    return 0;
}
"""


def example(heading, place):
    """Give the lines that the page's example adds to a file: what follows its name in a comment."""
    section = PAGE[PAGE.index(f"\n{heading}\n{'-' * len(heading)}\n") :]
    found = re.search(
        rf"^( +)/\* {re.escape(place)}.*\*/\n((?:\1.*\n|\n)+?)(?=\1/\*|\S)", section, re.MULTILINE
    )
    assert found is not None, place
    return (
        "".join(line.removeprefix(found[1]) for line in found[2].splitlines(keepends=True)).strip()
        + "\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(not MESON.exists(), reason="this environment has no meson")
def test_a_kind_is_one_row_and_a_column_is_a_row_and_a_function(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "eventprof", tree / "eventprof")
    shutil.copytree(ROOT / "examples", tree / "examples")
    for name in ("meson.build", "meson.options", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    # The places that the page names.
    append(
        tree / "eventprof/base/events.def", example("Adding a kind", "eventprof/base/events.def")
    )
    rows = tree / "eventprof/trace/columns.def"
    behind = re.search(r"EP_COLUMN\(CALLS, line,[^;]*?\"\"\)\n", rows.read_text())
    assert behind is not None
    rows.write_text(
        rows.read_text().replace(
            behind[0], behind[0] + example("Adding a column", "eventprof/trace/columns.def")
        )
    )
    append(
        tree / "eventprof/trace/columns_pairs.c",
        example("Adding a column", "eventprof/trace/columns_pairs.c"),
    )
    # What uses them.
    (tree / "written.c").write_text(PROGRAM)
    append(
        tree / "meson.build",
        "executable('written', 'written.c', dependencies: core_dep)\n"
        "executable('column', 'examples/c/print_column.c', dependencies: core_dep)\n",
    )

    build = tree / "build"
    options = ["-Dpython=false", "-Dtests=disabled", "-Dwerror=true", "-Doptimization=0"]
    run(MESON, "setup", build, *options, cwd=tree)
    run(MESON, "compile", "-C", build, cwd=tree)
    run(build / "written", "waiting.epr", cwd=tmp_path)

    def column(table, name):
        return run(build / "column", "waiting.epr", table, name, cwd=tmp_path).split()

    assert column("events", "event") == ["call", "wait", "return"]
    (start,), (duration,), (end,) = (column("calls", name) for name in ("start", "duration", "end"))
    assert int(duration) > 0
    assert int(end) == int(start) + int(duration)


def append(path, text):
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def run(*command, cwd):
    path = f"{MESON.parent}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=1200,
        env={"PATH": path, "HOME": str(cwd)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
