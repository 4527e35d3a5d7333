"""Paths and names as text for people."""

from __future__ import annotations

import os
import re


def short_path(path: str) -> str:
    """Leave out the beginning of a path: the folder of this Python, this folder, or the home."""
    installed = re.search(r".*/(?:site|dist)-packages/", path) or re.match(
        r".*/lib/python3\.\d+t?/", path
    )
    if installed:
        return path[installed.end() :]
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = "/"
    for prefix, short in ((here, ""), (os.path.expanduser("~"), "~/")):
        if prefix not in ("/", "~") and path.startswith(prefix + "/"):
            return short + path[len(prefix) + 1 :]
    return path


def clean(text: str, *, plain: bool) -> str:
    """Escape the characters that a terminal would obey; if plain, all that are not ASCII."""
    if text.isprintable() and (text.isascii() or not plain):
        return text
    return "".join(
        c if c.isprintable() and (c.isascii() or not plain)
        else c.encode("unicode_escape").decode()
        for c in text
    )  # fmt: skip
