"""What is asked for: operands checked, extents, majors and strides, and the fusion that the arguments describe."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError
from ptxkit.layout import Major
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_dtype, check_shape
from ptxkit.types import TYPES, Scalar, f16

from ..collective.epilogue_ops import ACTIVATIONS, Fusion, ScaleKind
from ..collective.thread_scales import BLOCK
from ..config.dense import OPERANDS, Operands
from ..config.parts import (
    BlockScaled,
    CopiedLoads,
    Direct,
    Hilbert,
    L2Fetch,
    Loads,
    Promoted,
    Promotion,
    Rows,
    Scheduler,
    SplitK,
    Store,
    StreamK,
    TensorCopies,
    TensorCoreSums,
    Tile,
)
from .lines import NO_OPERAND, Lines, aligned, check_forwards, check_rows, mapped, operand, pairwise, result, row_strides
from .scales import check_contiguous_vector, check_near, scale_kind, taken

NAMES = {"float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32", "float8_e4m3fn": "e4m3",
         "float8_e5m2": "e5m2"}
RESULTS = ("f16", "bf16", "f32", "e4m3", "e5m2")
BLOCK_COLUMNS = 8           # which an epilogue that works on pairs reads and stores if the first of them exists
FEW_ROWS = 128              # of A, up to which a product takes as long as B
SPAN = 32                   # bytes: rows of a tile that goes through shared memory are multiples of it
LINE: L2Fetch = 128         # bytes of a line of the L2
MOST_EXTENT = (1 << 31) - 1024
"""Extents are below this, so that coordinates of tensor copies fit 32 bits up to a tile after the last row."""
MOST_TILES = 1 << 31        # so that a CTA's next number stays below 2^32
SMALL = 64                  # rows and columns of a small tile
PREFETCH_STAGES = 4         # of B, where every CTA waits for it


class Arrays(NamedTuple):
    """The arrays of one product. `a` [M, K], `b` [K, N] and `out` [M, N], or all three with a leading batch."""

    a: ArrayView
    b: ArrayView
    out: ArrayView
    c: ArrayView | None = None
    bias: ArrayView | None = None
    residual: ArrayView | None = None
    a_scale: ArrayView | None = None
    b_scale: ArrayView | None = None

    def named(self) -> list[tuple[str, ArrayView]]:
        """Those that are given, by name."""
        return [(name, array) for name, array in zip(self._fields, self, strict=True) if array is not None]


@dataclass(frozen=True, slots=True)
class Options:
    """The rest of the arguments of `gemm.gemm`."""

    alpha: float = 1.0
    beta: float = 0.0
    activation: Any = None
    accumulate: str = "f32"
    fast_accum: bool | None = None
    batch_invariant: bool = False


PLAIN = Options()


class Problem:
    """One product, checked: everything of it but the pointers."""

    __slots__ = ("a", "accumulator", "b", "batches", "block_scales", "d_lines", "fusion", "invariant", "k", "m", "n", "of_a", "of_b", "out",
                 "promote", "ragged", "s_lines", "s_strides", "scale_bulk", "store", "strides")

    def __init__(self, arrays: Arrays, options: Options = PLAIN) -> None:
        a, b, out = arrays.a, arrays.b, arrays.out
        self.batches, self.m, self.n, self.k = extents(a, b)
        if a.dtype not in OPERANDS:
            raise LaunchError(f"a has elements of {a.dtype}: gemm multiplies {', '.join(OPERANDS)}")
        if b.dtype not in OPERANDS[a.dtype]:
            raise LaunchError(f"a has elements of {a.dtype} and b of {b.dtype}: b must have {' or '.join(OPERANDS[a.dtype])}")
        check_dtype("out", out, RESULTS)
        shape = (self.m, self.n) if self.batches is None else (self.batches, self.m, self.n)
        if out.shape != shape:
            raise LaunchError(f"out has shape {out.shape}: a {a.shape} times b {b.shape} gives {shape}")
        self._check_extents(a, b)
        self.a, self.b, self.out = TYPES[a.dtype], TYPES[b.dtype], TYPES[out.dtype]
        self.accumulator = self._accumulator(options)
        self.of_a = self.of_b = NO_OPERAND
        if not self.empty and self.k:
            self.of_a, self.of_b = operand("a", a, rows_are_mn=True), operand("b", b, rows_are_mn=False)
        self.block_scales = False
        self.s_lines = Lines((), ())                # of A's block scales, where a tensor map can have them
        self.s_strides: tuple[tuple[int, ...], ...] = ((0, 0), (0, 0))       # of block scales, of A and of B
        self.scale_bulk = False                     # whether besides those of B are contiguous along K, on 16-byte lines
        self.fusion = self._fusion(arrays, options)
        self.d_lines = Lines((), ()) if self.empty else result("out", out)
        if not self.k and not self.empty and not self.fusion.nothing:
            raise LaunchError("K = 0 leaves nothing to multiply: apply the epilogue to zeros without a gemm")
        self.promote = self.block_scales or (self.a.bits == 8 and options.fast_accum is False)
        if self.block_scales and self.by_threads:
            raise LaunchError("block scales are those of operands whose lines along K begin at multiples of 16 bytes: pad a and b along K, "
                              "or pass copies that are contiguous along K")
        if options.fast_accum and self.block_scales:
            raise LaunchError("fast_accum=True sums the whole depth in the tensor cores, block scales apply every 128: leave it out")
        self.invariant = options.batch_invariant
        self.strides = tuple(row_strides(array) for array in (out, arrays.c, arrays.residual))
        self.store = self._store(arrays)
        self.ragged = bool(self.n % BLOCK_COLUMNS)

    def _check_extents(self, a: ArrayView, b: ArrayView) -> None:
        """Raise LaunchError where numbers of rows, columns or work tiles do not have room."""
        for name, extent in (("M", self.m), ("N", self.n), ("K", self.k)):
            if extent >= MOST_EXTENT:
                raise LaunchError(f"{name} = {extent:,}: extents are less than {MOST_EXTENT:,}; launch parts of the product")
        least = (1 if self.batches is None else self.batches) * -(-self.m // SMALL) * -(-self.n // SMALL)
        if least >= MOST_TILES:
            raise LaunchError(f"a {a.shape} times b {b.shape} is {least:,} tiles of {SMALL} x {SMALL}: a launch has fewer than "
                              f"{MOST_TILES:,}; launch parts of the batch")

    def aligned(self, names: str) -> Problem:
        """The problem after a copy of these operands ("a", "b", "ab") to lines that tensor copies can load."""
        if not names:
            return self
        made = copy.copy(self)
        size = self.a.bits // 8
        made.of_a = aligned(self.of_a, size) if "a" in names else self.of_a
        made.of_b = aligned(self.of_b, size) if "b" in names else self.of_b
        return made

    @property
    def swapped(self) -> Problem:
        """The problem of D^T = B^T A^T. D lies where it lay: `d_lines`, `strides` and `store` are those of D."""
        made = copy.copy(self)
        made.m, made.n, made.a, made.b, made.of_a, made.of_b = self.n, self.m, self.b, self.a, self.of_b, self.of_a
        made.fusion = self.fusion.swapped
        return made

    @property
    def misaligned(self) -> str:
        """The operands that tensor copies cannot load: "", "a", "b" or "ab"."""
        both = ("a", self.of_a), ("b", self.of_b)
        return "".join(name for name, one in both if not isinstance(one.copies, TensorCopies))

    @property
    def a_major(self) -> Major:
        """The major of tiles of A."""
        return self.of_a.major

    @property
    def b_major(self) -> Major:
        """The major of tiles of B."""
        return self.of_b.major

    @property
    def a_lines(self) -> Lines:
        """A for a tensor map."""
        return self.of_a.lines

    @property
    def b_lines(self) -> Lines:
        """B for a tensor map."""
        return self.of_b.lines

    @property
    def by_threads(self) -> bool:
        """Whether threads must copy an operand, since tensor copies cannot."""
        return not (isinstance(self.of_a.copies, TensorCopies) and isinstance(self.of_b.copies, TensorCopies))

    def stored(self, tile: Tile, scheduler: Scheduler, wanted: Store | None = None) -> Store | None:
        """How a configuration with this tile stores D: as it `wanted`, unless the address, the strides or N do not allow that. None: as it
        derives."""
        return stored(self.store, self.out, tile, scheduler, wanted, ragged=self.ragged)

    def _store(self, arrays: Arrays) -> Direct | None:
        """The widest direct store that D and what is added allow; None if D can be stored in any way."""
        if self.empty:
            return None
        added = [array for array in (arrays.c if self.fusion.c else None, arrays.residual) if array is not None]
        pairs = not self.n % BLOCK_COLUMNS or not (added or (self.fusion.bias and self.fusion.bias_along == "column"))
        pairs = pairs and all(pairwise(array) for array in added) and self._bias_in_pairs(arrays.bias)
        if pairs and mapped(arrays.out):
            return None
        return Direct(2 if pairs and not self.n % BLOCK_COLUMNS and pairwise(arrays.out) else 1)

    def _bias_in_pairs(self, bias: ArrayView | None) -> bool:
        return bias is None or self.fusion.bias_along == "row" or not bias.pointer % (TYPES[bias.dtype].bits // 4)

    @property
    def operands(self) -> Operands:
        """The element types, majors and batches that a configuration must have."""
        return Operands(self.a, self.b, self.out, self.accumulator, self.a_major, self.b_major, self.batches is not None)

    def sums(self, how: Promotion = "plain") -> TensorCoreSums | Promoted | BlockScaled:
        """Where the sums along K are accumulated; promoted ones in this way."""
        if self.block_scales:
            return BlockScaled(how, "bulk" if self.scale_bulk else "tensor_map" if self.scale_map else "warp")
        return Promoted(how) if self.promote else TensorCoreSums()

    def loads(self, scheduler: Scheduler, swap_ab: bool = False) -> Loads | CopiedLoads:
        """How operands are read, unless a configuration does it otherwise: with few rows every CTA waits for B, so that it is prefetched,
        and the L2 fetches no more than what is asked for; nor where lines straddle those of the L2."""
        if self.by_threads:
            return CopiedLoads(self.of_a.copies, self.of_b.copies)
        if self.m > FEW_ROWS:
            straddled = (self.a_lines.strides[0] | self.b_lines.strides[0]) % LINE
            return Loads(l2_fetch=LINE) if straddled else Loads()
        first_is_known = not (swap_ab or isinstance(scheduler, StreamK) or isinstance(scheduler.order, Hilbert))
        return Loads(l2_prefetch_stages=PREFETCH_STAGES if first_is_known else 0, l2_fetch=LINE)

    @property
    def plain(self) -> bool:
        """Whether A, B and D are all its arrays."""
        return self.fusion.nothing and not self.block_scales

    @property
    def empty(self) -> bool:
        """Whether D has no elements."""
        return not (self.m and self.n and self.batches != 0)

    def _accumulator(self, options: Options) -> type[Scalar]:
        check_words(options.activation, options.accumulate)
        if options.accumulate == "f16" and self.a is not f16:
            raise LaunchError(f"accumulate='f16' is for f16 operands, not {self.a.__name__}: leave it out")
        return TYPES[options.accumulate]

    def _fusion(self, arrays: Arrays, options: Options) -> Fusion:
        if options.beta and arrays.c is None:
            raise LaunchError(f"beta={options.beta} without c: pass the matrix that it scales")
        shape = arrays.out.shape
        for name, array in (("c", arrays.c), ("residual", arrays.residual)):
            if array is not None:
                check_dtype(name, array, ("f16", "bf16", "f32"))
                check_shape(name, array, shape)
                check_rows(name, array)
        along = self._bias(arrays.bias)
        return Fusion(options.alpha != 1.0, self._scales(arrays, options), TYPES[arrays.c.dtype] if arrays.c and options.beta else None,
                      TYPES[arrays.bias.dtype] if arrays.bias else None, along, options.activation,
                      TYPES[arrays.residual.dtype] if arrays.residual else None)

    def _bias(self, bias: ArrayView | None) -> Any:
        """Along which extent of D the bias runs."""
        if bias is None:
            return "column"
        check_dtype("bias", bias, ("f16", "bf16", "f32"))
        row, column = (self.m, 1), ((self.n,), (1, self.n))
        if bias.shape not in (row, *column):
            raise LaunchError(f"bias has shape {bias.shape}: it is ({self.n},) for the columns of out, or ({self.m}, 1) for its rows")
        along = "column" if bias.shape in column else "row"
        stride = bias.strides[-1] if along == "column" else bias.strides[0]
        if stride != 1 and max(bias.shape) > 1:
            raise LaunchError(f"bias has strides {bias.strides}: its elements must be next to each other; pass a contiguous copy")
        return along

    def _scales(self, arrays: Arrays, options: Options) -> ScaleKind | None:
        """What the scales of an epilogue are those of; sets `block_scales`."""
        a, b = arrays.a_scale, arrays.b_scale
        if a is None and b is None:
            return None
        if a is None or b is None:
            raise LaunchError(f"{'a_scale' if a is None else 'b_scale'} is missing: both operands have scales, or none")
        for name, scale in (("a_scale", a), ("b_scale", b)):
            check_dtype(name, scale, ("f32",))
        asked = a.shape, b.shape, self.m, self.n, self.k
        kind = scale_kind(*asked)
        if kind == "block" and (self.by_threads or options.fast_accum or self.a.bits != 8 or self.batches is not None):
            kind = scale_kind(*asked, blocks=False) or kind
        if kind == "whole":
            return kind
        if self.a.bits != 8:
            raise LaunchError("scales of rows, columns and blocks are those of fp8 operands, a has elements of "
                              f"{self.a.__name__}: pass scales of one element")
        if kind is None or self.batches is not None:
            raise LaunchError(f"a_scale has shape {a.shape} and b_scale {b.shape}: {taken(self.m, self.n, self.k, self.batches)}")
        if kind != "block":
            check_contiguous_vector("a_scale", a)
            check_contiguous_vector("b_scale", b)
            return kind
        if arrays.out.shape[-1] > 1 and arrays.out.strides[-1] != 1:
            raise LaunchError(f"out has strides {arrays.out.strides}: with block scales its rows must be contiguous; pass a contiguous one")
        check_near("a_scale", a)
        check_near("b_scale", b)
        depth = -(-self.k // BLOCK)
        self.block_scales, self.s_strides = True, (a.strides, b.strides)
        line = a.strides[1] if depth > 1 else -(-self.m // 4) * 4       # elements; a single line has any
        if (a.strides[0] == 1 or self.m == 1) and line % 4 == 0 and line >= self.m and a.pointer % 16 == 0:
            self.s_lines = Lines((self.m, depth), (4 * line,))
            self.scale_bulk = (b.strides[0] == 1 or depth == 1) and depth % 4 == 0 and b.strides[1] % 4 == 0 and b.pointer % 16 == 0
        return None

    @property
    def scale_map(self) -> bool:
        """Whether A has block scales that are contiguous along M, on 16-byte lines."""
        return bool(self.s_lines.dims)

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)


def check_words(activation: Any, accumulate: Any) -> None:
    """Raise LaunchError unless an activation and what sums are accumulated in are those that there are. A function is a part of the
    configuration, which is kept by it, so that it can be hashed."""
    named = isinstance(activation, str) and activation in ACTIVATIONS
    if not (activation is None or named or (callable(activation) and type(activation).__hash__ is not None)):
        raise LaunchError(f"activation={short(activation)}: it is one of {', '.join(ACTIVATIONS)}, or a function of one register")
    if not (isinstance(accumulate, str) and accumulate in ("f32", "f16")):
        raise LaunchError(f"accumulate={short(accumulate)}: sums are 'f32' or 'f16'")


def short(value: Any) -> str:
    """What an argument is, in one line that a sentence has room for."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def stored(direct: Direct | None, out: type[Scalar], tile: Tile, scheduler: Scheduler, wanted: Store | None = None, *,
           ragged: bool = False) -> Store | None:
    """See `Problem.stored`; `direct` is the widest direct store that is allowed, if not all are. `ragged`: the rows of D end within a block
    of columns, so that direct stores are by element where tensor copies may store in any way."""
    rows = not isinstance(scheduler, SplitK) and out.bits > 8 and tile.BN * out.bits // 8 % SPAN == 0
    if direct is None:
        return Direct(1) if ragged and (isinstance(wanted, Direct) or (wanted is None and not rows)) else wanted
    if isinstance(wanted, Direct) and wanted.elements <= direct.elements:
        return wanted
    return Rows() if rows else direct


