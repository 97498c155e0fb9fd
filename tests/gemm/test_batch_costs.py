"""What the model says of batches, and what is chosen for them."""

from __future__ import annotations

import dataclasses

import pytest

from ptxkit.cards import H100, H200
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import Pingpong, Tile
from ptxkit.gemm.heuristic.corrections import partly_written
from ptxkit.gemm.heuristic.costs import SWAPPED, Columns, Costs, Parts, Sizes, estimate, factor, of_card, structure
from ptxkit.gemm.heuristic.dense import NOT_MEASURED, by_waves, candidates, heuristic, judged
from ptxkit.gemm.launch.dense import card_of, check_config, compiled
from ptxkit.gemm.launch.grid import Grid, kernel_of
from ptxkit.gemm.problem.dense import Arrays
from ptxkit.gemm.problem.dense import Problem as Asked
from ptxkit.gemm.tools.bench.shapes import Problem, drawn
from ptxkit.gemm.tools.problems import asked, described
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import bf16


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


def test_what_no_fit_has_seen_is_held_back_until_one_has(monkeypatch):
    """Without a factor a structure has that of the next widths times NOT_MEASURED; with one it has that."""
    problem = asked(154, 1048, 1768, batches=42)
    place, chosen = next(pair for pair in judged(problem, H200).fastest_first() if pair[1].tile.BM == 192)
    name, own = structure(chosen), of_card(H200)
    unseen = dataclasses.replace(own, factors={word: value for word, value in own.factors.items() if word not in
                                               (name, name.removesuffix(SWAPPED))})
    beside = factor(unseen.factors, name)
    without = told(problem, chosen, unseen).total[0] / beside
    given = dataclasses.replace(own, factors={**own.factors, name: 0.9})
    for number, (costs, times) in enumerate(((unseen, NOT_MEASURED * beside), (given, 0.9))):
        card = dataclasses.replace(H200, name=f"another {number}")
        with monkeypatch.context() as patched:
            patched.setattr("ptxkit.gemm.heuristic.dense.of_card", lambda card, costs=costs: costs)
            assert judged(problem, card).parts.total[place] == pytest.approx(times * without)
    short, deep = (DenseConfig(Operands(batched=True), Tile(64, 32), stages) for stages in (4, 0))
    assert structure(short) == structure(deep) + " short ring"


# On a GPU.


@pytest.mark.gpu
def test_the_card_holds_as_many_ctas_of_short_rings_as_the_model_says():
    card = card_of(0)
    config = heuristic(asked(16, 16, 64, batches=4096), card)
    said = Columns.of([config], card, of_card(card)).resident[0]
    assert compiled(kernel_of(config), 0, **config.parameters).max_clusters() >= said > card.sms


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
