"""Names in files that have no escapes of their own, as our exporters write them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .._words import escaped

_ESCAPE = re.compile(r"\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})")


def unescaped(names: Iterable[str], besides: str = "") -> dict[str, str]:
    """Return the text of each name.

    Other programs do not escape backslashes. If any name is not what our exporters write, no
    backslash is taken for an escape, except those of a character of `besides`.
    """
    found = {name: _ESCAPE.sub(_character, name) for name in names}
    codes = {f"\\x{ord(c):02x}": c for c in besides}
    for name, text in found.items():
        again = escaped(text)
        for code, c in codes.items():
            again = again.replace(c, code)
        if again != name:
            break
    else:
        return found
    for name in found:
        text = name
        for code, c in codes.items():
            text = text.replace(code, c)
        found[name] = text
    return found


def _character(escape: re.Match[str]) -> str:
    return escape[0].encode("ascii").decode("unicode_escape")
