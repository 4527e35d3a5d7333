"""The words of kinds of events, of domains and of flags."""

from __future__ import annotations

from .. import _core

KINDS = tuple(_core.kind_table())
#: What the event column says, by kind.
WORDS = {kind: word for kind, _, word, *_ in KINDS}
#: How calls of the tree are called that are none of the interpreter's.
CALL_WORDS = WORDS | {40: "span", 42: "gc", 44: "hpy"}
DOMAINS = ("raw", "mem", "obj", "numpy", "libc")
#: Kinds by their names in events.def.
NUMBERS = {row[1]: row[0] for row in _core.kind_table()}

#: Bits of the flags column of calls: pair.h's ep_call_flag.
CALL_FLAGS = {
    "open_at_start": 1, "open_at_end": 2, "yielded": 4, "raised": 8, "end_unseen": 16,
    "recursive": 32,
}  # fmt: skip
#: Bits of the flags column of allocations: pair.h's ep_block_flag.
ALLOCATION_FLAGS = {
    "mended": 1, "free_lost": 2, "revived": 4, "moved": 8, "brief": 16, "local": 32,
}  # fmt: skip
