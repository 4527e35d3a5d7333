"""What python/eventprof/_core.pyi says of the columns of a trace, made of columns.def.

test_stubs.py compares them; where the stub is no longer right, this writes it:

    python tools/pages/columns_stub.py
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUB = ROOT / "python" / "eventprof" / "_core.pyi"
ROWS = ROOT / "eventprof" / "folds" / "columns.def"

#: The methods of _core.Trace that give a column of their table.
METHODS = ("events", "calls", "allocations", "lines")
PARTS = {
    "names": (
        "# Columns by type; written by tools/pages/columns_stub.py.\n",
        "# End of columns.\n",
    ),
    "methods": ("    # By column; written by it, too.\n", "    # End of methods by column.\n"),
}


def columns():
    """Return {table: {column: type}} of columns.def, with the columns that no table shows."""
    text = re.sub(r"/\*.*?\*/", "", ROWS.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = {}
    row = re.compile(
        r"^EP_(COLUMN|RENAMED|INNER)\((\w+), (\w+),(?: (\w+),)?? ([A-Z]+\d+),", re.MULTILINE
    )
    for _, table, name, _, kind in row.findall(text):
        found.setdefault(table.lower(), {})[name] = kind.lower()
    assert sum(map(len, found.values())) == len(re.findall(r"^EP_", text, re.MULTILINE))
    return found


def by_type(table):
    """Return {type: [column]} of a table, types in order of their first column."""
    found = {}
    for name, kind in columns()[table].items():
        found.setdefault(kind, []).append(name)
    return found


def alias(table, kind):
    """Return the stub's name for the columns of a type."""
    return f"_{table.capitalize()}{kind.capitalize()}"


def method(table, column, kind):
    """Return a method that gives a column, or some rows of it."""
    given = f"self, column: {column}, first: int = 0, count: int = ..., /"
    line = f"    def {table}({given}) -> NDArray[{kind}]: ...\n"
    if len(line) > 101:
        line = f"    def {table}(\n        {given}\n    ) -> NDArray[{kind}]: ...\n"
    return "    @overload\n" + line


def parts():
    """Return the two parts of the stub."""
    names = methods = ""
    for table in METHODS:
        for kind, listed in by_type(table).items():
            several = "".join(f'    "{name}",\n' for name in listed)
            inside = f'"{listed[0]}"' if len(listed) == 1 else f"\n{several}"
            names += f"{alias(table, kind)} = Literal[{inside}]\n"
            methods += method(table, alias(table, kind), f"np.{kind}")
        methods += method(table, "str", "Any")
    return {"names": names, "methods": methods}


def written(text):
    """Return the stub's text as it must be now."""
    for part, content in parts().items():
        begin, end = PARTS[part]
        before, rest = text.split(begin)
        text = before + begin + content + end + rest.split(end)[1]
    return text


if __name__ == "__main__":
    STUB.write_text(written(STUB.read_text(encoding="utf-8")), encoding="utf-8")
