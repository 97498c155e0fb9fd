"""The host side without a GPU: what gemm accepts, how strides choose the layout, the adapter, and every refusal by its words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import gemm
from ptxkit.errors import LaunchError, NoDriverError
from ptxkit.gemm import Adapter
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.grouped import GroupedConfig, GroupOperands, SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import ClusterShape, Direct, Dynamic, Loads, SplitK, StreamK, TensorCopies, Tile
from ptxkit.gemm.launch import adapter
from ptxkit.gemm.launch.grid import COUNTER_BYTES, Grid
from ptxkit.gemm.launch.grouped import can_implement as can_implement_groups
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.launch.simulate_grouped import simulate as simulate_groups
from ptxkit.gemm.problem.dense import PLAIN, Arrays, Options, Problem
from ptxkit.gemm.problem.lines import operand
from ptxkit.gemm.problem.options import options
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.types import TYPES, bf16, e4m3, f16, f32

pytestmark = pytest.mark.pure


def array(shape: tuple[int, ...], dtype: str = "bf16", strides: tuple[int, ...] | None = None, pointer: int = 0x10000,
          device: int = 0) -> ArrayView:
    return ArrayView(pointer, shape, strides or contiguous_strides(shape), dtype, device, "ptxkit")


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 5), st.booleans(), st.booleans(), st.sampled_from([None, 1, 3]))
def test_an_operand_is_read_with_the_strides_it_has(eights, lines, pad, transposed, rows_are_mn, batches):
    inner, stride = 8 * eights, 8 * (eights + pad)
    shape, strides = ((lines, inner), (stride, 1)) if not transposed else ((inner, lines), (1, stride))
    if batches is not None:
        shape, strides = (batches, *shape), (stride * lines + 16, *strides)
    seen = operand("a", array(shape, strides=strides), rows_are_mn=rows_are_mn)
    major, found = seen.major, seen.lines
    assert seen.copies == TensorCopies()
    if lines > 1:
        assert (found.dims[:2], found.strides[0]) == ((inner, lines), 2 * stride)
        assert (major == "k") == (rows_are_mn != transposed)
    if batches is not None:
        assert found.dims[2] == batches
        assert batches == 1 or found.strides[1] == 2 * (stride * lines + 16)
    assert found.dims[0] % 8 == 0
    assert all(step % 16 == 0 for step in found.strides)


N_MAJOR = Operands(b_major="mn")
A, B, OUT = array((16, 32)), array((32, 8), pointer=0x20000), array((16, 8), pointer=0x30000)
FP8 = {"a": array((16, 256), "e4m3"), "b": array((256, 128), "e5m2", (1, 256)), "out": array((16, 128))}


WRONG = [("alpha", None), ("alpha", "2"), ("alpha", np.ones(2)), ("alpha", np.ones(1)), ("alpha", 1j), ("alpha", 1e39), ("beta", [1.0]),
         ("beta", np.zeros(1)), ("activation", ["relu"]), ("activation", np.array("relu")), ("activation", np.array([None])),
         ("activation", np.zeros((9, 9))), ("activation", b"relu"), ("accumulate", None), ("accumulate", ["f32"]),
         ("accumulate", np.array("f32")), ("accumulate", np.zeros((9, 9))), ("fast_accum", "yes"), ("fast_accum", np.ones(2)),
         ("fast_accum", np.array([None])), ("fast_accum", 2), ("batch_invariant", "no"), ("batch_invariant", None),
         ("batch_invariant", np.ones(2)), ("config", "128x128"), ("config", {}), ("config", DenseConfig)]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda value: str(value).replace(" ", "")[:30])
def test_options_of_other_types_are_one_sentence_from_all(name: str, value: Any) -> None:
    """From can_implement, the call and the CPU device alike, whatever comparing or hashing such a value does."""
    said = Adapter.can_implement(A, B, OUT, **{name: value})
    assert said is not None
    assert said.startswith(f"{name}=")
    assert "\n" not in said
    x = np.ones((4, 8), np.float16)
    out = np.full((4, 4), 7, np.float16)
    for call in (lambda: gemm.gemm(A, B, OUT, **{name: value}), lambda: simulate(x, x.T, out, **{name: value})):
        with pytest.raises(LaunchError) as error:
            call()
        assert str(error.value) == said
    assert (out == 7).all()


NUMBERS = array((3,), "s32", pointer=0x40000)
ADDRESSES = array((2,), "s64", pointer=0x50000)
OTHERS: dict[Callable[..., Any], dict[str, Any]] = {
    gemm.group_gemm: {"x": A, "w": array((2, 8, 32), pointer=0x60000), "cu_seqlens": NUMBERS, "out": OUT},
    gemm.group_gemm_k: {"a": A, "b": array((16, 8), pointer=0x60000), "cu_seqlens": NUMBERS},
    gemm.group_gemm_pointers: {"x": ADDRESSES, "w": ADDRESSES, "out": ADDRESSES, "sizes": array((2, 3), "s32"), "dtype": "bf16"},
    gemm.quantize: {"x": A}, gemm.combine: {"y": A, "place": array((5, 2), "s32", pointer=0x60000)},
    gemm.choose_experts: {"logits": array((16, 8), "f32"), "top": 2}, gemm.sort_choices: {"experts": array((16, 2), "s32"), "count": 8}}


@pytest.mark.parametrize(("call", "name", "value"), [
    (gemm.group_gemm, "check_lengths", np.ones(2)), (gemm.group_gemm, "check_lengths", "no"),
    (gemm.group_gemm, "activation", np.ones((9, 9))), (gemm.group_gemm, "order", np.ones((9, 9))),
    (gemm.group_gemm_k, "accumulate", np.ones(2)), (gemm.group_gemm_k, "accumulate", "no"), (gemm.group_gemm_k, "config", {}),
    (gemm.group_gemm_k, "config", "128x128"), (gemm.group_gemm_pointers, "dtype", ["bf16"]), (gemm.group_gemm_pointers, "dtype", "f32"),
    (gemm.group_gemm_pointers, "w_dtype", np.ones(2)), (gemm.group_gemm_pointers, "out_dtype", {}),
    (gemm.group_gemm_pointers, "out_dtype", "e4m3"), (gemm.group_gemm_pointers, "mean_tokens", None),
    (gemm.group_gemm_pointers, "mean_tokens", [128]), (gemm.group_gemm_pointers, "fast_accum", "no"),
    (gemm.group_gemm_pointers, "batch_invariant", None), (gemm.group_gemm_pointers, "config", "128x128"),
    (gemm.quantize, "kind", np.ones((9, 9))), (gemm.quantize, "transposed", np.ones(2)), (gemm.choose_experts, "top", "2"),
    (gemm.choose_experts, "top", 2.0), (gemm.choose_experts, "over_all", np.ones(2)), (gemm.choose_experts, "out", 5),
    (gemm.sort_choices, "count", None), (gemm.sort_choices, "count", np.ones(1)), (gemm.sort_choices, "out", (A,))],
    ids=lambda value: getattr(value, "__name__", str(value).replace(" ", "")[:20]))
def test_options_of_the_other_products_are_one_sentence(call: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(LaunchError) as error:
        call(**{**OTHERS[call], name: value})
    assert str(error.value).startswith(f"{name}=")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("call", "name"), [
    *((gemm.group_gemm_pointers, name) for name in ("x", "w", "out", "sizes")), (gemm.combine, "y"), (gemm.combine, "place")],
    ids=lambda value: getattr(value, "__name__", str(value)))
def test_an_array_of_the_other_products_that_is_none_is_named(call: Callable[..., Any], name: str) -> None:
    with pytest.raises(LaunchError, match=f"^{name} is a NoneType, not an array"):
        call(**{**OTHERS[call], name: None})


GROUPED: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "cu_seqlens": (gemm.group_gemm, {"x": array((16, 32), "e4m3"), "out": OUT, "lengths": NUMBERS}),
    "masked": (gemm.group_gemm_masked, {"x": array((2, 8, 32), "e4m3"), "out": array((2, 8, 8), pointer=0x30000),
                                        "lengths": array((2,), "s32", pointer=0x40000)}),
    "contiguous": (gemm.group_gemm_contiguous, {"x": array((16, 32), "e4m3"), "out": OUT, "lengths": array((16,), "s32", pointer=0x40000)})}


@pytest.mark.parametrize("layout", GROUPED)
@pytest.mark.parametrize(("change", "words"), [
    ({}, None), ({"x_scale": array((1,), "f32")}, "w_scale is missing"), ({"w": None}, "w is a NoneType"),
    ({"lengths": None}, "is a NoneType"),
    ({"out": None}, "out is a NoneType"), ({"w": array((2, 8, 32), pointer=0x60000)}, "w must have e4m3 or e5m2"),
    ({"w": array((2, 8, 32), "e4m3", pointer=0x60001)}, "not a multiple of 16 bytes"), ({"w": OUT}, r"it is \[groups, N, K\]"),
    ({"lengths": array((7,), "s32")}, r"has shape \(7,\)"), ({"order": "fastest"}, "order='fastest'"),
    ({"activation": "relu"}, "silu_and_mul"),
    ({"fast_accum": "no"}, "fast_accum='no'"), ({"batch_invariant": None}, "batch_invariant=None"), ({"config": {}}, "config={}"),
    ({"config": GroupedConfig(GroupOperands(f16, f16))}, "this config is not for this problem"),
    ({"w": array((2, 8, 32), "e4m3", pointer=0x30000)}, "out and w share memory"),
    ({"w": array((2, 8, 32), "e4m3", device=1)}, "on device 1"),
    ({"out": array((16, 9), pointer=0x30000)}, "out has shape"),
    ({"w": array((2, 8, 32), "e4m3", (-256, 32, 1), 0x60000)}, "not negative")],
    ids=lambda value: str(value)[:40])
def test_whether_groups_are_taken_is_said_in_the_words_of_the_call(layout: str, change: dict[str, Any], words: str | None) -> None:
    call, arrays = GROUPED[layout]
    given = {**arrays, "w": array((2, 8, 32), "e4m3", pointer=0x60000), **change}
    x, w, lengths, out = (given.pop(name) for name in ("x", "w", "lengths", "out"))
    said = can_implement_groups(x, w, lengths, out, layout=layout, **given)
    assert (said is None) == (words is None)
    if out is None:
        return
    with pytest.raises(NoDriverError if words is None else LaunchError, match=words) as error:
        call(x, w, lengths, out=out, **given)
    assert said in (None, str(error.value))


def test_a_layout_that_groups_cannot_have_is_said() -> None:
    assert can_implement_groups(A, A, A, A, layout="ptr_array") == "layout='ptr_array': it is cu_seqlens, masked, contiguous"


@pytest.mark.parametrize(("change", "words"), [
    ({}, None), ({"x_scale": array((1,), "f32"), "w_scale": array((1,), "f32")}, "its scaled is False"),
    ({"out_dtype": "f16"}, "its out is bf16, the arguments need f16"), ({"layout": "masked"}, "its layout is masked"),
    ({"dtype": "e4m3", "fast_accum": False}, "its sums stay in the tensor cores"), ({"batch_invariant": True}, "not batch-invariant"),
    ({"groups": 100}, "room for 32 groups, sizes has 100"),
    ({"out_dtype": "f32", "store": Direct()}, r"rows of 32-bit results may end within a block of 8 columns, take store=Direct\(1\)"),
    ({"out_dtype": "f32", "store": Direct(1)}, None), ({"store": Direct()}, None)])
def test_a_configuration_for_other_pointers_is_refused(change: dict[str, Any], words: str | None) -> None:
    """Its kernel would read the sizes as lengths of another layout, or other types."""
    given = {"dtype": "bf16", "groups": 2, "layout": "ptr_array", "store": None, **change}
    groups, layout, store, word = given.pop("groups"), given.pop("layout"), given.pop("store"), TYPES[given["dtype"]]
    out = f32 if store is not None and "out_dtype" in given else bf16
    places = array((groups,), "s64", pointer=0x50000)
    config = GroupedConfig(GroupOperands(word, word, out, layout, max_groups=32),
                           SwapAB() if "batch_invariant" in change else TokensAsRows(), Tile(64, 64), store=store)
    with pytest.raises(NoDriverError if words is None else LaunchError, match=words):
        gemm.group_gemm_pointers(places, places, places, array((groups, 3), "s32"), **given, config=config)


@pytest.mark.parametrize(("n", "more"), [(100, {}), (100, {"swap_ab": True}), (104, {"loads": Loads(a_rows=8)}),
                                         (104, {"scheduler": SplitK(9)}), (104, {"tile": Tile(64, 64, 128), "stages": 3})])
def test_a_configuration_that_does_not_fit_is_refused_on_the_cpu_device_too(n: int, more: dict[str, Any]) -> None:
    """In the same words: what lies after a row would be written, rows of a left out, or sums be added in another order."""
    config = DenseConfig(Operands(f16, f16, f16), **{"tile": Tile(64, 64), **more})
    x, y, out = np.ones((9, 256), np.float16), np.ones((n, 256), np.float16).T, np.ones((9, n), np.float16)
    said = Adapter.can_implement(array((9, 256), "f16"), array((256, n), "f16", (1, 256)), array((9, n), "f16", pointer=0x80000),
                                 config=config, batch_invariant=True)
    assert said is not None
    with pytest.raises(LaunchError) as error:
        simulate(x, y, out, config=config, batch_invariant=True)
    assert str(error.value) == said


@pytest.mark.parametrize(("out", "fast_accum", "words"), [
    (np.float32, None, "its out is bf16, the arguments need f32"), (ml_dtypes.bfloat16, False, "its sums stay in the tensor cores")])
def test_a_configuration_for_other_groups_is_refused_on_the_cpu_device_too(out: Any, fast_accum: bool | None, words: str) -> None:
    config = GroupedConfig(GroupOperands(e4m3, e4m3, bf16, max_groups=32), tile=Tile(64, 64))
    x, w = np.ones((4, 32), ml_dtypes.float8_e4m3fn), np.ones((2, 8, 32), ml_dtypes.float8_e4m3fn)
    with pytest.raises(LaunchError, match=words):
        simulate_groups(x, w, np.array([0, 1, 4], np.int32), np.ones((4, 8), out), config=config, fast_accum=fast_accum)


@pytest.mark.parametrize("name", ["a", "b", "out"])
def test_an_array_that_is_none_is_named(name: str) -> None:
    arguments: dict[str, Any] = {"a": A, "b": B, "out": OUT, name: None}
    said = Adapter.can_implement(**arguments)
    assert str(said).startswith(f"{name} is a NoneType, not an array")
    if name != "out":
        with pytest.raises(LaunchError) as error:
            gemm.gemm(**arguments)
        assert str(error.value) == said


def test_options_may_be_those_of_numpy() -> None:
    """A flag of NumPy says what Python's says: sums that leave the tensor cores are not those of `fast_accum=np.False_` alone."""
    assert options(np.float32(2), np.int64(0), None, "f32", np.False_, np.True_) == Options(2.0, 0.0, None, "f32", False, True)
    assert options(1, 0, None, "f32", None, False) is PLAIN
    assert options(*[1.0, 0.0, None, "f32", 0, 1]).fast_accum is False


