"""Laws of the configurations: what is accepted fits and assembles as it says, what is refused is refused in a sentence with a way out."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import logging
import random
import re
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptxkit.cards import H100, H200
from ptxkit.dsl.values import FieldError, from_json, to_json
from ptxkit.gemm.collective.epilogue_ops import PLAIN_SUM, Fusion
from ptxkit.gemm.config import budget
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.grouped import GroupedConfig
from ptxkit.gemm.config.grouped_k import GroupedKConfig
from ptxkit.gemm.config.parts import (
    BlockScaled,
    ClusterShape,
    ConfigError,
    Cooperative,
    CopiedLoads,
    Direct,
    Hilbert,
    Loads,
    Pingpong,
    Promoted,
    SplitK,
    Staged,
    Static,
    StreamK,
    Swizzle,
    ThreadScaled,
    Tile,
)
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.dense import NOT_MEASURED, candidates, clocks, heuristic
from ptxkit.gemm.heuristic.tuned import tuned
from ptxkit.gemm.heuristic.waves import WORTH_SPLITTING
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.gemm.tools.problems import asked
from ptxkit.gemm.tools.samples import GRID, distinct, name, pairwise, picked, shipped
from ptxkit.runtime.toolchain import disassemble
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import bf16, e4m3, e5m2, f16, f32, u8

extents = st.one_of(st.integers(1, 300), st.integers(1, 20_000), st.sampled_from([128, 256, 512, 4096, 8192, 16384]))


@pytest.mark.pure
@settings(deadline=None, max_examples=80)
@given(st.tuples(extents, extents, extents), st.sampled_from(["f16", "bf16", "e4m3", "f32"]), st.sampled_from(["f16", "bf16", "f32"]),
       st.sampled_from(["nt", "nn", "tn", "tt"]), st.sampled_from([H200, H100, H200.with_sms(78), H200.with_sms(114)]), st.booleans())
@example((193, 1345, 16321), "f32", "f16", "nt", H200.with_sms(114), False)     # a K in more parts would be 0.99 % faster
def test_the_heuristic_returns_legal_configurations(shape, dtype, out, layout, card, exact):
    m, n, k = (-(-extent // 16) * 16 for extent in shape)
    product = asked(m, n, k, dtype, out=out, layout=layout if dtype in ("f16", "bf16") else "nt",
                    fast_accum=False if exact and dtype == "e4m3" else None)
    config = heuristic(product, card)
    assert config.smem_bytes <= SHARED_LIMIT
    assert budget.accumulator_registers(config.tile, config.schedule) < budget.mma_registers(config.schedule)
    assert max(1, -(-k // config.tile.BK)) >= config.splits
    least = min(clocks(product, other, card) for other in itertools.islice(candidates(product, card), 40))
    assert clocks(product, config, card) <= least * NOT_MEASURED / WORTH_SPLITTING


@pytest.mark.thinned(6)
@pytest.mark.pure
@pytest.mark.parametrize("config", pairwise(), ids=name)
def test_the_budget_is_the_plan_of_the_trace(config: DenseConfig):
    traced = kernel_of(config).trace(**config.parameters)
    assert traced.shared.total == config.smem_bytes
    assert traced.cluster == (config.cluster, 1, 1)
    assert traced.block == (config.threads, 1, 1)
    assert set(traced.copies.records) == {"a", "b", *(["d"] if config.staged else [])}
    if config.stages_that_fit < 16:
        with pytest.raises(ConfigError, match="fit"):
            replace(config, stages=config.stages_that_fit + 1)


@pytest.mark.thinned(6)
@pytest.mark.ptxas
@pytest.mark.parametrize("config", pairwise()[::8], ids=name)
def test_configurations_assemble_without_spills_and_with_setmaxnreg(config: DenseConfig):
    assembles(config)


@pytest.mark.ptxas
@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_all_configurations_assemble(request: pytest.FixtureRequest):
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")
    for config in distinct((*pairwise(), *shipped(), *picked(grid=GRID))):
        assembles(config)


def assembles(config: DenseConfig) -> None:
    assembly = kernel_of(config).assemble(**config.parameters)
    (used,) = assembly.resources.values()
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
    assert assembly.findings == ()
    assert used.registers == {1: used.registers, 2: 168, 3: 128}[config.warpgroups]
    sass = disassemble(assembly.cubin)
    assert ("USETMAXREG.DEALLOC" in sass) == ("USETMAXREG.TRY_ALLOC" in sass) == (config.warpgroups > 1)
    columns = config.tile.BN // 2 if budget.promoted_by_halves(config.tile, config.schedule) else config.tile.BN
    assert f".64x{columns}x" in sass
    assert ("MULTICAST" in sass) == (config.multicast.size > 1)


# What is refused.


REFUSED: tuple[tuple[Callable[[], Any], str], ...] = (
    (lambda: Tile(128, 260), "BN is a multiple of 8 up to 256 or of 16 up to 384, not 260: take 256"),
    (lambda: Tile(128, 100), "take 96"), (lambda: Tile(128, 400), "not 400: take 384"),
    (lambda: Tile(96), "BM is 64, 128, 192 or 256"), (lambda: DenseConfig(tile=Tile(BK=40)), "BK is a multiple of 64"),
    (lambda: DenseConfig(tile=Tile(BK=512)), "take a smaller tile"),
    (lambda: DenseConfig(Operands(b_major="mn"), Tile(128, 72), loads=CopiedLoads()), "BN is a multiple of 64 for an operand that threads"),
    (lambda: DenseConfig(stages=5), "4 fit"), (lambda: DenseConfig(stages=1), "2 to 16 stages"),
    (lambda: ClusterShape(3, 1), "m is 1, 2 or 4"), (lambda: ClusterShape(4, 4), "at most 8 CTAs, not 4 x 4"),  # type: ignore[arg-type]
    (lambda: DenseConfig(tile=Tile(128, 304), scheduler=StreamK()), "tiles of 304 columns need TensorCoreSums(), tensor copies and Static"),
    (lambda: DenseConfig(tile=Tile(128, 128), schedule=Cooperative(share="columns"), scheduler=SplitK(2)), "share columns need"),
    (lambda: DenseConfig(tile=Tile(64, 272), loads=CopiedLoads(), store=Direct()), "Static() or Dynamic(): take BN up to 256"),
    (lambda: DenseConfig(Operands(e4m3, e4m3), Tile(128, 128), schedule=Cooperative(sums=BlockScaled(), share="columns")), "take share="),
    (lambda: DenseConfig(tile=Tile(192, 304)), "the sums of 304 columns take more registers than a thread of 512 has at entry"),
    (lambda: DenseConfig(tile=Tile(192, 200), schedule=Cooperative(share="columns")), "share 200 columns: take a multiple of 16 for such"),
    (lambda: DenseConfig(Operands(b_major="mn"), Tile(192, 192), schedule=Cooperative(share="columns")), "take a multiple of 128"),
    (lambda: Cooperative(3, share="columns"), "two warpgroups share columns, not 3: take warpgroups=2"),
    (lambda: GroupedConfig(tile=Tile(128, 304)), "tiles of groups have up to 256 columns, not 304"),
    (lambda: GroupedKConfig(schedule=Cooperative(share="columns")), "share the rows of a tile of groups: take share=\"rows\""),
    (lambda: Operands(u8, u8), "u8 times u8 is not multiplied"), (lambda: Operands(out=u8), "the result is"),
    (lambda: Operands(e4m3, e4m3, a_major="mn"), "K-major, since wgmma transposes 16-bit types only"),
    (lambda: Operands(accumulator=f16), "f16 of f16 operands"),
    (lambda: DenseConfig(tile=Tile(256, 64), schedule=Pingpong()), "a tile of 64 or 128 rows each"),
    (lambda: DenseConfig(schedule=Cooperative(3)), "3 mma warpgroups cannot share 128 rows in m64 blocks: take 2"),
    (lambda: Cooperative(4), "warpgroups is 0, 1, 2 or 3"),  # type: ignore[arg-type]
    (lambda: DenseConfig(tile=Tile(192, 256)), "take BN=192"), (lambda: DenseConfig(tile=Tile(256, 256)), "registers of an mma thread"),
    (lambda: SplitK(20), "2 to 16 ways through the workspace"), (lambda: SplitK(9, "cluster"), "2 to 8 ways through the cluster"),
    (lambda: SplitK(1), "2 to 16 ways"),
    (lambda: DenseConfig(scheduler=SplitK(2), store=Staged()), "take Direct"),
    (lambda: DenseConfig(tile=Tile(128, 64), schedule=Pingpong(), scheduler=SplitK(2)), "take Cooperative"),
    (lambda: DenseConfig(Operands(f16, f16, f16, f16), scheduler=StreamK()), "adds up f32 sums"),
    (lambda: DenseConfig(scheduler=StreamK(), loads=Loads(l2_prefetch_stages=2)), "take l2_prefetch_stages=0"),
    (lambda: DenseConfig(scheduler=Static(Hilbert()), loads=Loads(l2_prefetch_stages=2)), "take l2_prefetch_stages=0"),
    (lambda: DenseConfig(loads=Loads(a_rows=8)), "a_rows=8"), (lambda: Loads(a_rows=12), "8, 16, ... or 56 of them"),
    (lambda: Loads(l2_fetch=512), "64, 128 or 256"), (lambda: Loads(l2_prefetch_stages=17), "0 to 16 stages"),  # type: ignore[arg-type]
    (lambda: Swizzle("spiral"), "raster is along_m or along_n"), (lambda: Swizzle(size=0), "1 to 65,535 rows"),  # type: ignore[arg-type]
    (lambda: DenseConfig(fusion=Fusion(activation="tanh")), "relu, gelu, silu or a function"),
    (lambda: DenseConfig(tile=Tile(128, 64), schedule=Pingpong(), store=Staged(1)), "2 staging buffers or more"),
    (lambda: DenseConfig(store=Staged(-1)), "or 1 where"), (lambda: DenseConfig(tile=Tile(128, 56), store=Staged()), "whole 32-byte spans"),
    (lambda: DenseConfig(schedule=Cooperative(sums=BlockScaled())), "block scales need fp8 operands"),
    (lambda: DenseConfig(Operands(e4m3, e4m3), schedule=Cooperative(sums=ThreadScaled())), "take BlockScaled"),
    (lambda: DenseConfig(tile=Tile(64, 64), schedule=Cooperative(sums=Promoted("stagger"))), "take two warpgroups"),
    (lambda: DenseConfig(tile=Tile(128, 64, 128), schedule=Cooperative(sums=Promoted())), "take BK=0"),
    (lambda: DenseConfig(stages=3, schedule=Cooperative(sums=Promoted())), "take 4, or BN=128"),
    (lambda: DenseConfig(Operands(), Tile(128, 128), 2, Cooperative(1, Promoted()), StreamK()), "spills in a ring of 2 stages: take 4"),
    (lambda: DenseConfig(swap_ab=True, store=Direct()), "are stored transposed, by Staged(); take swap_ab=False"),
    (lambda: DenseConfig(Operands(out=e4m3), swap_ab=True), "16- or 32-bit results are stored transposed"),
    (lambda: DenseConfig(swap_ab=True, tile=Tile(64, 64), scheduler=SplitK(2), store=Staged()), "stored transposed, by Direct()"),
    (lambda: SplitK(2, "cluster", cluster=ClusterShape(2, 1)), "share K or operands, not both: take reduce=\"workspace\""),
    (lambda: DenseConfig(Operands(e4m3, e4m3), Tile(128, 128), schedule=Cooperative(sums=Promoted()), swap_ab=True), "take TensorCoreSums"),
    (lambda: DenseConfig(Operands(e4m3, e4m3), Tile(128, 128), schedule=Cooperative(sums=BlockScaled()), swap_ab=True), "are not promoted"),
    (lambda: DenseConfig(swap_ab=True, fusion=Fusion(c=bf16)), "no C and no residual is added"),
    (lambda: DenseConfig(swap_ab=True, fusion=Fusion(residual=f16)), "no C and no residual is added; take swap_ab=False"),
    (lambda: DenseConfig(swap_ab=True, tile=Tile(64, 64), loads=Loads(a_rows=8)), "by tensor copies, without a_rows"),
    (lambda: DenseConfig(swap_ab=True, loads=CopiedLoads()), "are loaded by tensor copies"),
    (lambda: DenseConfig(swap_ab=True, loads=Loads(b_evict_first=True)), "without a_rows, b_evict_first"))


@pytest.mark.pure
@pytest.mark.parametrize(("made", "word"), REFUSED, ids=[word for _, word in REFUSED])
def test_a_configuration_that_cannot_be_is_refused(made: Callable[[], Any], word: str):
    with pytest.raises(ConfigError, match=re.escape(word)) as caught:
        made()
    one_sentence(str(caught.value))


def one_sentence(text: str) -> None:
    """It says what to take instead, what the field can be, or how much fits."""
    assert "\n" not in text
    assert not re.search(r"\. |\.$", text.replace("...", "")), text
    assert re.search(r"\btake\b|\bis (one of |a multiple of )?.+, not |, not |\bfit\b|: pass contiguous K$|; 0 loads all$", text), text


# What is drawn: every field from its annotation, so that a new one is drawn too.


NUMBERS: dict[str, tuple[int, ...]] = {
    "BM": (64, 128, 192, 256), "BN": (8, 56, 120, 304, *range(32, 257, 32)), "BK": (0, 0, 0, 64, 128), "stages": (0, 0, 2, 3, 4, 6),
    "size": (1, 3, 8, 16), "splits": (2, 3, 4, 8), "buffers": (0, 2, 4), "a_rows": (0, 0, 0, 0, 0, 8, 24),
    "l2_prefetch_stages": (0, 0, 2, 4), "ahead": (2, 3)}
"""What whole numbers are drawn from: 0, where it means that the number is derived or the thing is not there, more often than others."""
FUSIONS = (PLAIN_SUM, Fusion(bias=f32, activation="relu"), Fusion(alpha=True, c=bf16, residual=f16))


def drawn(rng: random.Random, hint: Any, of: str = "") -> Any:
    """A value of the annotated type, each of its fields drawn by itself."""
    if hint is Fusion:
        return rng.choice(FUSIONS)
    if get_origin(hint) in (Union, types.UnionType):
        return drawn(rng, rng.choice(get_args(hint)), of)
    if is_dataclass(hint) and isinstance(hint, type):
        return hint(**{field: drawn(rng, each, field) for field, each in hints(hint).items()})
    if get_origin(hint) is Literal:
        return rng.choice(get_args(hint))
    if get_origin(hint) is type:
        return rng.choice((f32, f16) if of == "accumulator" else (f16, bf16, f32, e4m3, e5m2))
    if hint is bool:
        return rng.random() < (0.1 if of == "swap_ab" else 0.5)
    return None if hint is type(None) else rng.choice(NUMBERS[of])


@functools.cache
def hints(record: type) -> dict[str, Any]:
    found = get_type_hints(record)
    return {field.name: found[field.name] for field in fields(record)}


@pytest.mark.pure
@settings(deadline=None, max_examples=400)
@given(st.randoms(use_true_random=False))
def test_what_is_drawn_fits_and_has_json_or_is_refused_in_a_sentence(rng: random.Random):
    try:
        config = drawn(rng, DenseConfig)
    except ConfigError as error:
        one_sentence(str(error))
        return
    holds(config)


def holds(config: DenseConfig) -> None:
    assert 2 <= config.stages <= config.stages_that_fit
    assert config.smem_bytes <= SHARED_LIMIT
    assert from_json(DenseConfig, json.loads(json.dumps(to_json(config)))) == config
    assert replace(config) == config
    said = {field: repr(getattr(config, field)) for field in ("tile", "stages", "schedule", "scheduler", "store", "loads")}
    assert config.with_(said) == config


@pytest.mark.pure
def test_a_fair_share_of_what_is_drawn_is_legal():
    """4.0 % of them are. Of the flat configuration that this one replaced, drawn in the same way, 0.09 % were."""
    rng = random.Random(0)
    legal, operands = 0, [a for a in (draw_operands(rng) for _ in range(25_000)) if a is not None]
    for each in operands:
        try:
            rest = {field: drawn(rng, hint, field) for field, hint in hints(DenseConfig).items() if field != "operands"}
            config = DenseConfig(each, **rest)
        except ConfigError:
            continue
        legal += 1
        holds(config)
    assert legal > 0.03 * len(operands), legal


def draw_operands(rng: random.Random) -> Operands | None:
    try:
        return drawn(rng, Operands)
    except ConfigError:
        return None


# Paths, as `--set` has them.


@pytest.mark.pure
@pytest.mark.parametrize(("changes", "wanted"), [
    ({"tile.BM": "64"}, DenseConfig(tile=Tile(64))),
    ({"schedule": "Pingpong", "tile.BN": "64"}, DenseConfig(tile=Tile(128, 64), schedule=Pingpong())),
    ({"schedule.warpgroups": "1", "tile.BN": "64"}, DenseConfig(tile=Tile(128, 64), schedule=Cooperative(1))),
    ({"schedule.sums": "Promoted(how='stagger')"}, DenseConfig(schedule=Cooperative(sums=Promoted("stagger")))),
    ({"scheduler": "SplitK(splits=4)"}, DenseConfig(scheduler=SplitK(4))),
    ({"scheduler.cluster.m": "2"}, DenseConfig(scheduler=Static(cluster=ClusterShape(2, 1)))),
    ({"scheduler": "StreamK(cluster=ClusterShape(m=2))"}, DenseConfig(scheduler=StreamK(cluster=ClusterShape(2, 1)))),
    ({"scheduler.order": "Hilbert"}, DenseConfig(scheduler=Static(Hilbert()))),
    ({"scheduler.order.serpentine": "true"}, DenseConfig(scheduler=Static(Swizzle(serpentine=True)))),
    ({"store": "Direct", "stages": "3"}, DenseConfig(stages=3, store=Direct())),
    ({"store": "None"}, DenseConfig()), ({"loads.b_evict_first": "True"}, DenseConfig(loads=Loads(b_evict_first=True))),
    ({"operands.out": "f32"}, DenseConfig(Operands(out=f32))), ({"swap_ab": "true"}, DenseConfig(swap_ab=True))], ids=str)
def test_fields_are_set_by_path(changes: dict[str, str], wanted: DenseConfig):
    assert DenseConfig().with_(changes) == wanted
    assert DenseConfig(tile=Tile(256, 128)).with_({"tile": repr(Tile()), **changes}) == wanted


@pytest.mark.pure
@pytest.mark.parametrize(("changes", "sentence"), [
    ({"tile.BQ": "1"}, "Tile has no field 'BQ': it has BM, BN, BK"), ({"tiles.BM": "64"}, "DenseConfig has no field 'tiles'"),
    ({"tile.BM": "many"}, "BM is a whole number, not many"), ({"schedule": "Turns"}, "schedule is Cooperative or Pingpong, not Turns"),
    ({"schedule": "Pingpong", "schedule.warpgroups": "1"}, "Pingpong has no field 'warpgroups'"),
    ({"scheduler": "SplitK(splits=1)"}, "K is split 2 to 16 ways"),
    ({"scheduler": "Dynamic", "scheduler.cluster.m": "2"}, "Dynamic has no field"),
    ({"loads.l2_fetch": "96"}, "l2_fetch is 64, 128, 256, not 96")])
def test_a_path_that_cannot_be_set_is_a_sentence(changes: dict[str, str], sentence: str):
    with pytest.raises(FieldError, match=sentence) as caught:
        DenseConfig().with_(changes)
    assert "\n" not in str(caught.value)


# Tables of an earlier version.


@pytest.mark.pure
def test_a_table_of_the_old_schema_warns_once_and_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              caplog: pytest.LogCaptureFixture):
    device = "NVIDIA Card 9"
    card = dataclasses.replace(H200, name=device)
    monkeypatch.setattr(tables, "settings", lambda: types.SimpleNamespace(cache_dir=tmp_path, table=None, tune=False))
    path = tables.user_path(card)
    assert path is not None
    path.parent.mkdir()
    entry = {"config": {"BM": 64, "BN": 48, "SPLITS": 8, "REDUCE": "cluster"}, "measured": {}, "of": 1, "wrong": 0}
    path.write_text(json.dumps({"schema": 1, "device": device, "entries": {"bf16/bf16/nt": {"1x576x7168": entry}}}))
    tables.forget()
    try:
        with caplog.at_level(logging.WARNING, "ptxkit"):
            assert tuned(asked(1, 576, 7168), card) is None
            assert tuned(asked(1, 576, 7168), card) is None
            assert tuned(asked(64, 4096, 7168), card) is None
    finally:
        tables.forget()
    (said,) = caplog.messages
    assert "schema 1" in said
    assert "`ptxkit gemm tune`" in said
    assert str(path) in said
    assert "BM" in path.read_text()             # the file is left as it is


@pytest.mark.pure
def test_what_is_derived():
    assert [DenseConfig(tile=Tile(128, BN)).stages for BN in (256, 128, 64)] == [4, 6, 8]
    assert [DenseConfig(tile=Tile(BM, 64)).warpgroups for BM in (64, 128, 192, 256)] == [1, 2, 3, 2]
    assert [DenseConfig(Operands(t, t, bf16), Tile(128, 64)).tile.BK for t in (bf16, e4m3, f32)] == [64, 128, 32]
    stores = DenseConfig(tile=Tile(128, 56)).store, DenseConfig().store, DenseConfig(Operands(out=e4m3)).store
    assert stores == (Direct(), Staged(2), Direct())
    described = DenseConfig().describe()
    assert "stage               49,152 bytes" in described
    assert "128 of 232 registers" in described
