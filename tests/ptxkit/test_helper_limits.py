"""What the helpers can know while tracing: places outside of tiles, operations that are no reductions, addresses between elements."""

from __future__ import annotations

import pytest

from ptxkit import NamedBarrier, NamedBarriers, Ptr, Reg, smem
from ptxkit.copies import copy_async, load_tile, store_tile
from ptxkit.fragments import load_fragment, store_fragment
from ptxkit.ptx import add, ld, mapa, mov, sub, wgmma
from ptxkit.ptx import st as store
from ptxkit.reductions import block_reduce, warp_reduce
from ptxkit.types import bf16, u32, u64
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]
mma = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16


@pytest.mark.parametrize(("row", "column"), [(64, 0), (56, 0), (-16, 0), (0, 64), (0, 56), (0, 4)])
def test_fragments_are_loaded_from_within_their_tile(row: int, column: int) -> None:
    def loaded(n: Numbers) -> None:
        load_fragment(smem.tile(bf16, (64, 64))[0], row, column)

    refused(loaded, "a fragment of 16 x 16 at row", "not within a tile of 64 x 64")


def test_fragments_are_within_their_tile() -> None:
    def stored(n: Numbers) -> None:
        store_fragment(smem.tile(bf16, (32, 64))[0], mma.fragment(), n)

    refused(stored, "have 64 rows, and this tile has 32")

    def right(n: Numbers) -> None:
        tile = smem.tile(bf16, (64, 64))
        load_fragment(tile[0], 48, 48)
        load_fragment(tile[0], 8, 40, "b")
        store_fragment(tile[0], mma.fragment(), n)

    trace(right)


def test_lines_keep_16_bytes_aligned() -> None:
    def asynchronous(x: Ptr[bf16], n: Numbers) -> None:
        copy_async(smem.tile(bf16, (64, 64))[0], x, 63, n, 128)

    def loaded(x: Ptr[bf16], n: Numbers) -> None:
        load_tile(smem.tile(bf16, (64, 64))[0], x, 68, n, 128)

    def stored(x: Ptr[bf16], n: Numbers) -> None:
        store_tile(smem.tile(bf16, (64, 64))[0], x, 4, n, 128)

    for wrong in (asynchronous, loaded, stored):
        refused(wrong, "do not keep 16 bytes aligned", "a multiple of 8 elements")


def test_constant_places_of_wide_accesses() -> None:
    def loaded(n: Numbers) -> None:
        ld.shared__cta.v4.u32(smem.array(u32, 8).at(1))

    def stored(n: Numbers) -> None:
        store.shared__cta.v2.u32(smem.array(u32, 8).at(3), (n, n))

    def wide(x: Reg[u64]) -> None:
        store.shared__cta.u64(smem.array(u32, 8).at(1), x)

    for wrong, words in ((loaded, "16 bytes lie at a multiple of 16"), (stored, "8 bytes lie"), (wide, "at byte 4 of shared memory")):
        refused(wrong, words)

    def right(n: Numbers) -> None:
        words = smem.array(u32, 8)
        ld.shared__cta.v4.u32(words.at(4))
        ld.shared__cta.v2.u32(words.at(2))
        ld.shared__cta.u32(words.at(1))
        ld.shared__cta.v4.u32(words.at(n))

    trace(right)


def test_operations_that_are_no_reductions() -> None:
    def difference(n: Numbers) -> None:
        warp_reduce(sub.u32, n)

    def word(n: Numbers) -> None:
        block_reduce("add", n)

    for wrong in (difference, word):
        refused(wrong, "an operation whose order does not matter")

    def right(n: Numbers) -> None:
        warp_reduce(lambda x, y: add.u32(x, y), n)

    trace(right)


def test_ranks_are_those_of_the_cluster() -> None:
    def beyond(n: Numbers) -> None:
        mapa.shared__cluster.u32(smem.array(u32, 4), 2)

    refused(beyond, "mapa of CTA 2 in a cluster of 2", cluster=2)


def test_a_named_barrier_gets_a_number_that_no_other_has() -> None:
    def kernel(n: Numbers) -> None:
        given, others, several = NamedBarrier(64, 2), [NamedBarrier(64) for _ in range(2)], NamedBarriers(3, 64)
        numbers = [given.number, *(each.number for each in others), *(several[i].number for i in range(3))]
        assert numbers == [2, 1, 3, 4, 5, 6]
        mov.u32(n)

    trace(kernel)
