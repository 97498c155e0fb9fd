"""Laws of batches: how they are named, drawn, kept in tables and sampled."""

from __future__ import annotations

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.cards import H100, H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Cooperative, Pingpong, SplitK, Static, StreamK, Swizzle, Tile
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.corrections import partly_written
from ptxkit.gemm.heuristic.costs import SWAPPED, Columns, Costs, Parts, Sizes, estimate, of_card, structure
from ptxkit.gemm.heuristic.dense import NOT_MEASURED, by_waves, candidates, heuristic, judged
from ptxkit.gemm.heuristic.table import Table, TableError, file_name, lookup
from ptxkit.gemm.heuristic.tuned import kind
from ptxkit.gemm.launch.dense import Zeros, card_of, check_config, compiled
from ptxkit.gemm.launch.grid import Grid, kernel_of
from ptxkit.gemm.launch.on_cpu import view_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.problem.dense import Arrays, Options
from ptxkit.gemm.problem.dense import Problem as Asked
from ptxkit.gemm.problem.folded import folded
from ptxkit.gemm.problem.matmul import products
from ptxkit.gemm.scheduler.work import TileDivmod
from ptxkit.gemm.tools import sample
from ptxkit.gemm.tools.bench import operands, scatter, shapes
from ptxkit.gemm.tools.bench.baselines import our_launch
from ptxkit.gemm.tools.bench.figures import summary
from ptxkit.gemm.tools.bench.shapes import Problem, ShapeError, drawn, parse
from ptxkit.gemm.tools.problems import asked, described
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.types import bf16, f16, f32
from tests.ptxkit.machine import run, stored

from .test_scheduler import scheduled, shape_of, size_of, works

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
    few, alone = set(sample.generated(asked(16, 32, 256, batches=500))), set(sample.generated(asked(65, 32, 256)))
    assert any(isinstance(config.schedule, Pingpong) and config.tile.BN == 16 for config in few)
    assert any(config.stages == 2 for config in few)
    assert not any(config.tile.BN < 32 or config.stages == 2 for config in alone)
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


# Batches that are one product.


def batch(source: np.random.Generator, *shape: int) -> np.ndarray:
    return source.integers(-4, 5, shape).astype(np.float16)


def cases(source: np.random.Generator) -> dict[str, dict]:
    """Operands, what is added, and the extents of the product that each is (None: a batch)."""
    def made(m=24, n=40, k=72, batches=3, **arrays):
        return {"a": batch(source, batches, m, k), "b": batch(source, batches, k, n), "out": np.full((batches, m, n), np.nan, np.float32),
                **arrays}

    weights, rows = batch(source, 72, 40), batch(source, 24, 72)
    shared_b = {"b": np.broadcast_to(weights, (3, 72, 40))}
    across = np.full((24, 3, 40), np.nan, np.float32).transpose(1, 0, 2)
    next_to = batch(source, 72, 3, 40).transpose(1, 0, 2)
    return {
        "B is shared": {**made(**shared_b), "is": (72, 40)},
        "B is shared and not contiguous along K": {**made(b=np.broadcast_to(batch(source, 40, 72).T, (3, 72, 40))), "is": (72, 40)},
        "B is shared, A is contiguous along M": {**made(a=batch(source, 72, 3, 24).transpose(1, 2, 0), **shared_b), "is": (72, 40)},
        "B is shared, with all that is added": {**made(bias=batch(source, 40), c=batch(source, 3, 24, 40), beta=0.5, activation="relu",
                                                       residual=batch(source, 3, 24, 40), **shared_b), "is": (72, 40)},
        "B is shared, products of one row": {**made(m=1, **shared_b), "is": (3, 40)},
        "B is shared, A has gaps": {**made(a=batch(source, 3, 32, 72)[:, :24], **shared_b), "is": None},
        "B is shared, D has gaps": {**made(out=np.full((3, 32, 40), np.nan, np.float32)[:, :24], **shared_b), "is": None},
        "B is shared, a bias along the rows": {**made(bias=batch(source, 24, 1), **shared_b), "is": None},
        "B is shared, C is not contiguous": {**made(c=batch(source, 3, 32, 40)[:, :24], beta=1.0, **shared_b), "is": None},
        "A is shared": {**made(a=np.broadcast_to(rows, (3, 24, 72)), b=next_to, out=across, bias=batch(source, 24, 1)), "is": (24, 120)},
        "A is shared, D is contiguous": {**made(a=np.broadcast_to(rows, (3, 24, 72)), b=next_to), "is": None},
        "A is shared, a bias along the columns": {**made(a=np.broadcast_to(rows, (3, 24, 72)), b=next_to, bias=batch(source, 40)),
                                                  "is": None},
        "both are shared": {**made(a=np.broadcast_to(rows, (3, 24, 72)), **shared_b), "is": None},
        "a batch of one": {**made(batches=1, bias=batch(source, 24, 1)), "is": (24, 40)},
        "nothing is shared": {**made(), "is": None},
    }


