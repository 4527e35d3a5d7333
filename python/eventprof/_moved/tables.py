"""Moved into eventprof.trace: for imports and pickles of before."""

from eventprof.trace.column import Column, Words, code_type, encode
from eventprof.trace.table import Table, _rebuild

__all__ = ["Column", "Table", "Words", "_rebuild", "code_type", "encode"]
