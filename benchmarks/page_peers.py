"""The page beside VizTracer's viewer and memray's temporal flame graph, in one headless Chromium.

    python benchmarks/page_peers.py [FILES] [--peers PYTHON]

Runs one program, which tokenizes, parses and dumps the standard library's first FILES modules (6),
under each tool, opens what each shows five times, each in a new browser, and prints: bytes, seconds
to record and write, the medians of when the first text or picture was there, of when all was shown
and the page was quiet, and of the heap of its script, and the time from one frame to the next while
keys zoom and move (16.7 ms: it keeps up with a display). PYTHON has viztracer and memray (without:
this one).

VizTracer's viewer is the Perfetto that it brings, behind ``vizviewer``: its HTML files load parts
from the network, and end with an error in a Chromium of today. What Perfetto holds beside the heap
of its script, in WebAssembly, is not counted. memray's picture has no time that keys move along: it
has no frames here.

Times of a busy machine say little: the load is printed first.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python/page"))

from browser import Browser

PROGRAM = """
import ast, io, sys, tokenize
for name in sys.argv[1:]:
    with open(name, errors="replace") as file:
        source = file.read()
    list(tokenize.generate_tokens(io.StringIO(source).readline))
    ast.dump(ast.parse(source))
"""
#: What is true in each page that shows the recording.
SHOWN = {
    "eventprof": "window.eventprofPage?.app.finished",
    "viztracer": "document.body?.innerText.includes('MainThread')",
    "memray": "document.querySelector('svg rect') && document.querySelector('.d3-flame-graph')",
}
#: When the page showed the recording, until when it had tasks of 50 ms or more, its frames.
WATCH = """
window.shownAt = 0;
const ask = setInterval(() => {
  if (!(SHOWN)) return;
  clearInterval(ask);
  window.shownAt = performance.now();
}, 20);
window.busyUntil = 0;
new PerformanceObserver((list) => {
  for (const {startTime, duration} of list.getEntries()) window.busyUntil = startTime + duration;
}).observe({type: "longtask", buffered: true});
window.frameTimes = [];
(function next(time) { window.frameTimes.push(time); requestAnimationFrame(next); })(0);
"""
QUIET = 3.0  # seconds without a long task: it is open
PORT = 9417
LOADS = 5
LONGEST = 120.0


def run(folder: Path, *command: str) -> float:
    """Run a command; give its seconds."""
    before = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before


def make(folder: Path, peers: str, files: Sequence[str]) -> dict[str, tuple[float, Path]]:
    """Record the program with each tool; give the seconds, and the file, of each."""
    program = ("program.py", *files)
    (folder / "program.py").write_text(PROGRAM)
    made = {}
    seconds = run(folder, sys.executable, "-m", "eventprof", "run", "-q", "-o", "e.epr", *program)
    seconds += run(folder, sys.executable, "-m", "eventprof", "view", "e.epr", "-o", "e.html")
    made["eventprof"] = seconds, folder / "e.html"
    viztracer = ("--quiet", "--tracer_entries", "20000000", "-o", "v.json", "--")
    seconds = run(folder, peers, "-m", "viztracer", *viztracer, *program)
    made["viztracer"] = seconds, folder / "v.json"
    memray = ("--quiet", "--trace-python-allocators", "-f", "-o", "m.bin")
    seconds = run(folder, peers, "-m", "memray", "run", *memray, *program)
    flame = ("flamegraph", "--temporal", "--no-web", "-f", "-o", "m.html", "m.bin")
    seconds += run(folder, peers, "-m", "memray", *flame)
    made["memray"] = seconds, folder / "m.html"
    return made


@contextlib.contextmanager
def address(peers: str, page: Path) -> Iterator[str]:
    """Return where a file is shown; VizTracer's by its server."""
    if page.suffix != ".json":
        yield page.resolve().as_uri()
        return
    command = [peers, "-m", "viztracer.viewer", "--server_only", "-p", str(PORT), str(page)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + LONGEST
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{PORT}/"
    finally:
        server.terminate()
        server.wait()


def opened(browser: Browser, where: str) -> tuple[float, float, float]:
    """Open a page; give the seconds until something was shown and all was, and the heap's MB."""
    time.sleep(1)  # the browser's own start is not the page's
    browser.go("about:blank")
    browser.call("Page.navigate", url=where)
    browser.wait(
        f"window.shownAt && performance.now() - Math.max(shownAt, busyUntil) > {QUIET * 1000}",
        LONGEST,
    )
    first = browser.run(
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
    )
    last = browser.run("Math.max(shownAt, busyUntil)")
    heap = browser.run("performance.memory.usedJSHeapSize")
    return (first or float("nan")) / 1e3, last / 1e3, heap / 1e6


def frames(browser: Browser) -> tuple[float, float]:
    """Zoom and move by keys; give the median and the 95th percentile from frame to frame, ms."""
    browser.run("frameTimes.length = 0")
    for key in "wwwwdddaaassss" * 4:
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=f"Key{key.upper()}",
                windowsVirtualKeyCode=ord(key.upper()),
                **({"text": key} if kind == "keyDown" else {}),
            )
        browser.run("new Promise(requestAnimationFrame)")
    times = browser.run("frameTimes")
    between = sorted(b - a for a, b in itertools.pairwise(times))
    return between[len(between) // 2], between[len(between) * 95 // 100]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="?", type=int, default=6)
    parser.add_argument("--peers", default=sys.executable, help="a Python with viztracer, memray")
    given = parser.parse_args()
    files = [str(path) for path in sorted(Path(os.__file__).parent.glob("*.py"))[: given.files]]
    print(f"{len(files)} files, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("             MB    made   first     all   heap  frames: median, 95 %")
    with tempfile.TemporaryDirectory() as name:
        pages = make(Path(name), given.peers, files)
        for tool, (seconds, page) in pages.items():
            watch = WATCH.replace("SHOWN", SHOWN[tool])
            loads = []
            times = float("nan"), float("nan")
            with address(given.peers, page) as where:
                for _ in range(LOADS):
                    browser = Browser(1920, 1080)
                    try:
                        browser.call("Page.addScriptToEvaluateOnNewDocument", source=watch)
                        loads.append(opened(browser, where))
                        if tool != "memray":
                            times = frames(browser)
                    finally:
                        browser.close()
            first, last, heap = map(statistics.median, zip(*loads, strict=True))
            median, most = times
            print(
                f"{tool:9} {page.stat().st_size / 1e6:6.1f} {seconds:5.1f} s {first:5.2f} s "
                f"{last:5.2f} s {heap:4.0f} MB {median:6.1f} {most:6.1f} ms"
            )


if __name__ == "__main__":
    main()
