"""More of each kind: mistakes that hide in an order, a space, a scope or a share of the threads."""

from __future__ import annotations

import re
from typing import Any

from ptxkit.grammar import tree

from .catalogue import (
    ARRIVE,
    COPY,
    DRAIN,
    EXPECT,
    MMA,
    MUTANTS,
    NAMED,
    PROXY,
    READ,
    STORE,
    TRY_WAIT,
    VARIANTS,
    _after,
    mutant,
    no_cluster_barrier,
    operand,
    replaced,
    skip_wait,
    variant,
    without,
)
from .edit import FIRST, LAST, Edit, ptx, written

WARP = "mov.u32 %q1, %tid.x;\nand.b32 %q1, %q1, 127;\nshr.u32 %q1, %q1, 5;\n"


def share(edit: Edit, match: str, condition: str, which: Any = None, *, of: str = WARP) -> None:
    """Let only some threads execute the matches: `condition` is about %q1, the warp in its warpgroup."""
    edit.before(match, ptx(f"{of}{condition}"), which).guard(match, "%q0", which).top(".reg .pred %q0;\n.reg .b32 %q1;")


# P.

mutant("P2", "hgemm", "hgemm.alone", "hgemm.f32")(lambda e: e.before(r"stmatrix|st\.shared", e.take(PROXY, FIRST), 3))
mutant("P8.space", "hgemm", "staged_mma", "nvcc.add_one")(replaced(PROXY, r"shared::\w+", "global"))
mutant("P4.half", "hgemm", "staged_mma")(lambda e: share(e, PROXY, "setp.lt.u32 %q0, %q1, 2;"))
mutant("P4.lane", "hgemm")(lambda e: share(e, PROXY, "setp.ne.u32 %q0, %q1, 5;", of="mov.u32 %q1, %laneid;\n"))
mutant("P5.early", "staged_mma")(lambda e: e.before(r"cp\.async\.wait_group", e.take(PROXY)))
mutant("P7.late", "retarget")(lambda e: e.after(COPY, e.take(r"^fence\.proxy\.tensormap")))
variant("P5.right", "staged_mma")(lambda e: e.after(r"^bar\.sync", e.take(PROXY), FIRST))
variant("P1.wide", "hgemm", "staged_mma", "nvcc.add_one")(replaced(PROXY, r"\.shared::\w+", ""))

# B.

mutant("B8", "cluster_multicast", "tma_copy")(replaced(TRY_WAIT, r"\], 0;", "], 1;"))
mutant("B11.expect", "hgemm", "tile_gemm", "cluster_multicast", "nvcc.matmul")(lambda e: e.twice(EXPECT, FIRST))
mutant("B14.late", "tile_gemm", "publish", "hgemm.alone")(lambda e: e.after(r"^bar\.sync 0", e.take(r"mbarrier\.init", LAST), FIRST))
mutant("B18.early", "publish")(lambda e: e.before(r"ld\.shared", e.take(ARRIVE, LAST), FIRST))
mutant("B18.store", "publish")(lambda e: e.after(ARRIVE, e.take(r"st\.shared"), FIRST))
mutant("B18.store", "named")(lambda e: e.after(r"bar\.arrive 1", e.take(r"st\.shared")))
mutant("B18.load", "named")(lambda e: e.after(r"^st\.global", e.take(r"bar\.sync 1")))
mutant("B18.store", "exchange")(lambda e: e.after(ARRIVE, e.take(r"st\.shared"), FIRST))
mutant("B18.load", "exchange")(lambda e: e.after(ARRIVE, e.take(r"ld\.shared"), LAST))
mutant("B22.warp", "tile_gemm")(lambda e: _one_warp_waits(e))
variant("B23.late", "cluster_multicast")(lambda e: e.after(r"cp\.async\.bulk\.shared", e.take(EXPECT)))


def _one_warp_waits(edit: Edit) -> None:
    """Warp 1 goes on without having asked."""
    done = next(s for s in _after(edit, edit.find(TRY_WAIT)[LAST]) if getattr(s, "mnemonic", "") == "bra").operands[0].name
    edit.before(TRY_WAIT, ptx(f"{WARP}setp.eq.u32 %q0, %q1, 1;\n@%q0 bra {done};"), LAST).top(".reg .pred %q0;\n.reg .b32 %q1;")


@variant("B1.warps", "tile_gemm")
def _one_arrival_a_warp(edit: Edit) -> None:
    edit.text(r"mbarrier\.init.*, 128;", ", 128;", ", 4;")
    share(edit, ARRIVE, "setp.eq.u32 %q0, %q1, 3;", LAST, of="mov.u32 %q1, %laneid;\n")


