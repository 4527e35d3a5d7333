"""A day of a service, compressed: what happens to a service that records itself for long. It must go on, and its files be true.

    service.py FOLDER [--hours 24] [--requests 400]

Each hour threads serve requests, a module is reloaded, a worker is forked, a few objects stay behind. The log is one
file for the day, a ring; each third hour somebody rotates it as ``copytruncate`` does (a copy, then the file is cut off
under the recorder), and a new recorder takes over; in the other hours it is renamed away, and is whole. Ends with 1 if
a file is wrong and does not say why, if what stays behind is not found, or if the recorder grows.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import eventprof

MIB = 1 << 20
LEAK_BYTES = 12347
kept: list[bytes] = []


def leaks() -> None:
    kept.append(bytes(LEAK_BYTES))


def request(number: int) -> int:
    answer = json.dumps({"number": number, "items": [{"n": n, "text": str(n)} for n in range(20)]})
    return len(json.loads(answer)["items"])


def serve(pool: concurrent.futures.Executor, requests: int) -> None:
    assert sum(pool.map(request, range(requests))) == 20 * requests
    brief = [threading.Thread(target=request, args=(n,)) for n in range(5)]
    for thread in brief:
        thread.start()
    for thread in brief:
        thread.join()


def fork_worker() -> None:
    child = os.fork()
    if child == 0:
        request(1)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def check(path: Path, was_cut: bool) -> list[str]:
    """What is wrong with a file that should be whole, or should say that it was cut."""
    try:
        trace = eventprof.open(path)
        found = trace.verify()
    except (eventprof.FormatError, OSError) as error:
        return [] if was_cut else [f"{path.name}: {error}"]
    if was_cut:
        says = trace.loss.reason == "cut" or trace.file["missing"]
        return [] if says else [f"{path.name}: was cut, and says nothing"]
    wrong = [] if found.ok else [f"{path.name}: {str(found)[:300]}"]
    if trace.file["missing"]:
        wrong.append(f"{path.name}: {trace.file['missing'][0]}")
    return wrong


def hour(number: int, folder: Path, pool: concurrent.futures.Executor, requests: int) -> list[str]:
    wrong = []
    path, cut = folder / f"hour-{number}.epr", number % 3 == 2
    recorder = eventprof.record(output=folder / "service-%p.epr", buffer="4 MiB", force=True)
    recorder.start()
    written = Path(recorder.output)
    serve(pool, requests)
    leaks()
    importlib.reload(sys.modules["json.decoder"])
    fork_worker()
    if cut:
        shutil.copyfile(written, path)  # of a program that lives: as whole as it happens to be
        os.truncate(written, 0)
        serve(pool, requests // 4)
        recorder.stop()
        wrong += check(written, True)
    else:
        recorder.stop()
        written.rename(path)
        wrong += check(path, False)
    # Its own trace is whole but for what was in the file.
    trace = recorder.trace
    if not trace.verify().ok:
        wrong.append(f"hour {number}: {str(trace.verify())[:300]}")
    found = dict(zip(trace.leaks()["name"].tolist(), trace.leaks()["bytes"].tolist(), strict=False))
    if not cut and not trace.loss and found.get("leaks", 0) < LEAK_BYTES:
        wrong.append(f"hour {number}: what was left behind is not among the leaks")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--requests", type=int, default=400)
    arguments = parser.parse_args()
    wrong: list[str] = []
    held = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for number in range(arguments.hours):
            wrong += hour(number, arguments.folder, pool, arguments.requests)
            held.append(eventprof._core.engine_stats()["bytes_mapped"])
    children = [
        path for path in arguments.folder.glob("service-*.epr") if str(os.getpid()) not in path.name
    ]
    for path in children:
        wrong += check(path, False)
    if len(children) != arguments.hours:
        wrong.append(f"{len(children)} files of {arguments.hours} forked workers")
    if held[-1] > held[0] + 8 * MIB:
        wrong.append(f"chunks held: {held[0] / MIB:.1f} -> {held[-1] / MIB:.1f} MiB")
    print(f"{arguments.hours} hours, {len(children)} workers, {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong else 0


sys.exit(main())
