"""docs/commands.md shows what commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ptxkit.cli.main import main
from tests.pages import agrees

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
SHOWN = [(step, output) for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)
         for step, output in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", block, re.M)]


@pytest.mark.ptxas
def test_the_commands_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    for step, output in SHOWN:
        command, *arguments = shlex.split(step)
        if command == "cat" and Path(arguments[0]).exists():
            assert agrees(output.splitlines(), Path(arguments[0]).read_text().splitlines())
        elif command == "cat":
            Path(arguments[0]).write_text(output)
        elif command == "sed":
            _, old, new, _ = arguments[0].split("/")
            Path(arguments[3]).write_text(Path(arguments[1]).read_text().replace(old, new))
        elif arguments != ["doctor"]:
            status = main(arguments)
            printed = capsys.readouterr().out
            assert status == (1 if arguments[0] in ("check", "diff") else 0), step
            assert agrees(output.splitlines(), printed.splitlines()), f"{step} prints\n{printed}"


@pytest.mark.pure
def test_what_doctor_says_looks_as_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """What it finds is each machine's own."""
    main(["doctor"])
    row = re.compile(r"(\w+) +(ok|missing|broken) +\S", re.ASCII)
    printed = [found[1] for line in capsys.readouterr().out.splitlines() if (found := row.match(line))]
    shown = [found[1] for line in dict(SHOWN)["ptxkit doctor"].splitlines() if (found := row.match(line))]
    assert len(shown) >= 3
    assert set(shown) - {"driver"} <= set(printed)


@pytest.mark.pure
def test_every_command_is_shown() -> None:
    commands = [step.split()[1:3] for step, _ in SHOWN if step.startswith("ptxkit ")]
    assert {command[0] for command in commands} == {"emit", "check", "assemble", "inspect", "simulate", "explain", "lift", "diff", "doctor"}
    assert ["explain", "--descriptor"] in commands
    assert ["explain", "--swizzle"] in commands


@pytest.mark.pure
def test_another_output_is_noticed() -> None:
    printed = ["a", "b", "c", "d"]
    assert agrees(["a", "...", "c", "d"], printed)
    assert agrees(["a", "b", "..."], printed)
    assert agrees(["a", "...", "x ... z", "..."], ["a", "b", "x y z"])
    assert agrees(["...", "b", "c"], ["b", "d", "b", "c"])
    for wrong in (["a", "b", "c"], ["b", "..."], ["a", "...", "b", "d"], ["a", "...", "e"], ["a", "b", "c", "d", "e"], []):
        assert not agrees(wrong, printed)
    assert not agrees(["a", "x ... z"], ["a", "x y"])
    assert not agrees(["b..."], ["ab"])
