"""cvt."""

from __future__ import annotations

from typing import Any

import numpy as np

from grammar.operands import width

from ..errors import UnsupportedError
from ..program import Op
from ..values import array_of, resize, value_of
from .registry import Run, pure


@pure("cvt")
def cvt(op: Op) -> Run:
    tokens = op.tokens
    to, source = tokens[-2], tokens[-1]
    if to[0] in "us" and source[0] in "us" and to[1:].isdigit() and len(tokens) == 3:
        return lambda a: resize(a, width(source), width(to), source[0] == "s")
    if tokens == ["cvt", "rn", "bf16x2", "f32"]:
        return _pack_bf16
    if tokens == ["cvt", "rn", "f16x2", "f32"]:
        return _pack_f16
    raise UnsupportedError(f"the simulator does not execute `{op.opcode}`")


def _bf16(bits: Any) -> Any:
    found = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    wrong = (bits & np.uint32(0x7FFFFFFF)) > 0x7F800000
    return np.where(wrong, np.uint32(0x7FFF), found) if wrong.any() else found


def _pack_bf16(a: Any, b: Any) -> Any:
    return value_of(_bf16(array_of(a, 32)) << np.uint32(16) | _bf16(array_of(b, 32)))


def _pack_f16(a: Any, b: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        x, y = (array_of(v, 32).view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32) for v in (a, b))
    return value_of(x << np.uint32(16) | y)
