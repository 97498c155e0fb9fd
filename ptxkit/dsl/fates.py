"""What becomes of the value of a call or an operator: whether nothing takes it.

A statement of its own drops its value. So does one that only puts it in a tuple, a list or a comprehension, and a lambda whose value its
caller drops.
"""

from __future__ import annotations

import dis
import sys
from bisect import bisect_right
from types import CodeType, FrameType
from typing import Any

from ..errors import TraceError
from .bytecode import steps_of
from .source import outside

_DROP = dis.opmap["POP_TOP"]
_OPERATORS = {code for word, code in dis.opmap.items() if word in ("BINARY_OP", "COMPARE_OP") or word.startswith("UNARY_")}
_STORES = {code for word, code in dis.opmap.items() if word.startswith("STORE_")}
_DROPPED, _RETURNED, _KEPT = range(3)
_ONE = ("LOAD_ATTR", "LOAD_METHOD", "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_NOT")
_TWO = ("BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR", "CONTAINS_OP", "IS_OP")
_NONE = ("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_SMALL_INT", "PUSH_NULL", "LOAD_CLOSURE",
         "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
_NOTHING = ("NOP", "RESUME", "EXTENDED_ARG", "PRECALL", "KW_NAMES", "NOT_TAKEN")
_fates: dict[tuple[int, int], tuple[CodeType, int]] = {}


def drops(frame: FrameType) -> bool:
    """Whether the call that the frame is at is a statement of its own: nothing takes its value."""
    text, i = frame.f_code.co_code, frame.f_lasti + 2
    while not text[i]:
        i += 2                                       # caches
    return text[i] == _DROP


def drops_operator(frame: FrameType) -> bool:
    """Whether the frame is at an operator that is a statement of its own. At a call, such as of `map`, C code may keep the value."""
    return frame.f_code.co_code[frame.f_lasti] in _OPERATORS and drops(frame)


def loses(frame: FrameType) -> bool:
    """Whether nothing takes the value of the call that the frame is at, nor the list that holds it, nor the lambda that returns it.

    The value of a function with a name is one for its other callers.
    """
    text, i = frame.f_code.co_code, frame.f_lasti + 2
    while not text[i]:
        i += 2                                       # caches
    if text[i] in _STORES:
        return False                                 # the usual way, without a look at the rest
    at: FrameType | None = frame
    while at is not None and outside(at.f_code.co_filename):
        fate = _fate(at.f_code, at.f_lasti)
        if fate != _RETURNED or not at.f_code.co_name.startswith("<"):
            return fate == _DROPPED
        at = at.f_back
    return False


def loses_operator(frame: FrameType) -> bool:
    """`loses` of the operator that the frame is at."""
    return frame.f_code.co_code[frame.f_lasti] in _OPERATORS and loses(frame)


def check_member(reg: Any) -> None:
    """Raise where Python's `in` looks a register up in a set or dict: it compares no values, and the answer is no."""
    frame = sys._getframe(2)
    if dis.opname[frame.f_code.co_code[frame.f_lasti]] == "CONTAINS_OP" and outside(frame.f_code.co_filename):
        raise TraceError(f"Python's `in` cannot look at the value of {reg!r} while the kernel is being traced: compare, as "
                         "`(x == 1) | (x == 2)`; a register itself is found by its name, `x.name in names`")


def _fate(code: CodeType, at: int) -> int:
    found = _fates.get((id(code), at))
    if found is None or found[0] is not code:
        found = _fates[id(code), at] = code, _follow(code, at)
    return found[1]


def _follow(code: CodeType, at: int) -> int:
    """Follow the value on the stack from the instruction that makes it. `above` counts what lies on it."""
    steps, above = steps_of(code), 0
    place = {each.offset: i for i, each in enumerate(steps)}
    i = bisect_right(steps, at, key=lambda each: each.offset)          # a frame may stand at a cache of its call
    while i < len(steps):
        each = steps[i]
        word, count = each.opname, each.arg or 0
        i += 1
        if word in _NOTHING:
            continue
        if word == "JUMP_FORWARD":
            i = place[each.argval]
            continue
        if word in ("LIST_APPEND", "SET_ADD"):
            return _KEPT if above else _comprehended(steps, i)
        if word == "POP_TOP" or word.startswith("RETURN_VALUE"):
            if not above:
                return _DROPPED if word == "POP_TOP" else _RETURNED
            if word != "POP_TOP":
                return _KEPT
            pops, pushes = 1, 0
        elif word in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP"):
            pops, pushes = count * 2 if word == "BUILD_MAP" else count + (word == "BUILD_CONST_KEY_MAP"), 1
            if pops > above:
                above = 0                            # it is in there
                continue
        elif word in ("CALL", "CALL_KW"):
            pops, pushes = count + 2 + (word == "CALL_KW"), 1
        elif word in _ONE or word in _TWO:
            pops = 1 if word in _ONE else 2
            pushes = dis.stack_effect(each.opcode, each.arg) + pops
        elif word in _NONE:
            pops, pushes = 0, dis.stack_effect(each.opcode, each.arg)
        else:
            return _KEPT
        if pops > above:
            return _KEPT
        above += pushes - pops
    return _KEPT


def _comprehended(steps: list[dis.Instruction], i: int) -> int:
    """The fate of the list or set of a comprehension, from the end of its body on."""
    last = ""
    for each in steps[i:]:
        word = each.opname
        if word == "POP_TOP" and last != "END_FOR":
            return _DROPPED
        if word == "RETURN_VALUE":
            return _RETURNED
        if word not in ("JUMP_BACKWARD", "END_FOR", "POP_ITER", "SWAP", "STORE_FAST", "POP_TOP", "NOP"):
            return _KEPT
        last = word
    return _KEPT


__all__ = ["check_member", "drops", "drops_operator", "loses", "loses_operator"]
