"""Programs that use packages, recorded, and their recordings replayed: `regression.py --applications` runs it.

    applications.py [--results DIR] [--limit SECONDS] [NAME...]    those whose packages are installed
    applications.py --page                                         writes the part of doc/regression.rst

Each program calls much from C: threads of pools, compiled methods, code made at run time, processes. It runs three
times. Without eventprof; by `eventprof run` with calls and memory: it must end, and print, as without, and `eventprof
verify` must find nothing wrong. And beside three recorders in its process (`TOGETHER`): one that keeps everything, a ring
that is too small, and one with filters.

The recordings of the last run are then replayed by replay.py, in plain Python from their events: calls, blocks,
functions, the curve and the peak, the tree, own lines, tenures and waiting, as the file's folds and as its columns have
them; what is left in the ring, from the calls that are open there, and its loss; what a filter leaves; sums of two
merged recordings; and `between`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FREE = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""  # as in 3.13t
VERSION = "{}.{}{}".format(*sys.version_info[:2], FREE)

PROGRAMS = {
    "scikit-learn": """
import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
X = np.random.RandomState(0).rand(500, 10)
y = (X.sum(1) > 5).astype(int)
print(RandomForestClassifier(n_estimators=20, n_jobs=2, random_state=0).fit(X, y).score(X, y))
print(round(RandomForestRegressor(n_estimators=10, n_jobs=2, random_state=0).fit(X, X.sum(1)).score(X, X.sum(1)), 3))
print(round(KMeans(3, random_state=0, n_init=2).fit(X).inertia_, 4))
print(GridSearchCV(LogisticRegression(), {"C": [.1, 1]}, n_jobs=2, cv=2).fit(X, y).best_params_)
""",
    "lightgbm": """
import numpy, lightgbm
generator = numpy.random.RandomState(0)
x = generator.rand(500, 10)
y = (x.sum(axis=1) > 5).astype(int)
seen = []
def squares(truth, predicted):
    return predicted - truth, numpy.ones_like(truth)
model = lightgbm.LGBMRegressor(n_estimators=20, n_jobs=2, verbose=-1, objective=squares)
model.fit(x, y.astype(float), eval_set=[(x, y)], callbacks=[lambda env: seen.append(env.iteration)])
print(len(seen), round(float(model.predict(x)[0]), 2))
model = lightgbm.LGBMClassifier(n_estimators=20, n_jobs=2, verbose=-1).fit(x, y)
print(round(model.score(x, y), 2))
""",
    "numba": """
import threading, numba, numpy
@numba.njit(nogil=True)
def total(values):
    result = 0.0
    for value in values:
        result += value
    return result
@numba.vectorize
def double(value):
    return value * 2
@numba.cfunc("float64(float64)")
def half(value):
    return value / 2
print(total(numpy.arange(10.0)), double(numpy.arange(3)), half.ctypes(3.0))
sums = {}
def work(n):
    sums[n] = sum(total(numpy.arange(float(k))) for k in range(200))
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sums[0] == sums[1] == sums[2], sums[0])
""",
    "torch": """
import threading, torch
torch.manual_seed(0)
torch.set_num_threads(2)
class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return 2 * x * gradient
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
calls = []
model.register_full_backward_hook(lambda *args: calls.append(threading.get_ident()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.rand(64, 8), torch.rand(64, 1))
for epoch in range(3):
    for x, y in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2 * (epoch == 1)):
        optimizer.zero_grad()
        loss = Double.apply(model(x) - y).mean()
        loss.backward()
        optimizer.step()
print(len(calls), bool(loss < 1))
""",
    "django": """
import threading
import django
from django.conf import settings
settings.configure(
    DEBUG=False, SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}], INSTALLED_APPS=[],
)
django.setup()
from django.db import connection, models
from django.http import HttpResponse
from django.template import engines
from django.test import Client
from django.urls import path
class Article(models.Model):
    name = models.CharField(max_length=40)
    price = models.FloatField()
    class Meta:
        app_label = "shop"
with connection.schema_editor() as editor:
    editor.create_model(Article)
