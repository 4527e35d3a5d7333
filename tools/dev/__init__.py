"""The verbs of ``./dev``, one file for each, and what they share. They need no other package."""
