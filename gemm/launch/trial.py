"""Measures configurations of one product on the device, on copies of its arrays: what a call was given is read, and not written.

Operands are cold: sets of them in turn are more than the L2 holds several times. Launches are captured in graphs, which are run in turn in
random order; each graph once before the one that is timed, so that the device has work when the first event is recorded.
"""

from __future__ import annotations

import functools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np

from ptxkit.errors import LaunchError, NoToolError, PtxkitError
from ptxkit.measure.regimes import sets_that_are_cold
from ptxkit.measure.timer import captured
from ptxkit.measure.values import apart, decoded, span
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..problem.dense import Arrays
from .grid import kernel_of

MOST_SETS = 64
GRAPH_US = 500.0
MOST_LAUNCHES = 512             # of a graph
JOBS = 4                        # that assemble
ROWS = 8                        # of D that are compared
APART = 2e-2
"""The relative error of D, by the Frobenius norm, up to which two configurations agree: they add up in another order."""
_ALIGNED = 256                  # bytes: an address keeps its place within as many


class Launch(Protocol):
    """A product that is ready to run."""

    def run(self, stream: int) -> None:
        """Launch on a stream."""


Launches = Callable[[DenseConfig, Sequence[Arrays]], list[Launch]]
"""The launches of a product with a configuration, on each of some arrays. Raises where it cannot be had."""


