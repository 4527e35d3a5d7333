"""Traces as text for people: the report and what it is drawn of."""

try:
    import rich  # noqa: F401 - all of this folder is drawn by it
except ModuleNotFoundError as error:
    if error.name != "rich":
        raise
    raise ModuleNotFoundError(
        "report() and str() of a trace need rich, which is not installed: pip install rich",
        name="rich",
    ) from None
