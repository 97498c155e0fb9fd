"""What an H200 did with tensor and bulk copies, as recorded, is what the CPU device says of them; and the probes can be run again."""

from __future__ import annotations

import os
import re
import weakref
from pathlib import Path

import pytest

from .gpu_tensor_faults import ENDLESS, FINE, TRAP, UNDEFINED, Answer, apart, main, measured, probes, simulated, verdict

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
LINE = re.compile(r"[ ~!] (?P<name>.{64}) (?P<here>[a-z-]+) +(?P<there>\S.*)")
PROBES = {probe.name: probe for probe in probes()}


def recorded() -> dict[str, str]:
    """What the GPU did, by probe, of the latest record; without those that did not come as far as the GPU."""
    text = max(RESULTS.glob("*-tensor-faults.txt")).read_text(encoding="utf-8")
    rows = [match for line in text.splitlines() if (match := LINE.fullmatch(line))]
    return {row["name"].strip(): row["there"] for row in rows if row["there"].startswith((FINE, TRAP, ENDLESS))}


@pytest.mark.pure
@pytest.mark.timeout(60)
def test_the_record() -> None:
    """The CPU device faults what the GPU trapped at or waited for without end, and nothing else, but where PTX defines nothing."""
    rows = recorded()
    assert len(rows) >= 133
    fine = {name for name in rows if simulated(PROBES[name]).words == FINE}
    assert {name for name, there in rows.items() if there.startswith(FINE) != (name in fine)} == UNDEFINED
    assert 40 < len(fine) < len(rows) - 40


@pytest.mark.pure
def test_every_probe_has_a_name_of_its_own_and_waits_that_end() -> None:
    assert len(PROBES) == len(probes())
    assert PROBES.keys() >= UNDEFINED
    assert max(map(len, PROBES)) <= 64
    for probe in PROBES.values():
        assert ("try_wait" in probe.ptx) == ("test_wait" in probe.bounded) == (probe.bounded != probe.ptx)
        assert "try_wait" not in probe.bounded


@pytest.mark.ptxas
@pytest.mark.sweep
@pytest.mark.timeout(120)
def test_the_probes_are_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PROBES)
    assert "  reduce or of float32" + 45 * " " + "reduction-type" in lines


def test_the_marks() -> None:
    name = min(UNDEFINED)
    trap = Answer(f"{TRAP}_ILLEGAL_INSTRUCTION")
    here, same, other, fault = Answer(FINE, bytes(4)), Answer(FINE, bytes(4)), Answer(FINE, b"abcd"), Answer("misaligned")
    assert verdict("a", here, same)[0] == " "
    assert verdict("a", fault, trap) == (" ", trap.words)
    assert verdict("a", fault, Answer(ENDLESS))[0] == " "
    assert verdict("a", here, other) == ("!", "other numbers: 0x64636261 for 0x0")
    assert verdict(name, here, other)[0] == "!"
    assert verdict("a", here, trap)[0] == "!"
    assert verdict("a", fault, same)[0] == "!"
    assert verdict(name, fault, same)[0] == "~"
    assert verdict("a", fault, Answer("'uint16'")) == ("!", "no measurement: 'uint16'")


class Memory:
    """Something that cannot be freed."""


def ended(how: str) -> Answer:
    memory = Memory()
    weakref.finalize(memory, os.stat, "/nowhere/at/all")
    if how == "raises":
        raise ValueError("several\n  words")
    if how == "dies":
        os._exit(1)
    return Answer(FINE, how.encode())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.timeout(60)
def test_processes_apart(capfd: pytest.CaptureFixture[str]) -> None:
    """Answers come in order, whatever becomes of a process, and without a word."""
    hows = ["raises", "dies", *map(str, range(12))]
    found = apart(ended, hows)
    assert found == [Answer("several words"), Answer("died without an answer"), *(Answer(FINE, how.encode()) for how in hows[2:])]
    assert capfd.readouterr() == ("", "")


@pytest.mark.gpu
def test_a_sum_on_the_gpu() -> None:
    probe = PROBES["sum of f32"]
    assert measured(probe) == simulated(probe)