@pytest.mark.parametrize(("changes", "word"), [
    ({"a": array((16, 24))}, r"a is \[M, K\] and b \[K, N\].*w\.T"), ({"a": array((16,))}, r"a is \[M, K\] and b"),
    ({"a": array((16, 32), "u16")}, "a has elements of u16: gemm multiplies f16, bf16, f32, e4m3, e5m2"),
    ({"b": array((32, 8), "f16")}, "of bf16 and b of f16: b must have bf16"),
    ({"out": array((16, 16))}, r"out has shape .* gives \(16, 8\)"),
    ({"out": array((16, 8), "u32")}, "out has elements of u32"),
    ({"a": array((16, 32), strides=(-32, 1))}, "a has strides .* not negative"),
    ({"a": array((16, 32), strides=((1 << 32) + 1, 1))}, "a has strides .* less than 2\\^32"),
    ({"out": array((16, 8), strides=(2, 32))}, "out has strides .* pass a contiguous one"),
    ({"out": array((16, 8), strides=(4, 1))}, r"out has shape \(16, 8\) and strides \(4, 1\): its elements must not overlap"),
    ({"out": array((16, 8), strides=(-8, 1))}, "out has strides .* not negative"),
    ({"a": array((2, 16, 32))}, r"out has shape \(16, 8\): .* gives \(2, 16, 8\)"), ({"a": array(())}, "a is a number"),
    ({"a": array((2, 16, 32)), "b": array((3, 32, 8))}, "batches are as many, or one of them has 1"),
    ({"a": array((2, 16, 32)), "b": array((2, 32, 8)), "out": array((2, 16, 8), strides=(64, 8, 1))},
     r"out has shape \(2, 16, 8\) and strides \(64, 8, 1\): its elements must not overlap"),
    ({"out": array((16, 8), strides=(1 << 32, 1))}, "rows of out are 4294967296 elements apart: it must be less than 2\\^32"),
    ({**FP8, "a": array((16, 250), "e4m3"), "b": array((250, 128), "e5m2"), "a_scale": array((16, 2), "f32"),
      "b_scale": array((2, 1), "f32")}, "lines along K begin at multiples of 16 bytes: pad a and b along K, or pass copies"),
    ({"beta": 1.0}, "beta=1.0 without c"), ({"c": array((16, 16)), "beta": 1.0}, r"c has shape \(16, 16\): it must have shape \(16, 8\)"),
    ({"c": array((16, 8), "u8"), "beta": 1.0}, "c has elements of u8"), ({"residual": array((8, 16))}, r"residual has shape \(8, 16\)"),
    ({"residual": array((16, 8), strides=(1, 16))}, r"residual has strides \(1, 16\): .*pass residual\.contiguous\(\), a row-major copy"),
    ({"bias": array((16,), "f32")}, r"bias has shape \(16,\): it is \(8,\) for the columns of out, or \(16, 1\) for its rows"),
    ({"bias": array((8,), "f32", (2,))}, "bias has strides"),
    ({"activation": "tanh"}, "activation='tanh': it is one of relu, gelu, silu, or a f"),
    ({"accumulate": "f64"}, "sums are 'f32' or 'f16'"), ({"accumulate": "f16"}, "accumulate='f16' is for f16 operands, not bf16"),
    ({"a_scale": array((1,), "f32")}, "b_scale is missing"),
    ({"a_scale": array((16, 1), "f32"), "b_scale": array((1, 1), "f32")}, "those of fp8 operands, a has elements of bf16: pass"),
    ({**FP8, "a_scale": array((16, 1), "f32"), "b_scale": array((2, 1), "f32")},
     r"a_scale has shape \(16, 1\) and b_scale \(2, 1\): .*a_scale is \(16, 2\)"),
    ({**FP8, "a_scale": array((16, 2), "f32"), "b_scale": array((1, 2), "f32")},
     r"b_scale \(1, 2\): .*b_scale \(2, 1\) for blocks of 128"),
    ({**FP8, "a_scale": array((16, 2), "f16"), "b_scale": array((2, 1), "f32")}, "a_scale has elements of f16"),
    ({**FP8, "a_scale": array((16, 2), "f32"), "b_scale": array((2, 1), "f32"), "fast_accum": True}, "fast_accum=True"),
])
def test_a_problem_that_cannot_be_is_refused_in_a_sentence(changes: dict[str, Any], word: str) -> None:
    arguments = {"a": A, "b": B, "out": OUT, **changes}
    sentence = Adapter.can_implement(**arguments)
    assert sentence is not None
    with pytest.raises(LaunchError, match=word) as raised:
        Adapter(**arguments)
    assert str(raised.value) == sentence
    with pytest.raises(LaunchError, match=word):
        gemm.gemm(**arguments)


