"""Planted type errors. mypy and basedpyright report every line with a marked reason (`# E(mypy)`: mypy alone), and no other. Never run."""

# ruff: noqa: B015, B018, F841

from __future__ import annotations

from ptxkit import MBarrier, MBarriers, Ptr, Reg, Shared, TensorMap, Tile, Vec, kernel, ptx, smem, tid
from ptxkit.flow import for_range, if_, loop
from ptxkit.idioms import elect, remote, wait
from ptxkit.ptx import (
    add,
    and_,
    bar,
    bfi,
    cp,
    cvt,
    fma,
    ld,
    ldmatrix,
    mbarrier,
    mov,
    selp,
    setmaxnreg,
    setp,
    shfl,
    st,
    stmatrix,
    wgmma,
    xor,
)
from ptxkit.types import bf16, f16x2, f32, f64, pred, u8, u16, u32, u64

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16
half = wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16


def widths(x: Reg[u32], wide: Reg[u64], narrow: Reg[u16], byte: Reg[u8]) -> None:
    add.u32(x, wide)  # E: 64 bits for 32
    add.u64(wide, x)  # E: 32 bits for 64
    add.u16(narrow, x)  # E: 32 bits for 16
    add.u32(wide, x, x)  # E: 64-bit destination
    add.u32(x, x, wide)  # E: 64 bits for 32, destination first
    xor.b32(x, wide)  # E: bits have a width too
    mov.u64(x)  # E: 32 bits for 64
    mov.u32(x, wide)  # E: 64 bits for 32
    mov.u16(tid.x)  # a 16-bit mov of a special register is legal
    cvt.u32.u64(x)  # E: narrower than the source's type
    st.global_.u64(Ptr(wide, u64), x)  # E: narrower than what is stored
    wide + x  # E: an operator takes one width
    x < wide  # E: a comparison takes one width
    x << wide  # E: a shift amount has 32 bits
    for_range(wide)  # E: loops count in 32 bits
    byte + 1  # E: there is no 8-bit arithmetic


def classes(x: Reg[u32], a: Reg[f32], d: Reg[f64], h: Reg[f16x2], p: Reg[pred]) -> None:
    add.u32(x, a)  # E: a float for an integer
    fma.rn.f32(a, a, x)  # E: an integer for a float
    fma.rn.f32(a, a, d)  # E: f64 for f32
    add.u32(x, 1.5)  # E: a float literal for an integer
    add.u32(x, p)  # E: a predicate for a number
    a + a  # E: rounding must be said
    h + h  # E: packed halves are no integers
    x & p  # E: a predicate and a number
    ~a  # E: bits of a float
    and_.pred(p, x)  # E: a number for a predicate
    mov.u32(p)  # E: a predicate for a number
    mov.f32(x)  # E: an integer for a float
    selp.f32(a, a, x)  # E: a number for a predicate
    setp.lt.u32(x, a)  # E: a float for an integer
    st.global_.f32(Ptr(cvt.u64.u32(x), f32), x)  # E: an integer for a float
    add.u32(x, 1, pred=x)  # E: a guard is a predicate
    add.u32(x, 1, pred=1)  # E: a guard is a register
    if_(x)  # E: a condition is a predicate
    x += 1  # E(mypy): would bind the name again


def results(x: Reg[u32], a: Reg[f32], p: Reg[pred], wide: Reg[u64]) -> None:
    fma.rn.f32(a, a, add.u32(x, 1))  # E: the sum is an integer
    add.u32(x, fma.rn.f32(a, a, a))  # E: the product is a float
    add.u64(wide, xor.b32(x, 1))  # E: 32 bits are 32 bits
    add.u32(x, setp.lt.u32(x, 1))  # E: a comparison is a predicate
    add.u32(x, ptx.elect.sync(0xFFFFFFFF))  # E: two results
    add.u32(x, bar.sync(0))  # E: no result
    add.u32(x, ld.global_.v2.u32(Ptr(wide, u32)))  # E: a vector for a register
    add.u64(wide, cvt.u32.u64(wide))  # E: converted to 32 bits
    add.u32(x, elect())  # E: elect gives a predicate
    first: Reg[f32] = mov.u32(tid.x)  # E: an integer register
    second: Reg[u64] = xor.b32(x, 1)  # E: 32 bits


def counts(x: Reg[u32], a: Reg[f32]) -> None:
    add.u32(x)  # E: an operand is missing
    add.u32(x, x, x, x)  # E: an operand too many
    bfi.b32(x, x, 0)  # E: an operand is missing
    shfl.sync.idx.b32(x, 0, 31)  # E: no member mask
    shfl.sync.idx.b32(x, 0, 31, 0xFFFFFFFF, q=elect())  # E: the option is called p
    bar.sync(0, 128)  # E: an optional operand is a keyword
    bar.sync(0, b=a)  # E: a float for a thread count
    fma.rn.f32(a, a)  # E: an operand is missing


