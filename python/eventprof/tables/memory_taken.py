"""Tables of large traces tell before they take much of the memory that is available."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

from .. import _core
from .._words import show_bytes
from ..base.quantities import available_memory

if TYPE_CHECKING:
    from .column import Column
    from .table import Table

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Less than this is not worth a look at the system, which takes 50 us.
LEAST_BYTES = 4 << 20
#: Of one column, by row.
_MOST_BYTES = 8
#: What answers in bounded memory instead.
_INSTEAD = {
    "events": "'eventprof events --from TIME --last TIME' and 'eventprof export --format parquet "
    "--table events' read the events in one pass",
    "calls": "trace.functions and trace.tree ('eventprof stats', 'eventprof tree') have sums of "
    "all calls, and 'eventprof export --format parquet --table calls' writes the rows in batches",
    "allocations": "trace.peak() and trace.tree ('eventprof report') have sums of all blocks, and "
    "'eventprof export --format parquet --table allocations' writes the rows in batches",
}


class Taken:
    """The memory that the columns of a table take.

    Parameters
    ----------
    name : str
        Of the table, as an attribute of the trace.
    table : Table
        All of its rows and columns. It is not kept: a circle would keep it until a collection.

    Notes
    -----
    Numbers and codes of texts lie in removed files if there is a disk for these (array.h of the
    core), and their pages go when memory is short. Memory are: texts as objects, marks of unknown
    values, and copies. Without a disk all columns are.
    """

    def __init__(self, name: str, table: Table) -> None:
        self._name = name
        self._rows = len(table)
        self._taken = 0
        self._told = False
        self._have_files = _core.columns_have_files()
        columns = table._columns.values()
        #: Bytes of a row, at most: of codes and of texts as objects, of numbers and of marks.
        self._all = sum(
            4 * (not self._have_files) + 8
            if column.dtype is None
            else self._number(column) + column.nullable
            for column in columns
        )
        for column in columns:
            column.taken = self

    def _number(self, column: Column) -> int:
        return 0 if self._have_files else column.type().itemsize

    def take_values(self, column: Column) -> None:
        """Take the numbers or codes of a column."""
        self.take(self._number(column))

    def take(self, bytes_each: int) -> None:
        """Take so much for each row; warn, once, if all is more than half of what there was."""
        count = self._rows * bytes_each
        self._taken += count
        if self._told or count < LEAST_BYTES:
            return
        available = available_memory() + self._taken - count
        if self._taken <= available // 2:
            return
        self._told = True
        level, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
            level, frame = level + 1, frame.f_back
        warnings.warn(
            f"trace.{self._name} has {self._rows:,} rows: what is asked of it takes "
            f"{show_bytes(self._taken)} of memory, of {show_bytes(available)} that are available, "
            f"and all of its columns up to {show_bytes(self._rows * self._all)}. "
            f"{_INSTEAD[self._name]}",
            RuntimeWarning,
            stacklevel=level,
        )


def watched(name: str, table: Table) -> Table:
    """Let a table of all rows tell before it takes much memory."""
    if len(table) * _MOST_BYTES >= LEAST_BYTES:
        Taken(name, table)
    return table