Article.objects.bulk_create(Article(name=f"article {n}", price=n * 1.5) for n in range(200))
template = engines["django"].from_string("{% for a in all %}{{ a.name|upper }}: {{ a.price|floatformat:2 }} {% endfor %}")
def search(request):
    found = Article.objects.filter(price__gt=float(request.GET["above"])).order_by("-price")[:20]
    return HttpResponse(template.render({"all": list(found)}))
async def health(request):
    return HttpResponse("well")
def broken(request):
    raise ValueError("on purpose")
urlpatterns = [path("search", search), path("health", health), path("broken", broken)]
client = Client(raise_request_exception=False)
print(sum(len(client.get("/search", {"above": n}).content) for n in range(60)))
import logging
logging.disable()
print([client.get(where).status_code for where in ("/health", "/broken", "/nothing")])
def work():
    found.append([Client().get("/health").content for _ in range(10)][-1])
found = []
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(found)
""",
    "celery": """
import logging, threading, time
from celery import Celery, chain, group
app = Celery("work", broker="memory://", backend="cache+memory://")
app.conf.update(worker_hijack_root_logger=False, task_serializer="json", broker_connection_retry_on_startup=True)
@app.task
def add(a, b):
    return a + b
@app.task(bind=True, max_retries=2, default_retry_delay=0)
def fails(self, n):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return n * 2
logging.disable()
from celery.contrib.testing.worker import start_worker
with start_worker(app, pool="threads", concurrency=3, perform_ping_check=False, shutdown_timeout=60):
    print(sum(task.get(timeout=120) for task in [add.delay(n, n) for n in range(60)]))
    print(group(add.s(n, 1) for n in range(10)).apply_async().get(timeout=120))
    print(fails.delay(4).get(timeout=120), chain(add.s(1, 2), add.s(3)).apply_async().get(timeout=120))
""",
    "ray": """
import logging, os, sys
os.environ["RAY_DEDUP_LOGS"] = "0"
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
@ray.remote
def square(n):
    return sum(k * k for k in range(n))
@ray.remote
class Counter:
    def __init__(self):
        self.n = 0
    def add(self, n):
        self.n += n
        return self.n
print(ray.get([square.remote(n) for n in range(40)])[-1])
counter = Counter.remote()
print(ray.get([counter.add.remote(n) for n in range(20)])[-1])
ray.shutdown()
""",
    "duckdb": """
import threading, duckdb, numpy, pandas
frame = pandas.DataFrame({"a": numpy.arange(4000), "b": numpy.arange(4000) % 7})
connection = duckdb.connect()
connection.execute("set threads = 3")
def third(x: int) -> int:
    return x // 3
connection.create_function("third", third)
print(connection.sql("select b, sum(third(a)) as s from frame group by b order by b").fetchall())
print(connection.sql("select * from frame where a > 100").df().sum().tolist(), connection.sql("select a from frame").fetchnumpy()["a"].sum())
found = {}
def work(n):
    found[n] = connection.cursor().execute("select sum(range) from range(1000)").fetchone()[0]
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(found.items()))
""",
    "polars": """
import polars
frame = polars.DataFrame({"a": range(1000), "b": [number % 7 for number in range(1000)]})
print(frame.lazy().group_by("b").agg(polars.col("a").sum()).sort("b").collect().shape)
print(frame.select(polars.col("a").map_elements(lambda value: value * 2, return_dtype=polars.Int64)).sum().item())
print(frame.group_by("b").map_groups(lambda part: part.select(polars.col("a").max(), polars.col("b").first())).sort("b")["a"].to_list())
print(frame.lazy().map_batches(lambda part: part.with_columns(a=polars.col("a") + 1)).collect()["a"].sum())
""",
    "pandas": """
import io, pandas
frame = pandas.DataFrame({"a": range(1000), "b": [number % 7 for number in range(1000)]})
print(frame.groupby("b").a.agg(["sum", "mean"]).merge(frame, on="b").shape)
print(pandas.read_csv(io.StringIO(frame.to_csv(index=False))).apply(lambda row: row.a + row.b, axis=1).sum())
""",
    "grpcio": """
