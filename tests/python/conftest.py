from __future__ import annotations

import gc
import importlib.util
import signal
import sys
import sysconfig
import threading
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import raw
from amounts import LONG
from children import Forks

HERE = Path(__file__).parent
#: Which folders of tests there are, and on which CPythons each runs.
FOLDERS = tomllib.loads((HERE / "folders.toml").read_text(encoding="utf-8"))
# A folder's own modules are imported by their names, from here and from children that get this path.
sys.path += [str(HERE / folder) for folders in FOLDERS.values() for folder in folders]

# Interpreters for which not all optional packages have wheels; ./dev test says which it left out.
LACKS_WHEELS = (
    not raw.HAS_GIL
    or sys.version_info >= (3, 14)
    or "musl" in (sysconfig.get_config_var("SOABI") or "")
)

#: A test with so many cases is shared out by --share.
MANY_CASES = 6

# No faulthandler_timeout in pyproject.toml: its watchdog is a new thread for each test, whose first free of a
# block is seen, or not, by a recorder that the test starts.

# What a shell starts in the background ignores it, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if LACKS_WHEELS and package and importlib.util.find_spec(package) is None:
            pytest.skip(f"no {package} for this interpreter")
        raise


def numbers_of(share):
    number, shares = share.split("/")
    return int(number), int(shares)


def pytest_addoption(parser):
    parser.addoption(
        "--neighbours",
        metavar="DIR",
        help="test_coexistence.py writes here what doc/coexistence.rst says",
    )
    parser.addoption(
        "--programs",
        metavar="N",
        type=int,
        default=150,
        help="how many random programs test_slices.py records",
    )
    parser.addoption(
        "--share",
        metavar="K/N",
        type=numbers_of,
        default=(0, 1),
        help=f"of a test with {MANY_CASES} cases or more, every Nth alone, from the Kth on; "
        "of tests with fewer, every Nth alone with the backend that is not the interpreter's own",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makemodule(module_path):
    """Mark a test file as its folder says."""
    module = yield
    folder = module_path.relative_to(HERE).parts[0]
    if folder not in FOLDERS["every"] | FOLDERS["newest"]:
        raise pytest.Collector.CollectError(
            f"{module_path}: in none of the folders of {HERE / 'folders.toml'}, which says on what it runs"
        )
    if folder in FOLDERS["newest"]:
        module.add_marker(pytest.mark.newest)
    return module


def pytest_collection_modifyitems(config, items):
    """Leave out what --long asks for, and the cases of --share, of which each Python has others."""
    share, shares = config.getoption("--share")
    cases, kept, left_out = Counter(), [], []
    of_test = Counter(item.nodeid.partition("[")[0] for item in items)
    for item in items:
        name = item.nodeid.partition("[")[0]
        if of_test[name] < MANY_CASES:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            name = "profile" if params.get("backend") in raw.BACKENDS[1:] else ""
        cases[name] += 1
        is_ours = not name or cases[name] % shares == share
        is_today = LONG or item.get_closest_marker("long") is None
        (kept if is_ours and is_today else left_out).append(item)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True, scope="module")
def _collections_are_short():
    """A collection need not look at pytest, its tests, the libraries, and what earlier modules left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_callbacks_of_hypothesis():
    """What it leaves in the collector after its first test would be recorded in all that follow."""
    gc.callbacks[:] = [
        each
        for each in gc.callbacks
        if not getattr(each, "__module__", "").startswith("hypothesis")
    ]


@pytest.fixture(autouse=True)
def _no_threads_of_earlier_tests():
    """A thread that a test started and did not wait for would be recorded in those that follow."""
    before = set(threading.enumerate())
    yield
    left = [each for each in threading.enumerate() if each not in before]
    for each in left:
        each.join(30)
    assert not any(each.is_alive() for each in left), left


@pytest.fixture
def restored():
    """The interpreter's hooks are after the test as they were before."""
    before = raw.hooks()
    yield before
    assert raw.hooks() == before


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Runs programs that read recordings, in forks of a process that has imported what does."""
    started = Forks(tmp_path_factory.mktemp("forks"), "eventprof.trace", "eventprof.cli", "numpy")
    yield started
    started.close()


@pytest.fixture(params=raw.BACKENDS)
def backend(request):
    return request.param


# ---- Every trace is verified ---------------------------------------------------------------------

# As code of eventprof's own, which recorders that run meanwhile do not see.
_CHECK = """
def make(self, last_ns=-1, _make=Recorder._make_trace):
    trace = _make(self, last_ns)
    if self.state == "stopped" and raw.VERIFIES:
        found = verify(trace, False, 1)
        if not found.ok:
            raise AssertionError(f"the trace is wrong: {found}")
    return trace
"""


@pytest.fixture(autouse=True, scope="session")
def _every_trace_is_right():
    """What recorders of the tests record is verified when their trace is asked for."""
    from eventprof.answers import verification
    from eventprof.recording import recorder

    names = {"Recorder": recorder.Recorder, "verify": verification.verify, "raw": raw}
    exec(compile(_CHECK, recorder.__file__, "exec"), names)
    patch = pytest.MonkeyPatch()
    patch.setattr(recorder.Recorder, "_make_trace", names["make"])
    yield
    patch.undo()
