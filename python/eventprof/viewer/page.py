"""One self-contained HTML file: the code, then what the first picture needs, then the tiles."""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import tempfile
from collections.abc import Iterator
from importlib import resources
from typing import IO, TYPE_CHECKING

from .data import sections

if TYPE_CHECKING:
    from ..trace import Trace

#: The code, in the order in which it is joined: a module uses those before it.
MODULES = (
    "state.js", "text.js", "colour.js", "lod.js", "waiting.js", "data.js", "draw.js", "lanes.js",
    "timeline.js", "memory.js", "overview.js", "tree.js", "flame.js", "histogram.js",
    "functions.js", "branches.js", "detail.js", "findings.js", "search.js", "keys.js", "main.js",
)  # fmt: skip

_IMPORT = re.compile(r"^import\s+\{[^}]*\}\s+from\s+\"\./[\w.]+\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def code() -> str:
    """Give the modules as one script: no name at their top is used twice."""
    parts = (_EXPORT.sub("", _IMPORT.sub("", _read(name))) for name in MODULES)
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _parts(trace: Trace, title: str | None, grain: int) -> Iterator[bytes]:
    head, coarse, tiles = sections(trace, title, grain)
    script, style = code(), _read("page.css")
    # No network and no script but this: what a name holds cannot run, whatever it holds.
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; "
        f"style-src 'sha256-{_hash(style)}'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    from .data import _title

    shown = html.escape((title or _title(trace)).encode("utf-8", "backslashreplace").decode())
    body = _read("page.html")
    before, after = body.split("<!-- data -->")
    yield (
        before.replace("{{style}}", style)
        .replace("{{policy}}", policy)
        .replace("{{title}}", shown)  # last: it may hold any text
        .encode()
    )
    for name, raw in (("head", head), ("coarse", coarse)):
        yield f'<script type="text/plain" id="data-{name}">'.encode()
        yield raw
        yield b"</script>\n"
    yield f"<script>{script}</script>\n".encode()
    for name, raw in tiles:
        yield f'<script type="text/plain" id="data-{name}">'.encode()
        yield raw
        yield b"</script>\n"
    yield after.encode()


def page(trace: Trace, title: str | None = None, grain: int = 1) -> bytes:
    """Give the page.

    Parameters
    ----------
    trace : Trace
        What it shows.
    title : str, optional
        Without: the program's name.
    grain : int
        Times are rounded down to multiples of so many nanoseconds, which makes a smaller page.

    Returns
    -------
    bytes
        HTML, in UTF-8.
    """
    return b"".join(_parts(trace, title, grain))


def write(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    grain: int = 1,
    force: bool = False,
) -> int:
    """Write the page to a file, which appears when it is whole.

    Parameters
    ----------
    trace : Trace
        What it shows.
    path : str or path-like
        Where to.
    title, grain
        As of `page`.
    force : bool
        Replace what is there.

    Returns
    -------
    int
        The bytes of the file.

    Raises
    ------
    FileExistsError
        There is something already, and `force` was not given.
    OSError
        The system refused; nothing is left behind.
    """
    path = os.fspath(path)
    if not force and os.path.lexists(path):
        raise FileExistsError(17, "exists already; force=True replaces it", path)
    folder = os.path.dirname(path) or "."
    handle, name = tempfile.mkstemp(".part", ".eventprof-", folder)
    try:
        with os.fdopen(handle, "wb") as file:
            size = _put(file, trace, title, grain)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        if force:
            os.replace(name, path)
        else:
            os.link(name, path)  # fails where something appeared meanwhile
            os.unlink(name)
    except BaseException:
        os.unlink(name)
        raise
    return size


def _put(file: IO[bytes], trace: Trace, title: str | None, grain: int) -> int:
    return sum(file.write(part) for part in _parts(trace, title, grain))


def load() -> None:
    """Import all that a page takes, before a program can take modules away."""
    from ..answers import findings, rules, table  # noqa: F401
    from ..show import report  # noqa: F401


def open_page(trace: Trace, *, title: str | None = None, grain: int = 1) -> str:
    """Write the page to a temporary folder, and open it in the browser.

    Parameters
    ----------
    trace : Trace
        What it shows.
    title, grain
        As of `page`.

    Returns
    -------
    str
        The path of the file, which stays: the browser may read it at any time.
    """
    import webbrowser
    from pathlib import Path

    folder = tempfile.mkdtemp(prefix="eventprof-")
    path = os.path.join(folder, "page.html")
    write(trace, path, title=title, grain=grain)
    webbrowser.open(Path(path).as_uri())
    return path
