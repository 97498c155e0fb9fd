"""The caller's names before and after a loop's body: a name that the body binds to another register is a value that the loop loses."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..grammar.walk import instructions
from .around import Around, around
from .branched import check_left
from .bytecode import loaded, local
from .changes import check_changes
from .held import INSIDE, Held, binds, differ, position, stays, stored
from .plain import check_plain, refuse_number
from .reg import Negated, Reg, Value, Vec
from .regions import Region, accesses
from .source import line_at, named
from .touched import NAME, Body, read_first

if TYPE_CHECKING:
    from .trace import Builder


class Names:
    """What the names of the code around a loop hold when it begins."""

    def __init__(self, frame: FrameType | None) -> None:
        self.frames = around(frame)

    def check(self, builder: Builder, region: Region, own: tuple[Reg[Any], ...]) -> None:
        """Raise if a name holds another value now, and the body read the old one, or the code after it reads the new one, which it did not
        make. `own` are the registers that the loop gave."""
        given = {reg.name for reg in own}
        for here in self.frames:
            frame, begin, held, numbers = here
            stays(frame, begin, region.kind)
            names = frame.f_locals
            check_plain(frame, begin, numbers, names, region.kind)
            changes = held.changed()
            check_changes(frame, begin, held, changes, numbers, names, partial(refuse_number, frame, begin, region.kind))
            now = Held(frame, names) if changes or held.rebound(names) else None
            if now is not None and held.moved(now):
                self._lost(builder, region, here, now.elements(), given)
            check_left(builder, region, here, names, changes, now, given)

    def _lost(self, builder: Builder, region: Region, here: Around, now: Mapping[str, Value], given: Container[str]) -> None:
        """Raise for a name of a frame, or what it leads to, that holds another value `now`, where the body read the old one."""
        frame, begin, held, _ = here
        for path, old in held.elements().items():
            new = now.get(path, old)
            if new is old or not differ(old, new) or not _used(builder, region, old):
                continue
            if path.endswith("[-1]") and _read_after(builder, region, old, new):
                continue                             # the list has grown, and all of it is read
            if isinstance(new, Reg) and new.name in given and binds(frame, begin, path):
                continue                             # the `with` itself binds it
            root = re.split(r"\W", path, maxsplit=1)[0]
            if local(frame.f_code, root) and begin < frame.f_lasti and loaded(frame.f_code, root, begin, frame.f_lasti) is None:
                continue                             # the body read the value by another name
            _refuse(builder, region, frame, begin, path, old, new)

    def namesakes(self, values: Mapping[str, Any]) -> Iterator[tuple[str, str, bool, FrameType, int]]:
        """The values that have their own name outside of the loop, too, `total` or `state.total`: (name, the path, whether they have no
        other name, the frame, where the loop begins)."""
        for frame, begin, held, _ in self.frames[:1]:
            for name, value in values.items():
                paths = [path for path, each in held.values.items() if each is value]
                own = [path for path in paths if re.split(rf"[.{INSIDE}]", path)[-1] == name]
                if own:
                    yield name, name if name in own else own[0], len(own) == len(paths), frame, begin


def check_namesakes(builder: Builder, region: Region, names: Names, values: Mapping[str, Any]) -> None:
    """Raise where a loop carries `total=total` and its body, or the code after it, reads `total` and not `loop.total`: the first value."""
    for name, path, only, frame, begin in names.namesakes(values):
        code, end = frame.f_code, frame.f_lasti
        read = begin < end and any(_used(builder, region, each) for each in _parts(values[name]))
        line = loaded(code, name, begin, end) if read and path == name and local(code, name) else None
        if read and line is None and only:           # by a function of the caller's, or as an attribute
            at = read_first(Body(code, begin, end, {**frame.f_globals, **frame.f_locals}, {}), name, NAME)
            line = line_at(code, at) if at is not None else _read_at(builder, region, values[name])
        if line is not None:
            shown = path.rpartition(INSIDE)[2]
            raise TraceError(
                f"the loop carries `{name}`, and its body reads `{shown}` and not `loop.{name}`: the first value in every iteration. "
                f"Write `loop.{name}`; where the first value is meant, give it another name before the loop",
                Position(named(code.co_filename), line))
        registers = {reg.name for reg in _parts(values[name]) if isinstance(reg, Reg)}
        if registers and path == name and local(code, name):
            builder.results.append((builder.now, registers, name, frame.f_code, frame.f_lasti))


def check_results(builder: Builder, reads: Mapping[str, int]) -> None:
    """Raise where the code after a loop that carries `total=total` reads `total` and not `loop.total`."""
    body = builder.statements() if builder.results else []
    for end, registers, name, code, at in builder.results:
        if all(reads.get(register, -1) < end for register in registers):
            continue
        for each in instructions(body[end:]):
            read, written = accesses(each)
            if registers & {*read, each.guard.predicate if each.guard else ""}:
                line = loaded(code, name, at)
                if line is not None:
                    raise TraceError(
                        f"the loop carried `{name}`, and this reads `{name}` and not `loop.{name}`, the result: it is the first value. "
                        f"Write `loop.{name}`; where the first value is meant, give it another name before the loop",
                        Position(named(code.co_filename), line))
                break
            if registers & {*written}:
                break


def _read_at(builder: Builder, region: Region, value: Any) -> int | None:
    """The line of the first instruction of the body that reads a value."""
    registers = {reg.name for reg in _parts(value) if isinstance(reg, Reg)}
    return next((each.position.line for each in instructions(builder.body[region.start:])
                 if each.position is not None and registers & {*accesses(each)[0]}), None)


def _parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Vec) else [value]


def _read_after(builder: Builder, region: Region, old: Value, new: Value) -> bool:
    """Whether the body reads one register after the instruction that makes another."""
    made = False
    for instruction in instructions(builder.body[region.start:]):
        read, written = accesses(instruction)
        if made and isinstance(old, Reg) and old.name in read:
            return True
        made = made or (isinstance(new, Reg) and new.name in written)
    return False


def _used(builder: Builder, region: Region, old: Value) -> bool:
    """Whether the body read the value as it was before the loop: a register before the body writes it, a place by an operand."""
    old = old.reg if isinstance(old, Negated) else old
    if getattr(getattr(old, "reg", old), "builder", builder) is not builder:
        return False                                 # of an earlier trace
    if not isinstance(old, Reg) and (seen := getattr(old, "seen", None)) is not None:
        return int(seen) >= region.at
    old = getattr(old, "reg", old)                   # of a descriptor or a tensor map
    if not isinstance(old, Reg):
        return False
    here = tree.Name(old.name)
    for instruction in instructions(builder.body[region.start:]):
        guard = instruction.guard
        if here not in instruction.operands and all(type(operand) in (tree.Name, tree.Integer) for operand in instruction.operands) \
                and (guard is None or guard.predicate != old.name):
            continue
        read, written = accesses(instruction)
        if old.name in read or (guard is not None and guard.predicate == old.name):
            return True
        if old.name in written and guard is None:
            return False
    return False


def _refuse(builder: Builder, region: Region, frame: FrameType, begin: int, path: str, old: Value, new: Any) -> None:
    path = path.rpartition(INSIDE)[2]
    line = stored(frame, begin, path)
    made = next((i.position for i in instructions(builder.body[region.start:])
                 if isinstance(new, Reg) and new.name in accesses(i)[1]), None)
    where = position(frame, line) or made
    old = old.reg if isinstance(old, Negated) else old
    what = "register" if isinstance(old, Reg) else "place"
    name = path if path.isidentifier() else "total"
    if isinstance(old, Reg):
        kind = old.type.__name__
        in_place = f"write the register in place, as `mov.{kind}({path}, ...)`" + (
            f" or `add.{'rn.' if kind[0] == 'f' else ''}{kind}({path}, {path}, x)`" if kind[0] in "fsu" else "")
    else:
        in_place = f"compute `{path}` from the loop's index in the body"
    with_ = "for_range(n" if region.kind == "for_range" else "loop("
    carried = f"`with {with_}{', ' if with_[-1] == 'n' else ''}{name}={path}) as loop:` and `loop.{name} = ...`"
    raise TraceError(
        f"the loop loses `{path}`: its body reads the {what} that `{path}` held before the loop and then binds the name to another, so "
        f"every iteration reads the old value. Carry it, {carried}, after which `loop.{name}` is the result; or {in_place}", where)


__all__ = ["Names", "check_namesakes", "check_results"]
