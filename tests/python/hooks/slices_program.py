"""Random programs of generators, coroutines and context managers, and what their recordings must say.

Each program is a text. Its functions call mark(), enter() and tick() of a `Reference`, which follows the
interpreter's frames from there: a recording of the program must have the same calls around each of these marks.
The functions call each other, throw exceptions into generators, close them, drop them (also in a cycle), and let
C code resume them.
"""

from __future__ import annotations

import ctypes
import dis
import gc
import inspect
import random
import sys
import warnings

FILE = "a random program"
MARKS = ("mark", "enter", "tick")

PREAMBLE = """
import contextlib, gc, itertools
class Err(Exception): pass
class Other(BaseException): pass
POOL = []
def no_plain(n): enter()
def no_generator(n):
    enter()
    yield tick()
async def no_coroutine(n): enter()
async def no_agenerator(n):
    enter()
    yield tick()
@contextlib.contextmanager
def no_manager(n):
    enter()
    yield tick()
@contextlib.asynccontextmanager
async def no_amanager(n):
    enter()
    yield tick()
class Suspends:
    def __init__(self, n): self.n = n
    def __await__(self):
        enter()
        for i in range(self.n):
            x = yield tick()
            mark()
        return self.n
class Iterates:
    def __init__(self, n): self.n = n
    def __await__(self): return self
    def __iter__(self): return self
    def __next__(self):
        enter()
        if self.n == 0: raise StopIteration
        self.n -= 1
        tick()
class Holds:
    def __init__(self, held): self.held, self.me = held, self
def ticks(n):
    enter()
    tick()
def keep(made):
    enter()
    POOL.append(made)
    if len(POOL) > 6:
        POOL.pop(0)
    return made
def taken(n): return POOL[n % len(POOL)] if POOL else iter(())
def sends(made, value=None):
    enter()
    return made.send(value)
def throws(made, error):
    enter()
    try: return made.throw(error)
    finally: mark()
def closes(made):
    enter()
    return made.close()
def drives(made, thrown_at, error):
    enter()
    step = 0
    try:
        while True:
            if step == thrown_at: throws(made, error)
            else: sends(made)
            step += 1
            if step > 9: return
    except StopIteration as stop:
        return stop.value
"""

_preamble = compile(PREAMBLE, FILE, "exec")

KINDS = ("plain", "generator", "generator", "manager", "coroutine", "agenerator", "amanager")