class DeviceTimer:
    """Of one product. It holds device memory, graphs and events until it is closed."""

    def __init__(self, arrays: Arrays, ordinal: int, stream: int, launches: Launches) -> None:
        self.ordinal, self.made = ordinal, launches
        self.held: list[int] = []
        self.launches: dict[DenseConfig, list[Launch]] = {}
        self.graphs: dict[DenseConfig, tuple[Any, int]] = {}
        self.reference: Any = None
        self.order = random.Random(0)
        with self._here():
            self.stream = _stream(ordinal)
            self.events = [driver.call("cuEventCreate", 0) for _ in range(2)]
            driver.call("cuStreamSynchronize", stream)      # what is copied is there, and nothing runs beside what is timed
            try:
                self.sets = self._copies(arrays)
            except PtxkitError:
                self.close()
                raise

    @contextmanager
    def _here(self) -> Iterator[None]:
        with driver.on(self.ordinal), driver.beside_captures():
            yield

    def _copies(self, arrays: Arrays) -> list[Arrays]:
        """The arrays in as many places as make them cold, or as there is memory for."""
        size = sum(span(array) for array in arrays[:3])
        count = sets_that_are_cold(size, driver.device(self.ordinal).l2_bytes, MOST_SETS)
        found: list[Arrays] = []
        for _ in range(count):
            try:
                found.append(arrays._replace(a=self._copy(arrays.a), b=self._copy(arrays.b), out=self._copy(arrays.out)))
            except LaunchError:
                if not found:
                    raise
                break
        driver.call("cuStreamSynchronize", self.stream)
        return found

    def _copy(self, array: ArrayView) -> ArrayView:
        size = span(array)
        made = driver.allocate(size + _ALIGNED, self.ordinal)
        self.held.append(made)
        place = made + array.pointer % _ALIGNED
        driver.call("cuMemcpyDtoDAsync", place, array.pointer, size, self.stream)
        return array._replace(pointer=place)

    # --------------------------------------------------------------------------------------------------- what can be launched

    def admit(self, found: Sequence[DenseConfig], until: float) -> list[DenseConfig]:
        """Those that can be launched and give what the first one gives."""
        right: list[DenseConfig] = []
        with ThreadPoolExecutor(JOBS) as pool:
            waiting = [pool.submit(_assemble, config) for config in found]
            for config, assembled in zip(found, waiting, strict=True):
                if right and time.monotonic() > until:
                    break
                with suppress(PtxkitError), self._here():   # refused by the assembler or the driver
                    assembled.result()
                    self.launches[config] = self.made(config, self.sets)
                    if self._agrees(config):
                        right.append(config)
            pool.shutdown(wait=False, cancel_futures=True)
        return right

    def _agrees(self, config: DenseConfig) -> bool:
        """Whether its D is that of the first configuration; D is full of NaN before."""
        out = self.sets[0].out
        driver.call("cuMemsetD8Async", out.pointer, 0xFF, span(out), self.stream)
        self.launches[config][0].run(int(self.stream))
        driver.call("cuStreamSynchronize", self.stream)
        sample = rows_of(out, self.ordinal)
        if self.reference is None:
            self.reference = sample
            return True
        return apart(sample, self.reference) <= APART

    # --------------------------------------------------------------------------------------------------- how long it takes

    def times(self, some: Sequence[DenseConfig], rounds: int) -> list[float]:
        """The medians, in microseconds."""
        with self._here():
            for config in some:
                if config not in self.graphs:
                    self.graphs[config] = self._graph(config)
            seen: dict[DenseConfig, list[float]] = {config: [] for config in some}
            for _ in range(rounds):
                for config in self.order.sample(list(seen), len(seen)):
                    seen[config].append(self._timed(*self.graphs[config]))
        return [statistics.median(seen[config]) for config in some]

    def _graph(self, config: DenseConfig) -> tuple[Any, int]:
        """Launches of a configuration as a graph, on all sets in turn, and how many they are."""
        launches = self.launches[config]
        once = self._captured(launches)
        least = self._timed(once, len(launches))
        turns = max(1, min(round(GRAPH_US / max(0.1, least * len(launches))), MOST_LAUNCHES // len(launches)))
        if turns == 1:
            return once, len(launches)
        driver.call("cuGraphExecDestroy", once)
        return self._captured(launches * turns), turns * len(launches)

    def _captured(self, launches: Sequence[Launch]) -> Any:
        return captured(self.stream, [functools.partial(launch.run, int(self.stream)) for launch in launches], self.ordinal)

    def _timed(self, graph: Any, count: int) -> float:
        """Microseconds of a launch."""
        start, end = self.events
        driver.call("cuGraphLaunch", graph, self.stream)
        driver.call("cuEventRecord", start, self.stream)
        driver.call("cuGraphLaunch", graph, self.stream)
        driver.call("cuEventRecord", end, self.stream)
        driver.call("cuEventSynchronize", end)
        return 1e3 * float(driver.call("cuEventElapsedTime", start, end)) / count

    def close(self) -> None:
        """Gives back memory, graphs and events. What could not be run leaves nothing to wait for."""
        with self._here():
            for graph, _ in self.graphs.values():
                with suppress(LaunchError):
                    driver.call("cuGraphExecDestroy", graph)
            for event in self.events:
                with suppress(LaunchError):
                    driver.call("cuEventDestroy", event)
            for address in self.held:
                with suppress(LaunchError):
                    driver.free(address, self.ordinal)
        self.graphs, self.events, self.held = {}, [], []


@functools.cache
def _stream(ordinal: int) -> Any:
    """The stream that products are tuned on, whose workspace is kept."""
    with driver.on(ordinal):
        return driver.new_stream()


def _assemble(config: DenseConfig) -> None:
    """Brings the kernel into the cache of cubins. Without an assembler the driver assembles it when it is loaded."""
    with suppress(NoToolError):
        kernel_of(config).assemble(**config.parameters)


def rows_of(out: ArrayView, ordinal: int) -> Any:
    """Some rows of a result, as float64: of the first and the last of a batch."""
    *outer, m, n = out.shape
    size, found = TYPES[out.dtype].bits // 8, []
    batches = [0, out.strides[0] * (outer[0] - 1)] if outer else [0]
    for batch in dict.fromkeys(batches):
        for row in dict.fromkeys(round(place) for place in np.linspace(0, m - 1, min(ROWS, m))):
            host = np.zeros(n * size, np.uint8)
            driver.copy_to_host(host.ctypes.data, out.pointer + (batch + row * out.strides[-2]) * size, host.nbytes, ordinal)
            found.append(decoded(host, out.dtype))
    return np.stack(found)


__all__ = ["DeviceTimer", "Launches", "rows_of"]
