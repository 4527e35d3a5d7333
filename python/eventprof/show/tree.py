"""The tree of calls as text: the heaviest branches, own code first."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from .._words import show_bytes, show_ns
from ..answers.branches import Branch, build, chosen_own, own_or_all, place_of, root_of
from ..answers.reserved import reserved_at_peak
from ..answers.tree import Tree
from ..tables.kinds import unknown_kinds
from ..tables.loss import loss_of_others, time_words

if TYPE_CHECKING:
    from ..trace import Trace


def percent(part: float, whole: float) -> str:
    """Return a share, without decimals."""
    return f"{100 * float(part) / float(whole):3.0f} %" if whole > 0 else "    -"


def text_lines(
    tree: Tree, top: Branch, width: int, plain: bool, show: Callable[[int], str] = show_ns
) -> list[str]:
    """Return the branches as lines of text; `show` words a time."""
    has_time = top.total > 0
    has_waited = tree.has_lock and len(tree.threads["in_calls"]) > 1 and top.waited > 0
    has_memory = bool(tree.facts["peak"]) or top.allocated > 0
    heads = []
    if has_time:
        heads += ["time" if show is show_ns else "total", "", "self"]
    if has_waited:
        heads += ["waited"]
    has_allocated = has_memory and width >= 100
    heads += ["allocated"] if has_allocated else []
    heads += ["at peak"] if has_memory else []
    heads += ["calls"]
    whole = top.total
    rows: list[tuple[list[str], str, str, str]] = []  # numbers, lead, name, place
    tees = ("|- ", "`- ", "|  ", "   ") if plain else ("├ ", "└ ", "│ ", "  ")
    # A stack instead of recursion: the tree may be deeper than Python's limit.
    stack: list[tuple[Branch | str, str, str]] = [(top, "", "")]
    while stack:
        what, lead, below = stack.pop()
        if isinstance(what, str):
            rows.append((["" for _ in heads], lead, what, ""))
            continue
        cells = []
        if has_time:
            cells += [show(what.total), percent(what.total, whole), show(what.self)]
        if has_waited:
            cells += [show_ns(what.waited) if what.waited else ""]
        if has_allocated:
            cells += [show_bytes(what.allocated)]
        if has_memory:
            cells += [show_bytes(what.at_peak)]
        cells += [f"{what.calls:,}" if what.node else ""]
        rows.append((cells, lead, tree.name(what.node), place_of(tree, what.node)))
        items: list[Branch | str] = list(what.children)
        if what.folded:
            small = f"{what.folded:,} more: {show(what.folded_total)}" if has_time else (
                f"{what.folded:,} more"
            )  # fmt: skip
            items.append(f"... {small}" if plain else f"… {small}")
        for index, item in reversed(list(enumerate(items))):
            last = index == len(items) - 1
            stack.append((item, below + tees[1 if last else 0], below + tees[3 if last else 2]))
    widths = [
        max(map(len, column)) for column in zip(heads, *(row[0] for row in rows), strict=True)
    ]
    room = max(width - sum(widths) - 2 * len(widths), 20)
    lines = []
    for cells, lead, name, place in ((heads, "", "", ""), *rows):
        numbers = "  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True))
        lines.append(f"{numbers}  {fit(lead, name, place, room, plain)}".rstrip())
    return lines


def fit(lead: str, name: str, place: str, room: int, plain: bool) -> str:
    """Fit a branch into the room: leave out the place, then shorten the lead, then the name."""
    dots = "..." if plain else "…"
    if len(lead) > room // 2:
        lead = dots + lead[len(dots) - room // 2 :]
    if len(lead) + len(name) > room:
        name = dots + name[len(dots) + len(lead) - room :]
    text = f"{lead}{name}"
    return f"{text}  {place}" if len(text) + 2 + len(place) <= room else text


def headline(trace: Trace, tree: Tree) -> str:
    """Describe in one line what was recorded, and what is missing."""
    parts = [f"{trace._facts['events']:,} events in {time_words(trace)(trace.duration)}"]
    if tree.facts["peak"]:
        parts.append(f"peak {show_bytes(tree.facts['peak'])} at {show_ns(tree.facts['peak_time'])}")
        reserved = reserved_at_peak(trace, tree)
        if reserved:
            parts[-1] += f" ({show_bytes(reserved)} of it reserved, never touched)"
    parts.append(said_of_loss(trace) or "nothing lost")
    if tree.facts["folded"]:
        parts.append(f"{tree.facts['folded']:,} small nodes are folded into 'other'")
    return ", ".join(parts)


def show_added(
    traces: Sequence[Trace],
    file: IO[str],
    *,
    all: bool,
    own: Sequence[str],
    limit: int,
    width: int | None,
) -> None:
    """Print the trees of several recordings as one."""
    from ..answers.adding import AddedTree

    tree = AddedTree([trace._tree for trace in traces])
    events = sum(trace._facts["events"] for trace in traces)
    parts = [f"{events:,} events in {len(traces)} recordings"]
    if tree.facts["peak"]:
        parts.append(f"peaks {show_bytes(tree.facts['peak'])} together, each at its own time")
    losses = [f"{trace.file['path']}: {said_of_loss(trace)}" if trace.file else said_of_loss(trace)
              for trace in traces if said_of_loss(trace)]  # fmt: skip
    parts += losses or ["nothing lost"]
    show_summed(tree, ", ".join(parts), file, all=all, own=own, limit=limit, width=width)


def show_summed(
    tree: Tree,
    headline: str,
    file: IO[str],
    *,
    all: bool,
    own: Sequence[str],
    limit: int,
    width: int | None,
) -> None:
    """Print a tree of several recordings below a line about them."""
    if limit < 1:
        raise ValueError(f"limit must be 1 or more, not {limit}")
    top = build(tree, chosen_own(tree, all, own), limit)
    columns = width if width is not None else shutil.get_terminal_size((100, 25)).columns
    print(headline, file=file)
    print("\n".join(text_lines(tree, top, columns, is_plain(file))), file=file)


def said_of_loss(trace: Trace) -> str:
    """Report what is missing; empty if nothing is."""
    loss = trace.loss.total
    parts = [f"{loss:,} EVENTS LOST: all numbers are too small"] if loss else []
    parts += dict.fromkeys([*(trace.file or {}).get("missing", ()), *loss_of_others(trace)])
    unknown = unknown_kinds(trace.file or {})
    if unknown:
        parts.append(unknown.partition(";")[0])
    return ", ".join(parts)


def is_plain(file: IO[str]) -> bool:
    """Whether to write only ASCII."""
    encoding = (getattr(file, "encoding", None) or "utf-8").lower().replace("-", "")
    return not encoding.startswith("utf")


def show_tree(
    trace: Trace,
    file: IO[str] | None,
    wanted: Mapping[str, Any],
    *,
    all: bool,
    own: Sequence[str] | str,
    limit: int,
    width: int | None,
) -> None:
    """Print the tree, or one call; see `Trace.show_tree`."""
    file = sys.stdout if file is None else file
    own = (own,) if isinstance(own, str) else tuple(own)
    asked = {name: value for name, value in wanted.items() if value is not None}
    if len(asked) > 1:
        raise ValueError(f"one of {' and '.join(asked)} at a time")
    if limit < 1:
        raise ValueError(f"limit must be 1 or more, not {limit}")
    columns = width if width is not None else shutil.get_terminal_size((100, 25)).columns
    plain = is_plain(file)
    if asked and asked.keys() != {"node"}:
        from ..answers.one_call import find_call
        from .one_call import open_at, show_call

        if "at" in asked:
            lines = open_at(trace, asked["at"], columns)
        else:
            lines = show_call(trace, find_call(trace, asked), limit, columns, plain)
        missing = said_of_loss(trace)
        print("\n".join([*([missing] if missing else []), *lines]), file=file)
        return
    tree = trace._tree
    top = build(tree, own_or_all(trace, tree, all, own), limit, root_of(tree, asked.get("node")))
    print(headline(trace, tree), file=file)
    print("\n".join(text_lines(tree, top, columns, plain, time_words(trace))), file=file)
