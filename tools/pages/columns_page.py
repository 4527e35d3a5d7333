"""The tables of columns in doc/tables.rst and doc/lines.rst, made of columns.def.

test_docs.py compares them with the pages; where they are no longer right, this writes them:

    python tools/pages/columns_page.py
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from eventprof.tables.descriptions import described

DOC = Path(__file__).parents[2] / "doc"

#: By page: its tables, by the line that they stand below.
PAGES = {
    "tables.rst": {
        f"{name}\n{'-' * len(name)}\n": name
        for name in ("events", "calls", "allocations", "functions", "memory", "threads")
    },
    "lines.rst": {"``trace.lines`` has a row": "lines"},
}
HEADS = ("column", "type", "unit", "null if", "meaning")
WIDTHS = (24, 60)  # of the last two


def table(name):
    """Return a table's columns as reStructuredText."""
    rows = []
    for description in described(name):
        text = re.sub(r"\brow of (\w+)", r"row of ``\1``", description.meaning) + description.more
        kind = description.type if description.reading in ("number", "address") else "text"
        rows.append(
            (description.name, kind, description.unit or "--", description.null_if or "--", text)
        )
    lines = []
    for row in (HEADS, *rows):
        cells = [[row[0]], [row[1]], [row[2]],
                 *(textwrap.wrap(text, width, break_on_hyphens=False)
                   for text, width in zip(row[3:], WIDTHS, strict=True))]  # fmt: skip
        for i in range(max(map(len, cells))):
            lines.append([cell[i] if i < len(cell) else "" for cell in cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    border = "  ".join("=" * width for width in widths)
    text = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([border, text[0], border, *text[1:], border]) + "\n"


def written(page, text):
    """Return a page's text with its tables as they are now."""
    for head, name in PAGES[page].items():
        position = text.index(head) + len(head)
        old = re.compile(r"^=+  .*\n(?:.*\n)*?=+  .*\n(?:.*\n)*?=+  .*\n", re.MULTILINE)
        found = old.search(text, position)
        assert found is not None, head
        text = text[: found.start()] + table(name) + text[found.end() :]
    return text


def main():
    """Write the pages."""
    for page in PAGES:
        path = DOC / page
        path.write_text(written(page, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
