"""Every bundled kernel and example on the CPU device, checked, under several schedules; outputs start poisoned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from ptxkit import sim
from ptxkit.cards import H200
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import (
    ClusterShape,
    ConfigError,
    Cooperative,
    Direct,
    Pingpong,
    Promoted,
    SplitK,
    Staged,
    Static,
    Swizzle,
    Tile,
)
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.sim import SCHEDULES
from ptxkit.types import bf16, e4m3, e5m2, f16, f32

from .mutants.outcome import refusal
from .mutants.subjects import NUMPY, SUBJECTS

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
EXAMPLES = ["cluster_multicast", "row_sums", "tile_gemm", "tma_copy", "vector_add"]


def product(m: int, n: int, k: int, config: DenseConfig, *, sms: int = 132, schedule: str = "fifo", seed: int = 0, check: bool = True,
            scale: int = 3) -> sim.Report:
    """One product of small integers, exact in every order, compared bit by bit; `out` starts as NaN and has guard rows."""
    generator = np.random.default_rng(m * 7919 + n * 31 + k)
    operands = config.operands
    a = generator.integers(-scale, scale + 1, (m, k)).astype(NUMPY[operands.a])
    b = generator.integers(-scale, scale + 1, (k, n)).astype(NUMPY[operands.a])
    given_a = a if operands.a_major == "k" else np.asfortranarray(a)
    given_b = b if operands.b_major == "mn" else np.asfortranarray(b)
    if operands.a.bits == 8:
        given_a, given_b = given_a.view(np.uint8), given_b.view(np.uint8)
    whole = np.full((m + 2, n), np.nan, NUMPY[operands.out])
    out = whole[1:-1]
    report = simulate(given_a, given_b, out, config=config, card=H200.with_sms(sms), schedule=schedule, seed=seed, check=check,
                      dtype=operands.a.__name__)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(NUMPY[operands.out])
    np.testing.assert_array_equal(out.astype(np.float32), expected.astype(np.float32))
    assert np.isnan(whole[[0, -1]].astype(np.float32)).all()
    good = ("clean", "review", "incomplete") if config.splits_in_workspace else ("clean", "review")
    assert report.verdict in good or not report.stats.instructions, str(report)
    return report


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_example(name: str, schedule: str) -> None:
    if why := refusal(SUBJECTS[name]):
        pytest.skip(why)
    report, right = SUBJECTS[name].run(schedule=schedule, seed=3)
    assert right
    assert report.verdict in ("clean", "review"), str(report)


OVER_M, OVER_N, OVER_BOTH = (Static(cluster=ClusterShape(*shape)) for shape in ((2, 1), (1, 2), (2, 2)))
CONFIGURATIONS = [
    DenseConfig(), DenseConfig(Operands(f16, f16, f16), Tile(128, 128), scheduler=OVER_M),
    DenseConfig(Operands(out=f32, a_major="mn"), Tile(128, 64)), DenseConfig(Operands(f16, f16, f32, b_major="mn"), Tile(128, 192)),
    DenseConfig(Operands(out=f16, a_major="mn", b_major="mn"), Tile(128, 128), scheduler=OVER_N),
    DenseConfig(Operands(f16, f16, bf16), Tile(128, 64), scheduler=OVER_BOTH), DenseConfig(Operands(), Tile(64, 128), schedule=Pingpong()),
    DenseConfig(Operands(f16, f16, f16), Tile(64, 64), schedule=Pingpong(), scheduler=OVER_M),
    DenseConfig(Operands(out=f32), Tile(128, 64), scheduler=SplitK(2, "cluster")),
    DenseConfig(Operands(f16, f16, f32), Tile(128, 64), scheduler=SplitK(3)), DenseConfig(Operands(), Tile(64, 32)),
    DenseConfig(Operands(), Tile(192, 64), scheduler=Static(Swizzle("along_n", serpentine=True))),
    DenseConfig(Operands(e4m3, e4m3, bf16), Tile(128, 64)),
    DenseConfig(Operands(e4m3, e4m3, f32), Tile(128, 128), schedule=Cooperative(sums=Promoted()), scheduler=OVER_M),
    DenseConfig(Operands(e5m2, e5m2, f16), Tile(128, 64), store=Direct()),
    DenseConfig(Operands(f16, f16, bf16), Tile(128, 128), store=Direct())]


def ctas_of(config: DenseConfig) -> int:
    """The CTAs of a cluster, or those that share a K."""
    return max(config.cluster, config.splits)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("config", CONFIGURATIONS, ids=str)
def test_configurations(config: DenseConfig) -> None:
    """Two tiles of a CTA where it is persistent, tails in all three extents."""
    small = config.splits > 1
    product(72 if small else 264, 80 if small else config.tile.BN + 16, 272 if config.operands.a.bits == 8 else 200, config,
            sms=ctas_of(config), scale=2)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("config", [
    DenseConfig(Operands(), Tile(128, 64), 2), DenseConfig(Operands(), Tile(128, 64), 2, scheduler=OVER_M),
    DenseConfig(Operands(), Tile(64, 64), 2, Pingpong()), DenseConfig(Operands(out=f32), Tile(128, 64), 2, scheduler=SplitK(2)),
    DenseConfig(Operands(out=f32), Tile(128, 64), 2, scheduler=SplitK(2, "cluster"))], ids=str)
def test_schedules(schedule: str, config: DenseConfig) -> None:
    """More k steps than stages, two tiles of a CTA."""
    twice = config.multicast.m > 1 or isinstance(config.schedule, Pingpong)
    product(128 * (2 if twice else 1), 64, 256, config, sms=ctas_of(config), schedule=schedule, seed=1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8, 8), (1, 264, 72), (129, 8, 64), (127, 248, 56), (130, 72, 328), (128, 64, 64)])
def test_shapes(shape: tuple[int, int, int]) -> None:
    product(*shape, DenseConfig(Operands(f16, f16, f32), Tile(128, 128)))
    product(*shape, DenseConfig(Operands(), Tile(128, 64), scheduler=OVER_M), schedule="random", seed=sum(shape))


def test_no_k() -> None:
    product(16, 16, 0, DenseConfig())


small = st.integers(1, 300)
eights = st.integers(1, 38).map(lambda n: 8 * n)
majors = st.sampled_from(["k", "mn"])
orders = st.builds(Swizzle, st.sampled_from(["along_m", "along_n"]), st.sampled_from([1, 2, 8]), st.booleans())
clusters = st.builds(ClusterShape, st.sampled_from([1, 1, 2]), st.sampled_from([1, 1, 2]))
types = st.sampled_from([(f16, f16, f16), (bf16, bf16, bf16), (f16, f16, f32), (bf16, bf16, f32), (bf16, bf16, f16), (e4m3, e4m3, bf16)])
fields = st.fixed_dictionaries({
    "tile": st.builds(Tile, st.sampled_from([64, 128, 192]), st.sampled_from([32, 64, 96, 128, 256])), "stages": st.sampled_from([2, 3, 4]),
    "schedule": st.sampled_from([Cooperative(), Pingpong()]),
    "scheduler": st.builds(Static, orders, clusters) | st.builds(SplitK, st.sampled_from([2, 3]), st.sampled_from(["cluster", "workspace"]),
                                                                 orders),
    "store": st.sampled_from([None, Staged(), Direct()])})


def legal(given: tuple[tuple[Any, Any, Any], Any, Any, dict[str, Any]]) -> DenseConfig | None:
    types, a_major, b_major, rest = given
    try:
        return DenseConfig(Operands(*types, a_major=a_major, b_major=b_major), **rest)
    except ConfigError:
        return None


configs = st.tuples(types, majors, majors, fields).map(legal).filter(lambda config: config is not None)


def random_product(config: DenseConfig, m: int, n: int, k: int, sms: int, schedule: str, seed: int) -> None:
    operands = config.operands
    unit = 16 if operands.a.bits == 8 else 8
    m, n, k = m if operands.a_major == "k" else -(-m // unit) * unit, -(-n // unit) * unit, -(-k // unit) * unit
    k += (config.splits - 1) * config.tile.BK                # every split has something to add up
    try:
        product(m, n, k, config, sms=max(sms, ctas_of(config)), schedule=schedule, seed=seed, scale=2)
    except ConfigError:
        assume(False)


arguments = (configs, small, eights, eights, st.sampled_from([1, 2, 4, 132]), st.sampled_from(list(SCHEDULES)), st.integers(0, 99))


@settings(deadline=None, max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(*arguments)
def test_any_product(config: DenseConfig, m: int, n: int, k: int, sms: int, schedule: str, seed: int) -> None:
    random_product(config, m, n, k, sms, schedule, seed)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_many_products(request: pytest.FixtureRequest) -> None:
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")

    @settings(deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
    @given(*arguments)
    def many(config: DenseConfig, m: int, n: int, k: int, sms: int, schedule: str, seed: int) -> None:
        random_product(config, m, n, k, sms, schedule, seed)

    many()
