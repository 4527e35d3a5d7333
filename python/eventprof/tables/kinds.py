"""The words of kinds of events, of domains and of flags."""

from __future__ import annotations

from typing import Any

from .. import _core

KINDS = tuple(_core.kind_table())
#: What the event column says, by kind.
WORDS = {kind: word for kind, _, word, *_ in KINDS}
#: The words for kinds of tree rows; rows that are not interpreter calls show their group.
CALL_WORDS = WORDS | {
    row[0]: row[7]
    for row in KINDS
    if row[4] == "call" and row[6] == "opens" and row[7] not in ("python", "c")
}
DOMAINS = ("raw", "mem", "obj", "numpy", "libc")
#: Kinds by their names in events.def.
NUMBERS = {row[1]: row[0] for row in _core.kind_table()}

#: Bits of the column ``flags`` of calls (ep_call_flag in pair.h).
CALL_FLAGS = {
    "open_at_start": 1, "open_at_end": 2, "yielded": 4, "raised": 8, "end_unseen": 16,
    "recursive": 32,
}  # fmt: skip
#: Bits of the column ``flags`` of allocations (ep_block_flag in pair.h).
ALLOCATION_FLAGS = {
    "mended": 1, "free_lost": 2, "revived": 4, "moved": 8, "brief": 16, "local": 32,
}  # fmt: skip


def unknown_kinds(file: dict[str, Any]) -> str | None:
    """Report which events of a file are left out, because a later eventprof wrote them."""
    count = file.get("unknown_events")
    if not count:
        return None
    what, are = ("event", "is") if count == 1 else ("events", "are")
    return (
        f"{count:,} {what} of kinds that this eventprof does not know ({file['unknown_kinds']}) "
        f"{are} left out; a newer eventprof shows them"
    )
