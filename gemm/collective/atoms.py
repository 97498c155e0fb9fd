"""Layer 1, instruction atoms: one wgmma and blocks of its accumulators, one tensor copy, one prefetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import MBarrier, Reg, TensorMap, Vec, if_
from ptxkit.flow import else_
from ptxkit.ptx import cvt, mov, opcode
from ptxkit.smem import TileView
from ptxkit.types import Scalar, b64, f16, f32, pred, u16

from ..config.parts import MOST_COLUMNS

WARPGROUP = 128
INSTRUCTION_BYTES = 32      # bytes of each row that one wgmma reads: its K
ROWS = 64                   # of A and D in one wgmma
MAX_BOX = 256               # lines of one tensor copy


@dataclass(frozen=True, slots=True)
class Mma:
    """wgmma.mma_async of 64 x n x k, where k is 32 bytes of an operand's row. f32 operands are multiplied as tf32. More than 256 columns
    take two instructions."""

    a: type[Scalar]
    b: type[Scalar]
    n: int
    accumulator: type[Scalar] = f32

    @property
    def k(self) -> int:
        """K of one instruction, in elements."""
        return INSTRUCTION_BYTES * 8 // self.a.bits

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Of each instruction the first column, and the number of columns. The second instruction begins at a whole span of an operand that
        is not contiguous along K."""
        if self.n <= MOST_COLUMNS:
            return ((0, self.n),)
        first = -(-self.n // 2 // ROWS) * ROWS
        return (0, first), (first, self.n - first)

    def opcode(self, columns: int = 0) -> Any:
        """The instruction for so many columns (0: all)."""
        a, b = ("tf32" if t is f32 else t.__name__ for t in (self.a, self.b))
        return opcode(f"wgmma.mma_async.sync.aligned.m64n{columns or self.n}k{self.k}.{self.accumulator.__name__}.{a}.{b}")

    def registers(self, columns: int) -> int:
        """A thread's accumulator registers for 64 rows of so many columns."""
        return columns * self.accumulator.bits // 64

    def block(self, acc: Vec[Any, Any], index: int, m64: int = 0) -> list[Reg[f32]]:
        """A thread's four accumulators in columns 8 index to 8 index + 7, as f32. `m64` is the number of the block of rows.

        They are (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1). Within a warp's 16 rows and these 8 columns, lane l has r = l / 4 and
        c = 2 (l % 4).
        """
        if self.accumulator is not f16:
            return list(acc[4 * index:4 * index + 4])
        found = []
        for packed in acc[2 * index:2 * index + 2]:
            low, high = mov.b16(0), mov.b16(0)
            mov.b32(Vec([low, high]), packed)
            found += [cvt.f32.f16(low), cvt.f32.f16(high)]
        return found


def tensor_copy(view: TileView[Any], tensormap: TensorMap, coordinates: tuple[Any, ...], barrier: MBarrier, *,
                mask: Reg[u16] | int | None = None, policy: Reg[b64] | None = None, hinted: Reg[pred] | None = None) -> None:
    """cp.async.bulk.tensor from global to shared memory, tile mode; with `mask`, multicast to these CTAs of the cluster.

    The copy has the L2 cache hint `policy` where `hinted` holds (None: always). Elsewhere it has no hint. A hint of evict_normal is not
    the same: products whose weights several tiles read take 3 to 10 % longer with it.
    """
    name = f"cp.async.bulk.tensor.{len(coordinates)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    name += "" if mask is None else ".multicast::cluster"
    operands = (view, tensormap, coordinates, barrier, *(() if mask is None else (mask,)))
    plain: Any = opcode(name)
    with_policy: Any = opcode(name + ".L2::cache_hint")
    if policy is None:
        plain(*operands)
    elif hinted is None:
        with_policy(*operands, policy)
    else:
        with if_(hinted):
            with_policy(*operands, policy)
        with else_():
            plain(*operands)


def tensor_prefetch(tensormap: TensorMap, coordinates: tuple[Any, ...]) -> None:
    """cp.async.bulk.prefetch.tensor: bring one box of the tensor map into the L2."""
    prefetch: Any = opcode(f"cp.async.bulk.prefetch.tensor.{len(coordinates)}d.L2.global.tile")
    prefetch(tensormap, coordinates)


__all__ = ["INSTRUCTION_BYTES", "MAX_BOX", "ROWS", "WARPGROUP", "Mma", "tensor_copy", "tensor_prefetch"]
