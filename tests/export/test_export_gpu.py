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
from ptxkit import Kernel, device_array
from ptxkit.runtime import driver

from .recorder import CC, STRICT, compiled, said

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
