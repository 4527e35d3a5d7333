"""How ./dev lint sees that no import of the package runs upwards or in a circle; tools/dev/rooms.py."""

from __future__ import annotations

import ast

import children
import pytest
from dev import rooms, shell

TABLE = (rooms.Room("low", "", "below"), rooms.Room("high", "low", "above"))


@pytest.fixture
def package(tmp_path):
    """A package with two rooms, in which nothing is wrong."""
    made = tmp_path / "eventprof"
    for room in ("low", "high"):
        (made / room).mkdir(parents=True)
        (made / room / "__init__.py").touch()
    (made / "low" / "one.py").write_text("from .. import _core\nfrom .two import a\n")
    (made / "low" / "two.py").write_text("a = 1\n")
    (made / "high" / "three.py").write_text("from ..low.one import a\n")
    assert rooms.upward(made, TABLE, frozenset()) == ""
    return made


@pytest.mark.parametrize(
    "line",
    [
        "from ..high import three",
        "from ..high.three import a",
        "from .. import high",
        "import eventprof.high.three",
        "from eventprof.high import three",
        "from eventprof import high",
    ],
)
@pytest.mark.parametrize(
    "around",
    ["{}", "def f():\n    {}", "class C:\n    def f(self):\n        {}", "try: {}\nfinally: 0"],
)
def test_an_import_upwards_is_found(package, line, around):
    (package / "low" / "two.py").write_text(around.format(line) + "\n")
    number = around[: around.index("{")].count("\n") + 1

    found = rooms.upward(package, TABLE, frozenset())

    assert found == f"python/eventprof/low/two.py:{number}: low imports high\n"


def test_an_import_for_types_alone_does_not_run(package):
    text = "if TYPE_CHECKING:\n    from ..high import three\nelse:\n    from ..high import three\n"
    (package / "low" / "two.py").write_text(text)

    found = rooms.upward(package, TABLE, frozenset())

    assert found == "python/eventprof/low/two.py:4: low imports high\n"


def test_the_table_itself_cannot_name_a_room_that_comes_later(package):
    table = (rooms.Room("low", "high", ""), rooms.Room("high", "", ""))

    found = rooms.upward(package, table, frozenset())

    assert "the table: low may not import high, below it\n" in found
    assert "python/eventprof/high/three.py:1: high imports low\n" in found


def test_a_file_outside_of_the_table_is_found(package):
    (package / "beside.py").touch()

    found = rooms.upward(package, TABLE, frozenset())

    assert found == "python/eventprof/beside: this room is in no row of the table\n"


def test_the_list_of_what_is_left_gets_only_shorter(package):
    (package / "low" / "two.py").write_text("from ..high import three\n")
    left = frozenset({"low/two.py: high"})
    assert rooms.upward(package, TABLE, left) == ""

    (package / "low" / "two.py").write_text("")
    found = rooms.upward(package, TABLE, left)

    assert found == "LEFT names low/two.py: high, which is gone: leave it out\n"


def test_a_circle_is_found(package):
    assert rooms.circle(package) == ""
    (package / "low" / "two.py").write_text("def f():\n    from .one import a\n")
    assert rooms.circle(package) == ""  # it is closed only after both were loaded

    (package / "low" / "two.py").write_text("from .one import a\n")
    assert rooms.circle(package) == "a circle of imports: low.one -> low.two -> low.one\n"


def test_a_circle_through_the_beginning_of_a_folder_is_found(package):
    (package / "low" / "__init__.py").write_text("from ..high import three\n")

    found = rooms.circle(package)

    assert found == "a circle of imports: high.three -> low -> high.three\n"


def test_readmes_and_the_map_say_what_the_table_says(package, tmp_path):
    root = tmp_path / "root"
    (root / "python").mkdir(parents=True)
    (root / "doc").mkdir()
    package.rename(root / rooms.PACKAGE)
    for room, line in (
        ("low", "May import: no other room."),
        ("high", "May import: low. No more."),
    ):
        (root / rooms.PACKAGE / room / "README.md").write_text(f"# {room}\n{line}\n")
    rows = "``low/``        below\n``high/``       above\n"
    (root / rooms.MAP).write_text(f"Before\n{rows}After\n")
    assert rooms.described(root, TABLE) == ""

    (root / rooms.PACKAGE / "high" / "README.md").write_text("# high\nMay import: all.\n")
    (root / rooms.MAP).write_text("``high/``       above\n``low/``        below\n")

    assert rooms.described(root, TABLE) == (
        "python/eventprof/high/README.md: no line begins with: May import: low.\n"
        f"doc/architecture.rst: the rooms should be:\n{rows}"
    )


@pytest.mark.parametrize("name", ["recorded.py", "trace.py"])
def test_each_member_of_a_trace_only_asks_another_room(name):
    tree = ast.parse((shell.ROOT / rooms.PACKAGE / "trace" / name).read_text(encoding="utf-8"))
    (facade,) = (node for node in tree.body if isinstance(node, ast.ClassDef))

    longer = {}
    for member in facade.body:
        if isinstance(member, ast.FunctionDef):
            done = [
                node
                for node in member.body[ast.get_docstring(member) is not None :]
                if not isinstance(node, ast.ImportFrom)
            ]
            if len(done) != 1 or isinstance(
                done[0], (ast.If, ast.For, ast.While, ast.With, ast.Try)
            ):
                longer[member.name] = ast.unparse(member.body[-1])

    assert longer == {}, "move it to the room that it asks, as a function of the trace"


def test_importing_the_package_loads_no_numpy_and_no_tables():
    code = (
        "import sys, eventprof; print(sorted(m for m in sys.modules if m.startswith("
        "('numpy', 'rich', 'eventprof.trace', 'eventprof.tables', 'eventprof.show', 'eventprof.cli', 'json'))))"
    )

    result = children.program(code, flags=["-P"])

    assert result.stdout.strip() == "[]"
