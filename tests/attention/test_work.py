"""The tile scheduler on the CPU device: each tile once, and CTAs as busy as the heuristic counts on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ptxkit import Ptr, Reg, ctaid, if_, kernel, tid
from ptxkit.attention.collective.work import Shape, TileScheduler
from ptxkit.attention.heuristic import _longest, _ordered
from ptxkit.ptx import add, mov, st
from ptxkit.types import u32

BM = 128

pytestmark = pytest.mark.pure


@kernel(target="sm_90a", block=32)
def dealt(out: Ptr[u32], rounds: Reg[u32], shape: Shape, *, causal: bool = True) -> None:
    """The number of each CTA's tiles in the order in which it gets them: batch and head, then the tile of queries."""
    place = mov.u32(mov.u32(ctaid.x) * rounds)
    with TileScheduler(shape, BM, causal).work() as work:
        with if_(mov.u32(tid.x) == 0):
            st.global_.u32(out.at(place), (work.batch * shape.heads + work.head) * shape.m_tiles + work.row // BM)
        add.u32(place, place, 1)


@pytest.mark.parametrize(("heads", "batches", "m_tiles", "section", "turning", "ctas"), [
    (4, 1, 5, 1, 0, 7), (3, 2, 7, 2, 0, 5), (5, 1, 6, 2, 1, 4), (2, 2, 3, 4, 1, 5)])
def test_each_tile_is_dealt_once_and_as_counted_on(heads: int, batches: int, m_tiles: int, section: int, turning: int, ctas: int) -> None:
    tiles = heads * batches * m_tiles
    rounds = -(-tiles // ctas)
    out = np.full(ctas * rounds, tiles, np.uint32)
    shape = {"queries": BM * m_tiles, "keys": BM * m_tiles, "heads": heads, "group": 1, "outer": heads * batches, "m_tiles": m_tiles,
             "section": section, "turning": turning, "tiles": tiles}
    assert dealt.simulate((ctas, 1, 1), out, rounds, shape).verdict == "clean"
    assert Counter(out[out < tiles].tolist()) == Counter(range(tiles))
    lengths = np.append(np.tile(np.arange(1, m_tiles + 1), heads * batches), 0)[out].reshape(ctas, rounds).sum(1)
    assert lengths.max() == _longest(_ordered(np.arange(m_tiles, 0, -1), heads * batches, section), ctas)[turning]


def test_without_a_mask_tiles_come_in_order() -> None:
    out = np.zeros(12, np.uint32)
    shape = {"queries": BM * 4, "keys": 9, "heads": 3, "group": 1, "outer": 3, "m_tiles": 4, "section": 1, "turning": 0, "tiles": 12}
    dealt.simulate((1, 1, 1), out, 12, shape, causal=False)
    assert out.tolist() == list(range(12))
