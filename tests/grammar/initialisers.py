"""Random declarations and operands with constant expressions of any spelling, right ones and wrong ones."""

from __future__ import annotations

import random

NUMBERS = ("1", "0", "7", "5U", "0x1F", "017", "0b101", "0xFFFFFFFFFFFFFFFF", "9223372036854775808", "1.5", ".5", "2.", "1e3", "1E+2",
           "0d3FF0000000000000", "WARP_SZ", "0x1e", "64")
WRONG = ("0f3F800000", "x", "08", "0x", "5u", "1.5.", "99999999999999999999999", "WARP_SZX", "1e999", "", "%r1", "5 5", "generic(x)", "x+1",
         "-x", "[x]", "{1}", "0xFF(x)", "1e", "é", "x.y", ".s64", "WARP_SZ.x")
BINARY = ("+", "-", "*", "/", "%", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "&", "^", "|", "&&", "||")
HEADS = (".global .u32 a[]", ".visible .const .align 8 .b64 q[4], a [2]", ".global\n.attribute(.managed) .u32 a[]",
         ".global .u32 // x=\n a[]")


class Texts:
    """What one seed gives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def blank(self) -> str:
        return self.rng.choice(("", "", " ", "\n", "\t", " // c, ;}\n", "/* , } */")) if self.rng.random() < 0.3 else ""

    def expression(self, depth: int) -> str:
        chance, blank = self.rng.random(), self.blank
        if depth <= 0 or chance < 0.25:
            return self.rng.choice(NUMBERS if self.rng.random() < 0.985 else WRONG)
        if chance < 0.55:
            sign = self.rng.choice(BINARY) if self.rng.random() < 0.98 else self.rng.choice(("=>", "=", "**"))
            return f"{self.expression(depth - 1)}{blank()}{sign}{blank()}{self.expression(depth - 1)}"
        if chance < 0.7:
            return f"{self.rng.choice('+-~!')}{blank()}{self.expression(depth - 1)}"
        if chance < 0.8:
            return f"({blank()}{self.expression(depth - 1)}{blank()})"
        if chance < 0.88:
            kind = self.rng.choice((".s64", ".u64")) if self.rng.random() < 0.95 else ".b32"
            return f"({blank()}{kind}{blank()}){blank()}{self.expression(depth - 1)}"
        condition, yes, no = (self.expression(depth - 1) for _ in range(3))
        return f"{condition}{blank()}?{blank()}{yes}{blank()}:{blank()}{no}"

    def symbol(self, depth: int) -> str:
        name = self.rng.choice(("x", "y$1", "_z", "generic(x)", "generic ( x )", "%q", "generic", "_", "WARP_SZ"))
        if self.rng.random() < 0.5:
            name += f"{self.blank()}{self.rng.choice('+++-')}{self.blank()}{self.expression(depth - 1)}"
        if self.rng.random() < 0.2:
            name = f"{self.rng.choice(('0xFF', '0xFF00U', '1.5'))}{self.blank()}({self.blank()}{name}{self.blank()})"
        return name

    def element(self, depth: int, within: int) -> str:
        chance = self.rng.random()
        if chance < 0.12 and within < 5:
            return f"{{{self.blank()}{self.elements(depth, within + 1)}{self.blank()}}}"
        if chance < 0.3:
            return self.symbol(depth)
        if chance < 0.335:
            return self.rng.choice(("addr_mode_0 = wrap", "a=1", "filter_mode=WARP_SZ", "a = b+1", "a==1", "0f3F800000", ""))
        return self.expression(depth)

    def elements(self, depth: int, within: int = 1) -> str:
        count = self.rng.choice((0, 1, 1, 2, 3, 6))
        return f"{self.blank()},".join([self.blank() + self.element(depth, within) for _ in range(count)])

    def text(self) -> str:
        """A declaration, or a function with one and with operands."""
        depth, chance = self.rng.randrange(4), self.rng.random()
        text = f"{self.rng.choice(HEADS)} ={self.blank()}{{{self.elements(depth)}}}{self.blank()};"
        one, other = self.expression(depth), self.expression(depth)
        if chance < 0.15:
            text = f".global .u32 a = {one if chance < 0.1 else self.symbol(depth)};"
        elif chance < 0.3:
            text = (f".func f() {{ {{ mov.u32 a, {one}, {{{other}, b}}; call (r), f, ({other}, x);\n st.u32 [a+{self.expression(1)}],"
                    f" {one};\n }} {text} }}")
        elif chance < 0.4:
            text = f".func f() {{\n mov.u32 a, {one};\n add.u32 b, {other}, 1;\n}}"
        if self.rng.random() < 0.1:
            at = self.rng.randrange(len(text))
            text = text[:at] + self.rng.choice('{},;(="/') + text[at + self.rng.randrange(2):]
        return text
