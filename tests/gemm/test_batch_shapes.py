"""How batches are named, drawn, kept in tables and sampled."""

from __future__ import annotations

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.gemm.config.parts import Pingpong
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.table import Table, TableError, file_name, lookup
from ptxkit.gemm.heuristic.tuned import kind
from ptxkit.gemm.tools import sample
from ptxkit.gemm.tools.bench import scatter, shapes
from ptxkit.gemm.tools.bench.figures import summary
from ptxkit.gemm.tools.bench.shapes import Problem, ShapeError, drawn, parse
from ptxkit.gemm.tools.problems import asked, described

DEVICE = "NVIDIA Card 9"
CARD = dataclasses.replace(H200, name=DEVICE)


@pytest.fixture
def user_tables(tmp_path, monkeypatch):
    """A cache directory of the test's own."""
    monkeypatch.setattr(tables, "user_path", lambda card: tmp_path / "tuned" / file_name(card.name))
    tables.forget()
    yield tmp_path / "tuned"
    tables.forget()


def test_a_batch_has_four_extents_and_counts_every_product():
    one, batch = Problem(64, 32, 128, "f16", "nn"), Problem(64, 32, 128, "f16", "nn", batch=7)
    assert shapes.problem("7x64x32x128:f16:nn") == batch
    assert shapes.problem(str(batch)) == batch
    assert (batch.flops, batch.bytes, batch.weight_bytes) == (7 * one.flops, 7 * one.bytes, 7 * one.weight_bytes)
    problem = described(batch)
    assert (problem.batches, problem.m, problem.n, problem.k) == (7, 64, 32, 128)
    assert problem.a_lines.strides == (256, 64 * 128 * 2)
    assert described(one).batches is None
    for text in ("0x64x32x128", "7x64x32x128:e4m3-block", "2x7x64x32x128"):
        with pytest.raises(ShapeError):
            parse(text)


@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "f32"])
def test_random_batches_are_the_same_for_a_seed_and_fit_a_card(dtype):
    found = parse("random:7:200:any8:batched", [dtype])
    assert found == drawn(7, 200, "any8", [dtype], batched=True) == parse("random:7:200:batched", [dtype])
    assert len(found) == 200
    for problem in found:
        assert 2 <= problem.count <= 128
        assert 16 <= problem.m <= 10_000
        assert {128 <= extent <= 16_000 for extent in (problem.n, problem.k)} == {True}
        assert problem.bytes <= shapes.MOST_BATCHED_BYTES
        assert problem.flops <= shapes.MOST_BATCHED_FLOPS
        assert described(problem).batches == problem.batch
    logarithms = [math.log(problem.count) for problem in found]
    assert min(logarithms) < math.log(4)
    assert max(logarithms) > math.log(64)
    for text in ("random:1:batched", "random:1:3:batched:any8", "random:1:3:any8:batched:batched"):
        with pytest.raises(ShapeError):
            parse(text)
    assert parse("random:7:9:any8")[0].batch is None


def test_a_table_keeps_batches_by_their_number_and_rows(user_tables, tmp_path):
    table = Table.of(CARD)
    problem = shapes.problem("16x512x512x128")
    table.put(kind(described(problem)), (16, 512, 512, 128), {"config": {"tile": {"BN": 64}}})
    table.put("bf16/bf16/nt", (512, 512, 128), {"config": {"tile": {"BN": 128}}})
    path = user_tables / file_name(DEVICE)
    table.write(path)
    assert Table.read(path).entries == table.entries
    batched = kind(described(problem))
    assert batched == "bf16-batched/bf16/nt"
    for batches, m, found in ((16, 512, True), (20, 512, True), (16, 400, True), (20, 400, False), (8, 1024, False), (16, 1024, False)):
        assert (lookup(CARD, batched, m, 512, 128, batches) is not None) == found, (batches, m)
    assert lookup(CARD, batched, 512, 512, 128) is None                # a single product has no batch's entry
    assert lookup(CARD, "bf16/bf16/nt", 512, 512, 128, 16) is None
    path.write_text(path.read_text().replace("16x512x512x128", "16x16x512x512x128"))
    with pytest.raises(TableError):
        Table.read(path)


