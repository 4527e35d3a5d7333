"""The recordings of many processes as Parquet files, and what engines answer from them."""

from __future__ import annotations
