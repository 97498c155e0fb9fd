"""Batches are computed right: as one product where they are one, by every way to share out their tiles, and however many there are."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Cooperative, Pingpong, SplitK, Static, StreamK, Swizzle, Tile
from ptxkit.gemm.launch.dense import Zeros
from ptxkit.gemm.launch.grid import Grid
from ptxkit.gemm.launch.on_cpu import view_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.problem.dense import Arrays, Options
from ptxkit.gemm.problem.dense import Problem as Asked
from ptxkit.gemm.problem.folded import folded
from ptxkit.gemm.problem.matmul import products
from ptxkit.gemm.scheduler.work import TileDivmod
from ptxkit.gemm.tools.bench import operands, shapes
from ptxkit.gemm.tools.bench.baselines import our_launch
from ptxkit.gemm.tools.problems import asked
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.types import f16, f32
from tests.ptxkit.machine import run, stored

from .test_scheduler import scheduled, shape_of, size_of, works

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


@pytest.mark.parametrize(("a", "b", "out", "wanted"), [
    ((2, 128, 512), (512, 384), (2, 128, 384), (None, 256, 384)), ((4, 3, 1, 512), (512, 384), (4, 3, 1, 384), (None, 12, 384)),
    ((7, 512), (5, 512, 384), (5, 7, 384), (5, 7, 384)),
    ((7, 512), (5, 512, 1), (5, 7, 1), (None, 5, 7)), ((1, 7, 512), (1, 512, 384), (1, 7, 384), (None, 7, 384))])
def test_batches_that_torch_broadcasts_are_one_product_where_they_can_be(a, b, out, wanted):
    one, = products(Arrays(*(ArrayView(0, shape, contiguous_strides(shape), "bf16", 0, "other") for shape in (a, b, out))))
    problem = Asked(folded(one))
    assert (problem.batches, problem.m, problem.n) == wanted


def major(array: np.ndarray) -> str:
    return "k" if array.strides[-1] == array.itemsize else "mn"


def expected(a, b, out, bias=None, c=None, beta=0.0, activation=None, residual=None) -> np.ndarray:
    found = a.astype(np.float64) @ b.astype(np.float64)
    for array, factor in ((c, beta), (bias, 1.0)):
        found = found + factor * array.astype(np.float64) if array is not None else found
    found = np.maximum(found, 0) if activation == "relu" else found
    return found if residual is None else found + residual


# Their tiles.


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


# On a GPU.


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
