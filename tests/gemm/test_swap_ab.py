"""Products with A and B swapped: D^T = B^T A^T on the CPU device, checked, against float64, and what the configuration says of itself."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from ptxkit.cards import H100, H200
from ptxkit.dsl.values import from_json, to_json
from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.invariant import varies
from ptxkit.gemm.config.parts import (
    ClusterShape,
    Cooperative,
    Direct,
    Dynamic,
    Hilbert,
    Loads,
    Pingpong,
    SplitK,
    Staged,
    Static,
    StreamK,
    Swizzle,
    Tile,
)
from ptxkit.gemm.heuristic import corrections
from ptxkit.gemm.heuristic.costs import factor, of_card, structure
from ptxkit.gemm.heuristic.dense import candidates, clocks, heuristic
from ptxkit.gemm.heuristic.space import of_problem, swappable
from ptxkit.gemm.heuristic.tuned import knobs, revive
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.problem.dense import Arrays, Options, Problem
from ptxkit.gemm.scheduler.stream_k import MIN_STAGES_OF_PART
from ptxkit.gemm.tools.problems import arrays_asked, asked
from ptxkit.gemm.tools.verify.dense import FUSIONS, structures
from ptxkit.types import bf16, e4m3, e5m2, f16, f32

from .test_products import DYNAMIC, normal, phi, run, run_config

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
MAJORS = {"n": "k", "t": "mn"}


def swapped(a: Any = bf16, out: Any = bf16, layout: str = "nt", **more: Any) -> DenseConfig:
    b_major = {"n": "mn", "t": "k"}[layout[1]]
    operands = Operands(a, a, out, more.pop("accumulator", f32), MAJORS[layout[0]], b_major, more.pop("batched", False))  # type: ignore[arg-type]
    return DenseConfig(operands, swap_ab=True, **more)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("out", [bf16, f16, f32])
def test_layouts(layout: str, out: Any) -> None:
    """Several tiles along both extents, with rests. Of a transposed A tiles have whole spans of rows, and M is a multiple of 8."""
    transposed = layout[0] == "t"
    config = swapped(f16, out, layout, tile=Tile(128, 64 if transposed else 24))
    run_config(config, 136 if transposed else 51, 200, 136, sms=2)


@pytest.mark.parametrize("BN", [8, 16, 40, 88, 104, 144, 176])
def test_widths(BN: int) -> None:
    """Buffers of all rows of a tile, of some of them, and of eight; an odd number of blocks of eight, odd M, an N of no whole boxes."""
    run_config(swapped(tile=Tile(64, BN)), BN + 3, 72, 72)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("config", [
    swapped(tile=Tile(128, 40), schedule=Pingpong()), swapped(out=f32, tile=Tile(64, 40), schedule=Pingpong()),
    swapped(tile=Tile(192, 40)), swapped(tile=Tile(256, 32)), swapped(tile=Tile(64, 80), store=Staged(1)),
    swapped(tile=Tile(64, 80), store=Staged(3)), swapped(tile=Tile(128, 48), scheduler=Static(cluster=ClusterShape(2, 1))),
    swapped(tile=Tile(128, 48), scheduler=Static(cluster=ClusterShape(1, 2))),
    swapped(tile=Tile(64, 32), scheduler=Static(cluster=ClusterShape(2, 2))),
    swapped(tile=Tile(64, 32), scheduler=Static(Swizzle("along_n", 2, serpentine=True))), swapped(tile=Tile(64, 32), scheduler=Dynamic()),
    swapped(tile=Tile(64, 32), scheduler=Static(Hilbert())), swapped(tile=Tile(64, 32), batched=True),
    swapped(f16, f16, tile=Tile(64, 32)), swapped(e4m3, tile=Tile(64, 32)), swapped(f32, f32, tile=Tile(64, 32))], ids=str)
def test_choices(config: DenseConfig) -> None:
    """Two tiles and a rest of each extent."""
    tile = config.tile
    run_config(config, tile.BN + 5, tile.BM + 16, 3 * tile.BK - 16)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("config", "m"), [
    (swapped(tile=Tile(128, 16), stages=7), 16), (swapped(tile=Tile(64, 24), stages=4), 17), (swapped(tile=Tile(192, 48)), 48),
    (swapped(layout="tn", tile=Tile(64, 64), scheduler=Static(cluster=ClusterShape(4, 1))), 24),
    (swapped(layout="tt", tile=Tile(128, 64), schedule=Pingpong(), scheduler=Static(cluster=ClusterShape(4, 1))), 64)], ids=str)
def test_few_rows(config: DenseConfig, m: int) -> None:
    """One tile holds all rows of D, and some of its own are empty; rings that let two CTAs share an SM."""
    run_config(config, m, 2 * config.tile.BM + 24, 3 * config.tile.BK - 16)


def test_stream_k() -> None:
    config = swapped(tile=Tile(64, 24), scheduler=StreamK())
    run_config(config, 23, 64, config.tile.BK * 2 * MIN_STAGES_OF_PART - 16, sms=2)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("config", [
    swapped(tile=Tile(64, 24), scheduler=SplitK(2)), swapped(out=f32, tile=Tile(64, 40), scheduler=SplitK(3)),
    swapped(tile=Tile(128, 32), scheduler=SplitK(2, "cluster"), batched=True),
    swapped(layout="tt", tile=Tile(128, 64), scheduler=SplitK(2, cluster=ClusterShape(2, 1))),
    swapped(tile=Tile(64, 32), scheduler=SplitK(2, cluster=ClusterShape(1, 2)), batched=True)], ids=str)
def test_split_k(config: DenseConfig) -> None:
    """Sums of rows and columns past the end of D, and of whole tiles of a cluster that are past it."""
    run_config(config, config.tile.BN + 8, config.tile.BM + 16, config.tile.BK * 4 - 16, sms=4)


@pytest.mark.parametrize("reduce", ["workspace", "cluster"])
@pytest.mark.parametrize("n", [4, 36, 100])
def test_split_k_writes_no_column_after_the_last(n: int, reduce: Any) -> None:
    """Where N is no multiple of 8, as it may be of 32-bit results."""
    rng = np.random.default_rng(n)
    x, y = normal(rng, "bf16", 9, 256), normal(rng, "bf16", n, 256).T
    whole = np.full((9, n + 12), np.nan, np.float32)
    config = swapped(out=f32, tile=Tile(64, 16), scheduler=SplitK(2, reduce), store=Direct(1))
    report = simulate(x, y, whole[:, :n], config=config, card=H200.with_sms(4))
    assert report.verdict in DYNAMIC, str(report)
    assert np.abs(whole[:, :n] - x.astype(np.float64) @ y.astype(np.float64)).max() < 1e-3
    assert np.isnan(whole[:, n:]).all()


def test_split_k_scales_rows_and_columns() -> None:
    rng = np.random.default_rng(5)
    a_scale, b_scale = (rng.random(shape).astype(np.float32) + 0.5 for shape in ((35, 1), (1, 80)))
    config = swapped(e4m3, tile=Tile(64, 24), scheduler=SplitK(2), fusion=Fusion(scale="row_column"))
    x, y = normal(rng, "e4m3", 35, 272), normal(rng, "e4m3", 80, 272).T
    d = np.zeros((35, 80), bfloat16)
    report = simulate(x, y, d, config=config, card=H200.with_sms(4), a_scale=a_scale, b_scale=b_scale)
    assert report.verdict in DYNAMIC
    exact = x.astype(np.float64) @ y.astype(np.float64) * a_scale * b_scale
    np.testing.assert_allclose(d.astype(np.float64), exact, rtol=2.0**-8, atol=0.05)


def test_sums_in_f16() -> None:
    run_config(swapped(f16, f16, tile=Tile(64, 32), accumulator=f16), 35, 72, 136, accumulate="f16")


def test_two_types_of_operands() -> None:
    run_config(DenseConfig(Operands(e5m2, e4m3, bf16), Tile(64, 32), swap_ab=True), 35, 72, 144)


BIASES = {"column": (72,), "row": (35, 1)}


@pytest.mark.parametrize(("along", "kind", "activation"), [
    ("column", f32, None), ("column", bf16, "gelu"), ("row", f32, "relu"), ("row", f16, None)])
def test_bias_alpha_and_activation(along: Any, kind: Any, activation: str | None) -> None:
    """An odd number of rows: the bias of rows is read element by element."""
    functions: dict[str | None, Any] = {None: lambda x: x, "relu": lambda x: np.maximum(x, 0), "gelu": lambda x: x * phi(x)}
    bias = normal(np.random.default_rng(3), kind.__name__, *BIASES[along])
    config = swapped(tile=Tile(64, 16), fusion=Fusion(alpha=True, bias=kind, bias_along=along, activation=activation))
    run(35, 72, 40, config=config, bias=bias, alpha=-0.5, activation=activation, added=1e-4,
        then=lambda x: functions[activation](x + bias.astype(np.float64)))


def test_scales_of_whole_operands() -> None:
    """The same bits as unswapped: alpha and both scales are multiplied in one order."""
    scales = {"a_scale": np.array([0.7], np.float32), "b_scale": np.array([1.3], np.float32)}
    fusion = Fusion(alpha=True, scale="whole")
    upright = DenseConfig(Operands(e4m3, e4m3, f32), Tile(64, 32), fusion=fusion)
    first, second = (run(35, 48, 144, "e4m3", out="f32", config=config, alpha=1.1, **scales)
                     for config in (upright, swapped(e4m3, f32, tile=Tile(64, 32), fusion=fusion)))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", ["row", "column", "row_column"])
def test_scales_of_rows_and_columns(kind: Any) -> None:
    rng = np.random.default_rng(1)
    m, n, k = 35, 72, 144      # more than a block of K, which scales of blocks would have
    a, b = normal(rng, "e4m3", m, k), normal(rng, "e4m3", n, k).T
    a_scale = (rng.random((m if "row" in kind else 1, 1)) + 0.5).astype(np.float32)
    b_scale = (rng.random((1, n if "column" in kind else 1)) + 0.5).astype(np.float32)
    d = np.full((m, n), np.nan, np.float32)
    config = swapped(e4m3, f32, tile=Tile(64, 24), fusion=Fusion(scale=kind))
    assert simulate(a, b, d, a_scale=a_scale, b_scale=b_scale, config=config, card=H200.with_sms(2)).verdict == "clean"
    exact = a.astype(np.float64) * a_scale @ (b.astype(np.float64) * b_scale)
    np.testing.assert_allclose(d, exact, rtol=1e-3, atol=1e-3)


def test_operands_that_are_copied_before() -> None:
    """`align` names the caller's operands."""
    rng = np.random.default_rng(4)
    a, b = normal(rng, "bf16", 35, 37), normal(rng, "bf16", 37, 72)
    d = np.full((35, 72), np.nan, np.float32)
    config = swapped(out=f32, layout="nn", tile=Tile(64, 32), loads=Loads(align="a"))
    assert simulate(a, b, d, config=config, card=H200.with_sms(2)).verdict == "clean"
    np.testing.assert_allclose(d, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [
    swapped(tile=Tile(192, 176)), swapped(out=f32, layout="tn", tile=Tile(64, 128), stages=3),
    swapped(tile=Tile(128, 48), schedule=Pingpong(), scheduler=Static(cluster=ClusterShape(2, 1)))], ids=str)
