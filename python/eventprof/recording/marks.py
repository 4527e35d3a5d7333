"""Spans as decorators, and the folder of the header for extensions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .. import _core

_Function = TypeVar("_Function", bound=Callable[..., Any])


def decorate(span: _core.Span, function: _Function) -> _Function:
    """Return a function of the same sort whose runs are spans.

    Parameters
    ----------
    span : Span
        Of `eventprof.span`.
    function : callable
        A function, or a coroutine function, generator function or asynchronous generator function,
        whose spans last from the first step to the end.

    Returns
    -------
    callable
        The wrapped function.

    Raises
    ------
    TypeError
        It is a class, or cannot be called.
    """
    import inspect

    if isinstance(function, (staticmethod, classmethod)):
        return cast(_Function, type(function)(decorate(span, function.__func__)))
    if inspect.isclass(function) or not callable(function):
        what = f"the class {function.__name__}" if inspect.isclass(function) else repr(function)
        raise TypeError(f"a span decorates functions and methods, not {what}")
    from .decorate import wrap

    return cast(_Function, functools.update_wrapper(wrap(lambda: span, function), function))


def get_include() -> str:
    """Return the folder of ``eventprof.h``, with which C and C++ extensions add events.

    Returns
    -------
    str
        For the compiler's ``-I``.
    """
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "include")