class _Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.lines: list[str] = []
        count = self.choose.randrange(4, 10)
        self.kinds = [self.choose.choice(KINDS) for _ in range(count)]
        for number in range(count):
            self.function(number)
        self.lines.append("def main():\n    enter()")
        for _ in range(self.choose.randrange(2, 6)):
            self.caught(1, "plain", 0, "4")
            self.put(1, "mark()")
        self.put(1, "POOL.clear()")
        self.put(1, "mark()")

    def put(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def one(self, *kinds: str) -> str:
        """Return the name of a function of such a kind: one of PREAMBLE if the program has none."""
        found = [n for n, kind in enumerate(self.kinds) if kind in kinds]
        return f"f{self.choose.choice(found)}" if found else f"no_{kinds[0]}"

    def error(self) -> str:
        return self.choose.choice(
            ("Err()", "Err()", "GeneratorExit()", "KeyError(1)", "StopIteration()", "Other()")
        )

    def function(self, number: int) -> None:
        kind = self.kinds[number]
        if kind in ("manager", "amanager"):
            self.put(0, "@contextlib." + ("async" if kind == "amanager" else "") + "contextmanager")
        is_async = kind in ("coroutine", "agenerator", "amanager")
        self.put(0, ("async " if is_async else "") + f"def f{number}(n):")
        self.put(1, "left = enter()")
        self.put(1, "if n <= 0 or not left:")
        if kind in ("manager", "amanager"):
            self.put(2, "yield tick()")
            self.put(2, "return")
        elif kind in ("generator", "agenerator"):
            self.put(2, "return")
            self.put(2, "yield")
        else:
            self.put(2, "return")
        if kind in ("manager", "amanager"):
            self.manager(kind)
        else:
            self.block(1, kind, 0)

    def manager(self, kind: str) -> None:
        shape = self.choose.randrange(5)
        if shape == 0:
            self.put(1, "yield tick()")
            self.put(1, "mark()")
        elif shape == 1:
            self.put(1, "try: yield tick()")
            self.put(1, "finally: mark()")
        elif shape == 2:
            self.put(1, "try:")
            self.put(2, "yield tick()")
            self.put(1, "except Err:")
            self.block(2, kind, 2, yields=False)
            self.put(1, "finally:")
            self.block(2, kind, 2, yields=False)
        elif shape == 3:
            self.put(1, "try: yield tick()")
            self.put(1, f"except BaseException: raise {self.error()}")
        else:
            inner = self.one("manager") if kind == "manager" else self.one("amanager")
            self.put(1, ("" if kind == "manager" else "async ") + f"with {inner}(n - 1):")
            self.put(2, "yield tick()")

    def block(self, level: int, kind: str, nested: int, yields: bool = True) -> None:
        for _ in range(self.choose.randrange(1, 4)):
            self.statement(level, kind, nested, yields)

    def caught(self, level: int, kind: str, nested: int, left: str) -> None:
        """Write a statement whose exceptions go no further."""
        self.put(level, f"n = {left}")
        self.put(level, "try:")
        self.block(level + 1, kind, nested + 1)
        self.put(level, "except BaseException: mark()")

    def statement(self, level: int, kind: str, nested: int, yields: bool) -> None:
        made = self.making(kind, yields)
        if nested < 3:
            made += [self.tries, self.excepts, self.withs, self.withs, self.fors]
            if kind in ("coroutine", "agenerator", "amanager"):
                made += [self.async_withs, self.async_fors]
        act = self.choose.choice(made)
        if isinstance(act, str):
            for line in act.split("\n"):
                self.put(level, line)
        else:
            act(level, kind, nested, yields)

    def making(self, kind: str, yields: bool) -> list:
        generator, coroutine = self.one("generator"), self.one("coroutine")
        agenerator = self.one("agenerator")
        number = self.choose.randrange(6)
        other = self.one("generator")
        made: list = [
            "mark()",
            f"{self.one('plain')}(n - 1)",
            f"keep({generator}(n - 1))",
            f"next(keep({generator}(n - 1)), None)",
            f"g = {generator}(n - 1)\nnext(g, None)\nmark()\ndel g",
            f"next(taken({number}), None)",
            f"throws(taken({number}), {self.error()})",
            f"closes(taken({number}))",
            f"g = {generator}(n - 1)\nnext(g, None)\nthrows(g, {self.error()})",
            f"g = {generator}(n - 1)\nnext(g, None)\ncloses(g)\nmark()",
            f"if POOL: POOL.pop({number} % len(POOL))",
            f"Holds({generator}(n - 1))\ngc.collect(0)",
            f"h = Holds({generator}(n - 1))\nnext(h.held, None)\ndel h\ngc.collect(0)\nmark()",
            f"list({generator}(n - 1))",
            f"list(zip({generator}(n - 1), {other}(n - 1)))",
            f"[mark() for _ in {generator}(n - 1)]",
            f"sum(1 for _ in {generator}(n - 1))",
            f"next(itertools.chain({generator}(n - 1), {other}(n - 1)), None)",
            f"any(map(lambda x: mark(), {generator}(n - 1)))",
            f"drives({coroutine}(n - 1), {self.choose.randrange(8)}, {self.error()})",
            f"c = keep({coroutine}(n - 1))\nsends(c)\nmark()",
            f"a = {agenerator}(n - 1).asend(None)\nsends(a)",
            f"a = {agenerator}(n - 1)\ndrives(a.asend(None), 9, Err())\n"
            f"drives(a.athrow({self.error()}), 9, Err())",
            f"a = {agenerator}(n - 1)\ndrives(a.asend(None), 9, Err())\ndrives(a.aclose(), 9, Err())",
            f"raise {self.choose.choice(('Err()', 'KeyError(2)'))}",
        ]
        if kind == "generator" and yields:
            made += ["yield tick()", "x = yield tick()\nmark()"] * 4
            made += [
                f"yield from {generator}(n - 1)",
                "yield from Iterates(2)",
                "yield from map(ticks, range(2))",
                f"yield from taken({number})",
            ] * 2
        if kind in ("coroutine", "agenerator", "amanager"):
            made += [f"await {coroutine}(n - 1)", "await Suspends(2)", "await Iterates(1)"] * 2
            made += [f"async for _ in {agenerator}(n - 1): mark()"]
        if kind == "agenerator" and yields:
            made += ["yield tick()", "x = yield tick()\nmark()"] * 4
        return made

    def tries(self, level: int, kind: str, nested: int, yields: bool) -> None:
        self.put(level, "try:")
        self.block(level + 1, kind, nested + 1, yields)
        self.put(level, "finally:")
        self.block(level + 1, kind, nested + 1, yields)

    def excepts(self, level: int, kind: str, nested: int, yields: bool) -> None:
        self.put(level, "try:")
        self.block(level + 1, kind, nested + 1, yields)
        caught = self.choose.choice(("Err", "Exception", "GeneratorExit", "BaseException"))
        self.put(level, f"except {caught}:")
        self.block(level + 1, kind, nested + 1, yields)
        if self.choose.random() < 0.3:
            self.put(level + 1, "raise")

    def withs(self, level: int, kind: str, nested: int, yields: bool) -> None:
        manager, generator = self.one("manager"), self.one("generator")
        opened = self.choose.choice((
            f"with {manager}(n - 1):",
            f"with {manager}(n - 1), {manager}(n - 1):",
            f"with contextlib.closing({generator}(n - 1)) as g:\n    next(g, None)",
            f"with contextlib.ExitStack() as s:\n    s.enter_context({manager}(n - 1))\n"
            f"    s.callback({self.one('plain')}, n - 1)",
            "with contextlib.suppress(Err):",
        ))  # fmt: skip
        for line in opened.split("\n"):
            self.put(level, line)
        self.block(level + 1, kind, nested + 1, yields)

    def async_withs(self, level: int, kind: str, nested: int, yields: bool) -> None:
        manager, agenerator = self.one("amanager"), self.one("agenerator")
        opened = self.choose.choice((
            f"async with {manager}(n - 1):",
            f"async with contextlib.aclosing({agenerator}(n - 1)) as g:\n    await anext(g, None)",
            f"async with contextlib.AsyncExitStack() as s:\n"
            f"    await s.enter_async_context({manager}(n - 1))",
        ))  # fmt: skip
        for line in opened.split("\n"):
            self.put(level, line)
        self.block(level + 1, kind, nested + 1, yields)

    def fors(self, level: int, kind: str, nested: int, yields: bool) -> None:
        self.put(level, f"for _ in {self.one('generator')}(n - 1):")
        self.block(level + 1, kind, nested + 1, yields)
        if self.choose.random() < 0.5:
            self.put(level + 1, "break")

    def async_fors(self, level: int, kind: str, nested: int, yields: bool) -> None:
        self.put(level, f"async for _ in {self.one('agenerator')}(n - 1):")
        self.block(level + 1, kind, nested + 1, yields)
        if self.choose.random() < 0.5:
            self.put(level + 1, "break")


def text_of(seed: int) -> str:
    """Return a random program, for run()."""
    return "\n".join(_Writer(seed).lines) + "\n"


YIELD_VALUE, RESUME = dis.opmap["YIELD_VALUE"], dis.opmap["RESUME"]
CACHE = dis.opmap.get("CACHE", 0)
SEND = dis.opmap["SEND"]  # of `yield from` and await


def _is_evaluated(frame) -> bool:
    """Whether 3.11 evaluates the frame at this moment: then its stack's top is not saved in it."""
    inner = ctypes.c_void_p.from_address(id(frame) + 24).value
    return ctypes.c_int.from_address(inner + 64).value == -1


class Reference:
    """Follows the frames of a program.

    Attributes
    ----------
    chains : list
        One for each call of mark(), enter() and tick(): the calls from main() to the function that called it, each as
        its name and the number of its slice; None if that is not known.
    follows : bool
        False after the program's end: generators that are still alive may run then.
    """

    def __init__(self, fuel: int) -> None:
        self.chains: list = []
        self.follows = True
        self._slices: dict[int, int] = {}
        self._count = 0
        self._fuel = fuel
        self._bytecode: dict = {}

    def scope(self) -> dict:
        """Return the names that a program is given."""
        reference = self

        def mark():
            reference._log(sys._getframe(1))

        def enter():
            frame = sys._getframe(1)
            reference._begin(frame)
            reference._log(frame)
            return len(reference.chains) < reference._fuel

        def tick():
            frame = sys._getframe(1)
            reference._log(frame)
            reference._suspend(frame)

        return {"mark": mark, "enter": enter, "tick": tick, "__name__": "program"}

    def _begin(self, frame) -> None:
        """Number the frame's next slice, which begins now or when the frame is resumed."""
        self._count += 1
        self._slices[id(frame)] = self._count

    def _suspend(self, frame) -> None:
        """The frame will be suspended, and with it all frames that delegate to it."""
        self._begin(frame)
        if frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
            return  # its value goes to the frame that waits for it, which goes on
        while (frame := frame.f_back) is not None and self._opcode(frame) == SEND:
            self._begin(frame)

    def _instruction(self, frame) -> tuple[bytes, int]:
        code = frame.f_code
        bytecode = self._bytecode.get(code) or self._bytecode.setdefault(code, code.co_code)
        offset = frame.f_lasti
        while bytecode[offset] == CACHE:
            offset -= 2
        return bytecode, offset

    def _opcode(self, frame) -> int:
        bytecode, offset = self._instruction(frame)
        return bytecode[offset]

    def _is_passed(self, frame) -> bool:
        """Whether the frame is suspended in `yield from` or await, though it is among those of the thread.

        Then an exception is thrown through it into the generator that it waits for, and it does not run. At a
        yield of its own it runs: it drops what it held while it handles an exception. On 3.11 it may do that with what
        it waited for, too: later versions are at another instruction then.
        """
        if sys.version_info < (3, 12) and _is_evaluated(frame):
            return False
        bytecode, offset = self._instruction(frame)
        if bytecode[offset] == YIELD_VALUE:
            offset += 2
        return bytecode[offset] == RESUME and bytecode[offset + 1] & 3 > 1

    def _log(self, frame) -> None:
        if not self.follows:
            return
        chain = []
        while frame is not None:
            code = frame.f_code
            if not self._is_passed(frame):
                ours = code.co_filename == FILE and code.co_name[0] != "<"
                chain.append((code.co_qualname, self._slices[id(frame)] if ours else None))
            if code.co_name == "main" and code.co_filename == FILE:
                break
            frame = frame.f_back
        chain.reverse()
        self.chains.append(chain)


def run(text: str, recorder, fuel: int = 400) -> Reference:
    """Run a program while the recorder records, and return what its marks saw."""
    reference = Reference(fuel)
    scope = reference.scope()
    exec(_preamble, scope)
    exec(compile(text, FILE, "exec"), scope)
    collects, unraisable = gc.isenabled(), sys.unraisablehook
    gc.disable()  # from 3.12 on a collection may run at the entry of a function, before the call is reported
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with recorder:
                scope["main"]()
            reference.follows = False
            scope.clear()
            gc.collect(0)
    finally:
        sys.unraisablehook = unraisable
        if collects:
            gc.enable()
    return reference


def recorded_chains(trace) -> list:
    """Return the chains of a recording: as those of a Reference, with rows in place of numbers."""
    calls = trace.calls
    names, files, kinds, parents = (
        calls[each].tolist() for each in ("name", "file", "kind", "parent")
    )
    chains = []
    for row, name in enumerate(names):
        if files[row] != __file__ or name.rpartition(".")[2] not in MARKS:
            continue
        chain = []
        parent = parents[row]
        while parent is not None:
            if kinds[parent] != "c_call":
                chain.append((names[parent], parent))
            parent = parents[parent] if names[parent] != "main" else None
        chain.reverse()
        chains.append(chain)
    return chains


def difference(trace, reference: Reference) -> str:
    """Return how a recording differs from the reference; "" if it does not."""
    rows: dict = {}
    slices: dict = {}
    found = recorded_chains(trace)
    for number, (ours, theirs) in enumerate(zip(found, reference.chains, strict=False)):
        names, wanted = [name for name, _ in ours], [name for name, _ in theirs]
        if names != wanted:
            return f"mark {number} is in {names}, not in {wanted}"
        for (name, row), (_, part) in zip(ours, theirs, strict=True):
            if part is not None and (rows.setdefault(part, row), slices.setdefault(row, part)) != (
                row,
                part,
            ):
                return (
                    f"mark {number}: slice {part} of {name} is row {row}; "
                    f"before it was row {rows[part]}, and row {row} was slice {slices[row]}"
                )
    if len(found) != len(reference.chains):
        return f"{len(found)} marks, not {len(reference.chains)}"
    flags, names, depths = (trace.calls[each].tolist() for each in ("flags", "name", "depth"))
    main = names.index("main")
    for row in range(main, len(names)):
        if depths[row] > depths[main] and flags[row] & (2 | 16):
            return f"{names[row]}, row {row}, has no end: flags {flags[row]}"
    unmatched = trace.pairing["unmatched_ends"]
    return f"{unmatched} ends without a begin" if unmatched else ""
