"""What CTAs prefetch into the L2 is what they load first, and configurations of few rows do so."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from ptxkit.cards import H200
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.grouped import SwapAB
from ptxkit.gemm.config.parts import (
    L2_FETCH,
    ClusterShape,
    ConfigError,
    Dynamic,
    Hilbert,
    Loads,
    Pingpong,
    SplitK,
    Static,
    StreamK,
    Swizzle,
    Tile,
)
from ptxkit.gemm.heuristic.dense import candidates, heuristic
from ptxkit.gemm.heuristic.tuned import tuned
from ptxkit.gemm.launch.dense import Maps
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.gemm.problem.dense import FEW_ROWS, LINE, PREFETCH_STAGES
from ptxkit.gemm.tools.bench.shapes import problem as shape
from ptxkit.gemm.tools.problems import described
from ptxkit.sim.semantics import tensor
from ptxkit.types import bf16, e4m3

from .groups import with_defaults
from .test_products import run_config

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

N_MAJOR = Operands(b_major="mn")


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Coordinates by CTA and map: of prefetches, and of copies to shared memory."""
    asked: Any = defaultdict(list)
    loaded: Any = defaultdict(list)
    box_of = tensor.box_of

    def recorded(f: Any, lane: int, op: Any, address: int, coordinates: Any) -> Any:
        box = box_of(f, lane, op, address, coordinates)
        if "prefetch" in op.opcode or "shared::cluster.global" in op.opcode:
            (asked if "prefetch" in op.opcode else loaded)[f.warp.cta.index, address].append(tuple(box.at))
        return box

    monkeypatch.setattr(tensor, "box_of", recorded)
    return asked, loaded


def first_ones(asked: Any, loaded: Any) -> None:
    """Each CTA asks for what it loads first through the same map, in that order, as far as it has stages."""
    assert asked
    for key, found in asked.items():
        mine = loaded[key]
        assert found[:len(mine)] == mine[:len(found)]


@pytest.mark.thinned(20)
@pytest.mark.parametrize(("config", "shape"), [
    (DenseConfig(tile=Tile(64, 32), loads=Loads(b_evict_first=True, l2_prefetch_stages=4)), (40, 160, 640)),
    (DenseConfig(tile=Tile(64, 48), scheduler=SplitK(8, "cluster"), loads=Loads(8, l2_prefetch_stages=4)), (5, 96, 1024)),
    (DenseConfig(tile=Tile(64, 64), scheduler=SplitK(3), loads=Loads(l2_prefetch_stages=3)), (100, 136, 640)),
    (DenseConfig(tile=Tile(64, 64), scheduler=Static(cluster=ClusterShape(2, 1)), loads=Loads(l2_prefetch_stages=2)), (100, 136, 320)),
    (DenseConfig(Operands(), Tile(128, 64), 0, Pingpong(), Static(cluster=ClusterShape(1, 2)), loads=Loads(l2_prefetch_stages=2)),
     (130, 136, 192)),
    (DenseConfig(N_MAJOR, Tile(64, 128), loads=Loads(l2_prefetch_stages=4)), (40, 264, 320)),
    (DenseConfig(N_MAJOR, Tile(64, 128), scheduler=Static(cluster=ClusterShape(2, 1)), loads=Loads(l2_prefetch_stages=2)),
     (100, 264, 192)),
    (DenseConfig(Operands(batched=True), Tile(64, 64, 128), scheduler=Dynamic(), loads=Loads(l2_prefetch_stages=2)), (40, 136, 384)),
    (DenseConfig(Operands(e4m3, e4m3, bf16), Tile(64, 64), scheduler=Static(Swizzle("along_n", 2, True)),
                 loads=Loads(l2_prefetch_stages=1)), (100, 200, 144))], ids=str)
def test_dense_products_prefetch_what_they_load_first(config: DenseConfig, shape: tuple[int, int, int], boxes: Any) -> None:
    run_config(config, *shape, sms=4 * config.cluster if config.cluster < 4 else config.cluster)
    asked, loaded = boxes
    first_ones(asked, loaded)
    assert {len(found) for found in asked.values()} == {config.loads.l2_prefetch_stages * _boxes(config)}


@pytest.mark.parametrize(("shape", "tiles", "stages"), [((40, 128, 64), 2, 1), ((40, 136, 200), 2, 4), ((8, 64, 320), 1, 4),
                                                        ((8, 56, 320), 0, 0)])
