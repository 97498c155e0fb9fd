"""What a caller may ask of a measurement: arguments, checks, contestants, and a device of its own, as far as it is typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..cards import Card

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel

Arguments = tuple[Any, ...]
"""The arguments of a launch, in the order of the kernel's signature."""
Grid = int | tuple[int, ...] | Callable[[Mapping[str, Any]], "int | tuple[int, ...]"]
"""CTAs, or a function from the configuration to them."""
Given = Arguments | Sequence[Any] | Callable[[], Sequence[Any]]
"""The arguments of a launch, which are copied, or a function that makes new ones at each call."""
Check = Callable[..., Any] | Mapping[str, Any] | None
"""A function of the launch's arguments, called after the launch: None or True says that they are right; False, a sentence or an
AssertionError that they are wrong. Or what named arguments must hold: an array, or a function that makes it of the arguments before the
launch."""
Contestant = Callable[..., Any] | Mapping[str, Any]
"""A function of the launch's arguments, which works on the current stream of torch (without torch it is given `stream=`); or compile-time
parameters of the same kernel."""
Launch = Callable[[], Any]


class Event(Protocol):
    """A point on the stream."""

    def record(self) -> None: ...
    def synchronize(self) -> None:
        """Wait until the card has passed it."""

    def query(self) -> bool:
        """Whether it has."""
        ...

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds to a later one."""
        ...


class Graph(Protocol):
    """Launches that are enqueued as one."""

    def replay(self) -> None: ...


class Timer(Protocol):
    """A card that keeps time. Launches that are given to it work on the stream that is current inside `aside`."""

    def aside(self) -> AbstractContextManager[Any]:
        """Launches in the block go to the stream of captures."""
        ...

    def event(self) -> Event: ...
    def hold(self) -> None:
        """Keep the card busy for a moment."""

    def graph(self, launches: Sequence[Launch]) -> Graph:
        """The launches in this order, captured and not run."""
        ...

    def synchronize(self) -> None:
        """Wait for all work."""


@dataclass(frozen=True, slots=True)
class Regime:
    """`graph_ms` of work in a graph, then a pause of `pause` times as long; `cold` takes the operand sets in turn."""

    name: str
    graph_ms: float
    cold: bool
    pause: float
    rounds: int
    settle_s: float = 0.0


class Device(Protocol):
    """What bench and tuner need. `unit`: what times are counted in. `regimes`: how they may be taken, the usual one first."""

    timer: Timer
    card: Card
    unit: str
    regimes: Mapping[str, Regime]
    sensors: Any

    def places(self, arguments: Arguments) -> int:
        """How many sets of such arguments, in turn, keep each other out of the L2."""
        ...

    def copied(self, arguments: Arguments) -> Arguments:
        """Arguments with arrays of their own, which hold the same."""
        ...

    def restore(self, arguments: Arguments, source: Arguments) -> None:
        """What the arrays held in `source`, in copies of them."""

    def poison(self, array: Any) -> None:
        """Every byte 0xFF: NaN, or a number that nothing computes."""

    def launch(self, kernel: Kernel[...], config: Mapping[str, Any], grid: Grid, arguments: Arguments) -> Launch:
        """The kernel, loaded, on these arguments. Raises PtxkitError where it cannot be had."""
        ...

    def foreign(self, function: Callable[..., Any], arguments: Arguments) -> Launch:
        """Somebody else's function on these arguments."""
        ...

    def finish(self, patience_s: float) -> None:
        """Wait for what was launched. Raises Lost."""

    def raw(self, array: Any) -> Any:
        """The bytes of an array, on the host."""
        ...

    def values(self, array: Any, raw: Any = None) -> Any:
        """The elements of an array, or of what its bytes were, as float64."""
        ...

    def about(self) -> dict[str, Any]:
        """The card, for a record."""
        ...


Where = Literal["gpu", "cpu"] | Device
"""The GPU of the arguments, the CPU device, or another device."""
