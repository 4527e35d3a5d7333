"""What things are called, and that naming them keeps nothing of the program alive."""

from __future__ import annotations

import abc
import collections
import functools
import gc
import io
import itertools
import operator
import re
import sys
import types
import weakref

import children
import numpy as np
import pytest
import raw

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


class Thing:
    def method(self):
        return 1

    @classmethod
    def of_class(cls):
        return 2

    @staticmethod
    def static():
        return 3

    @property
    def prop(self):
        return 4

    def __call__(self):
        return 5

    class Inner:
        def method(self):
            return 6


def python_names(work):
    return {(row.name, row.module, row.line) for row in raw.record(work) if row.sort == "python"}


def c_names(work, backend="auto"):
    return [
        (row.name, row.module) for row in raw.record(work, backend=backend) if row.word == "c_call"
    ]


def test_python_functions(backend):
    thing = Thing()
    anonymous = lambda: 7  # noqa: E731

    def work():
        def nested():
            return [x for x in (y for y in (1,))]

        thing.method(), Thing.of_class(), Thing.static(), thing.prop, thing()
        Thing.Inner().method(), anonymous(), nested()

    rows = [row for row in raw.record(work, backend=backend) if row.word == "call"]

    here = "test_python_functions.<locals>"
    names = [
        row.name for row in rows if row.name != here + ".work.<locals>.nested.<locals>.<listcomp>"
    ]
    assert names == [
        f"{here}.work",
        "Thing.method",
        "Thing.of_class",
        "Thing.static",
        "Thing.prop",
        "Thing.__call__",
        "Thing.Inner.method",
        f"{here}.<lambda>",
        f"{here}.work.<locals>.nested",
        f"{here}.work.<locals>.nested.<locals>.<genexpr>",
    ]
    assert {row.module for row in rows} == {__name__}
    assert {row.file for row in rows} == {__file__}
    assert [row.line for row in rows][:2] == [
        work.__code__.co_firstlineno,
        Thing.method.__code__.co_firstlineno,
    ]


BOTH = [
    (lambda: len("x"), "len", "builtins"),
    (lambda: abs(-1), "abs", "builtins"),
    (lambda: [].append(1), "list.append", "builtins"),
    (lambda: list.append([], 1), "list.append", "builtins"),
    (lambda: {}.get(1), "dict.get", "builtins"),
    (lambda: dict.fromkeys([1]), "dict.fromkeys", "builtins"),
    (lambda: int.from_bytes(b"1", "big"), "int.from_bytes", "builtins"),
    (lambda: str.maketrans({}), "str.maketrans", "builtins"),
    (lambda: bytes.fromhex("00"), "bytes.fromhex", "builtins"),
    (
        lambda: collections.OrderedDict().popitem if 0 else collections.OrderedDict.fromkeys("a"),
        "OrderedDict.fromkeys",
        "collections",
    ),
    (lambda: collections.deque().append(1), "deque.append", "collections"),
    (lambda: itertools.chain.from_iterable([]), "chain.from_iterable", "itertools"),
    (lambda: sys.getrefcount(1), "getrefcount", "sys"),
    (lambda: sys.stdout.fileno if 0 else io.StringIO().write("x"), "StringIO.write", "_io"),
    (lambda: operator.add(1, 2), "add", "_operator"),
    (lambda: functools.reduce(max, [1, 2]), "reduce", "_functools"),
    (lambda: re.compile("a").match("b"), "Pattern.match", "re"),
    (lambda: np.zeros(3), "zeros", "numpy"),
    (lambda: np.zeros(3).sum if 0 else np.zeros(3).copy(), "ndarray.copy", "numpy"),
    (lambda: object.__new__(Thing), "object.__new__", "builtins"),
    (lambda: int.__new__(int, 3), "int.__new__", "builtins"),
    (lambda: dict.__new__(dict), "dict.__new__", "builtins"),
    (lambda: (lambda f: f(1))([].append), "list.append", "builtins"),
    (lambda: (lambda f: f("x"))("{}".format), "str.format", "builtins"),
]


@pytest.mark.parametrize("work, name, module", BOTH, ids=[b[1] for b in BOTH])
def test_c_functions(work, name, module, backend):
    work()

    seen = c_names(work, backend)

    assert (name, module) in seen, seen


