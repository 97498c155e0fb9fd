"""Which products an export has, and the configuration that Python gives each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ptxkit.cards import Card
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..config.parts import ElementCopies
from ..heuristic.dense import heuristic
from ..heuristic.tuned import tuned
from ..problem.dense import Arrays, Problem
from ..problem.matmul import settled
from ..tools import models

LINE = 4                # float32 numbers of 16 bytes
KINDS = {"bf16": "BF16", "f16": "F16", "fp8": "FP8", "fp8-row": "FP8_ROW", "fp8-block": "FP8_BLOCK"}
"""The types of layers, as the header names them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Products with one weight: D [M, N] = A B for many M. `scales`: "", "tensor" (one for each operand), "row" (one for each row of A
    and each column of B) or "block". `padded`: the block scales of A have lines that begin at multiples of 16 bytes. `turned`: the
    operands, "a", "b" or "ab", that are read along the other extent, since one of their extents is 1."""

    kind: str
    n: int
    k: int
    dtype: str = "bf16"
    b_dtype: str = "bf16"
    out: str = "bf16"
    layout: str = "nt"
    scales: str = ""
    padded: bool = False
    turned: str = ""

    def arrays(self, m: int) -> Arrays:
        """The arrays of a product with `m` rows, without their memory. Their lines have no gaps, but where `padded` says so."""
        depth = -(-self.k // 128)
        scales: tuple[ArrayView | None, ...] = (None, None)
        if self.scales == "tensor":
            scales = (_array("f32", (1,)),) * 2
        elif self.scales == "row":
            scales = _array("f32", (m,)), _array("f32", (self.n,))
        elif self.scales == "block":
            line = -(-m // LINE) * LINE if self.padded else m
            scales = _array("f32", (m, depth), (1, line)), _array("f32", (depth, -(-self.n // 128)), (1, depth))
        a, b = ((extents, (extents[1], 1) if letter == "n" else (1, extents[0]))
                for extents, letter in zip(((m, self.k), (self.k, self.n)), self.layout, strict=True))
        return settled(Arrays(_array(self.dtype, *a), _array(self.b_dtype, *b), _array(self.out, (m, self.n)), None, None, None, *scales))

    def problem(self, m: int) -> Problem:
        """The product with `m` rows."""
        return Problem(self.arrays(m))

    def chosen(self, m: int, card: Card) -> DenseConfig:
        """What `gemm.gemm` takes on a card: the tuned configuration if there is one, else the heuristic's."""
        problem = self.problem(m)
        return tuned(problem, card) or heuristic(problem, card)

    def read(self, m: int) -> Layer:
        """The layer as a product with `m` rows reads its operands. Without gaps, lines of one element are one line."""
        problem, turned = self.problem(m), ""
        for name, one, fast in zip("ab", (problem.of_a, problem.of_b), self.fast, strict=True):
            across = isinstance(one.copies, ElementCopies) and one.copies.across
            turned += name if not across and (one.major == "mn") != fast else ""
        return replace(self, turned=turned)

    @property
    def fast(self) -> tuple[bool, bool]:
        """Whether A is read along M, and B along N."""
        return (self.layout[0] == "t") != ("a" in self.turned), (self.layout[1] == "n") != ("b" in self.turned)

    @property
    def across(self) -> tuple[bool, bool]:
        """Whether tiles of A and of B go across lines: those of types that wgmma does not transpose."""
        return self.fast[0] and self.bytes != 2, self.fast[1] and self.bytes != 2

    @property
    def bytes(self) -> int:
        """Of an element of A and B."""
        return TYPES[self.dtype].bits // 8

    @property
    def out_bytes(self) -> int:
        """Of an element of D."""
        return TYPES[self.out].bits // 8

    def __str__(self) -> str:
        words = self.dtype if self.dtype == self.b_dtype else f"{self.dtype} x {self.b_dtype}"
        lines = "" if self.scales != "block" else ", lines of A's scales of a multiple of 4" if self.padded else ", of other lines"
        return f"N {self.n}, K {self.k}, {words}{f'-{self.scales}' if self.scales in ('row', 'block') else ''} {self.layout}{lines}"


def _array(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> ArrayView:
    return ArrayView(0, shape, contiguous_strides(shape) if strides is None else strides, dtype, 0, "other")


@dataclass(frozen=True, slots=True)
class Table:
    """A layer with its choices: each is the configuration for up to so many rows, by rows."""

    layer: Layer
    choices: tuple[tuple[int, DenseConfig], ...]

    def chosen(self, m: int) -> DenseConfig:
        """The choice for `m` rows: that of the next number of rows in the table, of the largest one for more."""
        return next((config for most, config in self.choices if m <= most), self.choices[-1][1])


def table(layer: Layer, rows: Iterable[int], card: Card) -> Table:
    """The choices of a layer for these numbers of rows. Numbers that follow one another with the same choice are one."""
    found: list[tuple[int, DenseConfig]] = []
    for m in sorted(set(rows)):
        config = layer.chosen(m, card)
        if found and found[-1][1] == config:
            found.pop()
        found.append((m, config))
    return Table(layer, tuple(found))


def model_tables(name: str, cards: int | None, card: Card, rows: Sequence[int] = (), by_row: bool = False) -> tuple[Table, ...]:
    """The dense layers of a model on one of `cards` cards, in each of their types, with the listed rows and these. `by_row`: fp8 without
    blocks has scales of rows and columns, not one for each operand. Raises ModelError."""
    wanted: dict[Layer, set[int]] = {}
    for share in models.dense(name, cards):
        for kind in share.types:
            for layer, of in _layers("fp8-row" if kind == "fp8" and by_row else kind, share.n, share.k, share.rows, rows):
                wanted.setdefault(layer, set()).update(of)
    return tuple(table(layer, of, card) for layer, of in wanted.items())


def _layers(kind: str, n: int, k: int, listed: Sequence[int], more: Sequence[int]) -> list[tuple[Layer, set[int]]]:
    rows = {*listed, *more}
    if kind == "fp8-block":                     # scales of A whose lines are padded to 16 bytes, and those of listed rows that are not
        odd = {m for m in listed if m % LINE}
        found = [(Layer(kind, n, k, "e4m3", "e4m3", "bf16", scales="block", padded=True), rows)]
        return [*found, (Layer(kind, n, k, "e4m3", "e4m3", "bf16", scales="block"), odd)] if odd else found
    scales = {"fp8": "tensor", "fp8-row": "row"}.get(kind, "")
    return [(Layer(kind, n, k, *(("e4m3", "e4m3", "bf16") if scales else (kind,) * 3), scales=scales), rows)]


__all__ = ["KINDS", "LINE", "Layer", "Table", "model_tables", "table"]
