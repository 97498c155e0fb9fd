"""What attention decode is asked for: shapes, types and strides of its arrays, or one sentence about what is wrong with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_aligned
from ptxkit.runtime.overlap import refuse_shared_elements

from ..config.decode import BLOCK, HEADS, ROWS
from .refusals import check_heads, check_lse, check_scale

UNIT = 16                   # bytes of a load
SIZE = 2                    # bytes of an element
MOST_ROW = 1 << 28          # bytes from key to key of a page: a warp goes up to nine of them ahead in 32 bits
MOST = 65535                # CTAs along the second and the third axis of a grid
SHAPES = {"q": "[B, H, D]", "k_cache": "[pages, page size, H_kv, D]", "v_cache": "[pages, page size, H_kv, D]",
          "page_table": "[B, max pages]", "lengths": "[B]", "out": "[B, H, D]", "lse": "[B, H]"}


class DecodeArrays(NamedTuple):
    """The arrays of a call."""

    q: ArrayView
    k_cache: ArrayView
    v_cache: ArrayView
    page_table: ArrayView
    lengths: ArrayView
    out: ArrayView
    lse: ArrayView | None = None

    def named(self) -> list[tuple[str, ArrayView]]:
        """Those that are there, by name."""
        return [(name, array) for name, array in zip(self._fields, self, strict=True) if array is not None]


@dataclass(frozen=True, slots=True)
class DecodeProblem:
    """Decode of `batches` sequences with `heads` heads of `head` elements, `group` of them to a head of keys. A sequence has at most
    `max_pages` of the cache's `pages`, `page` keys each. Strides are bytes, `row` that of the page table elements."""

    type: str
    batches: int
    heads: int
    kv_heads: int
    head: int
    pages: int
    page: int
    max_pages: int
    scale: float
    lse: bool
    row: int
    strides: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, arrays: DecodeArrays, scale: float | None = None) -> DecodeProblem:
        """The problem of these arrays. Raises LaunchError for what no kernel takes."""
        _check(arrays)
        q, k, table = arrays.q, arrays.k_cache, arrays.page_table
        check_scale(scale)
        refuse_shared_elements("out", arrays.out)
        strides = tuple((name, _strides(name, array)) for name, array in zip(("q", "k_cache", "v_cache", "out"),
                                                                             (q, k, arrays.v_cache, arrays.out), strict=True))
        row = table.strides[0] if table.shape[0] > 1 else table.shape[1]
        return cls(q.dtype, q.shape[0], q.shape[1], k.shape[2], q.shape[2], k.shape[0], k.shape[1], table.shape[1],
                   1 / math.sqrt(q.shape[2]) if scale is None else float(scale), arrays.lse is not None, row, strides)

    @property
    def group(self) -> int:
        """Heads of queries that share a head of keys."""
        return self.heads // self.kv_heads if self.kv_heads else 0

    @property
    def slices(self) -> int:
        """CTAs that a head of keys needs for its heads of queries."""
        return -(-self.group // ROWS)

    @property
    def units(self) -> int:
        """CTAs of one part of the keys."""
        return self.batches * self.kv_heads * self.slices

    @property
    def keys(self) -> int:
        """The most keys that a sequence may have."""
        return min(self.max_pages * self.page, (1 << 31) - BLOCK) if self.pages else 0

    @property
    def empty(self) -> bool:
        """Whether there is no output."""
        return not self.batches * self.heads


def workspace_elements(problem: DecodeProblem, splits: int) -> int:
    """The f32 elements of the parts of `splits` CTAs for each row; none where nothing is split."""
    return splits * problem.batches * problem.heads * (problem.head + 2) if splits > 1 else 0


def _check(arrays: DecodeArrays) -> None:
    for name, array in arrays.named():
        if len(array.shape) != len(SHAPES[name].split(",")):
            raise LaunchError(f"{name} has shape {array.shape}: attention_decode takes {SHAPES[name]}")
    q, k, v, table, lengths, out, lse = arrays
    for name, array in (("q", q), ("k_cache", k), ("v_cache", v), ("out", out)):
        if array.dtype not in ("bf16", "f16") or array.dtype != q.dtype:
            raise LaunchError(f"{name} has elements of {array.dtype}: q, k_cache, v_cache and out are all bf16 or all f16")
    if q.shape[2] not in HEADS:
        raise LaunchError(f"q has head dim {q.shape[2]}: attention_decode takes {', '.join(map(str, HEADS[:-1]))} and "
                          f"{HEADS[-1]}; pad the heads")
    if k.shape != v.shape or k.shape[3] != q.shape[2]:
        raise LaunchError(f"k_cache has shape {k.shape} and v_cache {v.shape}: they have one shape, with the head dim of q, {q.shape[2]}")
    if k.shape[1] < BLOCK or k.shape[1] % BLOCK:
        raise LaunchError(f"k_cache has pages of {k.shape[1]} keys: a page has a multiple of {BLOCK}, as 16 or 64")
    check_heads(q.shape[1], k.shape[2], "k_cache")
    if out.shape != q.shape:
        raise LaunchError(f"out has shape {out.shape}: it has that of q, {q.shape}")
    if q.shape[1] > MOST:
        raise LaunchError(f"q has {q.shape[1]} heads: attention_decode takes up to {MOST}; pass parts of them")
    for name, array in (("page_table", table), ("lengths", lengths)):
        if array.dtype != "s32" or array.shape[0] != q.shape[0] or (0 not in array.shape and array.shape[-1] > 1
                                                                                        and array.strides[-1] != 1):
            raise LaunchError(f"{name} is {array.dtype} of shape {array.shape} and strides {array.strides}: it is int32 {SHAPES[name]} for "
                              f"{q.shape[0]} sequences, its last axis contiguous; pass a contiguous copy of that type")
    if table.strides[0] < 0 or table.strides[0] >= 1 << 32:
        raise LaunchError(f"page_table has a stride of {table.strides[0]} elements: pass a contiguous copy")
    check_lse(lse, q.shape[:2])


def _strides(name: str, array: ArrayView) -> tuple[int, ...]:
    """The strides of all axes but the last in bytes; that of an axis with one element is 0."""
    if 0 in array.shape:
        return (0,) * (len(array.shape) - 1)
    found = tuple(stride * SIZE if extent > 1 else 0 for extent, stride in zip(array.shape[:-1], array.strides[:-1], strict=True))
    if array.strides[-1] != 1 or any(stride % UNIT or not 0 <= stride < 1 << 32 for stride in found):
        raise LaunchError(f"{name} has shape {array.shape} and strides {array.strides}: the head dim is contiguous, the other strides are "
                          f"multiples of {UNIT} bytes below 4 GiB; pass a contiguous copy")
    check_aligned(name, array, UNIT)
    if name in ("k_cache", "v_cache") and found[1] > MOST_ROW:
        raise LaunchError(f"{name} has shape {array.shape} and strides {array.strides}: the keys of a page are at most "
                          f"{MOST_ROW >> 20} MiB apart; pass a contiguous copy")
    return found


__all__ = ["DecodeArrays", "DecodeProblem", "workspace_elements"]
