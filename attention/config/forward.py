"""The configuration of the forward kernel: its compile-time parameters, checked when they are written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ptxkit.gemm.collective.atoms import ROWS, WARPGROUP
from ptxkit.gemm.collective.mainloop import REGISTERS
from ptxkit.gemm.config.parts import ConfigError
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar, bf16, f16

HEADS = (64, 128, 256)
"""Head dims that the kernel takes."""
SPAN_BYTES = 128            # of a staging buffer's row
BARRIER_BYTES = 16          # a full and an empty mbarrier
SPARE_REGISTERS = 24        # of a thread, besides accumulators and operands


@dataclass(frozen=True, slots=True)
class ForwardConfig:
    """A CTA has BM queries, 64 for each mma warpgroup, and goes over the keys BN at a time. Blocks of K and V share a ring of `stages`.

    `overlap`: a warpgroup issues the scores of the next keys before the product of these keys' weights and values, and computes the softmax
    while that product runs. `pingpong`: warpgroups issue their products in turns, so that one computes a softmax while another multiplies.
    `buffers` are the staging buffers of a warpgroup's result, 64 rows by 128 bytes each. `packed`: sequences of any lengths lie one after
    another. `lse`: the log-sum-exp of each row is stored too. `slack`: outputs are rescaled seldom (`LazySoftmax`).
    """

    head: int = 128
    BM: int = 128
    BN: int = 128
    stages: int = 4
    type: type[Scalar] = bf16
    causal: bool = False
    packed: bool = False
    lse: bool = False
    overlap: bool = True
    pingpong: bool = True
    buffers: int = 2
    slack: bool = False

    def __post_init__(self) -> None:
        problem = self.problem()
        if problem is not None:
            raise ConfigError(f"attention of head dim {self.head} with tiles of {self.BM} x {self.BN}: {problem}")

    def problem(self) -> str | None:
        """The reason if there is no such kernel, else None."""
        if self.head not in HEADS:
            return f"a head has {', '.join(map(str, HEADS[:-1]))} or {HEADS[-1]} elements"
        if self.type not in (bf16, f16):
            return f"operands are bf16 or f16, not {self.type.__name__}"
        if self.BM not in (2 * ROWS, 3 * ROWS):
            return "two or three warpgroups have 64 queries each, so BM is 128 or 192"
        if self.BN % 16 or not 16 <= self.BN <= 256:
            return "the keys of a stage are the depth of the second product, so BN is a multiple of 16 up to 256"
        if self.stages < 2 or self.buffers < 1:
            return "the ring has a block of keys and one of values at least, and a warpgroup at least one staging buffer"
        if self.smem_bytes > SHARED_LIMIT:
            return (f"they take {self.smem_bytes:,} bytes of shared memory, a CTA has {SHARED_LIMIT:,}: take fewer keys, stages or staging "
                    "buffers")
        if self.registers > REGISTERS[self.warpgroups][1]:
            return (f"they take {self.registers} registers of a thread, which has {REGISTERS[self.warpgroups][1]} with {self.warpgroups} "
                    "warpgroups: take fewer keys")
        return None

    @property
    def warpgroups(self) -> int:
        """The number of mma warpgroups."""
        return self.BM // ROWS

    @property
    def threads(self) -> int:
        return (1 + self.warpgroups) * WARPGROUP

    @property
    def registers(self) -> int:
        """A thread's scores, weights and output, and some for the rest."""
        return self.BN // 2 + self.BN // 4 + self.head // 2 + SPARE_REGISTERS

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a CTA."""
        row = self.head * self.type.bits // 8
        staging = self.warpgroups * self.buffers * ROWS * SPAN_BYTES
        return (self.BM + self.stages * self.BN) * row + staging + (self.stages + 1) * BARRIER_BYTES

    @property
    def together(self) -> bool:
        """Whether a warpgroup's result is staged as a whole, between two barriers: when its buffers hold all of it, or there is one."""
        return self.buffers == 1 or self.buffers * SPAN_BYTES == self.head * self.type.bits // 8

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "together": self.together}

    def __str__(self) -> str:
        """One line: head, tile, ring, schedule."""
        words = [f"{self.type.__name__} head {self.head}", f"{self.BM}x{self.BN}", f"{self.stages} stages"]
        words += [word for word, has in (("causal", self.causal), ("packed", self.packed), ("overlap", self.overlap),
                                         ("pingpong", self.pingpong)) if has]
        return ", ".join(words)


__all__ = ["HEADS", "ForwardConfig"]
