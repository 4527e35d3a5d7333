"""What type checkers know of decorated functions; mypy reads this file in ./dev lint."""

from __future__ import annotations

from typing import assert_type

import eventprof


@eventprof.record()
def area(width: int, height: int = 1) -> float:
    """Give a product."""
    return float(width * height)


class Shape:
    """Has a decorated method."""

    @eventprof.record(memory=False)
    def scaled(self, factor: int) -> str:
        """Give a text."""
        return "*" * factor


assert_type(area(2, height=3), float)
assert_type(area.recorder, eventprof.Recorder)
assert_type(area.recorder.trace, eventprof.Trace)
assert_type(Shape().scaled(2), str)
assert_type(Shape.scaled.recorder, eventprof.Recorder)
area("2")  # type: ignore[arg-type]
Shape().scaled("2")  # type: ignore[arg-type]
