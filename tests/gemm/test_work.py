"""Schedulers whose work tiles depend on who comes when: dynamic and stream-K. On the CPU device, in several orders."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import BlockScaled, ClusterShape, Cooperative, Dynamic, Pingpong, StreamK, Tile
from ptxkit.gemm.tools.samples import pairwise, small
from ptxkit.sim import SCHEDULES
from ptxkit.types import bf16, e4m3, f16, f32

from .test_products import run, run_config

pytestmark = pytest.mark.pure


FP8 = Operands(e4m3, e4m3, bf16)
ORDERS = ("adversarial", "delay-cta", "random")


@pytest.mark.parametrize(("config", "orders"), [
    (DenseConfig(Operands(batched=True), Tile(64, 64), 2, scheduler=Dynamic()), ORDERS[:1]),
    (DenseConfig(FP8, Tile(64, 32), 3, Pingpong(), Dynamic()), ORDERS),
    (DenseConfig(FP8, Tile(64, 64), 2, Cooperative(sums=BlockScaled()), Dynamic()), ORDERS[:1])], ids=str)
def test_each_tile_is_drawn_once(config: DenseConfig, orders: tuple[str, ...]) -> None:
    """Warpgroups that share tiles and that take turns, batches, scales that another warp copies; more and fewer tiles than CTAs."""
    for schedule in orders:
        run_config(config, 130, 80, 2 * config.tile.BK - 16, sms=3, schedule=schedule)
    run_config(config, 60, 80, config.tile.BK, sms=3)


@pytest.mark.thinned(9)
@pytest.mark.parametrize(("config", "orders"), [
    (DenseConfig(Operands(out=f32), Tile(64, 32), 2, scheduler=StreamK()), ORDERS),
    (DenseConfig(Operands(f16, f16, f16, batched=True), Tile(128, 24), 3, scheduler=StreamK()), ORDERS[:1]),
    (DenseConfig(Operands(), Tile(64, 32), 3, Pingpong(), StreamK()), ORDERS[:2]),
    (DenseConfig(Operands(f16, f16, f32), Tile(64, 32), 2, scheduler=StreamK(cluster=ClusterShape(2, 1))), ORDERS[:1]),
    (DenseConfig(FP8, Tile(64, 32), 2, Cooperative(sums=BlockScaled()), StreamK()), ORDERS[:1])], ids=str)
def test_a_tile_of_several_runs_is_the_same_in_every_order(config: DenseConfig, orders: tuple[str, ...]) -> None:
    """The end of a tile, whole tiles and the beginning of one, in both CTAs of a cluster and in both warpgroups that take turns."""
    BM = config.tile.BM
    m = (BM + 6 if isinstance(config.schedule, Pingpong) else BM - 6) * config.multicast.m
    k = 12 * config.tile.BK - 16
    found = [run_config(config, m, 40, k, sms=3 * config.cluster, schedule=schedule).tobytes() for schedule in orders]
    assert len(set(found)) == 1


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_shared_work_in_every_order(schedule: str) -> None:
    for config in pairwise():
        if isinstance(config.scheduler, Dynamic | StreamK):
            m, n, k = small(config)
            run_config(config, m if config.loads.a_rows else m + 8, n, k, sms=3 * config.cluster, schedule=schedule)


def test_a_tile_may_lie_in_many_runs() -> None:
    """One tile in seven runs; more CTAs than are worth it; a depth too short to share out; no rest."""
    config = DenseConfig(Operands(), Tile(64, 32), 4, scheduler=StreamK())
    run_config(config, 50, 32, 64 * 41, sms=7)
    run_config(config, 50, 32, 64 * 9, sms=7)
    run_config(config, 200, 32, 64 * 3, sms=3)
    run_config(config, 128, 64, 64 * 6, sms=2)
    run_config(config, 300, 72, 64 * 5, sms=4)


def test_a_fusion_is_applied_once() -> None:
    rng = np.random.default_rng(7)
    fusion = Fusion(alpha=True, bias=f32, activation="relu", residual=f32)
    config = DenseConfig(Operands(out=f32), Tile(64, 32), 2, scheduler=StreamK(), fusion=fusion)
    bias, residual = (rng.standard_normal(shape).astype(np.float32) for shape in ((72,), (130, 72)))
    run(130, 72, 64 * 7, out="f32", config=config, sms=4, alpha=-2.0, bias=bias, residual=residual, activation="relu",
        then=lambda x: np.maximum(x + bias, 0) + residual, added=1e-4, verdicts=("clean", "incomplete"))
