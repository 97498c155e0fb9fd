"""Where runs of fma yield: machine code is the same but for the hints, and the hints are where the text asks for them."""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path

import pytest

from ptxkit import Ptr, Reg, errors, grammar, kernel
from ptxkit.cli.main import main
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.launch.group_kernels import kernel_of
from ptxkit.gemm.tools.bench.grouped_cases import case
from ptxkit.gemm.tools.problems import problem_of
from ptxkit.ptx import fma, ld
from ptxkit.ptx import st as store
from ptxkit.runtime.toolchain import assemble, disassemble
from ptxkit.sass import hints
from ptxkit.sass.cubin import code_of
from ptxkit.types import f32

pytestmark = pytest.mark.timeout(120)
CASES = ("8x512x4096x7168:fp8-block", "6x1024x7168x3072:fp8-block", "8x512x4096x7168:fp8-block:gated")


def in_rows(ptx: str) -> list[str]:
    """Of each fma of the machine code R (its factor is kept), y (it yields) or -; other instructions end a word."""
    cubin = assemble(ptx).cubin
    letters = []
    for start, size in code_of(cubin):
        for at in range(start, start + size, 16):
            low, high = struct.unpack_from("<QQ", cubin, at)
            letters.append(" " if low & 0xFFF != 0x223 else "R" if high >> 59 & 1 else "-" if high >> 45 & 1 else "y")
    return "".join(letters).split()


def ptx_of(name: str, which: int = 0) -> str:
    config = heuristic(problem_of(case(name))).kernels[which]
    return kernel_of(config).ptx(**config.parameters)


def asks(name: str) -> str:
    ptx = ptx_of(name)
    assert hints.fma_yield(8) in ptx
    return ptx


@pytest.mark.ptxas
@pytest.mark.parametrize("name", CASES)
def test_a_run_yields_at_every_eighth_and_keeps_its_factor_in_between(name: str) -> None:
    ptx = asks(name)
    with_hints, without = in_rows(ptx), in_rows(hints.take(ptx)[0])
    assert max(map(len, with_hints)) >= 32
    assert [len(word) for word in with_hints] == [len(word) for word in without]
    assert not any(re.search(r"R{8}|R-|R$", word) for word in with_hints)
    assert any("RRRRRRRy" in word for word in with_hints)
    assert not any("RR" in word for word in without), "ptxas spaces them itself now: the pragma may go"


@pytest.mark.thinned(3)
@pytest.mark.ptxas
@pytest.mark.parametrize("name", CASES)
def test_nothing_but_the_hints_changes(name: str) -> None:
    ptx = asks(name)
    text, every = hints.take(ptx)
    plain = assemble(text).cubin
    assert every == 8
    made = assemble(ptx).cubin
    assert made == hints.spaced(plain, 8) != plain

    def read(cubin: bytes) -> str:
        return re.sub(r"\.reuse\b|/\* 0x[0-9a-f]+ \*/", "", disassemble(cubin))

    assert read(made) == read(plain)
    assert "FFMA" in read(made)
    inside = [place for start, size in code_of(plain) for place in range(start, start + size)]
    assert {at for at, (a, b) in enumerate(zip(made, plain, strict=True)) if a != b} <= set(inside)


@pytest.mark.ptxas
@pytest.mark.parametrize("name", CASES)
def test_branches_go_where_nvdisasm_says(name: str) -> None:
    cubin = assemble(ptx_of(name)).cubin
    (start, size), = code_of(cubin)
    labels, place, named = {}, 0, set()
    for line in disassemble(cubin).splitlines():
        if found := re.match(r"\s*/\*([0-9a-f]{4,5})\*/", line):
            place = int(found.group(1), 16) + 16
            named |= set(re.findall(r"`\((\.L_x_\d+)\)", line))
        elif found := re.match(r"(\.L_x_\d+):", line):
            labels[found.group(1)] = place // 16
    assert len(named) > 20
    words = [struct.unpack_from("<QQ", cubin, at) for at in range(start, start + size, 16)]
    assert hints.targets(words) == {labels[name] for name in named}


def test_a_run_ends_where_a_branch_comes_in_and_tables_leave_all_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxkit.sass import cubin as files

    fma_word, stays = 0x223 | 9 << 32, 1 << 45
    back = 0x947 | (256 - 20) << 16 | (2**30 - 1) << 34, 0x3FFFF            # from 8 to 4: 80 bytes back
    words = [(fma_word | number << 16, 0) for number in range(20, 28)] + [back]
    monkeypatch.setattr(files, "code_of", lambda data: [(0, len(data))])

    def made(words: list[tuple[int, int]]) -> list[bool]:
        data = b"".join(struct.pack("<QQ", *word) for word in words)
        return [bool(struct.unpack_from("<Q", hints.spaced(data, 99), 16 * i + 8)[0] & stays) for i in range(8)]

    assert made(words) == [True, True, True, False, True, True, True, False]
    assert made(words[:8]) == [True] * 7 + [False]
    assert made([*words[:8], (0x949, 0)]) == [False] * 8


