"""Laws of the configurations: what the builder accepts fits and assembles as it says, what it refuses it refuses by name."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import Config, ConfigError
from ptxkit.gemm.heuristic.dense import WORTH_SPLITTING, candidates, clocks, heuristic
from ptxkit.gemm.kernels.dense import gemm
from ptxkit.gemm.tools.samples import GRID, asked, distinct, name, pairwise, picked, shipped
from ptxkit.runtime.toolchain import disassemble
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import bf16, e4m3, f16, f32, u8

extents = st.one_of(st.integers(1, 300), st.integers(1, 20_000), st.sampled_from([128, 256, 512, 4096, 8192, 16384]))


@pytest.mark.pure
@settings(deadline=None, max_examples=150)
@given(st.tuples(extents, extents, extents), st.sampled_from(["f16", "bf16", "e4m3", "f32"]), st.sampled_from(["f16", "bf16", "f32"]),
       st.sampled_from(["nt", "nn", "tn", "tt"]), st.sampled_from([78, 114, 132]), st.booleans())
@example((193, 1345, 16321), "f32", "f16", "nt", 114, False)    # a depth in more parts would be 0.99 % faster
def test_the_heuristic_returns_valid_configurations(shape, dtype, out, layout, sms, exact):
    m, n, k = (-(-extent // 16) * 16 for extent in shape)
    product = asked(m, n, k, dtype, out=out, layout=layout if dtype in ("f16", "bf16") else "nt",
                    fast_accum=False if exact and dtype == "e4m3" else None)
    config = heuristic(product, sms)
    assert config.smem_bytes <= SHARED_LIMIT
    assert config.accumulator_registers < config.consumer_registers
    assert max(1, -(-k // config.BK)) >= config.SPLITS
    assert clocks(product, config, sms) <= min(clocks(product, other, sms) for other in candidates(product, sms)) / WORTH_SPLITTING


@pytest.mark.pure
@pytest.mark.parametrize("config", pairwise(), ids=name)
def test_the_budget_is_the_plan_of_the_trace(config: Config):
    traced = gemm.trace(**config.parameters)
    assert traced.shared.total == config.smem_bytes
    assert traced.cluster == (config.cluster, 1, 1)
    assert traced.block == (config.threads, 1, 1)
    assert set(traced.copies.records) == {"a", "b", *(["d"] if config.STORE == "staged" else [])}
    deeper = {"STAGES": config.stages_that_fit + 1}
    if config.stages_that_fit < 16:
        with pytest.raises(ConfigError, match="fit"):
            config.with_(**deeper, CONSUMERS=config.CONSUMERS, STORE=config.STORE, BUFFERS=config.BUFFERS)


@pytest.mark.ptxas
@pytest.mark.parametrize("config", pairwise()[::8], ids=name)
def test_configurations_assemble_without_spills_and_with_setmaxnreg(config: Config):
    assembles(config)


@pytest.mark.ptxas
@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_all_configurations_assemble(request: pytest.FixtureRequest):
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")
    for config in distinct((*pairwise(), *shipped(), *picked(grid=GRID))):
        assembles(config)


def assembles(config: Config) -> None:
    assembly = gemm.assemble(**config.parameters)
    used = assembly.resources["gemm"]
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
    assert assembly.findings == ()
    assert used.registers == {1: used.registers, 2: 168, 3: 128}[config.CONSUMERS]
    sass = disassemble(assembly.cubin)
    assert ("USETMAXREG.DEALLOC" in sass) == ("USETMAXREG.TRY_ALLOC" in sass) == (config.CONSUMERS > 1)
    assert f".64x{config.BN // 2 if config.by_halves else config.BN}x" in sass
    assert ("MULTICAST" in sass) == (config.CLUSTER_M * config.CLUSTER_N > 1)


@pytest.mark.pure
@pytest.mark.parametrize(("change", "word"), [
    ({"BN": 260}, "BN is a multiple of 8 up to 256, not 260: take 256"), ({"BN": 100}, "take 96"),
    ({"BM": 96}, "BM is 64, 128, 192 or 256"),
    ({"CLUSTER_M": 3}, "CLUSTER_M is 1, 2 or 4"), ({"CLUSTER_M": 4, "CLUSTER_N": 4}, "at most 8 CTAs, not 16"),
    ({"STAGES": 5}, "4 fit"), ({"STAGES": 1}, "2 to 16 stages"), ({"BK": 40}, "BK is a multiple of 64"),
    ({"BK": 512}, "take a smaller tile"),
    ({"BN": 64, "b_major": "mn", "CLUSTER_M": 2}, "cannot share B tiles of 64 lines in parts of 64: take MULTICAST"),
    ({"BN": 72, "b_major": "mn"}, "BN is a multiple of 64"), ({"a": u8}, "u8 times u8 is not multiplied"), ({"out": u8}, "the result is"),
    ({"a": e4m3, "a_major": "mn"}, "K-major, since wgmma transposes 16-bit types only"), ({"accumulator": f16}, "f16 of f16 operands"),
    ({"BM": 256, "PINGPONG": True}, "take turns"), ({"CONSUMERS": 3}, "3 consumer warpgroups cannot share 128 rows"),
    ({"BM": 192, "BN": 256}, "take BN=192"), ({"BM": 256, "BN": 256}, "registers of a consumer thread"),
    ({"SPLITS": 20}, "1 to 16 ways"), ({"SPLITS": 2, "CLUSTER_M": 2}, "take CLUSTER_M=1"),
    ({"SPLITS": 2, "REDUCE": "cluster", "CLUSTER_M": 2}, "REDUCE=\"workspace\""), ({"SPLITS": 2, "STORE": "staged"}, "STORE=\"direct\""),
    ({"TICKET": True, "CLUSTER_N": 2}, "take CLUSTER_M=1"), ({"TICKET": True, "SPLITS": 2}, "and SPLITS=1"),
    ({"STREAM_K": True, "SPLITS": 2}, "shares the depth out by itself"), ({"STREAM_K": True, "TICKET": True}, "TICKET=False"),
    ({"STREAM_K": True, "a": f16, "accumulator": f16}, "adds f32 sums"),
    ({"MULTICAST": "leader"}, "take CLUSTER_M=2"), ({"MULTICAST": "both", "CLUSTER_M": 2}, "MULTICAST='both'"),
    ({"A_REGISTERS": True, "a_major": "mn"}, "where it is K-major"), ({"A_REGISTERS": True, "a": e4m3}, "of 16-bit elements"),
    ({"A_REGISTERS": True, "BM": 256, "BN": 128}, "with more than 160 wgmma is serialised"),
    ({"A_ROWS": 8}, "A_ROWS=8"), ({"RASTER": "spiral"}, "along_m, along_n, hilbert"),
    ({"GROUP": 0}, "groups of 1 to"), ({"FUSION": Fusion(activation="tanh")}, "relu, gelu, silu or a function"),
    ({"BUFFERS": 1, "PINGPONG": True}, "2 staging buffers or more"), ({"BUFFERS": -1}, "or 1 where"),
    ({"BLOCK_SCALES": True}, "block scales"), ({"STAGGER": True}, "with PROMOTE"),
    ({"PROMOTE": True, "STAGES": 3}, "take 4, or BN=128"), ({"BN": 56, "STORE": "staged"}, "whole 32-byte spans")])
def test_a_configuration_that_cannot_be_is_refused(change, word):
    with pytest.raises(ConfigError, match=word):
        Config(**{"a": bf16, "out": bf16, **change})


@pytest.mark.pure
def test_what_is_derived():
    assert [Config(bf16, bf16, BN=BN).STAGES for BN in (256, 128, 64)] == [4, 6, 8]
    assert [Config(bf16, bf16, BM=BM, BN=64).CONSUMERS for BM in (64, 128, 192, 256)] == [1, 2, 3, 2]
    assert [Config(t, bf16, BN=64).BK for t in (bf16, e4m3, f32)] == [64, 128, 32]
    assert (Config(bf16, bf16, BN=56).STORE, Config(bf16, bf16).STORE, Config(bf16, e4m3).STORE) == ("direct", "staged", "direct")
    described = Config(bf16, bf16).describe()
    assert "stage               49,152 bytes" in described
    assert "128 of 232 registers" in described
