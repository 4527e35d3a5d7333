"""overhead(): what recording one event costs, on this machine and interpreter, now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import _core

_REPEATS = 25
_STEPS = 400  # of a loop, each of which makes two events of its sort
_BUFFER = "1 MiB"
_FILL = 150_000  # events that make the ring go round, so that its memory was used before

#: What is measured, in these words of the ``event`` column, and what each stands for.
SORTS = {
    "call": "call and return, unwind: of Python functions",
    "c_call": "c_call and c_return, c_exception",
    "resume": "resume, throw and yield: of generators and coroutines",
    "malloc": "malloc, calloc and free",
    "realloc": "realloc, realloc_free and realloc_failed",
}

# Each loop makes two events a step, and no others. Not as this package's own code, which is never
# recorded, and what it calls takes a longer way.
_LOOPS = """
def nothing():
    pass

def call(steps):
    f = nothing
    for _ in steps:
        f()

def c_call(steps):
    f, x = abs, 7
    for _ in steps:
        f(x)

def numbers(steps):
    for _ in steps:
        yield

def resume(steps):
    for _ in numbers(steps):
        pass

def malloc(steps):
    x = 1 << 200
    for _ in steps:
        y = ~x
        y = None

def realloc(steps):
    data, some, rest = bytearray(1), b"x" * 300, slice(1, None)
    for _ in steps[::2]:
        data += some
        del data[rest]

def run(loops, few, steps, now):
    taken = {}
    for sort, loop in loops.items():
        loop(few)  # hooks go into code when it is first run
        begin = now()
        loop(steps)
        taken[sort] = now() - begin
    return taken
"""


class Overhead(Mapping[str, float]):
    """What one event costs, in ns, by sort: the mean of an event that opens and one that closes.

    Attributes
    ----------
    spread : dict of str to float
        By how much the middle of the repetitions was above the best, in ns.
    measured : dict of str to object
        With which recorder: backend, memory, calls, c_calls, clock.
    """

    def __init__(
        self, costs: Mapping[str, float], spread: Mapping[str, float], measured: Mapping[str, Any]
    ) -> None:
        self._costs = dict(costs)
        self.spread = dict(spread)
        self.measured = dict(measured)

    def __getitem__(self, sort: str) -> float:
        return self._costs[sort]

    def __iter__(self) -> Iterator[str]:
        return iter(self._costs)

    def __len__(self) -> int:
        return len(self._costs)

    def as_dict(self) -> dict[str, Any]:
        """Give it as plain objects: what ``trace.metadata["overhead"]`` is."""
        rounded = {sort: round(ns, 2) for sort, ns in self._costs.items()}
        spread = {sort: round(ns, 2) for sort, ns in self.spread.items()}
        return {**rounded, "spread": spread, "measured": self.measured}

    def __repr__(self) -> str:
        costs = ", ".join(
            f"{sort} {ns:.1f} (+{self.spread[sort]:.1f})" for sort, ns in self._costs.items()
        )
        return f"<eventprof.Overhead: ns an event: {costs}; {self.measured['backend']}>"


_known: dict[tuple[Any, ...], Overhead] = {}


def overhead(
    *,
    calls: bool = True,
    c_calls: bool = True,
    memory: bool = True,
    backend: str = "auto",
    clock: str = "auto",
    again: bool = False,
) -> Overhead:
    """Measure what recording one event costs: on this machine and interpreter, as it is now.

    Parameters
    ----------
    calls, c_calls, memory : bool
        What the recorder records, as in `record`: it pays for one sort while it records another.
    backend : {'auto', 'monitoring', 'profile'}
        As in `record`.
    clock : {'auto', 'counter', 'monotonic'}
        As in `record`.
    again : bool
        Measure once more; otherwise each choice of options is measured once a process.

    Returns
    -------
    Overhead
        A mapping of ``call``, ``c_call``, ``resume``, ``malloc`` and ``realloc``, as far as they
        are recorded, to ns an event: of pairs of events, as a call and its return, half.

    Raises
    ------
    StateError
        A recorder runs: it would record this, and be measured.
    ToolInUseError, UnsupportedError
        As `Recorder.start`.
    ValueError
        Nothing is to be recorded.

    Notes
    -----
    Takes about 50 ms: small loops, each several times without and with a recorder in turns; the
    best of either count. A cost is the recorder's with the interpreter's own hooks; what the hooks
    cost elsewhere, as by filling caches or by unspecialised code, is not in it.

    Examples
    --------
    >>> costs = eventprof.overhead(memory=False)
    >>> sorted(costs)
    ['c_call', 'call', 'resume']
    """
    from .record import record

    key = (calls, c_calls, memory, backend, clock)
    if key in _known and not again:
        return _known[key]
    if _core.engine_stats()["recording"]:
        raise _core.StateError(
            "a recorder runs, which would record what is measured; call overhead() before, or "
            "after it is stopped"
        )
    make: Callable[[], Any] = lambda: record(  # noqa: E731
        calls=calls,
        c_calls=c_calls,
        memory=memory,
        backend=backend,  # type: ignore[arg-type]
        clock=clock,  # type: ignore[arg-type]
        buffer=_BUFFER,
        threads="current",
        marks=False,
    )
    recorder = make()
    loops = _compile()
    sorts = [
        *(["call", "resume"] if calls else []),
        *(["c_call"] if c_calls else []),
        *(["malloc", "realloc"] if memory else []),
    ]
    costs, spread = _measure(recorder, loops["run"], {sort: loops[sort] for sort in sorts})
    measured = {
        "calls": calls,
        "c_calls": c_calls,
        "memory": memory,
        "backend": recorder.backend,
        "clock": recorder.clock,
    }
    order = [sort for sort in SORTS if sort in costs]
    found = Overhead(
        {sort: costs[sort] for sort in order}, {sort: spread[sort] for sort in order}, measured
    )
    _known[key] = found
    return found


def known(calls: bool, c_calls: bool, memory: bool, backend: str, clock: str) -> Overhead | None:
    """Give what was measured in this process already; measures nothing."""
    return _known.get((calls, c_calls, memory, backend, clock))


def _compile() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "eventprof overhead"}
    exec(compile(_LOOPS, "<eventprof overhead>", "exec"), names)
    return names


def _measure(
    recorder: Any, driver: Any, loops: dict[str, Callable[[tuple[None, ...]], None]]
) -> tuple[dict[str, float], dict[str, float]]:
    # Not a range, whose numbers are allocated.
    few, steps = (None,) * (_STEPS // 10), (None,) * _STEPS
    bare: dict[str, list[int]] = {sort: [] for sort in loops}
    recorded: dict[str, list[int]] = {sort: [] for sort in loops}

    def repeat(times: int, to: dict[str, list[int]]) -> None:
        for _ in range(times):
            for sort, ns in driver(loops, few, steps, time.perf_counter_ns).items():
                to[sort].append(ns)

    # Before and after, so that whatever else the machine does meets both.
    repeat(_REPEATS // 2, bare)
    with recorder:
        repeat(_FILL // 2 // _STEPS // len(loops), {sort: [] for sort in loops})
        repeat(_REPEATS, recorded)
    repeat(_REPEATS // 2, bare)
    events = 2 * _STEPS
    costs = {sort: max(0.0, (min(recorded[sort]) - min(bare[sort])) / events) for sort in loops}
    middle = {sort: (_middle(recorded[sort]) - _middle(bare[sort])) / events for sort in loops}
    return costs, {sort: max(0.0, middle[sort] - costs[sort]) for sort in loops}


def _middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]
