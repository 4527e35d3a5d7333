"""Packages that only some functions need, imported when they are first used."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str, user: str) -> Any:
    """Import a module that an extra of eventprof brings.

    Parameters
    ----------
    module : str
        What to import.
    extra : str
        The extra of eventprof that installs it.
    user : str
        What needs it, for the message.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    ModuleNotFoundError
        It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and a module that it imports is missing
        raise ModuleNotFoundError(
            f"{user} needs {module}, which is not installed: pip install 'eventprof[{extra}]'",
            name=module,
        ) from None


def other_python(folder: str) -> str:
    """Return what is wrong if the extension in a folder is for other Pythons; else ""."""
    import os
    import re
    import sys
    from importlib.machinery import EXTENSION_SUFFIXES

    names = [name for name in os.listdir(folder) if name.startswith("_core.")]
    if any(f"_core{suffix}" in names for suffix in EXTENSION_SUFFIXES):
        return ""  # it is for this Python, and does not load
    tags = {found for name in names if (found := re.match(r"_core\.cpython-(\d)(\d+)(t?)-", name))}
    pythons = sorted((int(tag[1]), int(tag[2]), tag[3]) for tag in tags)
    if not pythons:
        return ""
    there = " and ".join(f"{major}.{minor}{t}" for major, minor, t in pythons)
    free = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else "t"
    here = f"{sys.version_info.major}.{sys.version_info.minor}{free}"
    return (
        f"eventprof in {folder} is installed for Python {there}, and this is {here}: install it "
        f"for this Python ({sys.executable or 'python'} -m pip install eventprof)"
    )
