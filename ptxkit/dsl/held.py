"""What the names of the code around a `with` body hold: values of the trace and Python's own, in names, slots, attributes and closures.

This is the one place that looks at the caller's names. A trace sees no assignment: `prev = x` emits nothing.
"""

from __future__ import annotations

import dis
import sys
from array import array
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Iterator, Mapping
from enum import EnumType
from functools import lru_cache, partial
from operator import is_
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

from ..errors import TraceError
from ..grammar.errors import Position
from .bytecode import globals_stored, left_early, targets
from .iterators import is_iterator, state
from .reg import Negated, Ptr, Reg, Value, Vec
from .source import installed, line_at, named, of_python, outside

DEPTH, ONCE = 6, 3
"""How deep lists, dicts and attributes are looked into, and on how many of the last levels each object is looked into once: objects that
lead to one another have more paths than a trace has time."""
INSIDE = "\0"
"""Stands between the path of a function and a name that it has of the code around it."""
_EMPTY = CellType()
_GENERATOR = 0x20
_REG, _VALUE, _TUPLE, SEQUENCE, MAPPING, OBJECT, FUNCTION, _METHOD, CLASS, SET, ITERATOR, _NOTHING = range(12)
_HOLDERS = (SimpleNamespace, UserDict, UserList, ChainMap)
_CALLED_ONCE = (MethodType, BuiltinMethodType, MethodWrapperType)
_LARGE = 1 << 16
_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
_kinds: dict[type, int] = {}
_globals: dict[int, tuple[CodeType, tuple[str, ...]]] = {}
_slotted: dict[type, tuple[str, ...]] = {}


def caller(depth: int) -> FrameType | None:
    """The frame that a `with` statement stands in, `depth` frames above; None if it is this package's own."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename == sys.modules["contextlib"].__file__:
        frame = frame.f_back
    return frame if frame is not None and outside(frame.f_code.co_filename) else None


def users(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame; of a generator and of an `__enter__` also the frame that runs it, whose body they are part of."""
    while frame is not None and outside(frame.f_code.co_filename):
        yield frame
        if not frame.f_code.co_flags & _GENERATOR and frame.f_code.co_name != "__enter__":
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


class Holder(NamedTuple):
    """What a name reaches and Python can change: the path, the object, its kind (SEQUENCE, ...), and what it contained."""

    path: str
    object: Any
    kind: int
    parts: Any


class Held:
    """The values of the trace that the names of a frame reach, by path: `total`, `sums[1]`, `state.total`. `own` are its local names.

    A Vec is one value. `holders` are the objects that the values are in.
    """

    __slots__ = ("_all", "_names", "holders", "values")

    def __init__(self, frame: FrameType, own: Mapping[str, Any]) -> None:
        self._all = all_ = frame.f_globals
        self._names: list[tuple[str, Any]] = []
        self.values: dict[str, Value] = {}
        self.holders: list[Holder] = []
        deep: set[int] = set()
        for name, value in (*own.items(), *(_globals_of(frame.f_code, all_, own) if own is not all_ else ())):
            kind = _kinds.get(type(value))
            if kind is None:
                kind = _kind(type(value))
            if kind == _NOTHING or (kind == FUNCTION and not outside(value.__code__.co_filename)) or (
                    kind == CLASS and not _of_users(value)):
                continue
            self._names.append((name, value))
            if kind <= _VALUE:
                self.values[name] = value
            elif kind <= CLASS:
                _within(self.values, self.holders, name, value, kind, 0 if kind == CLASS else DEPTH, deep)
            else:
                self.holders.append(Holder(name, value, kind, contents(value, kind)))

    def elements(self, *, but_names: bool = False) -> dict[str, Value]:
        """The values, and of a Vec each element; `but_names`: a Vec that a name itself stands for is one value. So is the last one of a
        list, which may grow."""
        found: dict[str, Value] = {}
        for path, value in self.values.items():
            if type(value) is not Vec or path.endswith("[-1]") or (but_names and path.isidentifier()):
                found[path] = value
            else:
                found.update((f"{path}[{i}]", each) for i, each in enumerate(value.elements) if isinstance(each, Value))
        return found

    def moved(self, now: Held) -> bool:
        """Whether a path leads to another value now, or to none."""
        return any(now.values.get(path) is not value for path, value in self.values.items())

    def changed(self) -> list[Holder]:
        """The objects that contain something else now."""
        return [holder for holder in self.holders if not same(holder)]

    def rebound(self, own: Mapping[str, Any]) -> bool:
        """Whether a name stands for another object now."""
        all_ = self._all
        return any(value is not (own[name] if name in own else all_.get(name)) for name, value in self._names)


