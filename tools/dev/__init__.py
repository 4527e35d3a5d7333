"""What ``./dev`` does: a file a verb, and what verbs share. Python's standard library is enough."""
