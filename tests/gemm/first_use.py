"""Shapes that are tuned on their first use by a driver that does nothing, with a clock that a test sets."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.cards import H200, Card
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.dense import candidates
from ptxkit.gemm.heuristic.tuned import shape_of
from ptxkit.gemm.launch import adapter, dense, tuning
from ptxkit.gemm.tools.bench import stub
from ptxkit.gemm.tools.problems import asked
from ptxkit.settings import Settings

CARD = dataclasses.replace(H200, name="NVIDIA Card 9")
KIND = "bf16/bf16/nt"
SHAPE = (512, 1024, 768)


@pytest.fixture
def wishes(tmp_path, monkeypatch):
    """The settings of one test, with a cache directory of its own."""
    found = SimpleNamespace(**{field.name: getattr(Settings(tmp_path / "cache"), field.name) for field in dataclasses.fields(Settings)})
    for module in (tables, tuning):
        monkeypatch.setattr(module, "settings", lambda: found)
    with tables.nothing_tuned_here():
        yield found


@pytest.fixture
def card(wishes, caplog, monkeypatch):
    for module in (dense, adapter):
        monkeypatch.setattr(module, "card_of", functools.cache(lambda ordinal: CARD))
    with stub.installed(CARD) as made, caplog.at_level(logging.WARNING, "ptxkit"):
        yield made


def operands(m: int = SHAPE[0], n: int = SHAPE[1], k: int = SHAPE[2]) -> tuple[Any, Any, Any]:
    b = stub.array("bf16", k, n)
    b.strides = 1, k
    return stub.array("bf16", m, k), b, stub.array("bf16", m, n)


@dataclasses.dataclass
class Clock:
    """A timer by what a function says of configurations; `made` counts the products that were measured."""

    us: Callable[[DenseConfig], float]
    broken: Callable[[DenseConfig], bool] = lambda config: False
    made: int = 0
    closed: int = 0
    pause_s: float = 0.0
    shapes: list[tuple[int, ...]] = dataclasses.field(default_factory=list)

    def __call__(self, problem: Any, arrays: Any, ordinal: int, stream: int, launches: Any) -> Clock:
        self.made += 1
        self.shapes.append(shape_of(problem))
        time.sleep(self.pause_s)
        return self

    def admit(self, found: Sequence[DenseConfig], until: float) -> list[DenseConfig]:
        return [config for config in found if not self.broken(config)]

    def times(self, some: Sequence[DenseConfig], rounds: int) -> list[float]:
        return [self.us(config) for config in some]

    def close(self) -> None:
        self.closed += 1


def problem_of(shape: tuple[int, int, int] = SHAPE) -> Any:
    return asked(*shape)


def third(shape: tuple[int, int, int] = SHAPE, card: Card = CARD) -> DenseConfig:
    """A configuration that is not the heuristic's."""
    return list(candidates(problem_of(shape), card))[2]


def favourite(best: DenseConfig) -> Clock:
    return Clock(lambda config: 10.0 if config == best else 20.0)


def used(arrays: tuple[Any, Any, Any]) -> DenseConfig:
    """The configuration of the plan that a call of these arrays uses."""
    gemm.gemm(*arrays)
    (plan,) = [plan for plan in dense._plans.values() if plan.problem.d_lines.dims == tuple(reversed(arrays[2].shape))
               and plan.problem.k == arrays[0].shape[1]]
    return plan.config
