"""The C file launches what `gemm.gemm` and `gemm.group_gemm` launch: a driver that notes its calls shows it without a GPU."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ptxkit.dsl.arguments import FORMATS
from ptxkit.gemm.launch import dense, grouped, grouped_k
from ptxkit.gemm.launch.steps import FillStep
from ptxkit.gemm.tools.bench import stub
from ptxkit.runtime import launcher
from ptxkit.runtime.arrays import DeviceArray, contiguous_strides
from tests.jax import wanted

jax = wanted(__name__)

from ptxkit.jax import handler, plans, product  # noqa: E402
from ptxkit.jax.product import Product  # noqa: E402

STREAM = 0x51


class Noted:
    """Driver functions that note what they are called with. A map is its array's address, then the rest of its encoding."""

    def __init__(self) -> None:
        self.launches: list[Any] = []
        self.words: Iterator[tuple[str, ...]] = iter(())
        self.functions = {"cuTensorMapEncodeTiled": launcher._ENCODE(self.encode),
                          "cuTensorMapReplaceAddress": launcher._REPLACE(self.replace), "cuLaunchKernelEx": launcher._LAUNCH(self.launch),
                          "cuCtxGetDevice": launcher._GET_DEVICE(lambda cell: 0), "cuMemsetD2D8Async": launcher._FILL(self.fill)}

    def encode(self, place: int, kind: int, rank: int, pointer: int, dims: int, strides: int, box: int, steps: int, *modes: int) -> int:
        said = struct.pack("<QII", pointer or 0, kind, rank) + ctypes.string_at(dims, 8 * rank) + ctypes.string_at(strides, 8 * (rank - 1))
        ctypes.memmove(place, (said + ctypes.string_at(box, 4 * rank) + bytes(modes)).ljust(128, b"\0"), 128)
        return 0

    def replace(self, place: int, pointer: int) -> int:
        ctypes.memmove(place, struct.pack("<Q", pointer), 8)
        return 0

    def launch(self, config: int, kernel: int, pointers: int, extra: int) -> int:
        said = launcher._Config.from_address(config)
        words = next(self.words)
        places = (ctypes.c_void_p * len(words)).from_address(pointers)
        values = [ctypes.string_at(place, 128 if word == "tensormap" else struct.calcsize(FORMATS[word]))
                  for word, place in zip(words, places, strict=True)]
        numbers = [getattr(said, name) for name, _ in said._fields_ if name not in ("attributes",)]
        self.launches.append((kernel, numbers, ctypes.string_at(said.attributes, 72 * said.count), values))
        return 0

    def fill(self, *given: int) -> int:
        self.launches.append(("fill", *given))
        return 0


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noted]:
    made = Noted()
    with stub.installed():
        monkeypatch.setattr(launcher, "_entry", lambda name, version, prototype: made.functions[name])
        plans.plan.cache_clear()
        yield made
    plans.plan.cache_clear()


def array(name: str, shape: tuple[int, ...], dtype: str, apart: int = 0) -> DeviceArray:
    made = stub.array(dtype, *shape)
    made.pointer += apart
    return made


def of(**shapes: tuple[tuple[int, ...], str]) -> dict[str, tuple[tuple[int, ...], str]]:
    return shapes


BF16, F32, E4M3, S32 = "bf16", "f32", "e4m3", "s32"
DENSE = {
    "plain": (of(a=((40, 64), BF16), b=((64, 48), BF16)), {}, 0),
    "fused": (of(a=((40, 64), BF16), b=((64, 48), BF16), c=((40, 48), F32), bias=((48,), BF16), residual=((40, 48), F32)),
              {"alpha": 0.5, "beta": 2.0, "activation": "gelu"}, 0),
    "batch": (of(a=((3, 40, 64), BF16), b=((3, 64, 48), BF16)), {}, 0),
    "workspace": (of(a=((8, 32768), BF16), b=((32768, 128), BF16)), {}, 0),
    "a curve": (of(a=((4096, 4096), BF16), b=((4096, 4096), BF16)), {}, 0),
    "copied by threads": (of(a=((40, 64), BF16), b=((64, 48), BF16)), {}, 2),
    "copied before": (of(a=((4096, 4095), BF16), b=((4095, 4096), BF16)), {}, 0),
    "whole scales": (of(a=((40, 64), F32), b=((64, 48), F32), a_scale=((1,), F32), b_scale=((1,), F32)), {}, 0),
}


