"""Attention from a loop on the CUDA cores to the final kernel, one idea per step: `python -m ptxkit.attention ladder`. docs/attention.md
explains the steps."""

from __future__ import annotations
