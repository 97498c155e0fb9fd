"""Arguments of a launch: a simulation refuses what a launch on a GPU refuses, in the same words; structs with arrays and maps in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxkit import Ptr, Reg, TensorMap, kernel, sim, tid
from ptxkit.dsl.arguments import counted, host, map_fields, needed, number, packed, pointed
from ptxkit.dsl.traced import Traced
from ptxkit.errors import LaunchError
from ptxkit.ptx import st
from ptxkit.runtime.arrays import device_array
from ptxkit.types import bf16, f32, s32, u32

from .kernels import kernel as text
from .test_tensor_faults import shifted

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


@kernel(block=32)
def copies(x: Ptr[f32], y: Ptr[bf16], n: Reg[u32], m: Reg[s32], scale: Reg[f32]) -> None:
    st.global_.f32(x + tid.x, scale)


WIDE = np.zeros((32, 80), np.float32)
X, Y = np.zeros((8, 8), np.float32), np.zeros((8, 8), ml_dtypes.bfloat16)
FITS: tuple[Any, ...] = (X, Y, 3, -3, 1.5)


def address(array: Any) -> int:
    """Where an array would lie whose memory begins at 256."""
    base = array if array.base is None else array.base
    return 256 + int(array.__array_interface__["data"][0]) - int(base.__array_interface__["data"][0])


def launched(traced: Traced, args: tuple[Any, ...]) -> None:
    """The checks that a launch on a GPU makes, of arrays that are there: what `Compiled` and `Launcher` do with views."""
    counted(traced.name, [needed(parameter) for parameter in traced.parameters], len(args))
    for parameter, value in zip(traced.parameters, args, strict=True):
        if parameter.kind == "scalar":
            assert parameter.type is not None
            packed(parameter.name, parameter.type.__name__, value)
        elif parameter.kind == "pointer":
            pointed(parameter, host(parameter.name, value, address(value)))
        else:
            explicit = value if isinstance(value, TensorMap) else None
            array = value.array if isinstance(value, TensorMap) else value
            seen = host(parameter.name, array, address(array))
            map_fields(traced.name, traced.copies.records.get(parameter.name), parameter.name, seen, explicit)


def with_one(index: int, value: Any) -> tuple[Any, ...]:
    return (*FITS[:index], value, *FITS[index + 1:])


MISFITS: list[tuple[tuple[Any, ...], str]] = [
    (with_one(0, X.T), r"`x` has strides \(1, 8\) for shape \(8, 8\): a pointer names memory row after row"),
    (with_one(0, X[:, ::2]), r"`x` has strides \(8, 2\)"), (with_one(0, X[::-1]), r"`x` has strides \(-8, 1\)"),
    (with_one(0, np.broadcast_to(X[:1], (8, 8))), r"`x` has strides \(0, 1\)"), (with_one(0, X[:, 0]), r"`x` has strides \(8,\)"),
    (with_one(0, X.astype(np.float64)), "`x` points to f32, the array has elements of f64"),
    (with_one(0, X.view(np.int32)), "`x` points to f32, the array has elements of s32"),
    (with_one(1, Y.astype(np.float16)), "`y` points to bf16, the array has elements of f16"),
    (with_one(1, Y.view(np.int16)), "`y` points to bf16, the array has elements of s16"),
    (with_one(0, X.astype(np.complex64)), "`x` has elements of complex64, which no PTX type stands for"),
    (with_one(2, -1), r"`n`: -1 does not fit its 32 bits \(u32: 0 to 4,294,967,295\)"),
    (with_one(2, 1 << 32), "`n`: 4294967296 does not fit"),
    (with_one(2, 1.5), "`n` is a u32: pass an int, not 1.5"), (with_one(2, "3"), "`n` is a u32: pass a number, not '3'"),
    (with_one(2, None), "`n` is a u32: pass a number, not None"),
    (with_one(3, 1 << 31), r"`m`: 2147483648 does not fit its 32 bits \(s32: -2,147,483,648 to"),
    (with_one(4, 1e300), r"`scale`: 1e\+300 is beyond the largest f32"),
    (FITS[:3], r"kernel `copies` takes 5 arguments \(x, y, n, m, scale\), 3 were given: `m` needs a number \(s32\); `scale` needs"),
    ((), "`x` needs an array of f32; `y` needs an array of bf16; `n` needs a number"), ((*FITS, 1), "6 were given"),
]


@pytest.mark.parametrize(("args", "words"), MISFITS)
def test_what_a_launch_refuses_a_simulation_refuses(args: tuple[Any, ...], words: str) -> None:
    with pytest.raises(LaunchError, match=words) as there:
        launched(copies.trace(), args)
    with pytest.raises(sim.SimulationError, match=words) as here:
        copies.simulate(1, *args)
    if "starts at address" not in str(here.value):
        assert str(here.value) == str(there.value)
    assert isinstance(here.value, LaunchError)


@pytest.mark.parametrize("args", [
    FITS, with_one(1, Y.view(np.uint16)), with_one(0, np.zeros((8, 16), np.float32)[:, :8]),
    with_one(0, np.zeros((4, 8, 8), np.float32)[1]),
    with_one(0, X.reshape(-1)),
    with_one(0, X[:1].T.T), with_one(2, np.uint32(7)), with_one(2, np.array(7)), with_one(4, 3), with_one(4, np.float64(0.5)),
    with_one(4, float("inf")), with_one(2, True), with_one(0, np.zeros((0, 8), np.float32))])
def test_what_a_launch_takes_a_simulation_takes(args: tuple[Any, ...]) -> None:
    launched(copies.trace(), args)
    assert copies.simulate(1, *args).ended or args[0].size == 0


def test_an_array_that_is_not_aligned() -> None:
    with pytest.raises(sim.SimulationError, match=r"`x` starts at address 0x.*2, which is not a multiple of 4 bytes"):
        copies.simulate(1, np.zeros(50, np.uint8)[2:42].view(np.float32), *FITS[1:])


@pytest.mark.parametrize("dtype", [">f4", ">u2"])
def test_bytes_in_the_order_of_another_machine(dtype: str) -> None:
    array = np.zeros(8, dtype)
    words = "whose bytes are in the order of another machine"
    for refused in (lambda: sim.run(text("ret;"), grid=1, block=32, args=(array,)), lambda: device_array(array)):
        with pytest.raises(LaunchError, match=words):
            refused()
    assert sim.run(text("ret;"), grid=1, block=32, args=(array.astype(array.dtype.newbyteorder("=")),)).ended


@pytest.mark.parametrize(("array", "words"), [
    (WIDE.T, "a tensor map needs the last dimension contiguous"), (WIDE[0], "has 1 dimensions, the kernel copies boxes of 2"),
    (WIDE.astype(np.float16), "has elements of f16, the kernel copies f32"), (WIDE.view(np.int32), "has elements of s32"),
    (WIDE.view(np.uint32), "has elements of u32"), (TensorMap(WIDE.view(np.int32), box=(8, 16)), r"box 16x8 s32, .* differs"),
    (WIDE[:, 1:], "the tensor map of `source` cannot be encoded"),
    (WIDE[:, :66].copy(), "stride"), (WIDE.astype(np.complex64), "which no PTX type stands for"), (WIDE[::-1], "stride"),
    (TensorMap(WIDE, box=(4, 16)), "differs from the tile that the kernel copies"),
    (TensorMap(WIDE, box=(8, 16), dtype="bf16"), "bf16 has 16 bits, the array's f32 32")])
def test_tensor_maps_of_arrays_that_a_launch_refuses(array: Any, words: str) -> None:
    with pytest.raises(LaunchError, match=words) as there:
        launched(shifted.trace(), (array, 0))
    with pytest.raises(sim.SimulationError, match=words) as here:
        shifted.simulate(1, array, 0)
    assert "address" in str(here.value) or str(here.value) == str(there.value)


@pytest.mark.parametrize(("parameter", "value", "bits"), [
    (".param .u32 n", -1, 0xFFFFFFFF), (".param .b32 n", 1.0, 0x3F800000), (".param .b32 n", -2, 0xFFFFFFFE),
    (".param .s32 n", -1, 0xFFFFFFFF), (".param .f32 n", 2, 0x40000000), (".param .u32 n", np.int64(5), 5)])
def test_text_declares_integers_and_floats_as_its_compiler_likes(parameter: str, value: Any, bits: int) -> None:
    out = np.zeros(1, np.uint32)
    body = "ld.param.u64 %rd0, [out];\nld.param.b32 %r1, [n];\nst.global.u32 [%rd0], %r1;"
    assert sim.run(text(body, f".param .u64 out, {parameter}"), grid=1, block=1, args=(out, value)).ended
    assert out[0] == bits


def test_numbers() -> None:
    assert packed("n", "f16", 1.5) == np.float16(1.5).tobytes()
    assert number("n", "b64", 1.0) == 0x3FF0000000000000
    for word, value in (("bf16", 1.5), ("pred", 1), ("b128", 1), ("u8", 256), ("f16", 1e9)):
        with pytest.raises(LaunchError):
            packed("n", word, value)


# ---------------------------------------------------------------------------------------------------- structs

PARAMETERS = ".param .align 64 .b8 params[256], .param .u64 out"
READS = """ld.param.u64 %rd0, [out];
ld.param.u64 %rd2, [params+16];
ld.global.u32 %r1, [%rd2+4];
ld.param.u32 %r2, [params+24];
add.u32 %r1, %r1, %r2;
st.global.u32 [%rd0], %r1;
mov.b64 %rd3, params;
cvta.param.u64 %rd3, %rd3;
add.u64 %rd3, %rd3, 64;
mov.u32 %r3, tile;
mov.u32 %r4, 0;
setp.ne.u32 %p0, %r4, 0;
mbarrier.init.shared::cta.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd3, {%r4, %r4}], [bar];
W:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra W;
ld.shared.u32 %r5, [tile+68];
st.global.u32 [%rd0+4], %r5;
"""
SHARED = ".shared .align 128 .b8 tile[128];\n.shared .align 8 .b64 bar;\n"
RECORD = np.dtype({"names": ["a", "n", "map"], "formats": ["u8", "u4", "V128"], "offsets": [16, 24, 64], "itemsize": 256})


def params(make: Callable[[Any, Any], sim.Struct]) -> tuple[list[int], sim.Report]:
    array, out = np.arange(16 * 16, dtype=np.uint32).reshape(16, 16) + 100, np.zeros(2, np.uint32)
    report = sim.run(text(READS, PARAMETERS, before=SHARED), grid=1, block=1, args=(make(array, TensorMap(array, box=(2, 16))), out))
    return out.tolist(), report


@pytest.mark.parametrize("make", [
    lambda array, map: sim.Struct(None, {16: array, 24: np.uint32(7), 64: map}),
    lambda array, map: sim.Struct(None, {16: (array.reshape(-1), 0), 24: np.uint32(7), 64: map}),
    lambda array, map: sim.Struct(bytes(24) + (7).to_bytes(4, "little") + bytes(228), {16: array, 64: map}),
    lambda array, map: sim.Struct(np.zeros((), RECORD), {"a": array, "n": np.uint32(7), "map": map}),
    lambda array, map: sim.Struct(np.array((0, 7, b""), RECORD), {"a": array, 64: map})])
def test_a_struct_with_an_array_a_number_and_a_tensor_map(make: Callable[[Any, Any], sim.Struct]) -> None:
    found, report = params(make)
    assert report.ended, report
    assert found == [101 + 7, 117]


@pytest.mark.parametrize(("make", "words"), [
    (lambda array, map: sim.Struct(bytes(10), {}), "`params` is 256 bytes, a struct of 10 was given"),
    (lambda array, map: sim.Struct(None, {80: map}), "placed at byte 80 must lie at a multiple of 64"),
    (lambda array, map: sim.Struct(None, {17: array}), "placed at byte 17 must lie at a multiple of 8"),
    (lambda array, map: sim.Struct(None, {192: map}), "`params` is 256 bytes: 128 bytes at 192 do not fit"),
    (lambda array, map: sim.Struct(None, {24: 7}), r"`params\+24`: 7 has no size: pass .* np.int32\(5\)"),
    (lambda array, map: sim.Struct(None, {"n": np.int32(7)}), "there is no field 'n' in its data"),
    (lambda array, map: sim.Struct(None, {-8: array}), "a byte offset or the name of a field, not -8"),
    (lambda array, map: sim.Struct(7, {}), "the data are bytes, a NumPy record or None, not 7"),
    (lambda array, map: array, "`params` is 256 bytes, 1024 were given"), (lambda array, map: 7, "pass bytes, .* or a sim.Struct, not 7")])
def test_structs_that_do_not_fit(make: Callable[[Any, Any], Any], words: str) -> None:
    with pytest.raises(sim.SimulationError, match=words):
        params(make)


def test_a_struct_is_no_number() -> None:
    with pytest.raises(sim.SimulationError, match=r"`out` is .u64, not a block of bytes"):
        sim.run(text("ret;"), grid=1, block=1, args=(sim.Struct(None, {}),))


def test_a_proof_compares_the_arrays_of_a_struct() -> None:
    from ptxkit import prove

    body = """ld.param.u64 %rd2, [params+16];
mov.u32 %r1, %ctaid.x;
st.global.u32 [%rd2], %r1;"""
    array = np.zeros(4, np.uint32)
    proof = prove(text(body, ".param .align 8 .b8 params[24]"), 3, sim.Struct(None, {16: array}), block=1, schedules=8)
    assert proof.verdict == "error"
    assert "params+16" in str(proof)


def test_what_a_kernel_writes_to_a_read_only_array_is_not_lost_silently() -> None:
    @kernel(block=32)
    def doubles(x: Ptr[u32], y: Ptr[u32]) -> None:
        st.global_.u32(y + tid.x, 7)

    x, y = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    x.setflags(write=False)
    assert doubles.simulate(1, x, y).verdict == "clean"             # it is only read
    assert (y == 7).all()
    for fixed in (x, np.zeros(64, np.uint32)[:32]):
        fixed.setflags(write=False)
        if fixed.base is not None:
            fixed.base.setflags(write=False)
        with pytest.raises(sim.SimulationError, match=r"the kernel wrote to `y`, and that array is read-only: pass a copy of it"):
            doubles.simulate(1, np.zeros(32, np.uint32), fixed)
        assert not fixed.any()
