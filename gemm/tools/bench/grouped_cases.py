"""What is measured: groups, tokens of each, and extents of the weights; balanced, or with skewed lengths of the same total."""

from __future__ import annotations

from dataclasses import dataclass

from ...heuristic.grouped_tiles import FEW, PREFILL
from ...heuristic.skewed import skewed
from .shapes import BYTES

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

    @property
    def lengths(self) -> tuple[int, ...]:
        """The rows of each group."""
        return skewed(self.groups, self.groups * self.tokens) if self.skewed else (self.tokens,) * self.groups

    @property
    def rows(self) -> int:
        return self.groups * self.tokens

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
        return ":".join((f"{self.groups}x{self.tokens}x{self.n}x{self.k}", self.kind, *words))


EXTENTS = ((8, 8, 4096, 7168), (8, 16, 4096, 7168), (8, 32, 4096, 7168), (8, 64, 4096, 7168), (8, 128, 4096, 7168), (8, 512, 4096, 7168),
           (64, 16, 4096, 2048), (128, 64, 1536, 4096), (4, 8192, 4096, 7168), (8, 4096, 4096, 4096), (32, 192, 6144, 7168),
           (6, 1024, 7168, 3072))


def cases(kinds: tuple[str, ...] = KINDS, skew: tuple[bool, ...] = (False, True)) -> tuple[Case, ...]:
    """Every extent in these kinds."""
    return tuple(Case(*extent, kind, skewed=each) for kind in kinds for extent in EXTENTS for each in skew)


def case(text: str) -> Case:
    """`8x64x4096x7168`, `8x64x4096x7168:fp8-block:skewed`, `8x64x4096x7168:fp8-block:gated:quantised`."""
    size, *words = text.split(":")
    groups, tokens, n, k = (int(part) for part in size.split("x"))
    kinds = [word for word in words if word in KINDS]
    return Case(groups, tokens, n, k, kinds[0] if kinds else "bf16", "skewed" in words, "gated" in words, "quantised" in words)


__all__ = ["DECODE", "EXTENTS", "KINDS", "PREFILL", "Case", "case", "cases", "skewed"]