@pytest.mark.parametrize(("changes", "word"), [
    ({"config": DenseConfig(Operands(f16, f16))}, "not for this problem: its a is f16, the arguments need bf16"),
    ({"config": DenseConfig(Operands(out=f32))}, "its out is f32"),
    ({"config": DenseConfig(Operands(b_major="mn", batched=True))}, "its batched is True"),
    ({"config": DenseConfig(N_MAJOR), "b": array((32, 8), strides=(1, 32))}, "its b_major is mn"),
    ({"config": DenseConfig(N_MAJOR, Tile(128, 64), scheduler=SplitK(2))}, "splits K 2 ways, and K = 32 has 1 stages of 64"),
    ({"config": DenseConfig(N_MAJOR, Tile(64, 64), loads=Loads(a_rows=8))}, "a_rows=8.*16 rows"),
    ({"config": DenseConfig(N_MAJOR), "bias": array((8,), "f32")}, "its fusion is"),
    ({"config": DenseConfig(Operands(), Tile(64, 64), scheduler=SplitK(2)), "a": array((40_000, 128)),
      "b": array((128, 4096), strides=(1, 128)), "out": array((40_000, 4096))},
     "40000 tiles are too many to split their K.*take another scheduler")])
def test_a_configuration_for_another_problem_is_refused(changes: dict[str, Any], word: str) -> None:
    sentence = Adapter.can_implement(**{"a": A, "b": B, "out": OUT, **changes})
    assert sentence is not None
    assert re.search(word, sentence), sentence


