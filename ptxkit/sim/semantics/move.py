"""mov, selp, cvta, isspacep."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...grammar.operands import width
from ..operand import SymbolValue, Vector
from ..program import Op
from ..spaces import GLOBAL, WINDOWS
from ..values import DTYPES, Array, array_of, spread, truth, uniform
from .registry import Inline, Run, action, pure


@pure("mov")
def mov(op: Op) -> Run | Inline:
    d, a = op.operands
    if op.tokens[1] in ("v2", "v4"):
        return lambda a: a
    if isinstance(a, Vector):
        return _pack(len(a.elements), width(op.tokens[1]))
    if isinstance(d, Vector):
        return _unpack(len(d.elements), width(op.tokens[1]))
    return lambda a: a


def _pack(count: int, bits: int) -> Run:
    """A register from its parts, the first one lowest."""
    part = bits // count
    mask = (1 << part) - 1

    def run(parts: Any) -> Any:
        if all(type(p) is int for p in parts):
            return sum((p & mask) << i * part for i, p in enumerate(parts))
        if bits == 128:
            words = np.stack([spread(p, part) for p in parts], axis=1)
            return words.view(np.uint64)
        total = spread(parts[0], part).astype(DTYPES[bits])
        for i, p in enumerate(parts[1:], 1):
            total = total | spread(p, part).astype(DTYPES[bits]) << DTYPES[bits](i * part)
        return total

    return run


def _unpack(count: int, bits: int) -> Run:
    part = bits // count
    mask = (1 << part) - 1

    def run(whole: Any) -> Any:
        if type(whole) is int:
            return [whole >> i * part & mask for i in range(count)]
        words: Array = np.ascontiguousarray(whole).view(DTYPES[part]).reshape(32, count)
        return [words[:, i].copy() for i in range(count)]

    return run


@pure("selp")
def selp(op: Op) -> Inline:
    bits = width(op.bindings["type"])

    def run(a: Any, b: Any, c: Any) -> Any:
        if type(c) is bool:
            return a if c else b
        return uniform(np.where(c, spread(a, bits), spread(b, bits)))

    return Inline(run, "{0} if {2} else {1}")


@action("cvta")
def cvta(op: Op) -> Run:
    """An address of a space as a generic one, and back (`cvta.to`)."""
    space = op.bindings["space"]
    source = op.operands[1]
    base = WINDOWS[space]
    to = op.tokens[1] == "to"
    framed = space == "local" or (isinstance(source, SymbolValue) and source.symbol.region == "frame")
    if framed:
        base = WINDOWS["local"]

    def run(f: Any, mask: int, address: Any) -> Any:
        value = address.astype(np.uint64) if type(address) is not int else address
        return value & (1 << 40) - 1 if to and base else value if to else value + base

    return run


@action("isspacep")
def isspacep(op: Op) -> Run:
    """Whether a generic address lies in the space; of `shared::cta`, in the executing CTA's part."""
    space = op.bindings["space"]
    low = GLOBAL if space == "global" else WINDOWS[space]

    def run(f: Any, mask: int, address: Any) -> Any:
        value = array_of(address, width("u64")).astype(np.uint64)
        start, size = (low, 1 << 40) if space != "shared::cta" and space != "shared" else (low + f.window, 1 << 24)
        found = (value >= np.uint64(start)) & (value < np.uint64(start + size))
        return bool(found[0]) if found.size == 1 else truth(found)

    return run
