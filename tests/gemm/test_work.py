"""Ways to share out the work among CTAs that depend on who comes when: tickets and stream-K. On the CPU device, in several orders."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import Config
from ptxkit.gemm.tools.samples import pairwise, small
from ptxkit.sim.policy import SCHEDULES
from ptxkit.types import bf16, e4m3, f16, f32

from .test_products import run, run_config

pytestmark = pytest.mark.pure


ORDERS = ("adversarial", "delay-cta", "random")


@pytest.mark.parametrize(("config", "orders"), [
    (Config(bf16, bf16, BM=64, BN=64, STAGES=2, TICKET=True, BATCHED=True), ORDERS[:1]),
    (Config(e4m3, bf16, BM=64, BN=32, STAGES=3, TICKET=True, PINGPONG=True), ORDERS),
    (Config(e4m3, bf16, BM=64, BN=64, STAGES=2, TICKET=True, PROMOTE=True, BLOCK_SCALES=True), ORDERS[:1])], ids=str)
def test_each_ticket_is_drawn_once(config: Config, orders: tuple[str, ...]) -> None:
    """Warpgroups that share tiles and that take turns, batches, scales that another warp copies; more and fewer tiles than CTAs."""
    for schedule in orders:
        run_config(config, 130, 80, 2 * config.BK - 16, sms=3, schedule=schedule)
    run_config(config, 60, 80, config.BK, sms=3)


@pytest.mark.parametrize(("config", "orders"), [
    (Config(bf16, f32, BM=64, BN=32, STAGES=2, STREAM_K=True), ORDERS),
    (Config(f16, f16, BM=128, BN=24, STAGES=3, STREAM_K=True, BATCHED=True), ORDERS[:1]),
    (Config(bf16, bf16, BM=64, BN=32, STAGES=3, STREAM_K=True, PINGPONG=True), ORDERS[:2]),
    (Config(f16, f32, BM=64, BN=32, STAGES=2, STREAM_K=True, CLUSTER_M=2), ORDERS[:1]),
    (Config(e4m3, bf16, BM=64, BN=32, STAGES=2, STREAM_K=True, PROMOTE=True, BLOCK_SCALES=True), ORDERS[:1])], ids=str)
def test_a_tile_of_several_runs_is_the_same_in_every_order(config: Config, orders: tuple[str, ...]) -> None:
    """The end of a tile, whole tiles and the beginning of one, in both CTAs of a cluster and in both warpgroups that take turns."""
    m = (config.BM + 6 if config.PINGPONG else config.BM - 6) * config.CLUSTER_M
    found = [run_config(config, m, 40, 12 * config.BK - 16, sms=3 * config.cluster, schedule=schedule).tobytes() for schedule in orders]
    assert len(set(found)) == 1


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_shared_work_in_every_order(schedule: str) -> None:
    for config in pairwise():
        if config.TICKET or config.STREAM_K:
            m, n, k = small(config)
            run_config(config, m if config.A_ROWS else m + 8, n, k, sms=3 * config.cluster, schedule=schedule)


def test_a_tile_may_lie_in_many_runs() -> None:
    """One tile in seven runs; more CTAs than are worth it; a depth too short to share out; no rest."""
    config = Config(bf16, bf16, BM=64, BN=32, STAGES=4, STREAM_K=True)
    run_config(config, 50, 32, 64 * 41, sms=7)
    run_config(config, 50, 32, 64 * 9, sms=7)
    run_config(config, 200, 32, 64 * 3, sms=3)
    run_config(config, 128, 64, 64 * 6, sms=2)
    run_config(config, 300, 72, 64 * 5, sms=4)


def test_a_fusion_is_applied_once() -> None:
    rng = np.random.default_rng(7)
    config = Config(bf16, f32, BM=64, BN=32, STAGES=2, STREAM_K=True, FUSION=Fusion(alpha=True, bias=f32, activation="relu", residual=f32))
    bias, residual = (rng.standard_normal(shape).astype(np.float32) for shape in ((72,), (130, 72)))
    run(130, 72, 64 * 7, out="f32", config=config, sms=4, alpha=-2.0, bias=bias, residual=residual, activation="relu",
        then=lambda x: np.maximum(x + bias, 0) + residual, added=1e-4, verdicts=("clean", "incomplete"))