def test_what_can_be_implemented_needs_no_gpu() -> None:
    assert Adapter.can_implement(A, B, OUT) is None
    assert Adapter.can_implement(A, B, OUT, bias=array((16, 1), "f16"), activation="gelu", residual=array((16, 8), "f32"),
                                 alpha=2.0) is None
    assert Adapter.can_implement(**FP8, a_scale=array((16, 2), "f32"), b_scale=array((2, 1), "f32")) is None
    assert Adapter.can_implement(array((3, 16, 32)), array((3, 32, 8)), array((3, 16, 8))) is None


def split(shape: tuple[int, int, int] = (100, 72, 640), **more: Any) -> Adapter:
    m, n, k = shape
    config = DenseConfig(Operands(out=f32, b_major="mn"), Tile(64, 64), scheduler=SplitK(3))
    return Adapter(array((m, k)), array((k, n), pointer=0x200000), array((m, n), "f32", pointer=0x400000), config=config, **more)


def test_the_workspace_is_as_large_as_the_partial_sums() -> None:
    assert split().workspace_size == COUNTER_BYTES + 2 * 2 * 3 * 64 * 64 * 4
    assert Adapter(A, B, OUT, config=DenseConfig(N_MAJOR, Tile(64, 64))).workspace_size == 0
    assert Adapter(A, B, OUT, config=DenseConfig(N_MAJOR, Tile(64, 64), scheduler=Dynamic())).workspace_size == COUNTER_BYTES
    assert "workspace           262,144 bytes" in str(split())
    assert "partial" not in str(Adapter(array((16, 0)), array((0, 8)), OUT))