MONITORING = [
    (lambda: int("3"), "int", "builtins"),
    (lambda: dict(a=1), "dict", "builtins"),
    (lambda: Thing(), "Thing", __name__),
    (lambda: Thing.Inner(), "Thing.Inner", __name__),
    (lambda: ValueError("x"), "ValueError", "builtins"),
    (lambda: functools.partial(len, "x")(), "partial", "functools"),
    (lambda: operator.itemgetter(0)([1]), "itemgetter", "operator"),
    (lambda: np.add(1, 2), "add", "numpy"),
    (lambda: np.sqrt(2.0), "sqrt", "numpy"),
    (lambda: Thing()(), "Thing", __name__),
    (lambda: list.__len__([]), "list.__len__", "builtins"),
    (lambda: [].__len__(), None, None),
    (lambda: np.vectorize(abs)([1]), "vectorize", "numpy"),
    (lambda: np.float64(3), "float64", "numpy"),
    (lambda: types.SimpleNamespace(a=1), "SimpleNamespace", "types"),
    (lambda: collections.namedtuple("P", "x y")(1, 2), "P", __name__),
    (lambda: types.MethodType(len, "x")(), "len", "builtins"),
    (lambda: type("Made", (), {})(), "Made", __name__),
]


@pytest.mark.skipif(not raw.HAS_MONITORING, reason="seen by monitoring alone")
@pytest.mark.parametrize("work, name, module", MONITORING, ids=[str(m[1]) for m in MONITORING])
def test_callables_that_only_monitoring_sees(work, name, module):
    work()

    seen = c_names(work, "monitoring")

    if name is not None:
        assert (name, module) in seen, seen
    assert all(seen_name for seen_name, _ in seen)


@pytest.mark.skipif(not raw.HAS_MONITORING, reason="seen by monitoring alone")
def test_bound_methods_of_bound_methods():
    twice = types.MethodType(types.MethodType(lambda *args: len(args), 1), 2)
    builtin = types.MethodType(types.MethodType(max, 1), 2)

    rows = [row for row in raw.record(lambda: (twice(3), builtin(3)), backend="monitoring")]

    assert [row.name for row in rows if row.word == "c_call"] == ["len", "max"]
    assert [row.name for row in rows if row.word == "c_return"] == ["len", "max"]


def test_with_of_a_python_class_leaves_no_event_of_its_own(backend):
    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    def work():
        with Manager():
            pass

    rows = raw.record(work, backend=backend)

    assert [row.word for row in rows if row.word.startswith("c_") and row.sort != "type"] == []


# ---- Text -----------------------------------------------------------------------------------------------------


def test_surrogates_and_other_characters(backend):
    names: dict = {"__name__": "mod\udc80ule"}
    name = "f\udcff\u00e9\u4e2d\U0001f600"
    code = compile("def f():\n    return 1\nf()", "fi\udcfele \u4e2d.py", "exec")
    inner = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    code = code.replace(
        co_consts=tuple(
            inner.replace(co_name=name, co_qualname=name) if c is inner else c
            for c in code.co_consts
        )
    )

    rows = raw.record(lambda: exec(code, names), backend=backend)

    (row,) = [row for row in rows if row.word == "call" and row.name == name]
    assert (row.file, row.module, row.line) == ("fi\udcfele \u4e2d.py", "mod\udc80ule", 1)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 5000, 100_000])
def test_names_of_any_length(length, backend):
    def f():
        pass

    name = "\u00e9" * length
    f.__code__ = f.__code__.replace(co_name=name, co_qualname=name, co_filename=name)

    rows = raw.record(f, backend=backend)

    assert [(row.name, row.file) for row in rows if row.word == "call"] == [(name, name)]


def test_no_module_name(backend):
    for value in ({}, {"__name__": None}, {"__name__": 3}):
        rows = raw.record(
            lambda value=value: exec("def f(): pass\nf()", dict(value)), backend=backend
        )
        (row,) = [row for row in rows if row.word == "call" and row.name == "f"]
        assert row.module in (None, "builtins")


