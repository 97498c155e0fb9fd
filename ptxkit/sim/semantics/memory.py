"""ld, st, prefetches and addresses of other CTAs."""

from __future__ import annotations

from typing import Any

from ...grammar.operands import width
from ..memory import load, store
from ..operand import Address, SymbolValue, Vector
from ..program import Op
from ..spaces import GLOBAL, OFFSET_MASK, RANK_BITS, SHARED, WINDOW_BITS, WINDOWS
from ..values import array_of, truth
from .registry import Run, action, pure

_STRONG = {"relaxed", "acquire", "release", "volatile", "mmio"}


@action("ld", "ldu")
def ld(op: Op) -> Run:
    space, size = op.space("a"), width(op.bindings["type"]) // 8
    d = op.operand("d")
    count = len(d.elements) if isinstance(d, Vector) else 1
    strong = not _STRONG.isdisjoint(op.tokens)

    def run(f: Any, mask: int, address: Any, policy: Any = None) -> Any:
        return load(f, mask, op, space, address, size, count, strong)

    def parameter(f: Any, mask: int, address: Any, policy: Any = None) -> Any:
        """The parameters of a launch do not change: all threads read the same."""
        machine = f.machine
        if f.stack is not None:
            return run(f, mask, address)
        known = machine.parameters_read.get(op.index)
        if known is None:
            known = machine.parameters_read[op.index] = run(f, mask, address)
        else:
            machine.parameters.traffic[0] += size * count * mask.bit_count()
        return known

    a = op.operand("a")
    fixed = isinstance(a, Address) and isinstance(a.base, SymbolValue) and a.base.symbol.region == "param"
    return parameter if fixed else run


@action("st")
def st(op: Op) -> Run:
    space, size = op.space("a"), width(op.bindings["type"]) // 8
    vector = isinstance(op.operand("b"), Vector)
    strong = not _STRONG.isdisjoint(op.tokens)

    def run(f: Any, mask: int, address: Any, value: Any, policy: Any = None) -> None:
        store(f, mask, op, space, address, value if vector else (value,), size, strong)

    return run


@action("prefetch", "prefetchu", "applypriority")
def prefetch(op: Op) -> Run:
    return lambda f, mask, *operands: None


@pure("mapa")
def mapa(op: Op) -> Run:
    """The same offset in another CTA's shared memory."""
    window = 0 if op.has("shared::cluster") else SHARED
    bits = width(op.bindings["type"])

    def run(address: Any, rank: Any) -> Any:
        if isinstance(address, int) and isinstance(rank, int):
            return address & OFFSET_MASK | rank << RANK_BITS | window
        offset = array_of(address, bits) & OFFSET_MASK
        return offset | array_of(rank, 32).astype(offset.dtype) << RANK_BITS | window

    return run


@pure("getctarank")
def getctarank(op: Op) -> Run:
    return lambda address: (address >> RANK_BITS & 0xFF) if isinstance(address, int) else (address >> RANK_BITS & 0xFF).astype("uint32")


@pure("isspacep")
def isspacep(op: Op) -> Run:
    space = op.bindings["space"]
    window = (GLOBAL if space == "global" else WINDOWS[space]) >> WINDOW_BITS

    def run(address: Any) -> Any:
        if isinstance(address, int):
            return address >> WINDOW_BITS == window
        return truth(address.astype("uint64") >> WINDOW_BITS == window)

    return run