def test_the_words_of_a_table_and_of_json_say_it(config: DenseConfig) -> None:
    layout = ("n" if config.operands.a_major == "k" else "t") + ("t" if config.operands.b_major == "k" else "n")
    problem = asked(264, 1024, 512, "bf16", out=config.operands.out.__name__, layout=layout)
    kept = knobs(config, problem)
    assert kept["swap_ab"] is True
    assert revive(kept, problem) == config
    assert from_json(DenseConfig, to_json(config)) == config
    del kept["swap_ab"]
    assert not revive(kept, problem).swap_ab


def test_an_upright_configuration_says_nothing_of_it() -> None:
    config = DenseConfig(tile=Tile(128, 128))
    assert "swap_ab" not in knobs(config, asked(264, 1024, 512))
    assert "swap_ab" not in config.parameters
    assert config.parameters["store"] == Staged(2)


def test_the_kernel_is_that_of_the_transposed_product() -> None:
    """It differs from an upright kernel of the exchanged operands in its store alone."""
    config = DenseConfig(Operands(a_major="mn"), Tile(128, 64), 4, swap_ab=True, fusion=Fusion(bias=f32))
    found = config.parameters
    assert found["operands"] == Operands(b_major="mn")
    assert found["fusion"] == Fusion(bias=f32, bias_along="row")
    text = kernel_of(config).ptx(**found)
    assert "stmatrix.sync.aligned.m8n8.x4.trans" in text
    assert "wgmma.mma_async.sync.aligned.m64n64k16" in text


