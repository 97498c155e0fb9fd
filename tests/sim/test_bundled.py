"""Every bundled kernel and example on the CPU device, checked, under several schedules; outputs start poisoned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from ptxkit import sim
from ptxkit.gemm.config.dense import Config, ConfigError
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.sim.policy import SCHEDULES
from ptxkit.types import bf16, e4m3, e5m2, f16, f32

from .mutants.outcome import refusal
from .mutants.subjects import NUMPY, SUBJECTS

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
EXAMPLES = ["cluster_multicast", "row_sums", "tile_gemm", "tma_copy", "vector_add"]


def product(m: int, n: int, k: int, config: Config, *, sms: int = 132, schedule: str = "fifo", seed: int = 0, check: bool = True,
            scale: int = 3) -> sim.Report:
    """One product of small integers, exact in every order, compared bit by bit; `out` starts as NaN and has guard rows."""
    generator = np.random.default_rng(m * 7919 + n * 31 + k)
    a = generator.integers(-scale, scale + 1, (m, k)).astype(NUMPY[config.a])
    b = generator.integers(-scale, scale + 1, (k, n)).astype(NUMPY[config.a])
    given_a = a if config.a_major == "k" else np.asfortranarray(a)
    given_b = b if config.b_major == "mn" else np.asfortranarray(b)
    if config.a.bits == 8:
        given_a, given_b = given_a.view(np.uint8), given_b.view(np.uint8)
    whole = np.full((m + 2, n), np.nan, NUMPY[config.out])
    out = whole[1:-1]
    report = simulate(given_a, given_b, out, config=config, sms=sms, schedule=schedule, seed=seed, check=check, dtype=config.a.__name__)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(NUMPY[config.out])
    np.testing.assert_array_equal(out.astype(np.float32), expected.astype(np.float32))
    assert np.isnan(whole[[0, -1]].astype(np.float32)).all()
    good = ("clean", "review", "incomplete") if config.SPLITS > 1 and config.REDUCE == "workspace" else ("clean", "review")
    assert report.verdict in good or not report.stats.instructions, str(report)
    return report


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_example(name: str, schedule: str) -> None:
    if why := refusal(SUBJECTS[name]):
        pytest.skip(why)
    report, right = SUBJECTS[name].run(schedule=schedule, seed=3)
    assert right
    assert report.verdict in ("clean", "review"), str(report)


CONFIGURATIONS = [
    (bf16, bf16, {}), (f16, f16, {"BN": 128, "CLUSTER_M": 2}), (bf16, f32, {"BN": 64, "a_major": "mn"}),
    (f16, f32, {"BN": 192, "b_major": "mn"}),
    (bf16, f16, {"BN": 128, "CLUSTER_N": 2, "a_major": "mn", "b_major": "mn"}), (f16, bf16, {"BN": 64, "CLUSTER_M": 2, "CLUSTER_N": 2}),
    (bf16, bf16, {"BM": 64, "BN": 128, "PINGPONG": True}), (f16, f16, {"BM": 64, "BN": 64, "PINGPONG": True, "CLUSTER_M": 2}),
    (bf16, f32, {"BN": 64, "SPLITS": 2, "REDUCE": "cluster"}), (f16, f32, {"BN": 64, "SPLITS": 3, "REDUCE": "workspace"}),
    (bf16, bf16, {"BM": 64, "BN": 32}), (bf16, bf16, {"BM": 192, "BN": 64, "RASTER": "along_n", "SERPENTINE": True}),
    (e4m3, bf16, {"BN": 64}), (e4m3, f32, {"BN": 128, "PROMOTE": True, "CLUSTER_M": 2}), (e5m2, f16, {"BN": 64, "STORE": "direct"}),
    (f16, bf16, {"BN": 128, "STORE": "direct"})]


@pytest.mark.parametrize(("dtype", "out", "form"), CONFIGURATIONS)
def test_configurations(dtype: Any, out: Any, form: dict[str, Any]) -> None:
    """Two tiles of a CTA where it is persistent, tails in all three extents."""
    config = Config(dtype, out, **form)
    small = "SPLITS" in form
    product(72 if small else 264, 80 if small else config.BN + 16, 272 if dtype.bits == 8 else 200, config,
            sms=config.cluster * config.SPLITS, scale=2)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("form", [{}, {"CLUSTER_M": 2}, {"BM": 64, "PINGPONG": True}, {"SPLITS": 2, "REDUCE": "workspace"},
                                  {"SPLITS": 2, "REDUCE": "cluster"}], ids=str)
def test_schedules(schedule: str, form: dict[str, Any]) -> None:
    """More k steps than stages, two tiles of a CTA."""
    config = Config(bf16, f32 if "SPLITS" in form else bf16, BN=64, STAGES=2, **form)
    product(128 * (2 if "CLUSTER_M" in form or "PINGPONG" in form else 1), 64, 256, config, sms=config.cluster * config.SPLITS,
            schedule=schedule, seed=1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8, 8), (1, 264, 72), (129, 8, 64), (127, 248, 56), (130, 72, 328), (128, 64, 64)])
def test_shapes(shape: tuple[int, int, int]) -> None:
    product(*shape, Config(f16, f32, BN=128))
    product(*shape, Config(bf16, bf16, BN=64, CLUSTER_M=2), schedule="random", seed=sum(shape))


def test_no_k() -> None:
    product(16, 16, 0, Config(bf16, bf16))


small = st.integers(1, 300)
eights = st.integers(1, 38).map(lambda n: 8 * n)
majors = st.sampled_from(["k", "mn"])
forms = st.fixed_dictionaries({
    "BM": st.sampled_from([64, 128, 192]), "BN": st.sampled_from([32, 64, 96, 128, 256]), "a_major": majors, "b_major": majors,
    "STAGES": st.sampled_from([2, 3, 4]), "CLUSTER_M": st.sampled_from([1, 1, 2]), "CLUSTER_N": st.sampled_from([1, 1, 2]),
    "PINGPONG": st.booleans(), "SPLITS": st.sampled_from([1, 1, 2, 3]), "REDUCE": st.sampled_from(["cluster", "workspace"]),
    "GROUP": st.sampled_from([1, 2, 8]), "RASTER": st.sampled_from(["along_m", "along_n"]), "SERPENTINE": st.booleans(),
    "STORE": st.sampled_from([None, "staged", "direct"])})
types = st.sampled_from([(f16, f16), (bf16, bf16), (f16, f32), (bf16, f32), (bf16, f16), (e4m3, bf16)])


def valid(given: tuple[Any, dict[str, Any]]) -> Config | None:
    (a, out), form = given
    try:
        return Config(a, out, **form)
    except ConfigError:
        return None


configs = st.tuples(types, forms).map(valid).filter(lambda config: config is not None)


def random_product(config: Config, m: int, n: int, k: int, sms: int, schedule: str, seed: int) -> None:
    unit = 16 if config.a.bits == 8 else 8
    m, n, k = m if config.a_major == "k" else -(-m // unit) * unit, -(-n // unit) * unit, -(-k // unit) * unit
    k += (config.SPLITS - 1) * config.BK                     # every split has something to add up
    try:
        product(m, n, k, config, sms=max(sms, config.cluster * config.SPLITS), schedule=schedule, seed=seed, scale=2)
    except ConfigError:
        assume(False)


arguments = (configs, small, eights, eights, st.sampled_from([1, 2, 4, 132]), st.sampled_from(list(SCHEDULES)), st.integers(0, 99))


@settings(deadline=None, max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(*arguments)
def test_any_product(config: Config, m: int, n: int, k: int, sms: int, schedule: str, seed: int) -> None:
    random_product(config, m, n, k, sms, schedule, seed)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_many_products(request: pytest.FixtureRequest) -> None:
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")

    @settings(deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
    @given(*arguments)
    def many(config: Config, m: int, n: int, k: int, sms: int, schedule: str, seed: int) -> None:
        random_product(config, m, n, k, sms, schedule, seed)

    many()
