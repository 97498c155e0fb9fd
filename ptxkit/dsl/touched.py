"""In which order a body reads and assigns an attribute, a variable of several functions or the items of a container, by the code.

The functions that the body names are followed, as far as their names lead to them.
"""

from __future__ import annotations

import dis
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from .bytecode import augmented, moves, steps_of
from .source import outside

ATTRIBUTE, NAME, ITEM = range(3)
_RUN = frozenset(("__call__", "__contains__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__", "__setitem__"))
"""Methods that a line runs without their names."""
_CHANGES = frozenset(("append", "add", "extend", "insert", "update", "appendleft", "extendleft", "setdefault"))
"""Methods that put something into a container."""


class Body(NamedTuple):
    """A body: its code between two offsets, and what its names stand for. `methods` are the methods of the objects around it."""

    code: CodeType
    begin: int
    end: int
    names: Mapping[str, Any]
    methods: Mapping[str, list[FunctionType]]


def methods_of(objects: Iterable[Any]) -> dict[str, list[FunctionType]]:
    """The methods and properties of the users' classes that objects have, by name; those that set a property by its name and `=`."""
    found: dict[str, list[FunctionType]] = {}
    for type_ in dict.fromkeys(each for value in objects for each in type(value).__mro__):
        for name, function in _methods(type_):
            found.setdefault(name, []).append(function)
    return found


def _methods(type_: type) -> Iterator[tuple[str, FunctionType]]:
    for name, value in vars(type_).items():
        parts = {name: value.fget, f"{name}=": value.fset} if isinstance(value, property) else {name: getattr(value, "__func__", value)}
        yield from ((word, function) for word, function in parts.items() if isinstance(function, FunctionType))


def read_first(body: Body, word: str, kind: int, *, counts: bool = False, made: bool = False) -> int | None:
    """The offset at which the body reads what `word` stands for, if it does so before it assigns it.

    A function that counts on what it reads, `self.k += 1; return self.k`, numbers what a body emits: with `counts` that is no reading. With
    `made` neither is a reading that an assignment and another reading follow.
    """
    touches = list(_touches(body.code, body.names, body.methods, word, kind, counts, {body.code}, body.begin, body.end))
    if not touches or not touches[0][1]:
        return None
    last = max((i for i, (_, reads) in enumerate(touches) if not reads), default=len(touches))
    return None if made and any(reads for _, reads in touches[last:]) else touches[0][0]


def _touches(code: CodeType, names: Mapping[str, Any], methods: Mapping[str, list[FunctionType]], word: str, kind: int, counts: bool,
             seen: set[CodeType], begin: int = -1, end: int = 1 << 30) -> Iterator[tuple[int, bool]]:
    """(offset, whether it reads) of each reading and assignment, in the order of the code."""
    found = _named(code)
    here = {i: _touch(steps_of(code), i, word, kind) for i, _, words, _ in found if word in words}
    numbers = counts and begin < 0 and any(touch is None and _in_place(steps_of(code), i) == "+=" for i, touch in here.items())
    for i, offset, words, inner in found:
        if not begin < offset < end:
            continue
        touch = here.get(i, -1)
        if touch is not None and touch >= 0 and not (touch and numbers):
            yield offset, bool(touch)
        followed = []
        for called, scope in ((inner, names),) if inner else _called(words, names, _run_at(steps_of(code), i, names, methods)):
            if called not in seen:
                seen.add(called)
                followed.append([reads for _, reads in _touches(called, scope, methods, word, kind, counts, seen)])
        # Of several methods of a name the right one is not known: one that assigns first may be it.
        for reads in sorted(followed, key=lambda reads: bool(reads) and reads[0]):
            yield from ((offset, each) for each in reads)


