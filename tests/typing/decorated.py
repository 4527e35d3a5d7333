"""What type checkers know of decorated functions; mypy reads this file in ./dev lint."""

from __future__ import annotations

from typing import assert_type

import eventprof


@eventprof.record()
def area(width: int, height: int = 1) -> float:
    """Return a product."""
    return float(width * height)


class Shape:
    """Has a decorated method."""

    @eventprof.record(memory=False)
    def scaled(self, factor: int) -> str:
        """Return a text."""
        return "*" * factor


@eventprof.record
def bare(width: int, height: int = 1) -> float:
    """Return a product."""
    return float(width * height)


@eventprof.count
def counted(width: int) -> float:
    """Return a number."""
    return float(width)


async def asynchronous() -> None:
    """Record in ``async with``."""
    async with eventprof.record(memory=False) as rec:
        assert_type(rec, eventprof.Recorder)
    async with eventprof.count() as counter:
        assert_type(counter, eventprof.Counter)
    assert_type(rec.trace.calls.head(3), eventprof.Table)
    assert_type(rec.trace.calls.sort("duration", descending=True), eventprof.Table)


assert_type(area(2, height=3), float)
assert_type(area.recorder, eventprof.Recorder)
assert_type(area.recorder.trace, eventprof.Trace)
assert_type(Shape().scaled(2), str)
assert_type(Shape.scaled.recorder, eventprof.Recorder)
assert_type(bare(2, height=3), float)
assert_type(bare.recorder, eventprof.Recorder)
assert_type(counted(2), float)
bare("2")  # type: ignore[arg-type]
counted("2")  # type: ignore[arg-type]
eventprof.record(memory=False, bufer=1)  # type: ignore[call-overload]
eventprof.record().enable()  # type: ignore[attr-defined]
eventprof.count().disable()  # type: ignore[attr-defined]
eventprof.record().trace.view()  # type: ignore[attr-defined]
area("2")  # type: ignore[arg-type]
Shape().scaled("2")  # type: ignore[arg-type]
