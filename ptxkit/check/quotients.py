"""Divisions by constants as compilers write them: shifts, and products with the inverse of the divisor."""

from __future__ import annotations

from .values import Value, Values


class Quotients:
    def __init__(self, values: Values) -> None:
        self.values = values

    def of(self, value: Value) -> tuple[Value, int, bool] | None:
        """(x, n, signed) of `x / n`, divided or multiplied by the inverse as compilers do."""
        site = value.site if value.kind == "op" else None
        if site is None:
            return None
        given = self.values.arguments(value)
        if site.mnemonic == "div" and (n := self.values.number(given[1])) is not None and n > 0:
            return given[0], n, site.opcode[-3] == "s"
        if site.mnemonic == "cvt":
            return self.of(given[0])
        if site.mnemonic == "shr" and site.opcode[-3] != "s" and (by := self.values.number(given[1])) is not None and 0 <= by < 64:
            product = self._high(given[0])
            if product is not None:
                return self._divided(product[0], product[1], product[2] + by)
            inner = self.of(given[0])
            return (inner[0], inner[1] << by, False) if inner is not None and not inner[2] else (given[0], 1 << by, False)
        high = self._high(value)
        if high is not None and high[2]:
            return self._divided(*high)
        return self._signed_quotient(value)

    def _high(self, value: Value) -> tuple[Value, int, int] | None:
        """(x, m, bits) of an unsigned product x * m shifted right by so many bits."""
        site = value.site if value.kind == "op" else None
        if site is None or site.mnemonic != "mul" or site.opcode[-3:] != "u32" or not site.tokens & {"hi", "wide"}:
            return None
        one, other = self.values.arguments(value)
        m = self.values.number(other)
        if m is None:
            one, m = other, self.values.number(one)
        return None if m is None else (one, m & 0xFFFFFFFF, 32 if "hi" in site.tokens else 0)

    def _divided(self, x: Value, m: int, bits: int) -> tuple[Value, int, bool] | None:
        """`x * m >> bits` is x / n for every x of 32 bits when m n exceeds 2^bits by 2^(bits - 32) at most."""
        nearest = -(-(1 << bits) // m) if m else 0
        for n in (nearest, nearest - 1):
            if bits >= 32 and n > 1 and 0 <= m * n - (1 << bits) <= 1 << bits - 32:
                inner = self.of(x)  # an even divisor is shifted out before
                return (inner[0], inner[1] * n, False) if inner is not None and not inner[2] else (x, n, False)
        return None

    def _signed_quotient(self, value: Value) -> tuple[Value, int, bool] | None:
        """`(x * m >> 32 + s) + (sign bit)` of a signed product."""
        form = self.values.linear(value)
        if form.symbol is not None or form.offset or [factor for _, factor in form.terms] != [1, 1]:
            return None
        (one, _), (other, _) = form.terms
        pair = self.pair(one, other)
        return None if pair is None else (*pair, True)

    def pair(self, one: Value, other: Value) -> tuple[Value, int] | None:
        """(x, n) of the two parts of a signed quotient, the shifted product and its sign bit, which is added."""
        found = [part for term in (one, other) if (part := self._shifted(term)) is not None]
        if len(found) != 2 or found[0][0] is not found[1][0]:
            return None
        high, bits = found[0][0], min(by for _, by, _ in found)
        site = high.site
        if {(by, signed) for _, by, signed in found} != {(bits, True), (31, False)} or site is None or site.opcode != "mul.hi.s32":
            return None
        x, m = self.values.arguments(high)
        number = self.values.number(m)
        if number is None or number <= 0:
            return None
        for n in (-(-(1 << 32 + bits) // number), (1 << 32 + bits) // number):
            if n > 1 and 0 < number * n - (1 << 32 + bits) <= 1 << bits + 1:
                return x, n
        return None

    def _shifted(self, value: Value) -> tuple[Value, int, bool] | None:
        """(what is shifted right, by how much, whether with its sign)."""
        site = value.site if value.kind == "op" else None
        if site is None:
            return None
        if site.mnemonic == "mul":
            return value, 0, True
        if site.mnemonic != "shr":
            return None
        one, by = self.values.arguments(value)
        number = self.values.number(by)
        return None if number is None else (one, number, site.opcode[-3] == "s")
