"""What the names of the code around a `with` body hold: values of the trace and Python's own, in names, slots, attributes and closures.

This is the one place that looks at the caller's names. A trace sees no assignment: `prev = x` emits nothing.
"""

from __future__ import annotations

import dis
import sys
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import CellType, CodeType, FrameType, FunctionType, MethodType, SimpleNamespace
from typing import Any

from ..errors import TraceError
from ..grammar.errors import Position
from .bytecode import left_early
from .reg import Negated, Ptr, Reg, Value, Vec
from .source import named, of_python, outside

DEPTH = 3
"""How deep lists, dicts and attributes are looked into."""
INSIDE = "\0"
"""Stands between the path of a function and a name that it has of the code around it."""
_EMPTY = CellType()
_GENERATOR = 0x20
_REG, _VALUE, _SEQUENCE, _MAPPING, _OBJECT, _FUNCTION, _METHOD, _CLASS, _NOTHING = range(9)
_HOLDERS = (SimpleNamespace, UserDict, UserList, ChainMap)
_kinds: dict[type, int] = {}
_slotted: dict[type, tuple[str, ...]] = {}


def caller(depth: int) -> FrameType | None:
    """The frame that a `with` statement stands in, `depth` frames above; None if it is this package's own."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename == sys.modules["contextlib"].__file__:
        frame = frame.f_back
    return frame if frame is not None and outside(frame.f_code.co_filename) else None


def users(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame. Above a generator, whose body is interrupted by that of its user, also the frame of the user."""
    while frame is not None and outside(frame.f_code.co_filename):
        yield frame
        if not frame.f_code.co_flags & _GENERATOR:
            return
        frame = frame.f_back
        while frame is not None and not outside(frame.f_code.co_filename):
            frame = frame.f_back


def stays(frame: FrameType, begin: int, kind: str) -> None:
    """Raise where Python leaves the body and passes over what follows."""
    if left_early(frame.f_code, begin, frame.f_lasti):
        raise TraceError(
            f"Python's `return`, `break` or `continue` leaves this `with {kind}` body while tracing, so that what follows is emitted for "
            "no thread. On the GPU a thread ends with `exit()`, leaves a loop with `loop.break_if(p)` and begins its next iteration with "
            "`loop.continue_if(p)`; Python's own words stand after the `with`")


def held(frame: FrameType, own: Mapping[str, Any], *, whole: bool = True) -> dict[str, Value]:
    """The values of the trace that the names of a frame reach, by path: `total`, `sums[1]`, `state.total`. `own` are its local names.
    Where not `whole`, a Vec is one value."""
    found: dict[str, Value] = {}
    all_ = frame.f_globals
    free = {name: all_[name] for name in frame.f_code.co_names if name in all_ and name not in own} if own is not all_ else {}
    for name, value in (*own.items(), *free.items()):
        kind = _kinds.get(type(value))
        if kind is None:
            kind = _kind(type(value))
        if kind <= _VALUE or (not whole and type(value) is Vec):
            found[name] = value
        elif kind == _CLASS:
            if value.__module__ == all_.get("__name__"):
                _within(found, name, value, kind, 0)
        elif kind != _NOTHING:
            _within(found, name, value, kind, DEPTH)
    return found


def _within(found: dict[str, Value], path: str, value: Any, kind: int, depth: int) -> None:
    """The values inside a list, a dict, an object or a function. The last one of a list also has the path `[-1]`: a list may grow."""
    if kind == _SEQUENCE and hasattr(value, "dtype"):
        value = value.flat if value.dtype == object else ()
    each: Any = None
    for key, each in enumerate(value) if kind == _SEQUENCE else (value if kind == _MAPPING else _parts_of(value, kind)).items():
        inner = _kinds.get(type(each))
        if inner is None:
            inner = _kind(type(each))
        if inner < _CLASS:
            name = (f"{path}[{key!r}]" if kind <= _MAPPING else f"{path}.{key}" if kind != _FUNCTION else f"{path}{INSIDE}{key}")
            if inner <= _VALUE:
                found[name] = each
            elif depth:
                _within(found, name, each, inner, depth - 1)
    if type(value) is list and isinstance(each, Value):
        found[f"{path}[-1]"] = each


def _parts_of(value: Any, kind: int) -> dict[str, Any]:
    """Attributes of an object; the object of a method; the arguments of a `partial`; what a function has of the code around it."""
    if kind == _METHOD:
        names = ("__self__",) if isinstance(value, MethodType) else ("func", "args", "keywords")
        return {name: getattr(value, name) for name in names}
    if kind == _FUNCTION:
        if not outside(value.__code__.co_filename):
            return {}
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return {name: cell.cell_contents for name, cell in cells if cell != _EMPTY} | {"__defaults__": value.__defaults__, **value.__dict__}
    found: dict[str, Any] = dict(getattr(value, "__dict__", ()))
    for name in _slots(type(value)) if kind != _CLASS else ():
        if hasattr(value, name):
            found[name] = getattr(value, name)
    return found


