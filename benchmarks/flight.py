"""What a flight recorder costs a service that answers requests of about a millisecond.

    python benchmarks/flight.py [--rounds 60] [--requests 20] [--steady SECONDS]

A request parses and writes JSON and searches it with a regular expression, by way of some own
functions. It is answered alone and under each recorder, in turns: with a watch around it, and by
way of the WSGI middleware, which gives it labels. The table has the processor time of a request, as
a ratio to that of no recorder in the same run: of all requests the time that a tenth stays below,
because what disturbs a busy machine only adds.

--steady answers requests for so long, with a file each second, and prints what memory the recorder
has by its own accounting, which each file has, and what the process has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
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
    """Return whether a name is wanted."""
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
        "own code, few calls": make(
            include=["__main__.*"], exclude=["__main__.matches"], c_calls=False, memory=False
        ),
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


def _time(flight: eventprof.FlightRecorder | None, middleware: bool, requests: int) -> list[int]:
    answer: Any = _asked(serve) if middleware else handle
    with contextlib.nullcontext() if flight is None else flight:
        if flight is not None and middleware:
            answer = _asked(eventprof.WSGIMiddleware(serve, flight=flight, longer_than="10 s"))
        elif flight is not None:
            answer = flight.watch("request", longer_than="10 s")(handle)
        for _ in range(requests // 4):
            answer(TEXT)
        taken = []
        for _ in range(requests):
            start = time.thread_time_ns()
            answer(TEXT)
            taken.append(time.thread_time_ns() - start)
        return taken


_READ = """import eventprof, sys
resident = eventprof.open(sys.argv[1]).resident
print(int(resident["recorder"].max()))"""


def _anonymous() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def steady(seconds: float) -> None:
    """Answer requests with a file each second; print the memory ten times."""
    with tempfile.TemporaryDirectory() as folder:
        flight = eventprof.flight_recorder(
            "16 MiB", "5 s", folder=folder, keep=3, pause="1 s", include=["__main__.*"],
            c_calls=False, memory=False,
        )  # fmt: skip
        answer = flight.watch("request", longer_than=0)(handle)
        answered = 0
        print("seconds  requests  files  recorder's own  process, anonymous")
        with flight:
            began = time.monotonic()
            for tenth in range(1, 11):
                while time.monotonic() < began + seconds * tenth / 10:
                    answer(TEXT)
                    answered += 1
                    time.sleep(0.002)
                flight.wait()
                number = int(flight.written[-1].path.split("-")[-2])
                # Another process reads the file: what that takes is not the recorder's.
                read = subprocess.run(
                    [sys.executable, "-c", _READ, flight.written[-1].path],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                own, held = int(read.stdout) / 2**20, _anonymous() / 2**20
                passed = time.monotonic() - began
                print(f"{passed:7.0f} {answered:9,} {number:6} {own:11.2f} MiB {held:15.1f} MiB",
                      flush=True)  # fmt: skip
        assert not flight.errors, flight.errors


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--steady", type=float, metavar="SECONDS")
    given = parser.parse_args()
    if given.steady:
        steady(given.steady)
        return
    taken: dict[tuple[str, bool], list[int]] = {}
    with contextlib.ExitStack() as stack:
        recorders = _recorders(stack.enter_context(tempfile.TemporaryDirectory()))
        for _ in range(given.rounds):
            for name, flight in recorders.items():
                for middleware in (False, True):
                    times = _time(flight, middleware, given.requests)
                    taken.setdefault((name, middleware), []).extend(times)
    best = {key: sorted(times)[len(times) // 10] for key, times in taken.items()}
    print(f"a request: {best['none', False] / 1e6:.3f} ms alone")
    print(f"{'':22} {'watch':>10} {'middleware':>10}")
    for name in recorders:
        watch, middle = (best[name, by] / best["none", by] for by in (False, True))
        print(f"{name:22} {watch:10.3f} {middle:10.3f}")


if __name__ == "__main__":
    main()
