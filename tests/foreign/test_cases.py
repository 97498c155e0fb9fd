"""Kernels of Triton, Gluon, CuTe DSL and TileLang, by the real packages: `make test-foreign`."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.foreign.cases import CASES, Case, normal
from ptxkit import PtxkitError, prove
from ptxkit.check import check_text

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.compiler} {case.name}")
def test_a_kernel_is_right_and_proven_or_its_mistake_is_shown(case: Case) -> None:
    ready = case.ready()
    proof = prove(*ready.arguments, schedules=4, **ready.config)
    assert ready.right
    if case.mistakes:
        found = {finding.rule for finding, _ in proof.findings() if finding.severity == "error"}
        assert found >= set(case.mistakes), "the rules, and what shows that they are broken"
    else:
        assert proof.proven, str(proof)
    assert proof.launch.compiler.startswith(case.compiler)
    assert [finding for finding in check_text(proof.launch.text) if finding.severity == "error"] == []


def test_a_wrong_tile_is_noticed() -> None:
    """The oracle of these tests can fail: half of the rows are not computed."""
    (case,) = [case for case in CASES if case.name == "softmax"]
    ready = case.ready()
    kernel, _, *args = ready.arguments
    prove(kernel, (3,), *args, schedules=1, **ready.config)
    assert not ready.right


def test_a_planted_race_is_found_and_shown_at_its_line(tmp_path: Path) -> None:
    from .planted import last

    out = np.zeros(4, np.int32)
    proof = prove(last, (4,), out, schedules=("fifo", "reverse"))
    assert not proof.proven
    ((finding, _),) = [each for each in proof.findings() if each[0].severity == "error"]
    assert finding.rule == "global-race"
    assert str(finding.position).partition(":")[0].endswith("planted.py")
    assert (proof.difference.array, proof.difference.index) == ("out", (0,)) if proof.difference else False
    page = proof.page(tmp_path / "last.html").read_text()
    assert "tl.store(out, tl.program_id(0))" in page, "the line of the source"
    stored = next(line.strip() for line in proof.launch.text.splitlines() if "st.global" in line)
    assert html.escape(stored) in page, "the instruction, as Triton has written it"


def test_what_does_not_fit_is_named() -> None:
    import triton

    from benchmarks.foreign.triton_kernels import matmul_tma_host, softmax

    x, y = normal(4, 64), np.zeros((4, 64), np.float32)
    many = triton.autotune([triton.Config({"SIZE": size}) for size in (64, 128)], [])
    takes = "`softmax` takes x, y, columns, SIZE"
    grid = "the grid of `softmax` is one to three positive numbers of programs, not"
    cases: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
        (None, (x, y, 64), {}, "does not say its grid"),
        (x, (y, 64), {}, "does not say its grid"),
        ((), (x, y, 64), {}, f"{grid} ()"),
        ("4", (x, y, 64), {}, f"{grid} '4'"),
        ((4, 0), (x, y, 64), {}, f"{grid} (4, 0)"),
        (lambda meta: meta["rows"], (x, y, 64), {}, "the grid of `softmax` is a function, which fails: KeyError: 'rows'"),
        (4, (x, y), {}, f"{takes}: nothing is given for columns"),
        (4, (x, y, 64), {"SIZE": None}, "Triton cannot compile `softmax`"),
        (4, (x, y, 64, 64, 64), {}, f"{takes}: 5 arguments were given"),
        (4, (x, y, 64), {"x": x}, f"{takes}: x was given twice"),
        (4, (x, y, 64), {"WIDTH": 3}, "WIDTH was specified but unrecognised"),
        (4, (x, y, 64), {"num_warps": 3}, "num_warps must be a power of 2"),
        (4, (x, y, 64), {"block": 128}, "block: the compiler of this kernel says so itself"),
        (4, ([1.0], y, 64), {}, "`x` is [1.0]: pass a NumPy array, a torch tensor on the CPU, a number or a TensorDescriptor"),
        (4, (x, y, "64"), {}, "`columns` is '64'"),
        (4, (x, y, 1 << 64), {}, "`columns` is 18446744073709551616, which no type of 64 bits holds"),
        (4, (x.astype(object), y, 64), {}, "`x` has elements of object"),
        (4, (x.astype(">f4"), y, 64), {}, "`x` has elements of '>f4', whose bytes are in the order of another machine"),
        (4, (7, y, 64), {}, "Triton cannot compile `softmax`(x: i32, y: *fp32, columns: i32, SIZE: constexpr): "),
        (4, (x, y, 64), {"previous": {"writes": ["z"]}}, "names 'z'; the parameters are x, y, columns, ")]
    for given, args, config, message in cases:
        with pytest.raises(PtxkitError) as error:
            prove(softmax, given, *args, **{"SIZE": 64, **config})
        assert message in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(PtxkitError, match="2 configurations of"):
        prove(many(softmax), 4, x, y, 64)
    with pytest.raises(PtxkitError, match=r"triton_kernels.py:\d+: .*no attribute 'load'"):
        prove(matmul_tma_host, 1, x, x, x, 64, BM=64, BN=64, BK=64)


def test_messages_have_the_authors_names() -> None:
    from benchmarks.foreign.triton_kernels import softmax

    x, y = normal(4, 64), np.zeros((4, 64), np.float32)
    proof = prove(softmax, np.int64(4), x, y, np.int32(64), SIZE=64, schedules=1, previous={"writes": ["x"]})
    (finding,) = [finding for finding, _ in proof.findings() if finding.rule == "dependent-launch"]
    assert "reads `x` (x +0x0)" in finding.message


def test_another_version_of_a_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton.runtime.jit

    from benchmarks.foreign.triton_kernels import softmax

    monkeypatch.delattr(triton.runtime.jit, "create_function_from_signature")
    with pytest.raises(PtxkitError, match=r"reads kernels of triton 3\.9, and triton here is 3\.9\.0: cannot import .*--group foreign"):
        prove(softmax, 4, normal(4, 64), np.zeros((4, 64), np.float32), 64, SIZE=64)


def test_a_compiled_kernel_a_grid_by_a_function_and_torch() -> None:
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from benchmarks.foreign.triton_kernels import softmax

    x, y = torch.from_numpy(normal(4, 64)), torch.zeros(4, 64)
    assert prove(softmax, lambda meta: (meta["columns"] // 16,), x, y, 64, SIZE=64, schedules=1).proven
    assert torch.allclose(y, torch.softmax(x, 1), atol=1e-6)
    source = ASTSource(softmax, {"x": "*fp32", "y": "*fp32", "columns": "i32", "SIZE": "constexpr"}, {(3,): 64})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    y.zero_()
    assert prove(compiled, (4,), x, y, 64, schedules=1).proven
    assert torch.allclose(y, torch.softmax(x, 1), atol=1e-6)
