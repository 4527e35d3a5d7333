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
