"""From CUDA cores to the fastest kernel, one idea per step: `python -m ptxkit.gemm ladder`. docs/ladder.md explains the steps."""

from __future__ import annotations
