"""Attention from a loop on the CUDA cores to the final kernel, one idea per step."""

from __future__ import annotations
