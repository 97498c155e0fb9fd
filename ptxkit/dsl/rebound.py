"""The caller's names before and after a loop's body: a name that the body binds to another register is a value that the loop loses.

This is the one place that looks at the caller's names. A trace sees no assignment: `prev = x` emits nothing.
"""

from __future__ import annotations

import dis
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import CellType, FrameType, FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..grammar.walk import instructions
from .bytecode import left_early, loaded, local, targets
from .reg import Negated, Ptr, Reg, Value, Vec
from .regions import Region, accesses
from .source import named, outside

if TYPE_CHECKING:
    from .trace import Builder

DEPTH = 3
"""How deep lists, dicts and attributes are looked into."""
_INSIDE = "\0"             # between the path of a function and a name that it has of the code around it
_EMPTY = CellType()
_GENERATOR = 0x20
_REG, _VALUE, _SEQUENCE, _MAPPING, _OBJECT, _FUNCTION, _METHOD, _NOTHING = range(8)
_kinds: dict[type, int] = {}
_slotted: dict[type, tuple[str, ...]] = {}


class Names:
    """What the names of the code around a loop hold when it begins."""

    def __init__(self, frame: FrameType | None) -> None:
        self.frames = [(each, each.f_lasti, _held(each)) for each in _users(frame)]

    def check(self, builder: Builder, region: Region, own: tuple[Reg[Any], ...]) -> None:
        """Raise if a name holds another value now, and the body read the old one. `own` are the registers that the loop gave."""
        given = {reg.name for reg in own}
        for frame, begin, before in self.frames:
            _stays(frame, begin, region.kind)
            now = _held(frame)
            for path, old in before.items():
                new = now.get(path, old)
                if new is old or not _differ(old, new) or not _used(builder, region, old):
                    continue
                own_name = local(frame.f_code, path)
                if isinstance(new, Reg) and new.name in given and (not own_name or path in targets(frame.f_code, begin)):
                    continue                         # the `with` itself binds it
                root = re.split(r"\W", path, maxsplit=1)[0]
                if local(frame.f_code, root) and begin < frame.f_lasti and loaded(frame.f_code, root, begin, frame.f_lasti) is None:
                    continue                         # the body read the value by another name
                _refuse(builder, region, frame, begin, path, old, new)

    def namesakes(self, values: Mapping[str, Any]) -> Iterator[tuple[str, FrameType, int]]:
        """The values that a local name of their own has: (name, the frame, where the loop begins)."""
        for frame, begin, _ in self.frames[:1]:
            held = frame.f_locals
            for name, value in values.items():
                if held.get(name) is value and local(frame.f_code, name):
                    yield name, frame, begin


def check_namesakes(builder: Builder, region: Region, names: Names, values: Mapping[str, Any]) -> None:
    """Raise where a loop carries `total=total` and its body, or the code after it, reads `total` and not `loop.total`: the first value."""
    for name, frame, begin in names.namesakes(values):
        read = any(_used(builder, region, each) for each in _parts(values[name]))
        line = loaded(frame.f_code, name, begin, frame.f_lasti) if read and begin < frame.f_lasti else None
        if line is not None:
            raise TraceError(
                f"the loop carries `{name}`, and its body reads `{name}` and not `loop.{name}`: the first value in every iteration. "
                f"Write `loop.{name}`; where the first value is meant, give it another name before the loop",
                Position(named(frame.f_code.co_filename), line))
        registers = {reg.name for reg in _parts(values[name]) if isinstance(reg, Reg)}
        if registers and builder.body is builder.main:
            builder.results.append((len(builder.body), registers, name, frame.f_code, frame.f_lasti))


def check_results(builder: Builder, reads: Mapping[str, int]) -> None:
    """Raise where the code after a loop that carries `total=total` reads `total` and not `loop.total`."""
    for end, registers, name, code, at in builder.results:
        if all(reads.get(register, -1) < end for register in registers):
            continue
        for each in instructions(builder.main[end:]):
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


