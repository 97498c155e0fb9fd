"""The arguments of a product that are no arrays, checked as a caller gives them: other types are said in a sentence, before anything is
compared with them or kept by them."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, NoReturn

from ptxkit.errors import LaunchError

from ..scheduler.group_table import Layout
from ..scheduler.grouped import ORDERS
from .dense import PLAIN, Options, check_words, short
from .grouped import GroupOptions

MOST = 3.4028234663852886e38
"""The largest number that f32 has."""


def options(alpha: Any, beta: Any, activation: Any, accumulate: Any, fast_accum: Any, batch_invariant: Any) -> Options:
    """The options of a dense product, `PLAIN` itself where they are those. Raises LaunchError for one of another type."""
    check_words(activation, accumulate)
    made = Options(number("alpha", alpha), number("beta", beta), activation, accumulate, optional_flag("fast_accum", fast_accum),
                   flag("batch_invariant", batch_invariant))
    return PLAIN if made == PLAIN else made


def group_options(layout: Layout, gated: bool, mean_tokens: Any, fast_accum: Any, order: Any, batch_invariant: Any, weighted: bool = False,
                  add: bool = False) -> GroupOptions:
    """The options of a group product. Raises LaunchError for one of another type."""
    if not (order is None or (isinstance(order, str) and order in ORDERS)):
        raise LaunchError(f"order={short(order)}: it is {', '.join(ORDERS)}, or None")
    mean = None if mean_tokens is None else number("mean_tokens", mean_tokens)
    return GroupOptions(layout, gated, mean, optional_flag("fast_accum", fast_accum), order,  # type: ignore[arg-type]
                        flag("batch_invariant", batch_invariant), weighted, add)


def number(name: str, value: Any) -> float:
    """A number that f32 has, as Python's. Raises LaunchError."""
    found: Any = value if isinstance(value, Real) else None
    if found is None or not (abs(found) <= MOST or abs(found) == math.inf or found != found):
        raise LaunchError(f"{name}={short(value)}: it is a number as f32 has it; of an array pass array.item()")
    return float(found)


def whole(name: str, value: Any) -> int:
    """A whole number, as Python's. Raises LaunchError."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise LaunchError(f"{name}={short(value)}: it is a whole number; of an array pass array.item()")
    return int(value)


def truth(value: Any) -> bool | None:
    """True or False as Python or NumPy has it, or as 1 or 0. None for all else: it need not mean what its truth value says."""
    plain = type(value).__name__ in ("bool", "bool_") or (type(value) is int and value in (0, 1))
    return bool(value) if plain else None


def flag(name: str, value: Any) -> bool:
    """The truth of an option. Raises LaunchError where it has none."""
    found = truth(value)
    if found is None:
        raise LaunchError(f"{name}={short(value)}: it is True or False")
    return found


def optional_flag(name: str, value: Any) -> bool | None:
    """The truth of an option that may be None. Raises LaunchError for all else."""
    found = truth(value)
    if found is None and value is not None:
        raise LaunchError(f"{name}={short(value)}: it is True or False or None")
    return found


def check_kind(config: Any, kind: type) -> None:
    """Raise LaunchError unless a configuration, if there is one, is of this kind."""
    if config is not None and not isinstance(config, kind):
        raise LaunchError(f"config={short(config)}: it is a {kind.__name__}, or None for the heuristic's")


def refuse_scaled_result(said: str) -> NoReturn:
    """Raise LaunchError for a result in 8 bits of groups or gates, in an adapter that returns no scales. `said` names the type."""
    raise LaunchError(f"{said}: results of groups and gates have that with scales of their own, which ptxkit.gemm.group_gemm writes "
                      "(out_scale); take bfloat16, float16 or float32 here")


__all__ = ["check_kind", "flag", "group_options", "number", "optional_flag", "options", "refuse_scaled_result", "truth", "whole"]
