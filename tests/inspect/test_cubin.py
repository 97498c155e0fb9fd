"""Cubins read without tools against ptxas, cuobjdump and the PTX; cut and changed ones."""

from __future__ import annotations

import contextlib
import re
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.errors import NoToolError, PtxkitError
from ptxkit.grammar import parse
from ptxkit.inspect.entry import bounds, parameters
from ptxkit.inspect.linked import linked
from ptxkit.runtime import toolchain
from ptxkit.sass import cubin

from .subjects import CORPUS, PARTS

pytestmark = pytest.mark.ptxas
FILES = [path for path in CORPUS if path.stem not in PARTS]


def assembled(path: Path) -> toolchain.Assembly:
    text = path.read_text()
    return toolchain.assemble(text, "sm_90a")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_entries_as_ptxas_and_the_text_have_them(path: Path) -> None:
    made = assembled(path)
    found = cubin.read(made.cubin)
    module = parse(path.read_text())
    assert found.target == "sm_90a"
    assert found.tool == f"V{made.tool.version}"
    assert set(found.entries) == {entry.name for entry in module.entries}
    for entry in module.entries:
        machine, said = found.entries[entry.name], made.resources[entry.name]
        assert (machine.registers, machine.shared, machine.barriers) == (said.registers, said.shared, said.barriers)
        assert machine.stack == said.stack
        assert [p.bytes for p in machine.parameters] == [p.bytes for p in parameters(entry)]
        if all((variable.align or 8) <= 16 for variable in entry.parameters):
            assert [p.offset for p in machine.parameters] == [p.offset for p in parameters(entry)]
        limits = bounds(entry)
        for word, dims in (("reqntid", machine.reqntid), ("maxntid", machine.maxntid), ("reqnctapercluster", machine.cluster)):
            if word in limits:
                assert dims == (*limits[word], 1, 1)[:3], word


@pytest.mark.parametrize("path", FILES[::4], ids=lambda path: path.stem)
def test_as_cuobjdump_reads_it(path: Path, tmp_path: Path) -> None:
    try:
        tool = toolchain.cuobjdump()
    except NoToolError as error:
        pytest.skip(str(error))
    made = assembled(path).cubin
    (tmp_path / "k.cubin").write_bytes(made)
    said = subprocess.run([tool.path, "-res-usage", tmp_path / "k.cubin"], capture_output=True, text=True, check=True)
    text = said.stdout + said.stderr
    listed = {name: (int(registers), int(shared)) for name, registers, shared in re.findall(
        r"Function ([\w$.]+):\s+REG:(\d+) STACK:\w+ SHARED:(\d+)", text)}
    found = cubin.read(made).entries
    assert found
    for name, machine in found.items():  # cuobjdump counts what the system reserves as the entry's own, ptxas does not
        registers, shared = listed[name]
        assert machine.registers == registers
        assert shared - machine.shared in (0, cubin.RESERVED)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100a"])
def test_targets(target: str) -> None:
    text = f".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
    assert cubin.read(toolchain.assemble(text, target).cubin).target == target


def subject() -> bytes:
    return assembled(next(path for path in CORPUS if path.stem == "wgmma")).cubin


def test_cut_anywhere_it_is_an_error() -> None:
    """But for the program headers at the end, which nothing here needs."""
    whole = subject()
    table, = struct.unpack_from("<Q", whole, 40)
    size, count = struct.unpack_from("<HH", whole, 58)
    for length in range(0, table + size * count, 397):
        with pytest.raises(PtxkitError):
            cubin.read(whole[:length])


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_changed_bytes_give_a_cubin_or_an_error(data: st.DataObject) -> None:
    whole = bytearray(subject())
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PtxkitError):
        assert cubin.read(bytes(whole)).target.startswith("sm_")


# ------------------------------------------------------------------------------------------------ machine code by PTX line

MEANT = {"HGMMA": "wgmma.mma_async", "UTMALDG": "cp.async.bulk.tensor", "UTMASTG": "cp.async.bulk.tensor", "UBLKCP": "cp.async.bulk",
         "LDSM": "ldmatrix", "STSM": "stmatrix", "USETMAXREG": "setmaxnreg"}
MOSTLY = {"LDG": "ld", "STG": "st", "ATOMG": "atom", "BAR": "bar", "MUFU": "."}
"""What an instruction of the machine comes from; nearly always, since ptxas's line table has gaps."""


LINKED = [path for path in FILES if path.stem in ("atomics", "debug", "low_precision", "tma", "triton_matmul", "wgmma")]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.stem)
def test_each_instruction_comes_from_a_line_of_its_kind(path: Path) -> None:
    made, module = assembled(path), parse(path.read_text())
    text = path.read_text().split("\n")
    lines, problem = linked(module, "sm_90a", made.cubin)
    assert problem == ""
    code = [line for line in lines if line.offset is not None]
    sizes = {name: machine.code_bytes for name, machine in cubin.read(made.cubin).entries.items()}
    for name, size in sizes.items():
        assert len([line for line in code if line.function == name]) == size // 16
    right = wrong = 0
    for line in code:
        mnemonic = re.sub(r"^@!?U?P\w+\s+", "", line.text).split(".")[0].split(" ")[0]
        for at in line.ptx_lines:
            assert 1 <= at <= len(text)
            if mnemonic in MEANT:
                assert MEANT[mnemonic] in text[at - 1], (line, text[at - 1])
            elif mnemonic in MOSTLY:
                right, wrong = (right + 1, wrong) if MOSTLY[mnemonic] in text[at - 1] else (right, wrong + 1)
    assert wrong <= 0.25 * (right + wrong)
    assert sum(line.ptx_lines != () for line in code) >= 0.7 * len(code)
