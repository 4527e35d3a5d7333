"""What the user starts and stops: arguments, recorders, counters, the drop-in. Loads no NumPy."""
