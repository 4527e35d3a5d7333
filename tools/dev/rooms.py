"""The rooms of the package, and ``./dev lint``'s check that no import runs upwards or in a circle.

A room is a folder of ``python/eventprof``, or a file beside the folders. Each may import the rooms
that its row names, which stand above it in the table, so they are loaded first. That is true of
imports inside of functions, too: they run later, but they tie rooms together all the same. Imports
for types alone (``if TYPE_CHECKING``) do not run, and are not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path("python/eventprof")
MAP = Path("doc/architecture.rst")


class Room(NamedTuple):
    """A row of the table."""

    name: str
    #: The rooms that it may import, beside itself and `FLOOR`; a blank between two.
    allowed: str
    sentence: str

    @property
    def below(self) -> tuple[str, ...]:
        """The names of these rooms."""
        return tuple(self.allowed.split())


#: What all rooms may import: the extension, and two files that import nothing of the package.
FLOOR = ("_core", "_words", "_optional")

ROOMS = (
    Room("base", "", "what all rooms share: arguments, sizes and times, new files, text"),
    Room("tables", "base", "columns, tables, and facts of a recording"),
    Room("answers", "base tables", "questions to the tables: the tree, own lines, findings"),
    Room("show", "base tables answers", "text for terminals"),
    Room("export", "base tables answers", "writes files: archives, and formats of other tools"),
    Room("viewer", "base tables answers show", "the page in a browser, and pictures"),
    Room(
        "trace",
        "base tables answers show export viewer",
        "`eventprof.Trace`, whose members ask the rooms above",
    ),
    Room("importing", "base tables trace", "reads formats of other tools"),
    Room("files", "base tables trace importing", "opens, follows and merges recordings"),
    Room(
        "recording",
        "base tables export trace files",
        "``record()``, ``count()``, the flight recorder, marks",
    ),
    Room("datasets", "base tables answers show trace files", "Parquet files of many recordings"),
    Room(
        "plugins",
        "base tables answers viewer trace files recording",
        "pytest, notebooks, middleware, the drop-in",
    ),
    Room(
        "_pypy",
        "base tables export recording",
        "stands in for the extension and the tables on PyPy",
    ),
    Room("__init__", "recording _pypy", "the public names"),
    Room("demo", "base tables trace __init__", "programs that show what eventprof finds"),
    Room(
        "cli",
        "base tables answers show export viewer trace files recording datasets _pypy __init__ demo",
        "the command line",
    ),
    Room("__main__", "cli", "``python -m eventprof``"),
)

#: Imports that are left to be turned round: the file, and the room that it imports. The check fails
#: if one of them is gone from the code and not from here, so this list gets only shorter.
LEFT: frozenset[str] = frozenset()


class Import(NamedTuple):
    """An import of the package by one of its modules, which runs when that is loaded or later."""

    path: Path  # from the package's folder
    line: int
    module: str  # with dots, from the package on; "__init__" is the package itself
    at_once: bool

    @property
    def room(self) -> str:
        """The room that is imported."""
        return self.module.partition(".")[0]


def room_of(path: Path) -> str:
    """Return the room of a file, by its path from the package's folder."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def _names_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _statements(node: ast.AST, at_once: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Find the import statements that run, and whether they do when the module is loaded."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node, at_once
    below: Iterator[ast.AST] = ast.iter_child_nodes(node)
    if _names_types(node):
        assert isinstance(node, ast.If)
        below = iter(node.orelse)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        at_once = False
    for child in below:
        yield from _statements(child, at_once)


def imports_of(package: Path, path: Path) -> Iterator[Import]:
    """Find what a module of the package imports of it."""

    def is_module(parts: tuple[str, ...]) -> bool:
        place = package.joinpath(*parts)
        return place.with_suffix(".py").exists() or place.is_dir() or parts[:1] == ("_core",)

    tree = ast.parse((package / path).read_text(encoding="utf-8"), str(package / path))
    for statement, at_once in _statements(tree, at_once=True):
        found: list[tuple[str, ...]] = []
        if isinstance(statement, ast.Import):
            names = [tuple(one.name.split(".")) for one in statement.names]
            found = [name[1:] for name in names if name[0] == package.name]
        elif isinstance(statement, ast.ImportFrom):
            parts = tuple((statement.module or "").split(".")) if statement.module else ()
            if statement.level:
                parts = path.parts[: len(path.parts) - statement.level] + parts
            elif parts[:1] == (package.name,):
                parts = parts[1:]
            else:
                continue
            for one in statement.names:  # each is a module of a folder, or a name in a module
                whole = (*parts, one.name)
                found.append(whole if is_module(whole) else parts)
        for parts in dict.fromkeys(found):
            yield Import(path, statement.lineno, ".".join(parts) or "__init__", at_once)


