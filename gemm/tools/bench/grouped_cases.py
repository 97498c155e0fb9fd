"""What is measured: groups, tokens of each, and extents of the weights; balanced, or with skewed lengths of the same total."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptxkit.cli.numbers import whole

from ...heuristic.grouped_tiles import FEW, PREFILL
from ...heuristic.skewed import shared_out, skewed
from ...scheduler.group_table import CONTIGUOUS_ROWS
from ..models import every_grouped
from .shapes import BYTES, MOST_DRAWN, ShapeError, extent

KINDS = ("bf16", "fp8", "fp8-block")
"""bf16; e4m3 with one scale of x and one of each group's weights; e4m3 with block scales."""
DECODE = FEW
"""At most so many tokens a group are a decode; PREFILL or more are a prefill."""


@dataclass(frozen=True, slots=True)
class Case:
    """`groups` of `tokens` rows on average, times weights [n, k] of each."""

    groups: int
    tokens: int
    n: int
    k: int
    kind: str = "bf16"
    skewed: bool = False
    gated: bool = False
    quantised: bool = False
    drawn: int | None = None                    # the seed of lengths at random

    @property
    def lengths(self) -> tuple[int, ...]:
        """The rows of each group."""
        if self.drawn is not None:
            return random_lengths(self.groups, self.groups * self.tokens, self.drawn)
        return skewed(self.groups, self.groups * self.tokens) if self.skewed else (self.tokens,) * self.groups

    @property
    def rows(self) -> int:
        return self.groups * self.tokens

    @property
    def filled_rows(self) -> int:
        """The rows in the contiguous layout, where groups fill whole blocks."""
        return sum(filled(self.lengths, CONTIGUOUS_ROWS))

    @property
    def dtype(self) -> str:
        """Of x and w."""
        return "bf16" if self.kind == "bf16" else "e4m3"

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes that must be moved: x, the weights of groups that have rows, and y as bf16 or quantised."""
        busy = sum(1 for length in self.lengths if length)
        return (self.rows * self.k + busy * self.n * self.k) * BYTES[self.dtype] + self.rows * self.columns * (1 if self.quantised else 2)

    @property
    def columns(self) -> int:
        """Of y."""
        return self.n // 2 if self.gated else self.n

    def __str__(self) -> str:
        words = [word for word in ("skewed", "gated", "quantised") if getattr(self, word)]
        words += [] if self.drawn is None else [f"drawn={self.drawn}"]
        return ":".join((f"{self.groups}x{self.tokens}x{self.n}x{self.k}", self.kind, *words))


def filled(lengths: Sequence[int], unit: int) -> list[int]:
    """The rows of groups that are filled up to whole units."""
    return [-(-length // unit) * unit for length in lengths]


EXTENTS = ((8, 8, 4096, 7168), (8, 16, 4096, 7168), (8, 32, 4096, 7168), (8, 64, 4096, 7168), (8, 128, 4096, 7168), (8, 512, 4096, 7168),
           (64, 16, 4096, 2048), (128, 64, 1536, 4096), (4, 8192, 4096, 7168), (8, 4096, 4096, 4096), (32, 192, 6144, 7168),
           (6, 1024, 7168, 3072))


def cases(kinds: tuple[str, ...] = KINDS, skew: tuple[bool, ...] = (False, True)) -> tuple[Case, ...]:
    """Every extent in these kinds."""
    return tuple(Case(*extent, kind, skewed=each) for kind in kinds for extent in EXTENTS for each in skew)


def case(text: str) -> Case:
    """`8x64x4096x7168`, `8x64x4096x7168:fp8-block:skewed`, `8x64x4096x7168:fp8-block:gated:quantised`, `8x64x4096x7168:drawn=3`. A record
    may have further words."""
    size, *words = text.split(":")
    groups, tokens, n, k = (whole(part) for part in size.split("x"))
    kinds = [word for word in words if word in KINDS]
    seeds = [whole(word.removeprefix("drawn=")) for word in words if word.startswith("drawn=")]
    return Case(groups, tokens, n, k, kinds[0] if kinds else "bf16", "skewed" in words, "gated" in words, "quantised" in words,
                seeds[0] if seeds else None)


def _asked(text: str) -> Case:
    """The case of a command line. Raises ValueError for words that no case has."""
    words, found = text.split(":")[1:], case(text)
    known = [word for word in words if word in (*KINDS, "skewed", "gated", "quantised") or word.startswith("drawn=")]
    if known != words or sum(word in KINDS for word in words) > 1 or not all((found.groups, found.tokens, found.n, found.k)):
        raise ValueError(text)
    return found


RANDOM_GROUPS, RANDOM_TOKENS, RANDOM_EXTENTS = (4, 256), (1, 4096), (128, 16_000)
RANDOM_UNITS = {"any8": 8, "aligned": 64}
"""What N and K of random cases are multiples of; K of fp8 of 16 at least."""
MOST_BYTES, MOST_FLOPS = 8 << 30, 8e12
"""Of one random product."""
SHAPES_OF_LENGTHS = ("alike", "uniform", "exponential", "lognormal", "one")
"""How random lengths are spread; "one": a group has half of all rows."""
EMPTY = (0.0, 0.0, 0.125, 0.5)
"""Shares of random groups that are empty."""


def random_lengths(groups: int, total: int, seed: int) -> tuple[int, ...]:
    """Lengths with this sum, whose kind the seed draws too."""
    source = random.Random(f"{seed} {groups} {total}")
    kind, empty = source.choice(SHAPES_OF_LENGTHS), source.choice(EMPTY)
    make: dict[str, Callable[[], float]] = {
        "alike": lambda: 1.0, "uniform": source.random, "exponential": lambda: source.expovariate(1.0),
        "lognormal": lambda: math.exp(source.gauss(0.0, 1.0)), "one": lambda: 1.0}
    weights = [make[kind]() + 1e-9 for _ in range(groups)]
    if kind == "one":
        weights[source.randrange(groups)] = float(groups)
    for group in source.sample(range(groups), min(groups - 1, round(groups * empty))):
        weights[group] = 0.0
    return shared_out(weights, total)


def random_cases(seed: int, count: int, units: str = "any8", kinds: Sequence[str] = ("bf16",)) -> tuple[Case, ...]:
    """`count` products with log-uniform extents and lengths at random."""
    if units not in RANDOM_UNITS:
        raise ShapeError(f"random products are {', '.join(RANDOM_UNITS)}, not {units!r}")
    if not 1 <= count <= MOST_DRAWN:
        raise ShapeError(f"random products are 1 to {MOST_DRAWN:,}, not {count:,}")
    source, found = random.Random(f"{seed} {units} groups"), list[Case]()
    while len(found) < count:
        kind, unit = source.choice(tuple(kinds)), RANDOM_UNITS[units]
        groups, tokens = extent(source, RANDOM_GROUPS, 1), extent(source, RANDOM_TOKENS, 1)
        n, k = extent(source, RANDOM_EXTENTS, unit), extent(source, RANDOM_EXTENTS, unit if kind == "bf16" else max(16, unit))
        made = Case(groups, tokens, n, k, kind, drawn=source.randrange(1_000_000))
        if made.bytes <= MOST_BYTES and made.flops <= MOST_FLOPS:
            found.append(made)
    return tuple(found)


def model_cases(kinds: Sequence[str] = KINDS) -> tuple[Case, ...]:
    """The experts of models, without their gates, which no peer has; lengths are skewed."""
    found = (Case(experts.groups, rows, experts.n, experts.k, kind, skewed=True) for _, experts in every_grouped()
             for rows in experts.rows for kind in experts.types if kind in kinds)
    return tuple(dict.fromkeys(found))


def parse(text: str, kinds: Sequence[str] = KINDS) -> tuple[Case, ...]:
    """Cases with commas: those of `case`, `random:SEED:COUNT[:aligned|any8]`, `models`, and `burst`, every extent alike and skewed."""
    found: list[Case] = []
    for word in (word.strip() for word in text.split(",") if word.strip()):
        name, *numbers = word.split(":")
        try:
            if name == "random":
                found += random_cases(whole(numbers[0]), whole(numbers[1]), (numbers[2:3] or ["any8"])[0], kinds)
            else:
                found += model_cases(kinds) if word == "models" else cases(tuple(kinds)) if word == "burst" else (_asked(word),)
        except ShapeError:
            raise
        except (ValueError, IndexError):
            raise ShapeError(f"{word!r} is no group product: it is 8x64x4096x7168:fp8-block:skewed, random:SEED:COUNT, models or burst") \
                from None
    if not found:
        raise ShapeError(f"{text!r} has no group product in it")
    return tuple(dict.fromkeys(found))


__all__ = ["DECODE", "EXTENTS", "KINDS", "PREFILL", "Case", "case", "cases", "filled", "model_cases", "parse", "random_cases",
           "random_lengths", "skewed"]
