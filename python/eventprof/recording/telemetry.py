"""The ids of OpenTelemetry's active span, as labels: hooks/labels.c calls this."""

from __future__ import annotations

from types import ModuleType


def ids(trace: ModuleType) -> tuple[str, str] | None:
    """Return the trace's and the span's id as that library writes them; None: no span is active.

    Parameters
    ----------
    trace : module
        ``opentelemetry.trace``, which the program imported.
    """
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"