def test_the_workspace_of_runs_has_a_place_for_each_cta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that the device holds, of those that are worth it, and of clusters all."""
    holds = 7
    monkeypatch.setattr(adapter, "Plan", lambda problem, ordinal, config, pdl: SimpleNamespace(grid=Grid.of(problem, config, holds)))
    for (m, n, k), rows, ctas in (((1000, 72, 640), 1, 7), ((100, 72, 128), 1, 2), ((64, 8, 640), 1, 2), ((1000, 72, 640), 2, 14)):
        config = DenseConfig(Operands(out=f32, b_major="mn"), Tile(64, 128), scheduler=StreamK(cluster=ClusterShape(rows, 1)))
        product = Adapter(array((m, k)), array((k, n)), array((m, n), "f32"), config=config)
        assert product.workspace_size == COUNTER_BYTES + ctas * 64 * 128 * 4


@pytest.mark.parametrize(("workspace", "word"), [
    (array((1000,), "f32"), "the workspace has 4,000 bytes, this product needs 262,144"),
    (array((262_143,), "u8"), "has 262,143 bytes, this product needs 262,144"),
    (array((65_536,), "f32", pointer=0x10004), "workspace starts at address 0x10004, which is not a multiple of 16 bytes"),
    (array((65_536,), "f32", (2,)), "workspace has strides"), (array((65_536,), "f32", device=1), "workspace is on device 1"),
    (np.zeros(65_536, np.float32), "workspace is .*device_array")])
def test_a_workspace_that_cannot_be_is_refused(workspace: Any, word: str) -> None:
    with pytest.raises(LaunchError, match=word):
        split().initialize(workspace)


def test_an_adapter_is_initialized_before_it_runs() -> None:
    with pytest.raises(LaunchError, match="call initialize"):
        split().run()


def test_nothing_to_compute_needs_nothing() -> None:
    empty = Adapter(array((0, 32)), B, array((0, 8)))
    empty.initialize()
    empty.run()
    assert empty.workspace_size == 0
    with pytest.raises(LaunchError, match="K = 0"):
        Adapter(array((16, 0)), array((0, 8)), OUT, bias=array((8,), "f32"))


@pytest.mark.parametrize(("changes", "word"), [
    ({"a": array((100, 648))}, r"a is bf16 \(100, 648\).*made for bf16 \(100, 640\)"), ({"a": array((100, 640), "f16")}, "a is f16"),
    ({"a": array((100, 640), strides=(648, 1))}, "with strides"), ({"out": array((100, 72), "f32", pointer=0x10008)}, "multiple of 16"),
    ({"c": array((100, 72), "f32")}, "c was not given"), ({"d": A}, "has no array 'd': a, b, out"),
    ({"b": array((640, 72), device=1)}, "on device 1")])
def test_an_update_to_arrays_of_another_kind_is_refused(changes: dict[str, Any], word: str) -> None:
    product = split()
    product.update(a=array((100, 640), pointer=0x20000))
    with pytest.raises(LaunchError, match=word):
        product.update(**changes)


@pytest.mark.skipif(driver.available("sm_90a"), reason="there is a GPU")
def test_without_a_driver_a_launch_says_so() -> None:
    with pytest.raises(NoDriverError):
        split().initialize()
    with pytest.raises(NoDriverError):
        gemm.gemm(A, B, OUT)


def test_arrays_of_one_device() -> None:
    with pytest.raises(LaunchError, match="b is on device 1 and a on device 0"):
        gemm.hgemm(array((16, 32)), array((32, 8), device=1), array((16, 8)))       # at one address, on two devices


def test_a_numpy_array_is_not_on_a_device() -> None:
    with pytest.raises(LaunchError, match=r"a is .*device_array"):
        gemm.hgemm(np.zeros((16, 32), np.float16), np.zeros((32, 8), np.float16))


def test_hgemm_is_the_16_bit_face() -> None:
    with pytest.raises(LaunchError, match="a has elements of f32: hgemm multiplies f16 or bf16"):
        gemm.hgemm(array((16, 32), "f32"), array((32, 8), "f32"), array((16, 8), "f32"))


def test_out_dtype_is_one_that_the_kernel_writes() -> None:
    with pytest.raises(LaunchError, match="f16, bf16, f32, e4m3, e5m2"):
        gemm.hgemm(array((16, 32)), array((32, 8)), out_dtype="s8")
    with pytest.raises(LaunchError, match="out_dtype says f32"):
        gemm.hgemm(array((16, 32)), array((32, 8)), array((16, 8)), out_dtype=np.dtype("float32"))


def test_a_problem_is_known_by_all_but_its_pointers() -> None:
    one = Problem(Arrays(A, B, OUT), Options())
    assert one.key == Problem(Arrays(array((16, 32), pointer=0x40), B, OUT), Options()).key
    assert one.key != Problem(Arrays(A, B, OUT), Options(alpha=2.0)).key


def test_every_function_refuses_what_requires_grad():
    """A launch into memory would cut a result off from what it was computed from."""
    from ptxkit import attention, attention_decode

    there, given = SimpleNamespace(requires_grad=True, dtype="bf16"), SimpleNamespace(dtype="bf16")
    entries: list[tuple[Callable[..., Any], int, tuple[str, ...]]] = [
        (gemm.gemm, 2, ("out", "bias", "residual", "c", "a_scale", "b_scale")), (gemm.hgemm, 2, ("out",)),
        (functools.partial(gemm.Adapter, out=given), 2, ("bias", "residual", "c", "a_scale", "b_scale")),
        (functools.partial(gemm.group_gemm, cu_seqlens=given), 2, ("out", "x_scale", "w_scale", "out_scale")),
        (functools.partial(gemm.group_gemm_masked, masked_m=given), 2, ("out", "x_scale", "w_scale")),
        (functools.partial(gemm.group_gemm_contiguous, m_indices=given), 2, ("out", "x_scale", "w_scale")),
        (functools.partial(gemm.group_gemm_k, cu_seqlens=given), 2, ("out",)),
        (functools.partial(gemm.group_gemm_pointers, given, given, given, given, dtype="bf16"), 0, ("x_scale", "w_scale")),
        (gemm.quantize, 1, ("out", "out_scale")), (functools.partial(gemm.combine, place=given), 1, ("weights", "out")),
        (functools.partial(gemm.spread, place=given), 1, ("out",)), (functools.partial(gemm.choose_experts, top=2), 1, ()),
        (attention, 3, ("out", "lse")),
        (functools.partial(attention_decode, page_table=given, lengths=given), 3, ("out", "lse"))]
    for function, count, names in entries:
        for place in range(count):
            with pytest.raises(LaunchError, match="requires grad, and a launch into memory has no gradient"):
                function(*(there if each == place else given for each in range(count)))
        for name in names:
            with pytest.raises(LaunchError, match=f"^{name} requires grad"):
                function(*[given] * count, **{name: there})
