"""The real kernel on the CPU device."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxkit import sim
from ptxkit.cards import H200
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, Static, Tile
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.types import bf16, f16, f32

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
NUMPY = {bf16: ml_dtypes.bfloat16, f16: np.float16, f32: np.float32}


def product(m: int, n: int, k: int, *, TYPE: Any = bf16, OUT: Any = bf16, BN: int = 256, CLUSTER: int = 2, STAGES: int = 3,
            a_major: Any = "k", b_major: Any = "k", schedule: str = "fifo", seed: int = 0, ctas: int = 1000,
            check: bool = False) -> sim.Report:
    """Multiply small integers, whose products are exact in every order, and compare all bits."""
    scheduler: Any = Static(cluster=ClusterShape(CLUSTER, 1))  # type: ignore[arg-type]
    config = DenseConfig(Operands(TYPE, TYPE, OUT, a_major=a_major, b_major=b_major), Tile(128, BN), STAGES, scheduler=scheduler)
    generator = np.random.default_rng(m + n + k)
    a = generator.integers(-3, 4, (m, k)).astype(NUMPY[TYPE])
    b = generator.integers(-3, 4, (k, n)).astype(NUMPY[TYPE])
    d = np.full((m, n), 7, NUMPY[OUT])
    report = simulate(a if a_major == "k" else np.asfortranarray(a), np.asfortranarray(b) if b_major == "k" else b, d,
                      config=config, card=H200.with_sms(ctas), schedule=schedule, seed=seed, check=check)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(d.astype(np.float32), expected.astype(NUMPY[OUT]).astype(np.float32))
    return report


def test_square() -> None:
    report = product(512, 512, 512, check=True)
    assert not report.findings
    assert report.stats.opcodes["wgmma.commit_group.sync.aligned"] == 8 * 8 * 8


@pytest.mark.parametrize("TYPE", [bf16, f16])
@pytest.mark.parametrize("OUT", [bf16, f16, f32])
def test_types(TYPE: Any, OUT: Any) -> None:
    product(256, 128, 128, TYPE=TYPE, OUT=OUT, BN=128)


@pytest.mark.parametrize(("a_major", "b_major"), [("k", "mn"), ("mn", "k"), ("mn", "mn")])
@pytest.mark.parametrize("CLUSTER", [1, 2])
def test_majors(a_major: str, b_major: str, CLUSTER: int) -> None:
    product(256, 256, 128, a_major=a_major, b_major=b_major, CLUSTER=CLUSTER)


@pytest.mark.parametrize(("m", "n", "k"), [(8, 8, 8), (136, 264, 72), (200, 520, 200), (384, 64, 640)])
def test_ragged_shapes(m: int, n: int, k: int) -> None:
    product(m, n, k, BN=64, CLUSTER=1, STAGES=4)
    product(m, n, k, BN=128, CLUSTER=2, STAGES=3)


def test_persistent_ctas_go_on_to_the_next_tile() -> None:
    product(768, 512, 192, ctas=2)


@pytest.mark.parametrize("seed", range(4))
def test_any_schedule(seed: int) -> None:
    product(384, 512, 256, schedule="random", seed=seed, ctas=2)
