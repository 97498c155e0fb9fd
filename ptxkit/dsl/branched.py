"""The caller's names before and after the body of an `if_` or `else_`: `best = x` in it emits nothing, and holds in every thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..errors import TraceError
from ..grammar.errors import Position
from .bytecode import loaded, local
from .changes import check_changes
from .held import INSIDE, Held, differ, position, stays, stored, users
from .plain import changed, own_values
from .reg import Negated, Ptr, Reg, Value, Vec
from .source import line_at

if TYPE_CHECKING:
    from .regions import Region
    from .trace import Builder


class Branched:
    """What the names of the code around an `if_` or `else_` hold when it begins."""

    def __init__(self, frame: FrameType | None) -> None:
        self.frames: list[tuple[FrameType, int, Held, dict[str, Any]]] = []
        for each in users(frame):
            own = each.f_locals
            self.frames.append((each, each.f_lasti, Held(each, own), own_values(each.f_code, own, each.f_globals)))

    def check(self, builder: Builder, region: Region) -> None:
        """Raise if a name or slot now holds what the body did not make, and is read later."""
        for frame, begin, held, numbers in self.frames:
            stays(frame, begin, region.kind)
            code, end, own = frame.f_code, frame.f_lasti, frame.f_locals
            for name, old in numbers.items() if begin < end else ():
                new = own.get(name, old)
                if new is old or not changed(old, new) or (isinstance(new, Value) and not _older(region, new, held.values)):
                    continue
                if local(code, name) and loaded(code, name, end) is not None:
                    _refuse(region.kind, name, new, position(frame, stored(frame, begin, name)))
            changes = held.changed()
            check_changes(frame, begin, held, changes, numbers, own, partial(_refuse_change, region.kind, frame), after=True)
            if not changes and not held.rebound(own):
                continue
            before, now = held.elements(but_names=True), Held(frame, own).elements(but_names=True)
            for path, older in before.items():
                new = now.get(path, older)
                if new is older or not differ(older, new) or not _older(region, new, before):
                    continue
                root, name = path.partition("[")[0].partition(".")[0], path.rpartition(INSIDE)[2]
                unread = local(code, root) and (begin < end or root == path) and (begin >= end or loaded(code, root, end) is None)
                if unread:
                    continue
                where = position(frame, stored(frame, begin, name) or line_at(code, begin))
                if local(code, path):
                    _refuse(region.kind, path, new, where)
                builder.rebound.append((builder.now, new, region.kind, name, where))


def check_rebound(builder: Builder, reads: Mapping[str, int]) -> None:
    """Raise for a slot, or a name that several functions share, that an `if_` body bound to an older value, which is read after it."""
    for end, value, kind, path, where in builder.rebound:
        seen = max((reads.get(reg.name, -1) for reg in _registers(value)), default=-1) if isinstance(value, Reg | Negated | Vec) \
            else int(getattr(value, "seen", -1))
        if seen >= end:
            _refuse(kind, path, value, where)


def _older(region: Region, value: Value, before: Mapping[str, Value]) -> bool:
    """Whether the body made no register of the value: it was there before, or is a place a constant away from one that was."""
    registers = _registers(value)
    if not registers and not isinstance(value, Ptr) and not hasattr(value, "dynamic"):
        return any(value is each for each in before.values())
    return all(_before(region, reg) for reg in registers)


def _before(region: Region, reg: Any) -> bool:
    number = reg.name.lstrip("%abcdefghijklmnopqrstuvwxyz_")
    return number.isdecimal() and int(number) < region.first.get(reg.type.register, 0)


def _registers(value: Any) -> list[Any]:
    if isinstance(value, Reg):
        return [value]
    if isinstance(value, Vec):
        return [each for each in value if isinstance(each, Reg)]
    reg = getattr(value, "dynamic", None) if hasattr(value, "dynamic") else getattr(value, "reg", None)
    return [reg] if isinstance(reg, Reg) else []


def _refuse(kind: str, path: str, new: Any, where: Position | None) -> None:
    if isinstance(new, Reg):
        type_ = new.type.__name__
        way = f"Write the register in place, as `mov.{type_}({path}, ...)`, or choose it with `selp.{_bits(type_)}(a, b, p)`"
    elif isinstance(new, Value):
        way = f"Choose a register with `selp` and compute `{path}` from it"
    elif not isinstance(new, int | float):
        way = "What is known while tracing is a Python `if`; else write what differs in the bodies of `if_` and `else_`"
    else:
        type_ = "f32" if isinstance(new, float) else "u32"
        way = (f"Make a register before the `with`, `{path} = mov.{type_}(...)`, and write it in place here, "
               f"`mov.{type_}({path}, {new!r})`; a condition known in Python is a Python `if`")
    raise TraceError(
        f"`with {kind}` only binds the name `{path}` to another value here, which emits nothing: after it `{path}` is that value in every "
        f"thread. {way}", where)


def _refuse_change(kind: str, frame: FrameType, path: str, _: Any, new: Any, line: int | None) -> None:
    _refuse(kind, path, new, position(frame, line))


def _bits(type_: str) -> str:
    return {"f16": "b16", "bf16": "b16", "b128": "b64"}.get(type_, type_)


__all__ = ["Branched", "check_rebound"]
