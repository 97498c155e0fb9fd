"""Exports on a Hopper GPU: compiled, launched through the real driver, compared with NumPy."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.cluster_multicast import BLOCK, CLUSTER, broadcast
from examples.tma_copy import COLUMNS, ROWS, tma_copy
from examples.vector_add import vector_add
from ptxkit import Kernel, device_array, gemm
from ptxkit.gemm.export.choices import KINDS, Layer
from ptxkit.gemm.export.export import pack, product
from ptxkit.gemm.launch.dense import card_of
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import DeviceArray, view

from .recorder import CC, STRICT, compiled, said
from .test_groups import Group
from .test_pack import Product

pytestmark = [pytest.mark.gpu, pytest.mark.ptxas, pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`")]


def launched(folder: Path, made: Kernel[...], *arguments: Any) -> None:
    """Export, compile strictly, launch on the legacy stream, and wait."""
    exported = made.export(folder)
    library = ctypes.CDLL(str(compiled([exported.files[2]], folder / "made.so", *STRICT, "-shared", "-fPIC")))
    with driver.on(0):
        assert getattr(library, f"{exported.name}_launch")(*arguments, None) == 0, said(library, exported.name)
    driver.synchronize(0)


def grid(x: int, y: int = 1) -> list[ctypes.c_uint32]:
    return [ctypes.c_uint32(each) for each in (x, y, 1)]


def at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.pointer)


def longs(*values: int) -> Any:
    return (ctypes.c_uint64 * len(values))(*values)


def test_a_vector_is_added(tmp_path: Path) -> None:
    n = 100_003
    a, b = np.random.default_rng(0).standard_normal((2, n), dtype=np.float32)
    c = device_array(np.full(n, np.nan, np.float32))
    on = device_array(a), device_array(b)
    launched(tmp_path, vector_add, at(on[0]), at(on[1]), at(c), ctypes.c_uint32(n), *grid(-(-n // 256)))
    assert np.array_equal(c.numpy(), a + b)


def test_a_matrix_is_copied_by_tensor_maps_to_its_ragged_edges(tmp_path: Path) -> None:
    source = np.random.default_rng(1).standard_normal((150, 100), dtype=np.float32)
    on, target = device_array(source), device_array(np.full((150, 104), np.nan, np.float32))
    launched(tmp_path, tma_copy, at(on), longs(150, 100), None, at(target), longs(150, 100), longs(104, 1),
             *grid(-(-100 // COLUMNS), -(-150 // ROWS)))
    assert np.array_equal(target.numpy()[:, :100], source)
    assert np.isnan(target.numpy()[:, 100:]).all()


def test_a_cluster_multicasts(tmp_path: Path) -> None:
    source = np.random.default_rng(2).integers(0, 2**32, (8, BLOCK), dtype=np.uint32)
    on, target = device_array(source), device_array(np.zeros((8 * CLUSTER, BLOCK), np.uint32))
    launched(tmp_path, broadcast, at(on), at(target), *grid(8 * CLUSTER))
    assert np.array_equal(target.numpy(), np.repeat(source, CLUSTER, axis=0))


# ------------------------------------------------------------------------------------------------ products

PRODUCTS = {
    "large": (Layer("bf16", 7168, 2048), 4096),
    "along a curve": (Layer("bf16", 4096, 4096), 4096),
    "split-K": (Layer("bf16", 256, 7168), 64),
    "stream-K": (Layer("bf16", 16160, 7168), 1024),
    "transposed": (Layer("f16", 1024, 1032, "f16", "f16", "f32", "tn"), 520),
    "scaled": (Layer("fp8", 1280, 8192, "e4m3", "e4m3", "bf16", scales="tensor"), 64),
    "scales of rows": (Layer("fp8-row", 1280, 8192, "e4m3", "e4m3", "bf16", scales="row"), 64),
    "copied by threads": (Layer("f16", 640, 1002, "f16", "f16", "f16"), 2000),
    "copied before": (Layer("bf16", 1003, 2051), 1501),
    "blocks": (Layer("fp8-block", 4096, 7168, "e4m3", "e4m3", "bf16", scales="block", padded=True), 1024),
    "blocks through the workspace": (Layer("fp8-block", 512, 7168, "e4m3", "e4m3", "bf16", scales="block", padded=True), 128),
}


def bits(generator: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Values between -2 and 2 as the bits of a type."""
    if dtype == "f16":
        return generator.uniform(-2, 2, shape).astype(np.float16)
    if dtype == "bf16":
        return (generator.uniform(-2, 2, shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    exponents, signs = generator.integers(4, 8, shape), generator.integers(0, 2, shape)
    return (signs << 7 | exponents << 3 | generator.integers(0, 8, shape)).astype(np.uint8)         # e4m3


def numbers(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """The same in double precision."""
    if dtype == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in ("f16", "f32"):
        return values.astype(np.float64)
    wide = values.astype(np.int64)
    return np.where(wide >> 7, -1.0, 1.0) * (1 + (wide & 7) / 8) * 2.0 ** ((wide >> 3 & 15) - 7)


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_is_right_and_has_the_bits_of_gemm(tmp_path: Path, case: str) -> None:
    layer, m = PRODUCTS[case]
    exported = product(m, layer, tmp_path, card=card_of(0))
    library = ctypes.CDLL(str(compiled([tmp_path / f"{exported.name}.c"], tmp_path / "made.so", *STRICT, "-shared", "-fPIC")))
    generator = np.random.default_rng(3)
    stored = [(m, layer.k) if layer.layout[0] == "n" else (layer.k, m)]
    stored += [(layer.n, layer.k) if layer.layout[1] == "t" else (layer.k, layer.n)]
    host = [bits(generator, layer.dtype, shape) for shape in stored]
    on = [device_array(values, layer.dtype) for values in host]
    seen = [view(array) for array in on]
    turned = [one._replace(shape=one.shape[::-1], strides=one.strides[::-1]) for one in seen]
    a, b = seen[0] if layer.layout[0] == "n" else turned[0], turned[1] if layer.layout[1] == "t" else seen[1]
    scales: list[Any] = []
    host_scales: list[np.ndarray[Any, Any]] = []
    depth = -(-layer.k // 128)
    if layer.scales == "tensor":
        host_scales = [np.full(1, 0.5, np.float32), np.full(1, 0.25, np.float32)]
    elif layer.scales == "row":
        host_scales = [generator.uniform(0.5, 2, extent).astype(np.float32) for extent in (m, layer.n)]
    elif layer.scales == "block":
        host_scales = [generator.uniform(0.5, 2, shape).astype(np.float32) for shape in ((depth, m), (-(-layer.n // 128), depth))]
    devices = [device_array(values) for values in host_scales]
    for array in devices:
        one = view(array)
        scales.append(one if layer.scales != "block" else one._replace(shape=one.shape[::-1], strides=one.strides[::-1]))
    outs = [DeviceArray((m, layer.n), layer.out) for _ in range(2)]
    gemm.gemm(a, b, outs[0], **dict(zip(("a_scale", "b_scale"), scales, strict=False)), stream=1)
    needs = ctypes.c_uint64(0)
    with driver.on(0):
        assert getattr(library, f"{exported.name}_workspace")(ctypes.byref(needs)) == 0, said(library, exported.name)
        workspace = DeviceArray((max(1, needs.value),), "u8")
        stream = ctypes.c_void_p(1)
        assert getattr(library, f"{exported.name}_prepare")(at(workspace), needs, stream) == 0, said(library, exported.name)
        scaled = [at(devices[0]), *([ctypes.c_uint64(0)] if layer.scales == "block" else []), at(devices[1])] if devices else []
        zero = ctypes.c_uint64(0)
        for _ in range(3):
            status = getattr(library, f"{exported.name}_gemm")(at(on[0]), zero, at(on[1]), zero, at(outs[1]), zero, *scaled, at(workspace),
                                                               needs, stream)
            assert status == 0, said(library, exported.name)
    driver.synchronize(0)
    found, same = (out.numpy() for out in outs)
    assert found.tobytes() == same.tobytes()
    rows, columns = (generator.choice(extent, min(extent, 150), replace=False) for extent in (m, layer.n))
    left = numbers(host[0][rows] if layer.layout[0] == "n" else host[0][:, rows].T, layer.dtype)
    right = numbers(host[1][columns].T if layer.layout[1] == "t" else host[1][:, columns], layer.dtype)
    if layer.scales == "tensor":
        left = left * 0.125
    elif layer.scales == "row":
        left, right = left * host_scales[0][rows, None].astype(np.float64), right * host_scales[1][columns].astype(np.float64)
    elif layer.scales == "block":
        left = left * np.repeat(host_scales[0].T[rows].astype(np.float64), 128, axis=1)[:, :layer.k]
        right = right * np.repeat(host_scales[1][columns // 128].astype(np.float64), 128, axis=1)[:, :layer.k].T
    values = same[rows][:, columns]
    values = numbers(values.view(np.uint16), "bf16") if layer.out == "bf16" else values.astype(np.float64)
    bound = (2.0 ** -8 if layer.out == "bf16" else 2.0 ** -12) * (np.abs(left) @ np.abs(right))
    assert (np.abs(values - left @ right) <= bound).all()


def test_a_pack_runs_each_of_its_products(tmp_path: Path) -> None:
    """The layers of a small model, each with its listed rows: the bits of gemm.gemm."""
    made = pack("bert", tmp_path, card=card_of(0))
    library = ctypes.CDLL(str(compiled([made.files[1]], tmp_path / "made.so", *STRICT, "-shared", "-fPIC")))
    generator = np.random.default_rng(4)
    with driver.on(0):
        assert getattr(library, f"{made.name}_load")() == 0, said(library, made.name)
    for table in made.tables:
        layer = table.layer
        b = device_array(bits(generator, layer.dtype, (layer.n, layer.k)), layer.dtype)
        seen = view(b)
        for m, _ in table.choices:
            a = device_array(bits(generator, layer.dtype, (m, layer.k)), layer.dtype)
            outs = [DeviceArray((m, layer.n), layer.out) for _ in range(2)]
            gemm.gemm(a, seen._replace(shape=seen.shape[::-1], strides=seen.strides[::-1]), outs[0], stream=1)
            asked = Product(list(KINDS).index(layer.kind), m, layer.n, layer.k, a.pointer, b.pointer, outs[1].pointer)
            needs = ctypes.c_uint64(0)
            with driver.on(0):
                assert getattr(library, f"{made.name}_workspace")(ctypes.byref(asked), ctypes.byref(needs)) == 0, said(library, made.name)
                workspace = DeviceArray((max(1, needs.value),), "u8")
                asked.workspace, asked.workspace_bytes = workspace.pointer, needs.value
                assert getattr(library, f"{made.name}_prepare")(at(workspace), needs, ctypes.c_void_p(1)) == 0
                assert getattr(library, f"{made.name}_gemm")(ctypes.byref(asked), ctypes.c_void_p(1)) == 0, said(library, made.name)
            driver.synchronize(0)
            assert outs[0].numpy().tobytes() == outs[1].numpy().tobytes(), (layer, m)


@pytest.mark.parametrize("model", ["gpt-oss-20b", "kimi-k2"])
def test_experts_have_the_bits_of_group_gemm(tmp_path: Path, model: str) -> None:
    """Lengths that differ, some of them 0; the result is that of gemm.group_gemm to the bit, three times in turn."""
    made = pack(model, tmp_path, card=card_of(0))
    library = ctypes.CDLL(str(compiled([made.files[1]], tmp_path / "made.so", *STRICT, "-shared", "-fPIC")))
    generator = np.random.default_rng(5)
    for table in made.groups:
        layer = table.layer
        lines, depth = layer.n * (1 + layer.gated), -(-layer.k // 128)
        w = device_array(bits(generator, layer.dtype, (layer.groups, lines, layer.k)), layer.dtype)
        w_scale = device_array(generator.uniform(0.5, 2, (layer.groups, -(-lines // 128), depth)).astype(np.float32))
        for mean, _ in table.choices[:2]:
            rows = layer.groups * mean
            ends = np.sort(generator.integers(0, rows + 1, layer.groups - 1))
            cu = device_array(np.concatenate([[0], ends, [rows]]).astype(np.int32))
            x = device_array(bits(generator, layer.dtype, (rows, layer.k)), layer.dtype)
            x_scale = device_array(generator.uniform(0.5, 2, (depth, -(-rows // 4) * 4)).astype(np.float32))
            outs = [device_array(np.zeros((rows, layer.n), np.uint16), "bf16") for _ in range(2)]
            seen = view(x_scale)
            scales = {"x_scale": seen._replace(shape=(rows, depth), strides=(1, seen.shape[1])), "w_scale": w_scale}
            gemm.group_gemm(x, w, cu, out=outs[0], stream=1, activation="silu_and_mul" if layer.gated else None,
                            **(scales if layer.kind == "fp8-block" else {}))
            asked = Group(type=list(KINDS).index(layer.kind), gated=int(layer.gated), rows=rows, groups=layer.groups, n=layer.n, k=layer.k,
                          x=x.pointer, w=w.pointer, y=outs[1].pointer, cu_seqlens=cu.pointer, x_scale=x_scale.pointer,
                          w_scale=w_scale.pointer)
            needs = ctypes.c_uint64(0)
            with driver.on(0):
                assert getattr(library, f"{made.name}_group_workspace")(ctypes.byref(asked), ctypes.byref(needs)) == 0
                workspace = DeviceArray((max(1, needs.value),), "u8")
                asked.workspace, asked.workspace_bytes = workspace.pointer, needs.value
                assert getattr(library, f"{made.name}_prepare")(at(workspace), needs, ctypes.c_void_p(1)) == 0
                for _ in range(3):
                    status = getattr(library, f"{made.name}_group_gemm")(ctypes.byref(asked), ctypes.c_void_p(1))
                    assert status == 0, said(library, made.name)
            driver.synchronize(0)
            assert outs[0].numpy().tobytes() == outs[1].numpy().tobytes(), (layer, mean)
