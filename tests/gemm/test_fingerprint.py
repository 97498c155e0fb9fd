"""Fingerprints of machine code: the same for the same kernel, wherever its parameters lie, and others for another kernel."""

from __future__ import annotations

import ast
import gzip
import multiprocessing
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ptxkit import Ptr, Reg, TensorMap, kernel, laneid
from ptxkit.dsl.kernel import Kernel
from ptxkit.errors import PtxkitError
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.tools.fingerprint import adapter, draw, record, sass
from ptxkit.gemm.tools.fingerprint.command import report
from ptxkit.gemm.tools.fingerprint.record import Fingerprints, Record, take
from ptxkit.idioms import prefetch_tensormaps
from ptxkit.ptx import mov, st
from ptxkit.runtime.toolchain import assemble
from ptxkit.sass import cubin
from ptxkit.types import u32, u64

SMALL = {"dense": 2, "grouped": 2}


def body(first: TensorMap, second: TensorMap, out: Ptr[u32], wide: Reg[u64], low: Reg[u32], high: Reg[u32], constant: int) -> None:
    prefetch_tensormaps(first, second)
    place = out.at(mov.u32(laneid))
    st.global_.u32(place, low + high * constant)
    st.global_.u64(place.cast(u64).at(wide), wide)


@kernel(target="sm_90a", block=32)
def one(first: TensorMap, second: TensorMap, out: Ptr[u32], wide: Reg[u64], low: Reg[u32], high: Reg[u32], *, C: int = 3) -> None:
    body(first, second, out, wide, low, high, C)


@kernel(target="sm_90a", block=32)
def other(low: Reg[u32], high: Reg[u32], wide: Reg[u64], second: TensorMap, out: Ptr[u32], first: TensorMap, *, C: int = 3) -> None:
    body(first, second, out, wide, low, high, C)


def text(of: Kernel[...], renamed: dict[str, str] | None = None, **config: int) -> list[str]:
    traced = of.trace(**config)
    made = assemble(traced.ptx()).cubin
    code = sass.code(made)
    (entry,), (lines,) = cubin.read(made).entries.values(), sass.disassembled([code])
    return sass.normalised(lines, code, sass.Parameters.of(entry, [each.name for each in traced.parameters], renamed or {}))


@pytest.mark.ptxas
def test_parameters_may_lie_elsewhere():
    said = text(one)
    assert said == text(other)
    assert any("&first" in line for line in said)
    assert any("&second" in line for line in said)
    assert any("c[wide]" in line for line in said)
    assert any("c[low,high]" in line for line in said), "one load of two neighbours"
    assert max(int(found, 16) for line in said for found in re.findall(r"c\[0x0\]\[(\w+)\]", line)) < sass.FIRST_PARAMETER


@pytest.mark.ptxas
def test_a_constant_or_another_name_makes_a_difference():
    assert text(one) != text(one, C=5)
    assert text(one) != text(one, {"low": "lower"})
    assert text(one, {"low": "lower"}) == text(other, {"low": "lower"})


@pytest.mark.ptxas
def test_a_bit_that_is_not_printed_makes_a_difference():
    made = assemble(one.ptx()).cubin
    code = bytearray(sass.code(made))
    (entry,) = cubin.read(made).entries.values()
    names = sass.Parameters.of(entry, [each.name for each in one.trace().parameters], {})
    before = sass.normalised(*sass.disassembled([bytes(code)]), bytes(code), names)
    code[16 + 8 + 5] ^= 1 << 5                                  # the yield of the second instruction
    after = sass.normalised(*sass.disassembled([bytes(code)]), bytes(code), names)
    assert [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new] == [1]


@pytest.mark.pure
def test_the_draw_is_data_of_its_own():
    nodes = ast.walk(ast.parse(Path(draw.__file__).read_text(encoding="utf-8")))
    imported = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    assert sorted(filter(None, imported)) == ["__future__", "collections.abc", "dataclasses", "typing"]
    keys = [draw.draw(kind, 5, number).key for kind in ("dense", "grouped") for number in range(200)]
    assert keys == [draw.draw(kind, 5, number).key for kind in ("dense", "grouped") for number in range(200)]
    assert len(set(keys)) == len(keys)


@pytest.mark.pure
def test_keys_say_everything():
    plain = draw.Dense(128, 256, 64)
    assert plain.key == "dense 128x256x64 bf16*bf16>bf16 nt"
    forced = replace(plain, fused=draw.Fused(bias="f32"), force={"tile": (64, 128), "serpentine": True})
    assert forced.key == "dense 128x256x64 bf16*bf16>bf16 nt bias=f32 | serpentine=1 tile=64x128"
    assert draw.Grouped(8, 64, 256, 128, mean=4.0).key == "grouped 8:64x256x128 bf16*bf16>bf16 offsets mean=4"


@pytest.mark.pure
def test_most_problems_have_kernels():
    for kind, configuration in (("dense", adapter.dense_config), ("grouped", adapter.grouped_config)):
        found = 0
        for number in range(60):
            try:
                configuration(draw.draw(kind, 3, number))       # type: ignore[operator]
                found += 1
            except (adapter.Unsupported, PtxkitError):
                continue
        assert found > 35


@pytest.mark.ptxas
def test_a_run_is_deterministic_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = tmp_path / "first.json"
    options = ["fingerprint", "--dense", "1", "--grouped", "1", "--seed", "2", "--keep", str(tmp_path / "code")]
    assert main([*options, "--jobs", "1", "-o", str(first)]) == 0
    assert take(2, {"dense": 1, "grouped": 1}, jobs=2).text() == first.read_text(encoding="utf-8")
    assert main(["fingerprint", "--compare", str(first), "--seed", "3"]) == 1, "another file's problems are of its seed"
    capsys.readouterr()
    assert main(["fingerprint", "--compare", str(first)]) == 0
    assert "0 different, 0 only in the old one, 0 only in the new one" in capsys.readouterr().out

    old = Fingerprints.read(first)
    assert old.text() == first.read_text(encoding="utf-8")
    key, records = next(iter(sorted(old.problems.items())))
    changed = replace(old, problems={**old.problems, key: (records[0]._replace(sass="0", registers=1), *records[1:])})
    assert report(old, changed) == 1
    assert f"different: {key}\n" in (said := capsys.readouterr().out)
    assert f"registers {records[0].registers} there, 1 here" in said
    assert report(replace(old, problems={}), old) == 1


@pytest.mark.ptxas
@pytest.mark.sweep
def test_a_kernel_that_differs_is_assembled_again():
    """As if ptxas had made another program at the first try; what it never makes stays different."""
    old = take(2, SMALL, jobs=1)
    (one, records), (two, others) = sorted(old.problems.items())[:2]
    wrong = {one: (records[0]._replace(sass="0"),), two: (others[0]._replace(sass="1"),)}
    new = replace(old, problems={**old.problems, **wrong})
    with multiprocessing.get_context("spawn").Pool(1, record._begin, ("", "")) as pool:
        record._try_again(new, replace(old, problems={**old.problems, two: (others[0]._replace(sass="2"),)}), pool)
    assert new.problems[one] == records
    assert new.problems[two] == wrong[two]
    assert new.again == 1


@pytest.mark.pure
def test_the_first_line_that_differs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, lines in (("a", "x\ny\n"), ("b", "x\nz\n")):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(lines.encode()))
    old, new = (Fingerprints(1, problems={"p": (Record("gemm", name, 8, 0, 0, 0),)}) for name in "ab")
    assert report(old, new, tmp_path) == 1
    assert "line 1: y\n" in capsys.readouterr().out
