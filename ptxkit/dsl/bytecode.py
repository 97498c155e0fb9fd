"""What the caller's code says about its own names: which names a `with` binds, and whether a name is loaded before it is stored again.

The trace sees values and no names. These questions are asked where two names of one value, or a value and its copy, must be told apart.
"""

from __future__ import annotations

import dis
from types import CodeType

LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
"""Instructions after which the next one is not executed."""
_JUMPS = {*dis.hasjrel, *dis.hasjabs}


def local(code: CodeType, name: str) -> bool:
    """Whether `name` is a variable of this function that no other function sees."""
    return name in code.co_varnames and name not in code.co_cellvars


def targets(code: CodeType, at: int) -> set[str]:
    """The names that are bound right after the instruction at an offset: those after `as`, or of an assignment or a `for`."""
    found: set[str] = set()
    for each in dis.get_instructions(code):
        if each.offset <= at or each.opname in ("CACHE", "UNPACK_SEQUENCE", "NOP"):
            continue
        _, stored = _moves(each)
        if not stored:
            break
        found.update(stored)
    return found


def loaded(code: CodeType, name: str, after: int, until: int | None = None) -> int | None:
    """The line where `name` is loaded before it is stored again, on some way from the instruction after an offset; None if it is not.

    With `until` the ways end after that offset. `name` is `local`.
    """
    steps = [each for each in dis.get_instructions(code) if each.opname != "CACHE"]
    place = {each.offset: i for i, each in enumerate(steps)}
    lines = [(first, last, line) for first, last, line in code.co_lines()]
    waiting = [i for i, each in enumerate(steps) if each.offset > after][:1]
    seen: set[int] = set()
    while waiting:
        i = waiting.pop()
        if i in seen or i >= len(steps) or steps[i].offset <= after or (until is not None and steps[i].offset > until):
            continue
        seen.add(i)
        each = steps[i]
        loads, stores = _moves(each)
        if name in loads:
            return next((line for first, last, line in lines if first <= each.offset < last and line), code.co_firstlineno)
        if name in stores:
            continue
        if each.opcode in _JUMPS:
            waiting.append(place[each.argval])
        if each.opname not in LEAVES:
            waiting.append(i + 1)
    return None


def _moves(instruction: dis.Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(names loaded, names stored) of an instruction. One instruction may do two of these, the first name first."""
    word, value = instruction.opname, instruction.argval
    names = tuple(value) if isinstance(value, tuple) else (str(value),)
    if word == "STORE_FAST_LOAD_FAST":
        return names[1:], names[:1]
    if word.startswith("LOAD_FAST") and word != "LOAD_FAST_AND_CLEAR":
        return names, ()
    if word.startswith("STORE_") and not word.startswith(("STORE_SUBSCR", "STORE_ATTR", "STORE_SLICE")):
        return (), names
    return (), names if word == "DELETE_FAST" else ()


__all__ = ["loaded", "local", "targets"]
