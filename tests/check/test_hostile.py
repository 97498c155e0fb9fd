"""Hostile texts: every command ends with findings or an error of its own, and the rules end in steps near linear in the text."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import hostile
from benchmarks.shapes import SHAPES
from ptxkit import sim
from ptxkit.check import check_text, effort
from ptxkit.check.families import RULES
from ptxkit.check.places import Places
from ptxkit.cli.main import main
from ptxkit.diff.program import of_module
from ptxkit.errors import PtxkitError
from ptxkit.explain.instruction import explain
from ptxkit.grammar import parse
from ptxkit.inspect.entry import facts
from ptxkit.lift import lift

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))
LINES = 60
TOKENS = ("", ";", "{", "}", "[", "]", "(", ")", ",", ":", "::", ".", "%", "@", "!", "-", "+", "|", "//", "/*", "0", "-1", "4294967296",
          "18446744073709551616", "0x", "1e400", "0f7fffffff", "WARP_SZ", "ret", "bra", "call", "%tid.w", ".b128", ".v8", ".entry", ".func",
          "L:", "wgmma", ".pred", "_", "$", '"', "\n", "\t", "\0", "\f", "\u00e9", "\udcff", ".align 0", ".reg .b32 x<9999999999>;",
          ".version 9.4\n", ".shared .b8 y[4294967295];")


def mutant(rng: random.Random) -> str:
    """Some lines of a file of the corpus with a few changes: characters and lines dropped, doubled, exchanged, and words put in."""
    lines = rng.choice(CORPUS).read_text().split("\n")
    start = rng.randrange(max(1, len(lines) - LINES))
    kept = lines[:6] + lines[start:start + LINES] if rng.random() < 0.5 else lines[:LINES]
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(kept))
        line, column = kept[at], rng.randrange(len(kept[at]) + 1)
        change = rng.randrange(6)
        if change == 0:
            del kept[at]
            kept = kept or [""]
        elif change == 1:
            kept.insert(rng.randrange(len(kept)), line)
        elif change == 2:
            kept[at] = line[:column] + rng.choice(TOKENS) + line[column:]
        elif change == 3:
            kept[at] = line[:column] + line[column + rng.randrange(1, 5):]
        elif change == 4:
            words = line.split(" ")
            words[rng.randrange(len(words))] = rng.choice(TOKENS)
            kept[at] = " ".join(words)
        else:
            other = rng.randrange(len(kept))
            kept[at], kept[other] = kept[other], kept[at]
    return "\n".join(kept)


def inspected(text: str) -> None:
    module = parse(text)
    facts(module, Places(module))
    of_module(module, "text")


def run(text: str) -> None:
    for entry in parse(text).entries[:1]:
        sim.run(text, entry.name, grid=1, block=32, args=[0] * len(entry.parameters), max_steps=2000)


READERS: dict[str, Callable[[str], object]] = {"lift": lift, "inspect": inspected, "explain": explain}


def refused(reader: Callable[[str], object], text: str) -> bool:
    try:
        reader(text)
    except PtxkitError:
        return True
    return False


def judged(seed: int) -> None:
    text = mutant(random.Random(seed))
    check_text(text)
    for name, reader in READERS.items():
        refused(reader, text if name != "explain" else text.split("\n")[seed % LINES % (text.count("\n") + 1)])


@pytest.mark.pure
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(6))
def test_no_mutant_is_a_traceback(seed: int) -> None:
    for number in range(20):
        judged(100 * seed + number)


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(20))
def test_no_mutant_of_many_is_a_traceback(seed: int) -> None:
    for number in range(150):
        judged(1000 + 1000 * seed + number)


@pytest.mark.pure
def test_a_reader_that_fails_otherwise_is_caught() -> None:
    def failing(text: str) -> object:
        raise ValueError(text)

    with pytest.raises(ValueError, match="x"):
        refused(failing, "x")


@pytest.mark.pure
def test_commands_take_any_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(5)
    for number in range(12):
        data = bytearray(mutant(rng).encode("utf-8", "surrogateescape"))
        data[rng.randrange(len(data))] = rng.choice((0x80, 0xFF, 0xC3, 0x00, 0x7F))
        path = tmp_path / f"{number}.ptx"
        path.write_bytes(data)
        for command in (["check", str(path)], ["check", str(path), "--json"], ["lift", str(path)],
                        ["diff", "--no-resources", str(path), str(path)]):
            assert main(command) in (0, 1)
    capsys.readouterr()


# ---------------------------------------------------------------------------------------------------- how it grows


def steps(text: str, monkeypatch: pytest.MonkeyPatch) -> effort.Effort:
    """What the protocol rules spend on a text, and what they may."""
    made: list[effort.Effort] = []
    begun = effort.Effort.__init__

    def begin(self: effort.Effort) -> None:
        begun(self)
        made.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(effort.Effort, "__init__", begin)
        check_text(text)
    return made[-1]


SIZES = 3000, 9000
SLACK = 1.35
"""How much more than in proportion work may grow from the one size to the other: an exponent of 1.27. Quadratic work grows three times."""
KNOWN = {"stores and bulk copies": 1.7, "copies and stores": 2, "mbarriers of a large array": 1.7, "matrices": 4,
         "wgmma with registers of their own": 2.3}
"""Shapes that take more, until a limit of a rule or the most steps of all: each of their accesses is compared with those before it, which
nothing orders."""
BEYOND = {"choices in a constant": (9000, 27_000)}
"""Sizes of a shape that is wrong from a length on."""


def calls(text: str) -> int:
    """Calls of functions, of Python and C, for a check."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        check_text(text)
    finally:
        sys.setprofile(None)
    return count


