"""What is recorded as chosen is chosen, and takes less time than what was chosen before: products that set no limit of the heuristic,
but for two factors of block scales."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

import pytest

from ptxkit.cards import H200
from ptxkit.gemm.config.grouped_k import GroupedKConfig
from ptxkit.gemm.config.parts import Cooperative
from ptxkit.gemm.heuristic import dense, grouped, grouped_k, grouped_k_causes
from ptxkit.gemm.problem.grouped_k import ProblemAlongK
from ptxkit.gemm.scheduler.group_table import CONTIGUOUS_ROWS
from ptxkit.gemm.tools.bench.grouped_cases import case
from ptxkit.gemm.tools.bench.shapes import problem
from ptxkit.gemm.tools.problems import described
from tests.gemm.groups import along_k, by_number, of_blocks, results

pytestmark = pytest.mark.pure
MEASURED = "2026-11-30-h200-choices.json"
NUMBERS: dict[str, Any] = {"gathered": "gather", "scattered": "scatter", "quantised": ""}


def rows(section: str) -> list[Any]:
    return list(results(MEASURED)[section]["rows"])


def mean(values: Any) -> float:
    return geometric_mean(list(values))


def test_few_tiles_of_rows_by_number_and_of_quantised_results() -> None:
    found = rows("groups")
    for what, word, _, _, _, tile in found:
        config = grouped.heuristic(by_number(case(word), NUMBERS[what]))
        said = f"{config.tile.BM}x{config.tile.BN}{' pingpong' * ('pingpong' in str(config))}{' counter' * config.dynamic}"
        assert tile in (None, said), word
    for what in ("gathered", "scattered", "quantised"):
        changed = [now / before for which, _, before, now, _, tile in found if which == what and tile]
        assert len(changed) > 15
        assert mean(changed) < 0.96
    assert mean(now / fastest for _, _, _, now, fastest, _ in found) < 1.06
    assert mean(before / fastest for _, _, before, _, fastest, _ in found) > 1.12
    assert sum(now > 1.03 * before for _, _, before, now, _, _ in found) < 0.08 * len(found)


def gradient(shape: str, more: int = 0) -> ProblemAlongK:
    """A weight gradient by groups x mean length x M x N, with so many rows more."""
    groups, length, m, n = map(int, shape.split("x"))
    return along_k(groups, groups * length + more, m, n)


def words(config: GroupedKConfig) -> str:
    return f"{config.tile.BM}x{config.tile.BN} {config.scheduler.cluster.m}x{config.scheduler.cluster.n}"


def test_weight_gradients() -> None:
    """Lengths that differ gain more than groups that are alike lose, and none takes longer than torch."""
    found = rows("along k")
    assert all(words(grouped_k_causes.untaught(gradient(shape))) == tile for shape, *_, tile in found)
    assert min(torch / now for *_, now, _, torch, _ in found) > 1.06
    alike, differ = ([now / before for _, lengths, before, now, *_ in found if lengths == what] for what in ("even", "skewed"))
    assert mean(alike) < 1.01
    assert mean(differ) < 0.97


def test_groups_that_differ_decide_where_one_is_long() -> None:
    """16 groups of 848 x 736 have 12 tiles of 256 x 192 each: with lengths like 1, 1/2, 1/3 those of the longest take most of the time."""
    config = grouped_k_causes.untaught(gradient("16x1384x848x736"))
    assert config.tile.BM * config.tile.BN < 256 * 192
    alone = gradient("1x22144x848x736")
    usual = [one for one in grouped_k_causes.candidates(alone) if isinstance(one.schedule, Cooperative)]
    assert grouped_k.whole(alone) == min(usual, key=lambda one: grouped_k_causes.clocks(alone, one))
    assert grouped_k.heuristic(alone).part                                  # its 22,144 rows have few tiles: CTAs share them


@pytest.mark.parametrize("shape", ["4x1870x1360x184", "8x723x1008x2832", "26x2520x144x888", "61x224x696x344"])
def test_a_few_rows_more_are_no_other_weight_gradient(shape: str) -> None:
    """A model's rows change from call to call, and each choice is another kernel. A mean that is a step of the rounding has a choice of its
    own: a few rows more are rounded up."""
    chosen = {grouped_k.heuristic(gradient(shape, more)) for more in range(1, 25)}
    assert len(chosen) == 1


def test_dense_products_with_block_scales() -> None:
    found = rows("block scales")
    for shape, _, _, _, _, tile in found:
        config = dense.heuristic(described(problem(f"{shape}:e4m3-block:nt")), H200)
        assert f"{config.tile.BM}x{config.tile.BN} {config.splits}" == tile, shape
    assert mean(now / before for _, before, now, *_ in found) < 0.97
    assert mean(now / fastest for _, _, now, fastest, *_ in found) < 1.03
    assert all(torch > now for _, _, now, _, torch, _ in found if torch)


def test_large_products_with_block_scales() -> None:
    found = rows("large block scales")
    for shape, _, _, _, _, tile in found:
        config = dense.heuristic(described(problem(f"{shape}:e4m3-block:nt")), H200)
        assert f"{config.tile.BM}x{config.tile.BN}" == tile, shape
    assert mean(now / fastest for _, _, now, fastest, *_ in found) < 1.01
    assert max(now / fastest for _, _, now, fastest, *_ in found) < 1.07
    assert min(torch / now for _, _, now, _, torch, _ in found if torch) > 1.05


def test_contiguous_groups() -> None:
    """Blocks as the bench fills the lengths of a case up to them; without trees, which came later."""
    found = rows("contiguous")
    for word, _, _, _, tile in found:
        one = case(word)
        blocks = sum(-(-length // CONTIGUOUS_ROWS) for length in one.lengths)
        config = grouped.untaught(of_blocks(blocks, one.groups, one.n, one.k, one.kind, one.gated))
        words = " pingpong" * ("pingpong" in str(config)) + " counter" * config.dynamic + " whole" * (not config.tokens.partial_boxes)
        assert f"{config.tile.BM}x{config.tile.BN}{words}" == tile, word
    for kind, most in (("bf16", 0.9), ("fp8", 0.93), ("fp8-block", 0.91)):
        assert mean(now / before for word, before, now, *_ in found if case(word).kind == kind) < most
    assert mean(before / fastest for _, before, _, fastest, _ in found) > 1.12
    assert mean(now / fastest for _, _, now, fastest, _ in found) < 1.03
    assert max(now / before for _, before, now, *_ in found) < 1.2


def test_products_of_few_columns() -> None:
    found = rows("few columns")
    for shape, _, _, _, tile in found:
        config = dense.heuristic(described(problem(shape)), H200)
        assert f"{config.tile.BM}x{config.tile.BN} {config.splits}{' swapped' * config.swap_ab}" == tile, shape
    assert mean(now / before for _, before, now, *_ in found) < 0.95
    assert max(now / before for _, before, now, *_ in found) < 1.04
