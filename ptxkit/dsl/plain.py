"""Python's own numbers around a loop: `parity ^= 1` in its body happens once, while tracing, and every iteration reads the first value."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from numbers import Number
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn

from ..errors import TraceError
from .bytecode import globals_stored, last_store, loaded, local, runs_on
from .held import position, stored
from .uncalled import Emitting, Handle

PLAIN = frozenset((int, bool, float, type(None), str))
"""Types of Python's own values that a body could mean to count, to toggle or to choose."""
_ALSO = (Enum, range, slice, bytes, complex, type)
_ABSENT = object()
_plain: dict[type, bool] = {}
_kept: dict[type, bool] = {}


def is_plain(value: Any) -> bool:
    """Whether a value is Python's own: a number, a text, a range, a type, a member of an Enum, or a tuple of these."""
    type_ = type(value)
    known = _plain.get(type_)
    if known is None:
        known = _plain[type_] = issubclass(type_, _ALSO) or type_ in PLAIN or (type_.__module__ == "numpy" and issubclass(type_, Number))
    return known or (issubclass(type_, tuple) and all(map(is_plain, value)))


def own_values(code: CodeType, own: Mapping[str, Any], all_: Mapping[str, Any]) -> dict[str, Any]:
    """Python's own values, and the functions, opcodes and handles, in local names and in the globals that the code assigns."""
    found = {}
    for name, value in own.items():
        type_ = type(value)
        kept = _kept.get(type_)
        if kept is None:
            kept = _kept[type_] = issubclass(type_, FunctionType | Emitting | Handle) or (not issubclass(type_, tuple) and is_plain(value))
        if kept or (isinstance(value, tuple) and is_plain(value)):
            found[name] = value
    for name in globals_stored(code):
        if is_plain(all_.get(name, _ABSENT)):
            found[name] = all_[name]
    return found


def check_plain(frame: FrameType, begin: int, before: Mapping[str, Any], own: Mapping[str, Any], kind: str) -> None:
    """Raise for a number in a local name that the body of a loop reads and then changes."""
    code, end = frame.f_code, frame.f_lasti
    for name, old in before.items() if begin < end else ():
        if not changed(old, own.get(name, _ABSENT)) or not local(code, name) or loaded(code, name, begin, end) is None:
            continue
        if old is None and _loaded_last(frame, begin, name) and not runs_on(code, name, begin, end):
            continue                                     # made where it was not yet, and read after that
        refuse_number(frame, begin, kind, name, old)


def refuse_number(frame: FrameType, begin: int, kind: str, path: str, old: Any, _: Any = None, line: int | None = None) -> NoReturn:
    """Raise for one of Python's own values that a loop's body reads and changes."""
    where = position(frame, line or stored(frame, begin, path))
    handle = next((each for each in (old if isinstance(old, list) else [old]) if isinstance(each, Handle)), None)
    if handle is not None:
        what = f"{'one' if handle is old else 'a list of'} {type(handle).__name__}"
        raise TraceError(
            f"`{path}` is {what} before this loop, and its body uses it and then binds the name to another. Python does so once, while "
            "tracing: on the GPU every iteration uses the first one. Choose by a register: stages of one tile, or barriers of one array, "
            "are indexed by it, as `tile[stage]` with the stage of `ring`; or unroll the loop, with Python's own `for`", where)
    name = path if path.isidentifier() else "state"
    first = f"{name}=mov.f32({old!r})" if type(old) is float else f"{name}=mov.u32({int(old) if isinstance(old, int) else 0})"
    loop = f"for_range(n, {first})" if kind == "for_range" else f"loop({first})"
    raise TraceError(
        f"`{path}` is {old!r} in Python before this loop, and its body reads it and gives it another value. Python does so once, while "
        f"tracing: on the GPU every iteration has the first value. A register counts or toggles: carry one, `with {loop} as loop:` "
        f"and `loop.{name} = ...`, or use `ring`'s stage and parity. A number for Python alone gets its first value in the body",
        where)


def changed(old: Any, new: Any) -> bool:
    """Whether one of Python's own values has become another value."""
    return new is not old and new is not _ABSENT and (not is_plain(new) or type(new) is not type(old) or bool(new != old))


def _loaded_last(frame: FrameType, begin: int, name: str) -> bool:
    """Whether the body loads a name after its last assignment."""
    at = last_store(frame.f_code, name, begin, frame.f_lasti)
    return at is not None and loaded(frame.f_code, name, at, frame.f_lasti) is not None


__all__ = ["changed", "check_plain", "is_plain", "own_values", "refuse_number"]
