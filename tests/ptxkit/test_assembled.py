"""What ptxas makes of kernels: no spills, no findings, setmaxnreg in effect, shared memory as planned."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from ptxkit import Ptr, Reg, kernel, link, smem
from ptxkit import func as device_function
from ptxkit.dsl.kernel import Kernel
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, Pingpong, SplitK, Static, Tile
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.ptx import bar, ld, setmaxnreg
from ptxkit.ptx import st as store
from ptxkit.runtime.toolchain import assemble, disassemble
from ptxkit.types import bf16, e4m3, f16, f32, u32
from tests.ptxkit.machine import trace
from tests.ptxkit.test_kernel import first, second, uses_functions

pytestmark = [pytest.mark.ptxas, pytest.mark.timeout(120)]


def test_functions_shared_memory_and_joined_modules_assemble() -> None:
    @device_function
    def through_shared(n: Reg[u32]) -> Reg[u32]:
        array = smem.array(u32, 64)
        store.shared__cta.u32(array.at(n), n)
        bar.sync(0)
        return ld.shared__cta.u32(array.at(n))

    def function(out: Ptr[u32], n: Reg[u32]) -> None:
        store.global_.u32(out, through_shared(n))

    assert kernel(block=32)(function).assemble().resources["function"].shared == 256
    assert kernel(block=32)(uses_functions).assemble().findings == ()
    found = assemble(link([first, second]).ptx()).resources
    assert {name: r.shared for name, r in found.items()} == {"first": 32, "second": 64}


EXAMPLES = ("vector_add", "tma_copy", "tile_gemm", "cluster_multicast", "warp_reduction", "attention_tile")


def example_kernels() -> dict[str, Kernel[Any]]:
    found = {}
    for name in EXAMPLES:
        module = importlib.import_module(f"examples.{name}")
        found.update({f"{name}.{attribute}": value for attribute, value in vars(module).items() if isinstance(value, Kernel)})
    return found


@pytest.mark.parametrize("name", example_kernels())
def test_the_examples_kernels_assemble_without_spills_or_findings(name: str) -> None:
    assembly = example_kernels()[name].assemble()
    (entry,) = assembly.resources.values()
    assert (entry.spills, entry.stack) == (0, 0)
    assert assembly.findings == ()


@pytest.mark.parametrize("config", [
    DenseConfig(), DenseConfig(Operands(out=f16), Tile(192, 64, 128)),
    DenseConfig(Operands(f16, f16, f32, a_major="mn", b_major="mn"), Tile(128, 128), 0, Pingpong(), Static(cluster=ClusterShape(2, 1))),
    DenseConfig(Operands(e4m3, e4m3, bf16), Tile(64, 32), scheduler=SplitK(2))], ids=str)
def test_the_gemm_assembles_without_spills_or_findings_and_keeps_setmaxnreg(config: DenseConfig) -> None:
    """Two mma warpgroups, three, pingpong and one; tests/gemm has the rest."""
    assembly = kernel_of(config).assemble(**config.parameters)
    (entry,) = assembly.resources.values()
    assert (entry.spills, entry.stack, assembly.findings) == (0, 0, ())
    assert config.warpgroups == 1 or entry.registers == {2: 168, 3: 128}[config.warpgroups]
    counts = [line.split("USETMAXREG", 1)[1] for line in disassemble(assembly.cubin).splitlines() if "USETMAXREG" in line]
    assert [sum(".DEALLOC" in c for c in counts), len(counts)] == ([1, 2] if config.warpgroups > 1 else [0, 0])


def test_a_dropped_setmaxnreg_is_a_finding() -> None:
    """The gate above can fail: without the cap at entry ptxas ignores setmaxnreg and says so."""

    def function(n: Reg[u32]) -> None:
        setmaxnreg.dec.sync.aligned.u32(40)

    text = trace(function, block=128).ptx().replace(".minnctapersm 1\n", "").replace(".reqntid 128, 1, 1\n", "")
    assert [f.rule for f in assemble(text).findings] == ["C7508"]


def test_the_summary_of_a_kernel_is_one_line() -> None:
    from examples.tile_gemm import tile_gemm

    assert re.fullmatch(r"256 threads, 163,904 bytes of shared memory, \d+ registers, 0 bytes spilled", tile_gemm.summary())
