"""Verbs and exports of a large recording do with a limit of memory that arrays of its events would break."""

import importlib.util
import re
import sys
import threading
import tracemalloc

import children
import pytest

import eventprof

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="columns lie in files on Linux alone"),
]

ROUNDS = 33_000  # of about 22 events, in each of the threads
THREADS = 3
#: What a verb may have besides what it has when it begins: batches of rows, and libraries' own.
FREE_MIB = 112

LIMITED = """
import resource, signal, sys
import numpy
from eventprof import _core, cli

free, columns, file = (int(word) << 20 for word in sys.argv[1:4])
_core.columns_in_memory(columns)
if sys.argv[4]:
    __import__(sys.argv[4])
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + free, used + free))
if file:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
sys.exit(cli.main(sys.argv[5:]))
"""

#: What Arrow and NumPy take for themselves, whatever the size of the recording.
SMALL_POOLS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("limited") / "large.epr"

    def leaf(number):
        return number + 1

    def branch(number):
        return [leaf(number), leaf(number), bytes(600 + number % 700)]

    def work():
        kept = []
        for number in range(ROUNDS):
            kept.append(branch(number))
            if number % 500 == 0:
                kept.clear()

    with eventprof.record(output=path, on_full="grow", waits=True):
        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return path


def run(words, path, *, columns_mib=0, file_mib=0, needed=""):
    """Run a verb below the limit; columns_mib: of columns in memory; file_mib: of a file, 0: any."""
    return children.program(
        LIMITED, FREE_MIB, columns_mib, file_mib, needed, *words, path,
        status=None, TMPDIR="/var/tmp", **SMALL_POOLS,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        *(["analyze"], ["verify"], ["info", "--json"], ["events", "--last", "5"], ["waits"]),
        *([*verb.split(), "-o", "{}"] for verb in ("save", "view", "dataset --events")),
        *(
            ["export", "-o", "{}", "--format", *words.split()]
            for words in (
                *("chrome", "perfetto", "firefox", "speedscope", "csv", "parquet"),
                "jsonl --table events",
                "parquet --table allocations",
                "callgrind --between 1ms 1000s",
                "collapsed --weight waited --between 1ms 1000s",
            )
        ),
    ],
    ids=" ".join,
)
def test_a_verb_does_with_a_limit(words, recording, tmp_path):
    needed = "pyarrow.parquet" if {"parquet", "dataset"} & {*words} else ""
    if needed and importlib.util.find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    if not eventprof._core.columns_have_files():
        pytest.skip("there is no disk for columns")

    done = run([word.format(tmp_path / "out") for word in words], recording, needed=needed)

    assert done.returncode == 0, done.stderr[-2000:]


def test_tables_of_labels_take_no_memory_by_call(recording):
    trace = eventprof.open(recording)
    calls = len(trace.calls)
    importlib.import_module("numpy.ma")  # 10 MB of code, if no test needed it before

    tracemalloc.start()
    try:
        assert len(trace.requests) == len(trace.labels) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * calls  # one array of numbers


@pytest.mark.parametrize(
    "words",
    [
        ["trim", "-o", "{}", "--drop", "marks"],
        ["export", "-o", "{}", "--format", "csv"],
        ["view", "-o", "{}"],
    ],
    ids=" ".join,
)
def test_a_full_disk_for_columns_is_named(words, recording, tmp_path):
    if not eventprof._core.columns_have_files():
        pytest.skip("there is no disk for columns")

    done = run([word.format(tmp_path / "out") for word in words], recording, file_mib=1)

    assert done.returncode == 1
    assert re.fullmatch(
        rf"eventprof {words[0]}: out of memory; /var/tmp cannot hold a column of \d+ MiB "
        r"\(File too large\): make room there, or name a folder on another disk in "
        r"EVENTPROF_TMPDIR\n",
        done.stderr,
    ), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_columns_in_memory_would_break_the_limit(recording, tmp_path):
    words = ["export", "-o", str(tmp_path / "out"), "--format", "csv"]
    done = run(words, recording, columns_mib=1 << 20)

    assert done.returncode != 0 and "memory" in done.stderr.lower()
