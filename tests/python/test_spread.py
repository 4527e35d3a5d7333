"""`_core.spread`: columns of the drop-in's dataframe from what is known of places."""

from __future__ import annotations

import numpy as np
import pytest

from eventprof import _core

LINES = np.array([7, 8, 9], dtype=np.int64)


def test_every_table_is_indexed_and_the_first_result_replaces_the_rows():
    rows = np.arange(12347, dtype=np.int64) % 3
    expected = rows.copy()
    rows |= np.int64(0x5EED) << 32  # high halves are undefined
    tables = [LINES, *(LINES.astype(t) * -2 for t in (np.int8, np.int16, np.int32, np.int64))]

    spread = _core.spread(tuple(tables), rows)

    assert spread[0] is rows
    for table, result in zip(tables, spread, strict=True):
        assert result.dtype == table.dtype
        assert np.array_equal(result, table[expected])


def test_no_rows():
    assert [len(column) for column in _core.spread((LINES, LINES), LINES[:0].copy())] == [0, 0]


@pytest.mark.parametrize("index", [3, 2**32 - 1])
def test_an_index_outside_of_the_tables_is_an_error(index):
    with pytest.raises(IndexError, match="outside of the tables"):
        _core.spread((LINES,), np.array([0, index], dtype=np.int64))


@pytest.mark.parametrize(
    ("tables", "rows"),
    [
        ((), LINES),
        ((LINES.astype(np.int32),), LINES),
        ((LINES, LINES[:2]), LINES),
        ((LINES, LINES.astype(np.float64)), LINES),
        ((LINES, LINES[::2]), LINES),
        ((LINES,), LINES.astype(np.int32)),
        ((LINES,), [0, 1]),
        ((LINES,) * 9, LINES),
    ],
)
def test_what_does_not_fit_is_an_error(tables, rows):
    with pytest.raises(TypeError, match=r"spread\(\) takes contiguous tables"):
        _core.spread(tables, rows if isinstance(rows, list) else rows.copy())
