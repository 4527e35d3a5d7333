"""The report: one page of text that says what a trace holds, by rich.

Numbers stand left and names right, so that a line is read without a ruler and the names get what
room is left. trace.py imports this module when a report is asked for: rich is needed then only.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

import numpy as np

try:
    from rich.console import Console, Group, RenderableType
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "rich":
        raise
    raise ModuleNotFoundError(
        "report() and str() of a trace need rich, which is not installed: pip install rich",
        name="rich",
    ) from None

from . import _core
from .drawing import (
    BAD,
    GOOD,
    MARK,
    SIDE,
    Curve,
    Name,
    Rule,
    clean,
    draw_bar,
    draw_lane,
    short_path,
    show_bytes,
    show_count,
    show_ns,
    show_percent,
    three_digits,
)
from .file import unknown_kinds
from .tables import Array
from .trace import ALLOCATION_FLAGS, CALL_FLAGS

if TYPE_CHECKING:
    from .trace import Trace

_ALL_DOMAINS = 31
_NARROWEST = 40  # columns: below that, nothing is left of a name

_KINDS = {row[0]: (row[2], row[4]) for row in _core.kind_table()}
#: Calls that the interpreter makes; spans and the like are none.
_CALL_BITS = sum(1 << row[0] for row in _core.kind_table() if row[4] == "call" and row[3])
_BLOCK_BITS = sum(1 << n for n, (_, family) in _KINDS.items() if family in ("alloc", "free"))
_PYTHON_WORDS = tuple(row[2] for row in _core.kind_table() if row[7] == "python")
_C_WORDS = tuple(row[2] for row in _core.kind_table() if row[7] == "c")
#: Those of which each block has some: the others are of requests that failed.
_BLOCK_WORDS = tuple(
    dict.fromkeys(r[2] for r in _core.kind_table() if r[7] == "block" and r[6] != "neither")
)


# ---- The page ------------------------------------------------------------------------------------


class _Page:
    """The sections of a report, top to bottom."""

    def __init__(self, trace: Trace, width: int, limit: int, *, plain: bool) -> None:
        self.trace = trace
        self.width = width
        self.limit = limit
        self.few = (limit + 1) // 2  # rows of all tables but the first
        self.plain = plain
        self.bar_width = 5 if width < 90 else 12 if width < 120 else 20
        self.kinds = trace._core.facts()["kinds"]
        self.known_from = self._known_from()
        self.recorded: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        for *_, recorded, lost in trace._core.threads():
            for sums, counts in ((self.recorded, recorded), (self.lost, lost)):
                for kind, count in counts.items():
                    sums[kind] = sums.get(kind, 0) + count

    def _known_from(self) -> int:
        """Give the time from which on nothing was overwritten, on any thread."""
        threads = self.trace.threads
        if self.trace.loss.reason not in ("overwritten", "small_disk"):
            return 0
        firsts = np.ma.filled(threads["first"], self.trace.duration)
        return int(firsts[threads["lost"] > 0].max())

    def sections(self) -> Iterator[RenderableType]:
        """Give the whole page."""
        yield from self.limits()
        yield from self.first()
        yield from self.section("What was recorded", self.what())
        yield from self.time()
        yield from self.memory()
        yield from self.threads()

    def section(
        self, title: str, *content: RenderableType, side: str = ""
    ) -> Iterator[RenderableType]:
        """Put a title over some content; with loss it says so."""
        if self.trace.loss:
            side = f"with loss; {side}" if side else "with loss"
        yield ""
        yield Rule(title, side, plain=self.plain)
        yield Padding(Group(*content), (0, 0, 0, 2), expand=False)

    def grid(self, *heads: str) -> Grid:
        """Make a table whose columns are numbers, but for bars and names."""
        grid = Grid(
            box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=SIDE, show_edge=False
        )
        for head in heads:
            if head == "share":
                grid.add_column(head, justify="right", no_wrap=True)
                grid.add_column("", width=self.bar_width, no_wrap=True)
            elif head in ("function", "where", "thread", "active"):
                grid.add_column(head, overflow="crop")
            else:
                grid.add_column(head, justify="right", no_wrap=True)
        return grid

    def share(self, part: float, whole: float) -> tuple[Text, Text]:
        """Give the two cells of the share column."""
        bar = draw_bar(part / whole if whole > 0 else 0.0, self.bar_width, plain=self.plain)
        return Text(show_percent(part, whole)), bar

    def function(self, row: int) -> Name:
        """Name a function by its module and qualified name."""
        if row < 0:
            return Name("(unknown)", plain=self.plain, style=SIDE)
        part = self.trace.functions[row : row + 1]
        name, module = part["name"][0], part["module"][0]
        known = name or "(no name)"
        bare = module in (None, "builtins") or (module == "__main__" and known != "<module>")
        return Name(known if bare else f"{module}.{known}", plain=self.plain)

    @staticmethod
    def more(count: int, what: str, rest: str, share: str = "") -> Text:
        """Say what a table leaves out."""
        share = f" ({share})" if share else ""
        return Text(f"and {count:,} more {what}, {rest}{share}", style=SIDE)

    # ---- What limits the conclusions ---------------------------------------------------------

    def limits(self) -> Iterator[Text]:
        """Say first what was lost, then all else that the page cannot know."""
        loss, events = self.trace.loss, sum(self.recorded.values())
        damaged = self.trace._core.facts()["damaged_chunks"]
        if damaged:
            parts = show_count(damaged, "part")
            yield Text(
                f"DAMAGE: {parts} of the recording could not be read, and what was in there is "
                f"missing; {show_count(events, 'event')} {'is' if events == 1 else 'are'} here.",
                style=BAD,
            )
        if loss:
            yield Text(self._lost(events), style=BAD)
            words = ", ".join(f"{count:,} {word}" for word, count in loss.by_kind.items())
            yield Text(f"Missing are {words}. Counts, times and bytes below are of what was kept.")
            if self.known_from > 0:
                yield Text(
                    f"Nothing is missing from {show_ns(self.known_from)} on; the time before "
                    "counts as self time of what was open then."
                )
        elif events and not damaged:
            yield Text(f"Nothing lost: {self._all(events)}.", style=GOOD)
        elif not damaged:
            yield Text("Nothing lost, and nothing recorded: no event occurred.", style=GOOD)
        for limit in self._other_limits():
            yield Text.assemble(("Note: ", MARK), clean(limit, plain=self.plain))

    @staticmethod
    def _all(events: int) -> str:
        return "the only event is here" if events == 1 else f"all {events:,} events are here"

    def _lost(self, events: int) -> str:
        loss = self.trace.loss
        total = loss.total + events
        end = f"after {show_ns(self.trace.duration)}, and recording ended"
        why = {
            "overwritten": "the buffer was full, the oldest were overwritten",
            "damaged": "the file is damaged",
            "limit": f"the buffer was full {end}",
            "memory": f"no memory was left {end}",
            "disk": f"the disk of its file was full {end}",
            "small_disk": "the disk was full before the buffer, the oldest were overwritten",
            "cut": "somebody cut the file off while it was written",
        }[str(loss.reason)]
        return (
            f"LOSS: {loss.total:,} of {show_count(total, 'event')} "
            f"({show_percent(loss.total, total)}) are missing on "
            f"{show_count(len(loss.by_thread), 'thread')}: {why}."
        )

    def _other_limits(self) -> Iterator[str]:
        trace, core = self.trace, self.trace._core
        metadata, facts = trace.metadata, core.facts()
        options = metadata.get("options", {})
        if trace.loss.reason in ("limit", "memory", "disk") and not trace.loss:
            yield f"recording ended after {show_ns(trace.duration)}, where the buffer was full."
        if trace.loss.reason == "cut" and not trace.loss:
            yield "somebody cut the file off while it was written: what was there is gone."
        for source in metadata.get("displaced", ()):
            yield (
                f"another tool took over the hook of {source!r} during the recording; what that "
                "source would have seen from then on is missing."
            )
        file = trace.file
        if file is not None:
            yield from (f"{note}." for note in file["missing"])
            unknown = unknown_kinds(file)
            if unknown is not None:
                yield f"{unknown}."
            if file.get("children_lost"):
                count = file["children_lost"]
                processes = f"{count:,} forked process{'' if count == 1 else 'es'}"
                yield (
                    f"{processes} could not write a file ({file['children_error']}): what was "
                    "recorded there is lost."
                )
            if file["live"]:
                yield "the program is still being recorded; this is what it did until now."
            elif file["unfinished"]:
                yield "the program ended without stopping the recorder; all it recorded is here."
        if facts["functions_off"]:
            functions = show_count(facts["functions_off"], "function")
            yield (
                f"calls of {functions} were switched off, as include= and exclude= ask; how many "
                "there were is not known."
            )
        elif facts["filtered"]:
            events = show_count(facts["filtered"], "event")
            yield f"{events} of calls left out, as include= and exclude= ask."
        if facts["deep_calls"]:
            calls = show_count(facts["deep_calls"], "call")
            yield f"{calls} left out that were nested deeper than max_depth."
        if facts["short_calls"]:
            calls = show_count(facts["short_calls"], "call")
            yield f"{calls} left out that took less than min_duration."
        if options.get("threads") == "current":
            yield "only the thread that started it was recorded, as threads='current' asks."
        yield from self._not_asked_for()
        yield from self._unmatched_calls()
        yield from self._unmatched_blocks()

    def _not_asked_for(self) -> Iterator[str]:
        """Name the events without which pairs and sums are not what they seem."""
        wanted = {_KINDS[kind][0] for kind in _KINDS if self.kinds >> kind & 1}
        for words, what in (
            (_PYTHON_WORDS, "calls and times"),
            (_C_WORDS, "calls and times"),
            (_BLOCK_WORDS, "bytes and blocks"),
        ):
            missing = [word for word in words if word not in wanted]
            if missing and len(missing) < len(words):
                yield f"{', '.join(missing)} not recorded, as events= asks: {what} are incomplete."
        domains = self.trace.metadata.get("options", {}).get("domains", ())
        of_python = [word for word in domains if word in ("raw", "mem", "obj")]
        if self.kinds & _BLOCK_BITS and domains and len(of_python) < 3:
            only = f"only {' and '.join(of_python)}" if of_python else "none"
            yield f"of Python's allocators {only} recorded, as memory= asks."

    def _occur(self, *words: str) -> bool:
        return any(_KINDS[kind][0] in words for kind in self.recorded)

    def _has_calls(self) -> bool:
        """Whether there is a tree of calls, though it be of spans alone."""
        in_tree = (kind for kind in self.recorded if _KINDS[kind][1] == "call")
        return bool(self.kinds & _CALL_BITS) or next(in_tree, None) is not None

    def _rows_of(self, *words: str) -> Array:
        """Give a mask of the events that are one of these."""
        wanted = np.zeros(max(_KINDS) + 1, dtype=bool)
        wanted[[number for number, (word, _) in _KINDS.items() if word in words]] = True
        mask: Array = wanted[self.trace._core.events("kind")]
        return mask

    def _unmatched_calls(self) -> Iterator[str]:
        core = self.trace._core
        if not self._has_calls():
            return
        misplaced = self.trace.pairing["calls_misplaced"]
        if misplaced:
            yield (
                f"{show_count(misplaced, 'call')} lie in calls that did not make them: the program "
                "switches greenlets, and the calls of all of a thread are one tree here; parents, "
                "depths and times are not what they seem."
            )
        unseen = int(np.count_nonzero(core.calls("flags") & CALL_FLAGS["end_unseen"]))
        if unseen:
            yield f"the end of {show_count(unseen, 'call')} was not seen; the times are bounds."
        if self._occur("return", "yield", "unwind", "c_return", "c_exception"):
            ends = self._rows_of("return", "yield", "unwind", "c_return", "c_exception")
            strays = int(np.count_nonzero(core.events("call")[ends] < 0))
            if strays:
                yield f"{show_count(strays, 'end')} of calls belong to no recorded call."

    def _unmatched_blocks(self) -> Iterator[str]:
        core = self.trace._core
        if not self.kinds & _BLOCK_BITS:
            return
        if self._occur("free", "realloc_free"):
            frees = self._rows_of("free", "realloc_free")
            strays = int(np.count_nonzero(core.events("size")[frees] < 0))
            older = "lost, or older" if self.trace.loss else "older than the recording"
            if strays:
                count = show_count(strays, "free")
                yield f"{count} of blocks that were {older}: their bytes are in no sum."
        flags = core.allocations("flags")
        unfreed = int(np.count_nonzero(flags & ALLOCATION_FLAGS["free_lost"]))
        if unfreed:
            yield f"the free of {show_count(unfreed, 'block')} was not seen; the lives are bounds."

    # ---- What people ask first ---------------------------------------------------------------

    def first(self) -> Iterator[RenderableType]:
        """Say what is slow and where the peak is, in own code."""
        from .answers.first import sections

        lines = sections(self.trace)
        if lines:
            texts = [Text(clean(line, plain=self.plain), no_wrap=True) for line in lines]
            for text in texts:
                text.overflow = "ellipsis" if not self.plain else "crop"
            yield from self.section("In own code", *texts, side="eventprof tree shows more")

    # ---- What was recorded -------------------------------------------------------------------

    def what(self) -> Grid:
        """Say when, how and how much was recorded."""
        trace, metadata = self.trace, self.trace.metadata
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(style=SIDE, no_wrap=True)
        grid.add_column(overflow="fold")

        def row(head: str, said: str) -> None:
            if said:
                grid.add_row(head, Text(clean(said, plain=self.plain)))

        row("program", " ".join(metadata.get("argv", ())))
        started = time.localtime(metadata["start_ns"] / 1e9)
        when = time.strftime("%Y-%m-%d %H:%M:%S", started)
        threads = show_count(len(trace.threads), "thread")
        row("duration", f"{show_ns(trace.duration)} from {when}, {threads}")
        events = sum(self.recorded.values())
        total = events + trace.loss.total
        kept = f"{events:,} of {total:,}" if trace.loss else f"{events:,}"
        row("events", f"{kept}{self._rate(total)}" if total else "none")
        for head, families in (
            ("  calls", ("call",)),
            ("  memory", ("alloc", "free")),
            ("  others", ("point", "value")),
        ):
            row(head, ", ".join(self._counts(families)))
        row("left out", ", ".join(self._left_out()))
        row("recorded by", ", ".join(self._how()))
        return grid

    def _rate(self, events: int) -> str:
        duration = self.trace.duration
        if duration < 1e6:  # of less than a millisecond it says nothing
            return ""
        rate = events / duration * 1e9
        for unit, size in ((" million", 1e6), ("", 1.0)):
            if rate >= size:
                return f", {three_digits(rate / size) if unit else f'{rate:,.0f}'}{unit} a second"
        return ""

    def _counts(self, families: tuple[str, ...]) -> list[str]:
        """Give the counts of events by word, of some families."""
        sums: dict[str, int] = {}
        for kind, (word, family) in _KINDS.items():
            if family in families and kind in self.recorded:
                sums[word] = sums.get(word, 0) + self.recorded[kind]
        return [f"{count:,} {word}" for word, count in sums.items()]

    def _left_out(self) -> Iterator[str]:
        words = {_KINDS[kind][0] for kind in _KINDS if self.kinds >> kind & 1}
        for what, some in (
            ("calls of Python functions", _PYTHON_WORDS),
            ("calls of other functions", _C_WORDS),
            ("allocations", _BLOCK_WORDS),
        ):
            if words.isdisjoint(some):
                yield what

    def _how(self) -> Iterator[str]:
        metadata = self.trace.metadata
        backends = {"monitoring": "sys.monitoring", "profile": "PyEval_SetProfile"}
        if self.kinds & _CALL_BITS and metadata.get("backend"):
            yield backends.get(metadata["backend"], metadata["backend"])
        if self.kinds & _BLOCK_BITS:
            yield "allocator hooks"
        clock = {"counter": "processor counter", "monotonic": "monotonic clock"}
        name = clock.get(metadata.get("clock", ""), "")
        if name:
            frequency = metadata["clock_frequency_hz"] / 1e9
            yield f"{name} of {frequency:.3g} GHz" if name == "processor counter" else name
        if metadata.get("python"):
            yield metadata["python"]

    # ---- Time --------------------------------------------------------------------------------

    def time(self) -> Iterator[RenderableType]:
        """Say in which functions the time went."""
        title = "Where the time went"
        if not self._has_calls():
            return
        statistics = self.trace._function_stats
        own, total = statistics["self"], statistics["total"]
        known = np.flatnonzero((own + statistics["calls"] + statistics["resumes"])[:-1] > 0)
        if not len(known):
            yield from self.section(title, Text("No call was recorded.", style=SIDE))
            return
        whole = int(own.sum())
        shown = known[np.argsort(-own[known], kind="stable")[: self.limit]]
        grid = self.grid("self", "share", "total", "calls", "mean", "function")
        for row in shown.tolist():
            calls, resumes = int(statistics["calls"][row]), int(statistics["resumes"][row])
            mean = float(statistics["mean"][row])
            grid.add_row(
                show_ns(int(own[row])),
                *self.share(own[row], whole),
                show_ns(int(total[row])),
                f"{calls:,}+{resumes:,}" if resumes else f"{calls:,}",
                show_ns(mean) if mean >= 0 else "-",
                self.function(row),
            )
        content: list[RenderableType] = [grid]
        if len(known) > len(shown):
            rest = whole - int(own[shown].sum())
            content.append(
                self.more(
                    len(known) - len(shown),
                    "functions",
                    show_ns(rest),
                    show_percent(rest, whole),
                )
            )
        legend = "self: without the calls inside; total: with them; mean: of a call"
        if statistics["resumes"][shown].any():
            legend += " or resume; 1+2: calls+resumes"
        content.append(Text(legend, style=SIDE))
        threads = len(self.trace.threads)
        where = f"in calls, of {threads} threads" if threads > 1 else "in calls"
        yield from self.section(title, *content, side=f"by self time; {show_ns(whole)} {where}")

    # ---- Memory ------------------------------------------------------------------------------

    def memory(self) -> Iterator[RenderableType]:
        """Say which functions and lines memory went to, when, and what stayed."""
        title = "Where the memory went"
        if not self.kinds & _BLOCK_BITS:
            return
        core = self.trace._core
        peak_time, peak, peak_blocks, _ = core.peak(_ALL_DOMAINS)
        if peak_time < 0:
            yield from self.section(title, Text("Nothing was allocated.", style=SIDE))
            return
        statistics = self.trace._function_stats
        sums = {name: int(column.sum()) for name, column in statistics.items() if name != "mean"}
        yield from self.section(
            title,
            self._totals(sums, (peak_time, peak, peak_blocks)),
            "",
            *self._by_function(statistics, sums["allocated"]),
        )
        if peak > 0:
            yield from self.section(
                "Memory over time",
                Curve(
                    lambda count: core.bins(_ALL_DOMAINS, count)[:2],
                    self.trace.duration,
                    (peak_time, peak),
                    known_from=self.known_from,
                    plain=self.plain,
                ),
                side="live bytes, allocated in the recording"
                + (f"; {'?' if self.plain else '░'} is lost" if self.known_from > 0 else ""),
            )
        places = _Places(self.trace)
        allocated, blocks = sums["allocated"], sums["blocks"]
        yield from self._sites(
            "Hot allocation sites",
            "lines, by the bytes they allocated",
            "allocated",
            places.all(),
            allocated,
        )
        alive = f"{show_bytes(sums['alive'])} in {show_count(sums['alive_blocks'], 'block')}"
        yield from self._sites(
            "Alive at the end",
            f"{alive}: results, caches and leaks",
            "alive",
            places.of(*core.alive(-1, "site")),
            sums["alive"],
        )
        temporary = sums["temporary"]
        yield from self._sites(
            "Temporary blocks",
            f"{show_bytes(temporary)} in {show_count(sums['temporary_blocks'], 'block')}, "
            f"{show_percent(sums['temporary_blocks'], blocks)} of all",
            "temporary",
            places.of(*core.temporary("site")),
            temporary,
            "freed in the call that made them, or before their thread's next allocation",
        )

    def _totals(self, sums: dict[str, int], peak: tuple[int, int, int]) -> Grid:
        peak_time, peak_bytes, peak_blocks = peak
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(style=SIDE, no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(overflow="fold")

        def row(head: str, size: int, said: str) -> None:
            grid.add_row(head, show_bytes(size), Text(said))

        domains = self._domains()
        row(
            "allocated",
            sums["allocated"],
            f"in {show_count(sums['blocks'], 'block')}{f' ({domains})' if domains else ''}",
        )
        frees = show_count(sum(self._number(word) for word in ("free", "realloc_free")), "free")
        row("freed", sums["freed"], f"by {frees}")
        row("peak", peak_bytes, f"in {show_count(peak_blocks, 'block')} at {show_ns(peak_time)}")
        row("at the end", sums["alive"], f"in {show_count(sums['alive_blocks'], 'block')}")
        return grid

    def _number(self, word: str) -> int:
        return sum(n for kind, n in self.recorded.items() if _KINDS[kind][0] == word)

    def _domains(self) -> str:
        """Give what was allocated by domain, if there are several."""
        core = self.trace._core
        sizes = core.allocations("size")
        sums = np.bincount(core.allocations("domain"), weights=sizes, minlength=5).tolist()
        words = ("raw", "mem", "obj", "numpy", "libc")
        parts = [f"{w} {show_bytes(n)}" for w, n in zip(words, sums, strict=True) if n]
        return ", ".join(parts) if len(parts) > 1 else ""

    def _by_function(self, statistics: dict[str, Array], whole: int) -> Iterator[RenderableType]:
        allocated = statistics["allocated"][:-1]
        known = np.flatnonzero(allocated > 0)
        shown = known[np.argsort(-allocated[known], kind="stable")[: self.few]]
        grid = self.grid("allocated", "share", "blocks", "at peak", "at end", "function")
        for row in shown.tolist():
            grid.add_row(
                show_bytes(int(allocated[row])),
                *self.share(allocated[row], whole),
                f"{statistics['blocks'][row]:,}",
                show_bytes(int(statistics["peak_live"][row])),
                show_bytes(int(statistics["alive"][row])),
                self.function(row),
            )
        yield grid
        if len(known) > len(shown):
            rest = whole - int(allocated[shown].sum())
            yield self.more(
                len(known) - len(shown),
                "functions",
                show_bytes(rest),
                show_percent(rest, whole),
            )

    def _sites(
        self, title: str, side: str, head: str, places: _Sums, whole: int, legend: str = ""
    ) -> Iterator[RenderableType]:
        functions, lines, sizes, blocks = places
        if not len(sizes):
            return
        grid = self.grid(head, "share", "blocks", "where", "function")
        shown = slice(0, self.few)
        for function, line, size, count in zip(
            functions[shown].tolist(),
            lines[shown].tolist(),
            sizes[shown].tolist(),
            blocks[shown].tolist(),
            strict=True,
        ):
            grid.add_row(
                show_bytes(size),
                *self.share(size, whole),
                f"{count:,}",
                self._where(function, line),
                self._bare(function),
            )
        content: list[RenderableType] = [grid]
        if len(sizes) > self.few:
            rest = int(sizes[self.few :].sum())
            content.append(
                self.more(
                    len(sizes) - self.few,
                    "lines",
                    show_bytes(rest),
                    show_percent(rest, whole),
                )
            )
        if legend:
            content.append(Text(legend, style=SIDE))
        yield from self.section(title, *content, side=side)

    def _where(self, function: int, line: int) -> Name:
        file = self.trace.functions[function : function + 1]["file"][0] if function >= 0 else None
        if file is None:
            return Name("(no Python code)", plain=self.plain, style=SIDE)
        at = f":{line}" if line >= 0 else ""
        return Name(short_path(file) + at, plain=self.plain, path=True)

    def _bare(self, function: int) -> Name:
        """Name a function whose file is beside it."""
        if function < 0:
            return Name("", plain=self.plain)
        name = self.trace.functions[function : function + 1]["name"][0]
        return Name(name or "(no name)", plain=self.plain)

    # ---- Threads -----------------------------------------------------------------------------

    def threads(self) -> Iterator[RenderableType]:
        """Say which thread did what, and when."""
        trace, core, table = self.trace, self.trace._core, self.trace.threads
        if not len(table):
            return
        recorded, lost = table["recorded"], table["lost"]
        with_calls, with_blocks = self._has_calls(), self.kinds & _BLOCK_BITS
        heads = ["events"]
        columns: list[Callable[[int], RenderableType]] = [lambda row: f"{recorded[row]:,}"]
        if trace.loss:
            heads.append("lost")
            columns.append(lambda row: f"{lost[row]:,}")
        if with_calls:
            own = np.bincount(
                core.calls("thread"), weights=core.calls("self_time"), minlength=len(table)
            )
            heads.append("in calls")
            columns.append(lambda row: show_ns(round(own[row])))
        if with_blocks:
            sizes = np.bincount(
                core.allocations("thread"),
                weights=core.allocations("size"),
                minlength=len(table),
            )
            heads.append("allocated")
            columns.append(lambda row: show_bytes(sizes[row]))
        order = np.argsort(-(recorded + lost), kind="stable")
        shown = order[: self.few].tolist()
        firsts, lasts = table["first"], table["last"]
        lane = 2 * self.bar_width
        grid = self.grid(*heads, "active", "thread")
        for row in shown:
            active: RenderableType = ""
            if recorded[row]:
                active = draw_lane(firsts[row], lasts[row], trace.duration, lane, plain=self.plain)
            grid.add_row(*(column(row) for column in columns), active, self._thread(row))
        content: list[RenderableType] = [grid]
        if len(table) > len(shown):
            rest = int(recorded[order[self.few :]].sum())
            content.append(self.more(len(table) - len(shown), "threads", show_count(rest, "event")))
        yield from self.section("Threads", *content)

    def _thread(self, row: int) -> Name:
        part = self.trace.threads[row : row + 1]
        name, native_id = part["name"][0], np.ma.filled(part["native_id"], 0)[0]
        known = name or "(no name)"
        return Name(f"{known} ({native_id})" if native_id else known, plain=self.plain)


_Sums = tuple[Array, Array, Array, Array]  # function, line, bytes, blocks: the most bytes first


class _Places:
    """Bytes and blocks by function and line: several sites may lie on one line."""

    def __init__(self, trace: Trace) -> None:
        self.core = trace._core

    def all(self) -> _Sums:
        """Sum all blocks."""
        core = self.core
        return self._sum(core.allocations("function"), core.allocations("line"),
                         core.allocations("size"), None)  # fmt: skip

    def of(self, sites: Array, sizes: Array, blocks: Array) -> _Sums:
        """Sum what is summed by site; site 0 is unknown."""
        functions, _, lines = self.core.sites()
        known = sites > 0
        return self._sum(
            np.where(known, functions[sites], -1), np.where(known, lines[sites], -1), sizes, blocks
        )

    @staticmethod
    def _sum(functions: Array, lines: Array, sizes: Array, blocks: Array | None) -> _Sums:
        if not len(functions):
            return functions, lines, sizes, functions
        # Number the lines of a function from its least to its most: no sorting, which for ten
        # million blocks takes eight times as long. Row -1 is the unknown function, the last.
        count = int(functions.max()) + 2
        functions, lines = functions.astype(np.intp), lines.astype(np.int32, copy=False)
        least = np.full(count, np.iinfo(np.int32).max, dtype=np.int32)
        most = np.full(count, -2, dtype=np.int32)
        np.minimum.at(least, functions, lines)  # fast with equal types only
        np.maximum.at(most, functions, lines)
        span = np.maximum(most.astype(np.int64) - least + 1, 0)
        first = np.cumsum(span) - span
        keys = (first - least)[functions] + lines
        # Sums of float64 are exact up to 2**53, nine petabytes.
        size_sums = np.bincount(keys, weights=sizes).astype(np.int64)
        block_sums = np.bincount(keys, weights=blocks).astype(np.int64)
        found = np.flatnonzero(block_sums)
        found = found[np.argsort(-size_sums[found], kind="stable")]
        # A function without blocks has no keys: the last that begins here is the one.
        owners = np.searchsorted(first, found, side="right") - 1
        owner_lines = found - first[owners] + least[owners]
        owners[owners == count - 1] = -1
        return owners, owner_lines, size_sums[found], block_sums[found]


# ---- What trace.py calls -------------------------------------------------------------------------


class _Ascii(io.StringIO):
    """Text for an output that has no more than ASCII."""

    encoding = "ascii"


def _is_plain(console: Console) -> bool:
    """Whether an output has no more than ASCII, or is a terminal whose fonts have no more."""
    terms = ("dumb", "linux", "unknown", "vt100")
    poor = console.is_terminal and os.environ.get("TERM", "").lower() in terms
    return poor or console.options.ascii_only


def _checked(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, not {value!r}")
    return int(value)


def _print(trace: Trace, console: Console, limit: int) -> None:
    page = _Page(trace, console.width, limit, plain=_is_plain(console))
    for part in page.sections():
        console.print(part, highlight=False, markup=False, emoji=False)


def _text(trace: Trace, encoding: str, width: int, limit: int) -> str:
    file = io.StringIO() if encoding.lower().startswith("utf") else _Ascii()
    console = Console(file=file, width=width, color_system=None, force_terminal=False,
                      force_jupyter=False, legacy_windows=False)  # fmt: skip
    _print(trace, console, limit)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def report(
    trace: Trace, file: IO[str] | None = None, width: int | None = None, limit: int = 15
) -> None:
    """Print one page that says where the time and the memory went.

    Parameters
    ----------
    trace : Trace
        What to report.
    file : text file, optional
        Where to; standard output without.
    width : int, optional
        In columns; without, the terminal's, or 80. At least 40.
    limit : int
        How many functions the table of times shows; the other tables show half as many.

    Raises
    ------
    TypeError, ValueError
        A number is none, or too small; nothing was printed.

    Notes
    -----
    Colours only in a terminal, and not where ``NO_COLOR`` is set; ASCII only where the encoding or
    the terminal has no more.
    """
    limit = _checked("limit", limit, 1)
    if width is not None:
        width = _checked("width", width, _NARROWEST)
    console = Console(file=file, width=width)
    if console.is_terminal or console.is_jupyter:
        _print(trace, console, limit)
    else:  # without the blanks that rich fills lines with
        print(_text(trace, console.encoding, console.width, limit), file=console.file)


def text(trace: Trace, width: int = 100, limit: int = 15) -> str:
    """Give the report as text without colours.

    Parameters
    ----------
    trace : Trace
        What to report.
    width : int
        In columns, at least 40.
    limit : int
        As in `report`.

    Returns
    -------
    str
        Lines of at most `width` columns, without a last newline. ASCII if standard output has no
        more, so that it can be printed.

    Raises
    ------
    TypeError, ValueError
        A number is none, or too small.
    """
    width, limit = _checked("width", width, _NARROWEST), _checked("limit", limit, 1)
    return _text(trace, getattr(sys.stdout, "encoding", None) or "utf-8", width, limit)