def _touch(steps: list[dis.Instruction], i: int, word: str, kind: int) -> int | None:
    """1 where an instruction reads, 0 where it assigns, -1 where it does neither, None for `+=`."""
    each, before = steps[i], steps[i - 1].opname if i else ""
    loads, stores = moves(each)
    if kind == NAME:
        if word in loads:
            return None if augmented(steps, i, word) else 1
        return (-1 if steps[i - 1].argrepr.endswith("=") and before == "BINARY_OP" else 0) if word in stores else -1
    attribute = each.opname in ("LOAD_ATTR", "LOAD_METHOD") and each.argval == word
    if kind == ATTRIBUTE:
        if each.opname == "STORE_ATTR" and each.argval == word:
            return -1 if before == "SWAP" else 0
        return (None if before == "COPY" else 1) if attribute else -1
    if word not in loads and not attribute:
        return -1
    if i + 1 < len(steps) and steps[i + 1].opname in ("LOAD_ATTR", "LOAD_METHOD") and steps[i + 1].argval in _CHANGES:
        return -1
    return _use(steps, i, len(loads) - loads.index(word) if word in loads else 1)


def _use(steps: list[dis.Instruction], i: int, depth: int) -> int:
    """What is done with an item of the container that an instruction loads, as `_touch` says it. `depth` are the container and what is
    loaded after it."""
    for each in steps[i + 1:i + 16]:
        word = each.opname
        if word.startswith("LOAD_"):
            depth += 0 if word in ("LOAD_ATTR", "LOAD_METHOD") else len(moves(each)[0]) or 1
        elif word in ("BINARY_SUBSCR", "BINARY_OP") and depth > 1:
            depth -= 1
        else:
            return {"STORE_SUBSCR": 0, "COPY": -1}.get(word, 1) if depth == 2 else 1
    return 1


def _in_place(steps: list[dis.Instruction], i: int) -> str:
    """The operator of the next `+=` or its like."""
    return next((each.argrepr for each in steps[i + 1:i + 16] if each.opname == "BINARY_OP" and each.argrepr.endswith("=")), "")


@lru_cache(maxsize=512)
def _named(code: CodeType) -> tuple[tuple[int, int, tuple[str, ...], CodeType | None], ...]:
    """(number, offset, names, function) of each instruction with the name of a variable or an attribute, or that makes a function."""
    found = []
    for i, each in enumerate(steps_of(code)):
        attribute = (each.argval,) if each.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR") else ()
        inner = each.argval if isinstance(each.argval, CodeType) else None
        words = (*attribute, *moves(each)[0], *moves(each)[1])
        if words or inner:
            found.append((i, each.offset, words, inner))
    return tuple(found)


def _run_at(steps: list[dis.Instruction], i: int, names: Mapping[str, Any],
            methods: Mapping[str, list[FunctionType]]) -> list[FunctionType]:
    """The methods that an instruction may get or run: of `scales.begin` the one of the class of `scales`, where that is known."""
    each = steps[i]
    if each.opname not in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
        return []
    word = f"{each.argval}=" if each.opname == "STORE_ATTR" else str(each.argval)
    before = moves(steps[i - 1])[0] if i else ()
    if before and before[-1] in names:
        for type_ in type(names[before[-1]]).__mro__:
            if each.argval in vars(type_):
                return [function for name, function in _methods(type_) if name == word]
    return methods.get(word, [])


def _called(words: Iterable[str], names: Mapping[str, Any],
            methods: Iterable[FunctionType]) -> Iterator[tuple[CodeType, Mapping[str, Any]]]:
    """The functions that names of variables stand for, and methods, with what their own names stand for."""
    for value in (*methods, *(names[name] for name in words if name in names)):
        while isinstance(value, MethodType | partial):
            value = value.__func__ if isinstance(value, MethodType) else value.func
        run = vars(type(value))
        for each in (value,) if isinstance(value, FunctionType) else [run[name] for name in _RUN & run.keys()]:
            if isinstance(each, FunctionType) and outside(each.__code__.co_filename):
                yield each.__code__, ChainMap(closure(each), each.__globals__)


def closure(function: FunctionType) -> dict[str, Any]:
    """What a function has of the code around it, by name."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:                           # it has no value yet
            continue
    return found


__all__ = ["ATTRIBUTE", "ITEM", "NAME", "Body", "closure", "methods_of", "read_first"]
