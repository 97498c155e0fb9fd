"""Tiles whose columns are no whole spans of 64, of a B that is contiguous along N: a stage holds the spans that the tile begins in, as
copies bring them, and the products are those of the tile's columns alone. On the CPU device, checked, against float64."""

from __future__ import annotations

import pytest

from ptxkit.gemm.config.budget import SPAN
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, Loads, Pingpong, SplitK, Static, StreamK, Tile
from ptxkit.gemm.scheduler.stream_k import MIN_STAGES_OF_PART
from ptxkit.types import bf16, f16, f32

from .test_products import run_config

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
NN, TN, TT = Operands(b_major="mn"), Operands(a_major="mn", b_major="mn"), Operands(a_major="mn")
DEEP = 64 * 2 * MIN_STAGES_OF_PART + 8


@pytest.mark.parametrize("BN", [8, 40, 72, 120, 144, 176, 232])
def test_a_stage_holds_whole_spans(BN: int) -> None:
    config = DenseConfig(NN, Tile(64, BN))
    spans = -(-BN // SPAN)
    assert config.stage_bytes == (64 + spans * SPAN) * 64 * 2
    run_config(config, 72, BN * 2 + 8, 136, sms=2)


@pytest.mark.parametrize("config", [
    DenseConfig(TN, Tile(128, 176)), DenseConfig(TN, Tile(128, 112), schedule=Pingpong()), DenseConfig(TN, Tile(192, 80)),
    *(DenseConfig(TN, Tile(64, BN), scheduler=Static(cluster=cluster)) for BN, cluster in (
        (80, ClusterShape(2, 1)), (144, ClusterShape(2, 1)), (144, ClusterShape(4, 1)), (144, ClusterShape(2, 2)),
        (72, ClusterShape(1, 2)))),
    DenseConfig(Operands(f16, f16, f32, b_major="mn"), Tile(64, 80)), DenseConfig(Operands(b_major="mn", batched=True), Tile(64, 72)),
    DenseConfig(TN, Tile(64, 80), loads=Loads(l2_prefetch_stages=2)), DenseConfig(TN, Tile(64, 80), scheduler=StreamK()),
    DenseConfig(TN, Tile(64, 80), scheduler=SplitK(2)), DenseConfig(TN, Tile(64, 80), scheduler=SplitK(2, "cluster")),
    DenseConfig(TN, Tile(64, 80), scheduler=SplitK(2, cluster=ClusterShape(2, 1))),
    DenseConfig(TT, Tile(128, 144), swap_ab=True), DenseConfig(TN, Tile(64, 80), swap_ab=True),
    DenseConfig(TN, Tile(128, 144), schedule=Pingpong(), swap_ab=True), DenseConfig(TN, Tile(192, 144), swap_ab=True),
    DenseConfig(TN, Tile(64, 144), scheduler=Static(cluster=ClusterShape(2, 1)), swap_ab=True),
    DenseConfig(TN, Tile(64, 80), scheduler=SplitK(2), swap_ab=True), DenseConfig(TN, Tile(64, 80), scheduler=StreamK(), swap_ab=True),
    DenseConfig(Operands(bf16, bf16, f32, a_major="mn"), Tile(64, 72), swap_ab=True)], ids=str)
def test_schedules_clusters_and_splits(config: DenseConfig) -> None:
    deep = isinstance(config.scheduler, SplitK | StreamK)
    run_config(config, 136, 200, DEEP if deep else 136, sms=2)
