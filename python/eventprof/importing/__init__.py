"""Read recordings of other tools as traces. Each format has a module.

The first bytes of a file say which format it has.

A module has ``read(path, data, builder)``. ``data`` is the whole file, decompressed. The module
fills the builder, and adds to ``builder.lacks`` what the format does not have.
"""

from __future__ import annotations

import importlib
import os
import zlib
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    from ..trace import Trace

_GZIP = b"\x1f\x8b"
_LZ4 = b"\x04\x22\x4d\x18"
_HEAD = 1 << 16
#: What a compressed file may become: so many bytes, or so many times its size.
_EXPANDED_BYTES, _EXPANDED_TIMES = 64 << 20, 128


class Unreadable(ValueError):
    """A file cannot be read. The message says why; it is put after the file's name."""


def read(fd: int, path: str) -> Trace | None:
    """Read a file of another tool.

    Parameters
    ----------
    fd : int
        The open file. It is not closed.
    path : str
        The file's name, for messages and for libraries that open it themselves.

    Returns
    -------
    Trace or None
        None: the format is unknown.

    Raises
    ------
    FormatError
        The format is known, but the file cannot be read.
    ModuleNotFoundError
        The format is read by another library, which is not installed.
    """
    head = os.pread(fd, _HEAD, 0)
    if head.startswith(_GZIP):
        head = _decompressed_head(head)
    word = recognise(head, path)
    if word is None:
        return None
    from ._build import Builder

    size = os.fstat(fd).st_size
    with open(os.dup(fd), "rb") as file:
        file.seek(0)
        data = file.read()
    builder = Builder(word, path, size)
    try:
        if data.startswith(_GZIP):
            data = expanded(zlib.decompressobj(31), data)
        importlib.import_module(f".{word}", __name__).read(path, data, builder)
        return builder.trace()
    except (Unreadable, EOFError, zlib.error, RecursionError) as error:
        raise _core.FormatError(f"{path}: {_NAMES[word]} that cannot be read: {error}") from None
    except (ImportError, OSError, MemoryError):
        raise
    except Exception as error:
        # A damaged file can cause any exception in a reader.
        what = f"{type(error).__name__}: {error}"
        raise _core.FormatError(
            f"{path}: {_NAMES[word]} that does not follow its format ({what})"
        ) from None


#: Names of the formats for messages.
_NAMES = {
    "chrome": "Chrome trace JSON",
    "perfetto": "a Perfetto trace",
    "speedscope": "a speedscope file",
    "collapsed": "collapsed stacks",
    "pstats": "statistics of pstats",
    "memray": "a recording of memray",
    "sampling": "a recording of profiling.sampling",
    "sampling_jsonl": "statistics of profiling.sampling",
    "firefox": "a profile of the Firefox Profiler",
    "pyinstrument": "a session of pyinstrument",
}


def _decompressed_head(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(head, _HEAD)
    except zlib.error:
        return b""


def expanded_bytes_max(data: bytes) -> int:
    """Return how many bytes the data of a file may become."""
    return max(_EXPANDED_BYTES, _EXPANDED_TIMES * len(data))


def within(data: bytes, found: bytes) -> bytes:
    """Return what data became, if that is not more than a recording can become."""
    if len(found) > expanded_bytes_max(data):
        raise Unreadable(
            f"its {len(data):,} bytes become more than {expanded_bytes_max(data):,}, as no "
            "recording does; if it is one, decompress it first"
        )
    return found


def expanded(decompressor: Any, data: bytes) -> bytes:
    """Decompress the data of a file, by an object of zlib or compression.zstd.

    Raises
    ------
    Unreadable
        It becomes more than a recording can: a few bytes can stand for gigabytes.
    """
    found = within(data, decompressor.decompress(data, expanded_bytes_max(data) + 1))
    if not decompressor.eof:
        raise Unreadable("the compressed data ends early")
    return bytes(found)


def recognise(head: bytes, path: str) -> str | None:
    """Return the module that reads a file with these first bytes; None: no module does."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:4] in (b"HCAT", b"TACH"):
        return "sampling"
    if head.startswith(b"memray\0") or (head.startswith(_LZ4) and b"mem" in head[:32]):
        return "memray"
    # A dict of tuples, as marshal writes it. In JSON other characters follow the brace.
    if head[:1] in (b"{", b"\xfb") and head[1:2] in (b"\xa9", b")", b"(", b"\xa8", b"0"):
        return "pstats"
    if text.startswith(b"{") and b'"type"' in text[:40] and b'"run_id"' in text[:400]:
        return "sampling_jsonl"
    if text.startswith(b"{") and b'"sample_count"' in head and b'"start_time"' in text[:40]:
        return "pyinstrument"
    if text.startswith(b"{") and b'"meta"' in text[:40] and b'"stackwalk"' in head:
        return "firefox"
    if text.startswith((b"{", b"[")):
        if b"speedscope.app/file-format-schema" in head or b'"profiles"' in head[:4096]:
            return "speedscope"
        if b'"traceEvents"' in head or (b'"ph"' in head and text.startswith(b"[")):
            return "chrome"
        if b'"shared"' in head and b'"frames"' in head:
            return "speedscope"
        return None
    # A trace is a list of packets; each begins with its length.
    if head[:1] == b"\x0a" and _is_packets(head):
        return "perfetto"
    line = text.split(b"\n", 1)[0].rstrip()
    count = line.rpartition(b" ")
    if count[0] and count[2].isdigit() and b"\0" not in head:
        return "collapsed"
    return None


def _is_packets(head: bytes) -> bool:
    position, seen = 0, 0
    while position < len(head) and seen < 4:
        if head[position] != 0x0A:
            return False
        position += 1
        size = shift = 0
        while position < len(head):
            size |= (head[position] & 127) << shift
            shift += 7
            position += 1
            if head[position - 1] < 128:
                break
        position += size
        seen += 1
    return seen > 0
