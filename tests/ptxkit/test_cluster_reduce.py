"""Reductions over clusters against NumPy under the simulator's checker, and accumulators as operands of the next product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, Vec, clusterid, ctaid, for_range, if_, kernel, smem, tid
from ptxkit.fragments import load_fragment, operands_a, rows_of
from ptxkit.ptx import add, ld, max, mov, wgmma
from ptxkit.ptx import st as store
from ptxkit.reductions import cluster_reduce
from ptxkit.types import bf16, e4m3, f32, u32
from tests.ptxkit.machine import opcodes, trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


@pytest.mark.parametrize(("ctas", "threads"), [(1, 64), (2, 32), (3, 96), (4, 64), (8, 32)])
def test_every_thread_of_every_cta_gets_what_numpy_gets(ctas: int, threads: int) -> None:
    @kernel(block=threads, cluster=ctas)
    def sums(x: Ptr[u32], y: Ptr[f32], out: Ptr[u32], total: Ptr[f32]) -> None:
        place = mov.u32(ctaid.x) * threads + tid.x
        store.global_.u32(out.at(place), cluster_reduce(max.u32, ld.global_.u32(x.at(place))))
        store.global_.f32(total.at(place), cluster_reduce(add.rn.f32, ld.global_.f32(y.at(place))))

    generator = np.random.default_rng(ctas)
    x, y = generator.integers(0, 1 << 32, (2, ctas * threads), np.uint32), generator.standard_normal((2, ctas * threads)).astype(np.float32)
    out, total = np.zeros_like(x), np.zeros_like(y)
    report = sums.simulate(2 * ctas, x, y, out, total)
    assert (report.verdict, report.every_schedule) == ("clean", True), report
    assert np.array_equal(out, np.broadcast_to(x.max(1, keepdims=True), x.shape))
    assert np.allclose(total, y.sum(1, keepdims=True), atol=1e-4)
    assert all(np.unique(row.view(np.uint32)).size == 1 for row in total)        # the same bits in all CTAs
    assert [finding for finding in sums.check() if finding.severity == "error"] == []


def test_in_a_loop_no_round_meets_the_next() -> None:
    @kernel(block=64, cluster=4)
    def rounds(out: Ptr[u32], n: Numbers) -> None:
        with for_range(n, last=mov.u32(clusterid.x) + tid.x) as turn:
            turn.last = cluster_reduce(add.u32, turn.last)
        with if_(tid.x == 0):
            store.global_.u32(out.at(ctaid.x), turn.last)

    out = np.zeros(4, np.uint32)
    report = rounds.simulate(4, out, 3)
    assert (report.verdict, report.every_schedule) == ("clean", True), report
    expected = 4 * sum(range(64)) * 256 * 256
    assert [*out] == [expected % (1 << 32)] * 4


def test_what_is_emitted() -> None:
    def reduced(x: Reg[f32]) -> None:
        cluster_reduce(add.rn.f32, x)

    found = opcodes(trace(reduced, block=64, cluster=4))
    own = found[next(i for i, each in enumerate(found) if each.startswith("ld.shared::cta")):]
    assert own == ["ld.shared::cta.f32", "shfl.sync.bfly.b32", "add.rn.f32", "setp.eq.u32", "st.shared::cta.b32",
                   "barrier.cluster.arrive.release.aligned", "barrier.cluster.wait.acquire.aligned", "and.b32", "mov.u32",
                   "mapa.shared::cluster.u32", "ld.shared::cluster.f32", "shfl.sync.bfly.b32", "add.rn.f32", "shfl.sync.bfly.b32",
                   "add.rn.f32", "barrier.cluster.arrive.release.aligned", "barrier.cluster.wait.acquire.aligned"]


def test_bad_input() -> None:
    def few(x: Reg[f32]) -> None:
        with if_(tid.x < 32):
            cluster_reduce(add.rn.f32, x)                                        # wrong

    def flat(x: Reg[f32]) -> None:
        cluster_reduce(add.rn.f32, x)

    refused(few, "cluster_reduce is executed by all threads of the block, and at most 32", block=64, cluster=2)
    refused(flat, "cluster_reduce counts threads by %tid.x", "give thread=", block=(32, 2), cluster=2)
    refused(flat, "cluster_reduce needs a block of whole warps", block=48, cluster=2)


def test_accumulators_are_operands_of_the_next_product() -> None:
    """Law: register i of each fragment holds the elements that `coordinates` says of operand A at depths from 16 * n on."""
    first, second = wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16, wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16

    def operands(x: Numbers) -> None:
        scores = first.fragment()
        places = dict(zip([reg.name for reg in scores], first.coordinates(x).places, strict=True))
        fragments = operands_a(bf16, scores)
        assert len(fragments) == 2
        packed: Any = {str(i.operands[0]): [str(o) for o in i.operands[1:]] for i in x.builder.body
                       if getattr(i, "opcode", "") == "cvt.rn.bf16x2.f32"}
        due = second.coordinates(x, "a").places
        for n, fragment in enumerate(fragments):
            held = [place for reg in fragment for source in reversed(packed[str(reg.operand())])
                    for name, place in places.items() if f"'{name}'" in source]
            assert held == [(row, 16 * n + column) for row, column in due]

    trace(operands)


def test_rows_of_accumulators() -> None:
    opcode = wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16

    def rows(x: Numbers) -> None:
        acc = opcode.fragment()
        expected = [[reg.name for row, _, reg in opcode.coordinates(x).elements(acc) if row == half] for half in (0, 8)]
        assert [[reg.name for reg in row] for row in rows_of(acc)] == expected

    def integers(x: Numbers) -> None:
        rows_of(Vec([x, x, x, x]))

    def odd(x: Reg[f32]) -> None:
        rows_of(Vec([x, x]))

    def narrow(x: Reg[f32]) -> None:
        operands_a(e4m3, Vec([x] * 8))

    def accumulators(x: Numbers) -> None:
        load_fragment(smem.tile(bf16, (64, 64))[0], 0, 0, "d")                   # type: ignore[arg-type] # wrong

    trace(rows)
    refused(accumulators, "operand 'a' or 'b' of an mma, not 'd'")
    for wrong in (integers, odd):
        refused(wrong, "rows_of takes f32 or s32 accumulators")
    refused(narrow, "operands_a makes bf16 or f16")
