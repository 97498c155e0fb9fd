"""wgmma: the queue of a warpgroup, descriptors, and the product.

Each of the four warps issues its quarter; operation n of all four is one multiplication. A group that all four have committed runs
as a whole, at its last commit or when a warp waits for it, in order. Sums are in fp32: the products of one instruction (and of
neighbours that continue it) are added by BLAS, then to D; a group's consecutive instructions with one D are one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Fault, UnsupportedError
from .formats import decode
from .tasks import Region
from .values import DTYPES, Array, spread

if TYPE_CHECKING:
    from .cta import Cta, Warp
    from .fragment import Fragment
    from .program import Op

SINGLE_THREADED = 1 << 18
"""m * n * k up to which OpenBLAS multiplies in the calling thread (its SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD)."""

MODE_SPAN = {0: 16, 1: 128, 2: 64, 3: 32}


@dataclass(frozen=True, slots=True)
class Shape:
    """What one wgmma instruction multiplies; `d` "f32", "f16" or "s32", `registers` those of D. `k` counts the elements of B.

    `selector` is that of a sparse A, which holds k / 2 elements a row; None if A is dense.
    """

    op: Op
    n: int
    k: int
    d: str
    a: str
    b: str
    scale_a: int
    scale_b: int
    trans_a: int
    trans_b: int
    saturate: bool
    registers: tuple[int, ...]
    from_registers: bool
    selector: int | None = None

    @property
    def depth(self) -> int:
        """Bytes of a row of B."""
        return 32 if self.selector is None else 64


@dataclass(slots=True, eq=False)
class Product:
    """One issued operation. Per warp: the descriptor or registers of A, its metadata, and D's registers unless D is already in flight."""

    shape: Shape
    b: int
    accumulate: bool
    a: list[Any] = field(default_factory=lambda: [None] * 4)
    d: list[Any] = field(default_factory=lambda: [None] * 4)
    metadata: list[Any] = field(default_factory=lambda: [None] * 4)
    came: int = 0
    shadow: Any = None


@dataclass(slots=True, eq=False)
class Held:
    """The accumulators last written to one set of registers: the matrix, and per warp the lanes that its registers got."""

    matrix: Array
    rows: list[list[Array]] | None = None


@dataclass(slots=True, eq=False)
class WGroup:
    """A wgmma group: operations `first` to `last` of the queue (exclusive); `committed` counts the warps that closed it."""

    number: int
    first: int
    last: int
    committed: int = 0
    done: bool = False
    shadow: Any = None


