"""Batch invariance: the bits of a row depend on K, the types and the majors, not on M, N, the batch, the groups or the place in them.

The CPU device is no model of how a tensor core adds up within an instruction: it adds up a stage at once. So the operands here are such
that every stage's sum is exact in f32 in any order, and that the sums of several stages are not: their exponents differ. Bits then tell
where K was cut and in which order the stages were added. The order within an instruction is measured on a GPU, on random numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random

import ml_dtypes
import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.cards import H100, H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.grouped import GroupedConfig, GroupOperands, SwapAB
from ptxkit.gemm.config.invariant import varies
from ptxkit.gemm.config.parts import SplitK, StreamK, Tile
from ptxkit.gemm.heuristic import corrections
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.dense import candidates, heuristic
from ptxkit.gemm.heuristic.grouped import heuristic as group_heuristic
from ptxkit.gemm.heuristic.ptr_array import heuristic as pointers_heuristic
from ptxkit.gemm.heuristic.table import Table, file_name
from ptxkit.gemm.heuristic.tuned import kind, tuned
from ptxkit.gemm.launch.dense import card_of, check_config
from ptxkit.gemm.launch.grouped import check_config as check_groups
from ptxkit.gemm.launch.on_cpu import view_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.launch.simulate_grouped import simulate as group_simulate
from ptxkit.gemm.problem.dense import Arrays, Options, Problem
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.tools import invariance
from ptxkit.gemm.tools.bench import command as bench_command
from ptxkit.gemm.tools.bench import operands
from ptxkit.gemm.tools.bench.baselines import NO_PEERS
from ptxkit.gemm.tools.bench.shapes import drawn
from ptxkit.gemm.tools.problems import asked
from ptxkit.measure.figures import row_ratios
from ptxkit.types import bf16, e4m3, f32

from .groups import view

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn}
EXPONENTS = {"bf16": 10, "f16": 7, "f32": 10, "e4m3": 5}
CARD = H200.with_sms(3)
OUT = Operands(out=f32)
TYPES_OF = {"bf16": bf16, "e4m3": e4m3}


def matrix(source: np.random.Generator, rows: int, k: int, dtype: str) -> np.ndarray:
    """Small integers times a power of two that changes from stage to stage and from row to row."""
    stage = 128 // np.dtype(TYPES[dtype]).itemsize
    most = EXPONENTS[dtype]
    powers = np.exp2(source.integers(-most, most + 1, (rows, -(-k // stage)))).repeat(stage, 1)[:, :k]
    return (source.integers(-3, 4, (rows, k)) * powers).astype(TYPES[dtype])


def laid_out(array: np.ndarray, k_is_contiguous: bool) -> np.ndarray:
    """[..., rows, K] with either axis contiguous."""
    return array if k_is_contiguous else np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


class Rows:
    """Some rows of A and some columns of B of one K, type and layout, and their product wherever they are put."""

    def __init__(self, dtype: str, layout: str, k: int, seed: int, block: bool = False) -> None:
        self.dtype, self.layout, self.k, self.source, self.block = dtype, layout, k, np.random.default_rng(seed), block
        self.a, self.b = matrix(self.source, 5, k, dtype), matrix(self.source, 8, k, dtype)
        self.a_scale, self.b_scale = (self.source.random((lines, -(-k // 128)), np.float32) for lines in (5, 1))

    def placed(self, m: int, n: int, batch: int | None, at: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A [M, K], B [K, N] and D with the rows at `at[1]`, the columns at `at[2]` and all of it in product `at[0]`."""
        outer = (batch,) if batch else ()
        a, b = (matrix(self.source, (batch or 1) * extent, self.k, self.dtype).reshape(*outer, extent, self.k) for extent in (m, n))
        place = (at[0],) if batch else ()
        a[(*place, slice(at[1], at[1] + len(self.a)))] = self.a
        b[(*place, slice(at[2], at[2] + len(self.b)))] = self.b
        return (laid_out(a, self.layout[0] == "n"), laid_out(b, self.layout[1] == "t").swapaxes(-1, -2),
                np.full((*outer, m, n), np.nan, np.float32))

    def scales(self, m: int, n: int, at: tuple[int, int, int]) -> dict[str, np.ndarray]:
        """Block scales of A and B, with those of the rows and columns in their places, contiguous along M or along K."""
        if not self.block:
            return {}
        a, b = (self.source.random((lines, -(-self.k // 128)), np.float32) for lines in (m, -(-n // 128)))
        a[at[1]:at[1] + 5], b[at[2] // 128] = self.a_scale, self.b_scale
        return {"a_scale": laid_out(a, bool(self.source.integers(2))), "b_scale": laid_out(b, bool(self.source.integers(2))).T}

    def bits(self, m: int, n: int, batch: int | None, at: tuple[int, int, int], config: DenseConfig | None = None,
             picked: random.Random | None = None, **more) -> np.ndarray:
        """The bits of their product in a problem of these extents, by a configuration (a random candidate if `picked`)."""
        a, b, d = self.placed(m, n, batch, at)
        scales = self.scales(m, n, at)
        if picked is not None:
            views = {name: view_of("x", array, None) for name, array in {"a": a, "b": b, "out": d, **scales}.items()}
            problem = Problem(Arrays(**views), Options(batch_invariant=True, **more))
            config = picked.choice([each for each in candidates(problem, CARD) if each.tile.BM * each.tile.BN <= 192 * 128])
        report = simulate(a, b, d, config=config, card=CARD, batch_invariant=config is None or picked is not None, check=False,
                          **scales, **more)
        assert report.verdict != "error", report
        whole = d[at[0]] if batch else d
        return whole[at[1]:at[1] + len(self.a), at[2]:at[2] + len(self.b)].copy().view(np.uint32)


def place(source: random.Random, batched: bool) -> tuple[int, int, int | None, tuple[int, int, int]]:
    """Random extents, and a place in them."""
    m, n = source.choice((8, 37, 40, 64, 104, 136, 200)), source.choice((32, 51, 64, 96, 136, 208))
    batch = source.choice((None, None, 1, 3)) if batched else None
    return m, n, batch, (source.randrange(batch or 1), source.randrange(m - 5), 8 * source.randrange(n // 8))


@pytest.mark.thinned(12)
@pytest.mark.parametrize(("dtype", "layout", "more"), [
    ("bf16", "nt", {}), ("f16", "nn", {}), ("bf16", "tt", {}), ("f32", "nt", {}), ("e4m3", "nt", {}), ("e4m3", "nt", {"fast_accum": False}),
    ("e4m3", "nt", {"block": True}), ("bf16", "nt", {"k": 371}), ("e4m3", "nt", {"k": 701}),
])
def test_a_row_has_the_same_bits_in_every_problem(dtype, layout, more):
    """The heuristic's choice and any candidate, for other M, N and batches and at other places, of any alignment."""
    source = random.Random(f"{dtype} {layout} {more}")
    more = dict(more)
    block, k = more.pop("block", False), more.pop("k", 6 * (128 // np.dtype(TYPES[dtype]).itemsize) - 16)
    rows = Rows(dtype, layout, k, 7, block)
    bits = rows.bits(*place(source, not block), **more)
    assert len(np.unique(bits)) > 30
    for turn in range(5):
        assert (rows.bits(*place(source, not block), picked=source if turn % 2 else None, **more) == bits).all()


@pytest.mark.parametrize("config", [
    DenseConfig(OUT, Tile(64, 64), scheduler=SplitK(2)), DenseConfig(OUT, Tile(64, 64), scheduler=SplitK(3, "cluster")),
    DenseConfig(OUT, Tile(64, 64), scheduler=StreamK()), DenseConfig(OUT, Tile(64, 64, 128))], ids=str)
def test_what_varies_is_seen_in_the_bits_and_refused(config):
    """The law can fail: a K that is cut elsewhere has other bits. `check_config` refuses it."""
    rows, extents = Rows("bf16", "nt", 16 * 64, 3), (64, 128, None, (0, 3, 40))
    bits = rows.bits(*extents)
    assert (rows.bits(*extents, config=config) != bits).any()
    problem = asked(64, 128, 1024, out="f32", batch_invariant=True)
    assert varies(config)
    with pytest.raises(LaunchError, match="not batch-invariant"):
        check_config(config, problem)
    check_config(config, asked(64, 128, 1024, out="f32"))


@pytest.mark.parametrize("card", [H100, H200], ids=lambda card: card.name)
def test_every_choice_and_candidate_of_a_batch_invariant_product_is_one(card):
    for problem in (*drawn(1, 20), *drawn(2, 10, dtypes=["e4m3"]), *drawn(3, 10, batched=True)):
        shape = dataclasses.replace(problem, m=min(problem.m, 64)) if problem.n % 3 else problem
        more = {"out": "bf16"} if shape.dtype == "e4m3" else {}
        wanted = asked(shape.m, shape.n, shape.k, shape.dtype, layout=shape.layout, batches=shape.batch, batch_invariant=True, **more)
        for config in itertools.islice(candidates(wanted, card), 40):
            check_config(config, wanted)
        check_config(heuristic(wanted, card), wanted)


def test_where_no_split_pays_the_choice_is_that_of_other_products(monkeypatch):
    """On a card without measurements of few rows, where the same model chooses for both."""
    monkeypatch.setattr(corrections, "of_card", lambda card: corrections.NONE)
    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 2048), (64, 24576, 1536)):
        assert heuristic(asked(m, n, k, batch_invariant=True), H200) == heuristic(asked(m, n, k), H200)
    few = heuristic(asked(16, 2112, 7168, batch_invariant=True), H200)
    assert few.splits == 1
    assert few.tile.BN < 32                                             # narrow tiles put the SMs to work that a split would


def test_a_tuned_entry_that_splits_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "user_path", lambda card: tmp_path / file_name(card.name))
    other = dataclasses.replace(H200, name="NVIDIA Card 9")
    plain, invariant = asked(64, 512, 4096), asked(64, 512, 4096, batch_invariant=True)
    assert kind(invariant) == "bf16-invariant/bf16/nt"
    split, whole, own = ({"tile": {"BM": 64, "BN": width}, **how} for width, how in (
        (64, {"scheduler": {"SplitK": {"splits": 4}}}), (96, {}), (48, {})))

    def found(**kinds):
        table = Table.of(other)
        for name, entry in kinds.items():
            table.put(f"bf16{name.replace('_', '-')}/bf16/nt", (64, 512, 4096), {"config": entry})
        table.write(tmp_path / file_name("NVIDIA Card 9"))
        tables.forget()
        return [config and config.tile.BN for config in (tuned(plain, other), tuned(invariant, other))]

    assert found(**{"": split}) == [64, None]
    assert found(**{"": whole}) == [96, 96]
    assert found(**{"": split, "_invariant": own}) == [64, 48]
    assert found(**{"": whole, "_invariant": split}) == [96, 96]
    tables.forget()


# Group products.


class Tokens:
    """Five rows of X and eight features of their group's weights (with a gate, of both halves), wherever they are put."""

    def __init__(self, dtype: str, k: int, gated: bool, block: bool) -> None:
        self.dtype, self.k, self.gated, self.block, self.source = dtype, k, gated, block, np.random.default_rng(11)
        self.halves = 1 + gated
        self.x, self.w = matrix(self.source, 5, k, dtype), matrix(self.source, 8 * self.halves, k, dtype)
        self.scales = self.source.random((5, -(-k // 128)), np.float32), self.source.random((self.halves, -(-k // 128)), np.float32)

    def bits(self, layout: str, lengths: list[int], group: int, n: int, config: GroupedConfig | None = None, **more) -> np.ndarray:
        """The bits of their product in the middle of a group, at features from 3 n / 8 on."""
        k, feature, within = self.k, 3 * n // 8 // 8 * 8, max(0, lengths[group] // 2 - 5)
        pitch = {"masked": max(lengths), "contiguous": -(-max(lengths) // 128) * 128}.get(layout)
        starts = [0, *itertools.accumulate(lengths)] if pitch is None else [pitch * place for place in range(len(lengths) + 1)]
        w = matrix(self.source, len(lengths) * n * self.halves, k, self.dtype).reshape(len(lengths), n * self.halves, k)
        x, rows = matrix(self.source, starts[-1], k, self.dtype), slice(starts[group] + within, starts[group] + within + 5)
        x[rows] = self.x
        for half in range(self.halves):
            w[group, half * n + feature:half * n + feature + 8] = self.w[8 * half:8 * half + 8]
        scales = {}
        if self.block:
            x_scale = self.source.random((starts[-1], -(-k // 128)), np.float32)
            w_scale = self.source.random((len(lengths), -(-n * self.halves // 128), -(-k // 128)), np.float32)
            x_scale[rows] = self.scales[0]
            for half in range(self.halves):
                w_scale[group, (half * n + feature) // 128] = self.scales[1][half]
            scales = {"x_scale": laid_out(x_scale, bool(self.source.integers(2))), "w_scale": w_scale}
        given = np.array(starts if layout == "cu_seqlens" else lengths, np.int32)
        if layout == "contiguous":
            given = np.arange(len(lengths), dtype=np.int32).repeat(pitch)
        out = np.full((starts[-1], n), np.nan, np.float32)
        if layout == "masked":
            x, out = x.reshape(len(lengths), pitch, k), out.reshape(len(lengths), pitch, n)
            scales = {name: array.reshape(len(lengths), pitch, -1) if name == "x_scale" else array for name, array in scales.items()}
        report = group_simulate(x, w, given, out, layout=layout, gated=self.gated, config=config, card=CARD, check=False, **scales,
                                **{"batch_invariant": config is None, **more})
        assert report.verdict != "error", report
        return out.reshape(starts[-1], n)[rows, feature:feature + 8].copy().view(np.uint32)


MEANS = (1, 6, 12, 30, 60, 100, 150, 400)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("dtype", "gated", "block", "more"), [
    ("bf16", False, False, {}), ("f16", True, False, {}), ("e4m3", False, False, {}), ("e4m3", False, False, {"fast_accum": False}),
    ("e4m3", False, True, {}), ("e4m3", True, True, {})])
def test_a_token_has_the_same_bits_in_every_group(dtype, gated, block, more):
    source = random.Random(f"{dtype} {gated} {block} {more}")
    tokens = Tokens(dtype, 4 * (128 // np.dtype(TYPES[dtype]).itemsize), gated, block)
    found = []
    for turn in range(5):
        lengths = [source.choice((5, 9, 40, 70, 150)) for _ in range(source.choice((1, 2, 5)))]
        layout = source.choice(("cu_seqlens", "cu_seqlens", "masked", "contiguous"))
        mean = {} if layout == "contiguous" else {"mean_tokens": source.choice(MEANS)}
        found.append(tokens.bits(layout, lengths, source.randrange(len(lengths)), 128 if gated and block else source.choice((64, 128, 192)),
                                 **mean, **more))
        assert (found[-1] == found[0]).all(), (turn, layout, lengths, mean)
    assert len(np.unique(found[0])) > 20


def test_a_group_whose_stages_are_longer_is_seen_and_what_varies_is_refused():
    tokens = Tokens("bf16", 8 * 64, False, False)
    plain = GroupedConfig(GroupOperands(bf16, bf16, f32), tile=Tile(64, 64))
    place = ("cu_seqlens", [40, 9], 0, 64)
    assert (tokens.bits(*place, config=plain) == tokens.bits(*place)).all()
    longer = dataclasses.replace(plain, tile=Tile(64, 64, 128), stages=4)
    assert (tokens.bits(*place, config=longer) != tokens.bits(*place)).any()
    swapped = GroupedConfig(GroupOperands(bf16, bf16, f32), SwapAB(), Tile(64, 64))
    problem = GroupProblem(GroupArrays(view("bf16", 49, 512), view("bf16", 2, 64, 512), view("s32", 3), view("f32", 49, 64)),
                           GroupOptions(batch_invariant=True))
    check_groups(plain, problem)
    for config in (longer, swapped):
        with pytest.raises(LaunchError, match="not batch-invariant"):
            check_groups(config, problem)


@pytest.mark.parametrize("card", [H100, H200], ids=lambda card: card.name)
def test_every_choice_for_groups_is_batch_invariant_if_asked(card):
    kinds = ({}, {"gated": True}, {"fast_accum": False})
    for mean, groups, more, dtype in itertools.product((1, 4, 10, 20, 50, 80, 120, 200, 1000, 4000), (4, 32, 256), kinds, ("bf16", "e4m3")):
        n, k, rows = 2048, 4096, mean * groups
        options = GroupOptions(batch_invariant=True, **more)
        arrays = GroupArrays(view(dtype, rows, k), view(dtype, groups, n * (1 + options.gated), k), view("s32", groups + 1),
                             view("bf16", rows, n))
        for config in group_heuristic(GroupProblem(arrays, options), card).kernels:
            assert varies(config) is None, (mean, groups, more, str(config))
        if not options.gated:
            chosen = pointers_heuristic(TYPES_OF[dtype], TYPES_OF[dtype], bf16, mean, bool(more) and dtype == "e4m3", False, groups, True)
            assert varies(chosen) is None
    for scales_in_shared, mean in itertools.product((True, False), (1, 4, 10, 20, 50, 80, 120, 200, 1000)):
        rows = 32 * mean
        x_scale = view("f32", rows, 32, strides=(1, rows) if scales_in_shared else (32, 1))
        arrays = GroupArrays(view("e4m3", rows, 4096), view("e4m3", 32, 2048, 4096), view("s32", 33), view("bf16", rows, 2048), x_scale,
                             view("f32", 32, 16, 32))
        for config in group_heuristic(GroupProblem(arrays, GroupOptions(batch_invariant=True)), card).kernels:
            assert varies(config) is None, (scales_in_shared, mean)


# What a GPU measures.


def by_simulation(dtype: str, layout: str, k: int):
    """The products of `invariance` on the CPU device, of operands whose sums are exact within a stage."""
    source = np.random.default_rng(5)
    a, b = laid_out(matrix(source, 40, k, dtype), layout[0] == "n"), laid_out(matrix(source, 64, k, dtype), layout[1] == "t").T

    def multiply(m: int, n: int, config: DenseConfig | GroupedConfig) -> np.ndarray:
        d = np.full((m, n), np.nan, np.float32)
        if isinstance(config, GroupedConfig):
            report = group_simulate(a[:m], b[:, :n].T[None], np.array([0, m], np.int32), d, config=config, card=CARD, check=False)
        else:
            report = simulate(a[:m], b[:, :n], d, config=config, card=CARD, check=False)
        assert report.verdict != "error", report
        return d.view(np.uint32)

    return multiply


def test_families_that_cut_k_are_told_from_those_that_do_not():
    found = invariance.compared(by_simulation("bf16", "nt", 1024), 1024, "bf16", "nt", 4, CARD, extents=((40, 64), (9, 32)))
    assert found[invariance.WHOLE]["products"] >= 5
    assert {name: seen["differ"] > 0 for name, seen in found.items()} == {
        invariance.WHOLE: False, "split-K": True, "stream-K": True, "longer stages": True, "tokens as rows": False,
        "tokens as columns": False}
    told = "\n".join(invariance.lines({"bf16 nt": found}))
    assert all(f"{seen['differ']} of {seen['elements']} elements differ" in told for seen in found.values())


def test_the_price_is_a_ratio_beside_the_baselines():
    options = argparse.ArgumentParser()
    bench_command.add_arguments(options)
    ((_, _, names),) = bench_command.jobs(options.parse_args(["--shapes", "512", "--batch-invariant"]))
    assert names == ("ours", "invariant", "cublas", "cublaslt")
    ratios = row_ratios({"ours": [2.0], "invariant": [2.2], "cublas": [3.0]}, "ours", NO_PEERS)
    assert ratios["invariant"]["ratio"] == pytest.approx(1.1)
    assert ratios["best"]["ratio"] == pytest.approx(1.5)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "layout", "k"), invariance.KINDS)
def test_the_tensor_cores_add_up_alike_in_every_width_and_place(dtype, layout, k):
    torch = pytest.importorskip("torch")
    found = invariance.compared(invariance.on_gpu(torch, dtype, layout, k), k, dtype, layout, 12, card_of(0))
    assert found[invariance.WHOLE]["differ"] == 0
    assert found.get("tokens as rows", {"differ": 0})["differ"] == 0
    assert found["longer stages"]["products"] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_a_row_has_the_same_bits_on_the_card_whatever_the_batch_is(dtype):
    torch = pytest.importorskip("torch")
    a, b = (operands.normal(torch, dtype, *extents) for extents in ((6, 700, 2048), (1000, 2048)))
    out = gemm.gemm(a[0], b.T, out_dtype="f32", batch_invariant=True)
    for m, n in ((1, 1000), (16, 512), (64, 1000), (129, 96), (700, 200)):
        assert torch.equal(gemm.gemm(a[0, :m], b[:n].T, out_dtype="f32", batch_invariant=True), out[:m, :n]), (m, n)
    batched = gemm.gemm(a, b.T[None].expand(6, 2048, 1000), out_dtype="f32", batch_invariant=True)
    assert torch.equal(batched[0], out)
    lengths = torch.tensor([0, 3, 700, 800], device="cuda", dtype=torch.int32)
    grouped = gemm.group_gemm(a.flatten(0, 1)[:800], b[None].expand(3, 1000, 2048).contiguous(), lengths, out_dtype="f32",
                              batch_invariant=True)
    assert torch.equal(grouped[:700], out)
