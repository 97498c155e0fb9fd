"""The helpers above opcodes: planted type errors, each marked with its reason, among lines that are right. Never run."""

from __future__ import annotations

from typing import Any, Literal, assert_type

from ptxkit import (
    NamedBarrier,
    NamedBarriers,
    Pipeline,
    Ptr,
    Reg,
    Ring,
    Tile,
    Vec,
    debug,
    for_range,
    if_,
    loop,
    mark,
    ring,
    role,
    smem,
    span,
    tid,
)
from ptxkit.copies import copy_async, load_tile, store_tile
from ptxkit.fragments import load_fragment, operands_a, pack, rows_of, store_fragment, unpack
from ptxkit.idioms import wait
from ptxkit.ptx import add, cp, mbarrier, mov, st, wgmma
from ptxkit.ptx import max as max_
from ptxkit.ptx import mma as mma_sync
from ptxkit.reductions import block_reduce, cluster_reduce, warp_reduce
from ptxkit.smem import MBarrier, SharedAddress
from ptxkit.types import b32, bf16, bits32, f32, u32, u64

mma = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
multiply = mma_sync.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


def reductions(x: Reg[u32], f: Reg[f32]) -> None:
    assert_type(warp_reduce(add.rn.f32, f), Reg[f32])
    assert_type(warp_reduce(max_.u32, x, lanes=4), Reg[u32])
    assert_type(block_reduce(add.rn.f32, f, thread=x), Reg[f32])
    assert_type(cluster_reduce(add.u32, x, barrier=1), Reg[u32])
    warp_reduce(add.u32, 1)  # E: a number for a register
    warp_reduce(add.u32, x, 4)  # E: lanes is a keyword
    block_reduce(add.rn.f32, f, thread=f)  # E: a float for a thread
    block_reduce(f)  # E: no operation
    cluster_reduce(add.u32, x, barrier="0")  # E: a barrier is a number


def fragments(tile: Tile[bf16], x: Reg[u32], f: Reg[f32], word: Reg[b32], wide: Reg[u64], acc: Vec[f32, Any]) -> None:
    assert_type(pack(bf16, f, f), Reg[bits32])
    assert_type(unpack(bf16, word), tuple[Reg[f32], ...])
    assert_type(rows_of(acc), tuple[Vec[f32, Any], Vec[f32, Any]])
    assert_type(operands_a(bf16, acc), list[Vec[bits32, Literal[4]]])
    mma(mma.fragment(), operands_a(bf16, acc)[0], tile[0].desc(), True)
    assert_type(tile[x].at(x, 3), SharedAddress)
    store_fragment(tile[0], acc, x)
    store_fragment(tile[0], [f, f], x, columns=4)
    four = load_fragment(tile[0], 0, 16, "b", lane=x)
    multiply(Vec([f, f, f, f]), load_fragment(tile[0], 0, 16), four[:2], Vec([f, f, f, f]))
    st.global_.b32(Ptr(wide, u32), pack(bf16, f, f))
    pack(bf16, x, x)  # E: integers for floats
    pack("bf16", f, f)  # E: a name for a type
    unpack(bf16, f, f)  # E: one word
    rows_of(f)  # E: one register for a fragment
    operands_a(acc, bf16)  # E: out of order
    store_fragment(tile, acc, x)  # E: all stages for one
    store_fragment(tile[0], acc)  # E: no thread
    load_fragment(tile[0], x, 16)  # E: a register for a constant row
    load_fragment(tile[0], 0, 16, "d")  # E: a or b
    tile[0].at(f, 0)  # E: a float row
    tile[0].at(0)  # E: no column
    tile[0].desc(x)  # E: a depth is a constant


def copies(tile: Tile[bf16], source: Ptr[bf16], x: Reg[u32], f: Reg[f32]) -> None:
    copy_async(tile[0], source, 64, x, 128, rows=x)
    load_tile(tile[x], source.at(x), x, x, 128)
    store_tile(tile[0], source, 64, x, 128)
    copy_async(tile, source, 64, x, 128)  # E: all stages for one
    load_tile(source, tile[0], 64, x, 128)  # E: out of order
    store_tile(tile[0], source, f, x, 128)  # E: a float stride
    store_tile(tile[0], source, 64, x)  # E: no number of threads
    load_tile(tile[0], source, 64, x, x)  # E: a register for a number of threads


def pipelines(x: Reg[u32], wide: Reg[u64], f: Reg[f32]) -> None:
    stages = Pipeline(3, consumers=128, bytes=1024)
    stages.init((smem.mbarrier(1), 1))
    assert_type(stages.producer_acquire(x, x), MBarrier)
    stages.consumer_wait(0, 1)
    stages.consumer_release(x, pred=x == 0)
    stages.producer_tail(Ring(3))
    one, many = NamedBarrier(128), NamedBarriers(2, 128)
    one.sync()
    assert_type(many[x], NamedBarrier)
    Pipeline(3)  # E: no consumers
    Pipeline(x, consumers=128)  # E: a register for a number of stages
    stages.producer_acquire(wide, x)  # E: a stage has 32 bits
    stages.producer_acquire(x)  # E: no parity
    stages.consumer_release(x, pred=x)  # E: a guard is a predicate
    stages.producer_tail(3)  # E: a position, not a number
    stages.init(smem.mbarrier(1))  # E: no count
    wait(stages.full, 0)  # E: all barriers for one
    mbarrier.arrive.shared__cta.b64(stages.empty)  # E: all barriers for one
    NamedBarrier(x)  # E: a register for a number of threads
    many[f]  # E: a float index


def carried(x: Reg[u32], f: Reg[f32], acc: Vec[f32, Any], out: Ptr[f32]) -> None:
    with for_range(x, total=f, acc=acc, place=out) as rounds:
        assert_type(rounds.index, Reg[u32])
        rounds.total = add.rn.f32(rounds.total, f)
    with loop(total=f) as repeat:
        repeat.break_if(x == 0)
    with ring(3, x, total=f) as turns:
        assert_type(turns.stage, Reg[u32])
    with for_range(x) as i:
        add.u32(i, i, 1)
    for_range(x, total=0.0)  # E: a number for a register
    for_range(f, total=f)  # E: a loop counts in 32-bit integers
    loop(total=1)  # E: a number for a register
    ring(3, x, total="zero")  # E: a name for a register
    for_range(x, start=f)  # E: a float start


def marks(x: Reg[u32], f: Reg[f32]) -> None:
    role("producer")
    mark("load")
    with span("mma"), if_(tid.x == 0):
        debug.print("%u", x)
    mark()  # E: no name
    mark(x)  # E: a register for a name
    span(1)  # E: a number for a name
    role()  # E: no name


def places(x: Reg[u32], f: Reg[f32]) -> None:
    here = mma.coordinates(x, row=x)
    add.u32(here.row, here.column)
    for row, column, register in here.elements(mma.fragment()):
        add.u32(x, row + column)
        mov.f32(register)
    mma.coordinates(f)  # E: a float thread
    mma.coordinates(x, "c")  # E: d, a or b
    mma.coordinates()  # E: no thread
