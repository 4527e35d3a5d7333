"""The part of the nasty program that the interpreter calls: operators, conversions, attributes."""

from __future__ import annotations

import copy
import functools
import operator
import sys

from nasty_seen import see


class Number:
    def __init__(self, value=0):
        see()
        self.value = value

    def __repr__(self):
        see()
        return "N"

    def __str__(self):
        see()
        return "n"

    def __format__(self, spec):
        see()
        return format(self.value, spec)

    def __bytes__(self):
        see()
        return b"n"

    def __hash__(self):
        see()
        return 7

    def __bool__(self):
        see()
        return True

    def __eq__(self, other):
        see()
        return self is other

    def __lt__(self, other):
        see()
        return self.value < other.value

    def __le__(self, other):
        see()
        return not other < self

    def __call__(self, *args, **keywords):
        see()
        return self

    def __len__(self):
        see()
        return 2

    def __length_hint__(self):
        see()
        return 3

    def __getitem__(self, key):
        see()
        if isinstance(key, int) and key > 2:
            raise IndexError
        return key

    def __setitem__(self, key, value):
        see()

    def __delitem__(self, key):
        see()

    def __contains__(self, item):
        see()
        return True

    def __missing__(self, key):
        see()
        return key

    def __reversed__(self):
        see()
        return iter([1])

    def __enter__(self):
        see()
        return self

    def __exit__(self, *error):
        see()
        return True

    def __copy__(self):
        see()
        return self

    def __deepcopy__(self, memo):
        see()
        return self

    def __reduce__(self):
        see()
        return Number, (1,)

    def __dir__(self):
        see()
        return ["b", "a"]

    def __sizeof__(self):
        see()
        return 10

    def __index__(self):
        see()
        return 3

    def __round__(self, digits=None):
        see()
        return 1

    def __floor__(self):
        see()
        return 1

    def __fspath__(self):
        see()
        return "."

    @classmethod
    def __class_getitem__(cls, key):
        see()
        return cls


def _make(name, result):
    def method(self, *args):
        see()
        return result

    method.__name__ = name
    method.__qualname__ = f"Number.{name}"
    method.__code__ = method.__code__.replace(co_name=name, co_qualname=f"Number.{name}")
    setattr(Number, name, method)


for _name in [
    "add",
    "radd",
    "iadd",
    "sub",
    "rsub",
    "isub",
    "mul",
    "rmul",
    "imul",
    "matmul",
    "truediv",
    "floordiv",
    "mod",
    "divmod",
    "pow",
    "rpow",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
    "neg",
    "pos",
    "abs",
    "invert",
]:
    _make(f"__{_name}__", 5)


_make("__int__", 1)


_make("__float__", 1.0)


_make("__complex__", 1j)


_make("__trunc__", 1)


_make("__ceil__", 1)


def operators():
    see()
    a, b = Number(1), Number(2)
    import math
    import os

    out = [
        a + b,
        1 + b,
        a - b,
        1 - b,
        a * b,
        1 * b,
        a @ b,
        a / b,
        a // b,
        a % b,
        divmod(a, b),
        a**b,
        1**b,
        a << b,
        a >> b,
        a & b,
        a | b,
        a ^ b,
        -a,
        +a,
        abs(a),
        ~a,
        int(a),
        float(a),
        complex(a),
        math.trunc(a),
        math.ceil(a),
        math.floor(a),
        round(a),
        operator.index(a),
        hex(a),
        bin(a),
        [0] * 4,
    ]
    c = a
    c += b
    c = a
    c -= b
    c = a
    c *= b
    out += [
        str(a),
        repr(a),
        f"{a}",
        f"{a!r:>3}",
        format(a, "d"),
        "%s %r" % (a, a),
        bytes(a),
        hash(a),
        bool(a),
        not a,
        a == b,
        a != b,
        a < b,
        a > b,
        a <= b,
        b >= a,
        len(a),
        a[0],
        a[1:2],
        list(a),
        reversed(a),
        3 in a,
        a(1, k=2),
        a(*[1], **{"k": 2}),
        Number[int],
        [0, 1, 2, 3][a],
        dir(a),
        sys.getsizeof(a),
        copy.copy(a),
        copy.deepcopy(a),
        copy.copy([a]),
        os.fspath(a),
        operator.length_hint(a),
    ]
    a[1] = 2
    del a[1]
    with a as entered:
        entered(1)
        raise ValueError
    if a and (b or a):
        {a: 1, b: 2}
    sorted([b, a])
    sorted([b, a, b], key=lambda number: (see(), number.value)[1])
    min(a, b), max([a, b], key=Number.__len__)
    print(a, b, file=Sink())
    return len(out)


class Sink:
    def write(self, text):
        see()

    def flush(self):
        see()


class Descriptor:
    def __get__(self, instance, owner):
        see()
        return 1

    def __set__(self, instance, value):
        see()

    def __delete__(self, instance):
        see()

    def __set_name__(self, owner, name):
        see()


class Meta(type):
    @classmethod
    def __prepare__(mcs, name, bases, **keywords):
        see()
        return {}

    def __new__(mcs, name, bases, namespace, **keywords):
        see()
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name, bases, namespace, **keywords):
        see()
        super().__init__(name, bases, namespace)

    def __call__(cls, *args):
        see()
        return super().__call__(*args)

    def __instancecheck__(cls, instance):
        see()
        return True

    def __subclasscheck__(cls, other):
        see()
        return True

    def __iter__(cls):
        see()
        return iter(())

    @property
    def title(cls):
        see()
        return "title"


class Base:
    def __init_subclass__(cls, **keywords):
        see()
        super().__init_subclass__()

    def __mro_entries__(self, bases):
        see()
        return (Base,)


def attributes():
    see()

    class Made(Base, metaclass=Meta, flag=1):
        see()
        field = Descriptor()

        def __new__(cls, *args):
            see()
            return super().__new__(cls)

        def __init__(self, *args):
            see()
            self.slot = args

        def __getattribute__(self, name):
            see()
            return super().__getattribute__(name)

        def __getattr__(self, name):
            see()
            if name == "absent":
                raise AttributeError(name)
            return name

        def __setattr__(self, name, value):
            see()
            super().__setattr__(name, value)

        def __delattr__(self, name):
            see()
            super().__delattr__(name)

        @property
        def prop(self):
            see()
            return self.slot

        @prop.setter
        def prop(self, value):
            see()

        @staticmethod
        def static():
            see()

        @classmethod
        def of_class(cls):
            see()

        @functools.cached_property
        def cached(self):
            see()
            return 1

        @functools.lru_cache(maxsize=2)
        def memo(self, x):
            see()
            return x

    class Derived(Base()):
        see()

    made = Made(1)
    made.field, made.prop, made.other, made.cached, made.cached
    made.field = 2
    made.prop = 3
    made.attribute = 4
    del made.attribute, made.field
    getattr(made, "absent", None), hasattr(made, "absent"), setattr(made, "x", 1)
    made.static(), made.of_class(), Made.of_class(), Made.static()
    made.memo(1), made.memo(1), made.memo(2)
    isinstance(3, Made), issubclass(int, Made), list(Made), Made.title
    vars(made)
    type("Typed", (Base,), {"descriptor": Descriptor()})
    functools.partial(Made.static)(), functools.partial(made.of_class)()
    operator.attrgetter("prop", "field")(made)
    operator.methodcaller("static")(made)
    super(Made, made).__init__
    return Derived
