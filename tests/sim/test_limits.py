"""Every run ends, and every refusal is a sentence: limits and how they are raised, values of a launch that are none, illegal texts."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from ptxkit import sim
from ptxkit.sim import Limits
from ptxkit.sim.limits import MAX_STEPS
from ptxkit.sim.names import Names
from ptxkit.sim.operand import Address

from . import fuzz
from .kernels import kernel

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
COUNTS = "mov.u32 %r1, 0;\nL:\nadd.u32 %r1, %r1, 1;\nbra L;"
PRINTF = """.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 words[8] = {104, 101, 108, 108, 111, 33, 10, 0};
"""
PRINTS = """.param .b64 text;
.param .b64 values;
.param .b32 result;
mov.u64 %rd1, words;
mov.u64 %rd2, 0;
mov.u32 %r2, 0;
L:
st.param.b64 [text], %rd1;
st.param.b64 [values], %rd2;
call (result), vprintf, (text, values);
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, {};
@%p1 bra L;
"""
ONE = kernel("ret;", "")


def run(text: str, **options: Any) -> sim.Report:
    return sim.run(text, **{"grid": 1, "block": 32, "args": (), **options})


def test_an_endless_loop_that_changes_a_register_ends() -> None:
    report = run(kernel(COUNTS, ""))
    assert [f.rule for f in report.findings] == ["max-steps"]
    assert MAX_STEPS <= report.stats.instructions < MAX_STEPS + 5_000


@pytest.mark.parametrize("steps", [1, 10, 1000, 77_777])
@pytest.mark.parametrize("body", [COUNTS, "L:\nbar.sync 0;\nbra L;", "mov.u32 %r1, 0;\nL:\n" + "add.u32 %r1, %r1, 1;\n" * 30 + "bra L;"])
def test_one_number_of_steps(steps: int, body: str) -> None:
    """The finding names the instructions that the report counts, and the limit; a run ends near it."""
    report = run(kernel(body, ""), max_steps=steps, block=64, check=False)
    (finding,) = report.findings
    assert finding.rule == "max-steps"
    assert f"not ended after {report.stats.instructions:,} warp instructions (max_steps is {steps:,})" in finding.message
    assert steps <= report.stats.instructions <= 40 * steps + 64


def test_a_program_of_exactly_so_many_instructions_ends() -> None:
    text = kernel("add.u32 %r1, %r2, 1;\n" * 99, "")
    assert run(text, max_steps=100, check=False).ended
    assert not run(text, max_steps=99, check=False).ended


def test_printf_floods() -> None:
    text = kernel(PRINTS.format(1000), "", before=PRINTF)
    assert run(text, block=1).output == "hello!\n" * 1000
    report = run(text, block=1, limits=Limits(output=6_999))
    assert [f.rule for f in report.findings] == ["max-output"]
    assert "printed more than 6,999 characters" in report.findings[0].message
    assert "limits=sim.Limits(output=...)" in report.findings[0].message
    assert run(text, block=1, limits=Limits(output=7_000)).ended


SIZES = [
    (".global .b8 big[8589934592];\n", "", "",
     r"take 8,589,934,592 bytes of global memory: at most 2,147,483,648, unless .*memory="),
    (".const .align 4294967296 .b8 a;\n.const .b8 b[9];\n.const .align 4294967296 .b8 c;\n", "", "",
     r".const variables take .* at most 65,536"),
    ("", ".local .b8 big[1073741824];\nld.local.u32 %r1, [big];", "", r".local variables of `k` take 1,073,741,824 bytes: at most 524,288"),
    ("", ".reg .b32 %x<1000000000>;", "", r"declares 1,000,000,000 registers %x: .* at most 1,048,576, unless .*registers="),
    ("", ".shared .b8 big[1073741824];", "", "bytes of shared memory a CTA: at most 232,448"),
    ("", "", ".param .b8 big[40000]", r"parameters of `k` take 40,000 bytes: at most 32,764"),
]


@pytest.mark.parametrize(("before", "body", "parameters", "words"), SIZES)
def test_sizes_that_no_gpu_has(before: str, body: str, parameters: str, words: str) -> None:
    with pytest.raises(sim.SimulationError, match=words):
        run(kernel(body + "\nret;", parameters, before=before), args=(b"",) * bool(parameters))


def test_local_memory_is_made_where_it_is_used_and_counted() -> None:
    text = kernel(".local .align 4 .b8 big[400000];\nmov.u32 %r0, %ctaid.x;\nsetp.ne.u32 %p1, %r0, 5;\n@%p1 ret;\n"
                  "st.local.u32 [big+399996], %r0;\nld.local.u32 %r1, [big+399996];", "")
    assert run(text, grid=64).ended
    with_all = text.replace("@%p1 ret;", "")
    report = run(with_all, block=1024, limits=Limits(memory=1 << 27))
    assert [f.rule for f in report.findings] == ["max-memory"]
    assert "400,000 bytes of local memory each, together more than 134,217,728" in report.findings[0].message
    assert run(with_all, grid=40, card=sim.run.__kwdefaults__["card"].with_sms(4), limits=Limits(memory=1 << 27)).ended  # given back


def test_a_lane_does_not_reach_the_local_memory_of_another() -> None:
    for place in ("+16", "+-4"):
        report = run(kernel(f".local .align 16 .b8 words[16];\nmov.u32 %r0, %tid.x;\nst.local.u32 [words{place}], %r0;", ""))
        assert [f.rule for f in report.findings][:1] == ["out-of-bounds"], report


def test_addresses_of_64_bits_anywhere() -> None:
    for address in ("0x7FFFFFFFFFFFFFF0", "0xFFFFFFFFFFFFFFF0", "0x8000000000000000", "0xDEADBEEFDEADBEE0"):
        for space in ("", ".local", ".global", ".shared", ".const"):
            report = run(kernel(f"mov.u64 %rd1, {address};\nld{space}.u32 %r1, [%rd1];", ""))
            assert [f.rule for f in report.findings][:1] == ["out-of-bounds"], (address, space, report)
            report = run(kernel(f"mov.u64 %rd1, {address};\nmov.u32 %r0, %laneid;\nmul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd1, %rd1, %rd2;\n"
                                f"ld{space}.u32 %r1, [%rd1];", ""))
            assert [f.rule for f in report.findings][:1] == ["out-of-bounds"], (address, space, report)


def test_a_grid_of_many_ctas() -> None:
    with pytest.raises(sim.SimulationError, match=r"a grid of 2,147,483,647 CTAs: at most 1,048,576, unless limits=sim.Limits\(ctas="):
        run(ONE, grid=2**31 - 1)
    with pytest.raises(sim.SimulationError, match="a grid of 9 CTAs: at most 8"):
        run(ONE, grid=(3, 3), limits=Limits(ctas=8))


@pytest.mark.parametrize("grid", [np.int64(2), 2, (2,), [2, 1], (np.int32(2), 1, 1)])
def test_a_grid_of_numbers(grid: Any) -> None:
    assert run(ONE, grid=grid).stats.instructions == 2


@pytest.mark.parametrize(("options", "words"), [
    *(({"grid": grid}, "grid is one to three positive extents, not ") for grid in (1.5, None, "x", (), (1, None), -1, {}, np.zeros(2))),
    ({"block": 1.5}, "block is one to three positive extents, not 1.5"), ({"cluster": "x"}, "cluster is one to three"),
    ({"dynamic_smem": "x"}, "dynamic_smem is an int, not 'x'"), ({"dynamic_smem": 1.5}, "dynamic_smem is an int"),
    ({"seed": None}, "seed is an int, not None"), ({"max_steps": 1.5}, "max_steps is an int"), ({"schedule": None}, "schedule=None is no"),
    ({"card": 3}, "card=3 is no"), ({"limits": 3}, "limits=3 is no"), ({"entry": 5}, "no entry `5`"),
    ({"args": None}, "args is a sequence"),
])
def test_values_that_are_no_launch(options: dict[str, Any], words: str) -> None:
    with pytest.raises(sim.SimulationError, match=words):
        run(ONE, **options)


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", None])
def test_limits_are_positive(value: Any) -> None:
    with pytest.raises(sim.SimulationError, match="is a positive int, not"):
        Limits(output=value)


@pytest.mark.parametrize(("body", "words"), [
    ("ld.global.f32 %f1, [%rd999];", "line 14: `ld.global.f32`: `%rd999` is no declared name"),
    ("@%none ret;", "`%none` is no declared name"), ("@%r1 ret;", "the guard `%r1` is no predicate"),
    ("mov.u32 %r1, nowhere;", "`nowhere` is no declared name"), ("ld.shared.u32 %r1, [nowhere+4];", "`nowhere` is no declared name"),
])
def test_illegal_text_is_named_with_its_line(body: str, words: str) -> None:
    with pytest.raises(sim.SimulationError, match=words):
        run(kernel(body, ""))


def test_what_fails_within_is_told_apart_from_a_mistake_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("x")

    module = sys.modules["ptxkit.sim.simulation"]
    monkeypatch.setattr(module, "Arguments", broken)
    with pytest.raises(sim.InternalError, match="failed with KeyError: 'x'; this is a defect of ptxkit"):
        run(ONE)
    with pytest.raises(sim.SimulationError, match=r"this is no legal PTX: line \d+: error .duplicate-name"):
        run(kernel("ret;", "").replace(".reg .f64 %fd<8>;", ".reg .f64 %r<8>;"))
    monkeypatch.setattr(module, "Arguments", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(ONE)


def test_random_edits_of_the_corpus() -> None:
    """A few of what `python -m tests.sim.fuzz` runs; runs and refusals both come."""
    seen = {fuzz.run(seed) for seed in range(150)}
    assert {"clean", "error", "SimulationError", "ParseError", "UnsupportedError"} <= seen
    assert "nothing said" not in seen


@pytest.mark.sweep
@pytest.mark.timeout(1200)
def test_random_edits_of_the_corpus_at_length() -> None:
    assert fuzz.main(["10000", "1000000"]) == 0


def test_the_edits_find_what_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that goes on with names that are declared nowhere."""
    real = Names.operand

    def careless(self: Names, parameter: Any, value: Any, scope: Any) -> Any:
        try:
            return real(self, parameter, value, scope)
        except sim.SimulationError:
            return Address(None)  # type: ignore[arg-type]

    monkeypatch.setattr(Names, "operand", careless)
    monkeypatch.setattr("ptxkit.sim.failure._reason", lambda module, error, callers: error)
    with pytest.raises(AttributeError):
        fuzz.main(["400"], stop=True)