def _slots(type_: type) -> tuple[str, ...]:
    """The names of an object's values that are not in its `__dict__`."""
    found = _slotted.get(type_)
    if found is None:
        given = [(each, each.__dict__.get("__slots__", ())) for each in type_.__mro__]
        named_ = [(each, name) for each, names in given for name in ((names,) if isinstance(names, str) else names)]
        found = _slotted[type_] = tuple(f"_{each.__name__.lstrip('_')}{name}" if name.startswith("__") else name
                                        for each, name in named_ if not name.endswith("__"))
    return found


def attribute(value: Any, name: str) -> Any:
    """An attribute that a value of a user's class holds: no property, which may emit instructions."""
    kind = _kinds.get(type(value))
    if (_kind(type(value)) if kind is None else kind) == _OBJECT:
        own = getattr(value, "__dict__", {})
        if name in own:
            return own[name]
        return getattr(value, name, None) if name in _slots(type(value)) else type(value).__dict__.get(name)
    return None


def _kind(type_: type) -> int:
    module, frozen = type_.__module__ or "", getattr(getattr(type_, "__dataclass_params__", None), "frozen", False)
    if issubclass(type_, Reg):
        found = _REG
    elif issubclass(type_, list | tuple | deque | Vec) or (module == "numpy" and type_.__name__ == "ndarray"):
        found = _SEQUENCE
    elif issubclass(type_, Value):
        found = _VALUE
    elif issubclass(type_, dict):
        found = _MAPPING
    elif issubclass(type_, FunctionType):
        found = _FUNCTION
    elif issubclass(type_, MethodType | partial):
        found = _METHOD
    elif type_ is type:
        found = _CLASS
    elif (module.startswith("ptxkit.") and (frozen or not module.startswith(("ptxkit.gemm.", "ptxkit.attention.")))) \
            or (_of_python(module) and type_ not in _HOLDERS) or not (type_.__dictoffset__ or _slots(type_)):
        found = _NOTHING
    else:
        found = _OBJECT
    _kinds[type_] = found
    return found


def _of_python(module: str) -> bool:
    """Whether a module is one of Python's own: a user's file may have the name of one."""
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or of_python(file)


def differ(old: Value, new: Any) -> bool:
    """Whether two values are other registers or places."""
    return bool(_place(old) != _place(new))


def _place(value: Any) -> Any:
    if isinstance(value, Reg):
        return value.name
    if isinstance(value, Vec):
        return [_place(each) for each in value]
    if isinstance(value, Negated):
        return value.reg.name, "negated"
    if isinstance(value, Ptr):
        return value.reg.name, value.offset
    if hasattr(value, "dynamic"):
        return value.dynamic.name if value.dynamic is not None else "", value.offset
    return value.reg.name if hasattr(value, "reg") else id(value)


def stored(frame: FrameType, begin: int, path: str) -> int | None:
    """The line of the body's last assignment to a name, an attribute or an item; of a name also one in a function inside this one."""
    end = frame.f_lasti
    word = "STORE_" if path.isidentifier() else "STORE_SUBSCR" if path.endswith("]") else "STORE_ATTR"
    name = path.rpartition(".")[2]

    def assigns(each: dis.Instruction) -> bool:
        names = each.argval if isinstance(each.argval, tuple) else (each.argval,)        # one instruction may store two names
        return each.opname.startswith(word) and (word == "STORE_SUBSCR" or name in names)

    found = [each.offset for each in dis.get_instructions(frame.f_code)
             if assigns(each) and begin < each.offset and (each.offset < end or end <= begin)]
    if found:
        return line_at(frame.f_code, found[-1])
    if word == "STORE_SUBSCR":
        return stored(frame, begin, path[:path.rindex("[")])
    if word == "STORE_" and name in frame.f_code.co_cellvars:
        for code in frame.f_code.co_consts:
            inner = [each.offset for each in dis.get_instructions(code) if assigns(each)] if isinstance(code, CodeType) else []
            if inner and isinstance(code, CodeType):
                return line_at(code, inner[-1])
    return None


def line_at(code: CodeType, offset: int) -> int | None:
    """The line of the instruction at an offset of a function's code."""
    return next((line for first, last, line in code.co_lines() if first <= offset < last), None)


def position(frame: FrameType, line: int | None) -> Position | None:
    """A line of the frame's source."""
    return Position(named(frame.f_code.co_filename), line) if line else None


__all__ = ["INSIDE", "attribute", "caller", "differ", "held", "line_at", "position", "stays", "stored", "users"]