def test_deleted_module(backend, tmp_path, monkeypatch):
    (tmp_path / "goes_away.py").write_text("class A:\n    def f(self):\n        return len('x')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rec = raw.recorder(raw.ALL, backend=backend)
    with rec:
        import goes_away

        goes_away.A().f()
        del sys.modules["goes_away"], goes_away
        gc.collect()
    (tmp_path / "goes_away.py").unlink()

    names = {(row.name, row.module) for row in raw.rows(rec)}
    assert {("A.f", "goes_away"), ("<module>", "goes_away"), ("A", "goes_away")} <= names


def test_functions_met_by_their_allocations_alone():
    def allocates():
        return bytearray(12347)

    rows = raw.record(allocates, kinds=raw.MEMORY)

    row, freed = [row for row in rows if row.size == 12347 + raw.BYTEARRAY_MORE]
    assert (row.word, freed.word) == ("malloc", "free")
    assert (row.name, row.module, row.line) == (
        "test_functions_met_by_their_allocations_alone.<locals>.allocates",
        __name__,
        allocates.__code__.co_firstlineno + 1,
    )


def test_code_of_one_text_is_one_function(backend):
    def make():
        namespace: dict = {}
        exec(compile("def f():\n    return 1", "same.py", "exec"), namespace)
        return namespace["f"]

    functions = [make() for _ in range(50)]
    rec = raw.recorder(backend=backend)
    with rec:
        for f in functions:
            f()

    trace = raw.capture(rec)
    assert [name for name, *_ in trace.functions()].count("f") == 1


# ---- What dies ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.skipif(not raw.HAS_MONITORING, reason="calls of types are seen by monitoring alone")
@pytest.mark.parametrize("kept", [0, 3])
def test_types_by_the_thousand_at_reused_addresses(kept):
    """Names of one length, so that an address that is given again carries another name."""
    rec = raw.recorder(raw.CALLS, backend="monitoring")
    alive: list = []
    expected = []
    with rec:
        for i in range(2000):
            made = type(f"Type{i:05}", (), {"__module__": f"module{i:05}", "f": lambda self: 1})
            made()
            alive.append(made)
            del alive[: -kept or None], made
            expected.append((f"Type{i:05}", f"module{i:05}"))
            if i % 100 == 0:
                gc.collect()

    for word in ("c_call", "c_return"):
        names = [
            (row.name, row.module)
            for row in raw.rows(rec)
            if row.word == word and re.fullmatch(r"Type\d{5}", row.name)
        ]
        assert names == expected


@pytest.mark.thorough
def test_code_by_the_thousand_at_reused_addresses(backend):
    rec = raw.recorder(raw.ALL, backend=backend)
    with rec:
        for i in range(500):
            namespace: dict = {}
            exec(
                compile(
                    f"def f{i:05}():\n    return bytearray(12347)\nf{i:05}()", f"{i:05}.py", "exec"
                ),
                namespace,
            )
            del namespace

    events = raw.rows(rec)
    calls = [
        (row.name, row.file)
        for row in events
        if row.word == "call" and re.fullmatch(r"f\d{5}", row.name)
    ]
    assert calls == [(f"f{i:05}", f"{i:05}.py") for i in range(500)]
    blocks = [
        row.name
        for row in events
        if row.size == 12347 + raw.BYTEARRAY_MORE and row.word == "malloc"
    ]
    assert blocks == [f"f{i:05}" for i in range(500)]


class Weak:
    def method(self):
        return self

    def __call__(self):
        return 1


@pytest.mark.skipif(
    not raw.HAS_GIL and sys.version_info < (3, 14),
    reason="3.13 without the GIL keeps classes and functions for good once a thread was started",
)
def test_nothing_is_kept_alive(backend):
    rec = raw.recorder(raw.ALL, backend=backend)
    watched = []

    def watch(thing):
        watched.append(weakref.ref(thing))
        return thing

    class Meta(type):
        pass

    with rec:

        def function(x):
            return len([x])

        made = watch(type("Made", (Weak,), {}))
        meta = watch(Meta("WithMeta", (), {"__call__": lambda self: 1}))
        instance = watch(made())
        instance.method(), instance(), meta()(), watch(function)(instance)
        partial = watch(functools.partial(function, 1))
        partial()
        generator = watch(i for i in range(3))
        next(generator)
        array = watch(np.zeros(1000))
        array.copy(), np.add(array, array), array.sum()
        ufunc = np.frompyfunc(watch(lambda x: x), 1, 1)
        ufunc(array)
        pattern = watch(re.compile("nothing_is_kept_alive"))
        pattern.match("x")
        deque = watch(collections.deque())
        deque.append(instance)
        bound = watch(deque.append)
        bound(function)
        abstract = watch(abc.ABCMeta("Abstract", (), {}))
        abstract.register(made)
        isinstance(instance, abstract)
        namespace = types.ModuleType("gone")
        exec("def inner(): return [1]\ninner()", namespace.__dict__)
        watch(namespace), watch(namespace.inner)
    trace = raw.capture(rec)
    trace.functions()
    re.purge()
    deque.clear()
    del (
        function,
        made,
        meta,
        instance,
        partial,
        generator,
        array,
        ufunc,
        pattern,
        deque,
        bound,
        abstract,
        namespace,
    )
    gc.collect()

    assert [reference() for reference in watched if reference() is not None] == []


def test_frames_are_not_kept_alive(backend):
    class Local:
        pass

    def work():
        local = Local()
        return weakref.ref(local)

    with raw.recorder(raw.ALL, backend=backend) as rec:
        reference = work()
        assert reference() is None
    assert raw.rows(rec)


def test_references_are_balanced(backend):
    """Objects that live for ever anyway: a reference too few would crash far from here."""
    watched = [
        len,
        list.append,
        dict.fromkeys,
        int,
        Thing,
        Thing.method,
        np.add,
        None,
        Thing(),
        operator.itemgetter(0),
        functools.partial(len),
    ]

    def work():
        for _ in range(1000):
            len("x"), [].append(1), dict.fromkeys([1]), int("3"), Thing(), Thing().method()
            np.add(1, 2), watched[-1]("x"), watched[-2]([1]), watched[-3]()

    work()
    with raw.recorder(raw.ALL, backend=backend):
        work()
        before = [sys.getrefcount(thing) for thing in watched]
        work()
        after = [sys.getrefcount(thing) for thing in watched]

    differences = [b - a for a, b in zip(before, after, strict=True)]
    differences[7] = 0  # None: of everybody
    assert all(abs(difference) < 20 for difference in differences), differences


def test_heap_method_definitions_that_die():
    """pybind11 and cffi make definitions on the heap; ctypes can, too."""
    script = """
import ctypes, raw
class Definition(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("meth", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]
new = ctypes.pythonapi.PyCMethod_New
new.restype = ctypes.py_object
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
@ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
def method(self, args):
    return 1
buffer = Definition()    # one address, many names
names = [b"first", b"second", b"third"]
rec = raw.recorder(raw.CALLS)
with rec:
    for name in names:
        buffer.name, buffer.meth, buffer.flags = name, ctypes.cast(method, ctypes.c_void_p).value, 4
        function = new(ctypes.addressof(buffer), None, None, None)
        function()
        del function
print([r.name for r in raw.rows(rec) if r.word == "c_call" and r.name in ("first", "second", "third")])
print([r.name for r in raw.rows(rec) if r.word == "c_return" and r.name in ("first", "second", "third")])
"""
    done = children.program(script)

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['first', 'second', 'third']"] * 2


# ---- Cython --------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 12), reason="seen by monitoring alone")
def test_a_function_of_cython_has_its_own_name():
    import numpy.random

    function = numpy.random.default_rng
    if type(function).__name__ != "cython_function_or_method":
        pytest.skip("this NumPy was built without functions that Cython binds")
    with eventprof.record() as rec:
        function(1)
        function(2)

    (row,) = [row for row in rec.trace.functions if row.name == "default_rng"]
    assert (row.module, row.kind) == (function.__module__, "c")
    assert row.calls == 2
    assert "cython_function_or_method" not in set(rec.trace.functions["name"])


def test_a_class_that_is_called_as_cythons_is_not_asked():
    asked = []

    class cython_function_or_method:
        def __call__(self):
            pass

    cython_function_or_method.__module__ = property(asked.append)
    call = cython_function_or_method()
    with eventprof.record() as rec:
        call()

    assert not asked
    assert rec.trace.verify().ok
