"""Limits of the hardware that a trace or a launch knows: each is an error at the user's own line, with the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import Ptr, Reg, TensorMap, if_, ring, smem, tid
from ptxkit.dsl.descriptor import TensorMapFields
from ptxkit.errors import LaunchError, TraceError
from ptxkit.flow import else_
from ptxkit.idioms import arrive_remote, multicast_mask, remote, wait
from ptxkit.ptx import cp, mbarrier, mov, opcode, setmaxnreg
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import bf16, u32
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


# --------------------------------------------------------------------------------------------------- shared memory


def test_shared_memory_over_the_limit_prints_the_budget() -> None:
    def large() -> None:
        smem.mbarrier(4, name="full")
        smem.tile(bf16, (3, 128, 64), name="A")
        smem.tile(bf16, (6, 256, 64), name="B")

    message = refused(large, "shared memory over the limit of 232,448 bytes per CTA")
    assert message.splitlines()[1:] == [
        "   offset     bytes  what",
        "        0        32  mbarrier x 4  (full)",
        "    1,024    49,152  tile 3 x 128 x 64 bf16, k-major, swizzle 128  (A)",
        "   50,176   196,608  tile 6 x 256 x 64 bf16, k-major, swizzle 128  (B)",
        "    total   246,784  of 232,448, dynamic",
    ]


def test_static_shared_memory_over_its_own_limit() -> None:
    def large() -> None:
        smem.array(u32, 16_384)

    refused(large, "static shared memory over 49,152 bytes", "leave `smem=` out to make it dynamic", "65,536", smem="static")


def test_allocations_that_cannot_be() -> None:
    def nothing() -> None:
        smem.array(u32, 0)

    def odd() -> None:
        smem.array(u32, 4, align=24)

    def no_barriers() -> None:
        smem.mbarrier(0)

    def flat() -> None:
        smem.tile(bf16, (64,))

    def swizzle() -> None:
        smem.tile(bf16, (64, 64), swizzle=100)

    def narrow() -> None:
        smem.tile(bf16, (64, 32), swizzle=128)

    def thin() -> None:
        smem.tile(bf16, (64, 4))

    def major() -> None:
        smem.tile(bf16, (64, 64), major="row")  # type: ignore[arg-type]

    def swapped() -> None:
        smem.array(256, u32)  # type: ignore[arg-type, type-var]

    def square() -> None:
        smem.array(u32, (16, 16))  # type: ignore[arg-type]

    def counted(n: Reg[u32]) -> None:
        smem.array(u32, n)  # type: ignore[arg-type]

    def halves() -> None:
        smem.mbarrier(0.5)  # type: ignore[arg-type]

    def one() -> None:
        smem.tile(bf16, 64)  # type: ignore[arg-type]

    def wide() -> None:
        smem.tile(bf16, ("64", 64))  # type: ignore[arg-type]

    refused(swapped, "by the type of its elements, as `smem.array(f32, 256)`, not 256")
    refused(square, "an int known while tracing, as in `smem.array(f32, 256)`, not (16, 16)")
    refused(counted, "an int known while tracing, as in `smem.array(f32, 256)`, not Reg[u32](%r0)")
    refused(halves, "an int known while tracing, as in `smem.mbarrier(4)`, not 0.5")
    refused(one, "(rows, columns) or (stages, rows, columns), not 64")
    refused(wide, "an int known while tracing, as in `smem.tile(bf16, (64, 64))`, not '64'")
    refused(nothing, "at least one element")
    refused(odd, "power-of-two alignment, not 4 and 24")
    refused(no_barriers, "ask for at least one")
    refused(flat, "(rows, columns) or (stages, rows, columns), not (64,)")
    refused(swizzle, "swizzle is one of 128, 64, 32, 16, 0 bytes, not 100")
    refused(narrow, "its contiguous extent is 64 bytes, not a multiple of the 128-byte span", "narrower swizzle or a wider tile")
    refused(thin, "its contiguous extent is 8 bytes")
    refused(major, "major is 'k' or 'mn', not 'row'")


# --------------------------------------------------------------------------------------------------- setmaxnreg


def test_setmaxnreg_that_would_be_ignored() -> None:
    def capless() -> None:
        setmaxnreg.dec.sync.aligned.u32(40)

    words = ("setmaxnreg would be ignored", "@kernel(block=...) with min_ctas=1, or max_registers=")
    refused(capless, *words, block=None)
    refused(capless, *words, min_ctas=None)
    assert trace(capless, min_ctas=None, max_registers=168).setmaxnreg
    assert trace(capless).setmaxnreg


def test_setmaxnreg_that_exceeds_the_pool() -> None:
    def greedy() -> None:
        thread = mov.u32(tid.x)
        with if_(thread < 128):
            setmaxnreg.dec.sync.aligned.u32(40)
        with else_():
            setmaxnreg.inc.sync.aligned.u32(240)  # wrong

    # 384 threads have 168 registers each at entry; two warpgroups may have 232 when the third keeps 40.
    refused(greedy, "setmaxnreg exceeds the pool: dec 40 on 128 threads, inc 240 on 256 threads need 66,560 registers",
            "the CTA has 384 x 168 = 64,512 at entry", block=384)

    def fits() -> None:
        with if_(mov.u32(tid.x) < 128):
            setmaxnreg.dec.sync.aligned.u32(40)
        with else_():
            setmaxnreg.inc.sync.aligned.u32(232)

    assert trace(fits, block=384).setmaxnreg

    def two_ctas() -> None:
        setmaxnreg.inc.sync.aligned.u32(232)

    refused(two_ctas, "setmaxnreg exceeds the pool", block=256, min_ctas=2)


# --------------------------------------------------------------------------------------------------- copies


def copied(shape: tuple[int, ...], part: Callable[[Any], Any] = lambda tile: tile[0], **how: Any) -> Callable[..., None]:
    def function(a: TensorMap) -> None:
        barrier = smem.mbarrier(1, check=False)
        load(part(smem.tile(bf16, shape, **how)), a, (0, 0), barrier[0])

    return function


def test_a_swizzle_span_smaller_than_the_inner_box() -> None:
    refused(copied((64, 128)), "the swizzle span is smaller than the inner box: 256 bytes of a tile with 128-byte spans", "TensorMap(a)",
            "copy `tile[stage].span(i)` for i in range(2)")
    refused(copied((64, 64), swizzle=32), "128 bytes of a tile with 32-byte spans", "range(4)")
    trace(copied((64, 128), lambda tile: tile[0].span(1)))


def test_a_box_over_256() -> None:
    refused(copied((512, 64)), "a box of 64x512 through TensorMap(a): no extent may exceed 256", "copy `tile[stage].lines(start, 256)`")
    trace(copied((512, 64), lambda tile: tile[0].lines(256, 256)))


def test_two_boxes_through_one_tensor_map() -> None:
    def function(a: TensorMap) -> None:
        barrier = smem.mbarrier(1, check=False)
        load(smem.tile(bf16, (64, 64))[0], a, (0, 0), barrier[0])
        load(smem.tile(bf16, (128, 64))[0], a, (0, 0), barrier[0])

    refused(function, "`a` already copies box 64x64 bf16, swizzle 128; one tensor map has one box",
            "this copy has box 64x128 bf16, swizzle 128, so pass a second map")


def test_multicast_without_a_cluster() -> None:
    def function(a: TensorMap) -> None:
        barrier = smem.mbarrier(1, check=False)
        load.multicast__cluster(smem.tile(bf16, (64, 64))[0], a, (0, 0), barrier[0], 3)

    def mask() -> None:
        multicast_mask(3)

    refused(function, "multicasts to the CTAs of a cluster, and this kernel has none", "@kernel(cluster=2)",
            "leave `.multicast::cluster` out")
    trace(function, cluster=2)
    refused(mask, "CTAs range(0, 3) are not all in a cluster of 2", cluster=2)


def test_misaligned_shared_memory_of_a_bulk_copy() -> None:
    bulk = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes

    def inside(p: Ptr[u32]) -> None:
        barrier, array = smem.mbarrier(1, check=False), smem.array(u32, 64)
        bulk(array.at(1), p, 64, barrier[0])  # wrong

    def aligned_too_little(p: Ptr[u32]) -> None:
        array, barrier = smem.array(u32, 64, align=8), smem.mbarrier(1, check=False)
        bulk(array, p, 64, barrier[0])  # wrong

    def one_dimensional(a: TensorMap) -> None:
        array, barrier = smem.array(u32, 64), smem.mbarrier(1, check=False)
        opcode("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes")(array, a, (0,), barrier[0])  # wrong

    refused(inside, "needs shared memory aligned to 16 bytes: offset 20", "`array 64 u32`", "align=16")
    refused(aligned_too_little, "needs shared memory aligned to 16 bytes: offset 0", "aligned to 8", "align=16")
    refused(one_dimensional, "needs shared memory aligned to 128 bytes", "aligned to 16", "align=128")


def test_boxes_begin_at_multiples_of_16_bytes() -> None:
    def at(column: int) -> Any:
        def function(a: TensorMap) -> None:
            barrier = smem.mbarrier(1, check=False)
            load(smem.tile(bf16, (64, 64))[0], a, (column, 3), barrier[0])

        return function

    refused(at(347), "at the innermost coordinate 347 of `a`", "begin it at 344 and use it from element 3 on")
    refused(at(-4), "begin it at -8 and use it from element 4 on", "an outer one")
    for column in (0, 8, 344, -8):
        trace(at(column))


def test_bulk_copies_move_multiples_of_16_bytes() -> None:
    def function(p: Ptr[u32]) -> None:
        barrier, array = smem.mbarrier(1, check=False), smem.array(u32, 64)
        cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes(array, p, 24, barrier[0])

    refused(function, "operand `size`", "in steps of 16", "not 24")


# --------------------------------------------------------------------------------------------------- arrivals


def arrivals(count: Any, arrive: Callable[[Any, Any], None], *, check: bool = True) -> Callable[..., None]:
    def function(n: Reg[u32]) -> None:
        thread = mov.u32(tid.x)
        full = smem.mbarrier(2, name="full", check=check)
        with if_(thread == 0):
            for i in range(2):
                mbarrier.init.shared__cta.b64(full[i], count)
        with ring(2, n) as (_, stage, parity):
            arrive(full[stage], thread)
            wait(full[stage], parity)

    return function


def one_thread(barrier: Any, thread: Any) -> None:
    with if_(thread == 0):
        mbarrier.arrive.expect_tx.shared__cta.b64(barrier, 16)


def one_warp(barrier: Any, thread: Any) -> None:
    with if_(thread >> 5 == 0):
        mbarrier.arrive.shared__cta.b64(barrier)


def all_threads(barrier: Any, thread: Any) -> None:
    mbarrier.arrive.shared__cta.b64(barrier)


def test_an_arrive_count_that_cannot_match() -> None:
    words = ("arrivals a phase, but the arrives in this kernel make at most", "no phase can complete", "check=False")
    for arrive, most in ((one_thread, 1), (one_warp, 32), (all_threads, 128)):
        trace(arrivals(most, arrive))
        function = arrivals(most + 1, arrive)
        refused(function, f"the barriers `full` expect {most + 1} arrivals a phase", f"at most {most}", *words,
                at=function.__code__.co_firstlineno + 2)
        trace(arrivals(most + 1, arrive, check=False))


def test_arrivals_of_blocks_with_more_than_one_dimension() -> None:
    function = arrivals(5, one_thread)
    trace(function, block=(32, 8))
    refused(function, "expect 5 arrivals", "at most 4", at=function.__code__.co_firstlineno + 2, block=(32, 4))


def test_arrivals_of_a_cluster() -> None:
    def in_the_second(barrier: Any, thread: Any) -> None:
        with if_(thread == 0):
            arrive_remote(barrier, 1)

    trace(arrivals(2, in_the_second), cluster=2)
    function = arrivals(3, in_the_second)
    refused(function, "expect 3 arrivals", "at most 2", at=function.__code__.co_firstlineno + 2, cluster=2)


def test_an_arrive_that_counts_more_than_a_phase() -> None:
    def function() -> None:
        full = smem.mbarrier(1, name="full")
        mbarrier.init.shared__cta.b64(full[0], 2)
        mbarrier.arrive.shared__cta.b64(full[0], count=3)

    refused(function, "one arrive counts 3, but the barriers `full` expect 2 a phase")


def test_a_barrier_that_is_never_initialised() -> None:
    def function() -> None:
        full = smem.mbarrier(1, name="full")  # wrong
        mbarrier.arrive.shared__cta.b64(full[0])
        wait(full[0], 0)

    refused(function, "the barriers `full` are used but never initialised", "mbarrier.init.shared__cta.b64(barrier, count)")


def test_a_barrier_of_another_cta() -> None:
    def one() -> None:
        far = remote(smem.mbarrier(1, check=False)[0], 1)
        mbarrier.arrive.shared__cta.b64(far)

    def array() -> None:
        far = remote(smem.mbarrier(2, check=False), 1)
        wait(far[1], 0)

    def generic() -> None:
        mbarrier.arrive.b64(smem.mbarrier(1, check=False)[0])

    for function in (one, array):
        refused(function, "takes a barrier of this CTA (`.shared::cluster` reaches those of others)",
                "not MBarrier (shared memory of another CTA)", cluster=2)
    refused(generic, "takes a generic address", "for a barrier of this CTA say `.shared::cta`")


def test_a_count_that_no_barrier_can_have() -> None:
    def zero() -> None:
        mbarrier.init.shared__cta.b64(smem.mbarrier(1)[0], 0)

    def large() -> None:
        mbarrier.init.shared__cta.b64(smem.mbarrier(1)[0], 1 << 20)

    for function, count in ((zero, 0), (large, 1 << 20)):
        refused(function, "operand `count`", "an int (1..1048575)", f"not {count}")


# --------------------------------------------------------------------------------------------------- tensor maps


FIELDS: dict[str, Any] = {"type": bf16, "dims": (1024, 512), "strides": (2048,), "box": (64, 64), "swizzle": 128}


@pytest.mark.parametrize(("change", "address", "words"), [
    ({"box": (128, 64)}, 0, ("the box is 256 bytes wide, more than the 128-byte swizzle span", "load it in 2 boxes or widen the swizzle")),
    ({"box": (64, 512)}, 0, ("box extent 512 of dimension 1 is not between 1 and 256", "load the tile in several boxes")),
    ({"box": (0, 64)}, 0, ("box extent 0 of dimension 0",)),
    ({"strides": (2056,)}, 0, ("the stride of dimension 1 is 2056 bytes", "must be a multiple of 16", "pad the rows")),
    ({"strides": (-2048,)}, 0, ("the stride of dimension 1 is -2048 bytes",)),
    ({"strides": (1 << 40,)}, 0, ("below 2^40",)),
    ({}, 8, ("the base address 0x8 is not a multiple of 16",)),
    ({"interleave": 32, "swizzle": 32, "box": (16, 64)}, 16, ("the base address 0x10 is not a multiple of 32",)),
    ({"dims": (0, 512)}, 0, ("extent 0 of dimension 0 is not between 1 and 2^32",)),
    ({"box": (12, 64), "swizzle": 0}, 0, ("the box is 24 bytes wide", "a multiple of 16 bytes")),
    ({"element_strides": (1, 9)}, 0, ("element strides (1, 9) are not between 1 and 8",)),
    ({"dims": (1,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, 0, ("1 to 5 dimensions",)),
    ({"strides": ()}, 0, ("one stride less",)),
    ({"type": u32, "fill": "nan"}, 0, ("elements of u32 cannot be filled with NaN",)),
])
def test_a_tensor_map_that_the_hardware_cannot_have(change: dict[str, Any], address: int, words: tuple[str, ...]) -> None:
    assert TensorMapFields(**FIELDS).problem(0) is None
    problem = TensorMapFields(**{**FIELDS, **change}).problem(address)
    assert problem is not None
    for word in words:
        assert word in problem


@pytest.mark.parametrize(("how", "word"), [({"swizzle": 100}, "swizzle is 0, 32, 64 or 128 bytes, not 100"),
                                           ({"interleave": 8}, "interleave is 0, 16 or 32 bytes, not 8"),
                                           ({"fill": "ones"}, "fill is 'zeros' or 'nan', not 'ones'")])
def test_an_explicit_tensor_map_is_checked_where_it_is_made(how: dict[str, Any], word: str) -> None:
    with pytest.raises(TraceError) as caught:
        TensorMap(None, box=(64, 64), **how)
    assert word in str(caught.value)
    assert str(caught.value).startswith(__file__)


class NoLibrary:
    """In place of a loaded module: nothing here reaches a device."""

    def kernel(self, name: str) -> None:
        return None


def launched(monkeypatch: pytest.MonkeyPatch, argument: Any, **change: Any) -> str:
    """What a launch of a kernel that copies a 64 x 64 bf16 box says of one argument for its map."""
    from ptxkit.runtime import compiled as runtime

    seen = ArrayView(pointer=0x1000, shape=(512, 1024), strides=(1024, 1), dtype="bf16", device=0, owner="ptxkit")._replace(**change)
    monkeypatch.setattr(runtime, "view", lambda array, name: seen)
    compiled = runtime.Compiled(trace(copied((64, 64))), 0, NoLibrary())  # type: ignore[arg-type]
    with pytest.raises(LaunchError) as caught:
        compiled(1, argument)
    return str(caught.value)


def test_an_explicit_map_that_differs_from_the_tile_it_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    for how, shown in (({"box": (128, 64), "swizzle": 128}, "box 64x128 bf16, swizzle 128"),
                       ({"box": (64, 64), "swizzle": 0}, "box 64x64 bf16, swizzle none"),
                       ({"box": (64, 32), "swizzle": 64}, "box 32x64 bf16, swizzle 64")):
        message = launched(monkeypatch, TensorMap(None, **how))  # type: ignore[arg-type]
        assert f"the tensor map given for `a` ({shown}) differs from the tile that the kernel copies" in message
        assert "copies: box 64x64 bf16, swizzle 128; pass the plain array" in message


def test_an_array_that_cannot_have_the_map_that_the_kernel_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for change, words in (
        ({"pointer": 0x1008}, "the base address 0x1008 is not a multiple of 16"),
        ({"strides": (1028, 1)}, "the stride of dimension 1 is 2056 bytes: it must be a multiple of 16"),
        ({"strides": (1, 512)}, "a tensor map needs the last dimension contiguous"),
        ({"shape": (4, 512, 1024), "strides": (1 << 19, 1024, 1)}, "`a` has 3 dimensions, the kernel copies boxes of 2"),
        ({"dtype": "f32"}, "`a` has elements of f32, the kernel copies bf16"),
    ):
        assert words in launched(monkeypatch, object(), **change)  # type: ignore[arg-type]
