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
