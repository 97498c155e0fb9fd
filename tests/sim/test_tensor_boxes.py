"""Boxes of random arrays at random coordinates against NumPy: loads, stores and sums of every rank, element width and swizzle.

Where the innermost coordinate is no multiple of 16 bytes the hardware traps: that must be an error, wherever the box lies. So does it
where a box that is stored begins before the array. Stores and sums reach to the end of the last chunk of 16 bytes of a line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxkit import TensorMap, sim
from ptxkit.sim.tensormap import Map

from .kernels import kernel

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

DTYPES: tuple[Any, ...] = (np.uint8, np.int16, np.float16, ml_dtypes.bfloat16, np.int32, np.uint32, np.float32, np.int64, np.uint64,
                           np.float64)
SUMMED = (np.int32, np.uint32, np.uint64, np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
MOST = 4096
"""Bytes of a box at most."""


@dataclass(frozen=True)
class Box:
    """A box of `box` elements (slowest first, as the coordinates) with every `steps`-th line of an array of `shape`."""

    dtype: Any
    shape: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    at: tuple[int, ...]
    swizzle: int
    pitch: int
    """Elements from line to line."""

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements that are copied along each axis."""
        return (*(-(-b // s) for b, s in zip(self.box[:-1], self.steps[:-1], strict=True)), self.box[-1])

    @property
    def bytes(self) -> int:
        return int(np.prod(self.extents)) * self.item

    @property
    def item(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def aligned(self) -> bool:
        return self.at[-1] * self.item % 16 == 0

    @property
    def ragged(self) -> bool:
        """Whether a line ends within a chunk of 16 bytes."""
        return self.shape[-1] * self.item % 16 != 0

    def array(self, seed: int) -> tuple[Any, Any]:
        """(all lines with what is between them, the array)."""
        whole = values((*self.shape[:-1], self.pitch), self.dtype, seed)
        return whole, whole[..., :self.shape[-1]]

    def places(self, chunks: bool = False) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(where in the box, where in the array) of every element that the array has. With `chunks`, of the rest of chunks too."""
        inner = self.shape[-1]
        while chunks and inner * self.item % 16:
            inner += 1
        for inside in np.ndindex(*self.extents):
            there = tuple(a + i * s for a, i, s in zip(self.at, inside, (*self.steps[:-1], 1), strict=True))
            if all(0 <= t < n for t, n in zip(there, (*self.shape[:-1], inner), strict=True)):
                yield inside, there

    def swizzled(self, data: Any) -> Any:
        """The bytes of a box as they lie in shared memory, at a multiple of 1,024: chunks of 16 change places within 8 lines of 128."""
        addresses = np.arange(self.bytes)
        if self.swizzle:
            addresses ^= (addresses >> 7 & self.swizzle // 16 - 1) << 4
        shared = np.zeros(self.bytes, np.uint8)
        shared[addresses] = data
        return shared


def random_box(seed: int, dtypes: tuple[Any, ...] = DTYPES) -> Box:
    """Half of the coordinates begin at multiples of 16 bytes, a third of all boxes stick out of the array or lie beside it."""
    draw = np.random.default_rng(seed)
    dtype = dtypes[seed % len(dtypes)]
    item = np.dtype(dtype).itemsize
    rank, swizzle = int(draw.integers(1, 6)), int(draw.choice((0, 0, 32, 64, 128)))
    widest = (swizzle or 256) // item
    box = [min(int(16 // item * draw.integers(1, 17)), widest if swizzle else min(widest, 256))]
    steps, shape = [1], [int(16 // item * draw.integers(1, 12))]
    pitch = shape[0] + 16 // item * int(draw.integers(0, 3))
    if draw.integers(2):
        shape[0] -= int(draw.integers(0, 16 // item))
    while len(box) < rank:
        room = MOST // (int(np.prod(box)) * item)
        steps.append(int(draw.choice((1, 1, 1, 2, 3))))
        box.append(int(draw.integers(1, max(2, min(9, room + 1)))))
        shape.append(int(draw.integers(1, 9)))
    if swizzle:
        box[0] = widest                     # narrower boxes leave gaps between their lines
    at = [int(draw.integers(-b // 2 - 1, n + 2)) for b, n in zip(box, shape, strict=True)]
    if draw.integers(2):
        at[0] = at[0] * item // 16 * 16 // item
    back = slice(None, None, -1)
    return Box(dtype, *(tuple(part[back]) for part in (shape, box, steps, at)), swizzle, pitch)


def values(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """Small integers, whose sums are exact in every type."""
    return np.random.default_rng(seed).integers(0, 60, shape).astype(dtype)


# ------------------------------------------------------------------------------------------------ kernels

PARAMETERS = ".param .align 64 .b8 map[128], .param .u64 bytes, .param .u32 size" + "".join(f", .param .u32 c{i}" for i in range(5))
BEFORE = ".shared .align 1024 .b8 box[16384];\n.shared .align 8 .b64 bar;\n"
BEGIN = """mov.b64 %rd20, map;
cvta.param.u64 %rd20, %rd20;
ld.param.u64 %rd0, [bytes];
ld.param.u32 %r20, [size];
mov.u32 %r30, box;
mov.u32 %r0, %tid.x;
setp.ne.u32 %p5, %r0, 0;
@%p5 bra E;
mbarrier.init.shared::cta.b64 [bar], 1;
fence.proxy.async;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r20;
""" + "".join(f"ld.param.u32 %r{i}, [c{i}];\n" for i in range(1, 5)) + "ld.param.u32 %r5, [c0];\n"
WAIT = "W:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra W;\n"
DRAIN = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nE:"


def coordinates(rank: int) -> str:
    return ", ".join(f"%r{i or 5}" for i in range(rank))


@functools.cache
def loading(rank: int) -> str:
    """The box's bytes, as they lie in shared memory, to `bytes`."""
    return kernel(BEGIN + f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                  f"[%r30], [%rd20, {{{coordinates(rank)}}}], [bar];\n{WAIT}"
                  "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r30], %r20;\n" + DRAIN, PARAMETERS, before=BEFORE)


@functools.cache
def storing(rank: int, reduces: bool) -> str:
    """`bytes` as they are to shared memory, and from there into the box."""
    opcode = f"cp.{'reduce.' * reduces}async.bulk.tensor.{rank}d.global.shared::cta{'.add' * reduces}.tile.bulk_group"
    return kernel(BEGIN + "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r30], [%rd0], %r20, [bar];\n"
                  f"{WAIT}{opcode} [%rd20, {{{coordinates(rank)}}}], [%r30];\n" + DRAIN, PARAMETERS, before=BEFORE)


def run(text: str, box: Box, array: Any, bytes: Any) -> sim.Report:
    at = [*box.at[::-1], 0, 0, 0, 0][:5]
    given = TensorMap(array, box=box.box, swizzle=box.swizzle, element_strides=box.steps)
    return sim.run(text, grid=1, block=32, args=(given, bytes, box.bytes, *(c & 0xFFFFFFFF for c in at)))


# ------------------------------------------------------------------------------------------------ the laws


def loads(box: Box, seed: int) -> tuple[sim.Report, Any, Any]:
    """(the report, what came, what NumPy says)."""
    array, out = box.array(seed)[1], np.full(box.bytes, 0xA5, np.uint8)
    report = run(loading(len(box.box)), box, array, out)
    if not box.aligned:
        return report, out, np.full(box.bytes, 0xA5, np.uint8)
    expected = np.zeros(box.extents, box.dtype)
    for inside, there in box.places():
        expected[inside] = array[there]
    return report, out, box.swizzled(expected.reshape(-1).view(np.uint8))


def stores(box: Box, seed: int, reduces: bool = False) -> tuple[sim.Report, Any, Any]:
    (whole, array), new = box.array(seed), values(box.extents, box.dtype, seed + 1)
    expected = whole.copy()
    report = run(storing(len(box.box), reduces), box, array, box.swizzled(new.reshape(-1).view(np.uint8)))
    for inside, there in box.places(chunks=True) if box.aligned and min(box.at) >= 0 else ():
        expected[there] = new[inside] + expected[there] if reduces else new[inside]
    return report, whole, expected


def judge(box: Box, report: sim.Report, found: Any, expected: Any, stores: bool = False) -> str | None:
    """What is wrong with a run."""
    rules = [finding.rule for finding in report.findings]
    if not box.aligned:
        wanted = box.at[-1] * box.item
        near = f"{wanted % 16} beyond a multiple of 16"
        if rules[:1] != ["tensor-coordinate"] or report.findings[0].severity != "error" or near not in report.findings[0].message:
            return f"{wanted} bytes into the line, and: {report}"
    elif stores and min(box.at) < 0:
        if rules[:1] != ["tensor-coordinate"] or "before the array" not in report.findings[0].message:
            return f"before the array, and: {report}"
    elif rules != ["tensor-padding"] * (stores and set(box.places(chunks=True)) > set(box.places())):
        return f"aligned, and: {report}"
    return None if np.array_equal(found, expected) else "other numbers than NumPy's"


LAWS: tuple[tuple[str, tuple[Any, ...], Callable[[Box, int], tuple[sim.Report, Any, Any]]], ...] = (
    ("load", DTYPES, loads), ("store", DTYPES, stores), ("sum", SUMMED, functools.partial(stores, reduces=True)))
COUNT = 100


@pytest.mark.parametrize(("dtypes", "law"), [law[1:] for law in LAWS], ids=[law[0] for law in LAWS])
def test_boxes_against_numpy(dtypes: tuple[Any, ...], law: Callable[[Box, int], tuple[sim.Report, Any, Any]]) -> None:
    for seed in range(COUNT):
        box = random_box(seed, dtypes)
        problem = judge(box, *law(box, seed), stores=law is not loads)
        assert problem is None, (seed, box, problem)


def test_what_is_drawn() -> None:
    """Every rank, type and swizzle, aligned and not, inside, across an edge and beside; coordinates before the array."""
    boxes = [random_box(seed) for seed in range(COUNT)]
    for aligned in (True, False):
        some = [box for box in boxes if box.aligned is aligned]
        assert {len(box.box) for box in some} == {1, 2, 3, 4, 5}
        assert {box.swizzle for box in some} == {0, 32, 64, 128}
        inside = [sum(1 for _ in box.places()) for box in some]
        assert any(n == 0 for n in inside)
        assert any(0 < n < np.prod(box.extents) for n, box in zip(inside, some, strict=True))
        assert any(n == np.prod(box.extents) for n, box in zip(inside, some, strict=True))
        assert any(box.at[-1] < 0 for box in some)
        assert sum(box.ragged for box in some) > 10
    assert {box.dtype for box in boxes if box.aligned} == set(DTYPES)
    assert len({box.dtype for box in boxes if not box.aligned}) == len(DTYPES)


def test_the_law_fails_where_any_coordinate_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator without the rule, and one whose rule is about 8 bytes."""
    boxes = [(seed, random_box(seed)) for seed in range(COUNT)]
    for rule in (lambda map, coordinate: 0, lambda map, coordinate: coordinate * map.size % 8):
        monkeypatch.setattr(Map, "past", rule)
        assert any(judge(box, *loads(box, seed)) for seed, box in boxes if not box.aligned)


def test_the_law_fails_where_stores_end_with_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Map, "lines", property(lambda map: map.dims[0]))
    boxes = [(seed, random_box(seed, SUMMED)) for seed in range(COUNT)]
    for reduces in (False, True):
        assert any(judge(box, *stores(box, seed, reduces), stores=True) for seed, box in boxes if box.ragged)
