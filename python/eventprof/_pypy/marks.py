"""User events on PyPy: checked, but not recorded, so that programs run without a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _check(function: str, name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{function}(): the name must be a str, not {name!r}")


def mark(name: str, /) -> None:
    """Do nothing: PyPy records no user events."""
    _check("mark", name)


def counter(name: str, value: float, /) -> None:
    """Do nothing: PyPy records no user events."""
    _check("counter", name)
    float(value)


def flow(name: str, id: int, phase: Literal["begin", "step", "end"], /) -> None:
    """Do nothing: PyPy records no user events."""
    _check("flow", name)
    if not isinstance(id, int):
        raise TypeError(f"flow(): id must be an int, not {id!r}")
    if not 0 <= id < 2**61:
        raise ValueError(f"flow(): id must be 0 or more and below 2**61, not {id!r}")
    if phase not in ("begin", "step", "end"):
        error = ValueError if isinstance(phase, str) else TypeError
        raise error(f"flow(): phase must be 'begin', 'step' or 'end', not {phase!r}")


class Span:
    """A context manager and decorator that does nothing; made by `span`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        return False

    def __call__(self, function: _Function) -> _Function:
        return function


def span(name: str, /) -> Span:
    """Make a span that does nothing: PyPy records no user events."""
    _check("span", name)
    return Span(name)


def wrapped_span(name: str, apart: bool, /) -> Span:
    """Make the same."""
    return span(name)


class Label:
    """A context manager and decorator that does nothing; made by `label`."""

    def __enter__(self) -> Label:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        return False

    def __call__(self, function: _Function) -> _Function:
        return function

    def add(self, **labels: object) -> None:
        """Do nothing."""
        if not labels:
            raise TypeError("add() takes names with values: add(request_id=7)")


def label(**labels: object) -> Label:
    """Make a label that does nothing: PyPy records no user events."""
    if not labels:
        raise TypeError("label() takes names with values: label(request_id=7)")
    return Label()


def records_labels() -> bool:
    """Report that nothing is recorded."""
    return False
