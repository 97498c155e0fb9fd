"""The steps in their order."""

from __future__ import annotations

from . import (
    step00_naive,
    step01_register_tiles,
    step02_pipelined,
    step03_wgmma,
    step04_larger_tile,
    step05_specialised,
    step06_two_consumers,
    step07_persistent,
    step08_one_arrival,
    step09_multicast,
    step10_store_order,
    step11_staged_store,
    step12_hilbert,
)
from .rung import Rung

RUNGS: tuple[Rung, ...] = tuple(module.RUNG for module in (
    step00_naive, step01_register_tiles, step02_pipelined, step03_wgmma, step04_larger_tile, step05_specialised, step06_two_consumers,
    step07_persistent, step08_one_arrival, step09_multicast, step10_store_order, step11_staged_store, step12_hilbert))
BY_NAME = {rung.name: rung for rung in RUNGS}
OURS = "ours"
"""The last rung: what `gemm.hgemm` picks."""
OURS_IDEA = "`gemm.hgemm` with the configuration that it chooses"
NAMES = (*BY_NAME, OURS)
