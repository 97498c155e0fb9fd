"""Programs with products as bytes: `jax.export` with what products need of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ptxkit.errors import LaunchError

from .framework import export as jax_export
from .framework import jax
from .handler import NAME, register

REGISTERED = {"cpu": "cpu", "cuda": "CUDA"}
"""What XLA calls the platforms of jax.export that have a handler."""


def export(function: Any, *, platforms: Sequence[str] | None = None) -> Callable[..., Any]:
    """`jax.export.export` of a function with products: called with arguments, or their shapes, it gives a `jax.export.Exported`.

        data = export(jax.jit(model))(x, weights).serialize(vjp_order=1)

    Shapes are those of the arguments: a product has no symbolic extents. `platforms` are "cuda" and "cpu" (default: the current one). The
    bytes name a product's shapes and options, no kernel: the process that loads them has this version of ptxkit, or another one that knows
    these options, and builds its kernels for its own card. For "cuda" a GPU must be there, since the size of a workspace is its card's;
    cards of one name have the same.
    """
    several = isinstance(platforms, Sequence) and not isinstance(platforms, str)
    if platforms is not None and not (several and platforms and all(name in list(REGISTERED) for name in platforms)):
        raise LaunchError(f"platforms={platforms!r}: products run on these, given as a sequence: {', '.join(REGISTERED)}")
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    made: Callable[..., Any] = jax_export.export(jitted, platforms=platforms,
                                                 disabled_checks=[jax_export.DisabledSafetyCheck.custom_call(NAME)])
    return made


def deserialize(data: bytes | bytearray) -> Any:
    """The `jax.export.Exported` of these bytes, whose products can be called in this process. Raises LaunchError without a C compiler."""
    found = jax_export.deserialize(bytearray(data))
    for platform in found.platforms:
        if platform in REGISTERED:
            register(REGISTERED[platform])
    return found


__all__ = ["deserialize", "export"]
