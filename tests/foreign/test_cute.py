"""What the adapter of CuTe DSL reads: host code, and the encoding of tensor maps."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import pytest

from benchmarks.foreign.cases import normal
from ptxkit import PtxkitError, prove
from ptxkit.adapters.encoded import decoded
from ptxkit.dsl.tensormap import TensorMap

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]


def map_of(element: Any, box: tuple[int, ...], swizzle: int, shape: tuple[int, ...]) -> tuple[TensorMap, Any]:
    """The tensor map that CuTe DSL makes of an array, as the adapter reads it, and the array."""
    from benchmarks.foreign.cute_maps import loader

    array = np.zeros(shape, f"u{element.width // 8}")
    proof = prove(loader(element, box, swizzle), None, array, schedules=1)
    (found,) = [part for value in proof.launch.args for _, part, _ in value.parts() if isinstance(part, TensorMap)]
    return found, array


@pytest.mark.parametrize("name", ["Float32", "Float16", "BFloat16", "Int32", "Uint8", "TFloat32"])
def test_maps_of_element_types(name: str) -> None:
    import cutlass

    words = {"Float32": "f32", "Float16": "f16", "BFloat16": "bf16", "Int32": "u32", "Uint8": "u8", "TFloat32": "tf32"}
    found, _ = map_of(getattr(cutlass, name), (64, 32), 0, (64, 128))
    assert found.dtype is not None
    assert (found.dtype.__name__, found.box, found.shape, found.strides) == (words[name], (64, 32), (64, 128), (128, 1))


@pytest.mark.parametrize(("box", "swizzle"), [((32,), 0), ((2, 64, 32), 0), ((2, 4, 8, 32), 0), ((1, 2, 4, 8, 32), 0), ((64, 8), 32),
                                              ((64, 16), 64), ((64, 32), 128)])
def test_maps_of_ranks_and_swizzles(box: tuple[int, ...], swizzle: int) -> None:
    import cutlass

    shape = tuple(64 * (axis + 1) if axis == len(box) - 1 else 8 * (axis + 1) for axis in range(len(box)))
    found, array = map_of(cutlass.Float32, box, swizzle, shape)
    assert (found.box, found.swizzle, found.shape) == (box, swizzle, shape)
    assert found.strides == (*reversed(list(accumulate(reversed(array.shape[1:]), mul))), 1)


def test_bits_that_are_not_known_are_refused() -> None:
    data = bytearray(128)
    data[8:12] = (0x40392).to_bytes(4, "little")
    assert decoded(bytes(data)) is not None
    for bit in (0, 2, 3, 11, 12, 15, 17, 22, 31):
        wrong = bytearray(data)
        wrong[8 + bit // 8] ^= 1 << bit % 8
        assert decoded(bytes(wrong)) is None


def test_tensors_of_the_run_time_and_torch() -> None:
    import torch
    from cutlass.cute.runtime import from_dlpack

    from benchmarks.foreign.cute_kernels import add

    a, b = normal(300), normal(300, seed=1)
    for taken in (torch.from_numpy, lambda array: from_dlpack(array).mark_layout_dynamic()):
        c = np.zeros(300, np.float32)
        assert prove(add(), *map(taken, (a, b, c)), schedules=1).proven
        assert np.array_equal(c, a + b)


def test_what_does_not_fit_is_named() -> None:
    from benchmarks.foreign.cute_kernels import add

    made, a = add(), normal(300)
    takes = "`_launch_add` takes a, b, c"
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((a, a), {}, f"{takes}: missing a required argument: 'c'"),
        ((a, a, a, a), {}, f"{takes}: too many positional arguments"),
        (((2,), a, a, a), {}, f"{takes}: too many positional arguments"),
        ((a, a, a), {"d": a}, f"{takes}: got an unexpected keyword argument 'd'"),
        ((None, None, a, a), {}, "`a` is a tensor: pass an array, not None"),
        ((a, "b", a), {}, "`b` is a tensor: pass an array, not 'b'"),
        ((a, a, [1.0]), {}, "`c` is a tensor: pass an array, not [1.0]"),
        ((a, a, a.astype(np.float64)), {}, "`c` has elements of float64: `_launch_add` was compiled for float32"),
        ((a, a.astype(np.int32), a), {}, "`b` has elements of int32"),
        ((a.astype(object), a, a), {}, "`a` has elements of object"),
        ((a.astype(">f4"), a, a), {}, "`a` has elements of '>f4', whose bytes are in the order of another machine"),
        ((a[:0], a[:0], a[:0]), {}, "`_launch_add` launches a grid of 0 x 1 x 1 CTAs with these arguments: a is (0,)"),
        ((a, a, a), {"block": 64}, "block: the compiler of this kernel says so itself"),
        ((a, a.copy(), a.copy()), {"previous": {"writes": ["d"]}}, "names 'd'; the parameters are a, b, c, ")]
    for args, config, message in cases:
        with pytest.raises(PtxkitError) as error:
            prove(made, *args, **config)
        assert message in str(error.value)
    made.artifacts.PTX = "kept/cutlass__launch_add.sm_90a.ptx"
    with pytest.raises(PtxkitError, match=r"at kept/cutlass__launch_add\.sm_90a\.ptx: make the folder that CUTE_DSL_DUMP_DIR names"):
        prove(made, *[normal(3)] * 3)
    made.artifacts.PTX = None
    with pytest.raises(PtxkitError, match="CUTE_DSL_KEEP=ptx"):
        prove(made, *[normal(3)] * 3)


def test_numbers_and_names() -> None:
    """A number is taken from NumPy, too; an argument may be given by name; messages name arrays as the function does."""
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack

    from benchmarks.foreign.cute_kernels import scale_in_place

    a = normal(64)
    made = cute.compile(scale_in_place, from_dlpack(a), cutlass.Float32(2.0))
    proof = prove(made, None, a, factor=np.float32(2.0), schedules=1, previous={"writes": ["a"]})
    assert np.array_equal(a, 2 * normal(64))
    assert {finding.message.partition(" with ")[0] for finding, _ in proof.findings() if finding.rule == "dependent-launch"} == {
        "CTA 0 warp 0 reads `a` (a +0x0)", "CTA 0 warp 0 writes `a` (a +0x0)"}
    for value in ("2", None, a):
        with pytest.raises(PtxkitError, match=r"`factor` is a number \(Float32\)"):
            prove(made, None, a, value)
