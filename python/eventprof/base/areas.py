"""Where the standard library and installed packages lie on this machine; areas.h has the rules.

It is determined once: when a recorder first uses one of the words "stdlib" and "site-packages" of
include and exclude, or when somebody asks whose code a function is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator

from .. import _core

#: The words of include and exclude, with the core's words.
WORDS = {"stdlib": "stdlib", "site-packages": "installed"}
#: Of Python itself: also modules of C functions, which have no file in the events.
STANDARD_MODULES = frozenset({"builtins", *sys.stdlib_module_names})

_told = False


def tell() -> None:
    """Pass the folders and modules to the extension, once."""
    global _told
    if _told:
        return
    installed = tuple(_spellings(_site_folders()))
    stdlib = tuple(_spellings(_stdlib_folders()))
    _core.add_area("stdlib", stdlib, tuple(sorted(STANDARD_MODULES)))
    _core.add_area("installed", installed, tuple(sorted(_top_levels(installed) - STANDARD_MODULES)))
    _told = True


def folders() -> dict[str, tuple[str, ...]]:
    """Return the folders of each word, for the metadata of a file."""
    return {
        "stdlib": tuple(_spellings(_stdlib_folders())),
        "site-packages": tuple(_spellings(_site_folders())),
    }


def tell_of_file(described: object) -> None:
    """Pass to the extension what the words meant in the process that made a file.

    Parameters
    ----------
    described : object
        The result of `folders` in that process; None: it did not use the words.
    """
    if not isinstance(described, dict):
        return
    tell()
    for word, area in WORDS.items():
        given = described.get(word)
        new = (
            {text for text in given if isinstance(text, str)} if isinstance(given, tuple) else set()
        )
        new -= _told_of
        _told_of.update(new)
        _core.add_area(area, tuple(sorted(new)), ())


#: Folders of files that the extension knows.
_told_of: set[str] = set()


def _stdlib_folders() -> Iterator[str]:
    import sysconfig

    for name in ("stdlib", "platstdlib"):
        yield sysconfig.get_path(name)
    yield os.path.dirname(os.__file__)  # where it was found: a build tree, a zip file
    yield getattr(sys, "_stdlib_dir", None) or ""


def _site_folders() -> Iterator[str]:
    import site
    import sysconfig

    # Of this virtual environment, and of the installation that it was made from.
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    for name in ("purelib", "platlib"):
        yield sysconfig.get_path(name)
        yield sysconfig.get_path(name, vars=base)
    yield from site.getsitepackages()
    yield site.getusersitepackages()
    for folder in _stdlib_folders():
        if folder:
            yield os.path.join(folder, "site-packages")
            yield os.path.join(folder, "dist-packages")
    for folder in sys.path:
        if os.path.basename(folder) in ("site-packages", "dist-packages"):
            yield folder


def _spellings(folders: Iterable[str]) -> list[str]:
    """Return the folders as code objects may spell them, each once."""
    found: dict[str, None] = {}
    for folder in folders:
        if folder:
            for spelling in (folder, os.path.abspath(folder), os.path.realpath(folder)):
                if len(spelling) > 1:
                    found[spelling.rstrip("/")] = None
    return list(found)


def _top_levels(folders: Iterable[str]) -> set[str]:
    """Return the names of the packages and modules that are installed there."""
    names = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            names |= {entry.split(".")[0] for entry in os.listdir(folder)}
    return {name for name in names if name.isidentifier()}