class Locals:
    """The local names of the code around an `if_` or `else_`, when it begins."""

    def __init__(self, frame: FrameType | None) -> None:
        self.frames = [(each, each.f_lasti, {name: value for name, value in each.f_locals.items() if isinstance(value, Value)})
                       for each in _users(frame)]

    def check(self, kind: str) -> None:
        """Raise if a name now holds a value that another name had before, and is read later: `best = x` emits nothing."""
        for frame, begin, before in self.frames:
            _stays(frame, begin, kind)
            now = frame.f_locals
            for name, old in before.items():
                new = now.get(name, old)
                if new is old or not isinstance(new, Value) or not _differ(old, new):
                    continue
                if not any(new is each for each in before.values()):
                    continue                         # the body made it
                code, end = frame.f_code, frame.f_lasti
                if local(code, name) and begin < end and loaded(code, name, end) is not None:
                    type_ = new.type.__name__ if isinstance(new, Reg) else "b32"
                    way = (f"write the register in place, as `mov.{type_}({name}, ...)`, or choose it with `selp.{_bits(type_)}(a, b, p)`"
                           if isinstance(new, Reg) else f"choose a register with `selp` and compute `{name}` from it")
                    raise TraceError(
                        f"`with {kind}` only binds the name `{name}` to another value here, which emits nothing: after it `{name}` is that "
                        f"value in every thread. {way[0].upper()}{way[1:]}",
                        Position(named(code.co_filename), line) if (line := _stored(frame, begin, name)) else None)


def _bits(type_: str) -> str:
    return {"f16": "b16", "bf16": "b16", "b128": "b64"}.get(type_, type_)


def _parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Vec) else [value]


def _stays(frame: FrameType, begin: int, kind: str) -> None:
    """Raise where Python leaves the body and passes over what follows."""
    if left_early(frame.f_code, begin, frame.f_lasti):
        raise TraceError(
            f"Python's `return`, `break` or `continue` leaves this `with {kind}` body while tracing, so that what follows is emitted for "
            "no thread. On the GPU a thread ends with `exit()`, leaves a loop with `loop.break_if(p)` and begins its next iteration with "
            "`loop.continue_if(p)`; Python's own words stand after the `with`")


def caller(depth: int) -> FrameType | None:
    """The frame that a `with` statement stands in, `depth` frames above; None if it is this package's own."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename == sys.modules["contextlib"].__file__:
        frame = frame.f_back
    return frame if frame is not None and outside(frame.f_code.co_filename) else None


def _users(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame. Above a generator, whose body is interrupted by that of its user, also the frame of the user."""
    while frame is not None and outside(frame.f_code.co_filename):
        yield frame
        if not frame.f_code.co_flags & _GENERATOR:
            return
        frame = frame.f_back
        while frame is not None and not outside(frame.f_code.co_filename):
            frame = frame.f_back


def _held(frame: FrameType) -> dict[str, Value]:
    found: dict[str, Value] = {}
    held, all_ = frame.f_locals, frame.f_globals
    free = {name: all_[name] for name in frame.f_code.co_names if name in all_ and name not in held} if held is not all_ else {}
    for name, value in (*held.items(), *free.items()):
        kind = _kinds.get(type(value))
        if kind is None:
            kind = _kind(type(value))
        if kind <= _VALUE:
            found[name] = value
        elif kind != _NOTHING:
            _within(found, name, value, kind, DEPTH)
    return found


def _within(found: dict[str, Value], path: str, value: Any, kind: int, depth: int) -> None:
    """The values inside a list, a dict, an object or a function."""
    for key, each in enumerate(value) if kind == _SEQUENCE else (value if kind == _MAPPING else _parts_of(value, kind)).items():
        inner = _kinds.get(type(each))
        if inner is None:
            inner = _kind(type(each))
        if inner != _NOTHING:
            name = (f"{path}[{key!r}]" if kind <= _MAPPING else f"{path}.{key}" if kind != _FUNCTION else f"{path}{_INSIDE}{key}")
            if inner <= _VALUE:
                found[name] = each
            elif depth:
                _within(found, name, each, inner, depth - 1)


