"""The driver and the warm launch, on a Hopper GPU."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest

from ptxkit.dsl.descriptor import TensorMapFields
from ptxkit.errors import AssembleError, LaunchError, Position
from ptxkit.runtime import arrays, driver, launch, launcher, toolchain
from ptxkit.types import bf16, f32

from . import planted

pytestmark = pytest.mark.gpu

# out[cta * 32 + lane] = scale * value + cta
AXPY = f"""{planted.HEAD}.visible .entry axpy(.param .u64 out, .param .u32 value, .param .f32 scale)
.reqntid 32
{{
.reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<5>;
ld.param.u64 %rd1, [out];
cvta.to.global.u64 %rd1, %rd1;
ld.param.u32 %r1, [value];
ld.param.f32 %f1, [scale];
mov.u32 %r2, %tid.x;
mov.u32 %r3, %ctaid.x;
mad.lo.u32 %r4, %r3, 32, %r2;
mul.wide.u32 %rd2, %r4, 4;
add.u64 %rd3, %rd1, %rd2;
cvt.rn.f32.u32 %f2, %r1;
cvt.rn.f32.u32 %f3, %r3;
fma.rn.f32 %f4, %f1, %f2, %f3;
st.global.f32 [%rd3], %f4;
ret;
}}
"""

# A 16 x 32 box of f32 through a tensor map into shared memory, and out again row by row: one CTA of 32 threads.
COPY = f"""{planted.HEAD}.extern .shared .align 128 .b8 smem[];
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 out, .param .s32 x, .param .s32 y)
.reqntid 32
{{
.reg .b32 %r<10>; .reg .b64 %rd<6>; .reg .pred %p<3>; .reg .f32 %f<2>;
mov.b64 %rd1, map;
cvta.param.u64 %rd1, %rd1;
ld.param.u64 %rd2, [out];
cvta.to.global.u64 %rd2, %rd2;
ld.param.s32 %r1, [x];
ld.param.s32 %r2, [y];
mov.u32 %r3, %tid.x;
mov.u32 %r4, smem;
setp.ne.u32 %p0, %r3, 0;
@%p0 bra WAIT;
mbarrier.init.shared::cta.b64 [%r4+2048], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4+2048], 2048;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd1, {{%r1, %r2}}], [%r4+2048];
WAIT:
bar.sync 0;
SPIN:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4+2048], 0;
@!%p1 bra SPIN;
mul.lo.u32 %r5, %r3, 4;
add.u32 %r6, %r4, %r5;
mul.wide.u32 %rd3, %r3, 4;
add.u64 %rd4, %rd2, %rd3;
mov.u32 %r7, 0;
ROW:
ld.shared.f32 %f1, [%r6];
st.global.f32 [%rd4], %f1;
add.u32 %r6, %r6, 128;
add.u64 %rd4, %rd4, 128;
add.u32 %r7, %r7, 1;
setp.lt.u32 %p2, %r7, 16;
@%p2 bra ROW;
ret;
}}
"""

# out[cta] = rank in the cluster
CLUSTER = f"""{planted.HEAD}.visible .entry ranks(.param .u64 out)
{{
.reg .b32 %r<4>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [out];
cvta.to.global.u64 %rd1, %rd1;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %cluster_ctarank;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r2;
ret;
}}
"""


@pytest.fixture(scope="module")
def axpy() -> launcher.Launcher:
    return launcher.Launcher(driver.load(AXPY).kernel("axpy"), ("u64", "u32", "f32"), block=(32, 1, 1))


def poisoned(count: int, dtype: str = "f32") -> arrays.DeviceArray:
    return launch.device_array(np.full(count, 0xDEADBEEF, np.uint32), dtype)


def test_the_device() -> None:
    device = driver.device(0)
    assert device.capability == (9, 0)
    assert device.multiprocessors > 50
    assert device.shared_per_block == 232448
    assert driver.driver_version() >= (12, 0)


def test_arrays_go_there_and_back() -> None:
    for array in (np.arange(35, dtype=np.float32).reshape(5, 7), np.zeros((0, 3), np.float16), np.array(5, np.int64)):
        back = launch.device_array(array).numpy()
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
    bits = np.arange(12, dtype=np.uint16)
    half = launch.device_array(bits, "bf16")
    assert (half.dtype, launch.view(half).dtype) == ("bf16", "bf16")
    np.testing.assert_array_equal(half.numpy().view(np.uint16), bits)


def test_the_address_tells_the_device() -> None:
    assert driver.device_of(poisoned(4).pointer) == 0
    with pytest.raises(LaunchError, match="not an address of device memory"):
        driver.device_of(16)


def test_a_launch(axpy: launcher.Launcher) -> None:
    out = poisoned(96)
    axpy(launch.LEGACY_STREAM, (3, 1, 1), (out.pointer, 7, 0.5))
    np.testing.assert_array_equal(out.numpy(), np.repeat([3.5, 4.5, 5.5], 32))
    axpy(launch.LEGACY_STREAM, (2, 1, 1), (out.pointer, 8, 0.25))
    np.testing.assert_array_equal(out.numpy(), np.repeat([2.0, 3.0, 5.5], 32))


@pytest.mark.ptxas
def test_a_launch_from_a_cubin() -> None:
    kernel = driver.load(toolchain.assemble(AXPY).cubin).kernel("axpy")
    out = poisoned(32)
    launcher.Launcher(kernel, ("u64", "u32", "f32"), block=(32, 1, 1))(launch.LEGACY_STREAM, (1, 1, 1), (out.pointer, 1, 2.0))
    np.testing.assert_array_equal(out.numpy(), np.full(32, 2.0))


def test_a_launch_from_another_thread(axpy: launcher.Launcher) -> None:
    outs = [poisoned(32) for _ in range(8)]

    def work(number: int) -> None:
        for _ in range(200):
            axpy(launch.LEGACY_STREAM, (1, 1, 1), (outs[number].pointer, number, 1.0))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, out in enumerate(outs):
        np.testing.assert_array_equal(out.numpy(), np.full(32, float(number)))


def test_wrong_arguments(axpy: launcher.Launcher) -> None:
    for scalars, says in (((1, 2), "takes 3 arguments"), ((1, -1, 0.0), "-1 does not fit"), ((1, 2.5, 0.0), "2.5 does not fit")):
        with pytest.raises(LaunchError, match=says):
            axpy(launch.LEGACY_STREAM, (1, 1, 1), scalars)
    with pytest.raises(LaunchError, match="takes 0 tensor maps, not 1"):
        axpy(launch.LEGACY_STREAM, (1, 1, 1), (1, 2, 0.0), (object(),))  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match=r"grid \(0, 1, 1\) is empty"):
        axpy(launch.LEGACY_STREAM, (0, 1, 1), (1, 2, 0.0))
    with pytest.raises(LaunchError, match="type pred cannot be passed"):
        launcher.Launcher(axpy.kernel, ("pred",), block=(32, 1, 1))


@pytest.mark.parametrize("name", ["wrong operand type", "unknown instruction", "unknown label", "parse error"])
def test_ptx_errors_of_the_driver_are_mapped(name: str) -> None:
    case = planted.ERRORS[name]
    assert case.line is not None
    with pytest.raises(AssembleError, match="the driver refused this PTX") as caught:
        driver.load(case.ptx, lines={case.line: Position("kernel.py", 77)})
    assert [finding.position for finding in caught.value.findings] == [Position("kernel.py", 77)]
    assert case.says in caught.value.log


def test_the_info_log_has_remarks_and_resources() -> None:
    new = f"// {time.time_ns()}\n"  # what the driver has assembled before comes from its own cache, without a log
    library = driver.load(planted.REMARKS["setmaxnreg without a cap"].ptx + new)
    assert "C7508" in [finding.rule for finding in library.findings], library.log
    clean = driver.load(AXPY)
    assert clean.findings == ()
    assert clean.names() == ("axpy",)


def test_setmaxnreg_survives_the_drivers_assembler() -> None:
    kernel = driver.load(planted.SETMAXNREG_IN_EFFECT).kernel("k")
    assert kernel.attributes(0).registers == 168


def test_refusals() -> None:
    with pytest.raises(LaunchError, match=r"exactly 10\.0"):
        driver.load(AXPY.replace("sm_90a", "sm_100a"))
    with pytest.raises(LaunchError, match="no entry 'missing'"):
        driver.load(AXPY).kernel("missing")
    with pytest.raises(LaunchError, match="there is no CUDA device 99"):
        driver.device(99)
    with pytest.raises(LaunchError, match="gives at most"):
        driver.load(AXPY).kernel("axpy").allow_shared(232448 + 1, 0)
    with pytest.raises((AssembleError, LaunchError)):  # with lazy loading the driver looks at a cubin when an entry is asked for
        driver.load(b"\x7fELF nonsense").kernel("axpy")


@pytest.mark.ptxas
def test_code_for_another_gpu() -> None:
    cubin = toolchain.assemble(AXPY.replace("sm_90a", "sm_80"), "sm_80").cubin
    with pytest.raises((LaunchError, AssembleError)):
        driver.load(cubin).kernel("axpy").attributes(0)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_clusters(size: int) -> None:
    kernel = driver.load(CLUSTER).kernel("ranks")
    run = launcher.Launcher(kernel, ("u64",), block=(32, 1, 1), cluster=(size, 1, 1))
    out = poisoned(48, "u32")
    run(launch.LEGACY_STREAM, (48, 1, 1), (out.pointer,))
    np.testing.assert_array_equal(out.numpy(), np.arange(48) % size)
    assert kernel.max_clusters(0, block=(32, 1, 1), cluster=(size, 1, 1)) >= 1
    if size > 1:
        with pytest.raises(LaunchError, match="must be a multiple of the cluster"):
            run(launch.LEGACY_STREAM, (size + 1, 1, 1), (out.pointer,))


def fields(width: int, height: int) -> TensorMapFields:
    return TensorMapFields(f32, (width, height), (width * 4,), (32, 16))


def test_a_tensor_map_and_another_pointer() -> None:
    run = launcher.Launcher(driver.load(COPY).kernel("copy"), ("tensormap", "u64", "s32", "s32"), block=(32, 1, 1), shared=100_000)
    host = np.arange(40 * 64, dtype=np.float32).reshape(40, 64)
    first, second = launch.device_array(host), launch.device_array(-host)
    tensormap = launcher.encode_tiled(fields(64, 40), first.pointer)
    assert tensormap.address % 64 == 0
    assert len(bytes(tensormap)) == 128
    out = poisoned(512)
    run(launch.LEGACY_STREAM, (1, 1, 1), (out.pointer, 8, 5), (tensormap,))
    np.testing.assert_array_equal(out.numpy().reshape(16, 32), host[5:21, 8:40])
    run(launch.LEGACY_STREAM, (1, 1, 1), (out.pointer, -4, 30), (tensormap,))
    want = np.zeros((16, 32), np.float32)
    want[:10, 4:] = host[30:40, :28]
    np.testing.assert_array_equal(out.numpy().reshape(16, 32), want)
    tensormap.replace(second.pointer)
    run(launch.LEGACY_STREAM, (1, 1, 1), (out.pointer, 0, 0), (tensormap,))
    np.testing.assert_array_equal(out.numpy().reshape(16, 32), -host[:16, :32])


@pytest.mark.parametrize(("map_fields", "offset", "says"), [
    (fields(64, 40), 4, "not a multiple of 16"),
    (TensorMapFields(bf16, (63, 40), (126,), (32, 16)), 0, "multiple of 16"),
    (TensorMapFields(bf16, (64, 40), (128,), (64, 257)), 0, "box extent 257"),
    (TensorMapFields(bf16, (256, 40), (512,), (128, 16), swizzle=128), 0, "swizzle span"),
])
def test_the_driver_refuses_a_tensor_map(map_fields: TensorMapFields, offset: int, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        launcher.encode_tiled(map_fields, poisoned(65536).pointer + offset)


def test_every_encoding_that_the_fields_call_legal() -> None:
    array = poisoned(1 << 16)
    for type_ in (f32, bf16):
        for swizzle in (0, 32, 64, 128):
            for promotion in (0, 64, 128, 256):
                inner = (swizzle or 64) * 8 // type_.bits
                made = TensorMapFields(type_, (256, 64), (256 * type_.bits // 8,), (inner, 8), swizzle=swizzle, l2_promotion=promotion)
                assert made.problem(array.pointer) is None
                launcher.encode_tiled(made, array.pointer)


@pytest.mark.parametrize("alone", [True, False])
def test_a_warm_launch_is_at_most_two_calls_of_the_driver(monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """Which device is current, where there are several, and the launch: nothing is encoded, loaded, looked up or waited for. What it takes
    is measured by `python -m ptxkit.gemm bench --host`."""
    text = AXPY.replace(".param .u64 out,", "".join(f".param .align 64 .b8 map{i}[128], " for i in range(3)) + ".param .u64 out,")
    run = launcher.Launcher(driver.load(text).kernel("axpy"), (*["tensormap"] * 3, "u64", "u32", "f32"), block=(32, 1, 1))
    run._alone = alone
    out, calls = poisoned(32), []
    maps = tuple(launcher.encode_tiled(fields(64, 40), out.pointer) for _ in range(3))
    with driver.on(0):
        run(launch.LEGACY_STREAM, (1, 1, 1), (out.pointer, 0, 1.0), maps)
        for slot in ("_get_device", "_launch"):
            real = getattr(run, slot)
            setattr(run, slot, lambda *given, real=real, slot=slot: (calls.append(slot), real(*given))[1])
        for owner, name in ((driver, "on"), (launcher, "_entry"), (launcher, "encode_tiled")):
            monkeypatch.setattr(owner, name, lambda *_, name=name: pytest.fail(f"a warm launch asks for {name}"))
        for number in range(1, 101):
            run(launch.LEGACY_STREAM, (1, 1, 1), (out.pointer, number, 1.0), maps)
        monkeypatch.undo()
        driver.synchronize()
    assert calls == (["_launch"] if alone else ["_get_device", "_launch"]) * 100
    assert (out.numpy() == 100).all()


def test_torch_arrays_streams_and_graphs(axpy: launcher.Launcher) -> None:
    torch = pytest.importorskip("torch")
    out = torch.full((64,), -1.0, device="cuda")
    seen = launch.view(out)
    assert (seen.dtype, seen.shape, seen.device, seen.owner) == ("f32", (64,), 0, "torch")
    assert launch.raw_stream(None, seen) == torch.cuda.current_stream().cuda_stream
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert launch.raw_stream(None, seen) == side.cuda_stream == launch.raw_stream(side)
        axpy(launch.raw_stream(None, seen), (2, 1, 1), (seen.pointer, 3, 1.0))
    side.synchronize()
    assert out.tolist() == [3.0] * 32 + [4.0] * 32
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        axpy(launch.raw_stream(None, seen), (2, 1, 1), (seen.pointer, 10, 1.0))
    axpy(launch.raw_stream(None, seen), (2, 1, 1), (seen.pointer, 20, 1.0))
    graph.replay()
    torch.cuda.synchronize()
    assert out.tolist() == [10.0] * 32 + [11.0] * 32
    made = launch.empty_like_owner(seen, (3, 4), "bf16")
    assert (made.dtype, tuple(made.shape), made.is_cuda) == (torch.bfloat16, (3, 4), True)
    assert torch.as_tensor(launch.device_array(np.arange(3, dtype=np.float32)), device="cuda").tolist() == [0.0, 1.0, 2.0]


def test_cupy_arrays(axpy: launcher.Launcher) -> None:
    cupy = pytest.importorskip("cupy")
    out = cupy.zeros((2, 32), dtype=cupy.float32)
    seen = launch.view(out)
    assert (seen.dtype, seen.strides, seen.device, seen.owner) == ("f32", (32, 1), 0, "cupy")
    axpy(launch.raw_stream(None, seen), (2, 1, 1), (seen.pointer, 3, 1.0))
    assert cupy.asnumpy(out)[:, 0].tolist() == [3.0, 4.0]
    assert launch.empty_like_owner(seen, (3,), "f16").dtype == cupy.float16


def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU here")
    array = jax.numpy.ones((4, 8), jax.numpy.bfloat16)
    seen = launch.view(array)
    assert (seen.dtype, seen.shape, seen.owner) == ("bf16", (4, 8), "jax")


def test_a_fault_is_reported_at_the_next_call() -> None:
    """Last, in a process of its own: the fault ends the context."""
    import subprocess

    program = ("from ptxkit.runtime import driver, launcher\nfrom ptxkit.errors import LaunchError\n"
               "from tests.ptxkit.test_driver_gpu import AXPY\n"
               "run = launcher.Launcher(driver.load(AXPY).kernel('axpy'), ('u64', 'u32', 'f32'), block=(32, 1, 1))\n"
               "run(1, (1, 1, 1), (64, 1, 1.0))\n"
               "try:\n    driver.synchronize()\nexcept LaunchError as error:\n    print(error)\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "ILLEGAL_ADDRESS" in done.stdout, done.stderr
