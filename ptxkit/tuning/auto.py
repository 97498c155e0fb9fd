"""`autotune`: a kernel with its space, which is tuned at its first launch. What chooses and launches is in `first`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from ..measure.asked import Check
from .autotuned import Autotuned
from .space import Given
from .tuned import Options

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel


def autotune(space: Given, *, check: Check = None, **options: Unpack[Options]) -> Callable[[Kernel[...]], Autotuned]:
    """Tune a kernel at its first launch with new arguments.

        @autotune(Space(BLOCK=(128, 256, 512)), key=("n",))
        @kernel(block=lambda config: config["BLOCK"])
        def scale(x: Ptr[f32], n: Reg[u32], *, BLOCK: int = 256) -> None: ...

        scale.launch(lambda config: -(-n // config["BLOCK"]), x, n)

    `key`: names of the arguments that the result depends on, or a function of them; without it types and shapes of arrays, and integers.
    `check` and the options are those of `kernel.tune`.
    """
    from .first import FirstTuned

    def decorate(kernel: Kernel[...]) -> Autotuned:
        return FirstTuned(kernel, space, check, options)

    return decorate


__all__ = ["Autotuned", "autotune"]
