"""The intervals of registers against runs: random loops in 32-bit arithmetic, interpreted apart; and divisions by constants."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ptxkit.check.analysis import Analysis
from ptxkit.check.places import Places
from ptxkit.grammar import parse

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u32 n) .reqntid 32
{
.reg .pred %p<8>;
.reg .b32 %r<40>;
.reg .b64 %d<9>;
"""
FULL = 1 << 32
SEEDS = 120


def signed(number: int) -> int:
    return (number & FULL - 1) - FULL * (number >> 31 & 1)


Run = Callable[[dict[str, int]], None]
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b}
COMPUTE: dict[str, Callable[[int, int], int]] = {
    "add.s32": lambda a, b: a + b, "sub.s32": lambda a, b: a - b, "mul.lo.s32": lambda a, b: a * b, "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b, "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> min(b, 32), "shr.s32": lambda a, b: signed(a) >> min(b, 31), "rem.u32": lambda a, b: a % b,
    "div.u32": lambda a, b: a // b, "min.u32": min, "max.s32": lambda a, b: max(signed(a), signed(b)),
    "mul.hi.u32": lambda a, b: a * b >> 32}
SMALL = {"shl.b32": (1, 2, 3, 31), "shr.u32": (1, 4, 30, 31), "shr.s32": (1, 2, 31), "rem.u32": (2, 3, 7), "div.u32": (2, 5),
         "and.b32": (1, 3, 12, 255, FULL - 2, FULL - 4), "add.s32": (1, 2, FULL - 1, 8), "sub.s32": (1, 4),
         "mul.lo.s32": (2, 3, 8, FULL - 3),
         "mul.hi.u32": (2863311531, 3435973837)}


class Program:
    """Registers that a loop changes, statement by statement, with what each does."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.lines: list[str] = []
        self.steps: list[Run] = []
        self.first = {f"%r{i}": self.draw.choice((0, 0, 1, 3, 7, FULL - 1)) for i in range(4)}
        for _ in range(self.draw.randint(3, 9)):
            self.statement()

    def statement(self) -> None:
        draw = self.draw
        to, one = f"%r{draw.randrange(8)}", f"%r{draw.randrange(9)}"
        if draw.random() < 0.3:
            word, bound, kind = draw.choice(list(COMPARE)), draw.choice((0, 1, 2, 3, 5, 8)), draw.choice("us")
            other = f"%r{draw.randrange(8)}"
            guarded = draw.random() < 0.5
            self.lines.append(f"setp.{word}.{kind}32 %p0, {one}, {bound};")
            self.lines.append(f"@%p0 mov.u32 {to}, {other};" if guarded else f"selp.b32 {to}, {other}, {one}, %p0;")

            def choose(state: dict[str, int]) -> None:
                left = state[one] if kind == "u" else signed(state[one])
                if COMPARE[word](left, bound):
                    state[to] = state[other]
                elif not guarded:
                    state[to] = state[one]

            self.steps.append(choose)
            return
        opcode = draw.choice(list(COMPUTE))
        number = draw.choice(SMALL[opcode]) if opcode in SMALL and draw.random() < 0.8 else None
        if number is None and opcode in ("rem.u32", "div.u32", "shl.b32", "shr.u32", "shr.s32"):
            number = SMALL[opcode][0]
        right = f"%r{draw.randrange(9)}"
        guard = "@%p1 " if draw.random() < 0.2 else ""
        self.lines.append(f"{guard}{opcode} {to}, {one}, {right if number is None else signed(number)};")

        def compute(state: dict[str, int]) -> None:
            if not guard or state["%r8"] & 1:
                state[to] = COMPUTE[opcode](state[one], state[right] if number is None else number) & FULL - 1

        self.steps.append(compute)

    def text(self) -> str:
        head = "".join(f"mov.u32 {name}, {signed(number)};\n" for name, number in self.first.items())
        head += "".join(f"mov.u32 %r{i}, 0;\n" for i in range(4, 8)) + "ld.param.u32 %r8, [n];\nand.b32 %r9, %r8, 1;\n"
        "setp.ne.u32 %p1, %r9, 0;\n"
        loop = "mov.u32 %r10, 0;\nagain:\n" + "\n".join(self.lines) + "\nadd.u32 %r10, %r10, 1;\n"
        return (HEAD + head + loop
                + "".join(f"cvt.u64.u32 %d{i}, %r{i};\nst.global.u32 [%d{i}], %r{i};\n" for i in range(8))
                + "setp.lt.u32 %p2, %r10, 6;\n@%p2 bra again;\nret;\n}\n")

    def runs(self, n: int) -> list[dict[str, int]]:
        state = {**{f"%r{i}": 0 for i in range(8)}, **self.first, "%r8": n}
        found = []
        for _ in range(6):
            for step in self.steps:
                step(state)
            found.append(dict(state))
        return found


def analysed(text: str) -> Analysis:
    module = parse(text)
    return Analysis(module, module.entries[0], Places(module))


@pytest.mark.parametrize("part", range(4))
def test_no_register_leaves_its_interval(part: int) -> None:
    known = 0
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        program = Program(seed)
        analysis = analysed(program.text())
        stores = [site for site in analysis.sites if site.mnemonic == "st"]
        states = [state for n in (0, 1, 6, FULL - 1) for state in program.runs(n)]
        for i, store in enumerate(stores):
            interval = analysis.overlap.ranges.of(analysis.values.register(store, f"%r{i}"))
            if interval is not None:
                known += 1
                low, high = interval
                wrong = [state[f"%r{i}"] for state in states
                         if not (low <= state[f"%r{i}"] <= high or low <= state[f"%r{i}"] - FULL <= high)]
                assert wrong == [], (seed, i, interval, program.text())
    assert known > 3 * SEEDS


def quotient(shift: int, m: int, *, kind: str = "u32") -> str:
    return (HEAD + f"ld.param.u32 %r1, [n];\n"
     f"mul.hi.{kind} %r2, %r1, {signed(m)};\n"
            + f"shr.{kind} %r3, %r2, {shift};\nshr.u32 %r4, %r2, 31;\n" + ("add.s32 %r3, %r3, %r4;\n" if kind == "s32" else "")
            + "cvt.u64.u32 %d0, %r3;\nst.global.u32 [%d0], %r3;\nret;\n}\n")


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_a_quotient_is_one_for_every_number(kind: str) -> None:
    """Inverses that are right are known, and none that is wrong for any number."""
    draw = random.Random(5)
    told = 0
    for _ in range(600):
        n, shift = draw.randint(2, 600), draw.randint(1, 9)
        m = -(-(1 << 32 + shift) // n) + draw.choice((0, 0, 0, 1, 2, -1))
        if not 0 < m < (FULL if kind == "u32" else FULL // 2):
            continue
        analysis = analysed(quotient(shift, m, kind=kind))
        store = next(site for site in analysis.sites if site.mnemonic == "st")
        found = analysis.overlap.ranges.quotients.of(analysis.values.register(store, "%r3"))
        if found is not None and found[1] > 1 << shift:
            told += 1
            divisor = found[1]
            for x in [draw.randrange(FULL) for _ in range(60)] + [k * divisor + d for k in (0, 1, FULL // divisor) for d in (-1, 0, 1)]:
                number = x & FULL - 1 if kind == "u32" else signed(x)
                high = number * m >> 32
                given = (high >> shift) + (kind == "s32" and high < 0)
                assert given == (number // divisor if number >= 0 else -(-number // divisor)), (n, shift, m, divisor, number)
    assert told > 20
