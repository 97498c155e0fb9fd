"""Where kernels are measured: a GPU, or the CPU device, which counts instructions. Both make launches on sets of arguments of their own."""

from __future__ import annotations

import copy
import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cards import H200, Card, of_device
from ..dsl.computed import computed
from ..dsl.tensormap import TensorMap
from ..errors import LaunchError, NoDriverError, PtxkitError, TraceError
from ..runtime import driver
from ..runtime.arrays import ArrayView, DeviceArray, view
from ..runtime.launch import same_device
from .asked import Arguments, Device, Given, Grid, Launch, Regime, Timer, Where
from .contest import NotImplementedHere
from .power import Reader
from .regimes import REGIMES, sets_that_are_cold
from .timer import DriverTimer, TorchTimer
from .values import decoded, span

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel

MOST_SETS = 64
POLL_S = 2e-4
ALIGNED = 256
"""An address keeps its place within as many bytes."""


class Lost(PtxkitError, RuntimeError):
    """A launch that does not end, or after which the card answers this process no longer."""


class WrongRun(PtxkitError):
    """A launch that the CPU device finds to be wrong."""


def grid_of(grid: Grid, config: Mapping[str, Any]) -> int | tuple[int, ...]:
    """The CTAs of a configuration, all its parameters with their values. Raises LaunchError, at the line of a function that raises."""
    if not callable(grid):
        return grid
    try:
        found: int | tuple[int, ...] = computed(grid, config, "grid")
    except TraceError as error:
        raise LaunchError(str(error)) from error.__cause__
    return found


def arrays_of(arguments: Arguments) -> list[Any]:
    """The arrays among arguments, also those of tensor maps and of records; each once."""
    found: dict[int, Any] = {}

    def look(value: Any) -> Any:
        found[id(value)] = value
        return value

    mapped(arguments, look)
    return list(found.values())


def mapped(arguments: Arguments, change: Callable[[Any], Any]) -> Arguments:
    """The arguments with another array in the place of each: the same one where an array stands twice."""
    known: dict[int, Any] = {}
    return tuple(_mapped(value, change, known) for value in arguments)


def _mapped(value: Any, change: Callable[[Any], Any], known: dict[int, Any]) -> Any:
    if isinstance(value, TensorMap):
        made = copy.copy(value)
        made.array = _mapped(value.array, change, known)
        return made
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _mapped(getattr(value, each.name), change, known) for each in fields(value) if each.init})
    if isinstance(value, Mapping):
        return {name: _mapped(inner, change, known) for name, inner in value.items()}
    if not is_array(value):
        return value
    if id(value) not in known:
        known[id(value)] = change(value)
    return known[id(value)]


def is_array(value: Any) -> bool:
    """Whether a launch takes this for an array, on a device or on the host."""
    if isinstance(value, np.generic):
        return False
    return isinstance(value, DeviceArray | ArrayView) or (hasattr(value, "shape") and hasattr(value, "dtype"))


# ------------------------------------------------------------------------------------------------------------------- a GPU


def card_of(ordinal: int) -> Card:
    """The card of a device."""
    this = driver.device(ordinal)
    return of_device(this.name, this.multiprocessors, memory_gbs=this.memory_gbs, clock_mhz=this.clock_mhz,
                     l2_mib=this.l2_bytes / (1 << 20))


