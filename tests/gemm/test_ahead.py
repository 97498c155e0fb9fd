"""What CTAs ask for ahead is what they load first, and configurations of few rows do so."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from ptxkit.gemm.config.dense import AHEAD, L2_PROMOTION, LINE, Config, ConfigError
from ptxkit.gemm.heuristic.dense import candidates, heuristic
from ptxkit.gemm.heuristic.tuned import tuned
from ptxkit.gemm.kernels.dense import gemm
from ptxkit.gemm.launch.dense import Maps
from ptxkit.gemm.problem.dense import FEW_ROWS
from ptxkit.gemm.tools.bench.shapes import problem as shape
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.tune import described
from ptxkit.sim.semantics import tensor
from ptxkit.types import bf16, e4m3

from .test_products import run_config

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


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


@pytest.mark.parametrize(("config", "shape"), [
    (Config(bf16, bf16, BM=64, BN=32, STREAM_B=True, AHEAD=4), (40, 160, 640)),
    (Config(bf16, bf16, BM=64, BN=48, A_ROWS=8, SPLITS=8, REDUCE="cluster", AHEAD=4), (5, 96, 1024)),
    (Config(bf16, bf16, BM=64, BN=64, SPLITS=3, REDUCE="workspace", AHEAD=3), (100, 136, 640)),
    (Config(bf16, bf16, BM=64, BN=64, CLUSTER_M=2, AHEAD=2), (100, 136, 320)),
    (Config(bf16, bf16, BM=128, BN=64, PINGPONG=True, CLUSTER_N=2, AHEAD=2), (130, 136, 192)),
    (Config(bf16, bf16, b_major="mn", BM=64, BN=128, AHEAD=4), (40, 264, 320)),
    (Config(bf16, bf16, b_major="mn", BM=64, BN=128, CLUSTER_M=2, AHEAD=2), (100, 264, 192)),
    (Config(bf16, bf16, BM=64, BN=64, BK=128, BATCHED=True, TICKET=True, AHEAD=2), (40, 136, 384)),
    (Config(e4m3, bf16, BM=64, BN=64, RASTER="along_n", GROUP=2, SERPENTINE=True, AHEAD=1), (100, 200, 144))], ids=str)
def test_dense_products_ask_for_what_they_load_first(config: Config, shape: tuple[int, int, int], boxes: Any) -> None:
    run_config(config, *shape, sms=4 * config.cluster if config.cluster < 4 else config.cluster)
    asked, loaded = boxes
    first_ones(asked, loaded)
    assert {len(found) for found in asked.values()} == {config.AHEAD * _boxes(config)}


def _boxes(config: Config) -> int:
    """Copies of a stage of B that one CTA makes."""
    return config.BK * config.a.bits // 1024 if config.b_major == "k" else config.BN // 64 // config.CLUSTER_M


@pytest.mark.parametrize("gated", [False, True])
def test_group_products_ask_for_what_they_load_first_if_groups_have_one_tile(gated: bool, boxes: Any) -> None:
    share, report, _ = example([16] * 3, 256, 320, gated=gated, sms=4,
                               parameters={"TRANSPOSED": True, "BM": 128, "CONSUMERS": 1, "BN": 16, "GROUP": 1, "AHEAD": 4})
    assert share <= 1
    assert not report.findings
    first_ones(*boxes)


def test_a_cta_that_asks_for_something_else_is_noticed() -> None:
    with pytest.raises(AssertionError):
        first_ones({(0, 0): [(0, 0), (64, 0)]}, {(0, 0): [(0, 0), (64, 32)]})
    with pytest.raises(AssertionError):
        first_ones({}, {})


@pytest.mark.parametrize("kind", ["bf16:nt", "bf16:nn", "e4m3:nt", "e4m3-block:nt", "f16:nn"])
def test_products_of_few_rows_ask_ahead(kind: str) -> None:
    for rows in (1, 64, FEW_ROWS, FEW_ROWS + 1, 4096):
        asked = described(shape(f"{rows}x4096x4096:{kind}"))
        expected = (AHEAD, LINE) if rows <= FEW_ROWS else (0, L2_PROMOTION)
        for config in (tuned(asked, "NVIDIA H200") or heuristic(asked), *candidates(asked)):
            found = config.AHEAD, config.L2_PROMOTION
            assert found == expected


def test_maps_are_encoded_with_the_bytes_of_the_configuration() -> None:
    asked = described(shape("16x4096x4096"))
    for config, expected in ((heuristic(asked), LINE), (heuristic(described(shape("4096"))), L2_PROMOTION)):
        records = gemm.trace(**config.parameters).copies.records
        maps = Maps(records, {"a": asked.a_lines, "b": asked.b_lines}, config.L2_PROMOTION)
        assert {fields.l2_promotion for fields in maps.fields if fields} == {expected}


def test_what_cannot_be_asked_for_is_not() -> None:
    for change in ({"RASTER": "hilbert"}, {"STREAM_K": True}, {"CLUSTER_M": 2, "MULTICAST": "leader"}):
        assert Config(bf16, bf16, BM=128, BN=128, AHEAD=4, **change).AHEAD == 0
    for change, sentence in (({"AHEAD": 17}, "0 to 16 stages"), ({"L2_PROMOTION": 512}, "64, 128, 256 bytes at once, not 512")):
        with pytest.raises(ConfigError, match=sentence):
            Config(bf16, bf16, **change)
