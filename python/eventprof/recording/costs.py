"""overhead(): what recording one event costs now, on this machine and interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from .. import _core
from ..base.sorts import SORTS

_REPEATS = 25
_STEPS = 400  # steps of a loop; each step makes two events of its sort
_BUFFER = "1 MiB"
_FILL = 150_000  # so many events fill the ring once, so that its memory was used before

# Each loop makes two events a step, and no others. The code is not in a file of this package,
# because that is never recorded, and calls that it makes take a slower path.
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
    """The cost of one event, in ns, by sort: the mean of an event that opens and one that closes.

    Attributes
    ----------
    spread : dict of str to float
        How far the median of the repetitions was above the minimum, in ns.
    measured : dict of str to object
        The options of the measured recorder: backend, memory, calls, c_calls, clock.
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
        """Return plain objects, as in ``trace.metadata["overhead"]``."""
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
    """Measure what recording one event costs now, on this machine and interpreter.

    Parameters
    ----------
    calls, c_calls, memory : bool
        What the recorder records, as in `record`. An event of one sort costs more while others are
        recorded.
    backend : {'auto', 'monitoring', 'profile'}
        As in `record`.
    clock : {'auto', 'counter', 'monotonic'}
        As in `record`.
    again : bool
        Measure again; otherwise each choice of options is measured once in a process.

    Returns
    -------
    Overhead
        A mapping of ``call``, ``c_call``, ``resume``, ``malloc`` and ``realloc``, as far as they
        are recorded, to ns an event: half of the cost of a pair, such as a call and its return.

    Raises
    ------
    StateError
        A recorder is running: it would record the measured loops.
    ToolInUseError, UnsupportedError
        As `Recorder.start`.
    ValueError
        No events are to be recorded.

    Notes
    -----
    It takes about 50 ms: small loops run several times, in turns without and with a recorder, and
    the minimum of each counts. A cost contains the recorder and the interpreter's own hooks. Other
    effects of the hooks, such as filled caches or unspecialized code, are not in it.

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
            "a recorder is running, and would record the measured loops; call overhead() before it "
            "starts or after it is stopped"
        )
    make: Callable[[], Any] = lambda: cast(Any, record)(  # noqa: E731
        calls=calls,
        c_calls=c_calls,
        memory=memory,
        backend=backend,
        clock=clock,
        buffer=_BUFFER,
        threads="current",
        marks=False,
    )
    recorder = make()
    recorder._warns = False  # its ring is filled on purpose
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
    """Return the costs that were measured before in this process; measures nothing."""
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

    # Without a recorder before and after, so that other work of the machine affects both.
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
