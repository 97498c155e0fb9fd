"""Whether something was taken from one of Python's own containers or iterators, by what it contained before and contains now."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Sequence
from enum import Enum
from operator import ne
from typing import Any

from .plain import PLAIN, is_plain
from .reg import Value
from .uncalled import Emitting

DEPTH = 3
"""How deep the items of a container are looked into."""


def is_own(value: Any, depth: int = DEPTH) -> bool:
    """Whether a value is Python's own, also one of several parts: no register or place, and nothing that may hold one."""
    if is_plain(value) or isinstance(value, Emitting):
        return True
    if type(value).__module__ == "numpy":
        return not getattr(getattr(value, "dtype", None), "hasobject", False)
    if not depth or isinstance(value, Value):
        return False
    if isinstance(value, tuple | list | frozenset | set | deque):
        return all(is_own(each, depth - 1) for each in value)
    if isinstance(value, dict):
        return all(is_own(each, depth - 1) for each in value.values())
    if dataclasses.is_dataclass(value):
        return all(is_own(getattr(value, each.name, None), depth - 1) for each in dataclasses.fields(value))
    return False


def lost(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether something was taken out of a sequence, or it was turned. One that has only grown, or has other items, was not."""
    before, now = keys(old), keys(new)
    if now[:len(before)] == before:
        return False
    if len(now) < len(before) or Counter(now) == Counter(before):
        return True
    written = isinstance(old, list) and sum(map(ne, before, now)) == 1
    return not written and any(now[:len(before) - j] == before[j:] for j in range(1, len(before)))


def grown(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether doing the same again changes nothing, or only puts more at the end: nothing was taken, or only from the middle or the end."""
    before, now = keys(old), keys(new)
    if now[:len(before)] == before:
        return True
    rest = iter(before)
    return len(now) < len(before) and now != before[len(before) - len(now):] and all(any(each == other for other in rest) for each in now)


def keys(values: Sequence[Any]) -> list[Any]:
    """For each value what two equal ones of Python's own share."""
    return [(type(each), each) if type(each) in PLAIN or type(each) is tuple or isinstance(each, Enum) else id(each) for each in values]


def ended(iterator: Any) -> bool:
    """Whether an iterator has nothing more. One that has loses it."""
    if type(iterator).__module__ not in ("builtins", "itertools"):
        return False
    missing = object()
    return next(iterator, missing) is missing


__all__ = ["ended", "grown", "is_own", "keys", "lost"]
