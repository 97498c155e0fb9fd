"""`--set` on the command line: compile-time parameters, and the fields of those that are dataclasses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ptxkit.cli.main import main

pytestmark = pytest.mark.pure

KERNEL = '''
from dataclasses import dataclass

from ptxkit import Ptr, kernel
from ptxkit.ptx import mov, st
from ptxkit.types import Scalar, bf16, u32


@dataclass(frozen=True)
class Tile:
    BM: int = 128
    BN: int = 256
    dtype: type[Scalar] = bf16

    def __post_init__(self) -> None:
        if self.BM % 64:
            raise ValueError(f"BM is a multiple of 64, not {self.BM}")


@dataclass(frozen=True)
class Pingpong:
    pass


@dataclass(frozen=True)
class Cooperative:
    warpgroups: int = 2


@dataclass(frozen=True)
class Split:
    count: int


@kernel(block=128)
def shaped(out: Ptr[u32], *, tile: Tile = Tile(), schedule: Cooperative | Pingpong = Cooperative(), split: Split | None = None,
           bare: Tile, STAGES: int = 4, OUT: type[Scalar] = bf16, activation: str = "none") -> None:
    """Stores what it was made for."""
    groups = schedule.warpgroups if isinstance(schedule, Cooperative) else 0
    parts = split.count if split else 0
    for number in (tile.BM, tile.BN, tile.dtype.bits, groups, parts, bare.BM, STAGES, OUT.bits, len(activation)):
        st.global_.u32(out.at(0), mov.u32(number))
'''

DEFAULT = [128, 256, 16, 2, 0, 128, 4, 16, 4]
"""What the kernel stores with `--set bare=Tile`."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shaped_of_a_test.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shaped_of_a_test", raising=False)


def command(*pairs: str) -> list[str]:
    return ["emit", "shaped_of_a_test.py:shaped", *(word for pair in ("bare=Tile", *pairs) for word in ("--set", pair))]


@pytest.mark.parametrize(("pairs", "changes"), [
    ((), {}),
    (("tile.BM=64",), {0: 64}),
    (("tile.BM=64", "tile.BN=32", "tile.dtype=f32"), {0: 64, 1: 32, 2: 32}),
    (("tile=Tile(BM=192)",), {0: 192}),
    (("tile=Tile(BM=192)", "tile.BN=8"), {0: 192, 1: 8}),
    (("schedule=Pingpong",), {3: 0}),
    (("schedule=Cooperative(warpgroups=3)",), {3: 3}),
    (("schedule.warpgroups=3",), {3: 3}),
    (("split=Split(count=2)",), {4: 2}),
    (("split=Split(count=2)", "split.count=5"), {4: 5}),
    (("split=Split(count=2)", "split=None"), {}),
    (("bare.BM=64",), {5: 64}),
    (("STAGES=7", "OUT=e4m3", "activation=gelu_and_more"), {6: 7, 7: 8, 8: 13}),
    (("activation='a=b'",), {8: 3}),
])
def test_what_is_set(pairs: tuple[str, ...], changes: dict[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(*pairs)) == 0
    text = capsys.readouterr().out
    stored = [int(line.split()[-1].rstrip(";")) for line in text.splitlines() if line.strip().startswith("mov.u32 %r")]
    assert stored == [changes.get(index, number) for index, number in enumerate(DEFAULT)]


@pytest.mark.parametrize(("pair", "says"), [
    ("tile.BK=64", "--set tile.BK=64: Tile has no field 'BK': it has BM, BN, dtype"),
    ("tile.BM=wide", "--set tile.BM=wide: BM is a whole number, not wide"),
    ("tile.BM=65", "--set tile.BM=65: BM is a multiple of 64, not 65"),
    ("tile.dtype=Tile", "--set tile.dtype=Tile: dtype is an element type such as bf16, not Tile"),
    ("tile=Pingpong", "--set tile=Pingpong: tile is Tile, not Pingpong"),
    ("tile.BM.x=1", "--set tile.BM.x=1: 128 has no field 'x'"),
    ("schedule=Serial", "--set schedule=Serial: schedule is Cooperative or Pingpong, not Serial"),
    ("schedule=Cooperative(groups=1)", "--set schedule=Cooperative(groups=1): Cooperative has no field 'groups': it has warpgroups"),
    ("schedule=3", "--set schedule=3: schedule=3 is no value: write Cooperative or Pingpong, or one with fields, as `Name(field=1)`"),
    ("schedule=a b", "--set schedule=a b: schedule=a b is no value: write Cooperative or Pingpong"),
    ("split=Split", "--set split=Split: Split needs a value for 'count': it has count"),
    ("split.count=2", "--set split.count=2: `split` is None, so it has no fields to set"),
    ("STAGES.x=1", "--set STAGES.x=1: `STAGES` is 4, so it has no fields to set"),
    ("tile.=1", "--set tile.=1: write name=value"),
    (".BM=1", "--set .BM=1: write name=value"),
    ("WIDE.BM=1", "kernel `shaped` has no compile-time parameter `WIDE`; it has tile, schedule, split, bare, STAGES, OUT, activation"),
])
def test_what_cannot_be_set_is_one_sentence(pair: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(pair)) == 2
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", f"ptxkit: {says}\n")


def test_a_parameter_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", "shaped_of_a_test.py:shaped", "--set", "bare.BM=64"]) == 2
    assert capsys.readouterr().err == "ptxkit: --set bare.BM=64: `bare` has no default, so it has no fields to set\n"
    assert main(["emit", "shaped_of_a_test.py:shaped"]) == 2
    assert capsys.readouterr().err == "ptxkit: kernel `shaped` needs a value for its compile-time parameter `bare`\n"


def test_the_configuration_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command("tile.BM=64", "schedule=Pingpong"), "--json"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert config["tile"].startswith("Tile(BM=64, BN=256")
    assert config["schedule"] == "Pingpong()"
    assert config["STAGES"] == 4
