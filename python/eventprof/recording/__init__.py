"""Recorders, counters and the drop-in, and their arguments. Imports no NumPy."""