def test_nothing_outside_of_b_is_prefetched(shape: tuple[int, int, int], tiles: int, stages: int, boxes: Any) -> None:
    """No more stages than K has, and none of a tile that ends after N."""
    run_config(DenseConfig(tile=Tile(64, 64), loads=Loads(l2_prefetch_stages=4)), *shape, sms=4)
    asked, _ = boxes
    assert sorted(map(len, asked.values())) == [stages] * tiles


def _boxes(config: DenseConfig) -> int:
    """Copies of a stage of B that one CTA makes."""
    tile, operands = config.tile, config.operands
    return tile.BK * operands.a.bits // 1024 if operands.b_major == "k" else tile.BN // 64 // config.multicast.m


@pytest.mark.parametrize("gated", [False, True])
def test_group_products_prefetch_what_they_load_first_if_groups_have_one_tile(gated: bool, boxes: Any) -> None:
    from ptxkit.gemm.tools.grouped_example import example

    settings = {"tile": Tile(128, 16), "tokens": SwapAB(16), "schedule.warpgroups": 1, "scheduler.order": Swizzle(size=1),
                "loads.l2_prefetch_stages": 4}
    share, report, _ = example([16] * 3, 256, 320, gated=gated, configure=with_defaults(settings))
    assert share <= 1
    assert report.findings == report.reasons, str(report)
    first_ones(*boxes)


def test_a_cta_that_asks_for_something_else_is_noticed() -> None:
    with pytest.raises(AssertionError):
        first_ones({(0, 0): [(0, 0), (64, 0)]}, {(0, 0): [(0, 0), (64, 32)]})
    with pytest.raises(AssertionError):
        first_ones({}, {})


@pytest.mark.parametrize("kind", ["bf16:nt", "bf16:nn", "e4m3:nt", "e4m3-block:nt", "f16:nn"])
def test_products_of_few_rows_prefetch(kind: str) -> None:
    for rows in (1, 64, FEW_ROWS, FEW_ROWS + 1, 4096):
        asked = described(shape(f"{rows}x4096x4096:{kind}"))
        expected = (PREFETCH_STAGES, LINE) if rows <= FEW_ROWS else (0, L2_FETCH)
        for config in (tuned(asked, H200) or heuristic(asked), *candidates(asked)):
            found = config.loads.l2_prefetch_stages, config.loads.l2_fetch
            first_is_known = not (isinstance(config.scheduler, StreamK) or config.swap_ab)               # that of B
            assert found == (expected if first_is_known else (0, expected[1]))


@pytest.mark.parametrize(("text", "fetch"), [
    ("520x1032x1024:bf16:nn", LINE), ("520x1024x1032:bf16:nt", LINE), ("520x1024x1032:bf16:nn", LINE), ("520x1024x1032:bf16:tn", LINE),
    ("512x1024x1032:bf16:tn", L2_FETCH), ("520x1024x1088", L2_FETCH)])
def test_the_l2_fetches_no_more_than_is_asked_for_where_lines_straddle(text: str, fetch: int) -> None:
    """Whether the pitch of A or of B is no multiple of 128 bytes. On an H100 that made such products up to 18 % faster."""
    assert heuristic(described(shape(text))).loads.l2_fetch == fetch


def test_maps_are_encoded_with_the_bytes_of_the_configuration() -> None:
    asked = described(shape("16x4096x4096"))
    for config, expected in ((heuristic(asked), LINE), (heuristic(described(shape("4096"))), L2_FETCH)):
        records = kernel_of(config).trace(**config.parameters).copies.records
        maps = Maps(records, {"a": asked.a_lines, "b": asked.b_lines}, config.loads.l2_fetch)
        assert {fields.l2_promotion for fields in maps.fields if fields} == {expected}


def test_what_cannot_be_prefetched_is_refused() -> None:
    for scheduler in (Static(Hilbert()), StreamK()):
        with pytest.raises(ConfigError, match="take l2_prefetch_stages=0"):
            DenseConfig(tile=Tile(128, 128), scheduler=scheduler, loads=Loads(l2_prefetch_stages=4))
        assert described(shape("16x4096x4096")).loads(scheduler) == Loads(l2_fetch=LINE)
    for change, sentence in (({"l2_prefetch_stages": 17}, "0 to 16 stages"), ({"l2_fetch": 512}, "64, 128 or 256, not 512")):
        with pytest.raises(ConfigError, match=sentence):
            Loads(**change)
