"""The forward kernel on the CPU device: within the derived bound of float64, and proven for every schedule."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ptxkit
from ptxkit import attention
from ptxkit.attention import heuristic as choice
from ptxkit.attention.collective.softmax import LazySoftmax
from ptxkit.attention.config.forward import HEADS, ForwardConfig
from ptxkit.attention.heuristic import heuristic, order
from ptxkit.attention.kernels.decode import decode
from ptxkit.attention.kernels.forward import forward
from ptxkit.attention.launch.simulate import simulate
from ptxkit.attention.problem.forward import Arrays, Options, Problem
from ptxkit.attention.tools.reference import expected, narrowed, widened
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.config.parts import ConfigError, Direct
from ptxkit.gemm.launch.dense import kernel_of
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.toolchain import disassemble
from ptxkit.types import TYPES, f16

from .cases import NAN, Case

SMALL = ForwardConfig(64, 128, 48, buffers=1, lse=True)


def shipped() -> list[ForwardConfig]:
    """What the heuristic gives for every head dim, mask, packing and type."""
    found = []
    for head in HEADS:
        for causal in (False, True):
            for type_ in ("bf16", "f16"):
                for packed in (False, True):
                    q = ArrayView(0, (4096, 4, head) if packed else (1, 4, 4096, head),
                                  (4 * head, head, 1) if packed else (4 * 4096 * head, 4096 * head, head, 1), type_, 0, "other")
                    lse = ArrayView(0, (4, 4096) if packed else (1, 4, 4096), (4096, 1) if packed else (16384, 4096, 1), "f32", 0, "other")
                    cu = ArrayView(0, (3,), (1,), "s32", 0, "other") if packed else None
                    found.append(heuristic(Problem.of(Arrays(q, q, q, q, lse, cu), Options(causal))))
    return found


CASES: list[tuple[Case, bool, ForwardConfig]] = [
    (Case(1, 2, 1, 200, 150, 64), False, SMALL),
    (Case(1, 2, 1, 130, 300, 64, growth=6), True, replace(SMALL, causal=True)),
    (Case(2, 2, 2, 70, 33, 64, axes=(0, 2, 1, 3), growth=0.1), False, replace(SMALL, overlap=False)),
    (Case(1, 3, 3, 257, 130, 64, axes=(2, 0, 1, 3)), True, replace(SMALL, BM=192, causal=True, pingpong=False)),
    (Case(1, 1, 1, 100, 161, 128, growth=4), True, ForwardConfig(128, 128, 80, causal=True, lse=True)),
    (Case(1, 1, 1, 1, 16, 128), False, ForwardConfig(128, 128, 16, stages=3, lse=True)),
    (Case(1, 1, 1, 129, 70, 256), True, ForwardConfig(256, 128, 32, causal=True, lse=True, pingpong=False)),
    (Case(1, 1, 1, 66, 110, 64, growth=6), False, replace(SMALL, slack=True, stages=3)),
    (Case(1, 2, 1, 130, 100, 64, type="f16"), True, replace(SMALL, type=f16, causal=True, stages=2)),
]


@pytest.mark.thinned(2)
@pytest.mark.pure
@pytest.mark.parametrize(("case", "causal", "config"), CASES, ids=[str(config) for *_, config in CASES])
def test_attention_is_softmax(case: Case, causal: bool, config: ForwardConfig) -> None:
    report = case.run(causal=causal, config=config)
    assert report.verdict == "clean", report
    assert report.every_schedule, report
    assert max(case.shares(causal=causal)) <= 1


@pytest.mark.pure
@pytest.mark.thinned(6)
@pytest.mark.parametrize("config", [config for config in shipped() if not config.packed], ids=str)
def test_a_shipped_configuration_is_certified(config: ForwardConfig) -> None:
    """Two tiles of queries, and more keys than the ring has stages."""
    case = Case(1, 2, 1, config.BM + 9, config.BN * 3 - 7, config.head, type=config.type.__name__)
    report = case.run(causal=config.causal, config=config)
    assert (report.verdict, report.every_schedule) == ("clean", True), report
    assert max(case.shares(causal=config.causal)) <= 1


@pytest.mark.pure
@pytest.mark.filterwarnings("ignore:invalid value")        # -inf times 0, in the reference
@pytest.mark.parametrize("slack", [False, True])
@pytest.mark.parametrize("hidden", [96, 210])
@pytest.mark.parametrize("scale", [0.125, 1.0, 3.7])
def test_blocks_of_scores_of_minus_infinity_come_first(slack: bool, hidden: int, scale: float) -> None:
    """Two blocks of 48 keys, or all. Whatever the scale is, a row keeps the maximum of no keys without a rounding."""
    case = Case(1, 1, 1, 70, 210, 64)
    case.q[..., 0], case.k[..., 0] = 0x3F80, np.where(np.arange(210) < hidden, 0xFF80, 0)
    assert case.run(config=replace(SMALL, slack=slack), scale=scale).verdict == "clean"
    if hidden == 210:
        assert not widened(case.out, "bf16").any()
        assert (case.lse == -np.inf).all()
    else:
        q, k, v = (widened(x, "bf16") for x in (case.q, case.k[:, :, hidden:], case.v[:, :, hidden:]))
        right = expected(q, k, v, "bf16", scale=scale)
        assert (np.abs(widened(case.out, "bf16") - right.out) <= right.out_bound).all()
        assert (np.abs(case.lse - right.lse) <= right.lse_bound).all()


@pytest.mark.pure
@pytest.mark.parametrize("slack", [False, True])
@pytest.mark.parametrize("exponent", [20, 28])
def test_equal_scores_have_equal_weights_however_large(slack: bool, exponent: int) -> None:
    """A maximum that stays scales nothing: values of the first block count as much as those of the last."""
    case = Case(1, 1, 1, 70, 240, 64)
    case.q[...], case.k[...] = narrowed(np.full((70, 64), 1.3 * 2.0**(exponent - 6)), "bf16"), narrowed(np.ones((240, 64)), "bf16")
    case.v[...] = narrowed(np.repeat(np.arange(5.0), 48)[:, None], "bf16")
    assert case.run(config=replace(SMALL, slack=slack), scale=0.83).verdict == "clean"
    assert (widened(case.out, "bf16") == 2).all()


@pytest.mark.pure
@pytest.mark.filterwarnings("ignore:invalid value")        # infinite weights
def test_weights_of_an_old_maximum_are_as_precise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maxima rise by less than the slack, and by more; with more slack than f16 has exponents, weights overflow."""
    case, config = Case(1, 1, 1, 70, 210, 64, type="f16", growth=12), replace(SMALL, type=f16, BN=32, slack=True)
    for growth in (2, 12):
        case = replace(case, growth=growth)
        assert case.run(config=config).verdict == "clean"
        assert max(case.shares()) <= 1
    monkeypatch.setattr(LazySoftmax, "SLACK", 40.0)
    case.run(config=replace(config, stages=5))              # traced with this slack
    assert not max(case.shares()) <= 1