def paths(package: Path) -> list[Path]:
    """List the modules of the package."""
    return sorted(path.relative_to(package) for path in package.rglob("*.py"))


def all_imports(package: Path) -> list[Import]:
    """Find what the modules of the package import of it."""
    return [found for path in paths(package) for found in imports_of(package, path)]


def upward(package: Path, rooms: tuple[Room, ...] = ROOMS, left: frozenset[str] = LEFT) -> str:
    """Report which imports the table does not allow; empty: none."""
    wrong: list[str] = []
    used: set[str] = set()
    below = {room.name: room.below for room in rooms}
    for number, row in enumerate(rooms):
        higher = set(row.below) - {each.name for each in rooms[:number]}
        wrong += [f"the table: {row.name} may not import {name}, below it\n" for name in higher]
    unknown = {room_of(path) for path in paths(package)} - {*below, *FLOOR}
    wrong += [f"{PACKAGE / room}: this room is in no row of the table\n" for room in unknown]
    for found in all_imports(package):
        room = room_of(found.path)
        if room in unknown or found.room in (room, *FLOOR, *below.get(room, ())):
            continue
        if (entry := f"{found.path}: {found.room}") in left:
            used.add(entry)
        else:
            wrong.append(f"{PACKAGE / found.path}:{found.line}: {room} imports {found.room}\n")
    wrong += [f"LEFT names {entry}, which is gone: leave it out\n" for entry in left - used]
    return "".join(sorted(wrong))


def circle(package: Path) -> str:
    """Return one circle of modules that import each other when they are loaded; empty: none."""
    edges: dict[str, list[str]] = {}
    for found in all_imports(package):
        module = ".".join(found.path.with_suffix("").parts).removesuffix(".__init__")
        if found.at_once and found.module != module:
            edges.setdefault(module, []).append(found.module)
            if found.room != room_of(found.path):  # the other folder's __init__ runs first
                edges[module].append(found.room)
    done: set[str] = set()
    for start in edges:
        path = _circle_from(start, edges, [], done)
        if path:
            return f"a circle of imports: {' -> '.join(path)}\n"
    return ""


def _circle_from(
    module: str, edges: Mapping[str, list[str]], way: list[str], done: set[str]
) -> list[str]:
    if module in way:
        return [*way[way.index(module) :], module]
    if module not in done:
        for other in edges.get(module, ()):
            found = _circle_from(other, edges, [*way, module], done)
            if found:
                return found
        done.add(module)
    return []


def line_of_readme(room: Room) -> str:
    """Return how the line of a room's README begins that says what it may import."""
    return f"May import: {', '.join(room.below) or 'no other room'}."


def row_of_map(room: Room) -> str:
    """Return the row of a room in doc/architecture.rst."""
    return f"{f'``{room.name}/``':<16}{room.sentence}"


def described(root: Path, rooms: tuple[Room, ...] = ROOMS) -> str:
    """Report where the READMEs of the rooms and the map differ from the table; empty: nowhere."""
    folders = [room for room in rooms if (root / PACKAGE / room.name).is_dir()]
    wrong = []
    for room in folders:
        readme = PACKAGE / room.name / "README.md"
        lines = (root / readme).read_text(encoding="utf-8").split("\n")
        if not any(line.startswith(line_of_readme(room)) for line in lines):
            wrong.append(f"{readme}: no line begins with: {line_of_readme(room)}\n")
    rows = "".join(f"{row_of_map(room)}\n" for room in folders)
    if rows not in (root / MAP).read_text(encoding="utf-8"):
        wrong.append(f"{MAP}: the rooms should be:\n{rows}")
    return "".join(wrong)


def check(root: Path) -> tuple[int, str]:
    """Look for imports that run upwards, for a circle, and for what the table no longer says."""
    try:
        text = upward(root / PACKAGE) + circle(root / PACKAGE) + described(root)
    except SyntaxError as error:
        text = f"{error.filename}:{error.lineno}: {error.msg}\n"
    return int(bool(text)), text
