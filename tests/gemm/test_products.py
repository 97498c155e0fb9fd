"""Every kind of product on the CPU device, checked, against float64: configurations, shapes, types, scales, fusions, batches."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config import budget
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import (
    AsyncCopies,
    BlockScaled,
    ClusterShape,
    ConfigError,
    Cooperative,
    CopiedLoads,
    Direct,
    Dynamic,
    Overlap,
    Pingpong,
    Promotion,
    ScaleLoad,
    Share,
    SplitK,
    Static,
    StreamK,
    TensorCopies,
    Tile,
)
from ptxkit.gemm.heuristic.costs import Columns, of_card
from ptxkit.gemm.heuristic.dense import heuristic, only_measured
from ptxkit.gemm.heuristic.space import of_structure, structures
from ptxkit.gemm.launch.grid import COUNTER_BYTES, kernel_of
from ptxkit.gemm.launch.on_cpu import view_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.problem.dense import Arrays, Options, Problem
from ptxkit.gemm.scheduler.stream_k import MIN_STAGES_OF_PART
from ptxkit.gemm.tools import reference
from ptxkit.gemm.tools.bench.shapes import LAYOUTS
from ptxkit.gemm.tools.problems import asked
from ptxkit.gemm.tools.samples import GRID, distinct, name, pairwise, picked, shipped, small
from ptxkit.gemm.tools.verify import dense
from ptxkit.ptx import mul
from ptxkit.runtime.arrays import ArrayView
from ptxkit.sim import SCHEDULES
from ptxkit.types import Scalar, bf16, e4m3, f16, f32

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
                         "e5m2": ml_dtypes.float8_e5m2}
TF32 = 2.0**-10             # of each factor, which is cut to 10 bits of fraction
Array = np.ndarray[Any, Any]


def normal(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def poisoned(dtype: str, *shape: int) -> Array:
    """NaN, with a guard row around each matrix."""
    return np.full((*shape[:-2], shape[-2] + 2, shape[-1]), np.nan, np.float32).astype(NUMPY[dtype])


def tolerance(exact: Array, magnitude: Array, k: int, a: str, out: str, *, accumulate: str = "f32", promoted: bool = False) -> Array:
    """What may be wrong with an element: sums (`gemm.reference`), operands cut to tf32, sums in f16, rounding to `out`."""
    found = magnitude * reference.accumulation(k, a, promoted) + np.abs(exact) * reference.HALF_ULP[out] * 1.01
    found = found + reference.HALF_TINY[out]
    if a == "f32":
        found = found + magnitude * 2 * TF32
    if accumulate == "f16":
        found = found + magnitude * 2.0**-11 * (4 + np.sqrt(k))
    return found + 1e-6


DYNAMIC = ("clean", "incomplete")
"""The verdicts on what may depend on when a CTA comes: the checker vouches for the schedules that were run."""


def run(m: int, n: int, k: int, a: str = "bf16", b: str | None = None, out: str = "bf16", *, layout: str = "nt",
        batches: int | None = None, config: DenseConfig | None = None, sms: int = 4, seed: int = 0, schedule: str = "fifo",
        then: Callable[[Array], Array] | None = None, added: float = 0.0, verdicts: tuple[str, ...] = ("clean",), **more: Any) -> Array:
    """One product, D; `then` is what the epilogue must make of the exact sums, `added` what its approximations may add to the error."""
    rng = np.random.default_rng(seed + m * 7919 + n * 31 + k)
    outer = () if batches is None else (batches,)
    x = normal(rng, a, *outer, m, k) if layout[0] == "n" else np.swapaxes(normal(rng, a, *outer, k, m), -1, -2)
    y = normal(rng, b or a, *outer, k, n) if layout[1] == "n" else np.swapaxes(normal(rng, b or a, *outer, n, k), -1, -2)
    whole = poisoned(out, *outer, m, n)
    d = whole[..., 1:-1, :]
    counters = np.zeros(COUNTER_BYTES // 4, np.uint32)
    report = simulate(x, y, d, config=config, card=H200.with_sms(sms), schedule=schedule, seed=seed, counters=counters, **more)
    assert not counters.any()
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    if more.get("a_scale") is not None and more["a_scale"].size > 1:
        blocks = [slice(i, i + 128) for i in range(0, k, 128)]
        scales = [more["a_scale"][:, i:i + 1].astype(np.float64) * np.repeat(more["b_scale"][i], 128)[:n] for i in range(len(blocks))]
        exact = sum((x64[:, s] @ y64[s]) * scale for s, scale in zip(blocks, scales, strict=True))
        magnitude = sum((np.abs(x64[:, s]) @ np.abs(y64[s])) * np.abs(scale) for s, scale in zip(blocks, scales, strict=True))
    else:
        factor = float(np.prod([np.float64(s.ravel()[0]) for s in (more.get("a_scale"), more.get("b_scale")) if s is not None]))
        exact, magnitude = x64 @ y64 * factor, np.abs(x64) @ np.abs(y64) * abs(factor)
    exact = exact * more.get("alpha", 1.0)
    expected = then(exact) if then else exact
    allowed = added + tolerance(expected, magnitude * max(1.0, abs(more.get("alpha", 1.0))), k, a, out,
                                accumulate=more.get("accumulate", "f32"), promoted=more.get("fast_accum") is False)
    error = np.abs(d.astype(np.float64) - expected)
    assert (error <= allowed).all(), (float(np.nanmax(error / allowed)), int(np.isnan(error).sum()))
    assert np.isnan(whole[..., [0, -1], :].astype(np.float32)).all()
    assert report.verdict in verdicts, str(report)
    assert report.findings == report.reasons, str(report)
    return d


def run_config(config: DenseConfig, m: int, n: int, k: int, sms: int = 0, **more: Any) -> Array:
    """A product with this configuration, D, on `sms` CTAs, or as few as it can have."""
    operands, sums = config.operands, config.sums
    if isinstance(sums, BlockScaled):
        rng = np.random.default_rng(k)
        depth = -(-k // 128)
        more["a_scale"] = rng.random((m, depth)).astype(np.float32, order="C" if sums.load == "warp" else "F") + 0.5
        more["b_scale"] = rng.random((depth, -(-n // 128))).astype(np.float32, order="F" if sums.load == "bulk" else "C") + 0.5
    elif config.fusion.scale == "whole":
        more |= {"a_scale": np.array([1.25], np.float32), "b_scale": np.array([0.75], np.float32)}
    layout = ("n" if operands.a_major == "k" else "t") + ("t" if operands.b_major == "k" else "n")
    promoted = operands.a.bits == 8 and budget.promoted(sums) and not isinstance(sums, BlockScaled)
    return run(m, n, k, operands.a.__name__, operands.b.__name__, operands.out.__name__, layout=layout,
               batches=2 if operands.batched else None, config=config, sms=sms or config.cluster, fast_accum=False if promoted else None,
               verdicts=DYNAMIC if polls(config) else ("clean",), **more)


def polls(config: DenseConfig) -> bool:
    """Whether what a CTA does depends on when others come."""
    return isinstance(config.scheduler, Dynamic | StreamK) or config.splits_in_workspace


@pytest.mark.thinned(12)
@pytest.mark.parametrize("config", [pytest.param(config, marks=[pytest.mark.sweep] if i % 3 else [], id=name(config))
                                    for i, config in enumerate(pairwise())])
def test_pairs_of_choices(config: DenseConfig) -> None:
    """Every pair of choices, two thirds of them with the sweep: more stages than a short ring has, two tiles along M and N where little is
    stored straight from registers."""
    tile = config.tile
    m = config.loads.a_rows or (tile.BM + 8 if tile.BM * tile.BN < 10_000 else 72)
    more = 16 if config.staged or tile.BN < 64 else -16
    turn = -1 if config.swap_ab else 1
    if isinstance(config.scheduler, StreamK) and not config.operands.batched:                    # one tile in two runs
        extents = min(m, tile.BM), tile.BN // 16 * 16
        run_config(config, *extents[::turn], tile.BK * 2 * MIN_STAGES_OF_PART - 16, sms=2 * config.cluster)
        return
    run_config(config, *(m, -(-tile.BN // 16) * 16 + more)[::turn], tile.BK * max(3, config.splits) - 16)


PARTS = 16


@functools.cache
def gotten() -> tuple[DenseConfig, ...]:
    """One configuration of each structure that a user can get without asking for one."""
    return distinct((*shipped(), *picked()))


@pytest.mark.thinned(8)
@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.sweep] if part % 2 else []) for part in range(PARTS)])
def test_what_users_get(part: int) -> None:
    """Every structure in the shipped tables or picked by the heuristic over a grid of shapes: half of them, the others with the sweep."""
    configs = gotten()[part::PARTS]
    assert len(configs) >= 4
    for config in configs:
        try:
            run_config(config, *small(config))
        except BaseException:
            print(name(config), small(config))
            raise


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_all_that_users_get(request: pytest.FixtureRequest) -> None:
    """By type and layout, on devices of other sizes, several tiles."""
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")
    kinds = (("bf16", "bf16", None), ("f16", "f16", None), ("bf16", "f32", None), ("f32", "f32", None), ("e4m3", "bf16", None),
             ("e5m2", "f16", None), ("e4m3", "bf16", False))
    wanted = (config for sms in (78, 114, 132) for config in picked(kinds, H200.with_sms(sms), grid=GRID))
    for config in distinct((*shipped(), *wanted), of_types=True):
        m, n, k = small(config)
        run_config(config, m if config.loads.a_rows else m + config.tile.BM, n + 16, k)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("config", [
    DenseConfig(Operands(f16, f16, f16, b_major="mn"), Tile(64, 128), 2, scheduler=Static(cluster=ClusterShape(2, 2))),
    DenseConfig(Operands(e4m3, e4m3, bf16), Tile(64, 64), 2, Cooperative(sums=BlockScaled()))], ids=str)
def test_schedules(config: DenseConfig, schedule: str) -> None:
    """What tests/sim/test_bundled.py has not: both operands shared, scales in a ring."""
    run_config(config, 66, 80, config.tile.BK * 5 - 16, seed=1, schedule=schedule)


@pytest.mark.parametrize("config", [
    DenseConfig(Operands(a_major="mn", b_major="mn"), Tile(64, 192), 2, scheduler=Static(cluster=ClusterShape(2, 1))),
    DenseConfig(Operands(f16, f16, f16, a_major="mn"), Tile(64, 64), 3, scheduler=Static(cluster=ClusterShape(1, 4))),
    DenseConfig(Operands(a_major="mn", b_major="mn"), Tile(192, 64), 2, scheduler=Static(cluster=ClusterShape(2, 2)))], ids=str)
def test_ctas_share_the_depth_of_tiles_whose_spans_they_cannot_share_out(config: DenseConfig) -> None:
    run_config(config, config.tile.BM + 8, config.tile.BN + 16, config.tile.BK * 3 - 16, schedule="random")


def by_columns(a: type[Scalar], out: type[Scalar], tile: Tile, *majors: Any, **more: Any) -> DenseConfig:
    """Warpgroups that share the columns of a tile."""
    return DenseConfig(Operands(a, a, out, f32, *majors), tile, 2, Cooperative(share="columns"), **more)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("config", [
    DenseConfig(tile=Tile(128, 272), stages=2), DenseConfig(Operands(f16, f16, f16, b_major="mn"), Tile(128, 304), 2),
    DenseConfig(Operands(a_major="mn"), Tile(64, 288), 2), DenseConfig(Operands(out=f32, b_major="mn"), Tile(128, 320), 2, swap_ab=True),
    DenseConfig(tile=Tile(128, 336), stages=2, scheduler=Static(cluster=ClusterShape(2, 1)), swap_ab=True),
    DenseConfig(Operands(e4m3, e4m3, bf16), Tile(128, 304), 2, scheduler=Static(cluster=ClusterShape(1, 2))),
    DenseConfig(Operands(f32, f32, f32), Tile(128, 272), 2), DenseConfig(Operands(batched=True), Tile(128, 304), 2, scheduler=Dynamic()),
    DenseConfig(Operands(f16, f16, f16), Tile(128, 384), 2), by_columns(bf16, bf16, Tile(192, 192)),
    by_columns(f16, f16, Tile(192, 208), scheduler=Static(cluster=ClusterShape(1, 2)), swap_ab=True),
    by_columns(bf16, f32, Tile(64, 256), "mn", "mn"), by_columns(bf16, bf16, Tile(192, 256), "k", "mn"),
    by_columns(e4m3, bf16, Tile(128, 96), scheduler=Static(cluster=ClusterShape(2, 1))),
    by_columns(f32, f32, Tile(64, 48), scheduler=Dynamic()), by_columns(bf16, bf16, Tile(192, 112), store=Direct())], ids=str)
def test_two_instructions_or_two_warpgroups_for_the_columns_of_a_tile(config: DenseConfig) -> None:
    """Of one tile and a rest of each extent."""
    tile = config.tile
    m, n = (tile.BN + 24, tile.BM + 16) if config.swap_ab else (tile.BM + 8, tile.BN + 32)
    run_config(config, m, n, 3 * tile.BK - 16)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("BM", "BN", "cluster"), [(64, 24, (2, 1)), (128, 40, (4, 1)), (64, 104, (4, 2)), (192, 72, (2, 2))])
@pytest.mark.parametrize("swap_ab", [False, True])
def test_ctas_share_lines_that_are_no_multiple_of_eight_each(BM: int, BN: int, cluster: tuple[Any, Any], swap_ab: bool) -> None:
    """The pattern of the swizzle goes on from the lines of one CTA to those of the next."""
    config = DenseConfig(tile=Tile(BM, BN), stages=2, scheduler=Static(cluster=ClusterShape(*cluster)), swap_ab=swap_ab)
    m, n = (BN * cluster[0] + 3, BM + 16) if swap_ab else (BM + 3, BN * cluster[0] + 8)
    run_config(config, m, n, 3 * config.tile.BK - 16, schedule="random")


@pytest.mark.parametrize("config", [
    DenseConfig(tile=Tile(64, 64), stages=2), DenseConfig(tile=Tile(64, 64), stages=3, schedule=Pingpong(), swap_ab=True),
    DenseConfig(Operands(e4m3, e4m3, bf16), Tile(64, 64), 2, Cooperative(sums=BlockScaled()), Static(cluster=ClusterShape(2, 1))),
    DenseConfig(Operands(b_major="mn"), Tile(64, 64), 2, loads=CopiedLoads(AsyncCopies(4), TensorCopies()))], ids=str)
def test_the_next_kernel_begins_with_this_one_after_its_loads_or_after_it(config: DenseConfig) -> None:
    """In every kernel with a static scheduler: after the wait for the kernel before, and before the first copy or after the last one."""
    copy = r"cp\.async\.c[ag]" if config.by_threads else r"cp\.async\.bulk\.tensor.*mbarrier"
    for overlap in get_args(Overlap):
        one = replace(config, scheduler=replace(config.scheduler, overlap=overlap))
        lines = kernel_of(one).ptx(**one.parameters).splitlines()
        begins, (waits,), copies = ([number for number, line in enumerate(lines) if re.search(word, line)] for word in (
            r"griddepcontrol\.launch_dependents", r"griddepcontrol\.wait", copy))
        assert len(begins) == (overlap != "end")
        assert waits < min([*begins, copies[0]])
        assert all(begin < copies[0] if overlap == "start" else begin > copies[-1] for begin in begins)
        if overlap == "loads":                  # all other tests have "start", and "end" is an instruction less
            run_config(one, 136, 80, 3 * config.tile.BK - (14 if config.by_threads else 16), schedule="random")


@pytest.mark.parametrize("seed", range(4))
def test_what_only_a_fit_can_put_forward(seed: int) -> None:
    """Clusters of eight, clusters of narrow swapped tiles and the odd widths of few rows, with any time at which the next kernel may begin
    and in any layout: tiles that are partly or wholly outside."""
    source = random.Random(seed)
    some = []
    for most in (64, 256):
        seen = Columns.of_structures(structures(most), H200, of_card(H200))
        new = itertools.compress(structures(most), only_measured(seen, most == 64))
        some += [one for one in new if isinstance(one.scheduler, Static) and not one.stages]
    count = 0
    while count < 3:
        one = source.choice(some)
        one = one._replace(scheduler=replace(one.scheduler, overlap=source.choice(get_args(Overlap))))
        whole = one.tile.BM * one.scheduler.cluster.m, one.tile.BN * one.scheduler.cluster.n
        m, n = (max(8, int(size * source.uniform(0.2, 1.5)) // 8 * 8) for size in (whole[::-1] if one.swap_ab else whole))
        problem = asked(m, n, source.choice((64, 136, 320)), layout=source.choice(LAYOUTS))
        try:
            config = of_structure(one, problem)
        except ConfigError:
            continue
        run_config(config, m, n, problem.k, sms=2 * config.cluster, schedule="random", seed=seed)
        count += 1


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 150), st.integers(1, 18), st.integers(1, 40), st.sampled_from(["f16", "bf16"]),
       st.sampled_from(["f16", "bf16", "f32"]), st.sampled_from([1, 3, 132]), st.integers(0, 2**20))
def test_what_the_heuristic_takes(m, eights, depth, dtype, out, sms, seed) -> None:
    """Random shapes with the configuration that a user gets."""
    run(m, 8 * eights, 8 * depth, dtype, out=out, sms=sms, seed=seed, verdicts=("clean", "incomplete"))


@pytest.mark.parametrize(("a", "b"), [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("f32", "f32"), ("f16", "f16")])
def test_types(a: str, b: str) -> None:
    run(70, 48, 208, a, b, "f32")
    run(1, 16, 16, a, b, "bf16")


def test_a_configuration_for_other_arguments_is_refused_as_on_the_card() -> None:
    a, b, out = np.zeros((8, 16), np.float16), np.zeros((16, 8), np.float16), np.zeros((8, 8), np.float16)
    for config in (DenseConfig(), DenseConfig(Operands(f16, f16, f16, b_major="mn"), fusion=Fusion(scale="whole"))):
        with pytest.raises(LaunchError, match="this config is not for this problem"):
            simulate(a, b, out, config=config)


def test_cases_of_structures_are_what_their_configurations_are_for() -> None:
    """A tuned configuration of fp8 may fuse scales."""
    found = dense.structures()
    assert {dense.SCALES[config.fusion.scale] for _, config in found} == set(dense.SCALES.values())
    for case, config in found:
        assert case.scales == ("block" if isinstance(config.sums, BlockScaled) else dense.SCALES[config.fusion.scale]), config


def test_scales_of_whole_operands() -> None:
    scales = {"a_scale": np.array([0.5], np.float32), "b_scale": np.array(3.0, np.float32)}
    run(70, 48, 208, "e4m3", out="f32", **scales)
    run(70, 48, 208, "e4m3", out="bf16", fast_accum=False, verdicts=DYNAMIC, **scales)


PROMOTED: tuple[tuple[Tile, Promotion], ...] = (
    (Tile(128, 64), "plain"), (Tile(128, 128), "overlap"), (Tile(128, 192), "stagger"), (Tile(192, 128), "stagger"),
    (Tile(256, 128), "stagger"), (Tile(128, 256), "stagger"))


@pytest.mark.thinned(9)
@pytest.mark.parametrize(("tile", "how"), PROMOTED, ids=str)
def test_block_scales(tile: Tile, how: Promotion) -> None:
    """Tiles that lie in one block of columns, and tiles that straddle two; scales of any strides."""
    rng = np.random.default_rng(tile.BN)
    a, b = (np.abs(rng.standard_normal(shape)).astype(np.float32) for shape in ((130, 3), (3, 3)))
    config = DenseConfig(Operands(e4m3, e4m3, f32), tile, schedule=Cooperative(sums=BlockScaled(how)))
    run(130, 336, 368, "e4m3", out="f32", config=config, a_scale=a, b_scale=b)
    run(130, 336, 368, "e4m3", out="f32", a_scale=np.asfortranarray(a), b_scale=np.asfortranarray(b), verdicts=DYNAMIC)


@pytest.mark.thinned(40)
@pytest.mark.parametrize("load", ["tensor_map", "bulk"])
@pytest.mark.parametrize(("tile", "how"), PROMOTED, ids=str)
def test_block_scales_that_the_producer_copies(tile: Tile, how: Promotion, load: ScaleLoad) -> None:
    """Depths of more than one bulk copy, and none of four stages; the last tile's blocks past the last one."""
    rng = np.random.default_rng(tile.BN)
    a, b = (np.asfortranarray(np.abs(rng.standard_normal(shape)).astype(np.float32)) for shape in ((132, 8), (8, 3)))
    config = DenseConfig(Operands(e4m3, e4m3, f32), tile, schedule=Cooperative(sums=BlockScaled(how, load)))
    run(132, 336, 912, "e4m3", out="f32", config=config, a_scale=a, b_scale=b, sms=2)


