"""Firefox Profiler's profile (firefox.py) with typed arrays, in a JSON-slabs container."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ._slabs import write_slabs
from .firefox import document

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the profile. Times are doubles in ms: exact to the ns for 104 days."""
    write_slabs(document(view, options), out)
