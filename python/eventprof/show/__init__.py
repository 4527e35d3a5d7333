"""Traces as text for people: the report and the parts that it is drawn with."""

try:
    import rich  # noqa: F401 - every module of this folder draws with rich
except ModuleNotFoundError as error:
    if error.name != "rich":
        raise
    raise ModuleNotFoundError(
        "report() and str() of a trace need rich, which is not installed: pip install rich",
        name="rich",
    ) from None
