"""The limit that the recordings of a program and of the processes that it starts share.

A page of shared memory holds how many bytes all files have; the extension counts. Forked children
have the page anyway. Others are told by EVENTPROF_QUOTA where it is, as long as the first process
lives. Where the system has no such memory, or it cannot be reached, each file is limited by itself.
"""

from __future__ import annotations

import os

from .. import _core

VARIABLE = "EVENTPROF_QUOTA"
_BYTES = 4096


def begin(limit_bytes: int, *, warns: bool, export: bool) -> None:
    """Share a limit with all processes that follow.

    Parameters
    ----------
    limit_bytes : int
        What all files may take.
    warns : bool
        Say so on standard error before it is full.
    export : bool
        Tell the programs that this one starts.
    """
    make = getattr(os, "memfd_create", None)
    if make is None:
        return
    try:
        fd = make("eventprof-quota", os.MFD_CLOEXEC)
    except OSError:  # no memory, or no more descriptors
        return
    try:
        os.ftruncate(fd, _BYTES)
        _core.share_quota(fd, limit_bytes, warns)
    except (OSError, _core.Error):
        export = False
    if export:
        os.environ[VARIABLE] = f"/proc/{os.getpid()}/fd/{fd}"
    else:
        os.close(fd)


def join() -> None:
    """Share the limit of the process that exported it, if there is one and it still runs."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _core.share_quota(fd, 0, False)
    except (OSError, _core.Error):
        pass
    finally:
        os.close(fd)
