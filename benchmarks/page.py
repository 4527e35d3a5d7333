"""What the page of a large recording takes: its size, and the time to write, open and draw it.

    python benchmarks/page.py [FILES]

Records the standard library's first FILES modules being tokenized, parsed and dumped (60), writes
the page, and opens it in a headless Chromium, several times. Times of a busy machine say little:
the load is printed first.
"""

from __future__ import annotations

import ast
import io
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import tokenize
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python/page"))

from browser import Browser

import eventprof

LOADS = 7  # each in a new browser
ZOOMS = (1, 10, 100, 1_000, 10_000, 100_000)
FRAMES = """
(() => {
  const {app, data, update, flush} = eventprofPage;
  update({tab: "call"});
  flush();
  return ZOOMS.map((zoom) => {
    const times = [];
    for (let k = 0; k < 100; k++) {
      const v0 = data.duration * (zoom === 1 ? k / 400 : 0.3 + k / zoom / 100);
      update({v0, v1: v0 + data.duration / zoom * (zoom === 1 ? 0.7 : 1)});
      const before = performance.now();
      flush();
      times.push(performance.now() - before);
    }
    times.sort((a, b) => a - b);
    return [zoom, times[0], times[50], times[95]];
  });
})()
"""

TIMED = """
(({update, flush, sums, data}) => {
  const before = performance.now();
  WHAT;
  flush();
  return performance.now() - before;
})(eventprofPage)
"""


def work(files: list[Path]) -> None:
    for path in files:
        source = path.read_text(errors="replace")
        list(tokenize.generate_tokens(io.StringIO(source).readline))
        ast.dump(ast.parse(source))


def open_in(browser: Browser, page: Path, marks: dict[str, list[float]]) -> None:
    """Open the page, and add the seconds until its pictures to `marks`."""
    time.sleep(1)  # the browser's own start is not the page's
    browser.open(page)
    for name, times in marks.items():
        start_ms = browser.run(f"performance.getEntriesByName({name!r})[0].startTime")
        times.append(start_ms / 1000)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    files = sorted(Path(os.__file__).parent.glob("*.py"))[:count]
    with eventprof.record(buffer="8 GiB") as rec:
        work(files)
    trace = rec.trace
    calls, blocks = len(trace.calls), len(trace.allocations)
    _ = trace.functions["self"]
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    print(f"{calls:,} calls, {blocks:,} blocks, {load}")
    with tempfile.TemporaryDirectory() as folder:
        for grain in (32, 1):
            page = Path(folder) / "page.html"
            before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            trace.show(page, grain=grain, force=True)
            after = resource.getrusage(resource.RUSAGE_SELF)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"grain {grain:2} ns: {page.stat().st_size / 1e6:.1f} MB, written in "
                f"{time.perf_counter() - wall:.1f} s, {spent:.1f} s of the processor"
            )
        marks: dict[str, list[float]] = {"first": [], "whole": []}
        for _ in range(LOADS - 1):
            browser = Browser(1920, 1080)
            try:
                open_in(browser, page, marks)
            finally:
                browser.close()
        browser = Browser(1920, 1080)
        try:
            open_in(browser, page, marks)
            for name, times in marks.items():
                shown = f"least {min(times):.2f}, median {statistics.median(times):.2f} s"
                print(f"{name} picture after: {shown}, of {LOADS}")
            print(f"heap: {browser.run('performance.memory.usedJSHeapSize') / 1e6:.0f} MB")
            for zoom, *times in browser.run(FRAMES.replace("ZOOMS", json.dumps(ZOOMS))):
                fastest, median, most = (f"{each:5.1f}" for each in times)
                print(f"frame, zoom {zoom:7,}: least {fastest}, median {median}, 95 % {most} ms")
            for what, expression in (
                ("flame graph of time", "update({tab: 'flame'})"),
                ("flame graph of the peak", "update({tab: 'flame', unit: 'live'})"),
                ("sums of the whole run", "sums(0, data.duration)"),
            ):
                spent = browser.run(TIMED.replace("WHAT", expression))
                print(f"{what}: {spent:.0f} ms")
            assert browser.console == [], browser.console
        finally:
            browser.close()


if __name__ == "__main__":
    main()