def run(noted: Noted, kind: str, given: dict[str, DeviceArray], options: dict[str, Any], out: DeviceArray | list[DeviceArray],
        workspace: int, clears: bool = False) -> tuple[list[Any], Any]:
    """What the handler launches, and the plan."""
    results = out if isinstance(out, list) else [out]
    made = Product(kind, tuple(given), results[0].dtype, tuple(options.items()), clears=clears)     # type: ignore[arg-type]
    avals = [jax.ShapeDtypeStruct(each.shape, product.dtype_of(each.dtype)) for each in given.values()]
    said = product.words(made, avals)
    addresses = [each.pointer for each in (*given.values(), *results)] + [workspace]
    apart = [address % 16 for address in addresses] + [0] * (plans.MOST_BUFFERS - len(addresses))
    plan = plans.known(said, 0, apart)
    steps = plans.of_call(product.read(said), 0, addresses).steps
    noted.words = iter([step.launcher.parameters for step in steps if not isinstance(step, FillStep)] * 2)
    noted.launches.clear()
    at = ctypes.c_int32()
    library = handler.load()
    assert library.ptxkit_jax_launch(ctypes.c_void_p(plan.address), (ctypes.c_void_p * len(addresses))(*addresses),
                                     ctypes.c_void_p(STREAM), ctypes.byref(at)) == 0
    assert at.value == len(steps)
    found = list(noted.launches)
    noted.launches.clear()
    return found, plan


@pytest.mark.ptxas
@pytest.mark.parametrize("case", DENSE)
def test_the_handler_launches_what_gemm_launches(noted: Noted, case: str) -> None:
    from ptxkit import gemm

    shapes, options, apart = DENSE[case]
    given = {name: array(name, *shape, apart=apart) for name, shape in shapes.items()}
    a, b = given["a"], given["b"]
    out = array("out", (*a.shape[:-1], b.shape[-1]), a.dtype)
    noted.words = iter([("f32",) * 0] * 9)
    gemm.gemm(**given, out=out, **options, stream=STREAM)               # loads, and has its workspace
    ((_, (workspace, _)),) = dense._workspaces._made.items() or ((0, (0x7E00_0000_0000, 0)),)
    found, plan = run(noted, "dense", given, options, out, workspace)
    gemm.gemm(**given, out=out, **options, stream=STREAM)
    assert noted.launches
    assert [each for each in found if each[0] != "fill"] == noted.launches
    cleared = [each for each in found if each[0] == "fill"]
    assert bool(cleared) == bool(plan.workspace_bytes) == bool(dense._workspaces._made)
    assert all(each[1] == workspace and each[3] == 0 for each in cleared)
    assert (case in ("workspace", "copied before")) == bool(cleared)


@pytest.mark.ptxas
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_the_handler_launches_what_group_gemm_launches(noted: Noted, gated: bool) -> None:
    from ptxkit import gemm

    given = {"x": array("x", (100, 64), BF16), "w": array("w", (3, 96, 64), BF16), "lengths": array("lengths", (4,), S32)}
    out = array("out", (100, 48 if gated else 96), BF16)
    more = {"out": out, "activation": "silu_and_mul" if gated else None, "stream": STREAM}
    noted.words = iter([("f32",) * 0] * 9)
    gemm.group_gemm(given["x"], given["w"], given["lengths"], **more)
    ((_, (workspace, _)),) = grouped._workspaces._made.items() or ((0, (0x7E00_0000_0000, 0)),)
    found, _ = run(noted, "groups", given, {"gated": gated}, out, workspace, clears=True)
    gemm.group_gemm(given["x"], given["w"], given["lengths"], **more)
    assert found[0] == ("fill", out.pointer, 2 * out.shape[1], 0, 2 * out.shape[1], 100, STREAM)
    assert noted.launches
    assert [each for each in found if each[0] != "fill"] == noted.launches


@pytest.mark.ptxas
def test_the_handler_launches_what_group_gemm_launches_of_gathered_rows(noted: Noted) -> None:
    from ptxkit import gemm

    given = {"x": array("x", (30, 64), BF16), "w": array("w", (3, 96, 64), BF16), "lengths": array("lengths", (4,), S32),
             "gather": array("gather", (100,), S32)}
    out = array("out", (100, 96), BF16)
    noted.words = iter([("f32",) * 0] * 9)

    def launch() -> None:
        gemm.group_gemm(given["x"], given["w"], given["lengths"], gather=given["gather"], out=out, stream=STREAM)

    launch()
    ((_, (workspace, _)),) = grouped._workspaces._made.items() or ((0, (0x7E00_0000_0000, 0)),)
    found, _ = run(noted, "groups", given, {}, out, workspace)
    launch()
    assert noted.launches
    assert [each for each in found if each[0] != "fill"] == noted.launches