class Gpu:
    """The device of some arguments. Arrays of torch are launched on torch's streams, others on a stream of this object's."""

    unit = "us"
    regimes: Mapping[str, Regime] = REGIMES

    def __init__(self, arguments: Arguments) -> None:
        driver.probe()
        views = [("an argument", view(array)) for array in arrays_of(arguments)]
        self.ordinal = same_device(views) if views else driver.current_device()
        self.l2_bytes = driver.device(self.ordinal).l2_bytes
        self.card = card_of(self.ordinal)
        torch = sys.modules["torch"] if any(seen.owner == "torch" for _, seen in views) else None
        self.torch = torch
        self.timer: Timer = DriverTimer(self.ordinal) if torch is None else TorchTimer(torch)
        self.stream = self.timer.stream if isinstance(self.timer, DriverTimer) else None
        self.sensors = Reader(self.ordinal, _uuid(self.ordinal))

    def places(self, arguments: Arguments) -> int:
        size = sum(span(view(array)) for array in arrays_of(arguments))
        return sets_that_are_cold(size, self.l2_bytes, MOST_SETS) if size else 1

    def copied(self, arguments: Arguments) -> Arguments:
        made = mapped(arguments, self._like)
        self.restore(made, arguments)
        return made

    def _like(self, array: Any) -> Any:
        """Room for an array of the same kind, shape, strides and alignment."""
        seen = view(array)
        if seen.owner == "ptxkit" and isinstance(array, DeviceArray):
            return DeviceArray(array.shape, array.dtype, array.device)
        if seen.owner == "torch" and self.torch is not None:
            item = array.element_size()
            lead = seen.pointer % ALIGNED // item
            room = self.torch.empty(lead + span(seen) // item, dtype=array.dtype, device=array.device)
            return room.as_strided(tuple(array.shape), tuple(array.stride()), lead)
        if seen.owner == "cupy" and array.flags.c_contiguous:
            return sys.modules["cupy"].empty_like(array)
        raise LaunchError(f"arrays of {type(array).__module__.partition('.')[0]} of shape {seen.shape} and strides {seen.strides} are not "
                          "copied here: give args= a function that makes a new set of arguments each time it is called")

    def restore(self, arguments: Arguments, source: Arguments) -> None:
        with driver.on(self.ordinal):
            driver.call("cuCtxSynchronize")             # whoever wrote the source, on whatever stream
            for target, origin in zip(arrays_of(arguments), arrays_of(source), strict=True):
                seen = view(origin)
                driver.call("cuMemcpyDtoD", view(target).pointer, seen.pointer, span(seen))
            driver.call("cuCtxSynchronize")

    def poison(self, array: Any) -> None:
        seen = view(array)
        with driver.on(self.ordinal):
            driver.call("cuMemsetD8", seen.pointer, 0xFF, span(seen))
            driver.call("cuCtxSynchronize")

    def launch(self, kernel: Kernel[...], config: Mapping[str, Any], grid: Grid, arguments: Arguments) -> Launch:
        with driver.on(self.ordinal), driver.beside_captures():
            compiled = kernel.compile(**config)
            compiled.launcher()
        return functools.partial(compiled, grid_of(grid, kernel.config(config)), *arguments, stream=self.stream)

    def foreign(self, function: Callable[..., Any], arguments: Arguments) -> Launch:
        return functools.partial(function, *arguments, **({} if self.stream is None else {"stream": self.stream}))

    def finish(self, patience_s: float) -> None:
        """By looking again and again: a wait inside the driver cannot be ended."""
        until = time.monotonic() + patience_s
        try:
            event = self.timer.event()
            with self.timer.aside():
                event.record()
            while not event.query():
                if time.monotonic() > until:
                    driver.abandon(self.ordinal)
                    raise Lost(f"it does not end: nothing happened for {patience_s:g} s")
                time.sleep(POLL_S)
        except (LaunchError, RuntimeError) as error:        # after a fault every call fails, until the process ends
            raise error if isinstance(error, Lost) else Lost(str(error).splitlines()[0]) from None

    def raw(self, array: Any) -> Any:
        seen = view(array)
        host = np.empty(span(seen), np.uint8)
        driver.copy_to_host(host.ctypes.data, seen.pointer, host.nbytes, self.ordinal)
        return host

    def values(self, array: Any, raw: Any = None) -> Any:
        seen = view(array)
        flat = decoded(self.raw(array) if raw is None else raw, seen.dtype)
        return np.lib.stride_tricks.as_strided(flat, seen.shape, tuple(flat.itemsize * stride for stride in seen.strides)).copy()

    def about(self) -> dict[str, Any]:
        this = driver.device(self.ordinal)
        found = {"name": this.name, "multiprocessors": this.multiprocessors, "l2_bytes": this.l2_bytes,
                 "driver": ".".join(map(str, driver.driver_version()))}
        return found if self.torch is None else {**found, "torch": self.torch.__version__}


def _uuid(ordinal: int) -> str:
    """The name of a device among all of the machine; empty where the driver does not tell."""
    try:
        raw = bytes(driver.call("cuDeviceGetUuid", driver.call("cuDeviceGet", ordinal)).bytes)[:16].hex()
    except (PtxkitError, AttributeError, TypeError):
        return ""
    return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


# -------------------------------------------------------------------------------------------------------- the CPU device


Cost = Callable[[Mapping[str, Any], Any], float]
"""What a launch costs, from its configuration and the report of its run."""
COUNT = Regime("instructions", 1.0, False, 0.0, 1)


class CountedEvent:
    """A reading of a counter."""

    def __init__(self, device: Cpu) -> None:
        self.device, self.at = device, 0.0

    def record(self) -> None:
        self.at = self.device.counted

    def synchronize(self) -> None:
        """Nothing is in flight."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: CountedEvent) -> float:
        return (end.at - self.at) / 1e3


class CountedGraph:
    """Launches one after another."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = launches

    def replay(self) -> None:
        for launch in self.launches:
            launch()


class CpuTimer:
    """A clock that launches advance by what they cost."""

    def __init__(self, device: Cpu) -> None:
        self.device = device

    def aside(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def event(self) -> CountedEvent:
        return CountedEvent(self.device)

    def hold(self) -> None:
        """Nothing is ahead of anything."""

    def graph(self, launches: Sequence[Launch]) -> CountedGraph:
        return CountedGraph(launches)

    def synchronize(self) -> None:
        """Nothing is in flight."""


class Cpu:
    """The CPU device: a launch is a run under its checker, and costs the warp instructions that it executes, or what `cost` says.

    It says whether points are right, and what they execute; not how long that takes on a card. A kernel is run once for each configuration
    and check: its cost is then known.
    """

    unit = "warp instructions"
    regimes: Mapping[str, Regime] = {COUNT.name: COUNT}

    def __init__(self, cost: Cost | None = None, card: Card = H200) -> None:
        self.cost = cost or (lambda config, report: float(report.stats.instructions))
        self.card = card
        self.timer: Timer = CpuTimer(self)
        self.sensors = self
        self.counted = 0.0

    def read(self) -> None:
        """No sensor."""

    def places(self, arguments: Arguments) -> int:
        return 1

    def copied(self, arguments: Arguments) -> Arguments:
        return mapped(arguments, lambda array: array.copy())

    def restore(self, arguments: Arguments, source: Arguments) -> None:
        for target, origin in zip(arrays_of(arguments), arrays_of(source), strict=True):
            target[...] = origin

    def poison(self, array: Any) -> None:
        np.atleast_1d(array).view(np.uint8)[...] = 0xFF

    def launch(self, kernel: Kernel[...], config: Mapping[str, Any], grid: Grid, arguments: Arguments) -> Launch:
        whole = kernel.config(config)
        report: Any = None

        def run() -> None:
            nonlocal report
            if report is None:
                report = kernel.simulate(grid_of(grid, whole), *arguments, card=self.card, **config)
                if report.verdict == "error":
                    raise WrongRun(str(next(finding for finding in report.findings if finding.severity == "error")))
            self.counted += self.cost(whole, report)

        return run

    def foreign(self, function: Callable[..., Any], arguments: Arguments) -> Launch:
        raise NotImplementedHere("the CPU device counts what kernels execute, not what other functions do")

    def finish(self, patience_s: float) -> None:
        """A run ends, or its checker says why not."""

    def raw(self, array: Any) -> Any:
        return np.array(array).reshape(-1).view(np.uint8)

    def values(self, array: Any, raw: Any = None) -> Any:
        return np.asarray(array).astype(np.float64)

    def about(self) -> dict[str, Any]:
        return {"name": f"the CPU device, as {self.card.name}"}


def device_of(where: Where, arguments: Arguments) -> Device:
    """The device that is meant. Raises NoDriverError for "gpu" where there is none."""
    if where == "gpu":
        try:
            return Gpu(arguments)
        except NoDriverError as error:
            raise NoDriverError(f"{error}; `device=\"cpu\"` counts instructions on the CPU device") from None
    if where == "cpu":
        return Cpu()
    if isinstance(where, str) or not all(hasattr(where, name) for name in Device.__annotations__):
        raise PtxkitError(f"device={where!r} is not a device: it is 'gpu', 'cpu' or an object as ptxkit.measure.device.Device describes it")
    return where


def arguments_of(kernel: Kernel[...], given: Given) -> Arguments:
    """One set of arguments. Raises LaunchError unless there are as many as the kernel has parameters."""
    made = given() if callable(given) else given
    if not isinstance(made, tuple | list):
        raise LaunchError(f"args= is a tuple of the arguments of kernel `{kernel.name}`, or a function that makes one, not {made!r}")
    made = tuple(made)
    if len(made) != len(kernel.arguments):
        names = ", ".join(kernel.arguments) or "none"
        raise LaunchError(f"kernel `{kernel.name}` takes {len(kernel.arguments)} arguments ({names}), args= has {len(made)}")
    return made


def sets_of(device: Device, given: Given, first: Arguments, cold: bool) -> list[Arguments]:
    """Sets of arguments that measurements may write: as many as are cold, or as there is memory for."""
    found: list[Arguments] = []
    for _ in range(device.places(first) if cold else 1):
        try:
            found.append(tuple(given()) if callable(given) else device.copied(first))
        except (LaunchError, RuntimeError, MemoryError):
            if not found:
                raise
            break
    device.timer.synchronize()
    return found


__all__ = ["Arguments", "Cpu", "Device", "Given", "Gpu", "Grid", "Lost", "Where", "WrongRun", "arguments_of", "arrays_of", "card_of",
           "device_of", "grid_of", "is_array", "mapped", "sets_of"]
