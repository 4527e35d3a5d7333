"""Columns, tables and facts of a recording; PyPy takes what needs neither NumPy nor _core."""
