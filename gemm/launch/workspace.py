"""Global memory that kernels work in, one piece a stream."""

from __future__ import annotations

from ptxkit.runtime import driver


class Workspaces:
    """Pieces that are zeros when they are made, kept for their stream. A larger one takes the place of a smaller, which launches under
    way may still use. They may be made while a graph is captured."""

    def __init__(self, least: int = 0) -> None:
        self._least = least
        self._made: dict[tuple[int, int], tuple[int, int]] = {}

    def of(self, ordinal: int, stream: int, bytes: int) -> int:
        """The address of at least `bytes` that belong to the stream."""
        known = self._made.get((ordinal, stream))
        if known is not None and known[1] >= bytes:
            return known[0]
        bytes = max(bytes, self._least)
        made = driver.allocate_cleared(bytes, ordinal)
        self._made[ordinal, stream] = made, bytes
        return made


__all__ = ["Workspaces"]
