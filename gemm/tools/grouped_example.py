"""A random grouped product on the CPU device, against float64: what the command runs, and the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.errors import LaunchError
from ptxkit.types import TYPES

from ..config.grouped import CONTIGUOUS_ROWS, GroupedConfig
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import PIECE, Layout
from .reference import accumulation, rounding, silu_and_mul

Array = np.ndarray[Any, Any]


def example(lengths: Sequence[int], n: int, k: int, *, dtype: str = "bf16", w_dtype: str | None = None, out: str = "bf16",
            scales: str = "none", gated: bool = False, layout: Layout = "cu_seqlens", pad: int = 3,
            configure: Callable[[GroupProblem], GroupedConfig] | None = None, mean_tokens: float | None = None,
            fast_accum: bool | None = None, card: Card = H200.with_sms(4), schedule: str = "fifo", seed: int = 0,
            check: bool = True, ends: Sequence[int] | None = None, apart: int = 0,
            gather: bool = False) -> tuple[float, Any, GroupedConfig]:
    """(largest error as a share of what is allowed, the checker's report, the configuration).

    The share is infinite when an element of a group is missing, or a row outside of all groups was written. `n` counts the rows of
    a group's weights. `configure` makes the configuration, else the heuristic does. `ends` replaces the offsets that the kernel gets and
    leaves nothing to compare with. An empty contiguous group leaves a block of rows that have no group. `apart`: the block scales of
    masked groups lie as DeepGEMM lays them out, along the rows, and each group's have room for a multiple of this many rows.
    `gather`: the rows of x are chosen from fewer, of which some are chosen by nobody and hold NaN; a few numbers are of no row.
    """
    from ..heuristic.grouped import heuristic
    from ..launch.simulate_grouped import described, simulate
    from ..problem.grouped import GroupOptions

    rng = np.random.default_rng(seed)
    longest = max([1, *lengths]) + pad
    groups, masked, columns = len(lengths), layout == "masked", n // 2 if gated else n
    taken = [-(-max(1, length) // CONTIGUOUS_ROWS) * CONTIGUOUS_ROWS for length in lengths] if layout == "contiguous" else list(lengths)
    rows = groups * longest if masked else sum(taken) + (CONTIGUOUS_ROWS if layout == "contiguous" else pad)
    starts = np.arange(groups) * longest if masked else np.concatenate([[0], np.cumsum(taken)])[:groups].astype(int)
    x, w = (rng.standard_normal(shape, np.float32).astype(_numpy(word)) for shape, word in
            (((rows, k), dtype), ((groups, n, k), w_dtype or dtype)))
    y = np.full((rows, columns), np.nan, _numpy(out))
    x_scale, w_scale, exact_x, exact_w = _scaled(rng, x, w, scales)
    given = np.array(lengths if masked else ends if ends is not None else (*starts, sum(lengths)), np.int32)
    if layout == "contiguous":
        given = np.full(rows, -1, np.int32)
        for group, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            given[start:start + length] = group
    shaped: list[Any] = [x, y, x_scale]
    numbers = None
    if gather:
        shaped[0], numbers = _scattered(rng, x)
        exact_x[numbers < 0] = 0
    if masked:
        shaped = [array if array is None or array.size == 1 else np.ascontiguousarray(array).reshape(groups, longest, array.shape[-1])
                  for array in shaped]
        if apart:
            shaped[2] = _apart(shaped[2], apart)
    options = GroupOptions(layout, gated, mean_tokens, fast_accum)
    problem = described(shaped[0], w, given, shaped[1], shaped[2], w_scale, options, numbers)
    config = None
    if not problem.empty:
        config = heuristic(problem, card) if configure is None else configure(problem)
    report = simulate(shaped[0], w, given, shaped[1], x_scale=shaped[2], w_scale=w_scale, layout=layout, gated=gated,
                      mean_tokens=mean_tokens, fast_accum=fast_accum, gather=numbers, config=config, card=card, schedule=schedule,
                      seed=seed, check=check)
    written = shaped[1].reshape(rows, columns).astype(np.float64)
    if ends is not None:
        return 0.0, report, config  # type: ignore[return-value]
    outside = np.ones(rows, bool)
    share, unit = 0.0, 1 if layout != "contiguous" else padded_to(config) if config is not None else CONTIGUOUS_ROWS
    for group, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        stop = start + -(-length // unit) * unit
        outside[start:stop] = False
        share = max(share, _share(written[start:stop], exact_x[start:stop], exact_w[group], k, out, gated, problem))
    if not np.isnan(written[outside]).all():
        raise AssertionError(f"{int((~np.isnan(written[outside])).sum())} elements outside of the groups were written")
    return share, report, config  # type: ignore[return-value]


def padded_to(config: GroupedConfig) -> int:
    """The multiple of rows to which contiguous groups are multiplied."""
    return PIECE if config.tokens.partial_boxes else CONTIGUOUS_ROWS


def _scattered(rng: Any, x: Array) -> tuple[Array, Array]:
    """An array that has these rows anywhere, among rows of NaN, and their numbers in it. One in eight has no row: its number is -1."""
    numbers = rng.permutation(2 * len(x) + 1)[:len(x)].astype(np.int32)
    spread = np.full((2 * len(x) + 1, x.shape[1]), np.nan, np.float32).astype(x.dtype)
    spread[numbers] = x
    numbers[rng.random(len(x)) < 0.125] = -1
    return spread, numbers


def _apart(scales: Array, unit: int) -> Array:
    """The scales [groups, rows, K / 128] with strides (room * K / 128, 1, room), and NaN where there is room for more rows."""
    groups, rows, depth = scales.shape
    made = np.full((groups, depth, -(-rows // unit) * unit), np.nan, np.float32)
    made[:, :, :rows] = scales.swapaxes(1, 2)
    return made[:, :, :rows].swapaxes(1, 2)


def _share(actual: Array, x: Array, w: Array, k: int, out: str, gated: bool, problem: Any) -> float:
    """The largest error of one group as a share of what is allowed."""
    if not actual.size:
        return 0.0
    if not np.isfinite(actual).all():
        return float("inf")
    exact, magnitude = x @ w.T, np.abs(x) @ np.abs(w).T
    allowed = magnitude * accumulation(k, problem.x.__name__, problem.promote)
    if gated:
        exact, allowed = silu_and_mul(exact, allowed, lambda gate: gate / (1 + np.exp(-gate)))
    return float(np.max(np.abs(actual - exact) / (allowed + rounding(exact, out))))


def _scaled(rng: Any, x: Array, w: Array, scales: str) -> tuple[Array | None, Array | None, Array, Array]:
    """Scales, and the operands in float64 with the scales applied."""
    exact_x, exact_w = x.astype(np.float64), w.astype(np.float64)
    (rows, k), (groups, n, _) = x.shape, w.shape
    depth = -(-k // 128)
    if scales == "block":
        x_scale = (rng.random((depth, rows)) + 0.5).astype(np.float32).T
        w_scale = (rng.random((groups, -(-n // 128), depth)) + 0.5).astype(np.float32)
        whole = np.repeat(np.repeat(w_scale, 128, 1), 128, 2)[:, :n, :k]
        return x_scale, w_scale, exact_x * np.repeat(x_scale, 128, 1)[:, :k], exact_w * whole
    if scales in ("row", "column", "row_column"):
        x_scale = (rng.random((rows, 1) if "row" in scales else 1) + 0.5).astype(np.float32)
        w_scale = (rng.random((groups, n) if "column" in scales else groups) + 0.5).astype(np.float32)
        return x_scale, w_scale, exact_x * x_scale, exact_w * w_scale.reshape(groups, -1, 1)
    if scales in ("group", "one"):
        x_scale = (rng.random(1) + 0.5).astype(np.float32)
        w_scale = (rng.random(groups if scales == "group" else 1) + 0.5).astype(np.float32)
        return x_scale, w_scale, exact_x * x_scale, exact_w * w_scale[:, None, None]
    return None, None, exact_x, exact_w


def _numpy(word: str) -> Any:
    if word in ("f16", "f32"):
        return {"f16": np.float16, "f32": np.float32}[word]
    try:
        import ml_dtypes  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise LaunchError(f"the CPU device needs the package ml_dtypes to make {word}: pip install 'ptxkit[dtypes]', or take f16") from None
    return getattr(ml_dtypes, {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[word])


__all__ = ["TYPES", "example", "padded_to"]