class Warpgroup:
    """The wgmma queue of four warps. Positions in the queue and group numbers count from 0 for each warp alike."""

    def __init__(self, cta: Cta, warps: list[Warp]) -> None:
        self.cta = cta
        self.warps = warps
        self.queue: list[Product] = []
        self.dropped = 0
        """Operations that have run and left the queue's front."""
        self.groups: list[WGroup] = []
        self.issued = [0] * 4
        self.committed = [0] * 4
        self.waited = [0] * 4
        self.ran = 0
        self.held: dict[tuple[int, ...], Held] = {}
        self.open: list[dict[tuple[int, ...], int]] = [{} for _ in range(4)]
        """Per warp: for each set of accumulators the group (its number) that used it last, until the warp has waited for it."""
        self.waiters: list[Fragment] = []

    # ------------------------------------------------------------------------------------------------ issuing

    def issue(self, f: Fragment, shape: Shape, a: Any, b: Any, accumulate: Any, metadata: Any = None) -> Product:
        quarter = f.warp.index & 3
        at = self.issued[quarter]
        self.issued[quarter] += 1
        position = at - self.dropped
        if type(b) is not int or type(accumulate) is not bool or (not shape.from_registers and type(a) is not int):
            raise Fault("wgmma-uniform", f"{f.warp!r}: the descriptors and scale-d of `{shape.op.opcode}` differ between lanes",
                        "compute them from values that are the same in the warpgroup", shape.op)
        if position == len(self.queue):
            self.queue.append(Product(shape, b, accumulate))
        product = self.queue[position]
        if product.shape is not shape or product.b != b or product.accumulate != accumulate:
            raise Fault("wgmma-rendezvous", f"{f.warp!r} issues `{shape.op.opcode}` with other operands or at another place than the "
                        "other warps of its warpgroup", "all four warps issue the same wgmma in the same order", shape.op)
        product.a[quarter], product.metadata[quarter] = a, metadata
        flying = self.open[quarter]
        if shape.registers not in flying:
            first, last = shape.registers[0], shape.registers[-1] + 1
            same = last - first == len(shape.registers)
            product.d[quarter] = f.R[first:last] if same else [f.R[index] for index in shape.registers]
        flying[shape.registers] = self.committed[quarter]
        product.came += 1
        return product

    def commit(self, f: Fragment) -> WGroup:
        quarter = f.warp.index & 3
        number = self.committed[quarter]
        self.committed[quarter] += 1
        if number == len(self.groups):
            first = self.groups[-1].last if self.groups else 0
            self.groups.append(WGroup(number, first, self.issued[quarter]))
        group = self.groups[number]
        if group.last != self.issued[quarter]:
            raise Fault("wgmma-rendezvous", f"{f.warp!r} commits a group of {self.issued[quarter] - group.first} wgmma, another warp of "
                        f"its warpgroup one of {group.last - group.first}", "all four warps issue the same wgmma in the same order", None)
        group.committed += 1
        if group.committed == len(self.warps):
            machine = self.cta.machine
            machine.progress += 1
            if machine.policy.lands_at_once(group):
                self.run(number)
            machine.wake(self.waiters)
        return group

    def ready(self, number: int) -> bool:
        """Whether all warps have committed group `number` and those before it."""
        return number < len(self.groups) and self.groups[number].committed == len(self.warps)

    # ------------------------------------------------------------------------------------------------ running

    def run(self, number: int) -> None:
        """Run all groups up to `number`."""
        while self.ran <= number:
            group = self.groups[self.ran]
            products = self.queue[group.first - self.dropped:group.last - self.dropped]
            machine = self.cta.machine
            at = 0
            while at < len(products):
                stop = at + 1
                if products[at].shape.d != "f16":
                    while stop < len(products) and _continues(products[at], products[stop]):
                        stop += 1
                self._multiply(products[at:stop])
                at = stop
            del self.queue[:group.last - self.dropped]
            self.dropped = group.last
            group.done = True
            self.ran += 1
            machine.progress += 1
            if machine.watch is not None:
                machine.watch.wgmma_done(self, group, products)

    def retire(self, f: Fragment, keep: int) -> None:
        """The warp has waited for all but its newest `keep` groups: their accumulators are in its registers."""
        quarter = f.warp.index & 3
        finished = self.committed[quarter] - keep
        flying = self.open[quarter]
        for registers in [r for r, last in flying.items() if last < finished]:
            del flying[registers]
            held = self.held[registers]
            if held.rows is None:
                held.rows = _rows(held.matrix)
            rows = held.rows[quarter]
            first = registers[0]
            if registers[-1] - first + 1 == len(registers):
                f.R[first:first + len(registers)] = rows
            else:
                for index, row in zip(registers, rows, strict=True):
                    f.R[index] = row

    def _multiply(self, products: Sequence[Product]) -> None:
        first = products[0]
        shape = first.shape
        b = self._operand([p.b for p in products], shape.n, shape.b, shape.trans_b, shape.depth)
        if shape.from_registers:
            a = np.concatenate([_fragment_a(p.a, shape) for p in products], axis=1)
        else:
            a = self._operand([p.a[0] for p in products], 64, shape.a, shape.trans_a)
        if shape.selector is not None:
            a = expanded(a, np.concatenate([chunk_indices(p.metadata, p.shape) for p in products], axis=1), shape)
        kind = np.float64 if shape.d == "s32" else np.float32
        result = _product(a.astype(kind, copy=False), b.astype(kind, copy=False))
        if shape.scale_a * shape.scale_b < 0:
            result = -result
        if first.accumulate:
            before = self._accumulators(first)
            result = result + before
        if shape.d == "s32":
            if shape.saturate:
                result = np.clip(result, -(2.0**31), 2.0**31 - 1)
            result = (result.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        elif shape.d == "f16":
            with np.errstate(over="ignore"):
                result = result.astype(np.float16)
        self.held[shape.registers] = Held(result)

    def _accumulators(self, product: Product) -> Array:
        """D before the operation: what the last one left, or the registers where they were written since."""
        registers = product.shape.registers
        held = self.held.get(registers)
        given = product.d
        if held is not None:
            if all(mine is None for mine in given):
                return held.matrix
            rows = held.rows
            if rows is None:
                rows = held.rows = _rows(held.matrix)
            given = [row if mine is None else mine for mine, row in zip(given, rows, strict=False)]
            if all(all(map(_same, mine, row)) for mine, row in zip(given, rows, strict=False)):
                return held.matrix
        return _gather(given, product.shape)

    # ------------------------------------------------------------------------------------------------ operands

    def _operand(self, descriptors: list[int], extent: int, type: str, transposed: int, depth: int = 32) -> Array:
        """The (extent, depth) elements behind descriptors of neighbouring depth, as float32. `depth` is in bytes, for each descriptor."""
        index, base = chunks(tuple(descriptors), extent, transposed, depth)
        try:
            found = self.cta.chunks[index + base] if base + int(index.max()) < len(self.cta.chunks) else None
        except IndexError:
            found = None
        if found is None:
            raise Fault("out-of-bounds", f"a wgmma descriptor of {self.cta!r} reaches beyond its shared memory", "", None)
        if not transposed:
            return decode(found.view(np.uint8).reshape(extent, -1), type)
        return decode(found.view(np.uint8).reshape(found.shape[0], -1), type).T

    def regions(self, product: Product) -> list[Region]:
        """The shared memory that an operation reads."""
        shape = product.shape
        start = self.cta.start
        found = []
        for descriptor, extent, transposed, depth in ((None if shape.from_registers else product.a[0], 64, shape.trans_a, 32),
                                                      (product.b, shape.n, shape.trans_b, shape.depth)):
            if descriptor is not None:
                index, base = chunks((descriptor,), extent, transposed, depth)
                found.append(Region(self.cta.cluster.shared, (index.reshape(-1) + base) * 16 + start, 16))
        return found


def _product(a: Array, b: Array) -> Array:
    """`a @ b.T`, in pieces for which BLAS starts no threads: on shared cores they wait for each other a hundred times longer."""
    columns = max(1, SINGLE_THREADED // (64 * a.shape[1]))
    if b.shape[0] <= columns:
        return a @ b.T
    result = np.empty((64, b.shape[0]), a.dtype)
    for first in range(0, b.shape[0], columns):
        np.matmul(a, b[first:first + columns].T, out=result[:, first:first + columns])
    return result


def _same(a: Any, b: Any) -> bool:
    return a is b


def _continues(first: Product, then: Product) -> bool:
    """Whether an operation goes on with the accumulators of the one before, so that both are one product over a longer K."""
    return then.accumulate and all(d is None for d in then.d) and _form(then.shape) == _form(first.shape) and not then.shape.saturate


def _form(shape: Shape) -> tuple[Any, ...]:
    return (shape.n, shape.d, shape.a, shape.b, shape.scale_a, shape.scale_b, shape.trans_a, shape.trans_b, shape.from_registers,
            shape.selector is None, shape.registers)


@lru_cache(maxsize=4096)
def chunks(descriptors: tuple[int, ...], extent: int, transposed: int, depth: int = 32) -> tuple[Array, int]:
    """The 16-byte chunks behind descriptors: (indices, what to add to them). Equal up to a base that is a multiple of 1,024 bytes.

    `depth` is in bytes: 32, and 64 for B of a sparse product. K-major: (extent, depth / 16 per descriptor). MN-major: (depth / 2 per
    descriptor, extent / 8).
    """
    starts = [(d & 0x3FFF) << 4 for d in descriptors]
    base = min(starts) & ~1023
    moved = tuple((d & ~0x3FFF) | (s - base) >> 4 for d, s in zip(descriptors, starts, strict=True))
    return _pattern(moved, extent, transposed, depth), base >> 4


@lru_cache(maxsize=1024)
def _pattern(descriptors: tuple[int, ...], extent: int, transposed: int, depth: int) -> Array:
    parts = []
    for descriptor in descriptors:
        start = (descriptor & 0x3FFF) << 4
        leading = (descriptor >> 16 & 0x3FFF) << 4
        stride = (descriptor >> 32 & 0x3FFF) << 4
        phase = descriptor >> 49 & 7
        span = MODE_SPAN[descriptor >> 62]
        if span == 32 and depth == 64 and not transposed:
            raise UnsupportedError("the simulator does not execute a sparse wgmma whose K-major B has a swizzle of 32 bytes: 64 bytes of "
                                   "a row are in two spans; give the tile a swizzle of 64 or 128 bytes")
        if transposed:
            k, x = np.meshgrid(np.arange(depth // 2), np.arange(extent // 8), indexing="ij")
            across = span // 16
            if span == 16:
                places = x * stride + k // 8 * leading + k % 8 * 16
            else:
                places = x // across * leading + x % across * 16 + k // 8 * stride + k % 8 * span
        else:
            x, j = np.meshgrid(np.arange(extent), np.arange(depth // 16), indexing="ij")
            places = x // 8 * stride + x % 8 * span + j * (leading if span == 16 else 16)
        places = places + start
        places ^= ((places >> 7) - phase & span // 16 - 1) << 4
        parts.append(places >> 4)
    return np.ascontiguousarray(np.concatenate(parts, axis=0 if transposed else 1)).astype(np.intp)


# ------------------------------------------------------------------------------------------------ fragments of registers


def _rows(matrix: Array) -> list[list[Array]]:
    """Per warp the registers of D, each 32 lanes: register 4j + 2h + e of lane 4r + c is row 8h + r, column 8j + 2c + e."""
    n = matrix.shape[1]
    parts = matrix.reshape(4, 2, 8, n // 8, 4, 2)
    if matrix.dtype == np.float16:
        halves = np.ascontiguousarray(parts).view(np.uint32)[..., 0]
        registers = halves.transpose(0, 3, 1, 2, 4).reshape(4, n // 4, 32)
    else:
        registers = parts.transpose(0, 3, 1, 5, 2, 4).reshape(4, n // 2, 32).view(np.uint32)
    registers.flags.writeable = False
    return [list(warp) for warp in registers]


def _gather(given: list[Any], shape: Shape) -> Array:
    """The inverse of `_rows`."""
    count = len(shape.registers)
    words = np.empty((4, count, 32), np.uint32)
    for warp, registers in enumerate(given):
        for i, value in enumerate(registers):
            words[warp, i] = value
    if shape.d == "f16":
        halves = words.view(np.float16).reshape(4, shape.n // 8, 2, 8, 4, 2)
        return halves.transpose(0, 2, 3, 1, 4, 5).reshape(64, shape.n)
    kind = np.int32 if shape.d == "s32" else np.float32
    parts = words.view(kind).reshape(4, shape.n // 8, 2, 2, 8, 4)
    return parts.transpose(0, 2, 4, 1, 5, 3).reshape(64, shape.n)


def _fragment_a(given: list[Any], shape: Shape) -> Array:
    """A from registers: register h + 2q of lane 4r + c is row 8h + r, the 4 bytes at 16q + 4c of the row's 32."""
    words = np.empty((4, 2, 2, 8, 4), np.uint32)
    for warp, registers in enumerate(given):
        for i, value in enumerate(registers):
            words[warp, i >> 1, i & 1] = spread(value, 32).reshape(8, 4)
    rows = np.ascontiguousarray(words.transpose(0, 2, 3, 1, 4)).reshape(64, 8).view(DTYPES[8])
    return decode(rows, shape.a)


# ------------------------------------------------------------------------------------------------ sparse A

WIDE = ("f16", "bf16", "tf32")
"""Types of A whose metadata two lanes of four have: those that the selector says."""


def chunk_indices(metadata: Sequence[Any], shape: Shape) -> Array:
    """The four bits of each chunk of A, as (64, chunks), from the words of four warps. A chunk is 4 elements along K, or 2 of tf32.

    Types of 16 and 32 bits: lane 4r + 2s + h has, if s is the selector, the four chunks of half h of K: of row r in bits 0 to 15, of row
    r + 8 in bits 16 to 31. Types of 8 bits: lane 4r + 2h + e has the eight chunks of half h of K of row 8e + r.
    """
    words = np.stack([spread(word, 32) for word in metadata]).astype(np.uint32).reshape(4, 8, 2, 2)
    nibbles = words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    if shape.a in WIDE:
        chosen = nibbles[:, :, shape.selector].reshape(4, 8, 2, 2, 4)                # warp, r, h, row half, chunk
        return chosen.transpose(0, 3, 1, 2, 4).reshape(64, 8)
    return nibbles.transpose(0, 3, 1, 2, 4).reshape(64, 16)


def selected(shape: Shape) -> int:
    """The lanes of a warp whose metadata is used, as a mask."""
    return 0xFFFFFFFF if shape.a not in WIDE else 0x33333333 << 2 * (shape.selector or 0)


def expanded(a: Array, indices: Array, shape: Shape) -> Array:
    """The dense A: the elements that are stored, at the places in their chunks that the metadata says, and zeros."""
    chunk, kept = (2, 1) if shape.a == "tf32" else (4, 2)
    if kept == 1:
        places = (indices >> 3)[..., None]
        wrong = ~np.isin(indices, (0b0100, 0b1110))
    else:
        places = np.stack([indices & 3, indices >> 2], axis=-1)
        wrong = places[..., 0] >= places[..., 1]
    if wrong.any():
        row, at = (int(i) for i in np.argwhere(wrong)[0])
        legal = "0b0100 or 0b1110" if kept == 1 else "two indices, the lower one in the low bits"
        raise Fault("wgmma-metadata", f"the metadata of `{shape.op.opcode}` for row {row}, chunk {at} is {int(indices[row, at]):#06b}, and "
                    f"must be {legal}", "prepare it with the values of A, and let the selected lanes hold it", shape.op)
    found = np.zeros((64, indices.shape[1], chunk), a.dtype)
    np.put_along_axis(found, places.astype(np.intp), a.reshape(64, -1, kept), axis=-1)
    return found.reshape(64, -1)
