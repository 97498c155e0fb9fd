"""Dense products of jax that are compiled for a GPU inside `with gemm.tuning():`, by a driver that does nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.gemm.launch import steps
from tests.jax import wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402

from ptxkit.errors import LaunchError  # noqa: E402
from ptxkit.gemm.heuristic.dense import heuristic  # noqa: E402
from ptxkit.jax import export, plans  # noqa: E402
from ptxkit.jax import gemm as multiply  # noqa: E402
from ptxkit.runtime import driver  # noqa: E402
from tests.gemm.first_use import CARD, SHAPE, card, favourite, problem_of, third, wishes  # noqa: E402, F401

pytestmark = pytest.mark.ptxas


@pytest.fixture
def configs(card: Any, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """The configurations of the plans that the handler gets."""
    found, plan = [], steps.Plan

    def noted(*given: Any) -> Any:
        made = plan(*given)
        found.append(made.config)
        return made

    monkeypatch.setattr(steps, "Plan", noted)
    monkeypatch.setattr(steps, "card_of", lambda ordinal: CARD)
    plans.plan.cache_clear()
    yield found
    plans.plan.cache_clear()


def compiled() -> None:
    m, n, k = SHAPE
    export(lambda a, b: multiply(a, b, transpose_b=True), platforms=["cuda"])(jax.ShapeDtypeStruct((m, k), jnp.bfloat16),
                                                                             jax.ShapeDtypeStruct((n, k), jnp.bfloat16))


def test_a_product_is_tuned_when_it_is_compiled_and_stays_so(configs: list[Any]) -> None:
    best = third()
    clock = favourite(best)
    with gemm.tuning(timer=clock):
        compiled()
        compiled()
    assert (clock.made, clock.closed, clock.shapes) == (1, 1, [SHAPE])
    assert configs == [best]
    plans.plan.cache_clear()
    compiled()
    assert configs == [best, best]


def test_without_a_block_nothing_is_tuned_or_allocated(configs: list[Any], card: Any) -> None:  # noqa: F811
    card.calls.clear()
    compiled()
    assert configs == [heuristic(problem_of(), CARD)]
    assert card.calls["cuMemcpyHtoD"] == 0


def test_its_memory_is_given_back_and_a_failure_is_said(configs: list[Any], card: Any, caplog: pytest.LogCaptureFixture,  # noqa: F811
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    allocate, free = driver.allocate, driver.free

    def full(size: int, ordinal: int) -> int:
        if len(held) == 2:
            raise LaunchError("the device has no memory left")
        held.append(allocate(size, ordinal))
        return held[-1]

    with monkeypatch.context() as patch:
        patch.setattr(driver, "allocate", full)
        patch.setattr(driver, "free", lambda address, ordinal: held.remove(address) or free(address, ordinal))
        with gemm.tuning(timer=favourite(third())):
            compiled()
    assert held == []
    assert configs == [heuristic(problem_of(), CARD)]
    assert "was not tuned and keeps its configuration: the device has no memory left" in caplog.text
