"""`python -m ptxkit.gemm tune --each S`: shapes tuned as on their first use, S seconds each. For many shapes, and without torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.errors import PtxkitError
from ptxkit.measure.values import span
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES

from ..heuristic import table
from ..heuristic.tuned import kind, shape_of
from ..launch.adapter import Adapter
from ..launch.dense import card_of
from ..launch.tuning import MakeTimer, tuning
from ..problem.dense import Arrays
from .bench.shapes import Problem
from .problems import arrays_described

PATTERN = 1 << 22               # elements of random values, again and again


def values(dtype: str, count: int, source: np.random.Generator) -> Any:
    """So many elements in bytes: N(0, 1), in eight bits of about that size, and scales between 0.5 and 1.5 where there are few."""
    if TYPES[dtype].bits == 8:
        sign, exponent = source.integers(0, 2, count), source.integers(4, 9, count) if dtype == "e4m3" else source.integers(12, 17, count)
        fraction = source.integers(0, 8 if dtype == "e4m3" else 4, count)
        return (sign << 7 | exponent << (3 if dtype == "e4m3" else 2) | fraction).astype(np.uint8)
    normal = source.standard_normal(count, dtype=np.float32)
    if dtype == "bf16":
        return (normal.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return normal.astype(np.float16 if dtype == "f16" else np.float32).view(np.uint8)


@contextmanager
def filled(arrays: Arrays, ordinal: int, source: np.random.Generator) -> Iterator[Arrays]:
    """The arrays with memory on a device, full of random values while the block runs."""
    held: list[int] = []
    given: dict[str, ArrayView] = {}
    try:
        for name, array in arrays.named():
            size = span(array)
            held.append(driver.allocate(size, ordinal))
            some = values(array.dtype, min(PATTERN, max(1, size * 8 // TYPES[array.dtype].bits)), source)
            if name.endswith("scale"):
                some = source.uniform(0.5, 1.5, len(some) // 4).astype(np.float32).view(np.uint8)
            for place in range(0, size, len(some)):
                driver.copy_to_device(held[-1] + place, some.ctypes.data, min(len(some), size - place), ordinal)
            given[name] = array._replace(pointer=held[-1], device=ordinal, owner="ptxkit")
        yield arrays._replace(**given)
    finally:
        for address in held:
            driver.free(address, ordinal)


def run(problems: Sequence[Problem], path: Path, each_s: float, *, seconds: float | None = None, timer: MakeTimer | None = None,
        say: Callable[[str], None] = print) -> None:
    """Tunes shapes that the table does not have yet; begins no further one after `seconds`."""
    ordinal = driver.current_device()
    card, source, begin = card_of(ordinal), np.random.default_rng(0), time.monotonic()
    with tuning(seconds=each_s, table=path, timer=timer):
        for done, problem in enumerate(problems):
            if seconds is not None and time.monotonic() - begin > seconds:
                say(f"cut after {done} of {len(problems)} problems: --seconds {seconds:g}")
                break
            started = time.monotonic()
            try:
                with filled(arrays_described(problem), ordinal, source) as arrays:
                    product = Adapter(**arrays._asdict())
                    config, asked = product.config, product.problem
            except PtxkitError as error:
                say(f"{problem}: {error}")
                continue
            kept = table.entry(card, kind(asked), shape_of(asked))
            us = kept["measured"]["first_use"] if kept else {}
            times = f"{us['us']:.2f} us, the heuristic's {us.get('heuristic_us', us['us']):.2f}" if us else "known before, or not tuned"
            say(f"{problem}: {config}; {times}  ({time.monotonic() - started:.1f} s)")


__all__ = ["filled", "run", "values"]
