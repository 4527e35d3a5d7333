"""What asyncio's tasks awaited, and their chains of causes, as text."""

from __future__ import annotations

from .._words import show_ns
from ..answers.tasks import Awaits, Before, Link, Tasks, by_place, links_of, slowest
from ..base.text import clean
from .waits import blocks, often, show_place

#: After "awaited": the words for a kind.
WORDS = {
    "start": "its first step", "sleep": "a time", "socket": "a socket", "lock": "a lock",
    "queue": "a queue", "task": "another task", "executor": "another thread's work",
    "process": "a process", "other": "something else",
}  # fmt: skip
#: Parts of a task's time below this share are summed up.
_SMALLEST = 0.02
_MOST_LINKS = 5


def ran(before: Before) -> str:
    """Return what ran before a task, as text."""
    inside = f" in a step of {before.inside}" if before.inside else ""
    return f"{show_place(*before[:3])}{inside}"


def _link(link: Link) -> str:
    time = show_ns(link.ns)
    if link.what == "queued":
        return f"{time} queued behind {ran(link.at)}"
    if link.what == "work":
        return f"{time} own work" if link.own else f"{time} work of {show_place(*link.at[:3])}"
    if link.what == "loop":
        return f"{time} in the loop itself, or without a processor"
    if link.what == "start":
        return f"{time} to its first step"
    return f"{time} for {WORDS[link.what]} in {show_place(*link.at[:3])}"


def chain(links: list[Link], whole: int) -> list[str]:
    """Return what a task's time went to, a line for each link."""
    shown = [link for link in links if link.ns >= whole * _SMALLEST][:_MOST_LINKS]
    rest = whole - sum(link.ns for link in shown)
    return [_link(link) for link in shown] + ([f"{show_ns(rest)} the rest"] if rest > 0 else [])


def _about(one: Awaits) -> list[str]:
    lines = []
    if one.wakers and one.place.kind not in ("start", "sleep", "socket"):
        shown = [
            f"{'the loop' if waker[0] is None else show_place(*waker)} ({show_ns(time)})"
            for waker, time in one.wakers[:3]
        ]
        more = f" and {len(one.wakers) - 3} more" if len(one.wakers) > 3 else ""
        lines.append(f"made ready by {', '.join(shown)}{more}")
    late = one.queued + one.unseen
    if 20 * late >= one.total:
        up_to = "up to " if one.unseen > 0 else ""
        long = [(before, time) for before, time in one.before[:3] if 20 * time >= late]
        names = [f"{ran(before)} ({show_ns(time)})" for before, time in long]
        behind = f", behind {', '.join(names)}" if names else ""
        lines.append(f"then queued for {up_to}{show_ns(late)}{behind}")
    return lines


def lines_of(tasks: Tasks, limit: int, width: int, *, plain: bool) -> list[str]:
    """Return the text of ``eventprof waits --tasks``."""
    found = by_place(tasks)
    if not found:
        return ["no task waited"]

    def sentence(one: Awaits) -> str:
        through = f", through {one.place.through}" if one.place.through else ""
        return (
            f"for {WORDS[one.place.kind]} in {show_place(*one.place[1:4])}{through}, {often(one)}"
        )

    whole, queued, unseen = (
        sum(getattr(one, name) for one in found) for name in ("total", "queued", "unseen")
    )
    lines = [
        f"{len(tasks.log.tasks):,} tasks waited {show_ns(whole)} in all, "
        f"{'up to ' if unseen else ''}{show_ns(queued + unseen)} of it queued in their loop"
    ]
    if all(pause.cause is None for pause in tasks.pauses):
        lines[0] += "; who made them ready is unknown, as their loop is not written in Python"
    lines += blocks(found, limit, sentence, _about)
    lines.append("the slowest task of each coroutine")
    for task, start, end, where in slowest(tasks)[: limit or None]:
        links = links_of(tasks, task, start, end)
        lines.append(f"{show_ns(end - start)}  {tasks.names[task]}, {show_place(*where)}")
        lines += [f"        {link}" for link in chain(links, end - start)]
    return [clean(line, plain=plain)[:width] for line in lines]


#: What to say of a recording without events of tasks.
MISSING = (
    "tasks were not recorded: record with calls, by this version of eventprof or a later one, and "
    "leave no function of asyncio out"
)
