"""What attention is asked for: shapes, types and strides of its arrays, or one sentence about what is wrong with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ptxkit.errors import LaunchError
from ptxkit.gemm.problem.lines import UNIT, Lines
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_aligned
from ptxkit.runtime.overlap import refuse_shared_elements
from ptxkit.types import TYPES

from ..config.forward import HEADS, ForwardConfig
from .refusals import check_heads, check_lse, check_scale

MOST_EXTENT, MOST_STRIDE = (1 << 31) - 1, 1 << 40
AXES = {4: "[B, H, S, D]", 3: "[T, H, D]"}


class Arrays(NamedTuple):
    """The arrays of a call."""

    q: ArrayView
    k: ArrayView
    v: ArrayView
    out: ArrayView
    lse: ArrayView | None = None
    cu_seqlens: ArrayView | None = None

    def named(self) -> list[tuple[str, ArrayView]]:
        """Those that are there, by name."""
        return [(name, array) for name, array in zip(self._fields, self, strict=True) if array is not None]


@dataclass(frozen=True, slots=True)
class Options:
    """Besides the arrays: the mask, the scale of the scores (None: 1 / sqrt(D)), and whether heads of queries may share heads of keys."""

    causal: bool = False
    scale: float | None = None
    gqa: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Attention of `batches` x `heads` heads with `head` elements, and `group` heads of queries to a head of keys. Packed: one batch of all
    rows, in `sequences` sequences."""

    type: str
    batches: int
    heads: int
    group: int
    queries: int
    keys: int
    head: int
    causal: bool
    scale: float
    lse: bool
    sequences: int
    lines: tuple[tuple[str, Lines], ...]

    @classmethod
    def of(cls, arrays: Arrays, options: Options = Options()) -> Problem:
        """The problem of these arrays. Raises LaunchError for what no kernel takes."""
        q, k = arrays.q, arrays.k
        _check(arrays, options)
        packed = arrays.cu_seqlens is not None
        batches, heads, queries = (1, q.shape[1], q.shape[0]) if packed else q.shape[:3]
        kv_heads, keys = (k.shape[1], k.shape[0]) if packed else k.shape[1:3]
        scale = 1 / math.sqrt(q.shape[-1]) if options.scale is None else float(options.scale)
        lines = tuple((name[0], _lines(name, array, packed)) for name, array in arrays.named()[:4])
        sequences = arrays.cu_seqlens.shape[0] - 1 if arrays.cu_seqlens is not None else 0
        return cls(q.dtype, batches, heads, heads // kv_heads if kv_heads else 1, queries, keys, q.shape[-1], options.causal, scale,
                   arrays.lse is not None, sequences, lines)

    @property
    def packed(self) -> bool:
        return self.sequences > 0

    @property
    def in_place(self) -> tuple[str, ...]:
        """The operands that the output may replace. A tile loads its queries before it stores there, and the first ones of the sequences
        after it: another CTA may be storing those."""
        return () if self.packed else ("q",)

    @property
    def empty(self) -> bool:
        """Whether there is no output."""
        return not self.batches * self.heads * self.queries


def lse_shape(q: ArrayView, packed: bool) -> tuple[int, ...]:
    """The shape of the log-sum-exp: [B, H, S], or [H, T]."""
    return (q.shape[1], q.shape[0]) if packed else q.shape[:3]


def check_config(config: ForwardConfig | None, problem: Problem | None = None) -> None:
    """Raises LaunchError unless this is None or a configuration; and where the problem is known, one for it."""
    if config is None:
        return
    if not isinstance(config, ForwardConfig):
        raise LaunchError(f"config is a {type(config).__name__}: it is a ForwardConfig of ptxkit.attention.config.forward, or None")
    if problem is not None:
        for name in ("head", "causal", "packed", "lse"):
            if getattr(config, name) != getattr(problem, name):
                raise LaunchError(f"this config is not for this problem: its {name} is {getattr(config, name)}, the arguments need "
                                  f"{getattr(problem, name)}")
        if config.type.__name__ != problem.type:
            raise LaunchError(f"this config is not for this problem: it is for {config.type.__name__}, the arrays have {problem.type}")


