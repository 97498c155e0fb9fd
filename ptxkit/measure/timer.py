"""What a measurement needs of a card: events, graphs of launches, and something to be busy with. By torch, or by the driver alone."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import Position
from ..runtime import compiled, driver
from ..runtime.launcher import Launcher
from .asked import Event, Graph, Launch, Timer

HOLD_CYCLES = 400_000
"""For 0.2 ms the card spins, so that the graph is enqueued before the first event is passed, and its launch is not timed."""


@contextmanager
def nothing_collected() -> Iterator[None]:
    """A graph of an earlier measurement that is collected while another one is captured ends that capture with an error."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class TorchTimer:
    """Launches on torch's current stream, of torch tensors; `torch` is the module."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    @contextmanager
    def aside(self) -> Iterator[None]:
        side = _side_stream(self.torch)
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            yield

    def event(self) -> Event:
        made: Event = self.torch.cuda.Event(enable_timing=True)
        return made

    def hold(self) -> None:
        self.torch.cuda._sleep(HOLD_CYCLES)

    def graph(self, launches: Sequence[Launch]) -> Graph:
        graph: Any = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.stream(_side_stream(self.torch)), nothing_collected():
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for launch in launches:
                    launch()
            finally:
                graph.capture_end()
        made: Graph = graph
        return made

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()


@functools.cache
def _side_stream(torch: Any) -> Any:
    """The stream of every capture: a library keeps a workspace for each stream that it sees."""
    return torch.cuda.Stream()


# ------------------------------------------------------------------------------------------------------------- by the driver alone

HOLD = """
.version 8.0
.target sm_90
.address_size 64

.visible .entry hold(.param .u64 cycles)
.reqntid 1, 1, 1
{
    .reg .pred %p<1>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [cycles];
    mov.u64 %rd1, %clock64;
$again:
    mov.u64 %rd2, %clock64;
    sub.u64 %rd3, %rd2, %rd1;
    setp.lt.u64 %p0, %rd3, %rd0;
    @%p0 bra $again;
    ret;
}
"""
"""One thread that looks at the clock."""


@functools.cache
def _hold(ordinal: int) -> Launcher:
    lines: dict[int, Position] = {}
    kernel = compiled.load_text(HOLD, "sm_90", lines, ordinal).kernel("hold")
    return Launcher(kernel, ["u64"], block=(1, 1, 1), ordinal=ordinal)


@functools.cache
def own_stream(ordinal: int) -> int:
    """The stream of measurements on a device, which is kept."""
    with driver.on(ordinal):
        return int(driver.new_stream())


class DriverTimer:
    """Launches on a stream of its own (`stream`), which they are told when they are made. It needs no other library."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal, self.stream = ordinal, own_stream(ordinal)

    @contextmanager
    def aside(self) -> Iterator[None]:
        with driver.on(self.ordinal), driver.beside_captures():
            yield

    def event(self) -> DriverEvent:
        return DriverEvent(self.ordinal, self.stream)

    def hold(self) -> None:
        _hold(self.ordinal)(self.stream, (1, 1, 1), (HOLD_CYCLES,))

    def graph(self, launches: Sequence[Launch]) -> DriverGraph:
        return DriverGraph(self.ordinal, self.stream, captured(self.stream, launches, self.ordinal))

    def synchronize(self) -> None:
        with self.aside():
            driver.call("cuStreamSynchronize", self.stream)


def captured(stream: Any, launches: Sequence[Launch], ordinal: int) -> Any:
    """The launches on a stream as a graph that can be launched; `cuGraphExecDestroy` gives it back."""
    mode = driver.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    with driver.on(ordinal):
        driver.call("cuStreamBeginCapture", stream, mode)
        try:
            for launch in launches:
                launch()
        finally:
            graph = driver.call("cuStreamEndCapture", stream)
        made = driver.call("cuGraphInstantiate", graph, 0)
        driver.call("cuGraphDestroy", graph)
    return made


class DriverEvent:
    """An event of the driver. It is destroyed with its last reference."""

    def __init__(self, ordinal: int, stream: int) -> None:
        self.ordinal, self.stream = ordinal, stream
        with driver.on(ordinal):
            self.handle = driver.call("cuEventCreate", 0)

    def record(self) -> None:
        with driver.on(self.ordinal):
            driver.call("cuEventRecord", self.handle, self.stream)

    def synchronize(self) -> None:
        with driver.on(self.ordinal):
            driver.call("cuEventSynchronize", self.handle)

    def query(self) -> bool:
        with driver.on(self.ordinal):
            return driver.passed(self.handle)

    def elapsed_time(self, end: DriverEvent) -> float:
        return float(driver.call("cuEventElapsedTime", self.handle, end.handle))

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            _given_back("cuEventDestroy", handle, self.ordinal)


class DriverGraph:
    """A graph of the driver. It is destroyed with its last reference."""

    def __init__(self, ordinal: int, stream: int, handle: Any) -> None:
        self.ordinal, self.stream, self.handle = ordinal, stream, handle

    def replay(self) -> None:
        with driver.on(self.ordinal):
            driver.call("cuGraphLaunch", self.handle, self.stream)

    def __del__(self) -> None:
        _given_back("cuGraphExecDestroy", self.handle, self.ordinal)


def _given_back(destroy: str, handle: Any, ordinal: int) -> None:
    """When the interpreter ends there may be nobody to give it to."""
    try:
        with driver.on(ordinal):
            driver.call(destroy, handle)
    except Exception:
        return


__all__ = ["HOLD", "HOLD_CYCLES", "DriverEvent", "DriverGraph", "DriverTimer", "Event", "Graph", "Launch", "Timer", "TorchTimer",
           "captured", "nothing_collected", "own_stream"]
