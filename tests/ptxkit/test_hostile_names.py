"""Names on a command line that are long, have control characters, are no UTF-8 or have a NUL: every message stays one short line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ptxkit.attention.__main__ import main as attention
from ptxkit.cli.main import main
from ptxkit.cli.messages import about, plain, shown
from ptxkit.dsl.source import named
from ptxkit.runtime import toolchain

from . import planted
from .folders import KNOWN, with_kernels
from .test_cli import KERNEL
from .test_hostile_commands import commands, ended_in_process

pytestmark = pytest.mark.pure
LONG = "n" * 5000
TERMINAL = "a\x1b[31mred\x07\r\x9b5n\u202eb\nc"
NAMES = (LONG, TERMINAL, f"{LONG}:k", f"{TERMINAL}:k", f"kernels_of_a_test:{LONG}", f"kernels_of_a_test:{TERMINAL}", f"none/{LONG}/x.py:k",
         "\x1b" * 3000)
WRITTEN = [["emit", KNOWN, "-o"], ["inspect", KNOWN, "-o"], ["assemble", "k.ptx", "-o"], ["lift", "k.ptx", "-o"],
           ["check", "k.ptx", "--sarif"], ["export", KNOWN, "-o"], ["gemm", "export", "-m", "64", "-n", "64", "-k", "64", "-o"],
           *(["simulate", KNOWN, "--grid", "1", "--arg", "out=zeros:u32:64", each] for each in ("--page", "--keep", "--trace", "--record"))]
SAID = [["emit", KNOWN, "--set"], ["explain"], ["simulate", KNOWN, "--grid"], ["simulate", KNOWN, "--grid", "1", "--arg"],
        ["gemm", "run", "--set"], ["gemm", "run", "--card"], ["gemm", "bench", "--shapes"], ["diff", "k.ptx"], []]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return with_kernels(tmp_path, monkeypatch)


def sentence(said: str) -> str:
    """The message without the usage of its command: one line that a terminal shows as it is."""
    *usage, last = said.removesuffix("\n").split("\n")
    assert all(line.startswith(("usage: ", " ")) for line in usage), said
    assert last.isprintable(), last
    assert len(last) < 900, last
    return last


def test_every_message_repeats_a_name_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    sources = [[*command] for command in commands() if command[0] in ("emit", "assemble", "inspect", "check", "simulate", "debug", "lift")]
    assert len(sources) == 7
    for name in NAMES:
        for command in [*sources, *SAID]:
            status = ended_in_process([*command, name])
            said = capsys.readouterr()
            assert status in (1, 2), (command, name)
            assert "fault of ptxkit" not in said.err
            assert shown(name)[:50] in sentence(said.err) or ":" in name or status == 1, (command, said.err)
    for name in (LONG, f"no/{TERMINAL}/such", f"k.ptx/{TERMINAL}"):
        for command in WRITTEN:
            if "export" in command and name.startswith("no/"):
                continue                                            # it makes folders
            assert ended_in_process([*command, name]) in (1, 2)
            assert "cannot " in sentence(capsys.readouterr().err), command
    with pytest.raises(SystemExit):
        attention(["bench", "--shapes", TERMINAL + LONG])
    sentence(capsys.readouterr().err)


def test_a_file_with_such_a_name_is_read_and_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in ((TERMINAL, planted.CLEAN), (f"{TERMINAL}2", "garbage"), ("\udcff.ptx", planted.CLEAN), ("\udcff2.ptx", "garbage")):
        Path(name).write_text(text)
        status = main(["check", name])
        said = capsys.readouterr()
        assert (status, said.err) == (int(text == "garbage"), "")
        assert all(line.isprintable() for line in said.out.splitlines())
        assert shown(name) in said.out
        main(["check", name, "--json"])
        assert json.loads(capsys.readouterr().out)["source"] == name
    assert main(["check", TERMINAL, "none" + LONG, "none" + TERMINAL, "--json"]) == 1
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 2
    assert [sentence(line) for line in said.err.splitlines()] == [f"ptxkit: {each}" for each in json.loads(said.out)["errors"].values()]


def test_a_nul_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for command in [*commands(), *WRITTEN, *SAID]:
        for word in ("nul\0name", "nul\0name:k", "kernels_of_a_test:k\0", "--nul\0"):
            assert ended_in_process([*command, word]) == 2, command
            assert " has a NUL character, which no name and no value has" in sentence(capsys.readouterr().err)
            assert ended_in_process([*command, word, "--json"]) == 2, command
            assert "NUL" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.ptxas
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of files are bytes on Linux")
def test_a_kernel_in_a_file_whose_name_is_no_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    Path("\udcff.py").write_text(KERNEL)
    os.mkdir("\udcfe")
    Path("\udcfe/é.py").write_text(KERNEL)
    for name in ("\udcff.py", "\udcfe/é.py"):
        launch = [f"{name}:store", "--grid", "1", "--arg", "out=zeros:u32:64"]
        for command in (["emit", f"{name}:store", "--locs"], ["emit", f"{name}:store", "--locs", "-o", "new.ptx"],
                        ["assemble", f"{name}:store"], ["inspect", f"{name}:store"], ["check", f"{name}:store", "--sarif", "new.sarif"],
                        ["inspect", f"{name}:store", "--view", "html", "-o", "new.html"], ["simulate", *launch, "--page", "new.html"],
                        ["export", f"{name}:store", "-o", "new", "--force"], ["diff", f"{name}:store", f"{name}:store"]):
            assert main(command) == 0, (command, capsys.readouterr().err)
        assert main(["emit", f"{name}:broken"]) == 1
        assert sentence(capsys.readouterr().err).startswith("ptxkit: ")
    assert r"\xff.py" in named("/a/\udcff.py")
    assert named("/a/é.py") == "/a/é.py"


@pytest.mark.ptxas
def test_a_name_that_is_not_ascii_reaches_ptxas_escaped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """ptxas takes ASCII alone. An earlier cubin of the same kernel in another file would hide that."""
    monkeypatch.setattr(toolchain.cache, "cache", lambda: None)
    Path("é.py").write_text(KERNEL)
    for command in (["assemble", "é.py:store"], ["inspect", "é.py:store"], ["export", "é.py:store", "-o", "new", "--force"]):
        assert main(command) == 0, (command, capsys.readouterr().err)
    capsys.readouterr()
    assert main(["emit", "é.py:store", "--locs"]) == 0
    assert r'.file 1 "\xe9.py"' in capsys.readouterr().out


@pytest.mark.ptxas
def test_ptx_with_comments_of_any_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    """The bytes reach ptxas as they are. ptxas 13.0 refuses all that is not ASCII, at its line, and so does check."""
    for number, comment in enumerate((b"caf\xe9", "café".encode(), b"\xff\xfe\x80", "\U0001f600".encode(), b"\xed\xa0\x80")):
        name = f"{number}.ptx"
        Path(name).write_bytes(planted.CLEAN.encode() + b"// " + comment + b"\n/* " + comment + b" */\n")
        for command in (["assemble", name], ["assemble", name, "--json"], ["inspect", name], ["check", name], ["diff", name, "k.ptx"],
                        ["lift", name], ["simulate", name, "--grid", "1", "--arg", "p=zeros:u64:64"], ["assemble", name, "-o", "new.cubin"],
                        ["inspect", name, "--view", "html", "-o", "new.html"], ["check", name, "--sarif", "new.sarif"]):
            status, said = main(command), capsys.readouterr()
            assert status in (0, 1), command
            assert "fault of ptxkit" not in said.err, (command, said.err)
            if command[0] == "assemble":
                assert status == 0 or "non-ASCII character encountered on line" in said.err
                refused = status
            if command[0] == "check":
                assert status == refused


def test_a_message_is_plain() -> None:
    with about(["emit", f"x={TERMINAL}", LONG]):
        assert plain(f"{TERMINAL} is {TERMINAL!r}\nand {LONG}") == f"{shown(TERMINAL)} is '{shown(TERMINAL)}'\nand {shown(LONG)}"
    assert plain("one\ntwo\tthree \x1b[0m") == "one\ntwo\tthree \\x1b[0m"
    assert plain(f"`{LONG}` is none") == f"`{shown(LONG)}` is none", "of a file, say"
    assert shown("name") == "name"
    assert shown(LONG) == f"{'n' * 60}... (5,000 characters)"
    assert shown("a\nb\udcff") == r"a\nb\udcff"
