"""What the calls refuse, each with one sentence, and memory that results share with what is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any

import numpy as np
import pytest

from ptxkit import attention, attention_decode
from ptxkit.attention.config.forward import ForwardConfig
from ptxkit.attention.launch import decode, forward
from ptxkit.attention.launch.simulate import simulate
from ptxkit.attention.launch.simulate_decode import decode_launches, simulate_decode
from ptxkit.attention.problem.refusals import check_scale
from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.simulate import simulate as simulate_product
from ptxkit.gemm.launch.simulate_grouped import simulate as simulate_groups
from ptxkit.gemm.launch.simulate_grouped_k import simulate as simulate_along_k
from ptxkit.gemm.tools.bench import stub
from ptxkit.types import f16

pytestmark = pytest.mark.ptxas
FORWARD = {"q": ("bf16", 1, 4, 64, 64), "k": ("bf16", 1, 4, 64, 64), "v": ("bf16", 1, 4, 64, 64), "out": ("bf16", 1, 4, 64, 64)}
DECODE = {"q": ("bf16", 2, 8, 64), "k_cache": ("bf16", 9, 16, 2, 64), "v_cache": ("bf16", 9, 16, 2, 64), "page_table": ("s32", 2, 64),
          "lengths": ("s32", 2), "out": ("bf16", 2, 8, 64)}


@pytest.fixture(autouse=True)
def card() -> Iterator[None]:
    with stub.installed():
        for kept in (forward._launches, forward._plans, decode._launches, decode._plans):
            kept.clear()
        yield


def made(of: dict[str, Any]) -> dict[str, Any]:
    return {name: stub.array(*kind) for name, kind in of.items()}


def workspace(splits: int = 4) -> Any:
    return stub.array("f32", splits * 2 * 8 * 66)


def at(place: Any, offset: int, *kind: Any) -> Any:
    """An array in the memory of another one."""
    found = stub.array(*kind)
    found.pointer = place.pointer + offset
    return found


def refused(call: Any, words: str, **given: Any) -> None:
    with pytest.raises(LaunchError, match=words) as raised:
        call(**given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("changed", "words"), [
    ({"is_causal": np.ones(4)}, "is_causal has the type ndarray: it is True or False, and attention has no other masks"),
    ({"is_causal": "no"}, "is_causal has the type str"), ({"is_causal": []}, "is_causal has the type list"),
    ({"is_causal": 2}, "is_causal has the type int"), ({"enable_gqa": "x"}, "enable_gqa has the type str: it is True or False"),
    ({"return_lse": np.ones(3)}, "return_lse has the type ndarray"), ({"scale": [1]}, r"scale is \[1\]: .* positive and finite"),
    ({"scale": True}, "scale is True"), ({"scale": float("nan")}, "scale is nan"), ({"scale": -1.0}, "scale is -1.0"),
    ({"config": "fast"}, "config is a str: it is a ForwardConfig"), ({"config": {}}, "config is a dict"),
    ({"k": None}, "k is a NoneType, not an array"), ({"q": [[1]]}, "q is a list, not an array"),
    ({"cu_seqlens": [0, 64]}, "cu_seqlens is a list, not an array")])
def test_attention_refuses_what_it_does_not_take(changed: dict[str, Any], words: str) -> None:
    attention(**made(FORWARD))
    refused(attention, words, **{**made(FORWARD), **changed})


@pytest.mark.parametrize(("changed", "words"), [
    ({"splits": True}, "splits is True: 1 to 65535"), ({"splits": 2.0}, "splits is 2.0"), ({"splits": "4"}, "splits is '4'"),
    ({"splits": 0}, "splits is 0"), ({"splits": 70_000}, "splits is 70000"), ({"scale": [1]}, r"scale is \[1\]"),
    ({"return_lse": [1]}, "return_lse has the type list"), ({"page_table": None}, "page_table is a NoneType"),
    ({"lengths": 5}, "lengths is a int, not an array")])
def test_decode_refuses_what_it_does_not_take(changed: dict[str, Any], words: str) -> None:
    attention_decode(**made(DECODE), splits=4, workspace=workspace())
    refused(attention_decode, words, **{**made(DECODE), "workspace": workspace(), "splits": 4, **changed})


def test_flags_and_splits_may_be_numpys() -> None:
    attention(**made(FORWARD), is_causal=np.True_, enable_gqa=1, scale=np.float32(0.5))
    attention_decode(**made(DECODE), splits=np.int64(4), workspace=workspace())


@pytest.mark.parametrize("name", ["k", "v", "q"])
def test_a_result_of_attention_has_memory_of_its_own(name: str) -> None:
    given = made(FORWARD)
    refused(attention, f"out and {name} share memory", **{**given, "out": at(given[name], 128, *FORWARD["out"])})
    refused(attention, f"lse and {name} share memory", **given, lse=at(given[name], 1024, "f32", 1, 4, 64))
    if name != "q":
        refused(attention, f"out and {name} share memory", **{**given, "out": given[name]})


def test_only_sequences_of_their_own_tiles_may_be_replaced() -> None:
    """A tile of packed sequences loads queries of the next one, which another CTA may be replacing."""
    alone, packed = {**made(FORWARD)}, {name: stub.array("bf16", 64, 4, 64) for name in FORWARD}
    attention(**{**alone, "out": alone["q"]})
    refused(attention, "out and q share memory", **{**packed, "out": packed["q"]}, cu_seqlens=stub.array("s32", 3))
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 70, 64)).astype(np.float16)
    out = np.zeros_like(q)
    simulate(q, k, v, out, check=False)
    assert simulate(q, k, v, q).every_schedule
    assert np.array_equal(q, out)
    refused(simulate, "out and q share memory", q=q[0, 0][:, None], k=k[0, 0][:, None], v=v[0, 0][:, None], out=q[0, 0][:, None],
            cu_seqlens=np.array([0, 40, 70], np.int32))


@pytest.mark.parametrize("name", DECODE)
def test_results_and_parts_of_decode_have_memory_of_their_own(name: str) -> None:
    given = made(DECODE)
    refused(attention_decode, f"workspace and {name} share memory", **given, splits=4,
            workspace=at(given[name], 0, "f32", 4 * 2 * 8 * 66))
    attention_decode(**given, splits=1, workspace=at(given[name], 0, "f32", 4 * 2 * 8 * 66))       # which is not used
    if name != "out":
        refused(attention_decode, f"lse and {name} share memory", **given, splits=1, lse=at(given[name], 0, "f32", 2, 8))
    if name not in ("out", "q"):
        refused(attention_decode, f"out and {name} share memory", **{**given, "out": at(given[name], 0, *DECODE["out"])}, splits=1)


def test_parts_are_not_the_log_sum_exp() -> None:
    parts = workspace()
    refused(attention_decode, "workspace and lse share memory", **made(DECODE), splits=4, workspace=parts, lse=at(parts, 64, "f32", 2, 8))
    refused(attention_decode, "begins at address .*2: it is f32", **made(DECODE), splits=4, workspace=at(workspace(), 2, "f32", 4224))


def test_keys_that_are_too_far_apart_for_32_bits_are_refused() -> None:
    """A warp goes nine rows ahead: half a GiB each is past 2^32."""
    for stride, fits in ((1 << 27, True), ((1 << 27) + 8, False), (1 << 30, False)):
        given = made(DECODE)
        for name in ("k_cache", "v_cache"):
            given[name].strides = (1024, stride, 64, 1)
        if fits:
            attention_decode(**given, splits=1)
        else:
            refused(attention_decode, "keys of a page are at most 256 MiB apart", **given, splits=1)


def test_the_cpu_device_refuses_shared_memory_too() -> None:
    memory = np.zeros((6, 1, 2, 100, 64), np.float16)
    q, k, v, out = memory[:4]
    simulate(q, k, v, q, check=False)                                # each element of q is read by who writes it
    for place in (k, v, memory.reshape(-1)[12_800 - 64:][:12_800].reshape(q.shape)):
        with pytest.raises(LaunchError, match=r"out and [qkv] share memory"):
            simulate(q, k, v, place, check=False)
    with pytest.raises(LaunchError, match="lse and v share memory"):
        simulate(q, k, v, out, lse=v.view(np.float32).reshape(-1)[:200].reshape(1, 2, 100), check=False)
    cache, table, lengths = memory.reshape(-1)[:5 * 16 * 2 * 64].reshape(5, 16, 2, 64), np.zeros((2, 3), np.int32), np.full(2, 40, np.int32)
    tokens, inside = np.zeros((2, 4, 64), np.float16), cache.reshape(-1)[:512].reshape(2, 4, 64)
    with pytest.raises(LaunchError, match="out and k_cache share memory"):
        simulate_decode(tokens, cache, cache, table, lengths, inside, check=False)


@pytest.mark.parametrize(("changed", "words"), [
    ({"q": [1]}, "q is a list, not an array of NumPy"), ({"v": None}, "v is a NoneType, not an array of NumPy"),
    ({"out": None}, "out is a NoneType"), ({"lse": [1]}, "lse is a list"), ({"cu_seqlens": [0, 20]}, "cu_seqlens is a list"),
    ({"k": np.zeros((1, 2, 20, 64), np.uint8)}, "k has elements of u8"), ({"is_causal": np.ones(4)}, "is_causal has the type ndarray"),
    ({"is_causal": 2}, "is_causal has the type int"), ({"enable_gqa": "x"}, "enable_gqa has the type str"),
    ({"config": 4}, "config is a int: it is a ForwardConfig"),
    ({"config": ForwardConfig(64, 128, 48, type=f16, causal=True)}, "its causal is True, the arguments need False"),
    ({"config": ForwardConfig(128, 128, 48, type=f16)}, "its head is 128, the arguments need 64"),
    ({"config": ForwardConfig(64, 128, 48, type=f16, lse=True)}, "its lse is True, the arguments need False"),
    ({"config": ForwardConfig(64, 128, 48)}, "it is for bf16, the arrays have f16")])
def test_the_cpu_device_refuses_what_the_card_does(changed: dict[str, Any], words: str) -> None:
    """A configuration with a causal mask computed one, whatever the arguments asked for."""
    given = {name: np.zeros((1, 2, 20, 64), np.float16) for name in ("q", "k", "v", "out")}
    simulate(**given, config=ForwardConfig(64, 128, 48, type=f16), check=False)
    refused(simulate, words, **{**given, **changed})


def test_the_cpu_device_reads_no_elements_otherwise_than_numpy() -> None:
    """Elements in the order of bytes of another machine, or an odd number of bytes apart, were taken for others."""
    memory = np.zeros(8000, np.uint8)
    odd = np.lib.stride_tricks.as_strided(memory[:2].view(np.float16), (1, 2, 20, 64), (0, 129, 128, 2))
    fields = np.zeros((1, 2, 20, 64), [("flag", "u1"), ("value", np.float16)])["value"]
    for name in ("q", "k", "v", "out"):
        given = {name: np.zeros((1, 2, 20, 64), np.float16) for name in ("q", "k", "v", "out")}
        refused(simulate, f"`{name}` has elements of '>f2', whose bytes are in the order of another machine",
                **{**given, name: given[name].astype(">f2")})
        for gaps in (odd, fields):
            refused(simulate, f"`{name}` has strides of .* bytes, which are no whole elements of float16", **{**given, name: gaps})


def test_the_cpu_device_writes_no_array_that_is_read_only() -> None:
    given, fixed = {name: np.zeros((1, 2, 20, 64), np.float16) for name in ("q", "k", "v", "out")}, np.zeros((1, 2, 20, 64), np.float16)
    fixed.flags.writeable = False
    refused(simulate, "out is read-only, and a launch writes it: pass a copy", **{**given, "out": fixed})
    simulate(**{**given, "q": fixed}, check=False)


@pytest.mark.parametrize("call", [simulate, simulate_decode, simulate_product, simulate_groups, simulate_along_k])
def test_a_card_is_no_word(call: Any) -> None:
    given = [np.zeros((2, 4, 64), np.float16) for parameter in signature(call).parameters.values()
             if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and parameter.default is Parameter.empty]
    with pytest.raises(LaunchError, match=r"card is a str: it is a Card of ptxkit\.cards"):
        call(*given, card="H200")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [np.float16(0), np.float16(np.inf), np.float16(np.nan), 10**400, 10**5000], ids=range(5))
def test_a_scale_is_compared_as_a_float(scale: Any) -> None:
    """In f16 the least scale is 0, and the largest infinite."""
    with pytest.raises(LaunchError, match="so scale is positive and finite"):
        check_scale(scale)
    check_scale(np.float16(0.125))


@pytest.mark.parametrize("name", [*DECODE, "lse"])
def test_decode_on_the_cpu_device_takes_arrays(name: str) -> None:
    q, cache = np.zeros((2, 4, 64), np.float16), np.zeros((5, 16, 2, 64), np.float16)
    given = {"q": q, "k_cache": cache, "v_cache": cache, "page_table": np.zeros((2, 3), np.int32), "lengths": np.zeros(2, np.int32),
             "out": q.copy(), "lse": np.zeros((2, 4), np.float32)}
    refused(simulate_decode, f"`{name}` has elements of .*, whose bytes are in the order of another machine",
            **{**given, name: given[name].astype(given[name].dtype.newbyteorder())})
    for other in ([1], *([None] if name != "lse" else [])):
        refused(simulate_decode, f"{name} is a {type(other).__name__}, not an array of NumPy", **{**given, name: other})


@pytest.mark.parametrize("empty", [{"batches": 0}, {"heads": 0, "kv_heads": 0}, {"heads": 0}])
def test_decode_of_nothing_launches_nothing(empty: dict[str, int]) -> None:
    shape = {"batches": 2, "heads": 4, "kv_heads": 2, **empty}
    q, cache = np.zeros((shape["batches"], shape["heads"], 64), np.float16), np.zeros((5, 16, shape["kv_heads"], 64), np.float16)
    table, lengths = np.zeros((shape["batches"], 3), np.int32), np.zeros(shape["batches"], np.int32)
    assert decode_launches(q, cache, cache, table, lengths, q.copy()) == []


@pytest.mark.parametrize("name", ["a", "b", "out", "bias"])
def test_products_on_the_cpu_device_take_arrays(name: str) -> None:
    given = {"a": np.zeros((8, 8), np.float16), "b": np.zeros((8, 8), np.float16), "out": np.zeros((8, 8), np.float16)}
    for other in ([[1]], 5, *([None] if name in given else [])):
        refused(simulate_product, f"{name} is a {type(other).__name__}, not an array of NumPy", **{**given, name: other})


@pytest.mark.pure
@pytest.mark.parametrize("elements", [1, 4, 8])
def test_the_cpu_device_takes_the_addresses_that_a_gpu_takes(elements: int) -> None:
    """Memory of NumPy and of torch begins at an aligned address; what is cut from it does where it was cut."""
    def cut(*shape: int) -> Any:
        return np.zeros(math.prod(shape) + elements, np.float16)[elements:].reshape(shape)

    def whole(*shape: int) -> Any:
        return np.zeros(shape, np.float16)

    rows, cache, table, lengths = (1, 1, 16, 64), (1, 16, 1, 64), np.zeros((1, 1), np.int32), np.ones(1, np.int32)

    def forward_at(at: int) -> None:
        simulate(*((cut if place == at else whole)(*rows) for place in range(4)), check=False)

    def decode_at(at: int) -> None:
        q, k, v, out = ((cut if place == at else whole)(*shape) for place, shape in enumerate(((1, 1, 64), cache, cache, (1, 1, 64))))
        simulate_decode(q, k, v, table, lengths, out, check=False)

    for call in (forward_at, decode_at):
        for at in range(4):
            if elements % 8:
                with pytest.raises(LaunchError, match=f"starts at address {2 * elements:#x}, which is not a multiple of 16 bytes"):
                    call(at)
            else:
                call(at)
