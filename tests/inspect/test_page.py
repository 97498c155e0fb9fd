"""docs/inspect.md shows what the commands print."""

from __future__ import annotations

import re
import shlex

import pytest

from ptxkit.cli.main import main

from .subjects import ROOT

PAGE = ROOT / "docs" / "inspect.md"
SHOWN = re.findall(r"^```text\n\$ ptxkit ([^\n]*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.ptxas
@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_shown_output_is_real(command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Line by line; `...` stands for any lines."""
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out.rstrip("\n").split("\n")
    at, skipping = 0, False
    for line in shown.rstrip("\n").split("\n"):
        if line.strip() == "...":
            skipping = True
            continue
        if skipping:
            assert line in printed[at:], f"`{line}` is not printed after line {at}"
            at = printed.index(line, at)
            skipping = False
        assert printed[at] == line
        at += 1
    assert skipping or at == len(printed)


def test_every_way_to_call_it_is_shown() -> None:
    assert {command.split()[0] for command, _ in SHOWN} == {"inspect", "explain"}
    options = {word for command, _ in SHOWN for word in command.split() if word.startswith("--")}
    assert options >= {"--descriptor", "--swizzle", "--tensormap"}
