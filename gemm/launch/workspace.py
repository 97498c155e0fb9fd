"""Workspaces in global memory, one for each stream."""

from __future__ import annotations

from ptxkit.runtime import driver


class Workspaces:
    """Workspaces that are zeros when they are allocated and are kept for their stream.

    A larger workspace replaces a smaller one. The smaller one is not freed, since launches in flight may still use it. Allocation works
    during graph capture.
    """

    def __init__(self, min_bytes: int = 0) -> None:
        self._min_bytes = min_bytes
        self._made: dict[tuple[int, int], tuple[int, int]] = {}

    def of(self, ordinal: int, stream: int, bytes: int) -> int:
        """The address of the stream's workspace of at least `bytes` bytes."""
        known = self._made.get((ordinal, stream))
        if known is not None and known[1] >= bytes:
            return known[0]
        bytes = max(bytes, self._min_bytes)
        made = driver.allocate_cleared(bytes, ordinal)
        self._made[ordinal, stream] = made, bytes
        return made


__all__ = ["Workspaces"]
