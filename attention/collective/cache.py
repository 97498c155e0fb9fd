"""Keys and values of a paged cache, straight from memory into the operands of mma.m16n8k16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec
from ptxkit.ptx import ld, mov, mul, prmt
from ptxkit.types import b8, b32, pred, u32

LOW, HIGH = 0x5410, 0x7632              # of prmt: the lower or the upper halves of two words
WORDS = 4                               # of a load of 16 bytes


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache [pages, page size, heads, head dim] as kernel parameters: its address, and the strides from page to page, from row to row and
    from head to head in bytes."""

    pointer: Ptr[b8]
    page: Reg[u32]
    row: Reg[u32]
    head: Reg[u32]


@dataclass(frozen=True, slots=True)
class Heads:
    """An array [batches, heads, head dim] as kernel parameters: its address, and the strides of batches and of heads in bytes."""

    pointer: Ptr[b8]
    batch: Reg[u32]
    head: Reg[u32]

    def at(self, batch: Reg[u32], head: Reg[u32]) -> Ptr[b8]:
        """The first element of a head."""
        return self.pointer.at(mul.wide.u32(batch, self.batch)).at(mul.wide.u32(head, self.head))


class Keys:
    """16 keys as operand B of the scores. A sum over the head dim may be in any order, so lane (g, t) has 8 neighbouring elements of keys g
    and g + 8 in each 32: two operands of one load of 16 bytes."""

    def __init__(self, cache: Cache, head: Reg[u32], skipped: Reg[u32], g: Reg[u32], t: Reg[u32], elements: int) -> None:
        self.cache = cache
        self.base = cache.pointer.at(mul.wide.u32(head, cache.head)).at(mul.wide.u32(g, cache.row)).at(skipped + t * 16)
        self.words = [[Vec([mov.b32(0) for _ in range(WORDS)]) for _ in range(elements // 32)] for _ in range(2)]

    def load(self, page: Reg[u32], row: Reg[u32], there: Reg[pred]) -> None:
        """Load the keys from `row` of a page on, if they are there."""
        place = self.base.at(mul.wide.u32(page, self.cache.page)).at(mul.wide.u32(row, self.cache.row))
        for half, words in enumerate(self.words):
            line = place.at(mul.wide.u32(self.cache.row, 8)) if half else place
            for number, four in enumerate(words):
                ld.global_.L1__no_allocate.v4.b32(four, line.cast(b32) + 16 * number, pred=there)

    def operand(self, half: int, step: int) -> list[Any]:
        """Operand B of 8 keys, for 16 elements."""
        return list(self.words[half][step // 2])[step % 2 * 2:step % 2 * 2 + 2]


class Values:
    """16 values as operand B of the outputs. Columns may be in any order, so lane (g, t) has 8 neighbouring elements, from 8 g on in each
    64, of values 2t, 2t + 1, 2t + 8 and 2t + 9; prmt makes the pairs along the keys."""

    LINES = (0, 1, 8, 9)

    def __init__(self, cache: Cache, head: Reg[u32], skipped: Reg[u32], g: Reg[u32], t: Reg[u32], elements: int) -> None:
        self.cache, self.first, self.spans = cache, t * 2, elements // 64
        self.base = cache.pointer.at(mul.wide.u32(head, cache.head)).at(mul.wide.u32(self.first, cache.row)).at(skipped + g * 16)

    def load(self, page: Reg[u32], row: Reg[u32], left: Reg[u32]) -> list[list[Vec[Any, Any]]]:
        """The words of each line and span. Lines at or past `left` are not read and are 0: their weights are 0, but 0 times infinity is
        NaN."""
        place = self.base.at(mul.wide.u32(page, self.cache.page)).at(mul.wide.u32(row, self.cache.row))
        found = []
        for number in self.LINES:
            line = (place.at(mul.wide.u32(self.cache.row, number)) if number else place).cast(b32)
            there = self.first + number < left
            fours = [Vec([mov.b32(0) for _ in range(WORDS)]) for _ in range(self.spans)]
            for span, four in enumerate(fours):
                ld.global_.L1__no_allocate.v4.b32(four, line + 32 * span, pred=there)
            found.append(fours)
        return found

    @staticmethod
    def operand(lines: list[list[Vec[Any, Any]]], span: int, tile: int) -> list[Any]:
        """Operand B of columns 64 span + 8 n + tile, n = 0 to 7."""
        first, second, third, fourth = (list(line[span])[tile // 2] for line in lines)
        half = HIGH if tile % 2 else LOW
        return [prmt.b32(first, second, half), prmt.b32(third, fourth, half)]


__all__ = ["Cache", "Heads", "Keys", "Values"]
