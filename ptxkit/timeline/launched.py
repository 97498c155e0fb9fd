"""A launch with marks on a GPU, and what the marks cost."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..dsl.traced import Traced
from ..errors import LaunchError
from ..runtime import driver
from ..runtime.arrays import DeviceArray
from ..runtime.launch import raw_stream, view
from .buffer import Plan, Slice, own_arguments
from .timeline import Overhead, Timeline

if TYPE_CHECKING:
    from ..dsl.marks import Selection
    from ..runtime.compiled import Compiled

Grid = int | tuple[int, ...]
LAUNCHES = 4
"""Launches between two events of a round."""


class Buffer:
    """Device memory for the marks of launches of one kernel. `arguments` are what a launch is given besides its own, by name."""

    def __init__(self, compiled: Compiled, grid: Grid, events: int) -> None:
        traced = compiled.traced
        if not isinstance(traced, Traced) or traced.marks is None or traced.block is None:
            raise LaunchError(f"`{traced.name}` was compiled without marks: compile(marks=True)")
        self.traced, self.named, self.ordinal = traced, traced.marks, compiled.ordinal
        self.plan = Plan.of(traced.marks, grid, traced.block, events)
        self._array = DeviceArray((self.plan.bytes // 8,), "u64", compiled.ordinal)
        self.arguments = self.plan.arguments(self._array.pointer)
        self.clear()

    def clear(self) -> None:
        """Forget earlier launches. It waits for the device before and after."""
        driver.synchronize(self.ordinal)
        with driver.on(self.ordinal):
            driver.call("cuMemsetD8", self._array.pointer, 0, self._array.nbytes)
        driver.synchronize(self.ordinal)

    def slices(self) -> Iterator[Slice]:
        """What one launch since `clear` wrote, as it is. The caller has waited for it."""
        return self.plan.slices(self._array.numpy())

    def read(self) -> Timeline:
        """What one launch since `clear` wrote. The caller has waited for it."""
        return Timeline.of(self.traced.name, self.named, self.plan, self.slices(), device=driver.device(self.ordinal).name)


def launched(marked: Compiled, plain: Compiled, grid: Grid, args: tuple[Any, ...], named: dict[str, Any], events: int, rounds: int,
             stream: Any) -> Timeline:
    """Run with marks and read them; then run without and with marks in turn."""
    buffer = Buffer(marked, grid, events)
    own_arguments(buffer.traced, args, named)                          # says what is missing in the words of the kernel's own

    def with_marks() -> None:
        marked(grid, *args, stream=stream, **named, **buffer.arguments)

    def without() -> None:
        plain(grid, *args, stream=stream, **named)

    with_marks()
    driver.synchronize(buffer.ordinal)
    found = buffer.read()                                               # of one launch: later ones add to it
    if not rounds:
        return found
    return replace(found, overhead=overhead(without, with_marks, _stream(stream, (*args, *named.values())), buffer.ordinal, rounds))


def each_selection(compile: Callable[[Selection], Compiled], selections: Mapping[str, Selection],
                   without: Callable[[], None], grid: tuple[int, int, int], scalars: tuple[Any, ...], maps: tuple[Any, ...], stream: int,
                   rounds: int) -> dict[str, Timeline]:
    """The timeline of a launch with each selection of marks, and what it costs: all are timed in the same rounds, beside `without`, which
    launches the kernel without marks, as early as those here. `compile` gives the kernel with some marks."""
    without()
    found: dict[str, Timeline] = {}
    runs, held, ordinal = [without], [], 0                              # buffers are held until the last launch
    for name, selection in selections.items():
        compiled = compile(selection)
        counted, _ = _once(compiled, 1, grid, scalars, maps, stream)    # says how many events there are
        buffer, run = _once(compiled, max(each.count for each in counted.slices()), grid, scalars, maps, stream)
        found[name], ordinal = buffer.read(), compiled.ordinal
        held.append(buffer)
        runs.append(run)
    times = in_turn(runs, stream, ordinal, rounds)
    del held
    plain, *marked = (statistics.median(each) for each in zip(*times, strict=True))
    return {name: replace(each, overhead=Overhead(plain, us, rounds)) for (name, each), us in zip(found.items(), marked, strict=True)}


def _once(compiled: Compiled, events: int, grid: tuple[int, int, int], scalars: tuple[Any, ...], maps: tuple[Any, ...],
          stream: int) -> tuple[Buffer, Callable[[], None]]:
    """The marks of a launch, and the launch."""
    buffer = Buffer(compiled, grid, events)
    run = functools.partial(compiled.launcher(pdl=True), stream, grid, (*scalars, *buffer.arguments.values()), maps)
    run()
    driver.synchronize(compiled.ordinal)
    return buffer, run


def overhead(without: Callable[[], None], with_marks: Callable[[], None], stream: int, ordinal: int, rounds: int) -> Overhead:
    """Time both in turn."""
    plain, marked = (statistics.median(each) for each in zip(*in_turn((without, with_marks), stream, ordinal, rounds), strict=True))
    return Overhead(plain, marked, rounds)


def in_turn(runs: Sequence[Callable[[], None]], stream: int, ordinal: int, rounds: int) -> list[list[float]]:
    """The time of a launch of each, in us, in each round: a few launches in a row between two events of the stream."""
    with driver.on(ordinal):
        begin, end = (driver.call("cuEventCreate", 0) for _ in range(2))

        def timed(run: Callable[[], None]) -> float:
            run()
            driver.call("cuEventRecord", begin, stream)
            for _ in range(LAUNCHES):
                run()
            driver.call("cuEventRecord", end, stream)
            driver.call("cuEventSynchronize", end)
            return 1e3 * float(driver.call("cuEventElapsedTime", begin, end)) / LAUNCHES

        try:
            for run in runs:
                timed(run)
            return [[timed(run) for run in runs] for _ in range(rounds)]
        finally:
            driver.call("cuEventDestroy", begin)
            driver.call("cuEventDestroy", end)


def _stream(stream: Any, args: tuple[Any, ...]) -> int:
    """The stream that a launch with these arguments takes."""
    for value in args:
        try:
            seen = view(getattr(value, "array", value), "argument")
        except LaunchError:
            continue
        return raw_stream(stream, seen)
    return raw_stream(stream)
