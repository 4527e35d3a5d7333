"""Exporting in a test, or skipping where a format's library has no wheel."""

from __future__ import annotations

import pytest

#: What some formats need.
NEEDS = {
    "parquet": ("pyarrow",), "arrow": ("pyarrow",), "duckdb": ("duckdb", "pyarrow"),
    "otlp": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.common"),
}  # fmt: skip


def require(word):
    for module in NEEDS.get(word, ()):
        pytest.importorskip(module)


def export(trace, tmp_path, word, **options):
    path = tmp_path / f"out.{word}"
    trace.export(path, word, force=True, **options)
    return path


def one_line(name):
    """A name for a terminal."""
    return "".join(
        c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in name
    )


def as_collapsed(name):
    return one_line(name).replace(";", "\\x3b")