def _check(arrays: Arrays, options: Options) -> None:
    q, k, v, out = arrays[:4]
    packed = arrays.cu_seqlens is not None
    rank = 3 if packed else 4
    for name, array in zip(("q", "k", "v", "out"), arrays[:4], strict=True):
        if len(array.shape) != rank:
            raise LaunchError(f"{name} has shape {array.shape}: attention takes {AXES[rank]} {'with' if packed else 'without'} cu_seqlens")
        if array.dtype not in ("bf16", "f16") or array.dtype != q.dtype:
            raise LaunchError(f"{name} has elements of {array.dtype}: q, k, v and out are all bf16 or all f16")
    if q.shape[-1] not in HEADS:
        raise LaunchError(f"q has head dim {q.shape[-1]}: attention takes {', '.join(map(str, HEADS[:-1]))} and {HEADS[-1]}; pad the heads")
    if k.shape != v.shape:
        raise LaunchError(f"k has shape {k.shape} and v {v.shape}: they have one shape")
    if k.shape[-1] != q.shape[-1] or (not packed and k.shape[0] != q.shape[0]):
        raise LaunchError(f"q has shape {q.shape} and k {k.shape}: they have the same batches and the same head dim")
    if packed and k.shape[0] != q.shape[0]:
        raise LaunchError(f"q has {q.shape[0]} rows and k {k.shape[0]}: cu_seqlens divides both, so they have as many")
    if out.shape != q.shape:
        raise LaunchError(f"out has shape {out.shape}: it has that of q, {q.shape}")
    _check_heads(q.shape[1], k.shape[1], options.gqa)
    check_scale(options.scale)
    refuse_shared_elements("out", out)
    check_lse(arrays.lse, lse_shape(q, packed))
    if arrays.cu_seqlens is not None:
        seen = arrays.cu_seqlens
        if seen.dtype != "s32" or len(seen.shape) != 1 or seen.shape[0] < 2 or seen.strides != (1,):
            raise LaunchError(f"cu_seqlens is {seen.dtype} of shape {seen.shape} and strides {seen.strides}: it is int32 [sequences + 1], "
                              "contiguous, rising from 0")


def _check_heads(heads: int, kv_heads: int, gqa: bool) -> None:
    if heads != kv_heads and not gqa:
        raise LaunchError(f"q has {heads} heads and k {kv_heads}: with enable_gqa=True heads of queries share heads of keys")
    check_heads(heads, kv_heads, "k")


def _lines(name: str, array: ArrayView, packed: bool) -> Lines:
    """The array as a tensor map of rank 4 sees it: head dim, rows, heads, batches. An extent of 1 gets a stride that a map takes."""
    size = TYPES[array.dtype].bits // 8
    if 0 in array.shape:
        return Lines((), ())
    if packed:
        rows, heads, head = array.shape
        (row_stride, head_stride, step), batches, batch_stride = array.strides, 1, 0
    else:
        (batches, heads, rows, head), (batch_stride, head_stride, row_stride, step) = array.shape, array.strides
    strides, before = [], head * size
    for extent, stride in ((rows, row_stride * size), (heads, head_stride * size), (batches, batch_stride * size)):
        if extent > MOST_EXTENT or (extent > 1 and stride >= MOST_STRIDE):
            raise LaunchError(f"{name} has shape {array.shape} and strides {array.strides}: there are fewer than 2^31 rows, heads and "
                              "batches, less than 2^40 bytes apart, as tensor maps have them; pass parts of it, or a contiguous copy")
        if extent > 1 and (stride % UNIT or stride < 0):
            raise LaunchError(f"{name} has shape {array.shape} and strides {array.strides}: those of rows, heads and batches are "
                              f"multiples of {UNIT} bytes; pass a contiguous copy")
        strides.append(stride if extent > 1 else before)
        before = max(before, strides[-1] * max(extent, 1))
    if step != 1:
        raise LaunchError(f"{name} has shape {array.shape} and strides {array.strides}: the head dim is contiguous; pass a contiguous copy")
    check_aligned(name, array, UNIT)
    return Lines((head, rows, heads, batches), tuple(strides))


__all__ = ["Arrays", "Options", "Problem", "check_config", "lse_shape"]