def extents(a: ArrayView, b: ArrayView) -> tuple[int | None, int, int, int]:
    """(batches or None, M, N, K) of a [M, K] times b [K, N], or of a batch of them."""
    for name, array in (("a", a), ("b", b)):
        if len(array.shape) not in (2, 3):
            raise LaunchError(f"{name} has shape {array.shape}: it must be a matrix, or a batch of them")
    if len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2]:
        raise LaunchError(f"a has shape {a.shape} and b {b.shape}: they are both matrices, or both batches of as many")
    if a.shape[-1] != b.shape[-2]:
        raise LaunchError(f"a has shape {a.shape} and b {b.shape}: a is [M, K] and b [K, N]; pass a weight w of shape [N, K] as w.T")
    return (a.shape[0] if len(a.shape) == 3 else None), a.shape[-2], b.shape[-1], a.shape[-1]


def type_name(dtype: Any) -> str | None:
    """ptxkit's name of a result type given as a ptxkit type, a name, or a torch or NumPy dtype."""
    if dtype is None:
        return None
    if isinstance(dtype, type) and issubclass(dtype, Scalar):
        return dtype.__name__
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    word = NAMES.get(name, name)
    if word not in RESULTS:
        raise LaunchError(f"out_dtype={short(dtype)}: the result is {', '.join(RESULTS)}")
    return word


__all__ = ["PLAIN", "Arrays", "Lines", "Options", "Problem", "check_forwards", "check_words", "extents", "operand", "result", "short",
           "type_name"]
