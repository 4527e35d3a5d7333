"""Columns, tables and facts of a recording; PyPy takes what needs neither NumPy nor _core."""

#: The tables of a trace, which are its attributes.
TABLES = (
    "events", "calls", "allocations", "functions", "lines", "memory", "resident", "threads",
    "processes", "tree", "own", "gil", "waits", "tasks", "marks", "spans", "counters", "flows",
    "labels", "requests", "gc", "audit", "objects", "runtime",
)  # fmt: skip
