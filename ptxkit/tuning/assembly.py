"""Many kernels brought into the cache of cubins at once, with a bar that shows how far that is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO, TypeVar

from ..errors import NoToolError, PtxkitError

T = TypeVar("T", bound=Hashable)


class Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int, what: str, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty()
        self.total, self.what, self.done = total, what, 0

    def step(self, note: str = "") -> None:
        self.done += 1
        if self.shown:
            filled = 30 * self.done // max(1, self.total)
            self.stream.write(f"\r\x1b[K{self.what} [{'#' * filled}{'.' * (30 - filled)}] {self.done}/{self.total} {note}")
            self.stream.flush()

    def close(self) -> None:
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def assembling(found: Sequence[T], assemble: Callable[[T], object], jobs: int | None = None) -> Iterator[tuple[T, PtxkitError | None]]:
    """Assembles all of them, several at a time (the assembler runs in its own process): each in its order, once it is done, with the error
    that it raised. Whoever stops asking ends what has not begun.

    The traces stay in this process, which launches them later. Without an assembler nothing is done: the driver assembles what is launched.
    """
    def one(item: T) -> PtxkitError | None:
        try:
            assemble(item)
        except NoToolError:
            return None
        except PtxkitError as error:
            return error
        return None

    pool = ThreadPoolExecutor(jobs)
    try:
        yield from zip(found, pool.map(one, found), strict=True)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def assembled(found: Sequence[T], assemble: Callable[[T], object], jobs: int | None = None) -> dict[T, PtxkitError]:
    """Assembles all of them; why some could not be."""
    refused: dict[T, PtxkitError] = {}
    progress = Progress(len(found), "assembling")
    for item, error in assembling(found, assemble, jobs):
        progress.step()
        if error is not None:
            refused[item] = error
    progress.close()
    return refused


__all__ = ["Progress", "assembled", "assembling"]
