"""Functions with gradients of their own, and the gradient of what has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from .framework import jax


def differentiable(function: Any, forward: Any, backward: Any, *static: int) -> Any:
    """`function` with these as its forward and backward pass. `static`: the places of arguments that are no arrays."""
    made = jax.custom_vjp(function, nondiff_argnums=static)
    made.defvjp(forward, backward)
    return made


def none(numbers: Any) -> Any:
    """The gradient of integers, or of an argument that is None."""
    return None if numbers is None else np.zeros(numbers.shape, jax.dtypes.float0)


__all__ = ["differentiable", "none"]