import concurrent.futures, grpc
class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request[::-1])
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[Handler()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    call = channel.unary_unary("/a/b")
    print([call(b"text", timeout=60) for _ in range(400)][0])
server.stop(None).wait()
""",
}

# Runs a program beside three recorders: argv is the program, and where the recordings go. What it imports first is
# imported before, so that the recordings are short enough for a replay in Python.
TOGETHER = """
import ast, runpy, sys
import eventprof
program, whole, ring, chosen = sys.argv[1:]
sys.argv[1:] = []
tree = ast.parse(open(program).read())
for node in tree.body:
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        break
    exec(compile(ast.Module([node], []), program, "exec"), {})
recorders = [
    eventprof.record(output=whole, on_full="stop", buffer="2 GiB"),
    eventprof.record(buffer="1 MiB", on_full="overwrite"),
    eventprof.record(exclude=["*/site-packages/*", "<frozen*"], max_depth=12, buffer="2 GiB", on_full="stop"),
]
recorders[1]._warns = False
with recorders[0]:
    with recorders[1]:
        with recorders[2]:
            runpy.run_path(program, run_name="__main__")
recorders[1].trace.save(ring)
recorders[2].trace.save(chosen)
"""


def run(name: str, limit_s: float) -> dict[str, Any]:
    """Run an application without eventprof and with it, and replay what was recorded."""
    with tempfile.TemporaryDirectory(prefix="eventprof-application-") as work:
        program = Path(work, "program.py")
        program.write_text(PROGRAMS[name].lstrip())
        Path(work, "together.py").write_text(TOGETHER.lstrip())
        paths = [
            os.fspath(Path(work, f"{word}.epr")) for word in ("program", "whole", "ring", "chosen")
        ]

        def ended(*command: str) -> tuple[str, str]:
            done = subprocess.run(
                [sys.executable, *command],
                capture_output=True,
                text=True,
                timeout=limit_s,
                cwd=work,
                check=False,
                env={
                    **os.environ,
                    "PYTHONPATH": os.fspath(ROOT / "tests" / "python" / "helpers"),
                    "TMPDIR": work,
                },
            )
            return f"exit {done.returncode}, {done.stdout}", done.stderr

        began = time.monotonic()
        bare, _ = ended("program.py")
        middle = time.monotonic()
        ours, output = ended(
            "-m", "eventprof", "run", "--buffer", "2 GiB", "-o", paths[0], "program.py"
        )
        family = Path(work, "program.epd")
        recording = family if family.is_dir() else Path(paths[0])
        seconds = [round(middle - began, 1), round(time.monotonic() - middle, 1)]
        verified, _ = ended("-m", "eventprof", "verify", os.fspath(recording))
        beside, beside_said = ended("together.py", "program.py", *paths[1:])
        replayed, complaints = ended("-m", "replay_together", *paths[1:])
    # The path of the recording, and how long it took, are those of this run.
    found = re.sub(r"^exit \d+, \S*program\.ep[rd]: ", "", verified).strip()
    result = re.search(r"^exit \d+, (\{.*\})$", replayed, re.M)
    return {
        "application": name,
        "version": importlib.metadata.version(name),
        "python": platform.python_version() + FREE,
        "same": bare == ours == beside and bare.startswith("exit 0"),
        "found": found,
        "seconds": seconds,
        "recorded": output[-3000:],
        "printed": []
        if bare == ours == beside
        else [bare[-2000:], ours[-2000:], beside[-2000:] + beside_said[-2000:]],
        "replay": json.loads(result[1]) if result else {"failed": (replayed + complaints)[-3000:]},
    }


def is_right(kept: dict[str, Any]) -> bool:
    checks = kept["replay"].values()
    return (
        kept["same"]
        and "nothing is wrong" in kept["found"]
        and all(isinstance(check, dict) and not check["wrong"] for check in checks)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="of a package")
    parser.add_argument("--limit", type=float, default=1500, metavar="SECONDS", help="of one run")
    parser.add_argument("--results", type=Path, default=ROOT / "build/regression", metavar="DIR")
    parser.add_argument("--page", action="store_true", help="write the part of doc/regression.rst")
    given = parser.parse_args()
    if given.page:
        page(given.results / "applications")
        return 0
    return run_all(given.name, given.limit, given.results)


def run_all(names: list[str], limit_s: float, results: Path) -> int:
    """Run applications and keep what came of them; 1 if one is not right."""
    directory = results / "applications"
    directory.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name in names or PROGRAMS:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"not here: {name}")
            continue
        kept = run(name, limit_s)
        wrong += not is_right(kept)
        (directory / f"{name}-{VERSION}.json").write_text(json.dumps(kept, indent=1) + "\n")
        same = "as without" if kept["same"] else "NOT as without"
        print(f"{name:16} {kept['version']:10} {same}; {kept['found']}", flush=True)
        for check, result in kept["replay"].items():
            print(f"    {check}: {result}", flush=True)
        for text in kept["printed"]:
            print(textwrap.indent(text, "    > "), flush=True)
    return 1 if wrong else 0


# ---- The page ------------------------------------------------------------------------------------------------

TEXT = (
    "Programs that use packages whose threads, compiled methods, callbacks, generated code and processes are hard to follow. Each "
    "ends, and prints, as it does without eventprof, and ``eventprof verify`` finds nothing wrong in the recording: the first "
    "number is that of its events, of all its processes. Each program then runs once more, after its imports, beside three "
    "recorders: one that keeps everything, a ring of 1 MiB, and one with filters. A *replay* in plain Python (``replay.py``), "
    "which uses no fold of eventprof but reads the events in their order, makes from them: the columns of ``calls`` (pairs, "
    "parents, self time, waiting, bytes), ``allocations``, ``functions``, ``memory``, ``gil``, ``own`` and ``tree``, the peak and "
    "``between``. The tables must have the same numbers, as they are read from the file and as they are made from columns. "
    "What is left in the ring must be the end of the whole recording, with the calls that are open there; what the ring says it "
    "lost must be the rest, by thread and kind; its tables must be those of a replay of what is left. What the filters leave "
    "must be what a filter in Python leaves of the whole. ``merge`` of two recordings must have their sums. After it stand "
    "the events that were replayed, the numbers that were compared, and the events that the ring lost; nothing differs. *Not "
    "replayed*: the recording was only verified. In that of torch two rows that look wrong are excused, "
    "and its replay takes 10 to 25 minutes. ray's node gives its daemons 30 s "
    "to start, which may not be enough while they are recorded on a busy machine."
)
RANDOM = (
    "Random programs of generators, coroutines and context managers (``test_slices.py --programs 10000``) must have the "
    "calls around each of their marks that the interpreter's frames have. On 3.11.7 9,999 of 10,000 have. In the other "
    "(6074) StopIteration is thrown into a generator that delegates to one that has ended, and 3.11 reports the end of "
    "the slice without its begin: verify reports an end without a call."
)


def section(directory: Path) -> list[str]:
    """Return the part of doc/regression.rst about applications."""
    results = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    pythons = sorted(
        {r["python"] for r in results}, key=lambda text: [int(n) for n in re.findall(r"\d+", text)]
    )
    out = [
        "Applications",
        "------------",
        "",
        *textwrap.wrap(TEXT, 118),
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
    ]
    out += ["   * - application", *(f"     - {python}" for python in pythons)]
    for name in PROGRAMS:
        of_python = {r["python"]: r for r in results if r["application"] == name}
        if of_python:
            out += [f"   * - {name} {max(r['version'] for r in of_python.values())}"]
            out += [f"     - {_cell(of_python.get(python))}" for python in pythons]
    return [*out, "", *textwrap.wrap(RANDOM, 118), ""]


def page(directory: Path) -> None:
    """Write the part of doc/regression.rst about applications; the rest stays."""
    path = ROOT / "doc/regression.rst"
    text = path.read_text()
    before, after = text.index("\nApplications\n---"), text.index("\nWhat differs, and why\n---")
    path.write_text(text[: before + 1] + "\n".join(section(directory)) + text[after:])


def _cell(kept: dict[str, Any] | None) -> str:
    if kept is None:
        return "not run"
    count = re.match(r"([\d,]+) events: nothing is wrong", kept["found"])
    if count and kept["same"] and kept["replay"] is None:  # of an earlier run
        return f"{count[1]}; not replayed"
    if not is_right(kept) or not count:
        return "**wrong**"
    checks = kept["replay"]
    replayed = sum(checks[name]["events"] for name in ("tables", "ring", "filter"))
    compared = sum(check["compared"] for check in checks.values())
    return (
        f"{count[1]}; replayed {replayed:,}, compared {compared:,}, lost {checks['ring']['lost']:,}"
    )


if __name__ == "__main__":
    sys.exit(main())