@variant("B1.one", "tile_gemm")
def _one_arrival_a_warpgroup(edit: Edit) -> None:
    """Any warp's wait covers the operand reads of the whole warpgroup."""
    edit.text(r"mbarrier\.init.*, 128;", ", 128;", ", 1;")
    share(edit, ARRIVE, "setp.eq.u32 %q0, %q1, 77;", LAST, of="mov.u32 %q1, %tid.x;\nand.b32 %q1, %q1, 127;\n")


# W.

mutant("W3", "tile_gemm", "nvcc.matmul")(lambda e: e.before(r"wgmma\.wait_group", e.take(ARRIVE, LAST)))
mutant("W3.lag", "hgemm", "hgemm.alone")(lambda e: e.after(ARRIVE, e.take(r"wgmma\.wait_group.* 1;"), FIRST))
mutant("W4.mma", "tile_gemm", "nvcc.matmul")(lambda e: e.after(r"wgmma\.wait_group", e.take(MMA, LAST)))
mutant("W4.commit", "tile_gemm", "nvcc.matmul", "staged_mma")(lambda e: e.after(r"wgmma\.wait_group", e.take(r"wgmma\.commit_group")))
mutant("W5.late", "staged_mma")(lambda e: e.after(MMA, e.take(r"wgmma\.fence"), LAST))
mutant("W5.warp", "staged_mma")(lambda e: share(e, r"wgmma\.fence", "setp.ne.u32 %q0, %q1, 1;"))
mutant("W8.major", "hgemm", "tile_gemm", "nvcc.matmul", expect="wrong")(replaced(MMA, "0, 0;", "1, 0;"))
mutant("W8.swapped", "hgemm.alone", "nvcc.matmul", expect="wrong")(replaced(MMA, r"(%rd\d+), (%rd\d+)", r"\2, \1"))
mutant("W8.sign", "hgemm", "tile_gemm", expect="wrong")(replaced(MMA, r"1, 1, (\d), (\d);", r"1, -1, \1, \2;"))

# D.

mutant("D2.partial", "hgemm", "hgemm.mn")(lambda e: e.change(
    rf"^setp\.ge\.u32 .*, {_stages(e)};", lambda s: ptx(f"setp.ge.u32 {s.operands[0].name}, {s.operands[1].name}, {_stages(e) - 1};")))
mutant("D7", "hgemm", "exchange")(lambda e: e.twice(r"barrier\.cluster\.arrive", FIRST))
mutant("D8", "exchange", expect="wrong")(replaced(r"^xor\.b32 .*, 1;", ", 1;", ", 0;", FIRST))
mutant("D9", "exchange")(lambda e: (skip_wait(e, FIRST), e.text(ARRIVE, r"\.release\.cluster", ".relaxed.cluster", LAST)))


def _stages(edit: Edit) -> int:
    return int(operand(edit, r"^setp\.eq\.u32 .*, \d;", LAST, 2))


# S.

mutant("S1.others", "hgemm", "hgemm.alone")(
    lambda e: e.guard(READ, e.find(READ)[0].guard.predicate, negated=True))  # type: ignore[union-attr]
mutant("S1.late", "hgemm", "hgemm.f32")(lambda e: e.after(NAMED, e.take(READ, FIRST), 1))
mutant("S4.others", "hgemm", expect="review")(
    lambda e: e.guard(DRAIN, e.find(DRAIN)[0].guard.predicate, negated=True))  # type: ignore[union-attr]
mutant("S8", "nvcc.add_one")(lambda e: e.after(r"^bar\.sync", e.take(r"^st\.shared", LAST), LAST))

# R.

