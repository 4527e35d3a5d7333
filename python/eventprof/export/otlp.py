"""OpenTelemetry spans, one for each call, encoded by OpenTelemetry's own library."""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING, Any

from .._optional import require
from ._view import utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View

_SPANS_AT_A_TIME = 4096
_RAISED = 8


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write one ExportTraceServiceRequest, in parts: protobuf messages can be concatenated."""
    sdk = require("opentelemetry.sdk.trace", "otlp", "OTLP")
    encoder = require("opentelemetry.exporter.otlp.proto.common.trace_encoder", "otlp", "OTLP")
    maker = _Maker(view, sdk)
    for first in range(0, len(view), _SPANS_AT_A_TIME):
        if view.progress is not None:
            view.progress(first, len(view))
        rows = range(first, min(first + _SPANS_AT_A_TIME, len(view)))
        out.write(encoder.encode_spans([maker.span(row) for row in rows]).SerializeToString())
    if view.has_memory:
        options.notes.append("OTLP has bytes as attributes of spans, and no curve of memory")


class _Maker:
    def __init__(self, view: View, sdk: Any) -> None:
        api = require("opentelemetry.trace", "otlp", "OTLP")
        resources = require("opentelemetry.sdk.resources", "otlp", "OTLP")
        scopes = require("opentelemetry.sdk.util.instrumentation", "otlp", "OTLP")
        self._view, self._sdk, self._api = view, sdk, api
        metadata = view.trace.metadata
        self._start = int(metadata["start_ns"])
        # The id depends only on the recording: a second export has the same id.
        seed = f"{metadata.get('hostname')} {view.process} {self._start}".encode()
        digest = hashlib.sha256(seed).digest()
        self._trace_id = int.from_bytes(digest[:16], "big") or 1
        self._first_span = int.from_bytes(digest[16:24], "big") >> 1
        self._resource = resources.Resource(
            {
                "service.name": view.title,
                "process.pid": view.process,
                "host.name": str(metadata.get("hostname") or ""),
                **({"eventprof.loss": view.loss} if view.loss else {}),
            }
        )
        self._scope = scopes.InstrumentationScope("eventprof")
        self._memory = view.memory if view.has_memory else None
        self._flags = view.take("flags")
        self._line = view.line
        self._ok = api.Status(api.StatusCode.UNSET)
        self._failed = api.Status(api.StatusCode.ERROR, "raised")

    def _context(self, row: int) -> Any:
        return self._api.SpanContext(
            self._trace_id, (self._first_span + row) % ((1 << 64) - 1) + 1, is_remote=False
        )

    def span(self, row: int) -> Any:
        """Return the span of one of the chosen calls."""
        view = self._view
        function, parent, line = (
            int(column[row]) for column in (view.function, view.parent, self._line)
        )
        thread = int(view.thread[row])
        attributes: dict[str, Any] = {
            "thread.id": view.thread_ids[thread],
            "thread.name": utf8(view.thread_names[thread]).decode(),
        }
        file, first_line = view.files[function], view.first_lines[function]
        if file is not None:
            attributes["code.file.path"] = utf8(file).decode()
        if first_line is not None:
            attributes["code.line.number"] = first_line
        if line >= 0:
            attributes["eventprof.caller_line"] = line
        if self._memory is not None:
            attributes["eventprof.allocated"] = int(self._memory[0][row])
            attributes["eventprof.freed"] = int(self._memory[1][row])
        return self._sdk.ReadableSpan(
            utf8(view.names[function]).decode(),
            context=self._context(row),
            parent=self._context(parent) if parent >= 0 else None,
            resource=self._resource,
            attributes=attributes,
            status=self._failed if self._flags[row] & _RAISED else self._ok,
            start_time=self._start + int(view.start[row]),
            end_time=self._start + int(view.start[row] + view.duration[row]),
            instrumentation_scope=self._scope,
        )
