"""Kernels to tune, and a device whose launches take the time that a test says: the law of the tuner is then known beforehand."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxkit import Ptr, Reg, ctaid, if_, kernel, tid
from ptxkit.cards import H200, Card
from ptxkit.errors import LaunchError
from ptxkit.gemm.tools.bench import stub
from ptxkit.measure import timer
from ptxkit.measure.device import Cpu
from ptxkit.measure.power import Sample
from ptxkit.measure.regimes import Regime
from ptxkit.ptx import add, ld, mad, mov, st
from ptxkit.tuning.tune import Tuned
from ptxkit.types import f32, u32
from tests.collector import new_objects

BURST = Regime("burst", 1e-3, True, 0.0, 20)


@kernel(block=lambda config: config["THREADS"])
def axpy(x: Ptr[f32], y: Ptr[f32], n: Reg[u32], *, THREADS: int = 128, EACH: int = 1) -> None:
    """y += x. A thread has EACH values."""
    first = mad.lo.u32(mov.u32(ctaid.x), THREADS * EACH, mov.u32(tid.x))
    for step in range(EACH):
        i = first + step * THREADS
        with if_(i < n):
            st.global_.f32(y.at(i), add.rn.f32(ld.global_.f32(x.at(i)), ld.global_.f32(y.at(i))))


@kernel(block=32)
def parametric(y: Ptr[f32], *, A: int = 0, B: int = 0) -> None:
    """Stores A and B."""
    st.global_.v2.f32(y, (mov.f32(float(A)), mov.f32(float(B))))


@dataclass
class Clocked(Cpu):
    """`us(config)` is what a launch takes, with a relative `noise`; `writes` is what it does to its arguments. Nothing is simulated."""

    us: Callable[[Mapping[str, Any]], float]
    writes: Callable[[Mapping[str, Any], tuple[Any, ...]], None] = lambda config, arguments: None
    refuses: Callable[[Mapping[str, Any]], bool] = lambda config: False
    noise: float = 0.0
    seed: int = 0
    of: Card = H200
    mhz: int = 0
    launched: list[Mapping[str, Any]] = field(default_factory=list)
    checked: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(card=self.of)
        self.unit = "us"
        self.regimes = {"burst": BURST}
        self.source = random.Random(self.seed)

    def read(self) -> Any:
        return Sample(time.perf_counter(), self.mhz, 500.0, 50) if self.mhz else None

    def launch(self, kernel: Any, config: Mapping[str, Any], grid: Any, arguments: tuple[Any, ...]) -> Callable[[], None]:
        if self.refuses(config):
            raise LaunchError("CUDA_ERROR_INVALID_VALUE")
        whole = kernel.config(config)
        self.checked.append(whole)

        def run() -> None:
            self.launched.append(whole)
            self.writes(whole, arguments)
            self.counted += self.us(whole) * (1 + self.source.gauss(0, self.noise))

        return run


@contextmanager
def stubbed() -> Iterator[stub.Driver]:
    """A driver that does nothing: every graph takes 0.5 ms, every event has passed."""
    for cached in (timer._hold, timer.own_stream):
        cached.cache_clear()
    with stub.installed(H200) as made:
        made.results["cuEventElapsedTime"] = lambda start, end: (0.5,)
        made.results["cuEventQuery"] = lambda event: ()
        made.results["cuDeviceGetUuid"] = lambda handle: (None,)
        with new_objects():
            yield made
            gc.collect()                                        # what is left is given back to this driver
    for cached in (timer._hold, timer.own_stream):
        cached.cache_clear()


def tune(device: Clocked, space, tmp_path, **options) -> Tuned:
    return parametric.tune(space, grid=1, args=(np.zeros(2, np.float32),), device=device, results=tmp_path / "card.json", **options)
