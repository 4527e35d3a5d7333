"""Programs to measure on. Each factory prepares one and returns a function that runs a unit of it,
some 20 to 80 ms. The whole programs are pyperformance's, used as they are installed."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Run = Callable[[], object]


def _load(name: str) -> ModuleType:
    package = importlib.util.find_spec("pyperformance")
    if package is None or package.origin is None:
        raise SystemExit("the programs are pyperformance's: pip install pyperformance pyperf")
    folder = Path(package.origin).parent / "data-files" / "benchmarks" / f"bm_{name}"
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"bm_{name}", folder / "run_benchmark.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def chaos() -> Run:
    module = _load("chaos")
    runs: list[Run] = []
    runner = SimpleNamespace(
        metadata={}, bench_func=lambda name, f, *args: runs.append(lambda: f(*args))
    )
    options = SimpleNamespace(
        thickness=0.25, width=64, height=64, iterations=2000, filename=None, rng_seed=1234
    )
    module.main(runner, options)
    return runs[0]


def deepcopy() -> Run:
    module = _load("deepcopy")
    return lambda: module.benchmark(60)


def deltablue() -> Run:
    module = _load("deltablue")
    return lambda: [module.delta_blue(100) for _ in range(8)]


def float_() -> Run:
    module = _load("float")
    return lambda: module.benchmark(20000)


def generators() -> Run:
    module = _load("generators")
    return lambda: module.bench_generators(1)


def go() -> Run:
    module = _load("go")
    random = module.random

    def run() -> None:
        random.seed(7)
        board = module.Board()
        tree = module.UCTNode()
        tree.unexplored = board.useful_moves()
        nboard = module.Board()
        for _ in range(40):
            node = tree
            nboard.reset()
            nboard.replay(board.history)
            node.play(nboard)

    return run


def hexiom() -> Run:
    module = _load("hexiom")
    return lambda: module.main(100, 2)


def json_dumps() -> Run:
    module = _load("json_dumps")
    data = []
    for case in module.CASES:
        value, count = getattr(module, case)
        data.append((value, range(max(1, count // 20))))

    # The encoder in Python, that is: with indent, as programs that write files use it.
    def run() -> None:
        module.bench_json_dumps(data)
        for value, _ in data:
            json.dumps(value, indent=1)

    return run


def logging_() -> Run:
    module = _load("logging")
    stream = io.StringIO()
    logger = logging.getLogger("benchmark")
    logger.propagate = False
    logger.addHandler(logging.StreamHandler(stream=stream))
    logger.setLevel(logging.WARNING)

    def run() -> None:
        module.bench_formatted_output(200, logger, stream)
        module.bench_silent(2000, logger, stream)

    return run


def nbody() -> Run:
    module = _load("nbody")
    return lambda: module.bench_nbody(1, "sun", 6000)


def nqueens() -> Run:
    module = _load("nqueens")
    return lambda: [module.bench_n_queens(7) for _ in range(3)]


def pickle_pure() -> Run:
    module = _load("pickle")
    # pickle's own Python implementations, without unseating the C ones for everybody else.
    pure: Any = SimpleNamespace(
        dumps=pickle._dumps,
        loads=pickle._loads,  # type: ignore[attr-defined]
        __name__="pickle",
    )
    options = SimpleNamespace(protocol=pickle.HIGHEST_PROTOCOL)

    def run() -> None:
        module.bench_pickle(3, pure, options)
        module.bench_unpickle(3, pure, options)

    return run


def pprint() -> Run:
    from pprint import pformat

    data = [{"key": [i, str(i), {"deep": (i,) * 3}], "more": {i: None}} for i in range(1500)]
    return lambda: pformat(data)


def raytrace() -> Run:
    module = _load("raytrace")
    return lambda: module.bench_raytrace(1, 40, 40, None)


def regex_compile() -> Run:
    module = _load("regex_compile")
    regexes = module.capture_regexes()
    return lambda: module.bench_regex_compile(1, regexes[::4])


def richards() -> Run:
    module = _load("richards")
    return lambda: module.Richards().run(1)


PROGRAMS: dict[str, Callable[[], Run]] = {
    "richards": richards,
    "deltablue": deltablue,
    "raytrace": raytrace,
    "json_dumps": json_dumps,
    "logging": logging_,
    "regex_compile": regex_compile,
    "pickle_pure": pickle_pure,
    "chaos": chaos,
    "nbody": nbody,
    "go": go,
    "hexiom": hexiom,
    "deepcopy": deepcopy,
    "float": float_,
    "generators": generators,
    "nqueens": nqueens,
    "pprint": pprint,
}
QUICK = tuple(PROGRAMS)[:7]

# ---- One kind of event each ------------------------------------------------------------------


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


def fib() -> Run:
    return lambda: _fib(21)


def c_calls() -> Run:
    def run() -> None:
        items = [1, 2, 3]
        for _ in range(100_000):
            len(items)

    return run


def methods() -> Run:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> None:
            self.count += 1

    def run() -> None:
        counter = Counter()
        for _ in range(100_000):
            counter.add()

    return run


def generator_items() -> Run:
    def count(n: int) -> Any:
        for i in range(n):
            yield i + 1

    def run() -> None:
        for _ in count(200_000):
            pass

    return run


def method_descriptors() -> Run:
    def run() -> None:
        items = [1, 2, 3]
        for _ in range(100_000):
            items.count(2)

    return run


def many_functions(count: int) -> Callable[[], Run]:
    """That many functions, called in random order."""

    def factory() -> Run:
        import random

        scope: dict[str, Any] = {}
        source = "\n".join(f"def f{i}():\n    return None" for i in range(count))
        exec(source, scope)
        functions = [scope[f"f{i}"] for i in range(count)]
        order = random.Random(1).choices(functions, k=20_000)

        def run() -> None:
            for function in order:
                function()

        return run

    return factory


CALLS: dict[str, Callable[[], Run]] = {
    "fib": fib,
    "C calls": c_calls,
    "methods": methods,
    "generator items": generator_items,
    "method descriptors": method_descriptors,
    "50 functions": many_functions(50),
    "1000 functions": many_functions(1000),
    "5000 functions": many_functions(5000),
}


def object_churn() -> Run:
    def run() -> None:
        for _ in range(200_000):
            object()

    return run


def lists_of_100() -> Run:
    def run() -> None:
        for _ in range(100_000):
            [None] * 100  # noqa: B018

    return run


def dicts() -> Run:
    def run() -> None:
        for i in range(60_000):
            {"a": i, "b": i, "c": i, "d": i, "e": i, "f": i}  # noqa: B018

    return run


def strings() -> Run:
    def run() -> None:
        text = "x" * 50
        for _ in range(200_000):
            text + "y"

    return run


def statements() -> Run:
    def run() -> int:
        total = 0
        for number in range(20_000):
            low = number & 7
            high = number >> 3
            if low > 3:
                total += high
            else:
                total -= low
        return total

    return run


LINES: dict[str, Callable[[], Run]] = {"statements": statements, "fib, inside": fib}

ALLOCATIONS: dict[str, Callable[[], Run]] = {
    "object churn": object_churn,
    "lists of 100": lists_of_100,
    "dicts": dicts,
    "strings": strings,
}

# ---- What grows ------------------------------------------------------------------------------


def threads(count: int) -> Callable[[], Run]:
    """A number of calls that does not depend on `count`, the number of threads that make them."""

    def factory() -> Run:
        def rounds() -> None:
            for _ in range(8 // count):
                _fib(16)

        def run() -> None:
            workers = [threading.Thread(target=rounds) for _ in range(count)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

        return run

    return factory


def at_depth(depth: int) -> Callable[[], Run]:
    """Calls of a leaf, below that many open calls."""

    def factory() -> Run:
        def leaf() -> None:
            pass

        def below(left: int) -> None:
            if left > 0:
                below(left - 1)
                return
            for _ in range(50_000):
                leaf()

        def run() -> None:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(depth + 1000)
            try:
                below(depth)
            finally:
                sys.setrecursionlimit(limit)

        return run

    return factory


GROWING: dict[str, Callable[[], Run]] = {
    "1 thread": threads(1),
    "2 threads": threads(2),
    "4 threads": threads(4),
    "depth 1": at_depth(1),
    "depth 100": at_depth(100),
    "depth 5000": at_depth(5000),
    "50 functions": many_functions(50),
    "1000 functions": many_functions(1000),
    "5000 functions": many_functions(5000),
}
