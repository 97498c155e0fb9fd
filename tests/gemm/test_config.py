"""Laws of the configurations: what the heuristic returns is valid, fits and assembles as it says."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemm.config import BARRIER_BYTES, Config, ConfigError, heuristic, stages_that_fit
from gemm.hgemm import hgemm
from ptxkit.smem import SHARED_LIMIT
from ptxkit.toolchain import disassemble
from ptxkit.types import bf16, f16, f32

extents = st.one_of(st.integers(1, 300), st.integers(1, 20_000), st.sampled_from([128, 256, 512, 4096, 8192, 16384]))
majors = st.sampled_from(["k", "mn"])


@pytest.mark.pure
@settings(deadline=None, max_examples=300)
@given(st.tuples(extents, extents, extents), st.sampled_from([f16, bf16]), st.sampled_from([f16, bf16, f32]), majors, majors,
       st.sampled_from([78, 114, 132]))
def test_the_heuristic_returns_valid_configurations(shape, dtype, out, a_major, b_major, sms):
    m, n, k = shape
    config = heuristic(m, n, k, dtype, out, a_major, b_major, sms=sms)
    assert config.problem() is None
    assert config.smem_bytes <= SHARED_LIMIT
    assert config.smem_bytes + (config.BN + 128) * 128 + BARRIER_BYTES > SHARED_LIMIT or config.STAGES == 8


@pytest.mark.pure
@pytest.mark.parametrize("BN", [64, 128, 256])
@pytest.mark.parametrize("CLUSTER", [1, 2])
def test_the_budget_is_the_plan_of_the_trace(BN, CLUSTER):
    config = Config(bf16, bf16, BN=BN, CLUSTER=CLUSTER)
    traced = hgemm.trace(**config.parameters)
    assert traced.shared.total == config.smem_bytes
    assert traced.cluster == (CLUSTER, 1, 1)
    assert set(traced.copies.records) == {"a", "b", "d"}


@pytest.mark.pure
@pytest.mark.parametrize(("change", "word"), [
    ({"BN": 192}, "BN is 64, 128 or 256"), ({"CLUSTER": 4}, "a cluster has 1 or 2"),
    ({"STAGES": 5}, "4 fit"), ({"STAGES": 1}, "2 to 8 stages"),
    ({"BN": 64, "b_major": "mn"}, "cannot share"), ({"dtype": f32}, "f16 or bf16"), ({"out": None}, "the result is")])
def test_a_configuration_that_cannot_be_is_refused(change, word):
    class NoType:
        __name__ = "s8"

    if change.get("out", f16) is None:
        change = {"out": NoType}
    with pytest.raises(ConfigError, match=word):
        Config(**{"dtype": bf16, "out": bf16, **change})


def test_fewer_stages_never_need_more():
    assert [stages_that_fit(BN) for BN in (256, 128, 64)] == [4, 6, 8]


CHOICES = ([f16, bf16], [f16, bf16, f32], ["k", "mn"], ["k", "mn"], [256, 128, 64], [2, 1])


def pairs(row):
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}


def pairwise():
    """Valid configurations in which every pair of choices that occurs in any of them occurs: a greedy cover."""
    rows = [row for row in itertools.product(*CHOICES) if not (row[3] == "mn" and row[4] // 64 < row[5])]
    missing = set().union(*map(pairs, rows))
    cover = []
    while missing:
        cover.append(max(rows, key=lambda row: len(pairs(row) & missing)))
        missing -= pairs(cover[-1])
    return cover


PAIRS = pairwise()


@pytest.mark.ptxas
@pytest.mark.parametrize(("dtype", "out", "a_major", "b_major", "BN", "CLUSTER"), PAIRS)
def test_configurations_assemble_without_spills_and_with_setmaxnreg(dtype, out, a_major, b_major, BN, CLUSTER):
    config = Config(dtype, out, a_major, b_major, BN, CLUSTER=CLUSTER)
    assembly = hgemm.assemble(**config.parameters)
    used = assembly.resources["hgemm"]
    assert (used.registers, used.spill_stores, used.spill_loads, used.stack) == (168, 0, 0, 0)
    assert assembly.findings == ()
    sass = disassemble(assembly.cubin)
    assert "USETMAXREG.DEALLOC" in sass
    assert "USETMAXREG.TRY_ALLOC" in sass
    assert f"HGMMA.64x{BN}x16.F32" in sass
    assert ("MULTICAST" in sass) == (CLUSTER > 1)
