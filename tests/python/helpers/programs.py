"""Deterministic programs to record: pyperformance's and the standard library's."""

from __future__ import annotations

import importlib.util
import random
import sys
import types
from pathlib import Path


def _pyperformance(name: str) -> types.ModuleType:
    """A benchmark's module; what it needs of pyperf is a clock."""
    import pyperformance

    here = Path(pyperformance.__file__).parent / "data-files" / "benchmarks" / f"bm_{name}"
    stub = types.ModuleType("pyperf")
    stub.perf_counter = lambda: 0.0
    module_name = f"bm_{name}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    before = sys.modules.get("pyperf")
    sys.modules["pyperf"] = stub
    sys.path.insert(0, str(here))
    try:
        spec = importlib.util.spec_from_file_location(module_name, here / "run_benchmark.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(here))
        if before is None:
            del sys.modules["pyperf"]
        else:
            sys.modules["pyperf"] = before
    return module


def _richards():
    module = _pyperformance("richards")

    def run():
        module.taskWorkArea.__init__()
        module.Richards().run(1)

    return run


def _deltablue():
    module = _pyperformance("deltablue")
    return lambda: module.delta_blue(10)


def _raytrace():
    module = _pyperformance("raytrace")
    return lambda: module.bench_raytrace(1, 12, 12, None)


def _chaos():
    module = _pyperformance("chaos")
    points = [
        module.GVector(x, y)
        for x, y in [(2.804, 4.017), (2.550, 3.525), (1.979, 2.620), (1.990, 2.630)]
    ]
    splines = [module.Spline(points, 3, [0, 0, 0, 1, 1, 1])]

    def run():
        module.Chaosgame(splines, 0.25).create_image_chaos(20, 20, 300, None, 1234)

    return run


def _nbody():
    module = _pyperformance("nbody")
    return lambda: module.bench_nbody(1, "sun", 200)


def _json_dumps():
    module = _pyperformance("json_dumps")
    data = [(module.NESTED if hasattr(module, "NESTED") else {"a": [1, 2, {"b": None}]}, range(30))]
    return lambda: module.bench_json_dumps(data)


def _logging():
    import io
    import logging

    module = _pyperformance("logging")
    stream = io.StringIO()
    logger = logging.getLogger("eventprof.tests.programs")
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logger.handlers[:] = [logging.StreamHandler(stream=stream)]

    def run():
        module.truncate_stream(stream)
        module.bench_silent(3, logger, stream)
        module.bench_simple_output(3, logger, stream)
        module.bench_formatted_output(3, logger, stream)

    return run


def _go():
    module = _pyperformance("go")
    module.GAMES = 8

    def run():
        random.seed(1)
        module.versus_cpu()

    return run


def _hexiom():
    module = _pyperformance("hexiom")
    return lambda: module.main(1, 2)


def _generators():
    module = _pyperformance("generators")
    tree = module.tree(range(400))
    return lambda: [list(tree) for _ in range(3)]


def _coroutines():
    module = _pyperformance("coroutines")

    def run():
        try:
            module.fibonacci(14).send(None)
        except StopIteration:
            pass

    return run


def _deepcopy():
    module = _pyperformance("deepcopy")
    return lambda: module.benchmark(2)


def _nqueens():
    module = _pyperformance("nqueens")
    return lambda: module.bench_n_queens(5)


PYPERFORMANCE = {
    "richards": _richards,
    "deltablue": _deltablue,
    "raytrace": _raytrace,
    "chaos": _chaos,
    "nbody": _nbody,
    "json_dumps": _json_dumps,
    "logging": _logging,
    "go": _go,
    "hexiom": _hexiom,
    "generators": _generators,
    "coroutines": _coroutines,
    "deepcopy": _deepcopy,
    "nqueens": _nqueens,
}


# ---- Standard library --------------------------------------------------------------------------------

SOURCE = (Path(__file__).read_text(encoding="utf-8") + "\n") * 2


def _json():
    import json
    from json import decoder, encoder, scanner

    data = {"a": [1, 2.5, None, True, {"b": "text " * 5, "c": list(range(30))}], "é": [[]] * 20}

    def run():
        scan = decoder.JSONDecoder()
        scan.parse_object = decoder.JSONObject
        scan.parse_string = decoder.py_scanstring
        scan.scan_once = scanner.py_make_scanner(scan)
        text = "".join(encoder.JSONEncoder(indent=2, sort_keys=True).iterencode(data))
        assert scan.decode(text) == data
        assert json.loads(json.dumps(data)) == data

    return run


def _tokenize():
    import io
    import tokenize

    data = SOURCE.encode()[:6000]
    data = data[: data.rindex(b"\n\n\n") + 1]

    def run():
        list(tokenize.tokenize(io.BytesIO(data).readline))

    return run


def _ast():
    import ast

    def run():
        tree = ast.parse(SOURCE)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert "importlib" in names
        ast.unparse(tree)

    return run


def _pickle():
    import io
    import pickle

    data = {"list": list(range(300)), "nested": [{"k": (i, float(i), str(i))} for i in range(60)]}

    def run():
        out = io.BytesIO()
        pickle._Pickler(out, 4).dump(data)
        out.seek(0)
        assert pickle._Unpickler(out).load() == data

    return run


def _decimal():
    import _pydecimal

    def run():
        context = _pydecimal.Context(prec=30)
        _pydecimal.setcontext(context)
        total = _pydecimal.Decimal(0)
        for i in range(1, 60):
            total += _pydecimal.Decimal(1) / _pydecimal.Decimal(i)
        assert str(total.sqrt()).startswith("2.1")

    return run


def _difflib():
    import difflib

    a = SOURCE.splitlines()[:150]
    b = [line.replace("e", "E") if i % 7 == 0 else line for i, line in enumerate(a)]
    return lambda: list(difflib.unified_diff(a, b)) + list(difflib.ndiff(a[:30], b[:30]))


STANDARD = {
    "json": _json,
    "tokenize": _tokenize,
    "ast": _ast,
    "pickle": _pickle,
    "decimal": _decimal,
    "difflib": _difflib,
}

ALL = {**PYPERFORMANCE, **STANDARD}


def program(name: str):
    """A function without arguments that does the same each time; warmed up."""
    run = ALL[name]()
    run()
    run()
    return run
