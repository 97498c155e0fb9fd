"""debug.print and debug.check in a kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, if_, kernel, tid
from ptxkit.dsl import debug
from ptxkit.errors import TraceError
from ptxkit.ptx import cvt, ld, mov
from ptxkit.types import f32, u32, u64

TEXT: list[Any] = ["text"]
pytestmark = pytest.mark.timeout(120)


@kernel(block=32)
def prints(x: Ptr[f32], n: Reg[u32], wide: Reg[u64]) -> None:
    thread = mov.u32(tid.x)
    with if_(thread < 3):
        debug.print("%d of %u: %.2f, %llx, 100%% %c %d\n", thread, n, ld.global_.f32(x.at(thread)), wide, 33, thread < 1)
    with if_(thread == 31):
        debug.print("done\n")


@kernel(block=64)
def checks(n: Reg[u32]) -> None:
    thread = mov.u32(tid.x)
    debug.check(thread < n, "every thread has a row")


@pytest.mark.pure
def test_print() -> None:
    report = prints.simulate(1, np.array([0.5, 1.25, -3, *range(29)], np.float32), 7, 0xABCDEF0123, check=False)
    assert not report.findings, report
    assert report.output == "".join(f"{i} of 7: {value:.2f}, abcdef0123, 100% ! {int(i < 1)}\n"
                                    for i, value in enumerate((0.5, 1.25, -3))) + "done\n"


@pytest.mark.pure
def test_a_check_that_holds() -> None:
    assert not checks.simulate(2, 64, check=False).findings


@pytest.mark.pure
def test_a_check_that_fails() -> None:
    report = checks.simulate(1, 40, check=False)
    finding, = report.findings
    assert finding.rule == "assertion"
    assert "CTA 0 warp 1 lane 8: assertion `checks, every thread has a row` failed" in finding.message
    assert finding.position is not None
    assert finding.position.file is not None
    assert finding.position.file.endswith("test_engine_debug.py")
    assert f":{finding.position.line}: " in finding.message


@pytest.mark.pure
@pytest.mark.parametrize(("emit", "words"), [
    (lambda n: debug.print("%d\n"), "1 conversions, 0 values"),
    (lambda n: debug.print("%s\n", n), "has a conversion that debug.print has not"),
    (lambda n: debug.print("%lld\n", n), "prints 64 bits"),
    (lambda n: debug.print("%f\n", n), "prints an f32 or f64 register"),
    (lambda n: debug.print("%f\n", 3), "prints a float, not 3"),
    (lambda n: debug.print("%d\n", *TEXT), "takes registers and ints"),
    (lambda n: debug.print("%d\n", cvt.u64.u32(n)), "prints 32 bits")])
def test_misuse(emit: Callable[[Any], None], words: str) -> None:
    @kernel(block=32)
    def wrong(n: Reg[u32]) -> None:
        emit(n)

    with pytest.raises(TraceError, match=words):
        wrong.ptx()


@pytest.mark.ptxas
@pytest.mark.parametrize("subject", [prints, checks])
def test_it_assembles(subject: Any) -> None:
    assert subject.assemble().findings == ()


@pytest.mark.gpu
def test_on_the_device() -> None:
    """The driver writes to the process's standard output, so another process runs it."""
    program = ("import numpy as np\nfrom ptxkit import device_array\nfrom ptxkit.runtime.driver import synchronize\n"
               "from tests.sim.test_engine_debug import checks, prints\n"
               "prints.launch(1, device_array(np.array([0.5, 1.25, -3, *range(29)], np.float32)), 7, 0xABCDEF0123)\n"
               "synchronize(0)\nchecks.launch(1, 64, stream=0)\nsynchronize(0)\nchecks.launch(1, 40, stream=0)\n"
               "synchronize(0)\n")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2])
    for i, value in enumerate((0.5, 1.25, -3)):
        assert f"{i} of 7: {value:.2f}, abcdef0123, 100% ! {int(i < 1)}\n" in ran.stdout
    assert "done\n" in ran.stdout
    assert "CUDA_ERROR_ASSERT" in ran.stderr
    assert "every thread has a row" in ran.stdout + ran.stderr
