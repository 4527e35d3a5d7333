"""What all rooms share: arguments, sizes and times, new files, text. Imports no NumPy."""
