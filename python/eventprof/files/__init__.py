"""Traces in files: opened, saved, followed while they are written, merged; folders of families."""
