"""One self-contained HTML file: the data of the first picture, then the code, then the tiles."""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from ..base import output
from .data import find_title, sections
from .planes import wide

if TYPE_CHECKING:
    from ..trace import Trace

#: The code, in the order in which it is joined: a module uses only modules before it.
MODULES = (
    "state.js", "text.js", "colour.js", "lod.js", "bins.js", "waiting.js", "readies.js",
    "unpack.js", "tiles.js", "blocks.js", "data.js", "draw.js", "lanes.js", "timeline.js",
    "memory.js", "overview.js", "tree.js", "flame.js", "histogram.js", "functions.js",
    "branches.js", "detail.js", "findings.js", "source.js", "search.js", "keys.js", "main.js",
)  # fmt: skip

#: Pages with so many bytes of data are written in UTF-16, which makes them a fifth smaller: base64
#: takes 33 % more than the data, `wide` 7 %. But the code and the head take twice as much.
WIDE = 1 << 20

_IMPORT = re.compile(r"^import\s+\{[^}]*\}\s+from\s+\"\./[\w.]+\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)
#: Lines of comments, and what lines are indented by: a quarter of the code, of no use in a page. No
#: template literal goes over several lines, so that no text of the page is touched.
_UNREAD = re.compile(r"^\s*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)\n|^\s+", re.MULTILINE)


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def code(modules: Sequence[str] = MODULES) -> str:
    """Return modules as one script; no two have the same name at their top level."""
    texts = (_EXPORT.sub("", _IMPORT.sub("", _read(f"js/{name}"))) for name in modules)
    return '"use strict";\n(() => {\n' + _UNREAD.sub("", "".join(texts)) + "})();\n"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def parts(
    trace: Trace,
    title: str | None = None,
    grain: int = 1,
    source: bool = False,
    utf8: bool = False,
) -> Iterator[bytes]:
    """Return the page as `page` does, in parts; a large one in UTF-16, unless `utf8` is true."""
    head, coarse, tiles = sections(trace, title, grain, source)
    shown = find_title(trace) if title is None else title
    return assemble("page.html", MODULES, shown, (("head", head), ("coarse", coarse)), tiles, utf8)


def assemble(
    template: str,
    modules: Sequence[str],
    title: str,
    first: Sequence[tuple[str, bytes]],
    rest: Sequence[tuple[str, bytes]] = (),
    utf8: bool = False,
) -> Iterator[bytes]:
    """Yield the parts of an HTML file that needs no other file.

    Parameters
    ----------
    template : str
        A file of this folder, which is put after ``head.html``, the beginning of all pages.
    modules : sequence of str
        The modules of the script, in the order in which they are joined.
    title : str
        The title of the window.
    first, rest : sequence of (str, bytes)
        Sections by name: the first, which the first picture needs, stand before the script.
    utf8 : bool
        Whether a large file is in UTF-8, too.
    """
    script, style = code(modules), _read("page.css")
    # The page may use no network and run no other script: text in a name can never run. Workers run
    # functions of this script.
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; "
        f"style-src 'sha256-{_hash(style)}'; img-src data: blob:; worker-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    shown = html.escape(title.encode("utf-8", "backslashreplace").decode())
    before, after = (_read("head.html") + _read(template)).split("<!-- data -->")
    large = not utf8 and sum(len(raw) for _, raw in (*first, *rest)) >= WIDE
    charset = "utf-16-le" if large else "utf-8"
    if large:
        yield b"\xff\xfe"  # the mark counts for more than what a server says of the encoding
        before = before.replace('<meta charset="utf-8">\n', "")
    yield (
        before.replace("{{style}}", style)
        .replace("{{policy}}", policy)
        .replace("{{title}}", shown)  # last: it may hold any text
        .encode(charset)
    )
    for sections_, text in ((first, f"<script>{script}</script>\n"), (rest, after)):
        for name, raw in sections_:
            # Browsers read the text of a template faster than that of a script.
            yield f'<template id="data-{name}">'.encode(charset)
            yield wide(raw) if large else base64.b64encode(raw)
            yield "</template>\n".encode(charset)
        yield text.encode(charset)


def page(trace: Trace, title: str | None = None, grain: int = 1, source: bool = False) -> bytes:
    """Return the page.

    Parameters
    ----------
    trace : Trace
        The trace to show.
    title : str, optional
        By default the program's name.
    grain : int
        Times are rounded down to multiples of so many nanoseconds, which makes a smaller page.
    source : bool
        Whether to include the text of the files that made calls.

    Returns
    -------
    bytes
        HTML, in UTF-8.
    """
    return b"".join(parts(trace, title, grain, source, utf8=True))


def write(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    grain: int = 1,
    source: bool = False,
    force: bool = False,
) -> int:
    """Write the page to a file, which appears only when it is complete.

    Parameters
    ----------
    trace : Trace
        The trace to show.
    path : str or path-like
        The file to write.
    title, grain, source
        As for `page`.
    force : bool
        Whether to replace an existing file.

    Returns
    -------
    int
        The size of the file in bytes.

    Raises
    ------
    FileExistsError
        The file exists, and `force` was not given.
    OSError
        The file cannot be written; no part of it is left.
    """
    return output.put(path, parts(trace, title, grain, source), force)


def load() -> None:
    """Import all modules that a page needs, before a program can remove modules."""
    from ..answers import findings, rules, table  # noqa: F401
    from ..show import report  # noqa: F401


def open_page(
    trace: Trace, *, title: str | None = None, grain: int = 1, source: bool = False
) -> str:
    """Write the page to a temporary folder, and open it in the browser.

    Parameters
    ----------
    trace : Trace
        The trace to show.
    title, grain, source
        As for `page`.

    Returns
    -------
    str
        The path of the file. It is never removed: the browser may read it at any time.
    """
    return show_page(parts(trace, title, grain, source))


def show(
    trace: Trace,
    path: str | os.PathLike[str] | None,
    *,
    title: str | None = None,
    grain: int = 1,
    source: bool = False,
    force: bool = False,
) -> str:
    """Write the page to a file, or show it in the browser; see `Trace.show`."""
    if grain < 1:
        raise ValueError(f"grain must be 1 ns or more, not {grain}")
    if path is None:
        return open_page(trace, title=title, grain=grain, source=source)
    write(trace, path, title=title, grain=grain, source=source, force=force)
    return os.fspath(path)


def show_page(given: Iterable[bytes]) -> str:
    """Write a page from its parts, and open it in the browser, as `open_page` does."""
    path = os.path.join(tempfile.mkdtemp(prefix="eventprof-"), "page.html")
    output.put(path, given)
    open_file(path)
    return path


def open_file(path: str) -> None:
    """Open a page in the browser."""
    import webbrowser
    from pathlib import Path

    webbrowser.open(Path(path).resolve().as_uri())
