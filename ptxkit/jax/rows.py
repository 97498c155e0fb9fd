"""Sums of chosen rows and their gradients: what ends a mixture of experts, and what gathers rows in a gradient."""

from __future__ import annotations

from typing import Any

from ptxkit.dsl.arguments import WORDS

from .framework import jnp
from .primitive import multiply
from .product import Product
from .tangents import differentiable, none


def _combine(out: str, y: Any, place: Any, weights: Any, starts: Any, back: Any) -> Any:
    return multiply(Product("combine", (), out), y=y, place=place, weights=weights, starts=starts)


def _forward(out: str, *given: Any) -> tuple[Any, tuple[Any, ...]]:
    return combine(out, *given), given


def _backward(out: str, kept: tuple[Any, ...], gradient: Any) -> tuple[Any, ...]:
    y, place, weights, starts, back = kept
    of_y = of_rows(gradient, y.shape[0], WORDS[y.dtype.name], place, weights, starts, back)
    of_weights = None
    if weights is not None:
        row = _row_of(jnp.arange(place.size, dtype=jnp.int32), place, starts)
        pairs = taken(y, place.reshape(-1)).astype(jnp.float32) * taken(gradient, row).astype(jnp.float32)
        of_weights = pairs.sum(-1).reshape(place.shape)
    return of_y, none(place), of_weights, none(starts), none(back)


combine = differentiable(_combine, _forward, _backward, 0)
"""`gemm.combine`: ptxkit's name of the result's type, y, place, weights, starts, and `back`, which only the gradient of y reads."""


def of_rows(gradient: Any, count: int, out: str, place: Any, weights: Any = None, starts: Any = None, back: Any = None) -> Any:
    """The gradient of the `count` rows of y: a combine of the rows of `gradient`, by the choices that take each row, in their order."""
    if back is not None:
        own = None if weights is None else weights.reshape(-1)[jnp.maximum(back, 0)]
        return combine(out, gradient, _row_of(back, place, starts), own, None, None)
    order = jnp.argsort(place.reshape(-1), stable=True).astype(jnp.int32)
    begins = jnp.searchsorted(place.reshape(-1)[order], jnp.arange(count + 1, dtype=jnp.int32)).astype(jnp.int32)
    own = None if weights is None else weights.reshape(-1)[order]
    return combine(out, gradient, _row_of(order, place, starts), own, begins, None)


def taken(rows: Any, numbers: Any) -> Any:
    """The rows with these numbers. A number that no row has gives zeros."""
    return rows.at[numbers].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def _row_of(choice: Any, place: Any, starts: Any) -> Any:
    """The row of the result that choices belong to, by their numbers; of those that belong to none, no row."""
    if starts is None:
        return choice // max(1, place.shape[1])
    return (jnp.searchsorted(starts, choice, side="right") - 1).astype(jnp.int32)


__all__ = ["combine", "of_rows", "taken"]
