"""Reductions of warps and blocks against NumPy on the CPU device under its checker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, ctaid, for_range, func, kernel, tid
from ptxkit.ptx import add, ld, mov, shfl
from ptxkit.ptx import max as max_
from ptxkit.ptx import st as store
from ptxkit.reductions import block_reduce, cluster_reduce, warp_reduce
from ptxkit.types import f32, u32
from tests.ptxkit.machine import lines, opcodes, trace

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Array = np.ndarray[Any, Any]


def clean(kernel_: Any, *args: Any, **how: Any) -> None:
    report = kernel_.simulate(1, *args, **how)
    assert report.verdict == "clean", report


@pytest.mark.parametrize("lanes", [1, 2, 8, 32])
def test_a_warp_reduces(lanes: int) -> None:
    @kernel(block=64)
    def reduce(x: Ptr[f32], y: Ptr[u32], out: Ptr[f32], least: Ptr[u32]) -> None:
        i = mov.u32(tid.x)
        store.global_.f32(out.at(i), warp_reduce(add.rn.f32, ld.global_.f32(x.at(i)), lanes=lanes))
        store.global_.u32(least.at(i), warp_reduce(max_.u32, ld.global_.u32(y.at(i)), lanes=lanes))

    x, y = np.arange(64, dtype=np.float32), np.random.default_rng(3).integers(0, 1 << 32, 64, dtype=np.uint32)
    out, largest = np.zeros_like(x), np.zeros_like(y)
    clean(reduce, x, y, out, largest)
    assert np.array_equal(out, np.repeat(x.reshape(-1, lanes).sum(1), lanes))
    assert np.array_equal(largest, np.repeat(y.reshape(-1, lanes).max(1), lanes))
    assert ("redux.sync.max.u32" in opcodes(reduce.trace())) == (lanes == 32)


@pytest.mark.parametrize("threads", [32, 64, 96, 256, 1024])
@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_a_block_reduces_again_and_again(threads: int, schedule: str) -> None:
    if schedule == "random" and threads == 1024:
        pytest.skip("long")

    @kernel(block=threads)
    def reduce(x: Ptr[f32], out: Ptr[f32], rounds: Reg[u32]) -> None:
        i = mov.u32(tid.x)
        with for_range(rounds) as row:
            place = row * threads + i
            store.global_.f32(out.at(place), block_reduce(add.rn.f32, ld.global_.f32(x.at(place))))

    x = np.random.default_rng(4).integers(-9, 9, (3, threads)).astype(np.float32)
    out = np.zeros_like(x)
    report = reduce.simulate(1, x, out, 3, schedule=schedule, seed=1)
    assert report.verdict == "clean", report
    assert np.array_equal(out, np.broadcast_to(x.sum(1, keepdims=True), x.shape))


@func
def summed(x: Reg[f32]) -> Reg[f32]:
    return block_reduce(add.rn.f32, x)


@func
def summed_in_cluster(x: Reg[f32]) -> Reg[f32]:
    return cluster_reduce(add.rn.f32, x)


@func
def summed_below(x: Reg[f32]) -> Reg[f32]:
    return summed(x)


@pytest.mark.parametrize("reduced", [summed, summed_in_cluster, summed_below], ids=lambda each: each.name)
@pytest.mark.parametrize("cluster", [1, 2])
def test_a_function_that_reduces_is_called_again_and_again(reduced: Any, cluster: int) -> None:
    """Law: each call of a `@func`, one after another or in a loop, reduces alone."""
    @kernel(block=64, cluster=cluster)
    def again(x: Ptr[f32], out: Ptr[f32], rounds: Reg[u32]) -> None:
        i = mov.u32(tid.x)
        here = out.at(mov.u32(ctaid.x) * (5 * 64) + i)
        for row in range(2):
            store.global_.f32(here + 64 * row, reduced(ld.global_.f32(x.at(i) + 64 * row)))
        with for_range(rounds, start=2) as row:
            store.global_.f32(here.at(row * 64), reduced(ld.global_.f32(x.at(row * 64 + i))))

    x = np.random.default_rng(4).integers(-9, 9, (5, 64)).astype(np.float32)
    for seed in range(3):
        out = np.zeros((cluster, *x.shape), np.float32)
        report = again.simulate(cluster, x, out, 5, schedule="random", seed=seed)
        assert report.verdict == "clean", report
        of_ctas = cluster if reduced is summed_in_cluster else 1
        assert np.array_equal(out, np.broadcast_to(x.sum(1, keepdims=True) * of_ctas, out.shape))


def test_what_a_reduction_costs() -> None:
    def once(x: Reg[f32]) -> None:
        block_reduce(add.rn.f32, x)

    def repeated(x: Reg[f32], n: Reg[u32]) -> None:
        with for_range(n):
            block_reduce(add.rn.f32, x)

    assert opcodes(trace(once)).count("bar.sync") == 1
    assert opcodes(trace(repeated)).count("bar.sync") == 2
    assert opcodes(trace(once)).count("shfl.sync.bfly.b32") == 5 + 2             # 128 threads are 4 warps


def test_a_shuffle_by_hand_is_what_is_emitted() -> None:
    """Oracle: the loop of the examples."""
    def by_hand(x: Reg[f32]) -> None:
        for distance in (16, 8, 4, 2, 1):
            x = add.rn.f32(x, shfl.sync.bfly.b32(x, distance, 31, 0xFFFFFFFF))

    def reduced(x: Reg[f32]) -> None:
        warp_reduce(add.rn.f32, x)

    assert lines(trace(by_hand)) == lines(trace(reduced))
