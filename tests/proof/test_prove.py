"""`prove`: what a proof says of kernels and of PTX text, in the schedules that are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxkit
from examples.vector_add import vector_add
from ptxkit import PtxkitError, prove
from ptxkit.proof.schedules import SEEDED, schedules_of
from ptxkit.sim import SCHEDULES

from .test_simulate import RACE

CORPUS = Path(__file__).parents[1] / "corpus"

pytestmark = pytest.mark.pure


def operands() -> tuple[Any, Any, Any]:
    a, b = np.random.default_rng(3).standard_normal((2, 700)).astype(np.float32)
    return a, b, np.full(700, np.nan, np.float32)


def test_a_kernel_its_trace_its_tree_its_text_and_its_file(tmp_path: Path) -> None:
    (tmp_path / "add.ptx").write_text(vector_add.ptx())
    for kernel in (vector_add, vector_add.trace(), vector_add.module(), vector_add.ptx(), tmp_path / "add.ptx"):
        a, b, c = operands()
        proof = prove(kernel, 3, a, b, c, 700)
        assert proof.proven
        assert proof.verdict == "clean"
        assert np.array_equal(c, a + b)
        assert str(proof).splitlines() == ["proven: vector_add, 4 schedules: 4 clean",
                                           "every schedule of this input is equivalent to those that ran"]


def test_arguments_by_name_and_arrays_that_cannot_be_written() -> None:
    a, b, c = operands()
    a.flags.writeable = False
    proof = prove(vector_add, 3, a, b, c=c, n=700, schedules=1)
    assert proof.proven
    assert np.array_equal(c, a + b)


def test_each_schedule_starts_from_the_same_memory() -> None:
    """A kernel that adds to its own result would otherwise differ from schedule to schedule."""
    a, _, _ = operands()
    before = a.copy()
    proof = prove(vector_add, 3, a, a, a, 700, schedules=5)
    assert proof.difference is None
    assert np.array_equal(a, before + before)


def test_memory_that_differs_is_named() -> None:
    out = np.zeros((2, 2), np.uint32)
    proof = prove(RACE, 4, out, schedules=12)
    assert not proof.proven
    assert proof.difference is not None
    assert (proof.difference.array, proof.difference.index) == ("out", (0, 1))
    assert out.tolist() == [[0, proof.difference.values[0]], [0, 0]]
    assert proof.verdict in ("incomplete", "error")


def test_a_module_variable_that_differs_is_named() -> None:
    text = RACE.replace(".visible .entry", ".global .u32 kept[2];\n.visible .entry").replace("[%rd1+4]", "[kept+4]")
    proof = prove(text, 4, np.zeros(4, np.uint32), schedules=("fifo", "reverse"))
    assert proof.difference is not None
    assert str(proof.difference) == "memory differs: `kept`[4] is 3 in schedule fifo, 0 in schedule reverse"


def test_a_proof_has_no_truth_value() -> None:
    a, b, c = operands()
    with pytest.raises(TypeError, match=r"ask \.proven"):
        assert prove(vector_add, 3, a, b, c, 700, schedules=1)


def test_a_finding_is_told_once_with_its_schedules() -> None:
    a, b, c = operands()
    proof = prove(vector_add, 3, a, b, c[:600].copy(), 700, schedules=3)
    ((finding, schedules),) = proof.findings()
    assert (finding.rule, finding.severity) == ("out-of-bounds", "error")
    assert [name for name, _ in schedules] == ["fifo", "random", "reverse"]
    assert str(proof).splitlines()[1:] == [str(finding)]
    assert proof.failing is not None
    assert proof.failing.report.verdict == "error"


@pytest.mark.parametrize("count", [1, 4, 10, 11, 40])
def test_schedules_are_different_and_the_same_each_time(count: int) -> None:
    found = schedules_of(count)
    assert len(set(found)) == count
    assert found == schedules_of(count)
    assert found[0] == ("fifo", 0)
    assert all(seed == 0 or name in SEEDED for name, seed in found)
    assert count < len(SCHEDULES) or {name for name, _ in found} == set(SCHEDULES)


def test_bounds_of_nvcc_are_the_block() -> None:
    text = RACE.replace(".reqntid 32", ".maxntid 64, 1, 1")
    proof = prove(text, 1, np.zeros(4, np.uint32), schedules=1)
    assert proof.launch.block == (64, 1, 1)
    assert prove(text, 1, np.zeros(4, np.uint32), schedules=1, block=32).launch.block == 32


@pytest.mark.parametrize(("call", "message"), [
    (lambda: prove(vector_add), "does not say its grid"),
    (lambda: prove(3, 4), "3 is no kernel that ptxkit knows"),
    (lambda: prove(RACE, 4), "takes 1 argument"),
    (lambda: prove(RACE, 4, 5.5), "`out`"),
    (lambda: prove(RACE, 4, np.zeros(4), BM=3), "compile-time parameters are for kernels"),
    (lambda: prove(RACE, 4, np.zeros(4), schedules=0), "schedules is at least 1"),
    (lambda: prove(RACE, 4, np.zeros(4), schedules=[]), "schedules is empty"),
    (lambda: prove(RACE, 4, np.zeros(4), schedules=["worst"]), "there is no schedule 'worst'"),
    (lambda: prove(RACE, 4, np.zeros(4), entry="first"), "the module has no entry `first`; it has last"),
    (lambda: prove(Path("gone.ptx"), 4), "cannot read gone.ptx"),
    (lambda: prove("gone.ptx", 4), "cannot read gone.ptx"),
    (lambda: prove("gone", 4), "found 'gone'"),
    (lambda: prove(RACE, np.zeros(4)), "grid is one to three positive extents, not an array"),
    (lambda: prove(RACE, 4, np.array([{}])), "`out` has elements of object, which no kernel can use"),
    (lambda: prove(RACE, 4, np.array(["a"])), "`out` has elements of <U1, which no kernel can use"),
])
def test_bad_input_is_an_error_of_ptxkit(call: Any, message: str) -> None:
    with pytest.raises(PtxkitError) as error:
        call()
    assert message in str(error.value)


def test_prove_is_a_name_of_ptxkit() -> None:
    assert ptxkit.prove is prove
    assert "prove" in ptxkit.__all__


STRUCT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .align 8 .b8 p[24])
.reqntid 32
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [p+8];
    ld.param.u64 %rd2, [p+16];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r3, [%rd4];
    mul.lo.s32 %r3, %r3, %r1;
    st.global.u32 [%rd5], %r3;
    ret;
}
"""


def test_pointers_inside_a_struct() -> None:
    a, b = np.arange(40, dtype=np.uint32), np.zeros(40, np.uint32)
    data = b"\0" * 8 + (3).to_bytes(4, "little") + b"\0" * 12
    assert prove(STRUCT, 1, ptxkit.sim.Struct(data, {0: (a, 32), 16: b})).proven
    assert b.tolist() == [*(3 * i for i in range(8, 40)), *[0] * 8]
    proof = prove(STRUCT, 1, ptxkit.sim.Struct(data, {0: (a, 64), 16: b}))
    assert [finding.rule for finding, _ in proof.findings()] == ["out-of-bounds"]
    with pytest.raises(PtxkitError, match="`p` is 24 bytes, a struct of 23 was given"):
        prove(STRUCT, 1, ptxkit.sim.Struct(data[:-1], {0: a}))
    with pytest.raises(PtxkitError, match="a struct of 24 bytes has no 8 bytes at 20"):
        ptxkit.sim.Struct(data, {20: a})
