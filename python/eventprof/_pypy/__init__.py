"""eventprof on PyPy: the same recorder and tables in pure Python.

PyPy has no hooks for C extensions, so nothing of the C core is here. ``core`` replaces the
extension, ``log`` has the hook and its log, ``runtime`` the events of the compiler and of the
garbage collector, ``decode`` makes events and calls from logs, ``archive`` writes .epr files and
``reading`` reads them.
"""
