"""An address that `mapa` made is one of the cluster, and not of this CTA."""

from __future__ import annotations

import pytest

from ptxkit import Reg, for_range, smem
from ptxkit.ptx import add, ld, mov
from ptxkit.ptx import st as store
from ptxkit.types import u32
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


def test_an_address_of_mapa_is_not_of_this_cta() -> None:
    from ptxkit import cluster_ctarank
    from ptxkit.ptx import atom, mapa

    def load(n: Numbers) -> None:
        ld.shared__cta.u32(mapa.shared__cluster.u32(smem.array(u32, 4), 1))

    def default(n: Numbers) -> None:
        there = mapa.shared__cluster.u32(smem.array(u32, 4), n)
        store.shared.u32(there + 4, n)                                           # wrong

    def atomic(n: Numbers) -> None:
        there = add.u32(mov.u32(mapa.shared__cluster.u32(smem.array(u32, 4), n)), 8)
        atom.shared.add.u32(there, n)                                            # wrong

    def carried(n: Numbers) -> None:
        with for_range(n, there=mapa.shared__cluster.u32(smem.array(u32, 4), n)) as rounds:
            ld.shared.u32(rounds.there)                                          # wrong
            rounds.there = rounds.there + 4

    def bits(n: Numbers) -> None:
        there = mapa.shared__cluster.u32(smem.array(u32, 4), n) ^ 4
        ld.shared.u32(there)                                                     # wrong

    for wrong in (load, default, atomic, carried, bits):
        refused(wrong, "one that mapa made is for `.shared::cluster`", cluster=2)

    def right(n: Numbers) -> None:
        words = smem.array(u32, 4)
        ld.shared__cluster.u32(mapa.shared__cluster.u32(words, 1))
        ld.shared__cta.u32(mapa.shared__cluster.u32(words, mov.u32(cluster_ctarank)))
        there, here = mapa.shared__cluster.u32(words, 1), words.at(0).register()
        ld.shared__cta.u32(here + (there - mapa.shared__cluster.u32(words, 1)))  # a distance is no address
        ld.shared__cta.u32(there & 0xFFFFFF)                                     # without the rank

    trace(right, cluster=2)
