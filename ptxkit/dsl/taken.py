"""What a loop's body takes from iterators and containers made before the loop: Python takes once, while tracing."""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any

from ..errors import TraceError
from .bytecode import loaded, local, slot_reads, slots_read
from .held import line_at, position
from .plain import is_plain
from .reg import Value

TAKES = frozenset(("pop", "popleft", "popitem", "remove", "clear"))
"""Methods that take something out of a list, a deque, a dict or a set."""
_HOLD = frozenset((list, deque, dict, set))
_iterators: dict[type, bool] = {}


def sources(code: CodeType, own: Mapping[str, Any]) -> dict[str, tuple[Any, int]]:
    """What a body may take from, by local name, and how much is left: iterators (-1 if they do not say), and containers of Python's own
    values that the code calls a method of TAKES of. `itertools.count` is left out: it numbers what a body emits."""
    found: dict[str, tuple[Any, int]] = {}
    for name, value in own.items():
        type_ = type(value)
        known = _iterators.get(type_)
        if known is None:
            known = _iterators[type_] = hasattr(type_, "__next__") and not issubclass(type_, Value | itertools.count)
        if known:
            found[name] = value, _left(value)
    for name, word in slots_read(code):
        held: Any = own.get(name)
        if word in TAKES and type(held) in _HOLD and all(map(is_plain, held.values() if type(held) is dict else held)):
            found[name] = held, len(held)
    return found


def _left(source: Any) -> int:
    return operator.length_hint(source, -1)


def check_sources(frame: FrameType, begin: int, before: Mapping[str, tuple[Any, int]], own: Mapping[str, Any]) -> None:
    """Raise where the body of a loop takes from what was there before the loop."""
    code, end = frame.f_code, frame.f_lasti
    for name, (value, left) in before.items() if begin < end else ():
        if own.get(name) is not value or not local(code, name) or (left >= 0 and _left(value) == left):
            continue
        if _iterators.get(type(value)):
            line = loaded(code, name, begin, end)
        else:
            at = [offset for offset, root, word in slot_reads(code) if begin < offset < end and root == name and word in TAKES]
            line = line_at(code, at[0]) if at else None
        if line is not None:
            raise TraceError(
                f"`{name}` was made before this loop, and its body takes from it. Python does so once, while tracing: on the GPU every "
                "iteration has what was taken first. Python's own `for` in the place of this loop takes each in turn and emits its body as "
                "often; what changes on the GPU is in a register; what Python alone needs is made in the body", position(frame, line))


__all__ = ["check_sources", "sources"]
