"""Constant expressions fold as ptxas folds them: the oracle is the initial value that it puts into the cubin."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import pytest

from ptxkit import grammar
from ptxkit.grammar.errors import ParseError
from ptxkit.grammar.readers import constant
from ptxkit.grammar.tree import Aggregate, Constant, Float, Integer, Variable

from .certify import ptxas
from .cubin import sections

pytestmark = pytest.mark.timeout(120)

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
CORNERS = [
    "~5", "(~0)<1", "(-1)<1", "-1<1U", "(5&7)-6<0", "(5U&7)-6<0", "5 % -3", "-5 % 3", "(5 % 3)-4<0", "-5/2", "-5U/2", "-5>>1", "-5U>>1",
    "1<<64", "1<<65", "1<<-1", "-8>>64", "-8>>70", "9223372036854775808>0", "-9223372036854775808<0", "-9223372036854775808/-1",
    "9223372036854775807+1", "18446744073709551615", "(1?-1:1U)<0", "(1?1U:-1)-2<0", "!5", "(!0)-2<0", "1&&2", "(1U<2U)-2<0", "WARP_SZ",
    "(WARP_SZ-33)<0", "(.u64)-1>>60", "(.s64)18446744073709551615>>60", "1.5<2.5", "0d3ff0000000000000<2.0", "-+5", "- -5", "~~5",
    "1==1==1", "2|1==1", "1+2<<3", "1?2:3?4:5", "0?2:0?4:5", "1||0&&0", "7&3==3", "5-3-1", "100/10/5", "(1U<<2)-5<0",
    "0x8000000000000000>>63", "(.s64)(.u64)5-6<0", "0x7fffffffffffffff*2", "010+0b11+0x1F", "5>3>1", "1|2^3&4", "-7/2", "-7/2U",
    "(.s64)9223372036854775808<0",
]
FLOATS = [
    "1.5", "-1.5", "1.0/3.0", "0d3ff0000000000000+1.0", "-(0d3ff0000000000000)", "1.0-2.0*3.0", "1e308*10.0", "0d7ff0000000000000*1.0",
    ".5e1", "1.e5", "01.5", "0d8000000000000000", "1.7976931348623157e308", "2.3e-308", "0.1+0.2",
]
REFUSED = [
    "1/0", "0 && 1/0", "1 ? 2 : 1/0", "5 % 0", "1.5 + 1", "!1.5", "(.s32)5", "1.5 ? 1 : 2", "1.5 && 1", "089", "5u", "0f3f8", "-0f3F800000",
    "0f3F800000+1.0", "(0f3F800000)", "1e400", "1e-400",
]


def bits(value: Constant | None) -> int:
    assert isinstance(value, (Integer, Float))
    return value.bits if isinstance(value, Float) else value.value & (2**64 - 1)


def folded(expressions: list[str], kind: str) -> list[int]:
    (variable,) = grammar.parse(f"{HEAD}.global .{kind} x[{len(expressions)}] = {{{', '.join(expressions)}}};").items
    assert isinstance(variable, Variable)
    assert isinstance(variable.initializer, Aggregate)
    return [bits(value) for value in variable.initializer.elements]  # type: ignore[arg-type]


def assembled(expressions: list[str], kind: str, folder: Path) -> list[int]:
    (folder / "x.ptx").write_text(f"{HEAD}.visible .global .align 8 .{kind} x[{len(expressions)}] = {{{', '.join(expressions)}}};\n")
    command = [str(ptxas()), "-arch=sm_90a", "x.ptx", "-o", "x.cubin"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return [value for (value,) in struct.iter_unpack("<Q", sections((folder / "x.cubin").read_bytes())[".nv.global.init"])]


def expression(source: random.Random, depth: int) -> str:
    """A random integer expression; `/` and `%` divide by what cannot be zero."""
    kind = source.randrange(8) if depth else 0
    if kind <= 1:
        number = source.choice([source.randrange(10), source.getrandbits(64), source.getrandbits(32), 2**63, 2**64 - 1])
        return source.choice(["{}", "{}U", "0x{:X}"]).format(number)
    left, right = expression(source, depth - 1), expression(source, depth - 1)
    if kind == 2:
        return f"({source.choice(['-', '+', '~', '!', '(.s64)', '(.u64)'])}{left})"
    if kind == 3:
        return f"({left} ? {right} : {expression(source, depth - 1)})"
    if kind == 4:
        return f"({left} {source.choice('/%')} ({right} | 1))"
    sign = source.choice(["+", "-", "*", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "&&", "||"])
    return f"({left} {sign} {right})" if kind < 7 else f"({left} {sign} {right} {source.choice(['+', '<<', '&', '=='])} {left})"


def cases() -> list[str]:
    source = random.Random(20)
    return CORNERS + [expression(source, 4) for _ in range(1500)]


@pytest.mark.ptxas
def test_integers_fold_as_ptxas_folds_them(tmp_path: Path) -> None:
    said = cases()
    found = zip(said, folded(said, "u64"), assembled(said, "u64", tmp_path), strict=True)
    assert [(text, hex(a), hex(b)) for text, a, b in found if a != b] == []


@pytest.mark.ptxas
def test_floats_fold_as_ptxas_folds_them(tmp_path: Path) -> None:
    found = zip(FLOATS, folded(FLOATS, "f64"), assembled(FLOATS, "f64", tmp_path), strict=True)
    assert [(text, hex(a), hex(b)) for text, a, b in found if a != b] == []


@pytest.mark.ptxas
@pytest.mark.parametrize(
    ("name", "wrong"),
    [("is_unsigned", lambda value: value.unsigned), ("wrap", lambda value, unsigned=False: Integer(value & (2**64 - 1), True))],
)
def test_the_oracle_tells_another_rule(name: str, wrong: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = assembled(cases(), "u64", tmp_path)
    monkeypatch.setattr(constant, name, wrong)
    assert folded(cases(), "u64") != wanted


@pytest.mark.ptxas
@pytest.mark.parametrize("text", REFUSED)
def test_what_ptxas_refuses_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ptxas"):
        assembled([text], "u64", tmp_path)
    with pytest.raises(ParseError):
        folded([text], "u64")