def _parts_of(value: Any, kind: int) -> dict[str, Any]:
    """Attributes of an object; the object of a method; the arguments of a `partial`; the names around a function, and its defaults."""
    if kind == _METHOD:
        names = ("__self__",) if isinstance(value, MethodType) else ("func", "args", "keywords")
        return {name: getattr(value, name) for name in names}
    if kind == _FUNCTION:
        if not outside(value.__code__.co_filename):
            return {}
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return {name: cell.cell_contents for name, cell in cells if cell != _EMPTY} | {"__defaults__": value.__defaults__}
    found = dict(getattr(value, "__dict__", ()))
    for name in _slots(type(value)):
        if hasattr(value, name):
            found[name] = getattr(value, name)
    return found


def _slots(type_: type) -> tuple[str, ...]:
    """The names of an object's values that are not in its `__dict__`."""
    found = _slotted.get(type_)
    if found is None:
        given = [(each, each.__dict__.get("__slots__", ())) for each in type_.__mro__]
        named = [(each, name) for each, names in given for name in ((names,) if isinstance(names, str) else names)]
        found = _slotted[type_] = tuple(f"_{each.__name__.lstrip('_')}{name}" if name.startswith("__") else name
                                        for each, name in named if not name.endswith("__"))
    return found


def _kind(type_: type) -> int:
    module, frozen = type_.__module__ or "", getattr(getattr(type_, "__dataclass_params__", None), "frozen", False)
    if issubclass(type_, Reg):
        found = _REG
    elif issubclass(type_, list | tuple | deque | Vec):
        found = _SEQUENCE
    elif issubclass(type_, Value):
        found = _VALUE
    elif issubclass(type_, dict):
        found = _MAPPING
    elif issubclass(type_, FunctionType):
        found = _FUNCTION
    elif issubclass(type_, MethodType | partial):
        found = _METHOD
    elif (module.startswith("ptxkit.") and (frozen or not module.startswith(("ptxkit.gemm.", "ptxkit.attention.")))) \
            or (module in sys.stdlib_module_names and type_ is not SimpleNamespace) or not (type_.__dictoffset__ or _slots(type_)):
        found = _NOTHING
    else:
        found = _OBJECT
    _kinds[type_] = found
    return found


def _differ(old: Value, new: Any) -> bool:
    """Whether two values are other registers or places."""
    return bool(_place(old) != _place(new))


def _place(value: Any) -> Any:
    if isinstance(value, Reg):
        return value.name
    if isinstance(value, Negated):
        return value.reg.name, "negated"
    if isinstance(value, Ptr):
        return value.reg.name, value.offset
    if hasattr(value, "dynamic"):
        return value.dynamic.name if value.dynamic is not None else "", value.offset
    return value.reg.name if hasattr(value, "reg") else id(value)


def _used(builder: Builder, region: Region, old: Value) -> bool:
    """Whether the body read the value as it was before the loop: a register before the body writes it, a place by an operand."""
    old = old.reg if isinstance(old, Negated) else old
    if getattr(getattr(old, "reg", old), "builder", builder) is not builder:
        return False                                 # of an earlier trace
    if not isinstance(old, Reg):
        return int(getattr(old, "seen", -1)) >= region.start
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
    path = path.rpartition(_INSIDE)[2]
    line = _stored(frame, begin, path)
    made = next((i.position for i in instructions(builder.body[region.start:])
                 if isinstance(new, Reg) and new.name in accesses(i)[1]), None)
    position = Position(named(frame.f_code.co_filename), line) if line else made
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
        f"every iteration reads the old value. Carry it, {carried}, after which `loop.{name}` is the result; or {in_place}", position)


def _stored(frame: FrameType, begin: int, path: str) -> int | None:
    """The line of the body's last assignment to a name."""
    end, found = frame.f_lasti, None
    for each in dis.get_instructions(frame.f_code):
        stored = each.argval if isinstance(each.argval, tuple) else (each.argval,)       # one instruction may store two names
        if each.opname.startswith("STORE_") and path in stored and begin < each.offset and (each.offset < end or end <= begin):
            found = each.offset
    if found is None:
        return None
    return next((line for first, last, line in frame.f_code.co_lines() if first <= found < last), None)


__all__ = ["Locals", "Names", "caller", "check_namesakes", "check_results"]
