"""Tests of the package on PyPy: pytest tests/pypy, by PyPy; elsewhere they are not collected."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))  # programs.py

collect_ignore_glob = [] if sys.implementation.name == "pypy" else ["test_*.py"]
