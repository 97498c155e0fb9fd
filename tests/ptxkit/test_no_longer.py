"""Each function for authors emits no more instructions than the form that an author writes by hand, alone and in a whole kernel."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import NamedBarrier, Pipeline, Ptr, Reg, TensorMap, else_, if_, kernel, label, ring, smem, tid
from ptxkit.copies import copy_async, load_tile, store_tile
from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.traced import Traced
from ptxkit.fragments import load_fragment, operands_a, pack, store_fragment, unpack
from ptxkit.gemm import ladder as gemm_ladder
from ptxkit.idioms import wait
from ptxkit.once import Once
from ptxkit.ptx import add, and_, bar, bra, cp, cvt, fence, ld, ldmatrix, mbarrier, mov, redux, shfl, shl, st, stmatrix, wgmma
from ptxkit.reductions import block_reduce, warp_reduce
from ptxkit.types import b32, bf16, f32, u32
from tests.ptxkit.machine import opcodes, trace

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
N, F = Reg[u32], Reg[f32]
ALL = 0xFFFFFFFF
mma = wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


def swizzled(base: Reg[u32], row: Any, column: Any) -> Any:
    """The address of a bf16 in a tile of 64 columns with 128-byte spans."""
    return base + (row * 128 + ((column * 2) ^ ((row & 7) << 4)))


def _pairs() -> dict[str, tuple[Callable[..., None], Callable[..., None]]]:
    """(by hand, with the helper)."""
    def at_by_hand(n: N, m: N) -> None:
        tile = smem.tile(bf16, (64, 64))
        ld.shared__cta.b16(swizzled(tile[0].register(), n, m))

    def at(n: N, m: N) -> None:
        tile = smem.tile(bf16, (64, 64))
        ld.shared__cta.b16(tile[0].at(n, m))

    def packed_by_hand(x: F, y: F) -> None:
        cvt.rn.bf16x2.f32(y, x)

    def packed(x: F, y: F) -> None:
        pack(bf16, x, y)

    def unpacked_by_hand(word: Reg[b32]) -> None:
        shl.b32(word, 16)
        and_.b32(word, 0xFFFF0000)

    def unpacked(word: Reg[b32]) -> None:
        unpack(bf16, word)

    def reduced_by_hand(x: F) -> None:
        for distance in (16, 8, 4, 2, 1):
            x = add.rn.f32(x, shfl.sync.bfly.b32(x, distance, 31, ALL))

    def reduced(x: F) -> None:
        warp_reduce(add.rn.f32, x)

    def counted_by_hand(n: N) -> None:
        redux.sync.add.u32(n, ALL)

    def counted(n: N) -> None:
        warp_reduce(add.u32, n)

    def summed_by_hand(x: F) -> None:
        parts, thread = smem.array(f32, 4), mov.u32(tid.x)
        for distance in (16, 8, 4, 2, 1):
            x = add.rn.f32(x, shfl.sync.bfly.b32(x, distance, 31, ALL))
        st.shared__cta.f32(parts.at(thread // 32), x, pred=(thread % 32) == 0)
        bar.sync(0)
        x = ld.shared__cta.f32(parts.at(thread % 4))
        for distance in (2, 1):
            x = add.rn.f32(x, shfl.sync.bfly.b32(x, distance, 31, ALL))

    def summed(x: F) -> None:
        block_reduce(add.rn.f32, x)

    def loaded_by_hand() -> None:
        tile, lane = smem.tile(bf16, (64, 64)), mov.u32(tid.x) % 32
        ldmatrix.sync.aligned.m8n8.x4.shared.b16(swizzled(tile[0].register(), 16 + lane % 16, (lane // 16) * 8))

    def loaded() -> None:
        tile = smem.tile(bf16, (64, 64))
        load_fragment(tile[0], 16, 0, "a")

    def stored_by_hand() -> None:
        tile, thread, acc = smem.tile(bf16, (64, 64)), mov.u32(tid.x), mma.fragment()
        row, half = (thread // 32) * 16 + thread % 16, ((thread % 32) // 16) * 8
        for column in range(0, 64, 16):
            first = column // 2
            words = [cvt.rn.bf16x2.f32(acc[first + i + 1], acc[first + i]) for i in range(0, 8, 2)]
            stmatrix.sync.aligned.m8n8.x4.shared.b16(swizzled(tile[0].register(), row, half + column), words)

    def stored() -> None:
        tile, thread = smem.tile(bf16, (64, 64)), mov.u32(tid.x)
        acc = mma.fragment()
        store_fragment(tile[0], acc[:32], thread)

    def operands_by_hand() -> None:
        acc = mma.fragment()
        for i in range(0, 64, 2):
            cvt.rn.bf16x2.f32(acc[i + 1], acc[i])

    def operands() -> None:
        operands_a(bf16, mma.fragment())

    def copied_by_hand(x: Ptr[bf16]) -> None:
        tile, thread = smem.tile(bf16, (64, 64)), mov.u32(tid.x)
        base = tile[0].register()
        for step in range(0, 512, 128):
            row, column = (thread + step) // 8, (thread + step) % 8 * 8
            cp.async_.cg.shared.global_(swizzled(base, row, column), x.at(row * 64 + column), 16)

    def copied(x: Ptr[bf16]) -> None:
        tile = smem.tile(bf16, (64, 64))
        copy_async(tile[0], x, 64, mov.u32(tid.x), 128)

    def held_by_hand(x: Ptr[bf16]) -> None:
        tile, thread = smem.tile(bf16, (64, 64)), mov.u32(tid.x)
        base = tile[0].register()
        for step in range(0, 512, 128):
            row, column = (thread + step) // 8, (thread + step) % 8 * 8
            st.shared__cta.v4.b32(swizzled(base, row, column), ld.global_.v4.b32(x.at(row * 64 + column)))

    def held(x: Ptr[bf16]) -> None:
        tile = smem.tile(bf16, (64, 64))
        load_tile(tile[0], x, 64, mov.u32(tid.x), 128)

    def given_by_hand(x: Ptr[bf16]) -> None:
        tile, thread = smem.tile(bf16, (64, 64)), mov.u32(tid.x)
        base = tile[0].register()
        for step in range(0, 512, 128):
            row, column = (thread + step) // 8, (thread + step) % 8 * 8
            st.global_.v4.b32(x.at(row * 64 + column), ld.shared__cta.v4.b32(swizzled(base, row, column)))

    def given(x: Ptr[bf16]) -> None:
        tile = smem.tile(bf16, (64, 64))
        store_tile(tile[0], x, 64, mov.u32(tid.x), 128)

    def met_by_hand() -> None:
        bar.sync(1, b=64)
        bar.arrive(1, 64)

    def met() -> None:
        barrier = NamedBarrier(64)
        barrier.sync()
        barrier.arrive()

    return {"tile.at": (at_by_hand, at), "pack": (packed_by_hand, packed), "unpack": (unpacked_by_hand, unpacked),
            "warp_reduce of floats": (reduced_by_hand, reduced), "warp_reduce of integers": (counted_by_hand, counted),
            "block_reduce": (summed_by_hand, summed), "load_fragment": (loaded_by_hand, loaded), "store_fragment": (stored_by_hand, stored),
            "operands_a": (operands_by_hand, operands), "copy_async": (copied_by_hand, copied), "load_tile": (held_by_hand, held),
            "store_tile": (given_by_hand, given), "NamedBarrier": (met_by_hand, met)}


PAIRS = _pairs()


@pytest.mark.parametrize("name", PAIRS)
def test_a_helper_emits_no_more_than_the_form_by_hand(name: str) -> None:
    by_hand, helped = ([each.replace("shared::cta", "shared") for each in opcodes(trace(body, block=128))] for body in PAIRS[name])
    assert len(helped) <= len(by_hand), (helped, by_hand)
    assert _effects(by_hand) == _effects(helped), (helped, by_hand)


def _effects(names: list[str]) -> list[str]:
    """What does more than compute an index, without the types of loads and stores."""
    kinds = ("st", "ld", "bar", "cp", "cvt", "shfl", "redux")
    return sorted(each.rpartition(".")[0] for each in names if each.partition(".")[0] in (*kinds, "ldmatrix", "stmatrix"))


@kernel(block=128 + 32)
def by_hand(a: TensorMap, b: TensorMap, d: Ptr[f32], k_tiles: Reg[u32], *, STAGES: int = 3) -> None:
    """D[64, 128] = A[64, K] B[128, K]^T. full[stage]: 1, the arrive.expect_tx. empty[stage]: 128, every mma thread."""
    a_tile, b_tile = smem.tile(bf16, (STAGES, 64, 64), name="A"), smem.tile(bf16, (STAGES, 128, 64), name="B")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        for s in range(STAGES):
            mbarrier.init.shared__cta.b64(full[s], 1)
            mbarrier.init.shared__cta.b64(empty[s], 128)
        fence.mbarrier_init.release.cluster()
    bar.sync(0)
    with if_(thread >= 128):
        with if_(thread == 128), ring(STAGES, k_tiles) as (k, stage, parity):
            wait(empty[stage], parity ^ 1)
            mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], a_tile.layout.bytes + b_tile.layout.bytes)
            load(a_tile[stage], a, (k * 64, 0), full[stage])
            load(b_tile[stage], b, (k * 64, 0), full[stage])
    with else_():
        acc = mma.fragment()
        with ring(STAGES, k_tiles) as (_, stage, parity):
            wait(full[stage], parity)
            wgmma.fence.sync.aligned()
            for kk in range(0, 64, 16):
                mma(acc, a_tile[stage].desc(kk), b_tile[stage].desc(kk), True)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(0)
            mbarrier.arrive.shared__cta.b64(empty[stage])
        row, column = (thread >> 5) * 16 + ((thread & 31) >> 2), (thread & 3) * 2
        out = d.at(row * 128 + column)
        for i in range(0, 64, 4):
            st.global_.v2.f32(out + 2 * i, acc[i:i + 2])
            st.global_.v2.f32(out + 2 * i + 8 * 128, acc[i + 2:i + 4])


@kernel(block=128 + 32)
def helped(a: TensorMap, b: TensorMap, d: Ptr[f32], k_tiles: Reg[u32], *, STAGES: int = 3) -> None:
    """The same. empty[stage]: 128, every mma thread."""
    a_tile, b_tile = smem.tile(bf16, (STAGES, 64, 64), name="A"), smem.tile(bf16, (STAGES, 128, 64), name="B")
    stages = Pipeline(STAGES, consumers=128, bytes=a_tile.layout.bytes + b_tile.layout.bytes)
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        stages.init()
    bar.sync(0)
    with if_(thread >= 128):
        with if_(thread == 128), ring(STAGES, k_tiles) as (k, stage, parity):
            full = stages.producer_acquire(stage, parity)
            load(a_tile[stage], a, (k * 64, 0), full)
            load(b_tile[stage], b, (k * 64, 0), full)
    with else_():
        acc = mma.fragment()
        with ring(STAGES, k_tiles) as (_, stage, parity):
            stages.consumer_wait(stage, parity)
            wgmma.fence.sync.aligned()
            for kk in range(0, 64, 16):
                mma(acc, a_tile[stage].desc(kk), b_tile[stage].desc(kk), True)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(0)
            stages.consumer_release(stage)
        here = mma.coordinates(thread)
        out = d.at(here.row * 128 + here.column)
        for row, column, pair in here.runs(acc):
            st.global_.v2.f32(out + (row * 128 + column), pair)


@pytest.mark.parametrize("stages", [1, 3, 4])
def test_a_product_with_helpers_has_no_more_instructions(stages: int) -> None:
    with_helpers, without = (opcodes(each.trace(STAGES=stages)) for each in (helped, by_hand))
    assert len(with_helpers) <= len(without)
    assert sorted(each for each in with_helpers if "mbarrier" in each or "wgmma" in each or each.startswith(("cp", "st"))) == \
        sorted(each for each in without if "mbarrier" in each or "wgmma" in each or each.startswith(("cp", "st")))


def _spin(barrier: Any, parity: Any) -> None:
    """The loop of a wait, label and branch by hand."""
    again = label("again")
    again.place()
    bra(again, pred=~mbarrier.try_wait.parity.shared__cta.b64(barrier, parity))


def _acquire(self: Pipeline, stage: Any, parity: Any, bytes: Any = None) -> Any:
    _spin(self.empty[stage], parity ^ 1)
    mbarrier.arrive.expect_tx.shared__cta.b64(self.full[stage], self.bytes)
    return self.full[stage]


def _wait(self: Pipeline, stage: Any, parity: Any) -> None:
    _spin(self.full[stage], parity)


def _release(self: Pipeline, stage: Any, *, pred: Any = None) -> None:
    mbarrier.arrive.shared__cta.b64(self.empty[stage], pred=pred)


LADDER = [module.name for module in pkgutil.iter_modules(gemm_ladder.__path__) if module.name >= "step05" and module.name < "step08"]


@pytest.mark.parametrize("step", LADDER)
def test_a_step_of_the_ladder_has_no_more_instructions_than_with_its_pipeline_by_hand(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"{gemm_ladder.__name__}.{step}")
    (made,) = (value for value in vars(module).values() if isinstance(value, Kernel) and value.function.__module__ == module.__name__)
    helped = opcodes(made.trace())
    called: list[str] = []
    for name, by_hand in (("producer_acquire", _acquire), ("consumer_wait", _wait), ("consumer_release", _release)):
        def replaced(self: Pipeline, *given: Any, name: str = name, by_hand: Any = by_hand, **more: Any) -> Any:
            called.append(name)
            return by_hand(self, *given, **more)

        monkeypatch.setattr(Pipeline, name, replaced)
    monkeypatch.setattr(made, "_traced", Once[Traced]())
    assert len(helped) <= len(opcodes(made.trace()))
    assert len(set(called)) == 3


@pytest.mark.ptxas
def test_a_product_with_helpers_has_no_more_machine_code() -> None:
    def count(made: Any) -> int:
        return sum(" /*" in line and ";" in line and "NOP" not in line for line in made.sass().splitlines())

    assert 0 < count(helped) <= count(by_hand)
