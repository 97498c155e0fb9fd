"""Python's own numbers around a loop: `parity ^= 1` in its body happens once, while tracing, and every iteration reads the first value."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from types import CodeType, FrameType
from typing import Any

from ..errors import TraceError
from .bytecode import last_store, loaded, local, slot_reads, slot_stores, slots_read
from .held import attribute, line_at, position, stored

PLAIN = frozenset((int, bool, float, type(None), str))
"""Types of Python's own values that a body could mean to count, to toggle or to choose."""
_ABSENT = object()


def is_plain(value: Any) -> bool:
    """Whether a value is Python's own: a number, a text, a member of an Enum, or a tuple of these."""
    return type(value) in PLAIN or isinstance(value, Enum) or (type(value) is tuple and all(type(each) in PLAIN for each in value))


def plain(code: CodeType, own: Mapping[str, Any]) -> dict[str, Any]:
    """Python's own values in local names, and in the slots and attributes that the code reads, by path."""
    found = {name: value for name, value in own.items() if is_plain(value)}
    for name, word in slots_read(code):
        value = own.get(name)
        if word:
            held = attribute(value, word) if value is not None else None
            if is_plain(held):
                found[f"{name}.{word}"] = held
        elif isinstance(value, list | dict | deque):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            found.update({f"{name}[{key!r}]": each for key, each in items if type(each) in PLAIN})
    return found


def check_plain(frame: FrameType, begin: int, before: Mapping[str, Any], own: Mapping[str, Any], kind: str) -> None:
    """Raise for a number that the body of a loop reads and then changes."""
    code, end = frame.f_code, frame.f_lasti
    if begin >= end or not before:
        return
    slots: dict[str, Any] | None = None
    for path, old in before.items():
        if path.isidentifier():
            new = own.get(path, _ABSENT)
            if not changed(old, new) or not local(code, path) or loaded(code, path, begin, end) is None:
                continue
            line = stored(frame, begin, path)
            if old is None and _loaded_last(frame, begin, path):
                continue                                 # made where it was not yet, and read after that
        else:
            slots = plain(code, own) if slots is None else slots
            if not changed(old, slots.get(path, _ABSENT)):
                continue
            name, _, word = path.partition(".")
            root = name.partition("[")[0]
            at = [offset for offset, *read in slot_reads(code) if begin < offset < end and read == [root, word]]
            if not at:
                continue
            line = stored(frame, begin, path) or line_at(code, at[0])
        name = path if path.isidentifier() else "state"
        first = f"{name}=mov.f32({old!r})" if type(old) is float else f"{name}=mov.u32({int(old) if isinstance(old, int) else 0})"
        loop = f"for_range(n, {first})" if kind == "for_range" else f"loop({first})"
        raise TraceError(
            f"`{path}` is {old!r} in Python before this loop, and its body reads it and gives it another value. Python does so once, while "
            f"tracing: on the GPU every iteration has the first value. A register counts or toggles: carry one, `with {loop} as loop:` "
            f"and `loop.{name} = ...`, or use `ring`'s stage and parity. A number for Python alone gets its first value in the body",
            position(frame, line))


def changed(old: Any, new: Any) -> bool:
    """Whether one of Python's own values has become another value."""
    return new is not old and new is not _ABSENT and (not is_plain(new) or type(new) is not type(old) or bool(new != old))


def _loaded_last(frame: FrameType, begin: int, name: str) -> bool:
    """Whether the body loads a name after its last assignment."""
    at = last_store(frame.f_code, name, begin, frame.f_lasti)
    return at is not None and loaded(frame.f_code, name, at, frame.f_lasti) is not None


def read_later(code: CodeType, path: str, after: int) -> bool:
    """Whether a slot or an attribute of a name is read behind an offset, before the next assignment to one in the text."""
    root, _, word = path.partition(".")
    root = root.partition("[")[0]
    reads = [offset for offset, *read in slot_reads(code) if offset > after and read == [root, word]]
    stores = slot_stores(code, word)
    return bool(reads) and not any(after < store < reads[0] for store in stores)


__all__ = ["changed", "check_plain", "is_plain", "plain", "read_later"]