@pytest.mark.thinned(3)
@pytest.mark.parametrize("which", cases(np.random.default_rng(1)))
def test_a_batch_that_is_one_product_is_computed_as_one(which):
    """The extents of the product, and its values either way: by the choice, and by a configuration for a batch, which keeps it one."""
    arguments = cases(np.random.default_rng(2))[which]
    extents, out = arguments.pop("is"), arguments["out"]
    views = Arrays(**{name: view_of(name, array, None) for name, array in arguments.items() if isinstance(array, np.ndarray)})
    options = Options(beta=arguments.get("beta", 0.0), activation=arguments.get("activation"))
    one = folded(views)
    assert (one is views) == (extents is None)
    assert folded(one) == one
    problem = Asked(one, options)
    assert (problem.batches, problem.m, problem.n) == ((3, 24, 40) if extents is None else (None, *extents))
    exact, configs = expected(**arguments), [None]
    if which != "A is shared":                  # whose D no batch can have: its products lie within each other
        operands = Operands(f16, f16, f32, f32, major(arguments["a"]), major(arguments["b"].swapaxes(1, 2)), True)
        configs.append(DenseConfig(operands, Tile(64, 64), fusion=Asked(views, options).fusion))
    for config in configs:
        out[...] = np.nan
        report = simulate(**arguments, config=config, card=H200.with_sms(2))
        assert report.verdict == "clean", report
        assert np.abs(out - exact).max() < 1e-3, config


def major(array: np.ndarray) -> str:
    return "k" if array.strides[-1] == array.itemsize else "mn"


def expected(a, b, out, bias=None, c=None, beta=0.0, activation=None, residual=None) -> np.ndarray:
    found = a.astype(np.float64) @ b.astype(np.float64)
    for array, factor in ((c, beta), (bias, 1.0)):
        found = found + factor * array.astype(np.float64) if array is not None else found
    found = np.maximum(found, 0) if activation == "relu" else found
    return found if residual is None else found + residual


# What the model says of batches.


def told(problem: Asked, config: DenseConfig, costs: Costs | None = None) -> Parts:
    own = costs or of_card(H200)
    return estimate(own, Sizes.of(problem), Columns.of([config], H200, own))


def test_a_batch_of_one_costs_what_a_product_costs():
    for m, n, k in ((4096, 4096, 1024), (154, 1048, 1768), (8192, 8192, 8192)):
        one, alone = (told(asked(m, n, k, batches=batches), DenseConfig(tile=Tile(128, 128))) for batches in (1, None))
        assert all(getattr(one, field.name)[0] == getattr(alone, field.name)[0] for field in dataclasses.fields(one))


def test_a_product_of_a_batch_reads_its_operands_as_if_it_were_alone():
    """However many there are: what one product's tiles share stays in the L2 while it is worked on."""
    config = DenseConfig(tile=Tile(128, 128))
    for m, n, k in ((154, 1048, 1768), (2048, 2048, 2048), (8192, 8192, 8192)):
        alone = told(asked(m, n, k), config).bytes[0]
        for batches in (2, 16, 100):
            assert told(asked(m, n, k, batches=batches), config).bytes[0] == pytest.approx(batches * alone)


