"""Units that CTAs draw, from one end or from both, run on the CPU device: each once, in order, and the counter is left at 0."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, cluster_ctarank, ctaid, if_, kernel, laneid, tid
from ptxkit.dsl.kernel import Kernel
from ptxkit.flow import else_
from ptxkit.gemm.scheduler.dynamic import ClusterDynamicScheduler, DynamicScheduler
from ptxkit.idioms import cluster_sync, init_barriers
from ptxkit.ptx import add, atom, bar, mov
from ptxkit.ptx import st as store
from ptxkit.types import u32

pytestmark = pytest.mark.pure
CTA = 1 << 16


@functools.cache
def drawing(from_end: int, size: int = 1) -> Kernel[Any]:
    """A kernel whose first warp draws, and whose second writes down for each unit its CTA (in clusters of `size`: all of them) and the how
    manieth of that it was."""
    @kernel(target="sm_90a", block=64, cluster=size)
    def draw(counter: Ptr[u32], units: Reg[u32], out: Ptr[u32]) -> None:
        dynamic = DynamicScheduler(counter, 1, from_end) if size == 1 else ClusterDynamicScheduler(counter, 1, from_end, size=size)
        with if_(mov.u32(tid.x) == 0):
            init_barriers(*dynamic.counts)
        if size == 1:
            bar.sync(0)
        else:
            cluster_sync()
        with if_(mov.u32(tid.x) < 32):
            with if_(mov.u32(laneid) == 0), dynamic.producer_loop(units, lambda unit: [unit + 7]):
                pass
        with else_():
            number = mov.u32(1)
            with dynamic.reader_loop(units, 0, 1) as (unit, place, *_):
                with if_(mov.u32(laneid) == 0):
                    atom.relaxed.gpu.global_.add.u32(out.at(unit), number + mov.u32(ctaid.x) * CTA)
                    rank = mov.u32(cluster_ctarank) if size > 1 else 0
                    store.global_.u32(out.at(units * (rank + 1) + unit), place)
                add.u32(number, number, 1)

    return draw


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 40), st.integers(1, 7), st.sampled_from([0, 1, 2, 5, 12]), st.sampled_from(["fifo", "random"]), st.integers(0, 99))
def test_every_unit_is_drawn_once_in_order_from_each_end(units, ctas, from_end, schedule, seed):
    counter, out = np.zeros(2, np.uint32), np.zeros(2 * max(1, units), np.uint32)
    for _ in range(2):                                          # the second launch begins where the first one ended
        out[:] = 0
        report = drawing(from_end).simulate(ctas, counter, units, out, schedule=schedule, seed=seed)
        assert report.findings == report.reasons, str(report)
        assert not counter.any()
        assert (out[units:2 * units] == np.arange(units) + 7).all()
        behind = min(from_end, ctas // 2) if units > ctas else 0
        backwards = set()
        for cta in range(ctas):
            own = {int(entry) % CTA: unit for unit, entry in enumerate(out[:units]) if entry // CTA == cta}
            assert sorted(own) == list(range(1, len(own) + 1))  # no unit twice, none lost
            walked = [own[number] for number in sorted(own)]
            last = cta >= ctas - behind
            assert walked == sorted(walked, reverse=last)
            backwards |= set(walked) if last else set()
        assert len({int(entry) for entry in out[:units]}) == units
        assert backwards == set(range(units - len(backwards), units))
        assert len(backwards) >= behind


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 30), st.integers(1, 4), st.sampled_from([2, 4]), st.sampled_from([0, 1, 2]), st.sampled_from(["fifo", "random"]),
       st.integers(0, 99))
def test_every_cta_of_a_cluster_gets_what_its_first_one_draws(units, clusters, size, from_end, schedule, seed):
    """Each writes down each unit of its cluster once: the sum of their numbers, and of the CTAs, says who did."""
    counter, out = np.zeros(2, np.uint32), np.zeros((1 + size) * max(1, units), np.uint32)
    for _ in range(2):
        out[:] = 0
        report = drawing(from_end, size).simulate(clusters * size, counter, units, out, schedule=schedule, seed=seed)
        assert report.findings == report.reasons, str(report)
        assert not counter.any()
        assert (out[units:(1 + size) * units].reshape(size, units) == np.arange(units) + 7).all()
        drawn: dict[int, list[int]] = {}
        for entry in out[:units].tolist():
            ctas, number = divmod(entry, CTA)
            cluster, rest = divmod(ctas - size * (size - 1) // 2, size * size)      # c size + 0, c size + 1, ...
            assert rest == number % size == 0
            drawn.setdefault(cluster, []).append(number // size)
        assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in drawn.values())
