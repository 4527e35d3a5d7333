"""Ten regressions, each a commit on a repository of Jinja: each is named by its function and line."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import children
import pytest
from amounts import amount

jinja2 = pytest.importorskip("jinja2")

SUITE = '''
import jinja2

ENVIRONMENT = jinja2.Environment(cache_size=0)
TEXT = """{% for user in users %}{{ user.name|title }} {{ user["name"]|upper }} {{ loop.index }}
{{ user.tags|join(", ") }}{% if user.old %}old{% endif %}{% endfor %}"""


class User:
    old = True

    def __init__(self, name):
        self.name = name
        self.tags = [name, name]

    def __getitem__(self, key):
        return getattr(self, key)


def test_render():
    template = ENVIRONMENT.from_string(TEXT)
    assert "old" in template.render(users=[User(f"a name {n}") for n in range(5)], other=1)
'''

#: File, what is replaced, by what, the function that is to be named; the line is the changed one's.
PLANTED = {
    "one more call in a loop": (
        "lexer.py",
        "            value: t.Any = value_str\n",
        "            value: t.Any = str(value_str)\n",
        "jinja2.lexer.Lexer.wrap",
    ),
    "a list kept": (
        "lexer.py",
        "            value: t.Any = value_str\n",
        "            value: t.Any = value_str\n            ignored_kept.append([token] * 30)\n",
        "jinja2.lexer.Lexer.wrap",
    ),
    "a copy of a dict": (
        "environment.py",
        "        ctx = self.new_context(dict(*args, **kwargs))\n\n        try:\n            return self.environment.concat(",
        "        ctx = self.new_context(dict(dict(*args, **kwargs)))\n\n        try:\n            return self.environment.concat(",
        "jinja2.environment.Template.render",
    ),
    "a copy without a call": (
        "parser.py",
        '                token = self.stream.current\n                if token.type == "data":\n',
        '                token, _ = self.stream.current, [*range(99)]\n                if token.type == "data":\n',
        "jinja2.parser.Parser.subparse",
    ),
    "looked up twice": (
        "environment.py",
        "            return getattr(obj, attribute)\n",
        "            return getattr(obj, attribute) and getattr(obj, attribute)\n",
        "jinja2.environment.Environment.getattr",
    ),
    "converted twice": (
        "filters.py",
        "            for item in _word_beginning_split_re.split(soft_str(s))\n",
        "            for item in _word_beginning_split_re.split(soft_str(soft_str(s)))\n",
        "jinja2.filters.do_title",
    ),
    "a copy for a lookup": (
        "runtime.py",
        "        if key in self.vars:\n            return self.vars[key]\n\n        if key in self.parent:",
        "        if key in dict(self.vars):\n            return self.vars[key]\n\n        if key in self.parent:",
        "jinja2.runtime.Context.resolve_or_missing",
    ),
    "a list of an iterator": (
        "filters.py",
        "        return str(d).join(map(str, value))\n",
        "        return str(d).join(list(map(str, value)))\n",
        "jinja2.filters.sync_do_join",
    ),
    "a method called again": (
        "filters.py",
        "    return soft_str(s).upper()\n",
        "    return soft_str(s).upper().strip()\n",
        "jinja2.filters.do_upper",
    ),
    "a list that grows": (
        "runtime.py",
        "        self._current = rv\n        return rv, self\n",
        "        self._current = rv\n        self.kept = [*getattr(self, 'kept', ()), *range(99)]\n        return rv, self\n",
        "jinja2.runtime.LoopContext.__next__",
    ),
}


#: 3.11 reports no calls of types, and what these allocate is within the tolerance of bytes. The
#: table in doc/testing.rst has the figures.
UNSEEN_ON_3_11 = {
    "one more call in a loop",
    "a copy of a dict",
    "a copy without a call",
    "a copy for a lookup",
    "a list of an iterator",
}


def git(folder, *arguments):
    """Run git, with no settings of the user's."""
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "core.autocrlf=false")
    return children.run("git", *who, *arguments, cwd=folder).stdout


def changed_line(folder):
    """Return the number of the first line that the last commit has changed or added."""
    (first, *_) = re.findall(r"^@@ -\S+ \+(\d+)", git(folder, "show", "-U0", "HEAD"), re.M)
    return int(first)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A repository of a suite with its own copy of Jinja; the counts are committed by the first test."""
    folder = tmp_path_factory.mktemp("counted")
    shutil.copytree(
        Path(jinja2.__file__).parent,
        folder / "jinja2",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (folder / "test_render.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\neventprof_counts = true\n")
    git(folder, "init", "-q")
    return folder


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Without other plugins: to import those takes a second each time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("CI", "BUILD_NUMBER"):  # with these, the summary repeats what failures say
        monkeypatch.delenv(name, raising=False)


def start(pytester, *arguments):
    return pytester.runpytest_subprocess(
        "-p", "eventprof.plugins.pytest_entry", "-p", "no:cacheprovider", *arguments
    )


def run(pytester, folder, *arguments):
    pytester.chdir()
    shutil.copytree(folder, pytester.path, dirs_exist_ok=True)
    return start(pytester, *arguments)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*PLANTED][:: amount(2, 1)])
def test_a_planted_regression_is_named_by_function_and_line(name, pytester, counted):
    if sys.version_info < (3, 12) and name in UNSEEN_ON_3_11:
        pytest.skip("3.11 reports no calls of types")
    snapshots = counted / "eventprof.counts.json"
    if not snapshots.exists():
        done = run(pytester, counted, "--eventprof-update")
        done.assert_outcomes(passed=1)
        shutil.copy(pytester.path / snapshots.name, snapshots)
        same = run(pytester, counted)
        same.stdout.fnmatch_lines(["1 test: 1 as counted before"])
        (counted / ".gitignore").write_text("__pycache__\n")
        git(counted, "add", "-A")
        git(counted, "commit", "-qm", "jinja, and the counts of its suite")
    file, old, new, function = PLANTED[name]
    shutil.copytree(counted, pytester.path, dirs_exist_ok=True)
    path = pytester.path / "jinja2" / file
    before = path.read_text()
    assert old in before
    kept = "\nignored_kept = []\n" if "ignored_kept" in new else ""
    path.write_text(before.replace(old, new, 1) + kept)
    shutil.rmtree(pytester.path / "jinja2" / "__pycache__", ignore_errors=True)
    git(pytester.path, "commit", "-qam", name)
    line = changed_line(pytester.path)

    done = start(pytester)

    assert git(pytester.path, "status", "--porcelain", "-uno") == ""
    done.assert_outcomes(failed=1)
    lines = [text for text in done.outlines if re.match(r"  \S+, \w+\.py:\d+: ", text)]
    assert lines[0].startswith(f"  {function}, {file}:{line}: "), done.stdout.str()
    assert len(lines) <= 13
