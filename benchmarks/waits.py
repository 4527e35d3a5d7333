"""What it costs to record waits: where nobody waits, and where threads do.

    python benchmarks/waits.py [--rounds N] [--programs]

Each program runs bare, and while only waits are recorded, in turns; the ratio is that of the
shortest runs. An operation is what the program does in its loop. With --programs these are whole
ones: pyperformance's and a server with threads; and they are also run while calls are recorded,
with waits and without.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import json
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import measure
import workloads

import eventprof

WAITS = ("wait_begin", "wait", "waker", "wait_object", "pipe_write")


def lock() -> int:
    """A lock that is free."""
    one = threading.Lock()
    for _ in range(200_000):
        one.acquire()
        one.release()
    return 200_000


def with_lock() -> int:
    """The same by `with`."""
    one = threading.Lock()
    for _ in range(200_000):
        with one:
            pass
    return 200_000


def free_queue() -> int:
    """A queue that is never empty."""
    box: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(100_000):
        box.put(number)
        box.get()
    return 100_000


def ready_socket() -> int:
    """Bytes that are there when they are asked for."""
    here, there = socket.socketpair()
    with here, there:
        for _ in range(20_000):
            here.send(b"x")
            there.recv(1)
    return 20_000


def passed_on() -> int:
    """Two threads that pass a message on to each other, so that each waits every time."""
    boxes = queue.SimpleQueue[int](), queue.SimpleQueue[int]()

    def answer() -> None:
        for _ in range(5_000):
            boxes[1].put(boxes[0].get())

    thread = threading.Thread(target=answer)
    thread.start()
    for number in range(5_000):
        boxes[0].put(number)
        boxes[1].get()
    thread.join()
    return 5_000


def computing() -> int:
    """One thread that computes and never waits."""
    return len([json.loads(json.dumps({"numbers": list(range(50))})) for _ in range(3_000)])


PROGRAMS: tuple[Callable[[], int], ...] = (
    lock, with_lock, free_queue, ready_socket, computing, passed_on
)  # fmt: skip


def took(program: Callable[[], int]) -> tuple[float, int]:
    """Return the processor seconds of a run, and how many operations these were."""
    begun = time.process_time()
    count = program()
    return time.process_time() - begun, count


def server() -> Callable[[], None]:
    """Prepare a server with a thread for each of 8 clients, all of them in this process."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            text = json.dumps({"numbers": list(range(100))}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.server_port)
        for _ in range(20):
            connection.request("GET", "/")
            connection.getresponse().read()
        connection.close()

    def run() -> None:
        clients = [threading.Thread(target=ask) for _ in range(8)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()

    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    return run


def recorder(**options: bool) -> eventprof.Recorder:
    """Return a recorder that keeps what it has room for."""
    return eventprof.record(memory=False, on_full="overwrite", **options)


TOOLS: dict[str, Callable[[], object]] = {
    "bare": nullcontext,
    "waits": lambda: eventprof.record(events=WAITS, on_full="overwrite"),
    "calls": recorder,
    "calls and waits": lambda: recorder(waits=True),
}


def whole_programs(rounds: int) -> str:
    """Return a table: the ratios of the shortest runs, and quartiles of the rounds' own ratios."""
    rows = []
    for name, factory in {**workloads.PROGRAMS, "server": server}.items():
        run = factory()
        samples = measure.interleave(
            {tool: partial(measure.sample, make, run, 2) for tool, make in TOOLS.items()},
            rounds,
        )
        row = [name]
        for tool, base in (("waits", "bare"), ("calls and waits", "calls")):
            found = measure.ratio(samples, tool, base)
            row += ["{min:.3f}".format_map(found), "{lower:.3f}-{upper:.3f}".format_map(found)]
        rows.append(row)
        print("\t".join(row), flush=True)
    means = [measure.geometric_mean(float(row[column]) for row in rows) for column in (1, 3)]
    rows.append(["mean", f"{means[0]:.3f}", "", f"{means[1]:.3f}", ""])
    head = ["", "waits / bare", "quartiles", "calls with waits / without", "quartiles"]
    return measure.table(head, rows)


def main() -> None:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--programs", action="store_true", help="whole ones")
    options = parser.parse_args()
    rounds = options.rounds
    if options.programs:
        print(whole_programs(rounds))
        return
    print(f"{'':14}{'bare, ns':>10}{'added, ns':>11}{'ratio':>8}  an operation")
    for program in PROGRAMS:
        bare, recorded, count = [], [], 1
        for _ in range(rounds):
            seconds, count = took(program)
            bare.append(seconds)
            with eventprof.record(events=WAITS, on_full="overwrite"):
                recorded.append(took(program)[0])
        ns = 1e9 / count
        added = (min(recorded) - min(bare)) * ns
        print(
            f"{program.__name__:14}{min(bare) * ns:10.1f}{added:11.1f}"
            f"{min(recorded) / min(bare):8.3f}  {(program.__doc__ or '').splitlines()[0]}"
        )


if __name__ == "__main__":
    main()