mutant("R3.half", "tile_gemm")(lambda e: share(e, r"^bar\.sync 0", "setp.lt.u32 %q0, %q1, 2;"))
mutant("R3.other", "hgemm")(replaced(NAMED, "128;", "256;", 1))
mutant("R6.early", "transpose")(lambda e: e.before(r"^st\.shared", e.take(r"bar\.warp\.sync"), LAST))
mutant("R6.early", "nvcc.total")(lambda e: e.before(r"^@%p\d+ bra", e.take(r"^bar\.sync"), FIRST))
mutant("R6.global", "vector_add")(replaced(r"mad\.lo", "256", "128"))
mutant("R8.source", "nvcc.add_one")(replaced(r"cp\.async\.bulk\.shared", r"(\[%r\d+\], \[%rd\d+)", r"\1+8", FIRST))
mutant("R8.coordinates", "tma_copy", expect="wrong")(replaced(COPY, r"\{(%r\d+), (%r\d+)\}", r"{\2, \1}"))
mutant("R8.inner", "tma_copy", "hgemm", "tile_gemm", "nvcc.matmul")(lambda e: shifted(e, COPY, 1))
mutant("R8.half", "tma_copy", "hgemm.f32")(lambda e: shifted(e, STORE, 2))
mutant("R8.before", "hgemm.mn", "gemm.shared")(lambda e: shifted(e, r"cp\.async\.bulk.*multicast", -1))
mutant("R8.rank", "tma_copy")(lambda e: e.text(COPY, r"tensor\.2d(.*)\{(%r\d+), %r\d+\}", r"tensor.1d\1{\2}"))
mutant("R8.map", "retarget", "outputs")(lambda e: _shifted_map(e))
mutant("R8.dst", "hgemm", "tile_gemm", "nvcc.matmul")(replaced(COPY, r"(bytes) \[(%r\d+)", r"\1 [\2+64", FIRST))
mutant("R8.size", "nvcc.add_one")(replaced(r"mov\.u32 .*, 2048;", "2048", "2040"))
mutant("R8.bounds", "vector_add")(replaced(r"st\.global", r"\]", "+4]"))
mutant("R8.shared", "transpose")(replaced(r"ld\.shared", r"\]", "+2]", FIRST))
mutant("R9", "transpose", expect="advice")(
    lambda e: (e.text(r"mad\.lo\.u32 .*, 132,", "132", "128"), _rows_of_128(e)))


def shifted(edit: Edit, match: str, elements: int) -> None:
    """The first box begins `elements` later along its contiguous dimension."""
    inner = re.search(r"\{(%r\d+|\d+)", written(edit.find(match)[FIRST]))  # type: ignore[arg-type]
    assert inner is not None
    edit.before(match, ptx(f"add.s32 %q1, {inner[1]}, {elements};"), FIRST).text(match, re.escape(inner[0]), "{%q1", FIRST)
    edit.top(".reg .b32 %q1;")


def _shifted_map(edit: Edit) -> None:
    """An array that begins 8 bytes later: no such map can be."""
    match = r"tensormap\.replace.*global_address"
    address = written(edit.find(match)[FIRST]).rpartition(", ")[2].rstrip(";")  # type: ignore[arg-type]
    edit.before(match, ptx(f"add.s64 %q1, {address}, 8;"), FIRST).text(match, rf", {address};", ", %q1;", FIRST).top(".reg .b64 %q1;")


def _rows_of_128(edit: Edit) -> None:
    def to(statement: Any) -> tuple[tree.Statement, ...]:
        text = written(statement)
        head, plus, rest = text.partition("+")
        return ptx(f"{head}+{int(rest[:rest.index(']')]) // 132 * 128}{rest[rest.index(']'):]}" if plus else text)

    edit.change(r"st\.shared", to)


# The same kinds in other kernels: consumers in turn, bulk reductions, copies and st.async between CTAs, maps for stores, flags in global
# memory, rings of cp.async.

BULK_COPY = r"^cp\.async\.bulk\.shared::cluster\.shared::cta"
RELEASE, ACQUIRE = r"red\.release\.gpu", r"ld\.acquire\.gpu"
TURNS = ("pingpong", "gemm.pingpong")
mutant("P1", *TURNS, "bulk_sum", "gather", "outputs", "gemm.shared", "gemm.fp8")(without(PROXY))
mutant("P4.lane", "bulk_sum", "pingpong", "gather")(lambda e: share(e, PROXY, "setp.ne.u32 %q0, %q1, 5;", of="mov.u32 %q1, %laneid;\n"))
mutant("P8.space", "bulk_sum", "gather", "pingpong", "gemm.pingpong")(replaced(PROXY, r"shared::\w+", "global"))
mutant("P7.acquire", "outputs")(without(r"^fence\.proxy\.tensormap"))
mutant("P7.others", "outputs")(lambda e: e.before(r"^fence\.proxy\.tensormap", ptx("mov.u32 %q1, %tid.x;\nsetp.lt.u32 %q0, %q1, 32;"))
                               .guard(r"^fence\.proxy\.tensormap", "%q0").top(".reg .pred %q0;\n.reg .b32 %q1;"))
