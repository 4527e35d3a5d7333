"""Recorders and counters as decorators, and in ``async with``."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from .._words import printable
from .options import has_gil

if TYPE_CHECKING:
    from .recorder import Recorder

_Function = TypeVar("_Function", bound=Callable[..., Any])


async def _done() -> None:
    pass


class AsyncContext:
    """Makes ``async with`` of what ``with`` can do: a base of all that starts and stops."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __enter__(self) -> Self: ...

        def __exit__(self, kind: Any, error: Any, traceback: Any, /) -> Any: ...

    async def __aenter__(self) -> Self:
        return type(self).__enter__(self)

    def __aexit__(self, kind: Any, error: Any, traceback: Any, /) -> Awaitable[None]:
        # Not a coroutine function, no bound method: they would be allocated inside of the window.
        type(self).__exit__(self, kind, error, traceback)
        return _done()


class _Nothing:
    """A context that does nothing; contextlib's would be recorded."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


_NOTHING = _Nothing()


class _First:
    """Starts the recorder unless it runs, on any thread: check and start are one step."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._began = False

    def __enter__(self) -> None:
        self._began = self._recorder._begin()

    def __exit__(self, *_: object) -> None:
        if self._began:
            self._recorder.__exit__(None, None, None)


def outermost(recorder: Recorder) -> Recorder | _Nothing | _First:
    """Return the context that records from here on, or one that does nothing if it runs already.

    With a GIL no other thread runs between this check and the start by `with`.
    """
    if not has_gil():
        return _First(recorder)
    return recorder if recorder.state != "running" else _NOTHING


def decorate(word: str, owner: Any, context: Callable[[], Any], function: _Function) -> _Function:
    """Wrap a function; an attribute of that name is its recorder or counter. Else TypeError."""
    import inspect

    if isinstance(function, (staticmethod, classmethod)):
        inner = decorate(word, owner, context, function.__func__)
        return cast(_Function, type(function)(inner))
    if inspect.isclass(function) or not callable(function):
        what = f"the class {function.__name__}" if inspect.isclass(function) else repr(function)
        raise TypeError(f"a {word} decorates functions and methods, not {what}")
    wrapper = wrap(context, function)
    functools.update_wrapper(wrapper, function)
    wrapper.__dict__[word] = owner
    return cast(_Function, wrapper)


def decorates(make: Callable[..., Any]) -> Any:
    """Let a function that makes a recorder or a counter decorate, too: ``@eventprof.record``."""
    name = make.__name__

    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        if not args:
            return make(**options)
        if len(args) == 1 and callable(args[0]) and not options:
            return make()(args[0])
        first = args[0]
        if callable(first):
            write = f"@eventprof.{name}({', '.join(f'{word}=...' for word in options)})"
        else:
            is_path = name == "record" and isinstance(first, (str, os.PathLike))
            write = f"eventprof.{name}({'output' if is_path else 'memory'}={first!r})"
        raise TypeError(
            f"{name}() takes its arguments by name, not {printable(repr(first))}: write {write}"
        )

    cast(
        Any, made
    ).__kwdefaults__ = make.__kwdefaults__  # for those who ask for the names of the arguments
    return made


def wrap(context: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the same sort that runs in a context, which is made for each run.

    `with` calls the extension's __enter__ directly, so no signal handler and no other thread runs
    between the check whether it runs, the start, and the body. No frame of this package is seen.
    """
    import inspect

    if inspect.isasyncgenfunction(function):

        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            with context():
                steps = function(*args, **kwargs)
                step, given = steps.asend, None
                while True:
                    try:
                        value = await step(given)
                    except StopAsyncIteration:
                        return
                    try:
                        step, given = steps.asend, (yield value)
                    except GeneratorExit:
                        await steps.aclose()
                        raise
                    except BaseException as error:
                        step, given = steps.athrow, error

        return async_generator

    if inspect.iscoroutinefunction(function):

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await function(*args, **kwargs)

        return coroutine

    if inspect.isgeneratorfunction(function):

        def generator(*args: Any, **kwargs: Any) -> Any:
            with context():
                return (yield from function(*args, **kwargs))

        return generator

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return wrapper
