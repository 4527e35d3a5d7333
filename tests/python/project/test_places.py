"""Adding a kind, a column, a source or a verb touches the places that doc/architecture.rst names, and no others.

The page's examples are added to a copy of the tree, which is built and used.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import children
import pytest

import eventprof

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "doc" / "architecture.rst").read_text(encoding="utf-8")
MESON = Path(sys.prefix) / "bin" / "meson"

#: A program that records a call with an event of the kind PAUSE inside, into the log file argv[1].
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
        .kinds = EP_KIND_BIT(EP_KIND_CALL) | EP_KIND_BIT(EP_KIND_RETURN) | EP_KIND_BIT(EP_KIND_PAUSE),
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
    ep_recorder_set_file(&recorder, file);
    if (ep_recorder_start(&recorder, &error) != EP_OK) {
        return 3;
    }
    ep_log *log = ep_log_mine();
    ep_log_put(log, tick(), EP_KIND_CALL, site);
    ep_log_put(log, tick(), EP_KIND_PAUSE, site);
    ep_log_put(log, tick(), EP_KIND_RETURN, name);
    if (ep_recorder_stop(&recorder, &error) != EP_OK) {
        return 4;
    }
    ep_recorder_clear(&recorder);
    return 0;
}
"""


def example(heading, place, comment="/*"):
    """Return the lines that the page's example adds to a file: what follows its name in a comment.

    Of a diff, the lines that are added.
    """
    section = PAGE[PAGE.index(f"\n{heading}\n{'-' * len(heading)}\n") :]
    mark = re.escape(comment)
    found = re.search(
        rf"^( +){mark} {re.escape(place)}.*\n((?:\1.*\n|\n)+?)(?=\1{mark} [a-z]+/|\1{mark} meson|\S)",
        section,
        re.MULTILINE,
    )
    assert found is not None, place
    lines = [line.removeprefix(found[1]) for line in found[2].splitlines(keepends=True)]
    added = [line[1:] for line in lines if line.startswith("+")]
    return "".join(added) if added else "".join(lines).strip() + "\n"


