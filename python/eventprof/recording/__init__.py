"""Recorders and counters, and their arguments. Imports no NumPy."""