def test_what_all_products_share_is_read_once_unless_the_l2_loses_it():
    def asked_with(shared: str, m: int, n: int, k: int) -> Asked:
        views = {"a": (m, k), "b": (k, n), "out": (m, n)}
        strides = {"a": (m * k, k, 1), "b": (k * n, 1, k), "out": (m * n, n, 1)}
        apart = {name: 0 if name in shared else found[0] for name, found in strides.items()}
        return Asked(Arrays(**{name: ArrayView(0, (32, *extents), (apart[name], *strides[name][1:]), "bf16", 0, "other")
                               for name, extents in views.items()}))

    config = DenseConfig(tile=Tile(128, 128))
    own, a, b, both = (told(asked_with(shared, 256, 1024, 2048), config).bytes[0] for shared in ("", "a", "b", "ab"))
    a_bytes, b_bytes = 256 * 2048 * 2, 1024 * 2048 * 2
    assert own == pytest.approx(32 * (a_bytes + b_bytes))
    assert (a, b, both) == pytest.approx((a_bytes + 32 * b_bytes, 32 * a_bytes + b_bytes, a_bytes + b_bytes))
    large = told(asked_with("b", 16384, 16384, 8192), config).bytes[0]
    assert 32 * 16384 * 8192 * 2 + 16384 * 8192 * 2 < large < told(asked_with("", 16384, 16384, 8192), config).bytes[0]


