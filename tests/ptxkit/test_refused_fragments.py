"""What fragments, reductions, copies and pipelines refuse, each at its line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ptxkit import Ptr, Reg, Vec, smem
from ptxkit.copies import copy_async
from ptxkit.errors import TraceError
from ptxkit.fragments import pack, store_fragment, unpack
from ptxkit.pipeline import NamedBarrier, NamedBarriers, Pipeline
from ptxkit.ptx import add, mma, mov, opcode, wgmma
from ptxkit.reductions import block_reduce, warp_reduce
from ptxkit.types import bf16, f32, s32, u32
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


def _wrong() -> list[tuple[Callable[..., None], str]]:
    def sparse(n: Reg[u32]) -> None:
        wgmma.mma_async.sp.sync.aligned.m64n96k32.f32.bf16.bf16.coordinates(n)

    def other(n: Reg[u32]) -> None:
        add.rn.f32.coordinates(n)

    def of_b(n: Reg[u32]) -> None:
        wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16.coordinates(n, "b")

    def length(n: Reg[u32]) -> None:
        here = mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32.coordinates(n)
        list(here.runs(Vec([mov.f32(0.0)])))                                     # wrong

    def packs(x: Reg[f32]) -> None:
        pack(bf16, x, x, x)

    def unpacks(x: Reg[u32]) -> None:
        unpack(s32, x)

    def group(x: Reg[f32]) -> None:
        warp_reduce(add.rn.f32, x, lanes=3)

    def half(x: Reg[u32]) -> None:
        warp_reduce(add.rn.f64, opcode("cvt.rn.f64.u32")(x))

    def share(x: Ptr[bf16], n: Reg[u32]) -> None:
        copy_async(smem.tile(bf16, (64, 64))[0], x, 64, n, 96)

    def element(x: Ptr[f32], n: Reg[u32]) -> None:
        copy_async(smem.tile(bf16, (64, 64))[0], x, 64, n, 128)

    def columns(x: Reg[f32], n: Reg[u32]) -> None:
        store_fragment(smem.tile(bf16, (64, 64))[0], [x] * 48, n)

    def eight(x: Reg[f32], n: Reg[u32]) -> None:
        store_fragment(smem.tile(f32, (64, 32))[0], [x] * 16, n)

    def armed(n: Reg[u32]) -> None:
        Pipeline(2, consumers=32, bytes=64, producers=2)

    def warps(n: Reg[u32]) -> None:
        NamedBarrier(33)

    def never(n: Reg[u32]) -> None:
        NamedBarrier(256)

    def many(n: Reg[u32]) -> None:
        NamedBarriers(16, 32)

    def index(n: Reg[u32]) -> None:
        NamedBarriers(4, 32)[4]

    return [(sparse, "a dense wgmma"), (other, "has no coordinates"), (of_b, "`tile[stage].at(row, column)`"), (length, "has 1"),
            (packs, "2 values for bf16"), (unpacks, "not s32"), (group, "not 3"), (half, "32-bit register"),
            (share, "96 threads cannot share"), (element, "`pointer.cast(type)`"), (columns, "96 columns"),
            (eight, "16-bit elements"), (armed, "one thread arms"),
            (warps, "whole warps"), (never, "never open"), (many, "16 barriers"), (index, "barrier 4 of 4")]


@pytest.mark.parametrize(("wrong", "words"), _wrong(), ids=lambda case: getattr(case, "__name__", ""))
def test_bad_input_is_refused_at_its_line(wrong: Callable[..., None], words: str) -> None:
    refused(wrong, words)


def test_a_block_that_cannot_reduce() -> None:
    def reduce(x: Reg[f32]) -> None:
        block_reduce(add.rn.f32, x)

    refused(reduce, "multiple of 32", block=48)
    refused(reduce, "give thread=", block=(32, 2))
    with pytest.raises(TraceError, match="no block="):
        trace(reduce, block=None)
