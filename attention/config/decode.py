"""The configuration of the decode kernels: their compile-time parameters, checked when they are written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ptxkit.gemm.config.parts import ConfigError
from ptxkit.types import Scalar, bf16, f16

HEADS = (64, 128, 256)
"""Head dims that the kernel takes."""
ROWS = 16                   # heads of queries that a CTA works on: the rows of mma.m16n8k16
BLOCK = 16                  # keys that a warp works on at a time: the depth of the second product
WARPS = 4                   # of a CTA
SIDE = 128                  # elements of a head that a warp has at most: its registers hold no more
RESIDENT = 2                # CTAs of an SM: a thread may have 255 registers


def sides_of(head: int) -> int:
    """The warps that share a block, each with a part of the head."""
    return max(1, head // SIDE)


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Pages of `page` keys. `split`: several CTAs share a sequence, and a second kernel combines what they found. `lse`: the log-sum-exp of
    each head is stored too."""

    head: int = 128
    page: int = 16
    type: type[Scalar] = bf16
    split: bool = False
    lse: bool = False

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise ConfigError(f"decode of head dim {self.head}: a head has {', '.join(map(str, HEADS[:-1]))} or {HEADS[-1]} elements")
        if self.type not in (bf16, f16):
            raise ConfigError(f"decode of {self.type.__name__}: operands are bf16 or f16")
        if self.page < BLOCK or self.page % BLOCK:
            raise ConfigError(f"decode with pages of {self.page} keys: a page has a multiple of {BLOCK}")

    @property
    def parameters(self) -> dict[str, Any]:
        """The compile-time parameters of `decode`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def combining(self) -> dict[str, Any]:
        """The compile-time parameters of `combine`."""
        return {"head": self.head, "type": self.type, "lse": self.lse}


__all__ = ["BLOCK", "HEADS", "RESIDENT", "ROWS", "WARPS", "DecodeConfig", "sides_of"]