def fragments(tile: Tile[bf16]) -> None:
    large, small = mma.fragment(), half.fragment()
    a, b = tile[0].desc(0), tile[1].desc(0)
    mma(large, a, b, True)
    mma(small, a, b, True)  # E: 64 registers for 128
    half(large, a, b, True)  # E: 128 registers for 64
    mma(mov.b32(1), a, b, True)  # E: a register for a fragment
    mma(large, a, b)  # E: no scale-d
    mma(large, a, b, 1.0)  # E: scale-d is a predicate
    mma(large, a, b, True, imm_scale_c=1)  # E: no such immediate
    wgmma.fence.sync.aligned.fragment()  # E: no accumulator
    add.u32.fragment()  # E: no accumulator
    ints = wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8.fragment()
    ints_are_ints: Reg[f32] = large[0]
    add.u32(ints[0], large[0])  # E: the fragment is of floats


def descriptors(tile: Tile[bf16], address: Reg[u64]) -> None:
    large = mma.fragment()
    descriptor = tile[0].desc(0)
    mma(large, address, descriptor, True)  # E: a u64 is no descriptor
    mma(large, descriptor, address, True)  # E: a u64 is no descriptor
    mma(large, tile[0], descriptor, True)  # E: a tile is no descriptor
    add.u64(descriptor, 16)  # E: a descriptor is no number
    mov.u64(descriptor)  # E: a descriptor is no number


def barriers(full: MBarriers, one: MBarrier, x: Reg[u32], wide: Reg[u64], numbers: Shared[u32]) -> None:
    mbarrier.arrive.shared__cta.b64(x)  # E: a register for a barrier
    mbarrier.arrive.shared__cta.b64(wide)  # E: a register for a barrier
    mbarrier.arrive.shared__cta.b64(numbers)  # E: an array for a barrier
    mbarrier.arrive.shared__cta.b64(full)  # E: all barriers for one
    mbarrier.init.shared__cta.b64(0, 1)  # E: a number for a barrier
    mbarrier.try_wait.parity.shared__cta.b64(one, wide)  # E: a parity has 32 bits
    wait(full, 0)  # E: all barriers for one
    remote(one, wide)  # E: a rank has 32 bits
    full[wide]  # E: an index has 32 bits


def copies(a: TensorMap, out: Ptr[f32], tile: Tile[bf16], full: MBarriers, x: Reg[u32], f: Reg[f32]) -> None:
    load(tile[0], a, (x, x), full[0])
    load(tile[0], a, (x, x, x), full[0])  # E: three coordinates for two
    load(tile[0], a, x, full[0])  # E: one coordinate for two
    load(tile[0], a, (x, f), full[0])  # E: a float coordinate
    load(tile, a, (x, x), full[0])  # E: all stages for one
    load(tile[0], a, (x, x), x)  # E: a register for a barrier
    load(tile[0], full[0], (x, x), full[0])  # E: a barrier for a tensor map
    load(a, tile[0], (x, x), full[0])  # E: out of order
    load(out, a, (x, x), full[0])  # E: global memory for shared
    load(tile[0], a, (x, x), full[0], 1)  # E: a mask without .multicast::cluster
    load.multicast__cluster(tile[0], a, (x, x), full[0])  # E: no mask
    load.multicast__cluster(tile[0], a, (x, x), full[0], f)  # E: a float for a mask


def addresses(out: Ptr[f32], numbers: Shared[f32], x: Reg[u32], a: Reg[f32]) -> None:
    ld.shared__cta.f32(out)  # E: a global pointer in shared memory
    ld.global_.f32(numbers)  # E: shared memory in global
    ld.global_.f32(x)  # E: a 32-bit global address
    ld.global_.f32(a)  # E: a float for an address
    st.global_.f32(a, out)  # E: the address comes first
    st.global_.v2.f32(out, a)  # E: a register for a vector
    st.global_.v2.f32(out, Vec((a, x)))  # E: an integer in a vector of floats
    st.global_.v2.f32(out, Vec((a, a, a, a)))  # E: four for two
    st.global_.v4.f32(out, (a, a))  # E: two for four
    ldmatrix.sync.aligned.m8n8.x4.shared__cta.b16(out)  # E: a global pointer in shared memory
    stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(numbers, Vec((a, a)))  # E: two for four
    out + a  # E: a float index
    numbers[a]  # E: a float index


def modifiers(x: Reg[u32], a: Reg[f32]) -> None:
    ptx.nonesuch(x)  # E: no such instruction
    add.u31(x, x)  # E: no such type
    add.rn.u32(x, x)  # E: integers are not rounded
    fma.f32(a, a, a)  # E: rounding must be said
    ld.shared.global_(x)  # E: two spaces
    cp.async_.bulk.tensor_6d  # E: five dimensions at most
    wgmma.mma_async.sync.m64n256k16  # E: aligned is missing
    wgmma.mma_async.sync.aligned.m64n12k16  # E: n is a multiple of 8
    wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.f16  # E: one type for both
    mbarrier.arrive.b64.shared__cta  # E: out of order
    setmaxnreg.sync.aligned.u32(40)  # E: up or down
    wgmma(x)  # E: an opcode that is not complete
    wgmma.mma_async.sync.aligned(x)  # E: an opcode that is not complete
    with loop() as spin:
        spin.break_if(x)  # E: a condition is a predicate


@kernel(block=128, clusters=2)  # E: it is called cluster
def launched(a: TensorMap) -> None:
    smem.tile(bf16, 64)  # E: a shape
    smem.tile("bf16", (64, 64))  # E: a type, not its name
    smem.tile(bf16, (64, 64), major="n")  # E: k or mn


launched(1)  # E: a tensor map
