"""Files that options name: without a name, without an end, of another kind, nested too deeply, and outputs that cannot be written."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from ptxkit import files
from ptxkit.attention.__main__ import main as attention
from ptxkit.cli.main import main
from ptxkit.gemm.__main__ import main as gemm

from . import planted
from .folders import KNOWN, with_kernels
from .test_hostile_commands import ended_in_process

pytestmark = pytest.mark.pure
LAUNCH = ["simulate", KNOWN, "--grid", "1", "--arg", "out=zeros:u32:64"]
WRITTEN = [["emit", KNOWN, "-o"], ["lift", "k.ptx", "-o"], ["assemble", "k.ptx", "-o"], ["inspect", KNOWN, "-o"],
           ["check", "k.ptx", "--sarif"], ["export", KNOWN, "-o"],
           *([*LAUNCH, option] for option in ("--page", "--keep", "--trace", "--record")),
           ["gemm", "export", "-m", "64", "-n", "64", "-k", "64", "-o"]]
LATE = [["gemm", "verify", "--device", "sim", "--seconds", "0", "--json"], ["gemm", "timeline", "--page"], ["gemm", "timeline", "--trace"],
        ["gemm", "timeline", "--json"], ["gemm", "bench", "--json"], ["gemm", "bench", "--plot"], ["gemm", "grouped", "--json"],
        ["gemm", "sample", "--output"], ["gemm", "fit", "--card", "h100", "x", "--output"], ["gemm", "fingerprint", "-o"],
        ["gemm", "ladder", "--json"], ["gemm", "ladder", "--plot"]]
"""Commands that write after minutes of work: they refuse before it."""
READ = [[*LAUNCH, "--replay"], ["simulate", "--spec"], ["debug", *LAUNCH[1:], "--commands"], ["gemm", "bench", "--of"],
        ["gemm", "ladder", "--results"], ["gemm", "grouped", "--table"], ["gemm", "fingerprint", "--compare"],
        ["gemm", "fit", "--card", "h100"]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_kernels(tmp_path, monkeypatch)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "other.json").write_text('{"rows": 3}')
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)


@pytest.mark.parametrize("arguments", [*WRITTEN, *LATE, *READ[:3]], ids=" ".join)
def test_a_file_has_a_name(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir())
    assert ended_in_process([*arguments, ""]) == 2
    assert capsys.readouterr().err.endswith(": a name, not ''\n")
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("arguments", LATE, ids=" ".join)
def test_what_cannot_be_written_is_refused_before_anything_runs(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for output in (".", "no/such/folder", "k.ptx/below"):
        assert ended_in_process([*arguments, output]) == 2
        said = capsys.readouterr()
        assert said.err.endswith(f"cannot write {output}: name a file in a folder that is there\n")
        assert said.out == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full")
def test_a_full_disk_is_not_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LATE[0], "/dev/full"]) == 2
    assert capsys.readouterr().err == "error: cannot write /dev/full: No space left on device\n"
    for target in ("/dev/full", "k.ptx/below"):
        with pytest.raises(OSError, match=target) as caught:
            files.write_whole(Path(target), b"x")
        assert (caught.value.filename, caught.value.filename2) == (target, None)


@pytest.mark.parametrize("arguments", READ, ids=" ".join)
def test_a_file_of_another_kind_is_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    endless = ["/dev/zero"] if sys.platform.startswith("linux") else []
    commands = "--commands" in arguments
    for name in (".", "none.json", "k.ptx", "deep.json", "other.json", *endless):
        if commands and name.endswith(("ptx", "deep.json", "other.json")):
            continue
        assert ended_in_process([*arguments, name]) in (1, 2), name
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert name in said
        assert "a fault of ptxkit" not in said
        assert "Error" not in said


def test_what_is_larger_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(" " * 99 + "1")
    assert files.read_json(path, 100) == 1
    with pytest.raises(OSError, match="it has more than") as caught:
        files.read_text(path, 99)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(ValueError, match="nested too deeply"):
        files.read_json("deep.json")


@pytest.mark.parametrize("arguments", [["inspect"], ["lift"], ["simulate"], ["debug"], ["diff", "k.ptx"]], ids=" ".join)
def test_an_error_of_a_text_names_its_file(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.ptx").write_text(planted.CLEAN.replace(".target", ".tarjet"))
    assert main([*arguments, "wrong.ptx"]) == 1
    assert capsys.readouterr().err.startswith("ptxkit: wrong.ptx:2:1: found '.tarjet'")


def test_commands_of_attention_end_as_others_do(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["ladder", "-o", "no/such/folder"], ["ladder", "-o", ""], ["bench", "-o", "."], ["verify", "-n", "x"],
                      ["verify", "--seconds", "nan"], ["ladder", "--length", "9" * 5000], []):
        with pytest.raises(SystemExit) as end:
            attention(arguments)
        assert end.value.code == 2, arguments
        assert "error: " in capsys.readouterr().err


def test_memory_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("ptxkit.gemm.tools.bench.command.merged", none)
    assert gemm(["bench", "--of", "k.ptx"]) == 1
    assert capsys.readouterr().err == "error: there is not enough memory\n"