mutant("P7.drain", "outputs")(without(READ))
mutant("B1", "mail", "gather")(lambda e: e.text(r"mbarrier\.init", r", (\d+);", r", 1\1;", FIRST))
mutant("B1", *TURNS)(replaced(r"mbarrier\.init.*, 1;", ", 1;", ", 2;", LAST))
mutant("B2", "mail")(replaced(r"mbarrier\.init.*, 32;", ", 32;", ", 31;"))
mutant("B3", "mail", "gather", *TURNS)(replaced(EXPECT, r"(\d+);", lambda m: f"{int(m[1]) - 16};"))
mutant("B4", "mail", "gather", *TURNS)(replaced(EXPECT, r"(\d+);", lambda m: f"{int(m[1]) + 16};"))
mutant("B16.arrive", "mail")(replaced(ARRIVE, r"release\.cluster", "relaxed.cluster", LAST))
mutant("B17.arrive", "mail")(replaced(ARRIVE, r"release\.cluster", "release.cta", LAST))
mutant("B17.wait", "mail")(replaced(TRY_WAIT, r"acquire\.cluster", "acquire.cta", FIRST))
mutant("B22.producer", *TURNS, "mail", "gemm.shared", "gemm.fp8")(lambda e: skip_wait(e, FIRST))
mutant("B22.consumer", "pingpong", "mail", "gather", "gemm.fp8")(lambda e: skip_wait(e, LAST))
mutant("B12", "nvcc.handoff")(replaced(r"cp\.async\.mbarrier", r"cp\.async\.mbarrier\.arrive\.noinc\.shared::cta\.b64",
                                      "mbarrier.arrive.shared.b64 _,"))
mutant("B18.early", "nvcc.handoff")(lambda e: e.before(r"^cp\.async\.c[ag]", e.take(r"cp\.async\.mbarrier")))
mutant("W2", "pingpong", "gemm.fp8", "gemm.shared")(without(r"wgmma\.wait_group.* 0;"))
mutant("W5", "pingpong", "gemm.fp8", "gemm.spread")(without(r"wgmma\.fence"))
mutant("R10.turn", "pingpong")(without(r"^bar\.arrive", LAST))
mutant("R10.first", "pingpong")(without(r"^bar\.arrive", FIRST))
mutant("R10.twice", "pingpong")(lambda e: e.twice(r"^bar\.arrive", LAST))
mutant("D1", "mail", "gather")(no_cluster_barrier(FIRST, "bar.sync 0;"))
mutant("D2", "gather")(lambda e: e.delete(r"barrier\.cluster", range(2, 4)))
mutant("D5", "gemm.spread", "gemm.shared")(no_cluster_barrier(FIRST, "bar.sync 0;"))
mutant("S1", "bulk_sum", "pingpong")(without(READ))
mutant("S1.more", "bulk_sum")(replaced(READ, " 1;", " 2;"))
mutant("S2", "bulk_sum")(without(r"^bar\.sync", FIRST))
mutant("S6", "bulk_sum", "outputs")(without(r"^bar\.sync", LAST))
mutant("S4", "bulk_sum", "pingpong", expect="review")(without(DRAIN))
mutant("R11.order", "gemm.split", "nvcc.split")(replaced(RELEASE, "release", "relaxed"))
mutant("R11.scope", "gemm.split", "nvcc.split")(replaced(RELEASE, r"release\.gpu", "release.cta"))
mutant("R11.cluster", "gemm.split", "nvcc.split")(replaced(RELEASE, r"release\.gpu", "release.cluster"))
mutant("R11.acquire", "gemm.split", "nvcc.split")(replaced(ACQUIRE, "acquire", "relaxed"))
mutant("R11.near", "gemm.split", "nvcc.split")(replaced(ACQUIRE, r"acquire\.gpu", "acquire.cta"))
mutant("R11.early", "nvcc.split")(lambda e: e.after(RELEASE, e.take(r"^st\.global", FIRST)))
mutant("R11.barrier", "nvcc.split")(without(r"^bar\.sync", FIRST))
mutant("R11.join", "nvcc.split")(without(r"^bar\.sync", LAST))
mutant("R12.writer", "nvcc.last_block")(without(r"^(membar|fence)", FIRST))
mutant("R12.reader", "nvcc.last_block")(without(r"^(membar|fence)", LAST))
mutant("R12.scope", "nvcc.last_block")(replaced(r"^(membar|fence)", r"\.gl|\.gpu", ".cta", FIRST))
mutant("R6", "nvcc.tickets")(without(r"^bar\.sync", FIRST))
mutant("R6.back", "nvcc.tickets")(without(r"^bar\.sync", LAST))
mutant("R6", "nvcc.multistage")(without(r"^bar\.sync"))
mutant("R6.copies", "nvcc.multistage")(replaced(r"cp\.async\.wait_group", " 1;", " 2;"))
mutant("R6.copies", "nvcc.handoff")(without(r"cp\.async\.mbarrier"))
mutant("R7.sum", "row_sums")(lambda e: _not_cleared(e))
variant("R11.fences", "nvcc.split")(lambda e: e.before(RELEASE, ptx("fence.acq_rel.gpu;")).text(RELEASE, "release", "relaxed"))


def _not_cleared(edit: Edit) -> None:
    """The first register that is set to zero is not."""
    edit.delete(r"^mov\.\w+ %\w+, (0|0f00000000);", FIRST)


__all__ = ["MUTANTS", "VARIANTS"]
