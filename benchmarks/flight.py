"""What a flight recorder costs a service that answers requests of about a millisecond.

    python benchmarks/flight.py [--rounds 60] [--requests 20]

A request parses and writes JSON and searches it with a regular expression, by way of some own
functions. It is answered alone and under each recorder, in turns: with a watch around it, and by
way of the WSGI middleware, which gives it labels. The least processor time of the process, as a
ratio to that of no recorder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import tempfile
import time
from typing import Any

import eventprof

ROWS = [{"id": n, "name": f"name {n}", "values": [n / 3, n / 7]} for n in range(400)]
TEXT = json.dumps(ROWS)


def load(text: str) -> list[dict[str, Any]]:
    """Read the rows."""
    return json.loads(text)  # type: ignore[no-any-return]


def choose(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choose some rows by their names."""
    return [row for row in rows if matches(row["name"])]


def matches(name: str) -> bool:
    """Tell whether a name is wanted."""
    return re.search(r"name \d*[02468]$", name) is not None


def handle(text: str) -> str:
    """Answer a request."""
    return json.dumps(choose(load(text)))


def _recorders(folder: str) -> dict[str, eventprof.FlightRecorder | None]:
    def make(**options: Any) -> eventprof.FlightRecorder:
        return eventprof.flight_recorder("64 MiB", "10 s", folder=folder, **options)

    return {
        "none": None,
        "watches alone": make(calls=False, c_calls=False, memory=False),
        "own code": make(include=["__main__.*"], c_calls=False, memory=False),
        "own code, C calls": make(include=["__main__.*"], memory=False),
        "all calls": make(memory=False),
        "all calls and memory": make(),
    }


def serve(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Answer a request, as an application of WSGI."""
    start_response("200 OK", [])
    return [handle(environ["TEXT"]).encode()]


def _asked(app: Any) -> Any:
    def answer(text: str) -> Any:
        environ = {"TEXT": text, "REQUEST_METHOD": "GET", "PATH_INFO": "/rows"}
        return app(environ, lambda status, headers: None)

    return answer


def _time(flight: eventprof.FlightRecorder | None, middleware: bool, requests: int) -> int:
    answer: Any = _asked(serve) if middleware else handle
    with contextlib.nullcontext() if flight is None else flight:
        if flight is not None and middleware:
            answer = _asked(eventprof.WSGIMiddleware(serve, flight=flight, longer_than="10 s"))
        elif flight is not None:
            answer = flight.watch("request", longer_than="10 s")(handle)
        for _ in range(requests // 4):
            answer(TEXT)
        start = time.process_time_ns()
        for _ in range(requests):
            answer(TEXT)
        return time.process_time_ns() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--requests", type=int, default=20)
    given = parser.parse_args()
    best: dict[tuple[str, bool], int] = {}
    with contextlib.ExitStack() as stack:
        recorders = _recorders(stack.enter_context(tempfile.TemporaryDirectory()))
        for _ in range(given.rounds):
            for name, flight in recorders.items():
                for middleware in (False, True):
                    taken = _time(flight, middleware, given.requests)
                    key = name, middleware
                    best[key] = min(taken, best.get(key, taken))
    print(f"a request: {best['none', False] / given.requests / 1e6:.3f} ms alone")
    print(f"{'':22} {'watch':>10} {'middleware':>10}")
    for name in recorders:
        watch, middle = (best[name, by] / best["none", by] for by in (False, True))
        print(f"{name:22} {watch:10.3f} {middle:10.3f}")


if __name__ == "__main__":
    main()
