"""What `autotune` makes of a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..measure.asked import Grid
from .tuned import Tuned

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel


class Autotuned(ABC):
    """A kernel with its space. `launch` is that of the kernel, without the parameters of the space; `grid` may be a function of the
    configuration. `kernel` is the kernel itself, `tuned` what was found in this process.
    """

    kernel: Kernel[...]
    tuned: dict[Any, Tuned]

    @abstractmethod
    def launch(self, grid: Grid, *args: Any, stream: Any = None, pdl: bool = False, **given: Any) -> None:
        """Launch with the fastest configuration for such arguments. It is found at the first launch, on copies of them, unless a file of
        this card has it. While the stream is captured nothing is tuned: what is kept serves there, or the first legal point."""

    @abstractmethod
    def config(self, grid: Grid, *args: Any, stream: Any = None, **given: Any) -> Mapping[str, Any]:
        """The configuration of such a launch, tuned now if there is none yet."""