@pytest.mark.pure
def test_a_row_does_not_depend_on_others_of_its_warp() -> None:
    """The others need new maxima, this one does not."""
    found = []
    for factor in (1, 40):
        case = Case(1, 1, 1, 64, 200, 64, type="f16", growth=3)
        others = np.arange(64) != 5
        case.q[:, :, others] = narrowed(factor * widened(case.q, "f16"), "f16")[:, :, others]
        case.run(config=replace(SMALL, type=f16, slack=True))
        found.append((case.out[0, 0, 5].tolist(), float(case.lse[0, 0, 5]), case.out[0, 0, 4].tolist()))
    assert found[0][:2] == found[1][:2]
    assert found[0][2] != found[1][2]


def busiest(problem: Problem, config: ForwardConfig, sms: int, count: int, turning: bool) -> float:
    """The most keys that a CTA goes over, of the mean of all CTAs: tiles of sections of `count` heads, lengths falling in the last one."""
    outer, m_tiles = problem.heads * problem.batches, -(-problem.queries // config.BM)
    sections = [min(count, outer - first) for first in range(0, outer, count)]
    tiles = []
    for number, heads in enumerate(sections):
        falls = (len(sections) - number) % 2 == 1
        tiles += [m for m in (reversed(range(m_tiles)) if falls else range(m_tiles)) for _ in range(heads)]
    keys = [0] * sms
    for index, m in enumerate(tiles):
        turn, place = divmod(index, sms)
        keys[sms - 1 - place if turn % 2 and turning else place] += -(-min(problem.keys, (m + 1) * config.BM) // config.BN) * config.BN
    return max(keys) * sms / sum(keys)


@pytest.mark.pure
@pytest.mark.parametrize("head", HEADS)
def test_causal_tiles_are_dealt_evenly(head: int) -> None:
    for batches, heads, rows in ((1, 16, 16384), (4, 16, 4096), (1, 12, 9000), (2, 40, 5000), (1, 32, 32768), (16, 8, 2048), (1, 1, 80000)):
        shape = (batches, heads, rows, head)
        problem = Problem.of(arrays(q=shape, k=shape, v=shape, out=shape), Options(True))
        config = heuristic(problem)
        for sms in (132, 114):
            assert busiest(problem, config, sms, *order(problem, config, sms, 50 << 20)) < 1.1, (shape, sms)
        if rows == 16384:
            assert busiest(problem, config, 132, 1, True) > 1.05


@pytest.mark.pure
@pytest.mark.parametrize(("heads", "rows"), [(21, 300), (18, 1000), (5, 700)])
def test_the_order_is_the_best_of_all_as_they_are_dealt(heads: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem("bf16", 1, heads, 1, rows, rows, 128, True, 1.0, False, 0, ())
    config = heuristic(problem)
    monkeypatch.setattr(choice, "TILE_KEYS", 0)
    monkeypatch.setattr(choice, "NEARLY", 1.0)
    found = order.__wrapped__(problem, config, 5, 50 << 20)
    times = {(count, turning): busiest(problem, config, 5, count, turning) for count in range(1, heads + 1) for turning in (False, True)}
    assert times[found] == min(times.values())


@pytest.mark.pure
def test_the_orders_of_many_heads_are_not_all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    longest = choice._longest
    monkeypatch.setattr(choice, "_longest", lambda costs, sms: tried.append(sms) or longest(costs, sms))
    problem = Problem("bf16", 125, 16, 16, 256, 256, 128, True, 1.0, False, 0, ())
    assert order.__wrapped__(problem, heuristic(problem), 132, 50 << 20) == (192, True)
    assert len(tried) < 350                             # of 2,000


@pytest.mark.pure
def test_of_equal_causal_tiles_no_order_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short sequences of a large batch have thousands of orders."""
    monkeypatch.setattr(choice, "_longest", None)
    problem = Problem("bf16", 4096, 16, 1, 100, 100, 128, True, 1.0, False, 0, ())
    assert order(problem, heuristic(problem), 132, 50 << 20) == (1, False)


@pytest.mark.pure
def test_other_schedules_leave_the_same_memory() -> None:
    grid, named, chosen = CASES[1][0].proof(causal=True, config=CASES[1][2])
    proof = ptxkit.prove(forward, grid, *(named[name] for name in forward.arguments), schedules=["fifo", ("random", 3)], **chosen)
    assert (proof.verdict, proof.proven, proof.difference) == ("clean", True, None), proof


@pytest.mark.pure
def test_a_scale_is_that_of_the_scores() -> None:
    case = Case(1, 1, 1, 64, 64, 64)
    case.run(scale=0.5, config=SMALL)
    assert max(case.shares(scale=0.5)) <= 1
    assert max(case.shares()) > 10                   # the bound can fail


@pytest.mark.pure
@pytest.mark.filterwarnings("ignore:invalid value")        # infinity minus infinity
@pytest.mark.parametrize(("keys", "causal", "slack"), [(range(48), False, False), (range(48), False, True), (range(90, 100), False, False),
                                                      (range(0, 100, 3), True, False), (range(50), True, True), (range(100), False, False)])
def test_scores_of_minus_infinity_are_those_of_no_keys(keys: range, causal: bool, slack: bool) -> None:
    """Wherever the keys are; a row of no others has zeros and -inf. An infinite or undefined score makes its row NaN, and no other one."""
    case, config = Case(1, 1, 1, 70, 100, 64), replace(SMALL, causal=causal, slack=slack)
    case.q[..., 0] = narrowed(np.ones(70), "bf16")
    case.k[..., list(keys), 0] = narrowed(np.array(-np.inf), "bf16")
    case.q[0, 0, 5, 1] = narrowed(np.array(np.inf), "bf16")
    case.q[0, 0, 9, 1] = NAN["bf16"]
    assert case.run(causal=causal, config=config).verdict == "clean"
    q, k, v = (widened(x, "bf16")[0, 0] for x in (case.q, case.k, case.v))
    others = [i for i in range(70) if i not in (5, 9)]
    assert np.isnan(widened(case.out, "bf16")[0, 0, [5, 9]]).all()
    for row in others:
        there = [j for j in range(row + 1 if causal else 100) if j not in keys]
        own, lse = widened(case.out, "bf16")[0, 0, row], case.lse[0, 0, row]
        if not there:
            assert (own.any(), lse) == (False, -np.inf)
            continue
        right = expected(q[None, None, [row]], k[None, None, there], v[None, None, there], "bf16")
        assert (np.abs(own - right.out[0, 0, 0]) <= right.out_bound[0, 0, 0]).all()
        assert abs(lse - right.lse[0, 0, 0]) <= right.lse_bound[0, 0, 0]


@pytest.mark.thinned(3)
@pytest.mark.pure
@pytest.mark.filterwarnings("ignore:invalid value")        # numbers of the sequence that is not finite
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(70, 1, 0, 130, 33), (0,) * 34 + (40, 20)])
def test_packed_sequences_keep_apart(lengths: tuple[int, ...], causal: bool) -> None:
    """The last sequence is not finite, rows after it belong to none and are not written."""
    heads, kv_heads, spare = 2, 1, 5
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rows = int(starts[-1]) + spare
    generator = np.random.default_rng(1)
    q, k, v = (narrowed(generator.standard_normal((rows, h, 64)), "bf16") for h in (heads, kv_heads, kv_heads))
    k[starts[-2]:], v[starts[-2]:] = 0x7F80, 0x7FC0
    out, lse = np.full(q.shape, NAN["bf16"], np.uint16), np.full((heads, rows), np.nan, np.float32)
    config = replace(SMALL, packed=True, causal=causal)
    report = simulate(q, k, v, out, cu_seqlens=starts, lse=lse, is_causal=causal, enable_gqa=True, dtype="bf16", config=config,
                      card=H200.with_sms(3))
    assert (report.verdict, report.every_schedule) == ("clean", True), report
    for start, end in itertools.pairwise(starts[:-1]):
        if start < end:
            own = [widened(x[start:end], "bf16").swapaxes(0, 1) for x in (q, k, v)]
            right = expected(*own, "bf16", causal=causal)
            assert (np.abs(widened(out[start:end], "bf16").swapaxes(0, 1) - right.out) <= right.out_bound).all()
            assert (np.abs(lse[:, start:end] - right.lse) <= right.lse_bound).all()
    assert (out[starts[-1]:] == NAN["bf16"]).all()
    assert np.isnan(lse[:, starts[-1]:]).all()


@pytest.mark.pure
def test_offsets_past_the_rows_are_cut_off() -> None:
    q = narrowed(np.random.default_rng(2).standard_normal((40, 1, 64)), "bf16")
    out = np.full(q.shape, NAN["bf16"], np.uint16)
    simulate(q, q, q, out, cu_seqlens=np.array([0, 30, 99], np.int32), dtype="bf16", config=replace(SMALL, packed=True, lse=False))
    last = widened(q[30:], "bf16").swapaxes(0, 1)
    right = expected(last, last, last, "bf16")
    assert (np.abs(widened(out[30:], "bf16").swapaxes(0, 1) - right.out) <= right.out_bound).all()


@pytest.mark.pure
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("starts", [(5, 30, 60), (-5, 30, 60), (7, 7, 7), (-1 << 31, (1 << 31) - 1), (0, (1 << 31) - 1), (40, 0, 40),
                                    (50, 20)])
def test_offsets_of_any_value_give_rows_of_the_arrays_or_none(starts: tuple[int, ...], causal: bool) -> None:
    """They are on the device, so nobody has checked them. A sequence that begins below 0 or past its end has no rows."""
    rows = 60
    q = narrowed(np.random.default_rng(3).standard_normal((rows, 1, 64)), "bf16")
    out = np.full(q.shape, NAN["bf16"], np.uint16)
    report = simulate(q, q, q, out, cu_seqlens=np.array(starts, np.int32), dtype="bf16", is_causal=causal,
                      config=replace(SMALL, packed=True, lse=False, causal=causal))
    assert report.verdict == "clean"
    left = np.ones(rows, bool)
    for start, end in itertools.pairwise(starts):
        if 0 <= start < end:
            own = widened(q[start:min(end, rows)], "bf16").swapaxes(0, 1)
            right = expected(own, own, own, "bf16", causal=causal)
            assert (np.abs(widened(out[start:end], "bf16").swapaxes(0, 1) - right.out) <= right.out_bound).all()
            left[start:end] = False
    assert (out[left] == NAN["bf16"]).all()


@pytest.mark.pure
def test_no_keys_give_zeros_and_minus_infinity() -> None:
    q, none = np.ones((1, 1, 4, 64), np.float16), np.ones((1, 1, 0, 64), np.float16)
    out, lse = np.full_like(q, np.nan), np.full((1, 1, 4), np.nan, np.float32)
    simulate(q, none, none, out, lse=lse)
    assert not out.any()
    assert (lse == -np.inf).all()


@pytest.mark.pure
def test_no_static_rule_has_anything_to_say() -> None:
    for config in (CASES[1][2], replace(SMALL, packed=True)):
        assert forward.check(**config.parameters) == ()


@pytest.mark.ptxas
@pytest.mark.thinned(20)
@pytest.mark.parametrize("config", shipped(), ids=str)
def test_a_shipped_configuration_has_no_spills_and_no_serialised_wgmma(config: ForwardConfig) -> None:
    """C7510 and its kin would be findings, and so would a dropped setmaxnreg."""
    assembly = forward.assemble(**config.parameters)
    (entry,) = assembly.resources.values()
    assert (entry.spills, entry.stack, assembly.findings) == (0, 0, ())
    waits = [line for line in disassemble(assembly.cubin).splitlines() if "WARPGROUP.DEPBAR" in line]
    assert len(waits) == 4                          # as written: after the first scores, two in the loop, and at the end


def arrays(**changed: Any) -> Arrays:
    """Views of a call that is right but for what is changed: shapes as tuples, or whole views."""
    made = {}
    for name in ("q", "k", "v", "out"):
        shape = changed.get(name, (1, 4, 100, 64))
        if not isinstance(shape, ArrayView):
            shape = ArrayView(0, shape, tuple(int(np.prod(shape[i + 1:])) for i in range(len(shape))), "bf16", 0, "other")
        made[name] = shape
    return Arrays(**made, lse=changed.get("lse"), cu_seqlens=changed.get("cu_seqlens"))


@pytest.mark.pure
@pytest.mark.parametrize(("changed", "options", "words"), [
    ({"q": (1, 4, 100, 80), "out": (1, 4, 100, 80), "k": (1, 4, 9, 80), "v": (1, 4, 9, 80)}, Options(), "64, 128 and 256"),
    ({"k": (1, 2, 100, 64), "v": (1, 2, 100, 64)}, Options(), "enable_gqa=True"),
    ({"k": (1, 3, 100, 64), "v": (1, 3, 100, 64)}, Options(gqa=True), "divide those of q"),
    ({"k": (1, 4, 90, 64)}, Options(), "one shape"),
    ({"q": (4, 100, 64)}, Options(), "without cu_seqlens"),
    ({"q": (2, 4, 100, 64), "out": (2, 4, 100, 64)}, Options(), "same batches"),
    ({"out": (1, 4, 99, 64)}, Options(), "that of q"),
    ({"v": ArrayView(0, (1, 4, 100, 64), (25600, 6400, 64, 1), "f32", 0, "other")}, Options(), "all bf16 or all f16"),
    ({"q": ArrayView(0, (1, 4, 100, 64), (26000, 6500, 65, 1), "bf16", 0, "other")}, Options(), "q has .* multiples of 16 bytes"),
    ({"q": ArrayView(8, (1, 4, 100, 64), (25600, 6400, 64, 1), "bf16", 0, "other")}, Options(), "q starts at address 0x8"),
    ({"out": ArrayView(0, (1, 4, 100, 64), (25600, 0, 64, 1), "bf16", 0, "other")}, Options(), "out has .* must not overlap"),
    ({"out": ArrayView(0, (1, 4, 100, 64), (25600, 6400, 32, 1), "bf16", 0, "other")}, Options(), "out has .* must not overlap"),
    ({"k": ArrayView(0, (1, 4, 100, 64), (25600, 1 << 39, 64, 1), "bf16", 0, "other")}, Options(), "k has .* less than 2.40 bytes apart"),
    ({"k": (1, 4, 1 << 31, 64), "v": (1, 4, 1 << 31, 64)}, Options(), "k has .* fewer than 2.31 rows"),
    *(({}, Options(scale=scale), "positive and finite") for scale in (0.0, -1.0, float("nan"), float("inf"), "x", 1j)),  # type: ignore[arg-type]
    ({}, Options(scale=1e-60), "2.100 as f32 has it"),
    *(({"lse": ArrayView(0, shape, strides, "f32", 0, "other")}, Options(), "f32 of shape")
      for shape, strides in (((4, 100), (100, 1)), ((), ()), ((1, 4, 100), (800, 200, 2)), ((1, 4, 100, 1), (400, 100, 1, 1)))),
])
def test_what_is_not_taken_is_one_sentence(changed: dict[str, Any], options: Options, words: str) -> None:
    Problem.of(arrays(), Options())
    with pytest.raises(LaunchError, match=words) as raised:
        Problem.of(arrays(**changed), options)
    assert "\n" not in str(raised.value)


@pytest.mark.pure
@pytest.mark.parametrize(("given", "words"), [
    ({"head": 96}, "64, 128 or 256"), ({"BM": 64}, "128 or 192"), ({"BN": 40}, "multiple of 16"), ({"stages": 9}, "shared memory"),
    ({"head": 64, "BN": 256, "buffers": 1}, "registers"), ({"type": TYPES["f32"]}, "bf16 or f16"), ({"buffers": 0}, "at least one"),
    ({"stages": 1}, "one of values at least")])
def test_a_configuration_that_cannot_be_says_why(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ForwardConfig(**given)


@pytest.mark.pure
def test_shared_memory_is_what_the_kernel_takes() -> None:
    for config in (SMALL, *shipped()[::5]):
        assert forward.trace(**config.parameters).shared.total <= config.smem_bytes
        assert config.smem_bytes - forward.trace(**config.parameters).shared.total < 64


DIRECT = [DenseConfig(store=Direct()), DenseConfig(store=Direct(1))]


@pytest.mark.pure
@pytest.mark.parametrize(("kernel", "parameters", "row", "how"), [
    (forward, replace(SMALL, packed=True).parameters, "sequences_out_row", ("mul", "mad")),
    *((kernel_of(config), config.parameters, "out_row", ("mul", "mad")) for config in DIRECT),
    (decode, {}, "k_row", ("mul",)), (decode, {}, "v_row", ("mul",))], ids=range(5))
def test_distances_of_rows_are_multiplied_in_64_bits(kernel: Any, parameters: dict[str, Any], row: str, how: tuple[str, ...]) -> None:
    """The distance between neighbouring rows fits into 32 bits. That between rows further apart does not, and is computed in 64."""
    text = kernel.ptx(**parameters)
    register = re.search(rf"ld\.param\.u32 (%\w+), \[{row}\];", text)
    assert register is not None
    used = re.findall(rf"(\S+) %\w+, [^;]*{register[1]}\b", text)
    assert set(used) == {f"{each}.wide.u32" for each in how}


@pytest.mark.pure
def test_the_package_is_its_function() -> None:
    for call in (attention, attention.attention):
        with pytest.raises(Exception, match="q is"):
            call(1, 2, 3)
