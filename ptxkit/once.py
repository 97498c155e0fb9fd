"""Work that several threads ask for at a time and that is done once."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ReenteredError(RuntimeError):
    """Work that needs its own result."""


class _Work(Generic[T]):
    """Work in progress: the thread that does it, and what came of it."""

    __slots__ = ("done", "ended", "owner", "result")

    def __init__(self) -> None:
        self.owner, self.ended, self.done = threading.get_ident(), threading.Event(), False
        self.result: T | None = None


class Once(Generic[T]):
    """Results by key. Of threads that ask for one key at a time one works, and the others wait for its result.

    With `keep` a result is kept for good. Work that raises an error is done again by the next thread that waits. A process that is forked
    meanwhile does it itself.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.results: dict[Hashable, T] = {}
        self._keep = keep
        self._working: dict[Hashable, _Work[T]] = {}
        _every.add(self)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result for this key, made by `make` unless it is there. Raises ReenteredError if `make` asks for its own key."""
        while True:
            if key in self.results:
                return self.results[key]
            mine = _Work[T]()
            work = self._working.setdefault(key, mine)
            if work is mine:
                return self._made(key, make, mine)
            if work.owner == threading.get_ident():
                raise ReenteredError
            work.ended.wait()
            if work.done:
                return work.result  # type: ignore[return-value]

    def _made(self, key: Hashable, make: Callable[[], T], work: _Work[T]) -> T:
        try:
            if key in self.results:  # another thread has just ended
                return self.results[key]
            work.result = result = make()
            work.done = True
            if self._keep:
                self.results[key] = result
            return result
        finally:
            self._working.pop(key, None)
            work.ended.set()

    def forget(self) -> None:
        """Forget work in progress: its threads are not in this process."""
        self._working = {}


_every: weakref.WeakSet[Once[Any]] = weakref.WeakSet()


def _forked() -> None:
    for each in _every:
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


__all__ = ["Once", "ReenteredError"]