def growth(make: Callable[[int], str], sizes: tuple[int, int] = SIZES) -> float:
    """How much faster than a text the work on it grows."""
    small, large = map(make, sizes)
    check_text(large)  # reads the tables that it needs
    return calls(large) / calls(small) / (len(large) / len(small))


@pytest.mark.thinned(8)
@pytest.mark.pure
@pytest.mark.timeout(60)
@pytest.mark.parametrize("shape", SHAPES)
def test_work_follows_the_length_of_a_text_of_any_shape(shape: str) -> None:
    assert growth(SHAPES[shape].text, BEYOND.get(shape, SIZES)) < KNOWN.get(shape, SLACK)


@pytest.mark.pure
def test_work_that_grows_with_the_square_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def every_pair(text: str) -> None:
        for place in range(0, len(text), 10):
            for other in range(0, len(text), 10):
                text.startswith(" ", place, other)

    monkeypatch.setattr("tests.check.test_hostile.check_text", every_pair)
    assert growth(lambda size: "a" * size) > 2 * SLACK


@pytest.mark.pure
@pytest.mark.timeout(60)
@pytest.mark.parametrize("shape", ["stores and bulk copies", "loops in one another that count", "a ring of wgmma"])
def test_a_text_that_asks_for_too_much_ends_with_what_was_left_out(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "FIRST", 0)
    monkeypatch.setattr(effort, "EACH", 2)
    text = SHAPES[shape].text(30_000)
    spent = steps(text, monkeypatch)
    assert spent.done < 3 * spent.most + len(text)
    [found] = [finding for finding in check_text(text) if finding.rule == "unfinished"]
    assert found.severity == "review"
    assert found.ptx_line is not None
    assert any(word in found.message for word in ("all rules", *RULES))


@pytest.mark.pure
@pytest.mark.timeout(60)
def test_the_rules_stop_where_a_text_asks_for_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    text = hostile.text("stores and bulk copies", 40_000)
    monkeypatch.setattr(effort, "FIRST", 20_000)
    spent = steps(text, monkeypatch)
    assert spent.most < spent.done < 2 * spent.most
    assert [finding.severity for finding in check_text(text) if finding.rule == "unfinished"] == ["review"]
    assert effort.CURRENT.get() is None


@pytest.mark.pure
def test_kernels_of_compilers_are_far_from_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wgmma", "tma", "triton_matmul"):
        spent = steps((CORPUS[0].parent / f"{name}.ptx").read_text(), monkeypatch)
        assert 0 < spent.done < spent.most / 50
