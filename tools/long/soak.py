"""Records at full rate in a ring for long: the process must not grow. ``./dev soak`` runs it for an hour.

    soak.py [--seconds 3600 | --rounds N | --threads N] [--plain] [--file FOLDER]

A round is the same work each time: calls and blocks, 50 short threads, a second recorder that starts, stops
and is read, functions that are made and thrown away. What may grow are names and threads: each function keeps
its code and its text for the life of the process, so that a trace can name it, and each thread its row and its
losses by kind; a round makes as many as it says, and their cost is bounded, too. Ends with 1 if what is in use
grew by more than the bound from the middle to the end.

--plain makes no functions and no threads but the four that it has from the start: nothing may grow.

--threads makes nothing but short threads, as fast as the machine can: 30,000 are 500 a second for a minute. Their
logs and chunks must have been given back.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import ctypes
import gc
import os
import sys
import threading
import time

import eventprof

MIB = 1 << 20
THREADS = 50
FUNCTIONS = 10
# Names, code objects and what malloc() makes of them; measured: 1.8 KiB.
BYTES_A_FUNCTION = 2 << 10
# Its description, its name, and what each recorder lost of it; measured: 1.8 KiB.
BYTES_A_THREAD = 2 << 10
BOUND = 8 * MIB
# What malloc() holds free is no growth: reading a recorder takes as much as there were threads, for a moment.
trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def resident() -> int:
    """Without the pages of files: those of the log are in the page cache, and the system's to keep."""
    if trim is not None:
        trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def callee(n):
    return [n, str(n)]


def calls(count):
    for n in range(count):
        callee(n)


def plain_round(pool):
    others = [pool.submit(calls, 20_000) for _ in range(3)]
    calls(20_000)
    for other in others:
        other.result()
    with eventprof.record(memory=False, buffer="1 MiB", on_full="stop") as rec:
        calls(50)
    assert len(rec.trace.calls) > 50


def one_round(number):
    threads = [threading.Thread(target=calls, args=(20,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    calls(20_000)
    for thread in threads:
        thread.join()
    for n in range(FUNCTIONS):
        scope: dict = {}
        exec(f"def made_{number}_{n}(): return {n}", scope)
        assert scope[f"made_{number}_{n}"]() == n
    with eventprof.record(memory=False, buffer="1 MiB", on_full="stop") as rec:
        calls(50)
    assert len(rec.trace.calls) > 50


def short_threads(count: int) -> None:
    """One after the other, of which ten are alive at most."""
    alive: collections.deque[threading.Thread] = collections.deque()
    for _ in range(count):
        thread = threading.Thread(target=calls, args=(20,))
        thread.start()
        alive.append(thread)
        if len(alive) == 10:
            alive.popleft().join()
    for thread in alive:
        thread.join()


def many_threads(count: int, output: str | None) -> int:
    """Ends with 1 if logs, chunks or memory stay behind."""
    ring = 64
    recorder = eventprof.record(buffer=f"{ring} MiB", output=output)
    with recorder:
        # Until the ring is full, it grows.
        while recorder.snapshot().loss.total == 0:
            short_threads(50)
            calls(20_000)
        gc.collect()
        before, from_bytes = recorder.stats, resident()
        begun = time.monotonic()
        short_threads(count)
        seconds = time.monotonic() - begun
        gc.collect()
        after, to_bytes = recorder.stats, resident()
    made = after["threads"] - before["threads"]
    grown = to_bytes - from_bytes
    allowed = BOUND + count * BYTES_A_THREAD
    print(
        f"{count} short threads in {seconds:.1f} s, {count / seconds:.0f} a second; logs {before['logs']} -> "
        f"{after['logs']}, chunks {before['all_chunk_bytes'] / MIB:.1f} -> {after['all_chunk_bytes'] / MIB:.1f} MiB in memory, "
        f"{before['chunk_bytes'] / MIB:.1f} -> {after['chunk_bytes'] / MIB:.1f} kept; resident {from_bytes / MIB:.1f} -> {to_bytes / MIB:.1f} MiB, "
        f"{grown / count:.0f} bytes a thread; allowed {allowed / MIB:+.1f} MiB"
    )
    return int(
        made < count
        or after["logs"] > before["logs"] + 32
        # Chunks have 4 KiB to 1 MiB.
        or after["all_chunk_bytes"] > (ring + 32) * MIB
        or after["chunk_bytes"] > (ring + 1) * MIB
        or grown > allowed
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--file", help="a folder: the ring is a file there")
    arguments = parser.parse_args()
    output = os.path.join(arguments.file, "soak.epr") if arguments.file else None
    if arguments.threads:
        return many_threads(arguments.threads, output)
    samples: list[tuple[int, int]] = []
    number = 0
    recorder = eventprof.record(buffer="64 MiB", output=output)
    with recorder, concurrent.futures.ThreadPoolExecutor(3) as pool:

        def another_round():
            if arguments.plain:
                plain_round(pool)
            else:
                one_round(number)

        # Until the ring is full, it grows: a round is 6 MiB of records and more.
        while number < 30:
            another_round()
            number += 1
        gc.collect()
        first = number
        begun = time.monotonic()
        while (
            number - first < arguments.rounds
            if arguments.rounds
            else time.monotonic() - begun < arguments.seconds
        ):
            another_round()
            number += 1
            if (number - first) % 10 == 0:
                gc.collect()
                samples.append((number, resident()))
    seconds = time.monotonic() - begun
    half = samples[len(samples) // 2 :]
    # The least of each quarter: what a collector holds for a moment is no growth.
    quarter = max(len(half) // 2, 1)
    from_round, from_bytes = min(half[:quarter], key=lambda sample: sample[1])
    to_round, to_bytes = min(half[-quarter:], key=lambda sample: sample[1])
    grown = to_bytes - from_bytes
    threads = 0 if arguments.plain else THREADS
    a_round = 0 if arguments.plain else FUNCTIONS * BYTES_A_FUNCTION + THREADS * BYTES_A_THREAD
    allowed = BOUND + (to_round - from_round) * a_round
    print(
        f"{number - first} rounds in {seconds:.0f} s, {(number - first) * threads / seconds:.0f} threads a second, "
        f"{recorder.trace.loss.total / 1e6:.0f} M events overwritten, "
        f"{recorder.trace.loss.total / seconds / 1e6:.1f} M a second; resident {from_bytes / MIB:.1f} -> "
        f"{to_bytes / MIB:.1f} MiB in {to_round - from_round} rounds of the second half, {grown / MIB:+.1f} MiB; "
        f"allowed {allowed / MIB:.1f}"
    )
    return 0 if grown <= allowed and recorder.trace.loss.total > 0 else 1


sys.exit(main())