@pytest.mark.ptxas
@pytest.mark.parametrize("ragged", [False, True], ids=["rows", "ragged"])
def test_the_handler_launches_what_combine_launches(noted: Noted, ragged: bool) -> None:
    from ptxkit import gemm

    place = (90,) if ragged else (30, 3)
    given = {"y": array("y", (90, 64), BF16), "place": array("place", place, S32), "weights": array("weights", place, F32)}
    given |= {"starts": array("starts", (31,), S32)} if ragged else {}
    out = array("out", (30, 64), BF16)
    noted.words = iter([("f32",) * 0] * 9)

    def launch() -> None:
        gemm.combine(given["y"], given["place"], given["weights"], starts=given.get("starts"), out=out, stream=STREAM)

    launch()
    found, plan = run(noted, "combine", given, {}, out, 0x7E00_0000_0000)
    launch()
    assert noted.launches == found
    assert found
    assert not plan.workspace_bytes


@pytest.mark.ptxas
@pytest.mark.parametrize("packed", [False, True], ids=["batches", "packed"])
@pytest.mark.parametrize("with_lse", [False, True], ids=["out", "lse"])
def test_the_handler_launches_what_attention_launches(noted: Noted, packed: bool, with_lse: bool) -> None:
    """jax's arrays have rows before heads; the call has views of them."""
    from ptxkit.attention.launch.forward import attention

    rows = {"q": (200, 4, 64), "k": (200, 2, 64), "v": (200, 2, 64), "out": (200, 4, 64)} if packed else {
        "q": (2, 100, 4, 64), "k": (2, 70, 2, 64), "v": (2, 70, 2, 64), "out": (2, 100, 4, 64)}
    arrays = {name: array(name, shape, BF16) for name, shape in rows.items()}
    out, seen = arrays.pop("out"), {}
    lse = array("lse", (4, 200) if packed else (2, 4, 100), F32) if with_lse else None
    given = arrays | ({"cu_seqlens": array("cu_seqlens", (4,), S32)} if packed else {})
    for name, each in (*arrays.items(), ("out", out)):
        seen[name] = array(name, product.heads_before_rows(each.shape), BF16)
        seen[name].pointer, seen[name].strides = each.pointer, product.heads_before_rows(contiguous_strides(each.shape))
    noted.words = iter([("f32",) * 0] * 9)

    def launch() -> None:
        attention(seen["q"], seen["k"], seen["v"], True, 0.25, True, given.get("cu_seqlens"), out=seen["out"], lse=lse, stream=STREAM)

    launch()
    options = {"is_causal": True, "scale": 0.25, "return_lse": with_lse}
    found, _ = run(noted, "attention", given, options, [out, lse] if lse is not None else out, 0x7E00_0000_0000, clears=packed)
    launch()
    *cleared, launched = found
    assert [(each[1], each[4] * each[5]) for each in cleared] == [(out.pointer, out.nbytes)] * packed         # all heads of all rows
    assert noted.launches == [launched]


@pytest.mark.ptxas
def test_the_handler_launches_what_group_gemm_k_launches(noted: Noted) -> None:
    from ptxkit import gemm

    given = {"a": array("a", (100, 64), BF16), "b": array("b", (100, 96), BF16), "lengths": array("lengths", (4,), S32)}
    out = array("out", (3, 64, 96), F32)
    noted.words = iter([("f32",) * 0] * 9)
    gemm.group_gemm_k(*given.values(), out=out, stream=STREAM)
    ((_, (workspace, _)),) = grouped_k._workspaces._made.items() or ((0, (0x7E00_0000_0000, 0)),)
    found, plan = run(noted, "groups_along_k", given, {}, out, workspace)
    gemm.group_gemm_k(*given.values(), out=out, stream=STREAM)
    assert noted.launches
    assert [each for each in found if each[0] != "fill"] == noted.launches
    assert bool(plan.workspace_bytes) == bool(grouped_k._workspaces._made)


def test_a_refused_step_is_told(noted: Noted) -> None:
    noted.functions["cuMemsetD2D8Async"] = launcher._FILL(lambda *given: 1)
    steps = (plans._Step * 2)(plans._Step(None, None, None, 0, 0, 0, 16, 16, 1), plans._Step(None, None, None, 0, 0, 0, 16, 16, 1))
    plan = plans._Plan(ctypes.addressof(steps), 2, 1, 0, *launcher.addresses())
    at = ctypes.c_int32(7)
    assert handler.load().ptxkit_jax_launch(ctypes.byref(plan), (ctypes.c_void_p * 1)(16), None, ctypes.byref(at)) == 1
    assert at.value == 0
