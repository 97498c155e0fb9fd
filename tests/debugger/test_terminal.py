"""`ptxkit debug`: commands from a file, from standard input and at a prompt; exit statuses, files, refusals."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.ci.kernels import reverse
from examples.tile_gemm import tile_gemm
from ptxkit.cli.main import main
from ptxkit.debugger.breaks import Condition
from ptxkit.debugger.terminal import GROUPS, Terminal
from ptxkit.sim import SimulationError

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[2]
REVERSE = ["debug", str(ROOT / "examples" / "ci" / "kernels.py") + ":reverse", "--grid", "1", "--arg", "source=arange:f32:128",
           "--arg", "target=zeros:f32:128"]


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command puts the folders of files on it."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def said(commands: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str, status: int = 0) -> str:
    """What the commands print, from standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(commands))
    assert main([*REVERSE, *options]) == status
    return capsys.readouterr().out


def test_commands_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed = said("b 15 warp 2\nc\nr thread\n\n# a comment\ns 2\nquit\nstep\n", capsys, monkeypatch)
    assert "(ptxkit) break 15 warp 2" not in printed          # as it was written
    assert "(ptxkit) b 15 warp 2\nbreak 1 at" in printed
    assert "thread  u32   64 + lane" in printed
    assert printed.rstrip().endswith("(ptxkit) quit")


def test_the_end_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target.npy"
    assert "the run has ended: clean" in said("finish\n", capsys, monkeypatch, "-o", f"target={target}")
    np.testing.assert_array_equal(np.load(target), np.arange(128, dtype=np.float32)[::-1])
    target.unlink()
    said("step\n", capsys, monkeypatch, "-o", f"target={target}")
    assert not target.exists()


def test_a_wrong_command_ends_a_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, says in (("jump 3", "there is no command 'jump'; `help` lists them"), ("break", "break LINE"),
                        ("delete x", "a number is needed"), ("tile +0x0 bf16", "a layout is TYPE ROWSxCOLUMNS"),
                        ("shared words 3 q7", "TYPE is one of"),
                        ("break 15 when thread", "write a register, a comparison and a number, as k == 3"),
                        ("break 15 when nobody == 3", "no register is called nobody"), ("help jump", "there is no command 'jump'"),
                        ("save no/such/folder/f", "cannot write no/such/folder/f"), ("memory source+4 999 f32", "`source` has 512 bytes"),
                        ("memory nothing", "no argument is called `nothing`"), ("warp 1 cta 3", "CTA 3 warp 1 is not there")):
        printed = said(f"{wrong}\nfinish\n", capsys, monkeypatch, status=1)
        assert "wrong: " in printed
        assert says in printed, wrong
        assert "the run has ended" not in printed


def test_a_prompt_goes_on_after_a_wrong_command() -> None:
    out = io.StringIO()
    terminal = Terminal(reverse.debug(1, np.zeros(128, np.float32), np.zeros(128, np.float32)), io.StringIO(), out, script=False)
    assert terminal.prompt == "(ptxkit) "
    for line in ("jump", "step", ""):
        assert not terminal.onecmd(terminal.precmd(line))
    assert "wrong: there is no command 'jump'" in out.getvalue()
    assert terminal.session.turns == 1
    assert terminal.onecmd(terminal.precmd("q"))


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for names in GROUPS.values() for name in names]
    printed = said("help\n" + "".join(f"help {name}\n" for name in names), capsys, monkeypatch)
    for name in names:
        assert f"(ptxkit) help {name}\n{name}" in printed


def test_looking_in_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed = said("phase barrier 0\ntile words\nshared words+8 2 f32\nshared +0x0 1 u32\nmemory\nmemory source+4 2 f32\nmemory target\n"
                   "late\nlate off\nflight\nfindings\nbreaks\nbarriers\nlist\nwhere\nprint thread\nregisters all\nrestart\nback\n",
                   capsys, monkeypatch)
    for words in ("words: 128 f32 of CTA 0", "words+8 of CTA 0: 2 f32\n   0  1\n0  2  3", "source  512 bytes",
                  "source+4: 2 f32\n   0  1\n0  1  2",
                  "operations land late", "nothing is in flight", "no findings", "there are no breakpoints", "barrier 0 of CTA 0  1",
                  "phase 0 of barrier 0 of CTA 0 is complete", " (thread), u32", "before the first instruction"):
        assert words in printed, words


def test_a_schedule_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.json"
    said(f"warp 3\nrun\nwarp 1\nstep 3\nsave {kept}\n", capsys, monkeypatch)
    assert json.loads(kept.read_text())["choices"]["stepwise"] is True
    printed = said("break 14\ncontinue\ncontinue\n", capsys, monkeypatch, "--replay", str(kept))
    stops = [line for line in printed.splitlines() if line.startswith("CTA 0")][1:]
    assert [line[:12] for line in stops] == ["CTA 0 warp 3", "CTA 0 warp 0"]
    assert all(line.endswith("kernels.py:14:1)") for line in stops)


@pytest.mark.parametrize(("more", "says"), [
    (["--json"], "debug writes no JSON"), (["--replay", "f", "--seed", "1"], "--replay has the schedule"),
    (["--commands", "no-such-file"], "cannot read no-such-file"), (["--schedule", "unfair"], "there is no schedule 'unfair'"),
    (["--arg", "more=3"], "more")])
def test_usage(more: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REVERSE, *more]) == 2
    assert says in capsys.readouterr().err


def test_ptx_that_cannot_be_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "texture.ptx"
    path.write_text(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 t)\n{\n .reg .b64 %rd<3>;\n"
                    " .reg .b32 %r<9>;\n tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5}];\n ret;\n}\n")
    assert main(["debug", str(path), "--grid", "1", "--block", "32", "--arg", "zeros:u32:1"]) == 2
    assert "line 8: the simulator does not execute `tex.1d.v4.u32.s32`" in capsys.readouterr().err


def test_conditions_on_registers() -> None:
    a, b = np.zeros((64, 320), np.uint16), np.zeros((256, 320), np.uint16)
    session = tile_gemm.debug(1, a, b, np.zeros((64, 256), np.float32), 5)
    session.break_at("tile_gemm.py:57", when="k == 3", warp=4)
    stop = session.go()
    assert (stop.reason, stop.warp) == ("break", 4)
    assert {row.value for row in session.registers("k")} == {"3"}
    assert session.go().reason == "end"
    assert str(Condition.of("x<=-0x10")) == "x <= -16"
    assert Condition.of("%f1 > 1.5e-3").value == 1.5e-3
    with pytest.raises(SimulationError, match="is no condition"):
        Condition.of("k = 3")


def test_an_interrupt_stops_what_runs_and_not_the_session() -> None:
    session = tile_gemm.debug(1, np.zeros((64, 320), np.uint16), np.zeros((256, 320), np.uint16), np.zeros((64, 256), np.float32), 5)
    out = io.StringIO()
    terminal = Terminal(session, io.StringIO(), out, script=False)
    turn = session._turn

    def counted() -> object:
        if session.turns == 30:
            signal.raise_signal(signal.SIGINT)
        return turn()

    session._turn = counted  # type: ignore[assignment, method-assign]
    terminal.cmdqueue = ["continue", "warps", "finish", "quit"]
    terminal.cmdloop()
    assert "interrupted\nCTA 0 warp" in out.getvalue()
    assert "the run has ended" in out.getvalue()
    assert "<pre" in session._repr_html_()
    terminal.cmdqueue = []
    with pytest.raises(KeyboardInterrupt):                   # at the prompt it leaves
        terminal._interrupted(2, None)