def _globals_of(code: CodeType, all_: Mapping[str, Any], own: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The globals that a function names and that can reach a value."""
    names = code.co_names
    values = [*map(all_.get, names)]
    types = (*map(type, values),)
    found = _reaching.get(id(code))
    if found is None or found[0] is not code or found[1] != types:
        found = _reaching[id(code)] = code, types, tuple(i for i, type_ in enumerate(types) if _kind(type_) != _NOTHING)
    return [(names[i], values[i]) for i in found[2] if names[i] not in own]


_reaching: dict[int, tuple[CodeType, tuple[type, ...], tuple[int, ...]]] = {}
"""Of a function's code the types of its globals, and the places of those that can reach a value."""


def _within(found: dict[str, Value], holders: list[Holder], path: str, value: Any, kind: int, depth: int, deep: set[int]) -> None:
    """The values inside a list, a dict, an object or a function. The last one of a list also has the path `[-1]`: a list may grow. `deep`
    are the objects of the last levels that were looked into."""
    parts = value
    if kind != _TUPLE:
        parts = contents(value, kind)
        if kind != _METHOD and (kind != FUNCTION or parts):
            holders.append(Holder(path, value, kind, parts))
        if kind == SEQUENCE and hasattr(parts, "dtype"):
            return
    each: Any = None
    for key, each in enumerate(parts) if kind <= SEQUENCE else parts.items():
        inner = _kinds.get(type(each))
        if inner is None:
            inner = _kind(type(each))
        if inner != _NOTHING and inner != CLASS:
            name = (f"{path}[{key!r}]" if kind <= MAPPING else f"{path}.{key}" if kind != FUNCTION else f"{path}{INSIDE}{key}")
            if inner <= _VALUE:
                found[name] = each
            elif inner > CLASS:
                holders.append(Holder(name, each, inner, contents(each, inner)))
            elif depth > ONCE or (depth and id(each) not in deep):
                if depth <= ONCE:
                    deep.add(id(each))
                _within(found, holders, name, each, inner, depth - 1, deep)
    if type(value) is list and isinstance(each, Value):
        found[f"{path}[-1]"] = each


def contents(value: Any, kind: int) -> Any:
    """What an object contains now, as a copy: a list of what is in a sequence or a set, a dict of items or attributes."""
    if kind == SEQUENCE:
        if hasattr(value, "dtype"):
            return list(value.flat) if value.dtype == object else value.copy() if value.size < _LARGE else ()
        return list(value)
    if kind == MAPPING:
        return dict(value)
    if kind == SET:
        return set(value)
    return state(value) if kind == ITERATOR else _parts_of(value, kind)


def same(holder: Holder) -> bool:
    """Whether an object contains what it did, each part the same object."""
    _, value, kind, parts = holder
    if kind == ITERATOR:
        return bool(state(value) == parts)
    now: Any = value if kind <= MAPPING else value if kind == SET else _parts_of(value, kind)
    if hasattr(parts, "dtype"):
        return bool(now.shape == parts.shape and (now == parts).all())
    if len(now) != len(parts):
        return False
    if kind == SET:
        return bool(now == parts)
    if kind == SEQUENCE:
        return all(map(is_, value.flat if hasattr(value, "dtype") else value, parts))
    return all(map(is_, now, parts)) and all(map(is_, now.values(), parts.values()))


def _parts_of(value: Any, kind: int) -> dict[str, Any]:
    """Attributes of an object; the object of a method; the arguments of a `partial`; what a function has of the code around it."""
    if kind == _METHOD:
        names = ("__self__",) if isinstance(value, _CALLED_ONCE) else ("func", "args", "keywords")
        return {name: getattr(value, name) for name in names}
    if kind == FUNCTION:
        if not (value.__closure__ or value.__defaults__ or value.__kwdefaults__ or value.__dict__ or _shared(value)) \
                or not outside(value.__code__.co_filename):
            return {}
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        inner: dict[str, Any] = {name: cell.cell_contents for name, cell in cells if cell != _EMPTY}
        all_ = value.__globals__
        return {**inner, **{name: all_[name] for name in _shared(value) if name in all_}, **_defaults(value), **value.__dict__}
    found: dict[str, Any] = dict(getattr(value, "__dict__", ()))
    for name in _slots(type(value)) if kind != CLASS else ():
        part = getattr(value, name, _EMPTY)
        if part is not _EMPTY:
            found[name] = part
    return found


def _defaults(function: FunctionType) -> dict[str, Any]:
    """What can reach a value and is what a parameter of a function is where a call does not say."""
    given, code = function.__defaults__ or (), function.__code__
    names = code.co_varnames[code.co_argcount - len(given):code.co_argcount]
    named_ = (*zip(names, given, strict=True), *(function.__kwdefaults__ or {}).items())
    return {name: each for name, each in named_ if _kind(type(each)) != _NOTHING}


def _shared(function: FunctionType) -> tuple[str, ...]:
    """The globals that a function assigns, and those that were containers when it was first looked at."""
    code = function.__code__
    found = _globals.get(id(code))
    if found is None or found[0] is not code:
        all_ = function.__globals__
        names = [name for name in code.co_names if _kind(type(all_.get(name))) in (SEQUENCE, MAPPING, SET, ITERATOR)]
        stored_ = globals_stored(code) if _STORE_GLOBAL in code.co_code[::2] else ()
        found = _globals[id(code)] = code, (*names, *stored_)
    return found[1]


def _slots(type_: type) -> tuple[str, ...]:
    """The names of an object's values that are not in its `__dict__`."""
    found = _slotted.get(type_)
    if found is None:
        given = [(each, each.__dict__.get("__slots__", ())) for each in type_.__mro__]
        named_ = [(each, name) for each, names in given for name in ((names,) if isinstance(names, str) else names)]
        found = _slotted[type_] = tuple(f"_{each.__name__.lstrip('_')}{name}" if name.startswith("__") else name
                                        for each, name in named_ if not name.endswith("__"))
    return found


def _kind(type_: type) -> int:
    known = _kinds.get(type_)
    if known is not None:
        return known
    module, frozen = type_.__module__ or "", getattr(getattr(type_, "__dataclass_params__", None), "frozen", False)
    if issubclass(type_, Reg):
        found = _REG
    elif issubclass(type_, tuple):
        found = _TUPLE
    elif issubclass(type_, list | deque | bytearray | array) or (module == "numpy" and type_.__name__ == "ndarray"):
        found = SEQUENCE
    elif issubclass(type_, Value):
        found = _VALUE
    elif issubclass(type_, dict):
        found = MAPPING
    elif issubclass(type_, FunctionType):
        found = FUNCTION
    elif issubclass(type_, (*_CALLED_ONCE, partial)):
        found = _METHOD
    elif issubclass(type_, type) and not issubclass(type_, EnumType):
        found = CLASS
    elif issubclass(type_, set):
        found = SET
    elif is_iterator(type_):
        found = ITERATOR
    elif (module.startswith("ptxkit.") and (frozen or not module.startswith(("ptxkit.gemm.", "ptxkit.attention.")))) \
            or (_of_python(module) and type_ not in _HOLDERS) or not (type_.__dictoffset__ or _slots(type_)):
        found = _NOTHING
    else:
        found = OBJECT
    _kinds[type_] = found
    return found


def _of_python(module: str) -> bool:
    """Whether a module is one of Python's own: a user's file may have the name of one."""
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or of_python(file)


@lru_cache(maxsize=1024)
def _of_users(class_: type) -> bool:
    """Whether a class is the author's: not this package's, Python's or one that is installed."""
    module = class_.__module__
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return bool(module) and not module.startswith("ptxkit.") and not _of_python(module) and not installed(file)


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


def binds(frame: FrameType, begin: int, path: str) -> bool:
    """Whether the `with` at an offset binds what a path leads to itself, after `as`."""
    _, dot, last = path.rpartition(INSIDE)[2].rpartition(".")
    return ("[]" if path.endswith("]") else dot + last) in targets(frame.f_code, begin)


def position(frame: FrameType, line: int | None) -> Position | None:
    """A line of the frame's source."""
    return Position(named(frame.f_code.co_filename), line) if line else None


__all__ = ["CLASS", "FUNCTION", "INSIDE", "ITERATOR", "MAPPING", "OBJECT", "SEQUENCE", "SET", "Held", "Holder", "binds", "caller",
           "contents", "differ", "position", "same", "stays", "stored", "users"]
