"""Every bundled kernel and example on the CPU device, checked, under several schedules; outputs start poisoned."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemm.config import Config
from gemm.simulate import simulate
from ptxkit import sim
from ptxkit.sim.policy import SCHEDULES
from ptxkit.types import bf16, f16, f32

from ..gemm.test_config import PAIRS
from .mutants.outcome import refusal
from .mutants.subjects import SUBJECTS

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
NUMPY = {bf16: ml_dtypes.bfloat16, f16: np.float16, f32: np.float32}
EXAMPLES = ["cluster_multicast", "row_sums", "tile_gemm", "tma_copy", "vector_add"]


def product(m: int, n: int, k: int, config: Config, *, sms: int = 132, schedule: str = "fifo", seed: int = 0, check: bool = True,
            scale: int = 3) -> sim.Report:
    """One product of small integers, exact in every order, compared bit by bit; `out` starts as NaN and has guard rows."""
    generator = np.random.default_rng(m * 7919 + n * 31 + k)
    a = generator.integers(-scale, scale + 1, (m, k)).astype(NUMPY[config.dtype])
    b = generator.integers(-scale, scale + 1, (k, n)).astype(NUMPY[config.dtype])
    given_a = a if config.a_major == "k" else np.asfortranarray(a)
    given_b = b if config.b_major == "mn" else np.asfortranarray(b)
    whole = np.full((m + 2, n), np.nan, NUMPY[config.out])
    out = whole[1:-1]
    report = simulate(given_a, given_b, out, config=config, sms=sms, schedule=schedule, seed=seed, check=check)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(NUMPY[config.out])
    np.testing.assert_array_equal(out.astype(np.float32), expected.astype(np.float32))
    assert np.isnan(whole[[0, -1]].astype(np.float32)).all()
    assert report.verdict in ("clean", "review") or not report.stats.instructions, str(report)
    return report


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_example(name: str, schedule: str) -> None:
    if why := refusal(SUBJECTS[name]):
        pytest.skip(why)
    report, right = SUBJECTS[name].run(schedule=schedule, seed=3)
    assert right
    assert report.verdict in ("clean", "review"), str(report)


@pytest.mark.parametrize(("dtype", "out", "a_major", "b_major", "BN", "CLUSTER"), PAIRS)
def test_configurations(dtype: Any, out: Any, a_major: Any, b_major: Any, BN: int, CLUSTER: int) -> None:
    """Every pair of choices, two tiles of a CTA, tails in all three extents."""
    product(264, BN + 8, 136, Config(dtype, out, a_major, b_major, BN, CLUSTER=CLUSTER), sms=CLUSTER)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("CLUSTER", [1, 2])
def test_schedules(schedule: str, CLUSTER: int) -> None:
    """More k steps than stages, two tiles of a CTA."""
    product(256 * CLUSTER, 64, 256, Config(bf16, bf16, BN=64, STAGES=2, CLUSTER=CLUSTER), sms=CLUSTER, schedule=schedule, seed=1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8, 8), (1, 264, 72), (129, 8, 64), (127, 248, 56), (130, 72, 328), (128, 64, 64)])
def test_shapes(shape: tuple[int, int, int]) -> None:
    product(*shape, Config(f16, f32, BN=128, CLUSTER=1))
    product(*shape, Config(bf16, bf16, BN=64, CLUSTER=2), schedule="random", seed=sum(shape))


def test_no_k() -> None:
    product(16, 16, 0, Config(bf16, bf16))


small = st.integers(1, 300)
eights = st.integers(1, 38).map(lambda n: 8 * n)
majors = st.sampled_from(["k", "mn"])
choices = st.tuples(st.sampled_from([f16, bf16]), st.sampled_from([f16, bf16, f32]), majors, majors, st.sampled_from([64, 128, 256]),
                    st.sampled_from([2, 3, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 8]))
configs = choices.filter(lambda c: c[4] // 64 >= c[6]).map(lambda c: Config(c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]))


def random_product(config: Config, m: int, n: int, k: int, sms: int, schedule: str, seed: int) -> None:
    if config.a_major == "mn":
        m = -(-m // 8) * 8
    product(m, n, k, config, sms=max(sms, config.CLUSTER), schedule=schedule, seed=seed)


arguments = (configs, small, eights, eights, st.sampled_from([1, 2, 4, 132]), st.sampled_from(list(SCHEDULES)), st.integers(0, 99))


@settings(deadline=None, max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
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
