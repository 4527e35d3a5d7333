"""Answers from one pass over a recording: the tree of calls, own code, who held the lock, findings.

tree.py has the tree as arrays, own.py says what the user's own code is, table.py makes tables,
branches.py says what is shown of it; findings.py runs the rules of rules.py.
"""
