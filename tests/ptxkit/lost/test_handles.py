"""A name that a body binds to another tile, barrier, ring, descriptor or tensor map: every iteration has the first one."""

# ruff: noqa: RUF059

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ptxkit import NamedBarrier, NamedBarriers, Ptr, Ring, TensorMap, for_range, if_, kernel, ring, smem
from ptxkit.ptx import bar, cp, ld, mbarrier, st, wgmma
from ptxkit.types import bf16, u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right
product = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16


@wrong("`a` is one Tile before this loop", "`tile[stage]`")
def tiles(x: Ptr[u32], n: N) -> None:
    a, b = smem.tile(u32, (8, 32)), smem.tile(u32, (8, 32))
    with for_range(n) as i:
        st.shared__cta.u32(a[0].at(0, 0), i)
        a, b = b, a  # wrong


@wrong("`a` is one Tile before this loop")
def tiles_of_a_ring(x: Ptr[u32], n: N) -> None:
    a, b = smem.tile(u32, (8, 32)), smem.tile(u32, (8, 32))
    with ring(2, n) as (k, stage, parity):
        st.shared__cta.u32(a[0].at(0, 0), k)
        a, b = b, a  # wrong


@wrong("`s.a` is one Tile before this loop")
def attributes(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(a=smem.tile(u32, (8, 32)), b=smem.tile(u32, (8, 32)))
    with for_range(n) as i:
        st.shared__cta.u32(s.a[0].at(0, 0), i)
        s.a, s.b = s.b, s.a  # wrong


@wrong("`tiles` is a list of Tile before this loop")
def a_list_that_is_turned(x: Ptr[u32], n: N) -> None:
    tiles = [smem.tile(u32, (8, 32)), smem.tile(u32, (8, 32))]
    with for_range(n) as i:
        st.shared__cta.u32(tiles[0][0].at(0, 0), i)
        tiles = tiles[1:] + tiles[:1]  # wrong


@wrong("`full` is one MBarriers before this loop")
def mbarriers(x: Ptr[u32], n: N) -> None:
    full, empty = smem.mbarrier(1), smem.mbarrier(1)
    mbarrier.init.shared__cta.b64(full[0], 128)
    mbarrier.init.shared__cta.b64(empty[0], 128)
    with for_range(n):
        mbarrier.arrive.shared__cta.b64(full[0])
        full, empty = empty, full  # wrong


@wrong("`mine` is one NamedBarrier before this loop")
def named_barriers(x: Ptr[u32], n: N) -> None:
    mine, theirs = NamedBarrier(128), NamedBarrier(128)
    with for_range(n):
        mine.sync()
        mine, theirs = theirs, mine  # wrong


@wrong("`mine` is one NamedBarriers before this loop")
def arrays_of_named_barriers(x: Ptr[u32], n: N) -> None:
    mine, theirs = NamedBarriers(1, 128), NamedBarriers(1, 128)
    with for_range(n):
        mine[0].sync()
        mine, theirs = theirs, mine  # wrong


@wrong("`mine` is one Ring before this loop")
def rings(x: Ptr[u32], n: N) -> None:
    mine, theirs = Ring(2), Ring(2)
    with for_range(n):
        st.global_.u32(x, mine.stage)
        mine.advance()
        mine, theirs = theirs, mine  # wrong


@wrong("the loop loses `a`")
def descriptors(x: Ptr[u32], n: N) -> None:
    tile, acc = smem.tile(bf16, (2, 64, 64)), product.fragment()
    a, b = tile[0].desc(0), tile[1].desc(0)
    with for_range(n):
        product(acc, a, b, True)
        a, b = b, a  # wrong


@wrong("`with if_` only binds the name `a`")
def a_tile_in_a_branch(x: Ptr[u32], n: N) -> None:
    a, b = smem.tile(u32, (8, 32)), smem.tile(u32, (8, 32))
    with if_(n > 100):
        a = b  # wrong
    st.global_.u32(x, ld.shared__cta.u32(a[0].at(0, 0)))


@wrong("`with if_` only binds the name `s.barrier`")
def a_barrier_in_a_branch(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(barrier=NamedBarrier(128), other=NamedBarrier(128))
    with if_(n > 100):
        s.barrier = s.other  # wrong
    s.barrier.sync()


@right
def python_chooses_a_tile(x: Ptr[u32], n: N) -> None:
    for tile in (smem.tile(u32, (8, 32)), smem.tile(u32, (8, 32))):
        with for_range(n) as i:
            st.shared__cta.u32(tile[0].at(0, 0), i)


@right
def a_pool_gives_and_takes_back(x: Ptr[u32], n: N) -> None:
    pool = [smem.tile(u32, (8, 32)), smem.tile(u32, (8, 32))]
    with for_range(n) as i:
        tile = pool.pop()
        st.shared__cta.u32(tile[0].at(0, 0), i)
        pool.append(tile)


@right
def what_was_not_used_before(x: Ptr[u32], n: N) -> None:
    tile = barrier = None
    with for_range(n) as i:
        tile = smem.tile(u32, (8, 32)) if tile is None else tile
        barrier = barrier or NamedBarrier(128)
        st.shared__cta.u32(tile[0].at(0, 0), i)
        barrier.sync()


@right
def a_name_that_is_bound_before_it_is_read(x: Ptr[u32], n: N) -> None:
    view = smem.tile(u32, (8, 32))
    other = smem.tile(u32, (8, 32))
    with for_range(n) as i:
        view = other
        st.shared__cta.u32(view[0].at(0, 0), i)
    bar.sync(0)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()


def test_tensor_maps_are_lost_too() -> None:
    def swapped(x: TensorMap, y: TensorMap, n: N) -> None:
        tile, full = smem.tile(bf16, (64, 64)), smem.mbarrier(1)
        mbarrier.init.shared__cta.b64(full[0], 1)
        with for_range(n):
            cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes(tile[0], x, (0, 0), full[0])
            x, y = y, x

    with pytest.raises(Exception, match="the loop loses `x`"):
        kernel(block=128)(swapped).trace()
