"""A lock between processes, by a file beside the one that it guards."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_S = 0.02


@contextmanager
def locked(path: Path, timeout_s: float = 30.0) -> Iterator[bool]:
    """While the block runs no other process is in such a block for the same path. False: the lock cannot be had (a file system without
    locks, or another process keeps it for longer than `timeout_s`), and the block runs without it. It ends with its process."""
    handle = -1
    with suppress(OSError):
        handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield handle >= 0 and _taken(handle, timeout_s)
    finally:
        if handle >= 0:
            os.close(handle)                    # which gives the lock back


def _taken(handle: int, timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    while True:
        try:
            _take(handle)
        except BlockingIOError:
            pass
        except OSError:
            return False
        else:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)


def _take(handle: int) -> None:
    """Raises BlockingIOError when another process has it."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError from None
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


__all__ = ["locked"]
