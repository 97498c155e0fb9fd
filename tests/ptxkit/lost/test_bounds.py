"""A stage that a loop counts further than there are stages is an error where it is indexed."""

from __future__ import annotations

import pytest

from ptxkit import Pipeline, Ptr, Ring, for_range, if_, loop, ring, smem, tid
from ptxkit.ptx import mbarrier, st
from ptxkit.types import bf16, u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("this register counts to 3, and the tile has 3 stages", "`i % 3`")
def ring_of_more_stages_than_a_tile(n: N) -> None:
    tile = smem.tile(bf16, (3, 64, 64))
    with ring(4, n) as (_, stage, _):
        st.shared__cta.b16(tile[stage].at(0, 0), 1)  # wrong


@wrong("this register counts to 3, and `full` has 3 barriers")
def ring_of_more_stages_than_barriers(n: N) -> None:
    full = smem.mbarrier(3, name="full")
    with ring(4, n) as (_, stage, _):
        mbarrier.arrive.shared__cta.b64(full[stage])  # wrong


@wrong("this register counts to 7, and the tile has 4 stages")
def range_over_more_than_a_tile(n: N) -> None:
    tile = smem.tile(bf16, (4, 64, 64))
    with if_(n > 3), for_range(8) as i:
        st.shared__cta.b16(tile[i].at(0, 0), 1)  # wrong


@wrong("this register counts to 2, and `full` has 2 barriers")
def ring_of_more_stages_than_a_pipeline(n: N) -> None:
    stages = Pipeline(2, consumers=128, bytes=16)
    with ring(3, n) as (_, stage, parity):
        stages.consumer_wait(stage, parity)  # wrong


@wrong("this register counts to 3, and the tile has 2 stages")
def carried_ring(n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with ring(4, n, total=n) as rounds:
        st.shared__cta.b16(tile[rounds.stage].at(0, 0), 1)  # wrong
        rounds.total = rounds.total + 1


@right
def as_many(n: N) -> None:
    tile = smem.tile(bf16, (3, 64, 64))
    with ring(Ring(3), n) as (_, stage, _):
        st.shared__cta.b16(tile[stage].at(0, 0), 1)
    with for_range(3) as i:
        st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def fewer(n: N) -> None:
    tile = smem.tile(bf16, (3, 64, 64))
    with ring(2, n) as (_, stage, _):
        st.shared__cta.b16(tile[stage].at(0, 0), 1)


@right
def reduced(x: Ptr[u32], n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with ring(4, n) as (_, stage, _):
        st.shared__cta.b16(tile[stage % 2].at(0, 0), 1)


@right
def within_a_branch(n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with for_range(8) as i:
        with if_(i < 2):
            st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def in_a_loop_within_a_branch(n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with for_range(8) as i:
        with if_(i < 2), for_range(n):
            st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def behind_a_break(n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with for_range(8) as i, loop() as inner:
        inner.break_if(i >= 2)
        st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def by_steps(n: N) -> None:
    tile = smem.tile(bf16, (3, 64, 64))
    with for_range(4, step=2) as i:
        st.shared__cta.b16(tile[i].at(0, 0), 1)


@right
def counted_on_the_gpu(n: N) -> None:
    tile = smem.tile(bf16, (2, 64, 64))
    with for_range(n) as i:
        st.shared__cta.b16(tile[i].at(0, 0), 1)
    st.shared__cta.b16(tile[tid.x // 64].at(0, 0), 1)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