def test_block_scales_of_one_block_along_k() -> None:
    """As a tensor map of one line, which need not be a multiple of 16 bytes long."""
    rng = np.random.default_rng(5)
    run(70, 136, 128, "e4m3", out="f32", a_scale=np.abs(rng.standard_normal((70, 1))).astype(np.float32),
        b_scale=np.abs(rng.standard_normal((1, 2))).astype(np.float32), verdicts=DYNAMIC)


@pytest.mark.parametrize(("a", "b", "copies"), [
    ((132, 8, "F"), (8, 3, "F"), (True, True)), ((132, 8, "F"), (8, 3, "C"), (True, False)), ((132, 6, "F"), (6, 3, "F"), (True, False)),
    ((132, 8, "C"), (8, 3, "F"), (False, False)), ((130, 8, "F"), (8, 3, "F"), (False, False)),
    ((130, 1, "C"), (1, 3, "C"), (True, False))], ids=str)
def test_which_block_scales_the_producer_can_copy(a: Any, b: Any, copies: tuple[bool, bool]) -> None:
    """It copies scales of a that are contiguous along M, and with them scales of b that are contiguous along K, if their lines begin at
    multiples of 16 bytes. A single line may have any length."""
    scales = [np.zeros(shape[:2], np.float32, order=shape[2]) for shape in (a, b)]
    views = [ArrayView(0, s.shape, tuple(size // 4 for size in s.strides), "f32", 0, "numpy") for s in scales]
    m, k = a[0], a[1] * 128
    asked = Problem(Arrays(ArrayView(0, (m, k), (k, 1), "e4m3", 0, "numpy"), ArrayView(0, (k, 336), (1, k), "e4m3", 0, "numpy"),
                           ArrayView(0, (m, 336), (336, 1), "bf16", 0, "numpy"), a_scale=views[0], b_scale=views[1]))
    assert (asked.scale_map, asked.scale_bulk) == copies


def test_sums_in_f16() -> None:
    run(70, 48, 160, "f16", out="f16", accumulate="f16")
    config = DenseConfig(Operands(f16, f16, f16, f16), Tile(64, 48), scheduler=SplitK(2, "cluster"))
    run_config(config, 70, 48, 160, accumulate="f16")


def test_batches_of_any_strides() -> None:
    run(70, 40, 72, batches=3)
    rng = np.random.default_rng(0)
    a = normal(rng, "f16", 5, 2, 24)[:, 1].reshape(5, 1, 24)            # one row each, far apart
    b, d = normal(rng, "f16", 5, 24, 16), np.full((5, 1, 16), np.nan, np.float32)
    assert simulate(a, b, d, card=H200.with_sms(2)).verdict == "clean"
    np.testing.assert_allclose(d, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-5)


def phi(x: Array) -> Array:
    from math import erf

    return 0.5 * (1 + np.vectorize(erf)(x / 2**0.5))


FUSIONS: dict[str, tuple[dict[str, Any], Callable[[Array, dict[str, Any]], Array]]] = {
    "alpha, beta c": ({"alpha": -0.5, "beta": 2.0, "c": ("bf16", 70, 72)}, lambda x, g: x + 2 * g["c"]),
    "bias along columns": ({"bias": ("f32", 72)}, lambda x, g: x + g["bias"]),
    "bias along rows, relu": ({"bias": ("f16", 70, 1), "activation": "relu"}, lambda x, g: np.maximum(x + g["bias"], 0)),
    "gelu, residual": ({"activation": "gelu", "residual": ("f16", 70, 72)}, lambda x, g: x * phi(x) + g["residual"]),
    "bias, silu": ({"bias": ("bf16", 72), "activation": "silu"}, lambda x, g: (x + g["bias"]) / (1 + np.exp(-(x + g["bias"])))),
    "a function": ({"activation": lambda x: mul.rn.f32(x, x)}, lambda x, g: x * x),
    "all": ({"alpha": 0.25, "beta": -1.0, "c": ("f32", 70, 72), "bias": ("bf16", 72), "activation": "relu", "residual": ("bf16", 70, 72)},
            lambda x, g: np.maximum(x - g["c"] + g["bias"], 0) + g["residual"]),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize(("BN", "out", "share"), [(64, "bf16", "rows"), (56, "f32", "rows"), (64, "bf16", "columns")])
def test_fusions(fusion: str, BN: int, out: str, share: Share) -> None:
    given, then = FUSIONS[fusion]
    rng = np.random.default_rng(5)
    made = {word: normal(rng, value[0], *value[1:]) if isinstance(value, tuple) else value for word, value in given.items()}
    wide = {word: value.astype(np.float64) for word, value in made.items() if isinstance(value, np.ndarray)}
    shapes = {word: value for word, value in made.items() if isinstance(value, np.ndarray)}
    operands = {"a": normal(rng, "bf16", 70, 40), "b": normal(rng, "bf16", 72, 40).T, "out": normal(rng, out, 70, 72)}
    arrays = Arrays(**{word: view_of(word, x, None) for word, x in (operands | shapes).items()})
    options = Options(made.get("alpha", 1.0), made.get("beta", 0.0), made.get("activation"))
    fused = heuristic(Problem(arrays, options)).fusion
    config = DenseConfig(Operands(out={"bf16": bf16, "f32": f32}[out]), Tile(64, BN), 0, Cooperative(share=share), fusion=fused)
    run(70, 72, 40, out=out, config=config, then=lambda x: then(x, wide), added=1e-2 if fusion == "a function" else 1e-4, **made)


def test_a_fusion_on_narrow_results_and_batches() -> None:
    run(70, 64, 40, out="e4m3", activation="relu", then=lambda x: np.maximum(x, 0))
    rng = np.random.default_rng(2)
    c = normal(rng, "f16", 3, 70, 40)
    run(70, 40, 40, "f16", out="f16", batches=3, beta=1.0, c=c, then=lambda x: x + c.astype(np.float64), config=None)


def test_an_oracle_that_sees_one_wrong_element(monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.gemm.test_products as here

    right = here.simulate

    def wrong(a: Array, b: Array, out: Array, **more: Any) -> Any:
        report = right(a, b, out, **more)
        out[3, 5] += 0.25
        return report

    monkeypatch.setattr(here, "simulate", wrong)
    with pytest.raises(AssertionError):
        here.run(16, 16, 32, "f16", out="f32")
    assert f16 is not bf16
