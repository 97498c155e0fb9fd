"""Opcodes and idioms that a line names and does not call: `bar.sync` for `bar.sync(0)` is legal Python and emits nothing.

Before a trace this reads the byte code of the function, of the functions inside it and of those that it names, for expressions that are
statements of their own. It runs nothing.
"""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..errors import TraceError
from ..grammar.errors import Position
from .blocks import Block
from .source import installed, named, outside


class Emitting:
    """What emits when it is called: an opcode."""

    __slots__ = ()


class Handle:
    """What stands for memory, barriers or rounds while tracing, and is no register: a name holds the same one in every iteration."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class EmittingMethods(Handle):
    """What has methods that emit, and is kept in a name: pipelines, barriers, rings, loops."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        _methods.update(name for name, value in vars(cls).items() if isinstance(value, FunctionType) and not name.startswith("_"))


_methods = {"place"}
"""The names of methods that emit; first that of a label."""
_POP, _NAMES = dis.opmap["POP_TOP"], ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST")
_DROPPED = re.compile(rb"(?=[%b].(?:\0\0)*%b)" % (re.escape(bytes(dis.opmap[word] for word in ("LOAD_ATTR", *_NAMES))),
                                                     re.escape(bytes((_POP,)))), re.DOTALL)
MOST = 400
"""Functions that are read for one kernel: its own and its helpers, and not all of a library that they come from."""
_checked: dict[int, CodeType] = {}
"""The functions without a closure that were found right, by the identity of their code."""


def check_called(function: Callable[..., Any]) -> None:
    """Raise for a statement of `function`, or of a function that it names, that is an opcode or an idiom without a call."""
    home = (function.__module__ or "").partition(".")[0]
    waiting, seen = [function], set[int]()
    while waiting and len(seen) < MOST:
        each = waiting.pop()
        if not isinstance(each, FunctionType) or id(each.__code__) in seen or id(each.__code__) in _checked or not _follows(each, home):
            continue
        seen.add(id(each.__code__))
        given = {**each.__globals__, **_closure(each)} if each.__closure__ else each.__globals__
        for code in _codes(each.__code__):
            for path, line in _read(code) if _may(code.co_code) else ():
                if _emits(given, path):
                    words = ".".join(path)
                    raise TraceError(f"`{words}` stands here without a call, so that it emits nothing: write `{words}(...)`",
                                     Position(named(code.co_filename), line))
            waiting += [given[name] for name in (*code.co_names, *code.co_freevars) if type(given.get(name)) is FunctionType]
        if not each.__closure__:
            _checked[id(each.__code__)] = each.__code__


def _follows(function: FunctionType, home: str) -> bool:
    """Whether this is code of kernels: of the kernel's own package, or of no installed library."""
    package, file = (function.__module__ or "").partition(".")[0], function.__code__.co_filename
    return outside(file) and (package == home or (package not in sys.stdlib_module_names and not installed(file)))


def _closure(function: FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _may(code: bytes) -> bool:
    """Whether a value is dropped right after it was loaded. Two bytes are an instruction, and zeros stand between them."""
    return any(found.start() % 2 == 0 for found in _DROPPED.finditer(code))


def _read(code: CodeType) -> Iterator[tuple[tuple[str, ...], int]]:
    path: list[str] = []
    line = code.co_firstlineno
    for each in dis.get_instructions(code):
        line = each.starts_line or line if not isinstance(each.starts_line, bool) else each.line_number or line  # type: ignore[attr-defined]
        if each.opname in _NAMES or each.opname.startswith("LOAD_FAST"):
            path = [str(each.argval[-1] if isinstance(each.argval, tuple) else each.argval)]
        elif each.opname == "LOAD_ATTR" and path:
            path.append(str(each.argval))
        elif each.opname == "POP_TOP" and path:
            yield tuple(path), line
            path = []
        elif each.opname != "CACHE":
            path = []


def _emits(given: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether the names are something that emits when it is called: an opcode, or a function of this package."""
    first, *rest = path
    if rest and rest[-1] in _methods:
        return True
    value = given.get(first)
    for name in rest:
        if not isinstance(value, Emitting | ModuleType):
            return False
        try:
            value = getattr(value, name)
        except AttributeError:
            return False
    if isinstance(value, type):
        return issubclass(value, Block)
    return isinstance(value, Emitting) or (isinstance(value, FunctionType) and value.__module__.startswith("ptxkit.")
                                         and not outside(value.__code__.co_filename))


__all__ = ["Emitting", "EmittingMethods", "check_called"]
