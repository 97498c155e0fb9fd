"""The steps in their order."""

from __future__ import annotations

from . import (
    step00_loop,
    step01_wgmma,
    step02_ring,
    step03_specialised,
    step04_two_consumers,
    step05_pingpong,
    step06_overlapped,
)
from .rung import Rung

RUNGS: tuple[Rung, ...] = tuple(module.RUNG for module in (
    step00_loop, step01_wgmma, step02_ring, step03_specialised, step04_two_consumers, step05_pingpong, step06_overlapped))
BY_NAME = {rung.name: rung for rung in RUNGS}
OURS = "ours"
"""The last rung: `ptxkit.attention` as it chooses."""
OURS_IDEA = "`ptxkit.attention`: persistent CTAs, outputs staged and stored by TMA, heads in an order for the L2"
NAMES = (*BY_NAME, OURS)
