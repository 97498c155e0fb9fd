"""Configurations of the HGEMM kernel: what is valid, how much shared memory it takes, and which one a shape gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ptxkit.errors import PtxkitError
from ptxkit.layout import Major
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar

from .hgemm import BK, BM, CONSUMERS, STORE_BYTES

BARRIER_BYTES = 16          # a full and an empty mbarrier a stage
STAGING_BYTES = CONSUMERS * 2 * 64 * STORE_BYTES
ALIGN = 1024
MAX_STAGES = 8


class ConfigError(PtxkitError, ValueError):
    """A configuration that the kernel cannot have."""


@dataclass(frozen=True, slots=True)
class Config:
    """One specialisation of the kernel. A tile is 128 x BN x 64; GROUP counts clusters of tiles along M."""

    dtype: type[Scalar]
    out: type[Scalar]
    a_major: Major = "k"
    b_major: Major = "k"
    BN: int = 256
    STAGES: int = 0
    CLUSTER: int = 2
    GROUP: int = 8

    def __post_init__(self) -> None:
        if not self.STAGES:
            object.__setattr__(self, "STAGES", stages_that_fit(self.BN))
        problem = self.problem()
        if problem:
            raise ConfigError(problem)

    def problem(self) -> str | None:
        """A sentence when the kernel cannot have this configuration."""
        if self.dtype.__name__ not in ("f16", "bf16"):
            return f"operands are f16 or bf16, not {self.dtype.__name__}"
        if self.out.__name__ not in ("f16", "bf16", "f32"):
            return f"the result is f16, bf16 or f32, not {self.out.__name__}"
        if self.BN not in (64, 128, 256):
            return f"BN is 64, 128 or 256, not {self.BN}"
        if self.CLUSTER not in (1, 2):
            return f"a cluster has 1 or 2 CTAs, not {self.CLUSTER}"
        if self.b_major == "mn" and self.BN // 64 < self.CLUSTER:
            return f"{self.CLUSTER} CTAs cannot share the {self.BN // 64} span of an N-major B tile of {self.BN} columns"
        if not 2 <= self.STAGES <= MAX_STAGES:
            return f"a ring has 2 to {MAX_STAGES} stages, not {self.STAGES}"
        if self.smem_bytes > SHARED_LIMIT:
            return (f"{self.STAGES} stages of {stage_bytes(self.BN):,} bytes take {self.smem_bytes:,} of {SHARED_LIMIT:,} bytes; "
                    f"{stages_that_fit(self.BN)} fit")
        return None

    @property
    def smem_bytes(self) -> int:
        """Shared memory of one CTA."""
        return self.STAGES * (stage_bytes(self.BN) + BARRIER_BYTES) + STAGING_BYTES

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        return {"TYPE": self.dtype, "OUT": self.out, "A_MAJOR": self.a_major, "B_MAJOR": self.b_major, "BN": self.BN,
                "STAGES": self.STAGES, "CLUSTER": self.CLUSTER, "GROUP": self.GROUP}


def stage_bytes(BN: int) -> int:
    """Bytes of one stage of A and B."""
    return (BM + BN) * BK * 2


def stages_that_fit(BN: int) -> int:
    """The deepest ring that shared memory holds beside the staging buffers."""
    return min(MAX_STAGES, (SHARED_LIMIT - STAGING_BYTES) // (stage_bytes(BN) + BARRIER_BYTES))


# Time of a tile's k step by BN, in quarters of a 256-column one, and what a last tile's epilogue adds, in k steps: fitted to a sweep of
# BN x CLUSTER x GROUP over twelve shapes on an H200 (docs/performance.md). Two narrow tiles take as long as one twice as wide.
_STEP = {256: 4.0, 128: 2.01, 64: 1.08}
_EPILOGUE = 2.0


def heuristic(m: int, n: int, k: int, dtype: type[Scalar], out: type[Scalar], a_major: Major = "k", b_major: Major = "k", *,
              sms: int = 132) -> Config:
    """The configuration for a shape on a device with `sms` SMs: the least time by waves of tiles, their width and the last epilogue."""
    rows = -(-m // BM)

    def waves(BN: int) -> float:
        full = rows * -(-n // BN) / sms
        return math.ceil(full) if full <= 8 else full + 0.5   # over many waves the SMs drift apart and the last one is shared out

    def time(BN: int) -> float:
        return _STEP[BN] * (waves(BN) * max(1, -(-k // BK)) + _EPILOGUE)

    BN = 256
    for narrower in (128, 64):
        if time(narrower) < 0.98 * time(BN):    # a wider tile moves fewer bytes for the same work
            BN = narrower
    pairs = rows >= 2 and BN >= 128 and waves(BN) > 2
    return Config(dtype, out, a_major, b_major, BN, CLUSTER=2 if pairs else 1, GROUP=8 if pairs else 16)
