"""What dense and grouped products have in common: launch twice, compare with float64, run all trials and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ptxkit.errors import PtxkitError
from ptxkit.runtime import driver

from ..reference import rounding
from . import guarded

Checked = tuple[dict[str, Any], str | None]
"""What was launched, and a sentence when it is wrong."""


def run(seed: int, counted: str, checks: Callable[[Any], Iterator[Checked]]) -> dict[str, Any]:
    """Make the checks with torch; {`counted`: their number, "seed", "failures": [{..., "why"}], "device"}."""
    import torch  # pyright: ignore[reportMissingImports]

    driver.probe()
    torch.manual_seed(seed)
    done = list(checks(torch))
    failures = [{**what, "why": why} for what, why in done if why]
    return {counted: len(done), "seed": seed, "failures": failures, "device": torch.cuda.get_device_name()}


def launched(torch: Any, launch: Callable[[Any], object], make: Callable[[], Any], results: Callable[[Any], Sequence[Any]],
             what: str) -> tuple[Any, str | None]:
    """What a launch writes into a poisoned array, and a sentence when it is refused, writes outside of the results, or is not the same in
    a second run."""
    first, second = make(), make()
    try:
        launch(first)
        launch(second)
    except PtxkitError as error:
        return first, f"refused: {error}"
    torch.cuda.synchronize()
    if not torch.equal(guarded.memory(torch, first), guarded.memory(torch, second)):
        return first, "two runs differ"
    return first, guarded.overwritten(torch, first, results(first), what)


def blockwise(values: Any, scales: Any, *blocks: int) -> Any:
    """The values in float64 times the scales of their blocks."""
    for axis, block in enumerate(blocks):
        scales = scales.repeat_interleave(block, axis)
    return values.float().double() * scales[tuple(map(slice, values.shape))].double()


def wrong(torch: Any, actual: Any, exact: Any, error: Any, out: str = "") -> str | None:
    """A sentence when an element is not finite, or further from the exact one than the error and one rounding to `out`. What may be too
    large for f16 is not compared."""
    actual = actual.float().double()
    actual = torch.where(exact.abs() < 60000, actual, exact) if out == "f16" else actual
    if not bool(torch.isfinite(actual).all()):
        return f"{int((~torch.isfinite(actual)).sum())} elements are not finite or were not written"
    allowed = error + rounding(exact.abs() + error, out) if out else error
    share = float(((actual - exact).abs() / allowed).max()) if actual.numel() else 0.0
    return None if share <= 1 else f"an error is {share:.3g} times what is allowed"
