"""Sums that CTAs share through a workspace: what a thread has registers for, on the CPU device, checked, and as ptxas assembles it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ptxkit.gemm.collective.split_k import Room
from ptxkit.gemm.config import budget
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, SplitK, Tile
from ptxkit.gemm.heuristic.space import structures
from ptxkit.gemm.kernels.dense_split_k import gemm_split_k
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import f16

from .test_products import run_config

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
NT, TN = Operands(), Operands(a_major="mn", b_major="mn")


def split(BM: int, BN: int, splits: int, operands: Operands = NT, **more: Any) -> DenseConfig:
    return DenseConfig(operands, Tile(BM, BN), scheduler=SplitK(splits, cluster=more.pop("cluster", ClusterShape())), **more)


def room(config: DenseConfig, clearable: bool = True) -> Room:
    """What a thread of a configuration has registers for."""
    blocks, registers = budget.m64_blocks(config.tile, config.schedule), budget.mma_registers(config.schedule)
    return Room.of(blocks, config.tile.BN, config.splits, registers, clearable)


def test_a_thread_has_loads_under_way() -> None:
    """A thread waits for the L2 once for several blocks of sums, in each structure there is."""
    ways = {(one.tile, one.scheduler.splits) for one in structures() if isinstance(one.scheduler, SplitK)
            and one.scheduler.reduce == "workspace" and one.scheduler.splits <= 8}
    assert len(ways) > 100
    assert {(tile, splits) for tile, splits in ways if room(split(tile.BM, tile.BN, splits)).at_once < 2} == set()


def test_accumulators_make_room() -> None:
    """They are zeroed where a thread could not hold them, its own share and what it loads."""
    assert room(split(128, 192, 2)) == Room(keeps=True, at_once=8, clears=False)
    assert room(split(256, 128, 2)) == Room(keeps=True, at_once=16, clears=True)
    assert room(split(256, 192, 2)) == Room(keeps=False, at_once=13, clears=True)
    assert room(split(256, 192, 2), clearable=False) == Room(keeps=False, at_once=1, clears=False)
    assert room(split(128, 192, 2), clearable=False) == room(split(128, 192, 2))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("config", [
    split(256, 144, 3), split(256, 192, 2), split(192, 176, 2), split(256, 128, 2, swap_ab=True), split(256, 160, 2, TN),
    split(192, 144, 4, cluster=ClusterShape(1, 2)), split(256, 160, 16), split(256, 192, 2, Operands(f16, f16, f16, f16))], ids=str)
def test_sums_of_large_tiles(config: DenseConfig) -> None:
    """Rows and columns past the end of D, and CTAs with one work tile after another."""
    assert room(config).clears or config.splits == 16
    tile, rows = config.tile, config.tile.BN if config.swap_ab else config.tile.BM
    columns = tile.BM if config.swap_ab else tile.BN
    accumulate = {"accumulate": "f16"} if config.operands.accumulator is f16 else {}
    run_config(config, rows + 8, columns + 16, tile.BK * max(4, config.splits) - 16, sms=2 * config.splits, **accumulate)


@pytest.mark.ptxas
def test_no_register_is_spilled() -> None:
    found = [split(BM, BN, splits, operands) for BM, BN in ((256, 128), (256, 144), (256, 192), (192, 176)) for splits in (2, 3)
             for operands in (NT, TN)]
    found += [replace(config, swap_ab=True, store=None) for config in found if config.operands == NT]
    for config in found:
        used = assemble(gemm_split_k.trace(**config.parameters).ptx()).resources["gemm_split_k"]
        assert (used.spill_stores, used.spill_loads) == (0, 0), str(config)
