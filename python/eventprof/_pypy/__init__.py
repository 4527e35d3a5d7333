"""eventprof on PyPy: the same recorder and tables in pure Python.

PyPy has no hooks for C extensions, so nothing of the C core is here. ``core`` stands in for the
extension, ``log`` has the hook and what it writes, ``runtime`` what the compiler and the garbage
collector tell, ``decode`` makes events and calls of logs, ``archive`` writes and reads .epr files.
"""
