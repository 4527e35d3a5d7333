"""Traces as text for people: the report and what it is drawn of."""