@pytest.mark.parametrize("text", ["3x40x32x128:bf16:nt", "40x32x128:bf16:tn", "5x64x128x128:bf16:nn", "3x48x64x128:e4m3:nt"])
def test_sampled_operands_lie_apart_in_the_pool(text):
    """The bytes of all operands of a set, and of several sets, by an index of every element."""
    problem = shapes.problem(text)
    pool = SimpleNamespace(size=shapes.BYTES[problem.dtype], one=None, values=SimpleNamespace(data_ptr=lambda: 0),
                           results=SimpleNamespace(data_ptr=lambda: 1 << 40))
    sets = sample.Pool.sets(pool, problem)
    used: set[int] = set()
    for _ in range(3):
        arrays = next(sets)
        for array, dtype, extents in ((arrays.a, problem.dtype, (problem.m, problem.k)), (arrays.b, problem.dtype, (problem.k, problem.n)),
                                      (arrays.out, problem.out, (problem.m, problem.n))):
            assert array.shape == (*problem.outer, *extents)
            indices = np.indices(array.shape).reshape(len(array.shape), -1)
            places = array.pointer + shapes.BYTES[dtype] * (indices * np.array(array.strides)[:, None]).sum(0)
            assert len(np.unique(places)) == problem.count * extents[0] * extents[1]
            assert not used & set(places.tolist())
            used |= set(places.tolist())
            assert array.pointer % 1024 == 0


def test_samples_of_batches_have_configurations_of_their_own():
    part = next(part for part in sample.PARTS if part.kind == "batched")
    assert part.name == "bf16 nt batched"
    assert len({part.name for part in sample.PARTS}) == len(sample.PARTS)
    source = sample.products(part, 5)
    for problem in (next(source) for _ in range(4)):
        assert problem.batch
        found = sample.generated(described(problem))
        assert len(found) > 40
        assert all(config.operands.batched for config in found)
        for config in found:
            tiles = problem.count * math.prod(config.tiles(problem.m, problem.n))
            assert config.splits == 1 or tiles * config.splits <= sample.MOST_SPLIT_TILES
    few, alone = set(sample.generated(asked(16, 32, 256, batches=500))), set(sample.generated(asked(65, 72, 256)))
    assert any(isinstance(config.schedule, Pingpong) and config.tile.BN == 16 for config in few)
    assert any(config.stages == 2 for config in few)
    assert not any(config.tile.BN < 32 or config.stages == 2 for config in alone)
    assert not any(config.tile.BN < 32 and config.splits > 1 for config in few if not config.swap_ab)
    narrow = sample.generated(asked(65, 32, 256))               # a single product of few columns, which B has along K
    assert any(config.tile.BN == 16 and config.splits == 2 for config in narrow)
    assert not any(config.tile.BN < 32 for config in sample.generated(asked(65, 32, 256, layout="nn")))
    assert {config.tile.BM for config in sample.generated(asked(180, 512, 512))} == {64, 128, 192, 256}


def test_results_of_batches_are_told_apart_from_those_of_single_products():
    def row(problem: Problem, ratio: float) -> dict:
        return {"shape": str(problem), "batch": problem.batch, "m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.dtype,
                "layout": problem.layout, "regime": "burst", "weight_bytes": problem.weight_bytes, "ratios": {"best": {"ratio": ratio}}}

    rows = [row(Problem(64, 64, 64), 1.5), row(Problem(64, 64, 64, batch=8), 0.5)]
    found = summary(rows)
    assert found["burst bf16"]["best"]["geometric_mean"] == pytest.approx(1.5)
    assert found["burst bf16 batched"]["best"]["geometric_mean"] == pytest.approx(0.5)
    points = [(kind, flops) for kind, flops, _, _ in scatter.points(rows)]
    assert points == [("bf16 nt", 2.0 * 64 ** 3), ("bf16 nt batched", 16.0 * 64 ** 3)]


def test_samples_of_long_products_have_at_most_a_wave_of_tiles():
    part = next(part for part in sample.PARTS if part.kind == "long")
    for problem in itertools.islice(sample.products(part, 7), 20):
        assert problem.m > 64
        assert -(-problem.m // 128) * -(-problem.n // 128) <= sample.ONE_WAVE
        assert problem.k >= sample.LONG


def test_samples_of_large_products_have_weights_that_no_other_part_has():
    parts = [part for part in sample.PARTS if part.kind == "large"]
    assert {part.name for part in parts} == {"bf16 nt large", "bf16 nn large", "bf16 tn large", "bf16 tt large", "e4m3 nt large",
                                              "f32 nt large"}
    for part in parts:
        drawn = list(itertools.islice(sample.products(part, 11), 40))
        assert {problem.m in part.rows for problem in drawn} == {True, False}
        assert any(problem.n > shapes.RANDOM_COLUMNS[1] for problem in drawn)
        assert all(sample.LARGE_BYTES[0] <= problem.bytes <= sample.LARGE_BYTES[1] for problem in drawn)
        assert all(problem.flops <= sample.LARGE_FLOPS for problem in drawn)
        assert not any(described(problem).misaligned for problem in drawn)
