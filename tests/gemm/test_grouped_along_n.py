"""Grouped products whose weights are contiguous along N, [G, K, N]: read as they lie, for the gradients of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import GroupedConfig, GroupOperands, StagedGroups, StaticGroups, SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Cooperative, Direct, Pingpong, Tile
from ptxkit.gemm.heuristic.grouped import heuristic, untaught
from ptxkit.gemm.launch.group_kernels import kernel_of
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import bf16, e4m3, f16
from tests.gemm.groups import view

BF16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
pytestmark = pytest.mark.pure
OPERANDS = GroupOperands(bf16, bf16, bf16, max_groups=32, w_major="mn")


def off(lengths: list[int], n: int, k: int, *, layout: str = "cu_seqlens", out: Any = BF16, gather: bool = False,
        config: GroupedConfig | None = None, rows_apart: int = 0, **more: Any) -> tuple[str, float]:
    """What the checker says, and the largest error in units of what is allowed; rows of no group hold NaN and are not written."""
    rng = np.random.default_rng(sum(lengths) + n + k)
    groups, longest = len(lengths), max(lengths) + 2
    starts = np.arange(groups) * longest if layout == "masked" else np.concatenate([[0], np.cumsum(lengths)])[:groups]
    rows = groups * longest if layout == "masked" else sum(lengths) + 3
    x = np.full((rows, k), np.nan, np.float32)
    for start, length in zip(starts, lengths, strict=True):
        x[start:start + length] = rng.standard_normal((length, k))
    x = x.astype(BF16)
    whole = np.full((groups, k, n + rows_apart), np.nan, np.float32).astype(BF16)
    w = whole[:, :, :n]
    w[...] = rng.standard_normal(w.shape).astype(BF16)
    y, given = np.full((rows, n), np.nan, np.float32).astype(out), np.array([*starts, sum(lengths)], np.int32)
    source, order = x, np.arange(rows, dtype=np.int32)
    if gather:
        order = rng.permutation(rows).astype(np.int32)
        source = np.empty_like(x)
        source[order] = x
        more["gather"] = order
    shaped = [each.reshape(groups, longest, -1) if layout == "masked" else each for each in (source, y)]
    lengths_given = np.array(lengths, np.int32) if layout == "masked" else given
    report = simulate(shaped[0], w.swapaxes(1, 2), lengths_given, shaped[1], layout=layout,  # type: ignore[arg-type]
                      config=config, card=H200.with_sms(4), **more)
    worst, outside = 0.0, np.ones(rows, bool)
    for group, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        if not length:
            continue
        outside[start:start + length] = False
        one, other = x[start:start + length].astype(np.float64), w[group].astype(np.float64)
        exact, size = one @ other, abs(one) @ abs(other)
        unit = 2.0 ** -8 if y.dtype == BF16 else 2.0 ** -24
        share = abs(y[start:start + length].astype(np.float64) - exact) / (size * (16 + k ** 0.5) * 2.0 ** -23 + 1.02 * unit * abs(exact))
        worst = max(worst, float(np.where(np.isnan(share), np.inf, share).max()))
    assert np.isnan(y[outside].astype(np.float64)).all()
    return report.verdict, worst


def config(tile: Tile, *, tokens: TokensAsRows | SwapAB | None = None, schedule: Any = None, cluster: ClusterShape | None = None,
           store: Any = None, operands: GroupOperands = OPERANDS) -> GroupedConfig:
    return GroupedConfig(operands, tokens or TokensAsRows(), tile, schedule=schedule or Cooperative(),
                         scheduler=StaticGroups(cluster=cluster or ClusterShape()), store=store)


CONFIGS = [config(Tile(128, 128)), config(Tile(128, 256), cluster=ClusterShape(2, 1)), config(Tile(64, 64), store=Direct()),
           config(Tile(128, 64), schedule=Pingpong()), config(Tile(128, 192), tokens=TokensAsRows(True, 32)),
           config(Tile(128, 64), store=StagedGroups(2, "tensormap")), config(Tile(192, 64, 128), cluster=ClusterShape(1, 2)),
           config(Tile(128, 64), tokens=SwapAB(16)), config(Tile(64, 32), tokens=SwapAB(), cluster=ClusterShape(1, 2)),
           config(Tile(256, 64), tokens=SwapAB(32, True)), config(Tile(128, 16), tokens=SwapAB(), schedule=Pingpong())]


@pytest.mark.parametrize("made", CONFIGS, ids=str)
@pytest.mark.thinned(2)
def test_every_kind_of_tile_reads_weights_as_they_lie(made: GroupedConfig) -> None:
    verdict, share = off([70, 0, 5], made.features + 8, 88, config=made)
    assert verdict == "clean"
    assert share <= 1


@pytest.mark.parametrize("more", [{"layout": "masked"}, {"gather": True}, {"out": np.float32}, {"rows_apart": 24}], ids=str)
def test_layouts_and_strides(more: dict[str, Any]) -> None:
    verdict, share = off([9, 0, 66], 72, 40, **more)
    assert verdict in ("clean", "incomplete")
    assert share <= 1


def test_rows_of_results_that_are_scattered() -> None:
    """The same bits as of weights that are contiguous along K."""
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((20, 64)).astype(np.float16), rng.standard_normal((2, 64, 72)).astype(np.float16)
    found = [np.zeros((20, 72), np.float16) for _ in range(2)]
    order = rng.permutation(20).astype(np.int32)
    for out, weights in zip(found, (w.swapaxes(1, 2), np.ascontiguousarray(w.swapaxes(1, 2))), strict=True):
        simulate(x, weights, np.array([0, 7, 20], np.int32), out, scatter=order, card=H200.with_sms(4))
    assert (found[0] == found[1]).all()
    assert abs(found[0]).max() > 1


def problem(mean: int, n: int, k: int, groups: int = 8, *, along_n: bool = True, gated: bool = False, **more: Any) -> GroupProblem:
    rows = groups * mean
    w = view("bf16", groups, n, k, strides=(n * k, 1, n)) if along_n else view("bf16", groups, n, k)
    out = view("bf16", rows, n // (1 + gated))
    return GroupProblem(GroupArrays(view("bf16", rows, k), w, view("s32", groups + 1), out), GroupOptions(gated=gated, **more))


@pytest.mark.parametrize("mean", [1, 6, 16, 40, 100, 300, 1000, 4096])
@pytest.mark.parametrize("invariant", [False, True])
def test_the_heuristic_has_tiles_for_them(mean: int, invariant: bool) -> None:
    """Without trees the choice is that of weights that are contiguous along K. Every tile has a multiple of 64 features, also where those
    have narrower ones, and where trees choose."""
    for n, k in ((4096, 7168), (7168, 2048), (72, 64)):
        asked = problem(mean, n, k, batch_invariant=invariant)
        assert asked.w_major == "mn"
        chosen = untaught(asked)
        for each in (chosen, heuristic(asked)):
            assert each.operands == asked.operands
            assert each.features % 64 == 0
        other = untaught(problem(mean, n, k, along_n=False, batch_invariant=invariant))
        assert str(chosen) == str(other) or (n, k) == (72, 64)


@pytest.mark.ptxas
def test_nothing_spills() -> None:
    for made in (config(Tile(128, 256), cluster=ClusterShape(2, 1)), config(Tile(256, 192), tokens=SwapAB(16)), config(Tile(192, 128))):
        found = assemble(kernel_of(made).trace(**made.parameters).ptx())
        assert [each.spill_stores for each in found.resources.values()] == [0]
        assert "serialized" not in found.log


def test_what_cannot_be_is_said_in_one_sentence() -> None:
    for wrong, sentence in (({"w": e4m3, "x": e4m3}, "wgmma transposes 16-bit types only"), ({"gated": True}, "no gate"),
                            ({"layout": "ptr_array"}, "one matrix for all groups"), ({"w_major": "n"}, "w_major is k or mn")):
        with pytest.raises(ConfigError, match=sentence) as raised:
            GroupOperands(**{"w_major": "mn", **wrong})  # type: ignore[arg-type]
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(ConfigError, match="a multiple of 64 features, not 72"):
        config(Tile(128, 72))
    with pytest.raises(LaunchError, match="its last extent must be contiguous"):
        problem(64, 128, 64, gated=True)
    x, lengths, out = view("bf16", 16, 64), view("s32", 3), view("bf16", 16, 44)
    with pytest.raises(LaunchError, match="all but the contiguous one are multiples of 8"):
        GroupProblem(GroupArrays(x, view("bf16", 2, 44, 64, strides=(44 * 64, 1, 44)), lengths, out))
    with pytest.raises(LaunchError, match="its last extent must be contiguous"):
        GroupProblem(GroupArrays(view("e4m3", 16, 64), view("e4m3", 2, 48, 64, strides=(48 * 64, 1, 48)), lengths, view("bf16", 16, 48)))
    half = GroupOperands(f16, f16, f16, max_groups=32)
    of_halves = view("f16", 16, 64), view("f16", 2, 48, 64, strides=(48 * 64, 1, 48)), lengths, view("f16", 16, 48)
    with pytest.raises(LaunchError, match="its w_major is k, the arguments need mn"):
        check_config(GroupedConfig(half, tile=Tile(64, 64)), GroupProblem(GroupArrays(*of_halves)))