@pytest.mark.ptxas
def test_a_factor_that_is_written_or_alone_is_not_kept() -> None:
    @kernel(block=32, directives=hints.fma_yield(4))
    def chain(p: Ptr[f32], scale: Reg[f32]) -> None:
        values = [ld.global_.f32(p + 4 * i) for i in range(6)]
        for value in values:
            fma.rn.f32(value, value, value, scale)
        for i, value in enumerate(values):
            store.global_.f32(p + 4 * i, value)

    text, _ = hints.take(chain.ptx())
    assert assemble(chain.ptx()).cubin == assemble(text).cubin


def test_lines_stay_where_they_are() -> None:
    ptx = "a\n" + hints.fma_yield(12) + "\nb\n"
    assert hints.take(ptx) == ("a\n\nb\n", 12)
    assert hints.take('.pragma "nounroll";\n') == ('.pragma "nounroll";\n', None)


ASKING = '''
from ptxkit import Ptr, kernel
from ptxkit.ptx import mov, st
from ptxkit.sass.hints import fma_yield
from ptxkit.types import u32


@kernel(block=32, directives=lambda config: fma_yield(config["EVERY"]) if config["EVERY"] else "")
def asking(p: Ptr[u32], *, EVERY: int = 8) -> None:
    st.global_.u32(p, mov.u32(1))
'''


@pytest.mark.parametrize(("every", "said"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (8, "8th"), (11, "11th"), (22, "22nd"), (0, "")])
def test_what_a_kernel_asks_for_is_shown(every: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "asking_of_a_test.py").write_text(ASKING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    source = ["asking_of_a_test.py:asking", "--set", f"EVERY={every}"]
    assert main(["emit", *source, "-o", "asking.ptx"]) == 0
    text = Path("asking.ptx").read_text()
    assert text.splitlines().count(f'.pragma "ptxkit fma_yield {every}";') == (every > 0)
    shown = [] if not every else [f"machine-code hint fma yields at every {said}"]
    for command in (["inspect", *source], ["inspect", "asking.ptx"]):
        assert main(command) == 0
        rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        assert [row for row in rows if "hint" in row] == shown
    assert main(["inspect", *source, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"][0]["hint"] == (f"fma yields at every {said}" if every else "")


@pytest.mark.ptxas
def test_assemble_shows_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "asking.ptx"
    path.write_text(ptx_of(CASES[0]))
    assert main(["assemble", str(path)]) == 0
    assert re.search(r"^machine-code hint +fma yields at every 8th$", capsys.readouterr().out, re.MULTILINE)


def test_the_tree_says_what_its_text_asks_for() -> None:
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    body = '.entry f() { { .pragma "ptxkit fma_yield 5"; } ret; }\n.entry g()\n.pragma "ptxkit fma_yield 9";\n{ ret; }\n'
    assert hints.take(head + body)[1] == 5
    assert hints.said(grammar.parse(head + body)) == "fma yields at every 5th"
    assert hints.said(grammar.parse(head + '.pragma "nounroll";\n.entry g() { ret; }\n')) == ""
    with pytest.raises(errors.PtxkitError, match='write "ptxkit fma_yield 8"'):
        hints.said(grammar.parse(head + '.entry g() { .pragma "ptxkit yields"; ret; }\n'))


@pytest.mark.parametrize("said", ["ptxkit", "ptxkit fma_yield", "ptxkit fma_yield 0", "ptxkit fma_yield x", "ptxkit reuse 8"])
def test_a_pragma_that_says_nothing_is_an_error(said: str) -> None:
    with pytest.raises(errors.PtxkitError, match='write "ptxkit fma_yield 8"'):
        hints.take(f'.pragma "{said}";')


def test_how_often_is_a_number_of_fmas() -> None:
    with pytest.raises(errors.PtxkitError, match="not at every 0"):
        hints.fma_yield(0)


def test_three_warpgroups_and_other_sums_do_not_ask() -> None:
    for ptx in (ptx_of(CASES[0], 1), ptx_of("8x512x4096x7168:fp8")):
        assert "ptxkit" not in ptx
