"""hgemm on a Hopper GPU; the recorded sweep is `python -m gemm verify`."""

from __future__ import annotations

import numpy as np
import pytest

import gemm
from gemm import verify
from gemm.config import Config
from gemm.run import Product, on_gpu
from ptxkit.types import bf16, f16, f32
from tests.gemm.test_config import PAIRS

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def test_random_products():
    results = verify.run(150, 7)
    assert results["failures"] == []


@pytest.mark.parametrize(("dtype", "out", "a_major", "b_major", "BN", "CLUSTER"), PAIRS)
def test_every_sampled_configuration(dtype, out, a_major, b_major, BN, CLUSTER):
    layout = ("n" if a_major == "k" else "t") + ("n" if b_major == "mn" else "t")
    for m, n, k in ((8, 8, 8), (384, 520, 200), (2000, 1032, 776)):
        case = verify.Case(m, n, k, dtype.__name__, out.__name__, layout, 8, 0, 8)
        for stages in (2, 3, 0):
            assert verify.check(torch, case, Config(dtype, out, a_major, b_major, BN, stages, CLUSTER)) is None


def test_a_wrong_kernel_is_caught(monkeypatch):
    monkeypatch.setattr(gemm, "hgemm", lambda a, b, d, config=None: d.copy_((a.float() @ b.float() * 1.001).to(d.dtype)))
    assert verify.check(torch, verify.Case(64, 64, 64, "f16", "f32", "nt")) is not None


def test_a_graph_replays_with_the_values_of_that_time():
    a, b = (torch.randn((256, 256), device="cuda", dtype=torch.float16) for _ in range(2))
    d = torch.empty((256, 256), device="cuda", dtype=torch.float16)
    gemm.hgemm(a, b, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm.hgemm(a, b, d)
    a.copy_(torch.randn_like(a))
    graph.replay()
    torch.testing.assert_close(d.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)


def test_out_is_allocated_on_the_current_stream_and_deterministic():
    a, b = (torch.randn((300, 304), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    with torch.cuda.stream(torch.cuda.Stream()):
        first = gemm.hgemm(a[:, :296], b[:296], out_dtype=f32)
        assert first.dtype is torch.float32
        assert all(torch.equal(first, gemm.hgemm(a[:, :296], b[:296], out_dtype="f32")) for _ in range(20))


def test_only_numpy():
    from ptxkit import device_array

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    d = gemm.hgemm(device_array(a), device_array(b), out_dtype=f32)
    np.testing.assert_allclose(d.numpy(), a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-4)


def test_the_command(capsys):
    for layout, dtype, out in (("nt", bf16, bf16), ("tn", f16, f32)):
        report = on_gpu(Product(512, 512, 512, dtype.__name__, out.__name__, layout), check=True, repeat=3)
        assert report["wrong"] == 0
        assert report["executed"]
