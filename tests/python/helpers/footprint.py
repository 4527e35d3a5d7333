"""A deterministic program that allocates about 150,000 times, in all ways that calls may disturb."""

from __future__ import annotations


class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def moved(self, by):
        return Point(self.x + by, self.y - by)

    @property
    def sum(self):
        return self.x + self.y


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a
        self.b = [a]


def points(n):
    kept = []
    for i in range(n):
        p = Point(i + 1000, i * 2.5).moved(i)
        if i % 3 == 0:
            kept.append(p)
        p.sum
    return kept


def lists(n):
    out = []
    for i in range(n):
        inner = []
        for j in range(i % 20):
            inner.append(j)
        out.append(sorted(inner, key=lambda x: -x))
        if i % 5 == 0:
            out.pop()
    return out


def dicts(n):
    d = {}
    for i in range(n):
        d[f"key {i}"] = {"a": i, **{str(j): j for j in range(i % 7)}}
        if i % 4 == 0:
            d.pop(f"key {i // 2}", None)
    return d


def strings(n):
    parts = []
    for i in range(n):
        parts.append("x" * (i % 300))
        parts.append(f"{i}:{i * 3}" + str(i).upper())
        parts.append(["a", "b", "c", "d"])
    return "-".join(str(part) for part in parts)


def closures(n):
    made = []
    for i in range(n):

        def inner(x, i=i):
            return x + i

        made.append(lambda y, f=inner: f(y) + i)  # noqa: B023
    return sum(f(100000) for f in made)


def numbers(n):
    i = 0
    while i < n:
        yield i * 100000
        i += 1


def generators(n):
    total = 0
    for i in range(n):
        g = numbers(i % 10)
        for value in g:
            total += value
        g = numbers(5)
        next(g)
        g.close()
    return total


def raises(i):
    raise ValueError(f"number {i}")


def exceptions(n):
    kept = []
    for i in range(n):
        try:
            raises(i)
        except ValueError as error:
            if i % 10 == 0:
                kept.append(str(error))
        try:
            int("not a number")
        except ValueError:
            pass
    return kept


def integers(n):
    total = 0
    for i in range(n):
        total += i * 7919 + 2**40
        total ^= i << 35
    # Ints as small as the offsets that the interpreter boxes for its hooks.
    small = [[k + 257 for k in range(i % 50, 300, 7)] for i in range(n // 20)]
    return total, small


exec(
    "def late(n):\n    x = 0\n    kept = []\n"
    + "".join(f"    x = x + {i}\n" for i in range(200))
    + "    for i in range(n):\n        kept.append(Slotted(i + 300))\n"
    + "        x = len(kept) + i\n        kept.append(str(x))\n        [i].index(i)\n"
    + "        dict.fromkeys((1, 2, i))\n        x = max(i, 3)\n        point = Point(1, i)\n"
    + "        point.moved(x)\n    return kept\n"
)


def run():
    return [
        points(4000),
        lists(3000),
        dicts(2500),
        strings(3000),
        closures(2500),
        generators(1500),
        exceptions(2500),
        integers(4000),
        late(2500),
    ]
