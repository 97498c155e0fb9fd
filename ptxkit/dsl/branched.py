"""The caller's names before and after a `with` body: `best = x` in it emits nothing, and holds in every thread after it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..errors import TraceError
from ..grammar.errors import Position
from .around import Around
from .bytecode import loaded, local, stored_outside
from .changes import check_changes
from .held import INSIDE, Held, Holder, binds, differ, position, stays, stored
from .plain import changed
from .reg import Negated, Ptr, Reg, Value, Vec
from .source import line_at

if TYPE_CHECKING:
    from .regions import Region
    from .trace import Builder


def check_branch(builder: Builder, region: Region, frames: Iterable[Around]) -> None:
    """Raise if a name or slot now holds what the body of an `if_` or `else_` did not make, and is read later."""
    for here in frames:
        stays(here.frame, here.begin, region.kind)
        names, changes = here.frame.f_locals, here.held.changed()
        check_left(builder, region, here, names, changes, Held(here.frame, names) if changes or here.held.rebound(names) else None)


def check_left(builder: Builder, region: Region, here: Around, names: Mapping[str, Any], changes: Sequence[Holder], now: Held | None,
               own: Container[str] = ()) -> None:
    """The same for one frame around a body.

    `names` is what its names hold now. `changes` are the objects that contain something else than before. `now` is everything that its
    names lead to, or None if nothing of it has changed. `own` are the names of the registers that a loop gave.
    """
    frame, begin, held, numbers = here
    code, end, all_ = frame.f_code, frame.f_lasti, frame.f_globals
    others = {name: new for name, old in numbers.items() if (new := names.get(name, all_.get(name, old))) is not old}
    if now is None and not others:
        return
    for name, new in others.items() if begin < end else ():
        old = numbers[name]
        if name not in names or not changed(old, new) or (isinstance(new, Value) and not _older(region, new, held.values)):
            continue
        if local(code, name) and stored_outside(code, name, begin, end) and loaded(code, name, end) is not None:
            _refuse(region.kind, name, new, position(frame, stored(frame, begin, name)))
    check_changes(frame, begin, held, changes, numbers, names, partial(_refuse_change, region.kind, frame), after=True,
                  loop=region.kind not in ("if_", "else_"))
    if now is None or not held.moved(now):
        return
    before, after = held.elements(but_names=True), now.elements(but_names=True)
    for path, older in before.items():
        new = after.get(path, older)
        if new is older or not differ(older, new) or not _older(region, new, before):
            continue
        if begin < end and local(code, path) and not stored_outside(code, path, begin, end):
            continue                             # the body bound it before, while Python's own `for` unrolled it
        root, name = path.partition("[")[0].partition(".")[0], path.rpartition(INSIDE)[2]
        unread = local(code, root) and (begin < end or root == path) and (begin >= end or loaded(code, root, end) is None)
        if unread or (isinstance(new, Reg) and new.name in own and binds(frame, begin, path)):
            continue
        where = position(frame, stored(frame, begin, name) or line_at(code, begin))
        if local(code, path):
            _refuse(region.kind, path, new, where)
        builder.rebound.append((builder.now, new, region.kind, name, where))


def check_rebound(builder: Builder, reads: Mapping[str, int]) -> None:
    """Raise for a slot, or a name that several functions share, that a body bound to an older value, which is read after it."""
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
               f"`mov.{type_}({path}, {int(new) if isinstance(new, bool) else new!r})`; a condition known in Python is a Python `if`")
    raise TraceError(
        f"`with {kind}` only binds the name `{path}` to another value here, which emits nothing: after it `{path}` is that value in every "
        f"thread. {way}", where)


def _refuse_change(kind: str, frame: FrameType, path: str, _: Any, new: Any, line: int | None) -> None:
    _refuse(kind, path, new, position(frame, line))


def _bits(type_: str) -> str:
    return {"f16": "b16", "bf16": "b16", "b128": "b64"}.get(type_, type_)


__all__ = ["check_branch", "check_left", "check_rebound"]
