"""ptxas found, run and read: every planted fault comes back at the right line with a way out."""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ptxkit import settings
from ptxkit.errors import AssembleError, Finding, NoToolError, Position
from ptxkit.grammar import parse
from ptxkit.runtime import cache, diagnostics, toolchain

from . import planted
from .planted import Planted

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Settings and tools are read anew, and forgotten again after the test."""
    settings.settings.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    settings.settings.cache_clear()


def python_lines(ptx: str) -> dict[int, Position]:
    """As if every PTX line came from the same line + 1000 of a Python file."""
    return {line: Position("kernel.py", 1000 + line) for line in range(1, ptx.count("\n") + 2)}


def only(findings: tuple[Finding, ...], rule: str) -> Finding:
    found = [finding for finding in findings if finding.rule == rule]
    assert len(found) == 1, [str(finding) for finding in findings]
    return found[0]


@pytest.mark.ptxas
@pytest.mark.parametrize("name", planted.REMARKS)
def test_a_remark_is_a_finding_at_its_line(name: str) -> None:
    case: Planted = planted.REMARKS[name]
    finding = only(toolchain.assemble(case.ptx).findings, case.rule)
    assert case.says in finding.message
    assert case.fix in finding.fix
    assert finding.severity == "review"
    assert finding.position == (None if case.line is None else Position(None, case.line))
    mapped = only(toolchain.assemble(case.ptx, lines=python_lines(case.ptx)).findings, case.rule)
    assert mapped.position == (None if case.line is None else Position("kernel.py", 1000 + case.line))


@pytest.mark.ptxas
@pytest.mark.parametrize("name", planted.ERRORS)
def test_an_error_is_raised_at_its_line(name: str) -> None:
    case: Planted = planted.ERRORS[name]
    with pytest.raises(AssembleError) as caught:
        toolchain.assemble(case.ptx, lines=python_lines(case.ptx))
    finding = caught.value.findings[0]
    assert finding.rule == case.rule
    assert case.says in finding.message
    assert case.fix in finding.fix
    assert finding.position == (None if case.line is None else Position("kernel.py", 1000 + case.line))
    if case.line is not None:
        assert f"kernel.py:{1000 + case.line}: error" in str(caught.value)
    assert case.says in caught.value.log


@pytest.mark.ptxas
def test_every_error_of_a_text_is_reported() -> None:
    lines = ["add.u32 %r1, %r2, %f1;", "bogus.u32 %r1, %r2;", "bra NOWHERE;"]
    ptx = planted.ERRORS["wrong operand type"].ptx.replace(lines[0], "\n".join(lines))
    with pytest.raises(AssembleError) as caught:
        toolchain.assemble(ptx)
    assert [finding.position for finding in caught.value.findings] == [Position(None, line) for line in (8, 9, 10)]


@pytest.mark.ptxas
def test_a_clean_kernel_has_no_findings_and_its_resources() -> None:
    assembly = toolchain.assemble(planted.CLEAN)
    assert assembly.findings == ()
    assert assembly.cubin.startswith(b"\x7fELF")
    entry = assembly.resources["k"]
    assert entry.registers > 8
    assert (entry.spills, entry.stack, entry.shared) == (0, 0, 0)
    assert assembly.tool.release >= (12, 0)
    assert "ELF" not in repr(assembly), "a terminal shows what it uses"
    assert "Resources(" in repr(assembly)


@pytest.mark.ptxas
def test_spills_are_counted_and_reported_at_the_entry() -> None:
    assembly = toolchain.assemble(planted.SPILLS)
    entry = assembly.resources["k"]
    assert entry.registers == 64
    assert entry.spill_stores > 0
    assert entry.spill_loads > 0
    assert entry.barriers == 1
    finding = only(assembly.findings, "spill")
    assert str(entry.spill_stores) in finding.message
    assert finding.position == Position(None, planted.DECLARED_AT)


@pytest.mark.ptxas
def test_a_declaration_without_a_line_takes_the_next_that_has_one() -> None:
    lines = {line: where for line, where in python_lines(planted.SPILLS).items() if line >= planted.DECLARED_AT + 3}
    finding = only(toolchain.assemble(planted.SPILLS, lines=lines).findings, "spill")
    assert finding.position == Position("kernel.py", 1000 + planted.DECLARED_AT + 3)


def spilling(names: Sequence[str]) -> str:
    """What ptxas says of entries that spill."""
    return "".join(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'\nptxas info    : Function properties for {name}\n"
                   "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\nptxas info    : Used 32 registers\n"
                   for name in names)


@pytest.mark.pure
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_each_of_several_entries_is_found_where_it_stands(path: Path) -> None:
    text = path.read_text()
    entries = {entry.name: entry.position for entry in parse(text).entries}
    found = diagnostics.findings(spilling(list(entries)), text)
    assert [finding.position and finding.position.line for finding in found] == [at and at.line for at in entries.values()]


@pytest.mark.pure
def test_thousands_of_entries_are_found_in_one_pass() -> None:
    names = [f"k{i}" for i in range(4000)]
    text = "".join(f".visible .entry {name}(.param .u64 p)\n{{\n{20 * 'add.u32 %r1, %r1, 1;'}\nret;\n}}\n" for name in names)
    began = time.process_time()
    found = diagnostics.findings(spilling(names), text, {line: Position("k.py", line) for line in range(2, 20_000, 5)})
    assert time.process_time() - began < 2  # 0.1 s, and 8 s if the text is gone through for each
    assert [finding.position for finding in found[:2]] == [Position("k.py", 2), Position("k.py", 7)]


@pytest.mark.ptxas
def test_shared_memory_is_reported_for_each_entry() -> None:
    entry = (".visible .entry {0}() {{ .shared .b32 tile{0}[{1}]; .reg .b32 %r1; ld.shared.b32 %r1, [tile{0}]; "
             "st.shared.b32 [tile{0}+4], %r1; ret; }}\n")
    found = toolchain.assemble(planted.HEAD + entry.format("a", 64) + entry.format("b", 512)).resources
    assert {name: used.shared for name, used in found.items()} == {"a": 256, "b": 2048}


@pytest.mark.ptxas
def test_disassembly_shows_setmaxnreg_only_where_it_takes_effect() -> None:
    assert "USETMAXREG" in toolchain.disassemble(toolchain.assemble(planted.SETMAXNREG_IN_EFFECT).cubin)
    assert "USETMAXREG" not in toolchain.disassemble(toolchain.assemble(planted.REMARKS["setmaxnreg without a cap"].ptx).cubin)


@pytest.mark.ptxas
def test_disassembly_names_the_python_lines() -> None:
    ptx = planted.CLEAN.replace("wgmma.fence", ".loc 1 77 0\nwgmma.fence") + '.file 1 "package/kernel.py"\n'
    toolchain.assemble(planted.CLEAN)  # the same but for .loc, perhaps from the cache
    machine_code = toolchain.disassemble(toolchain.assemble(ptx, exact_lines=True).cubin, lines=True)
    assert '//## File "package/kernel.py", line 77' in machine_code


@pytest.mark.ptxas
def test_the_cache_answers_for_a_text_with_other_locs(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("PTXKIT_CACHE_DIR", str(tmp_path))
    case = planted.REMARKS["accumulator read in the stage"]
    assert case.line is not None
    first = toolchain.assemble(case.ptx)
    assert cache.Cache(tmp_path).size()[0] == 1
    environment.setattr(toolchain, "_assemble", None)  # a second run of ptxas would fail
    moved = case.ptx.replace("wgmma.fence", ".loc 1 7 0\nwgmma.fence").replace(".visible", '.file 1 "a.py"\n.visible')
    again = toolchain.assemble(moved)
    assert again.cubin == first.cubin
    assert only(again.findings, case.rule).position == Position(None, case.line + 2)
    assert again.resources == first.resources


@pytest.mark.ptxas
def test_kept_products(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("PTXKIT_KEEP", "ptx,cubin,sass,log")
    environment.setenv("PTXKIT_KEEP_DIR", str(tmp_path / "kept"))
    assembly = toolchain.assemble(planted.CLEAN)
    kept = {path.suffix: path for path in (tmp_path / "kept").iterdir()}
    assert set(kept) == {".ptx", ".cubin", ".sass", ".log"}
    assert all(path.name.startswith("k-") for path in kept.values())
    assert kept[".ptx"].read_text() == planted.CLEAN
    assert kept[".cubin"].read_bytes() == assembly.cubin
    assert "HGMMA" in kept[".sass"].read_text()


def fake_tool(folder: Path, body: str) -> Path:
    """An executable that calls itself ptxas 13.0.1, and otherwise runs `body`."""
    path = folder / "ptxas"
    path.write_text(f"#!{sys.executable}\nimport sys, os, time\nif sys.argv[1] == '--version':\n    print('release 13.0, V13.0.1')\n"
                    f"else:\n    {body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
@pytest.mark.parametrize(("body", "summary", "log"), [
    ("os.kill(os.getpid(), 11)", "killed by signal 11", ""),
    ("time.sleep(60)", "did not finish in", ""),
    ("print('something new'); sys.exit(3)", "something new", "something new"),
])
def test_a_ptxas_that_fails_is_an_error(environment: pytest.MonkeyPatch, tmp_path: Path, body: str, summary: str, log: str) -> None:
    environment.setenv("PTXKIT_PTXAS", str(fake_tool(tmp_path, body)))
    environment.setenv("PTXKIT_CACHE_DIR", "off")
    environment.setattr(toolchain, "TIMEOUT_S", 0.5)
    with pytest.raises(AssembleError, match=summary) as caught:
        toolchain.assemble(planted.CLEAN)
    assert log in caught.value.log


def test_no_ptxas(environment: pytest.MonkeyPatch) -> None:
    toolchain._tool.cache_clear()
    environment.setattr(toolchain, "_in_wheel", lambda name: None)
    environment.setattr(toolchain, "_in_path", lambda name: None)
    try:
        with pytest.raises(NoToolError, match=r"pip install 'ptxkit\[toolchain\]'.*PTXKIT_PTXAS"):
            toolchain.assemble(planted.CLEAN)
        with pytest.raises(NoToolError, match="nvidia-cuda-nvdisasm"):
            toolchain.disassemble(b"")
        assert not toolchain.has_ptxas()
    finally:
        toolchain._tool.cache_clear()


def test_the_driver_as_assembler_gives_no_cubin(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PTXKIT_PTXAS", "driver")
    with pytest.raises(NoToolError, match="gives no cubin"):
        toolchain.assemble(planted.CLEAN)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
def test_an_executable_that_is_not_ptxas(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PTXKIT_PTXAS", "/bin/echo")
    with pytest.raises(NoToolError, match="does not answer"):
        toolchain.ptxas()


def test_ptx_levels() -> None:
    assert [toolchain.ptx_level(cuda) for cuda in ((12, 0), (12, 5), (12, 6), (12, 9), (13, 0), (13, 1))] == [
        (8, 0), (8, 5), (8, 5), (8, 8), (9, 0), (9, 1)]


def test_the_drivers_own_messages_are_read() -> None:
    log = ("ptxas application ptx input, line 7; error   : Unknown modifier '.bogus'\n"
           "ptxas fatal   : Ptx assembly aborted due to errors\n"
           "info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.\n")
    error, remark = diagnostics.findings(log, "", {7: Position("a.py", 3)})
    assert (error.severity, error.position, error.message) == ("error", Position("a.py", 3), "Unknown modifier '.bogus'")
    assert (remark.rule, remark.severity) == ("C7508", "review")


def test_a_serialization_that_nobody_has_seen_yet_is_reported() -> None:
    log = "ptxas info    : (C7599) Potential Performance Loss: wgmma.mma_async instructions are serialized due to the moon\n"
    finding, = diagnostics.findings(log)
    assert (finding.rule, finding.severity) == ("C7599", "review")
    assert "wgmma.fence" in finding.fix


@pytest.mark.pure
def test_a_pathfinder_that_does_not_know_ptxas_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import cuda.pathfinder

    def refuse(name: str) -> None:
        raise RuntimeError(f"Binary '{name}' is not supported. Supported utilities are: nvcc")  # as 1.8.0 says it

    monkeypatch.setattr(cuda.pathfinder, "find_nvidia_binary_utility", refuse)
    assert toolchain._in_wheel("ptxas") is None
    assert caplog.messages == [
        "no wheel is looked into for ptxas (Binary 'ptxas' is not supported): `pip install 'cuda-pathfinder>=1.8.1'`"]
