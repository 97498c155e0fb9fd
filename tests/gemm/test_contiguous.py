"""Contiguous groups, which are filled up to blocks of 128 rows: padding is left out or multiplied, and rows of groups are right."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, StaticGroups, SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import ClusterShape, Cooperative, Pingpong, Tile
from ptxkit.gemm.heuristic.group_tile import GroupTile
from ptxkit.gemm.heuristic.grouped import SHORT, alone, untaught
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.scheduler.group_table import CONTIGUOUS_ROWS, MOST_CONTIGUOUS, PIECE
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import array
from tests.gemm.groups import of_blocks

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure
BF16 = ml_dtypes.bfloat16
TILES = {"a warpgroup": GroupTile(Tile(64, 64)), "two": GroupTile(Tile(128, 96)),
         "a counter": GroupTile(Tile(128, 64), scheduler=DynamicGroups()),
         "columns of tokens": GroupTile(Tile(128, 64), Cooperative(), tokens=SwapAB(16))}
PAIRS = {"cooperative": GroupTile(Tile(128, 64), scheduler=StaticGroups(cluster=ClusterShape(1, 2))),
         "pingpong": GroupTile(Tile(128, 32), Pingpong(), scheduler=StaticGroups(cluster=ClusterShape(1, 2))),
         "half a block": GroupTile(Tile(64, 96), scheduler=StaticGroups(cluster=ClusterShape(1, 2)))}


def configured(tile: GroupTile, left_out: bool, tail: int, problem: GroupProblem) -> GroupedConfig:
    """The tile for a problem. `left_out`: without padding, of which a copy loads the last rows `tail` at a time."""
    found = alone(tile, problem)
    assert found is not None
    if tile.swap_ab:
        return replace(found, tokens=SwapAB(16, left_out))
    return replace(found, tokens=TokensAsRows(True, tail) if left_out else TokensAsRows())


def drawn(source: random.Random) -> list[int]:
    """Lengths about pieces and blocks, and of no rows."""
    return [source.choice((0, 1, PIECE - 1, PIECE, PIECE + 1, 64, 65, 127, 128, 129, source.randrange(300))) for _ in range(4)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("kind", [{"dtype": "bf16"}, {"dtype": "bf16", "gated": True}, {"dtype": "e4m3", "scales": "group"}], ids=str)
@pytest.mark.parametrize("name", TILES)
def test_padding_is_left_out_in_pieces_or_multiplied(name: str, kind: dict[str, Any], left_out: bool) -> None:
    """`example` compares the rows of groups, and of padding as far as it is multiplied; all others must be as they were."""
    source = random.Random(f"{name} {kind}")
    tile = TILES[name]
    tails = (0,) if tile.swap_ab else (32, 16) if tile.tile.BM == 64 else (0, 32, 16)
    for tail in tails if left_out else (0,):
        share, report, config = example(drawn(source), 136 if "gated" not in kind else 256, 208, layout="contiguous", card=H200.with_sms(2),
                                        configure=functools.partial(configured, tile, left_out, tail), **kind)
        assert share <= 1, config
        assert report.findings == report.reasons, str(report)


@pytest.mark.parametrize("kind", [{"dtype": "bf16"}, {"dtype": "bf16", "gated": True}, {"dtype": "e4m3", "scales": "block"}], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_two_ctas_share_the_rows_of_a_block(name: str, kind: dict[str, Any]) -> None:
    """An odd number of tiles along the weights, groups that end between two blocks, and blocks without a group."""
    if "scales" in kind and name == "pingpong":
        pytest.skip("promoted sums have no pingpong")
    source = random.Random(f"{name} {kind}")
    for n in (136, 200) if "gated" not in kind else (256, 320):
        share, report, config = example(drawn(source), n, 208 if kind["dtype"] == "bf16" else 384, layout="contiguous",
                                        card=H200.with_sms(4), configure=functools.partial(configured, PAIRS[name], False, 0), **kind)
        assert config.cluster == 2
        assert share <= 1, config
        assert report.findings == report.reasons, str(report)


@pytest.mark.parametrize("gated", [False, True])
def test_padding_of_blocks_with_block_scales_is_left_out(gated: bool) -> None:
    """Short groups have tiles that do, longer ones do not."""
    source = random.Random(str(gated))
    for mean in (None, 512):
        share, report, config = example(drawn(source), 256, 384, dtype="e4m3", scales="block", gated=gated, layout="contiguous",
                                        mean_tokens=mean, card=H200.with_sms(2))
        assert share <= 1, config
        assert report.findings == report.reasons, str(report)
        assert config.tokens.partial_boxes == (mean is None)


def test_rows_of_groups_have_the_same_bits_with_padding_and_without() -> None:
    rows, lengths = 3 * CONTIGUOUS_ROWS, (5, 70, 128)
    source = np.random.default_rng(3)
    x, w = (source.standard_normal(shape, np.float32).astype(BF16) for shape in ((rows, 192), (3, 72, 192)))
    of_row = np.full(rows, -1, np.int32)
    for group, length in enumerate(lengths):
        of_row[group * CONTIGUOUS_ROWS:][:length] = group
    written = []
    for left_out in (False, True):
        y = np.full((rows, 72), np.nan, BF16)
        problem = GroupProblem(GroupArrays(array("bf16", *x.shape), array("bf16", *w.shape), array("s32", rows), array("bf16", *y.shape)),
                               GroupOptions("contiguous"))
        config = configured(TILES["two"], left_out, 32 * left_out, problem)
        assert simulate(x, w, of_row, y, layout="contiguous", config=config, card=H200.with_sms(2)).verdict == "clean"
        written.append(y)
    assert (written[0].view(np.uint16)[of_row >= 0] == written[1].view(np.uint16)[of_row >= 0]).all()
    assert not np.isnan(written[0].astype(np.float32)).any()
    used = np.concatenate([np.arange(CONTIGUOUS_ROWS) < -(-length // PIECE) * PIECE for length in lengths])
    assert (np.isnan(written[1].astype(np.float32)).any(axis=1) == ~used).all()


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize(("last", "used"), [(1, 1), (40, 40), (100, 100), (100, 30), (70, 65)])
def test_the_last_block_may_be_short(name: str, left_out: bool, last: int, used: int) -> None:
    """There are as many numbers of groups as rows: a kernel must not read further. The last rows of the block may be padding."""
    rows = CONTIGUOUS_ROWS + last
    source = np.random.default_rng(last)
    x, w = (source.standard_normal(shape, np.float32).astype(BF16) for shape in ((rows, 64), (2, 64, 64)))
    of_row = np.repeat(np.array([1, 0, -1], np.int32), [CONTIGUOUS_ROWS, used, last - used])
    y = np.full((rows, 64), np.nan, BF16)
    problem = GroupProblem(GroupArrays(array("bf16", *x.shape), array("bf16", *w.shape), array("s32", rows), array("bf16", *y.shape)),
                           GroupOptions("contiguous"))
    tail = 32 if left_out and TILES[name].tile.BM == 64 else 0
    config = configured(TILES[name], left_out, tail, problem)
    report = simulate(x, w, of_row, y, layout="contiguous", config=config, card=H200.with_sms(1))
    assert report.verdict == "clean", str(report)
    exact = np.concatenate([part.astype(np.float32) @ w[group].astype(np.float32).T
                            for part, group in ((x[:CONTIGUOUS_ROWS], 1), (x[CONTIGUOUS_ROWS:], 0))])
    np.testing.assert_allclose(y[of_row >= 0].astype(np.float32), exact[of_row >= 0], rtol=0.02, atol=0.2)


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("name", TILES)
def test_a_block_whose_first_row_has_no_group_is_skipped(name: str, left_out: bool) -> None:
    """Whatever its other rows say. In another block those after a piece without one belong to the group of its first row, too."""
    source = np.random.default_rng(1)
    x, w = (source.standard_normal(shape, np.float32).astype(BF16) for shape in ((2 * CONTIGUOUS_ROWS, 64), (2, 64, 64)))
    of_row = np.zeros(2 * CONTIGUOUS_ROWS, np.int32)
    of_row[0], of_row[CONTIGUOUS_ROWS], of_row[CONTIGUOUS_ROWS + PIECE:][:PIECE] = -1, 1, -1
    y = np.full((2 * CONTIGUOUS_ROWS, 64), np.nan, BF16)
    problem = of_blocks(2, 2, 64, 64, "bf16")
    config = configured(TILES[name], left_out, 32 if left_out and TILES[name].tile.BM == 64 else 0, problem)
    simulate(x, w, of_row, y, layout="contiguous", config=config, card=H200.with_sms(1))
    assert np.isnan(y[:CONTIGUOUS_ROWS].astype(np.float32)).all()
    used = of_row[CONTIGUOUS_ROWS:] >= 0
    exact = x[CONTIGUOUS_ROWS:].astype(np.float32) @ w[1].astype(np.float32).T
    np.testing.assert_allclose(y[CONTIGUOUS_ROWS:][used].astype(np.float32), exact[used], rtol=0.02, atol=0.2)


def test_groups_are_as_many_as_a_word_has_room_for() -> None:
    """The same word also says how many pieces of rows a block uses."""
    assert of_blocks(2, MOST_CONTIGUOUS, 8, 64, "bf16").groups == MOST_CONTIGUOUS
    with pytest.raises(LaunchError, match=r"268,435,457 groups: .* take group_gemm with cu_seqlens"):
        of_blocks(2, MOST_CONTIGUOUS + 1, 8, 64, "bf16")


def test_short_groups_have_tiles_that_leave_padding_out_and_long_ones_have_not() -> None:
    """Without trees. Pingpong warpgroups cannot, and a single warpgroup needs tail rows, which shallow products have not."""
    source = random.Random(5)
    left_out = 0
    for _ in range(400):
        kind, gated, groups = source.choice(("bf16", "fp8", "fp8-block")), source.random() < 0.3, source.randrange(1, 64)
        n, k = 256 * source.randrange(1, 20), 128 * source.randrange(1, 40)
        problem = of_blocks(source.randrange(1, 4 * groups + 1), groups, n, k, kind, gated)
        config = untaught(problem)
        short = problem.mean <= SHORT
        assert not (short and isinstance(config.schedule, Pingpong))
        assert config.tokens.partial_boxes <= short
        if short and config.tile.BM == CONTIGUOUS_ROWS:
            assert config.tokens.partial_boxes
            left_out += 1
        assert isinstance(config.scheduler, StaticGroups) or kind == "fp8-block"
    assert left_out > 50