def insert_after(path, pattern, text):
    before = path.read_text(encoding="utf-8")
    found = re.search(pattern, before)
    assert found is not None, pattern
    path.write_text(before[: found.end()] + text + before[found.end() :], encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return a copy of the tree with the examples of a kind, a column and a source, installed."""
    if not MESON.exists():
        pytest.skip("this environment has no meson")
    tree = tmp_path_factory.mktemp("places") / "tree"
    for name in ("eventprof", "examples", "python"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("meson.build", "meson.options", "LICENSE"):
        shutil.copy(ROOT / name, tree)

    append(
        tree / "eventprof/base/events.def", example("Adding a kind", "eventprof/base/events.def")
    )
    insert_after(
        tree / "eventprof/folds/columns.def",
        r"EP_COLUMN\(CALLS, line,[^;]*?\"\"\)\n",
        example("Adding a column", "eventprof/folds/columns.def"),
    )
    append(
        tree / "eventprof/folds/columns.c",
        example("Adding a column", "eventprof/folds/columns.c"),
    )
    append(
        tree / "eventprof/trace/figures.def",
        example("Adding a column", "eventprof/trace/figures.def"),
    )
    insert_after(
        tree / "eventprof/folds/columns.def",
        r"EP_COLUMN\(FUNCTIONS, recursive,[^;]*?\"\)\n",
        example("Adding a column", "eventprof/folds/columns.def, after the row of FUNCTIONS"),
    )
    append(
        tree / "python/src/hooks/sources.def",
        example("Adding a source", "python/src/hooks/sources.def", "#"),
    )
    insert_after(
        tree / "meson.build",
        r"'python/src/hooks/source_trace.c',\n",
        example("Adding a source", "meson.build", "#"),
    )
    # Says that another tool has its hook while it is asked to record: so a test sees what it is asked.
    source = example("Adding a source", "python/src/hooks/source_pauses.c")
    assert "return true;" in source
    (tree / "python/src/hooks/source_pauses.c").write_text(
        source.replace("return true;", "return !recorded;")
    )

    # What uses them.
    (tree / "written.c").write_text(PROGRAM)
    append(
        tree / "meson.build",
        "executable('written', 'written.c', dependencies: core_dep)\n"
        "executable('column', 'examples/c/print_column.c', dependencies: core_dep)\n",
    )
    options = ["-Dtests=disabled", "-Dwerror=true", "-Doptimization=0", "-Ddebug=false"]
    options += [f"--prefix={tree / 'site'}"]
    options += [f"--python.{kind}libdir={tree / 'site'}" for kind in ("pure", "plat")]
    run(MESON, "setup", tree / "build", *options, cwd=tree)
    run(MESON, "compile", "-C", tree / "build", cwd=tree)
    run(MESON, "install", "-C", tree / "build", "--tags", "python-runtime,runtime", cwd=tree)
    return tree


@pytest.mark.slow
def test_a_kind_is_one_row_and_a_column_is_a_row_and_a_function(tree, tmp_path):
    run(tree / "build" / "written", "pausing.epr", cwd=tmp_path)

    def column(table, name):
        return run(tree / "build" / "column", "pausing.epr", table, name, cwd=tmp_path).split()

    assert column("events", "event") == ["call", "pause", "return"]
    (start,), (duration,), (end,) = (column("calls", name) for name in ("start", "duration", "end"))
    assert int(duration) > 0
    assert int(end) == int(start) + int(duration)


@pytest.mark.slow
def test_the_row_of_a_kind_and_of_a_column_reaches_python(tree, tmp_path):
    run(tree / "build" / "written", "pausing.epr", cwd=tmp_path)

    printed = python(
        tree,
        "calls = eventprof.open('pausing.epr').calls\n"
        "events = eventprof.open('pausing.epr').events\n"
        "print(events['event'].tolist(), (calls['end'] - calls['start'] - calls['duration']).tolist())",
        cwd=tmp_path,
    )

    assert printed == "['call', 'pause', 'return'] [0]\n"


@pytest.mark.slow
def test_a_figure_of_functions_is_two_rows(tree, tmp_path):
    printed = python(
        tree,
        "from eventprof.cli import functions\n"
        "from eventprof.cli.verbs import guide\n"
        "from eventprof.datasets import parts\n"
        "def fail(): raise ValueError\n"
        "with eventprof.record(memory=False, output='raised.epr') as rec:\n"
        "    for _ in range(3):\n"
        "        try: fail()\n"
        "        except ValueError: pass\n"
        "for trace in (rec.trace, eventprof.open('raised.epr')):\n"
        "    table = trace.functions\n"
        "    print(dict(zip(table['name'].tolist(), table['raised'].tolist()))['fail'])\n"
        "everywhere = guide.FIELDS['stats'][1], functions.COLUMNS, parts.FUNCTION_SUMS\n"
        "print(['raised' in place for place in everywhere])",
        cwd=tmp_path,
    )

    assert printed.split("\n") == ["3", "3", "[True, True, True]", ""]


@pytest.mark.slow
def test_a_source_is_a_file_a_row_and_a_line_of_the_build(tree, tmp_path):
    printed = python(
        tree,
        "print([hook for name, _, hook in eventprof._core.source_table() if name == 'pauses'])\n"
        "for marks in (True, False):\n"
        "    with eventprof.record(memory=False, marks=marks) as rec:\n"
        "        pass\n"
        "    print(rec.displaced)",
        cwd=tmp_path,
    )

    assert printed.splitlines() == [
        "['what the program calls to say that it pauses']",
        "('pauses',)",
        "()",
    ]


@pytest.mark.thorough
def test_a_verb_is_a_file_and_a_row(tmp_path):
    package = Path(eventprof.__file__).parent
    shutil.copytree(package, tmp_path / "eventprof", ignore=shutil.ignore_patterns("__pycache__"))
    verb = example("Adding a verb", "python/eventprof/cli/verbs/threads.py", "#")
    (tmp_path / "eventprof/cli/verbs/threads.py").write_text(verb)
    row = example("Adding a verb", "python/eventprof/cli/__init__.py", "#")
    insert_after(tmp_path / "eventprof/cli/__init__.py", r'    "look": \{\n', row)
    with eventprof.record(output=tmp_path / "run.epr") as rec:
        pass

    def shown(*words):
        return run(sys.executable, "-m", "eventprof", *words, cwd=tmp_path)

    assert shown("threads", "run.epr") == f"{rec.trace.threads}\n"
    assert "list the threads of a recording" in shown("--help")
    assert "List the threads of a recording." in shown("threads", "--help")
    assert "eventprof threads FILE" in shown("man")
    assert "threads" in shown("completion", "bash")


def python(tree, program, *, cwd):
    lines = f"import sys\nsys.path.insert(0, {str(tree / 'site')!r})\nimport eventprof\n{program}\n"
    return run(sys.executable, "-c", lines, cwd=cwd)


def append(path, text):
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def run(*command, cwd):
    path = f"{MESON.parent}:/usr/local/bin:/usr/bin:/bin"
    # With ccache, which meson finds, what has not changed since the last run is not compiled again.
    cache = {"CCACHE_DIR": str(ROOT / "build" / "ccache"), "CCACHE_BASEDIR": str(cwd)}
    environment = {"PATH": path, "HOME": str(cwd), "CCACHE_NOHASHDIR": "1", **cache}
    return children.run(*command, cwd=cwd, timeout=1200, environment=environment).stdout