def test_sums_may_be_in_another_order() -> None:
    assert "B^T by A^T" in str(varies(swapped(tile=Tile(64, 32))))


def test_verify_draws_every_fusion_that_is_taken() -> None:
    drawn = [(case, config) for case, config in structures() if config.swap_ab]
    assert {case.fused for case, _ in drawn} == {fused for fused in FUSIONS if not (fused.c or fused.residual)}
    assert {case.scales for case, _ in drawn} == {"none", "one", "row", "column", "row_column"}
    assert {type(config.schedule) for _, config in drawn} == {Cooperative, Pingpong}
    assert {type(config.scheduler) for _, config in drawn} == {Static, Dynamic, StreamK, SplitK}
    assert {config.operands.out for _, config in drawn} == {bf16, f16, f32}


# What the heuristic makes of it.


def test_the_model_sees_the_transposed_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A swapped structure takes what the upright one takes for B^T A^T, but for what measurements say beyond the causes."""
    causes = dataclasses.replace(of_card(H200), factors={})
    monkeypatch.setattr("ptxkit.gemm.heuristic.dense.of_card", lambda card: causes)
    monkeypatch.setattr(corrections, "of_card", lambda card: corrections.NONE)
    for layout, turned in (("nt", "nt"), ("nn", "tt"), ("tn", "tn")):
        problem, other = asked(320, 1984, 1024, layout=layout), asked(1984, 320, 1024, layout=turned)
        for scheduler in (Static(cluster=ClusterShape(1, 2)), Static(Swizzle("along_n", 3)), StreamK()):
            upright = DenseConfig(other.operands, Tile(128, 192), 4, scheduler=scheduler)
            config = DenseConfig(problem.operands, Tile(128, 192), 4, scheduler=scheduler, swap_ab=True)
            assert clocks(problem, config, H200) == pytest.approx(clocks(other, upright, H200))


def test_a_structure_that_no_fit_has_seen_has_the_factor_of_the_upright_one() -> None:
    factors = {"128x192 cooperative 1x1": 0.9, "128x192 cooperative 1x1 swapped": 0.8}
    assert structure(swapped(tile=Tile(128, 192))) == "128x192 cooperative 1x1 swapped"
    assert factor(factors, "128x192 cooperative 1x1 swapped") == 0.8
    del factors["128x192 cooperative 1x1 swapped"]
    assert factor(factors, "128x192 cooperative 1x1 swapped") == 0.9
    assert factor({}, "128x192 cooperative 1x1") == 1.0


def test_it_is_chosen_where_rows_fit_and_never_where_it_cannot_be() -> None:
    assert heuristic(asked(265, 12544, 9664, layout="nn"), H100).swap_ab
    assert not heuristic(asked(8192, 8192, 8192), H100).swap_ab
    for other in (asked(265, 12544, 9664, layout="nn", batch_invariant=True), asked(265, 12544, 9664, out="f32", layout="nn"),
                  asked(265, 12545, 9664, layout="nt"),
                  asked(265, 12544, 9664, "e4m3", out="bf16", fast_accum=False)):
        assert not swappable(other)
        assert not any(config.swap_ab for config in itertools.islice(candidates(other, H100), 200))
    a, b, out, *_ = arrays_asked(265, 12544, 9664, layout="nn")
    for name in ("c", "residual"):
        assert not swappable(Problem(Arrays(a, b, out)._replace(**{name: out}), Options(beta=1.0 if name == "c" else 0.0)))
    assert swappable(Problem(Arrays(a, b, out, bias=out._replace(shape=(265, 1), strides=(1, 1))), Options(0.5, activation="gelu")))


def test_all_tiles_are_sampled_and_tried() -> None:
    problem = asked(265, 12544, 9664, layout="nn")
    drawn = {(config.tile.BM, config.tile.BN) for config in of_problem(problem) if config.swap_ab}
    assert {(BM, BN) for BM in (64, 128, 192, 256) for BN in (96, 144, 176)} <= drawn
    assert {config.tile.BM for config in candidates(problem, H100) if config.swap_ab} == {64, 128, 192, 256}