@pytest.mark.parametrize("card", [H100, H200], ids=lambda card: card.name)
def test_what_is_chosen_for_random_batches_can_be_launched(card):
    for problem in (*drawn(3, 40, batched=True), *drawn(4, 20, dtypes=["e4m3"], batched=True), *drawn(5, 20, dtypes=["f32"], batched=True),
                    Problem(16, 16, 64, batch=4096), Problem(1, 8, 64, batch=70_000), Problem(48, 256, 8192, batch=3)):
        shape = described(problem)
        config = heuristic(shape, card)
        check_config(config, shape)
        grid = Grid.of(shape, config, card.resident(config.cluster) // config.cluster)
        tiles = problem.count * -(-shape.m // config.tile.BM) * -(-shape.n // config.tile.BN)
        assert 1 <= grid.ctas[0] <= max(card.sms, config.splits * tiles)
        assert tiles < card.sms or grid.ctas[0] >= card.sms // 3


def test_only_batches_get_tiles_that_are_not_measured_for_single_products():
    own = {config.tile.BN for config in candidates(asked(154, 1048, 1768), H200)}
    batched = {config.tile.BN for config in candidates(asked(154, 1048, 1768, batches=42), H200)}
    assert batched - own == {16, 24}
    chosen = heuristic(asked(154, 1048, 1768, batches=42), H200)
    assert 154 / (chosen.tile.BN if chosen.swap_ab else chosen.tile.BM) >= 0.8      # so much of a tile's rows is full
    assert not by_waves(asked(16, 512, 512, batches=64))
    assert heuristic(asked(16, 16, 64, batches=4096), H200).tile.BN == 16


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("scheduler", "tile", "schedule"), [
    (SplitK(2, "cluster"), Tile(64, 64), Cooperative()), (SplitK(4, "cluster"), Tile(128, 32), Cooperative()),
    (SplitK(3), Tile(64, 32), Cooperative()), (Static(), Tile(192, 64), Cooperative()), (Static(), Tile(64, 16), Pingpong()),
    (Static(cluster=ClusterShape(1, 2)), Tile(192, 64), Cooperative()), (StreamK(), Tile(192, 64), Cooperative())], ids=str)
def test_batches_are_right_by_every_way_to_share_out_their_tiles(scheduler, tile, schedule):
    source = np.random.default_rng(9)
    a, b, residual = batch(source, 3, 70, 256), batch(source, 3, 40, 256).transpose(0, 2, 1), batch(source, 3, 70, 40)
    padded = np.full((3, 80, 40), np.nan, np.float32)
    fusion = Asked(Arrays(*(view_of("x", x, None) for x in (a, b, padded[:, :70])), residual=view_of("x", residual, None))).fusion
    config = DenseConfig(Operands(f16, f16, f32, batched=True), tile, 0, schedule, scheduler, fusion=fusion)
    report = simulate(a, b, padded[:, :70], residual=residual, config=config, card=H200.with_sms(6))
    assert report.verdict == "clean" or (config.splits_in_workspace and report.verdict == "incomplete"), report
    assert np.abs(padded[:, :70] - expected(a, b, None, residual=residual)).max() < 1e-2
    assert np.isnan(padded[:, 70:]).all()


def test_many_tiny_products_are_right():
    source = np.random.default_rng(4)
    a, b, out = batch(source, 301, 16, 64), batch(source, 301, 16, 64).transpose(0, 2, 1), np.full((301, 16, 16), np.nan, np.float32)
    report = simulate(a, b, out, card=H200.with_sms(2))
    assert report.verdict == "clean", report
    assert np.abs(out - expected(a, b, out)).max() < 1e-3


@pytest.mark.ptxas
@pytest.mark.parametrize("BN", [16, 32, 64])
def test_as_many_ctas_share_an_sm_as_the_model_says(BN):
    """By the registers and the shared memory of the kernels, without a fusion and with all that one can have."""
    everything = Fusion(True, True, bf16, bf16, "column", "gelu", bf16)
    for stages, fusion in ((2, Fusion()), (4, Fusion()), (4, everything)):
        config = DenseConfig(Operands(batched=True), Tile(64, BN), stages, fusion=fusion)
        said = Columns.of([config], H200, of_card(H200)).ctas[0]
        made = kernel_of(config).assemble(**config.parameters)
        by_registers = 65_536 // (-(-made.resources["gemm"].registers // 8) * 8 * config.threads)
        by_shared = (H200.shared_bytes + 1024) // (config.smem_bytes + 1024)
        assert 1 < said <= min(by_registers, by_shared)
        assert said >= 0.5 * min(by_registers, by_shared)
    assert Columns.of([DenseConfig(tile=Tile(64, BN))], H200, of_card(H200)).ctas[0] == 1       # whose ring fills an SM


def test_explain_knows_what_a_batch_shares(capsys):
    extents = ["-m", "24", "-n", "512", "-k", "1024", "--batch", "16", "--card", "h200", "--most", "1"]
    for shared, told in (([], "16 products of 24 x 512 x 1,024"), (["--shared", "b"], "\n384 x 512 x 1,024"),
                         (["--shared", "a"], "16 products of 24 x 512 x 1,024")):
        assert main(["explain", *extents, *shared]) == 0
        assert told in "\n" + capsys.readouterr().out
    assert main(["explain", "-m", "8", "-n", "8", "-k", "8", "--shared", "b"]) == 2
    capsys.readouterr()
    assert main(["explain", "-m", "100", "-n", "99", "-k", "101", "--batch", "16", "--card", "h200"]) == 0
    told = capsys.readouterr().out
    assert "the model of operands that threads copy; the model puts it first" in told
    assert "<- chosen" in told


def test_short_rings_are_for_many_products_of_few_stages():
    """A tile of one stage waits for its copy, its products and its store, one after the other: other CTAs of the SM work meanwhile."""
    many = heuristic(asked(16, 16, 64, batches=4096), H200)
    assert Columns.of([many], H200, of_card(H200)).ctas[0] > 1
    for m, n, k, batches in ((4096, 4096, 4096, 2), (1024, 1024, 1024, 16), (256, 256, 4096, 64)):
        assert Columns.of([heuristic(asked(m, n, k, batches=batches), H200)], H200, of_card(H200)).ctas[0] == 1


# Very many products.


@pytest.mark.parametrize("scheduler", [Static(Swizzle(size=2)), SplitK(3), Static(Swizzle("along_n", 4), ClusterShape(1, 2))], ids=str)
def test_the_tiles_of_very_many_products_are_found(scheduler):
    """Some CTAs of 60,000 that share the tiles of 200,000 products: where each tile of theirs lies, by division in Python."""
    clusters, m, n, batches = 60_000, 3, 4, 200_000
    size, cluster = size_of(scheduler), shape_of(scheduler)
    parts = scheduler.splits if isinstance(scheduler, SplitK) else 1
    rows, columns = -(-m // cluster.m), -(-n // cluster.n)
    divmod_ = TileDivmod.of(rows, columns, scheduler.order.size, scheduler.order.raster == "along_m")
    traced = scheduled(scheduler, batched=True, turn=0, turns=1, found=False).trace()
    inside = [(i, j) for i, j, *_ in works(Static(scheduler.order), 1, rows, columns)[0]]       # as of a single product
    for own in (0, 1, 31_337, clusters - 1):
        symbols = {"%ctaid.x": own * size, "%nctaid.x": clusters * size, "%clusterid.x": own, "%nclusterid.x": clusters,
                   "%cluster_ctarank": 0}
        named = {"out": 0, "m_tiles": m, "n_tiles": n, "k_tiles": 9, "batches": batches, "divmod_line": divmod_.line,
                 "divmod_panel": divmod_.panel, "divmod_batch": divmod_.batch}
        values = [x for value in stored(run(traced, named, symbols)) for x in (value if isinstance(value, tuple) else (value,))]
        found = [(values[i], values[i + 1], values[i + 4]) for i in range(0, len(values), 5)]
        wanted = []
        for index in range(own, rows * columns * batches * parts, clusters):
            batch_, within = divmod(index // parts, rows * columns)
            i, j = inside[within]
            wanted.append((i * cluster.m, j * cluster.n, batch_))
        assert found == wanted


def test_more_tiles_than_their_numbers_have_bits_for_are_refused():
    for extents, batches in (((64, 64, 64), 1 << 31), ((1 << 30, 1 << 30, 8), None), ((65, 64, 8), 1 << 30)):
        with pytest.raises(LaunchError, match="launch parts of the batch"):
            asked(*extents, batches=batches)
    for extents in itertools.permutations((1 << 31, 8, 8)):
        with pytest.raises(LaunchError, match=r"[MNK] = 2,147,483,648: extents are less than"):
            asked(*extents)
    problem = asked(64, 128, 64, batches=(1 << 30) - 1)
    with pytest.raises(ConfigError, match="launch parts of the batch"):
        Grid.of(problem, DenseConfig(Operands(batched=True), Tile(64, 32)), 132)
    assert Grid.of(asked(64, 64, 64, batches=(1 << 31) - 1), DenseConfig(Operands(batched=True), Tile(64, 64)), 132).ctas == (132, 1, 1)


@pytest.mark.parametrize(("shape", "strides", "calls"), [
    ((5, 8), (8, 1), 1), ((5, 8), (12, 1), 1), ((1, 8), (99, 1), 1), ((4, 5, 8), (40, 8, 1), 1), ((4, 5, 8), (60, 12, 1), 1),
    ((4, 5, 8), (50, 8, 1), 4), ((50, 3, 8), (40, 8, 1), 3), ((70_000, 1, 8), (16, 8, 1), 1),
    ((3, 5, 8), (8, 24, 1), 1), ((3, 5, 8), (8, 32, 1), 3),
    ((1, 5, 8), (7, 8, 1), 1), ((1, 1, 8), (3, 5, 1), 1)])
def test_products_with_k_0_are_cleared_in_few_calls_and_nothing_beside_them(shape, strides, calls):
    fills = Zeros(ArrayView(1000, shape, strides, "f32", 0, "other")).fills()
    assert len(fills) == calls
    cleared = np.concatenate([start + pitch * line + np.arange(width) for start, pitch, width, height in fills for line in range(height)]) \
        if shape[0] < 1000 else None
    places = sum(np.indices(shape)[axis] * strides[axis] for axis in range(len(shape))).reshape(-1)
    if cleared is not None:
        assert sorted(cleared.tolist()) == sorted((1000 + 4 * places[:, None] + np.arange(4)).reshape(-1).tolist())
    else:
        assert fills == [(1000, 4 * strides[0], 4 * shape[-1], shape[0])]


def test_what_no_fit_has_seen_is_held_back_until_one_has(monkeypatch):
    """A structure without a factor takes longer by NOT_MEASURED than by the model; with one, what that says."""
    problem = asked(154, 1048, 1768, batches=42)
    place, chosen = next(pair for pair in judged(problem, H200).fastest_first() if pair[1].tile.BM == 192)
    name, own = structure(chosen), of_card(H200)
    unseen = dataclasses.replace(own, factors={word: value for word, value in own.factors.items() if word not in
                                               (name, name.removesuffix(SWAPPED))})
    without = told(problem, chosen, unseen).total[0]
    for number, (costs, factor) in enumerate(((unseen, NOT_MEASURED), (dataclasses.replace(own, factors={**own.factors, name: 0.9}), 0.9))):
        card = dataclasses.replace(H200, name=f"another {number}")
        with monkeypatch.context() as patched:
            patched.setattr("ptxkit.gemm.heuristic.dense.of_card", lambda card, costs=costs: costs)
            assert judged(problem, card).parts.total[place] == pytest.approx(factor * without)
    short, deep = (DenseConfig(Operands(batched=True), Tile(64, 32), stages) for stages in (4, 0))
    assert structure(short) == structure(deep) + " short ring"


@pytest.mark.parametrize(("a", "b", "out", "wanted"), [
    ((2, 128, 512), (512, 384), (2, 128, 384), (None, 256, 384)), ((4, 3, 1, 512), (512, 384), (4, 3, 1, 384), (None, 12, 384)),
    ((7, 512), (5, 512, 384), (5, 7, 384), (5, 7, 384)),
    ((7, 512), (5, 512, 1), (5, 7, 1), (None, 5, 7)), ((1, 7, 512), (1, 512, 384), (1, 7, 384), (None, 7, 384))])
def test_batches_that_torch_broadcasts_are_one_product_where_they_can_be(a, b, out, wanted):
    one, = products(Arrays(*(ArrayView(0, shape, contiguous_strides(shape), "bf16", 0, "other") for shape in (a, b, out))))
    problem = Asked(folded(one))
    assert (problem.batches, problem.m, problem.n) == wanted


# On a GPU.


@pytest.mark.gpu
def test_the_card_holds_as_many_ctas_of_short_rings_as_the_model_says():
    card = card_of(0)
    config = heuristic(asked(16, 16, 64, batches=4096), card)
    said = Columns.of([config], card, of_card(card)).resident[0]
    assert compiled(kernel_of(config), 0, **config.parameters).max_clusters() >= said > card.sms


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["4096x16x16x64", "70000x8x16x64", "42x154x1048x1768", "3x48x256x8192", "9x64x128x4096:nn",
                                   "5x300x96x2048:e4m3"])
def test_batches_are_right_on_the_card(shape):
    torch = pytest.importorskip("torch")
    problem = shapes.problem(shape)
    data, = operands.make(torch, problem, 1)
    assert operands.wrong(torch, problem, data)
    our_launch(problem, data)()
    assert operands.wrong(torch, problem, data) is None
    shared = data.b[:1].expand_as(data.b)
    scales = {} if data.a_scale is None else {"a_scale": data.a_scale, "b_scale": data.b_scale}
    gemm.gemm(data.a, shared, data.d, **scales)
    assert operands.wrong(torch, problem, dataclasses.replace(data, b=shared)) is None


def test_samples_of_long_products_have_at_most_a_wave_of_tiles():
    part = next(part for part in sample.PARTS if part.kind == "long")
    for problem in itertools.islice(sample.products(part, 7), 20):
        assert problem.m > 64
        assert -(-problem.m // 128) * -(-problem.n // 128) <= sample.ONE_WAVE
        assert problem.k >= sample.LONG


# Rows of D that do not begin at sectors of memory.


def slowed(configs: list[DenseConfig], problem: Asked) -> list[float]:
    """How many times as long configurations take for sectors that two copies write half each."""
    costs, sizes = of_card(H100), Sizes.of(problem)
    seen = Columns.of(configs, H100, costs)
    return partly_written(costs.memory, sizes, seen, estimate(costs, sizes, seen)).tolist()


def test_stores_cost_more_where_copies_end_within_sectors():
    half, whole = asked(1500, 1016, 136, batches=40), asked(1500, 1008, 136, batches=40)
    operands = half.operands
    wide, narrow, narrowest = (DenseConfig(operands, Tile(192, columns)) for columns in (128, 160, 176))
    low = DenseConfig(operands, Tile(64, 128), schedule=Pingpong())
    swapped, deep = DenseConfig(operands, Tile(192, 176), swap_ab=True), asked(1500, 1016, 8000, batches=40)
    of_low, of_wide, of_narrow, of_narrowest, of_swapped = slowed([low, wide, narrow, narrowest, swapped], half)
    assert 1.0 < of_low < of_wide < of_narrow < of_narrowest
    assert of_swapped < of_narrow                                       # its boxes are 64 columns of D
    assert of_narrowest > 1.1
    assert slowed([wide], deep)[0] < of_wide                            # whose time is not that of its stores
    assert slowed([low, wide, narrowest], whole) == [1.0, 1.0, 1.0]
    alone = DenseConfig(asked(1500, 1016, 136).operands, Tile(192, 176))
    assert slowed([alone], asked(1500, 1016, 136)) == [1.0]             # not measured


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_shallow_batches_of_such_rows_are_stored_in_whole_lines(layout):
    for batches, m, n, k in ((91, 2608, 1544, 136), (60, 1104, 2328, 160), (16, 2840, 1528, 168), (12, 424, 296, 192)):
        config = heuristic(asked(m, n, k, layout=layout, batches=batches), H100)
        assert config.staged
        assert config.swap_ab or config.tile.BN % 64 == 0, config
        if m * n * batches > 50_000_000:
            assert config.tile.BM <= 128, config
