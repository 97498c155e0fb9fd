"""From CUDA cores to the fastest kernel, one idea a step: `python -m ptxkit.gemm ladder`. docs/ladder.md tells the story."""

from __future__ import annotations
