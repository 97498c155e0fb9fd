"""How far an iterator is, without taking from it."""

from __future__ import annotations

import gc
import itertools
import operator
import warnings
from collections import deque
from types import GeneratorType
from typing import Any


def is_iterator(type_: type) -> bool:
    """Whether a type is one of Python's own iterators. One of a user's class is an object like others."""
    return hasattr(type_, "__next__") and not type_.__dictoffset__


def state(iterator: Any) -> Any:
    """How far an iterator is: something that is equal as long as nothing was taken; None where that cannot be seen."""
    if type(iterator) is itertools.count:
        return ()                                    # it numbers what a body emits, and any number is right
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        if frame is None or iterator.gi_running:
            return frame is None                     # one that runs is a function around the body
        if iterator.gi_code.co_name == "<genexpr>" and type(frame.f_locals.get(".0")) is itertools.count:
            return ()
        return frame.f_lasti, tuple(_mark(each) for each in frame.f_locals.values())
    if type(iterator).__module__ not in ("builtins", "itertools", "collections"):
        return None
    left = operator.length_hint(iterator, -1)
    if left >= 0:
        return left
    if type(iterator) is itertools.cycle:
        return _turned(iterator)
    marks = tuple(_mark(each) for each in gc.get_referents(iterator))
    return marks if any(each is not None for each in marks) else None


def _turned(cycle: Any) -> Any:
    """The position in a cycle and its length; None where Python does not say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")              # of Python 3.12 and 3.13; a later one says nothing
        try:
            _, (inner,), (taken, again) = cycle.__reduce__()
        except (TypeError, ValueError):
            return None
    left = operator.length_hint(inner, -1)
    total = len(taken) if again else len(taken) + left
    return None if left < 0 or not total else ((total - left if again else len(taken)) % total, total)


def _mark(value: Any) -> Any:
    """What tells two states of a part of an iterator apart."""
    if isinstance(value, int | float | str | bool | None):
        return value
    if isinstance(value, list | tuple | deque):
        return tuple(state(each) if is_iterator(type(each)) else id(each) for each in value)
    return state(value) if is_iterator(type(value)) else None


__all__ = ["is_iterator", "state"]
