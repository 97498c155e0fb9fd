"""Quantisers: largest magnitudes, scales, and quotients in fp8, for vectors of 16 bytes of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec, if_, smem
from ptxkit.idioms import fast_div
from ptxkit.ptx import bar, cvt, div, fma, ld, mov, mul, neg, opcode, prmt, rcp, redux, selp, setp, shfl, shl, st, vote
from ptxkit.ptx import max as max_
from ptxkit.types import Scalar, b8, b32, f16, f32, pred, u32

VECTOR = 16                 # bytes that a thread loads at once
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
SMALL, GROWTH = 2.0**-60, 2.0**80      # scales below SMALL, and what they scale, are multiplied by GROWTH: no remainder is subnormal
ALL = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Matrices:
    """The matrix X, and Q and the scales that are made of it. Strides are in elements; the scales have one for rows and one for columns."""

    x: Ptr[b8]
    q: Ptr[b8]
    scale: Ptr[f32]
    rows: Reg[u32]
    columns: Reg[u32]
    x_row: Reg[u32]
    q_row: Reg[u32]
    scale_row: Reg[u32]
    scale_column: Reg[u32]


@dataclass(frozen=True, slots=True)
class Tiling:
    """How many tiles lie side by side in X, and the inverse of that (`ptxkit.idioms.inverse`). Tiles follow one another along the rows."""

    across: Reg[u32]
    inverse: Reg[u32]

    def place(self, tile: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """How many rows of tiles lie above a tile, and how many tiles to the left of it."""
        above = fast_div(tile, self.across, self.inverse)
        return above, tile - above * self.across


@dataclass(frozen=True, slots=True)
class Divisor:
    """A scale, ready for divisions by it: `quotient` is x / scale rounded to nearest, as div.rn.f32 has it.

    With the reciprocal r rounded to nearest and q = x r, the remainder q scale - x is exact, and q - r remainder is the rounded quotient
    (Markstein); it has the sign of x where it is zero. That is 3 instructions where div.rn has some 10. The scale is found in the same
    way, and the reciprocal by a step of Newton's, as rcp.rn.f32 has it.

    A scale that is zero, small, infinite or NaN is `rare`: where a warp has one, it takes a branch that divides by div.rn. Small scales,
    and what they scale, are made larger by a power of two, `growth`: then for no quotient that is not 0 in fp8 the remainder is subnormal.
    An infinite scale gives 0 for finite x, else NaN.
    """

    scale: Reg[f32]
    growth: Reg[f32]
    grown: Reg[f32]
    inverse: Reg[f32]
    rare: Reg[pred]

    @classmethod
    def of(cls, magnitude: Reg[f32], out: type[Scalar]) -> Divisor:
        """The divisor of values whose largest magnitude this is. All threads of a warp call it."""
        top = LARGEST[out.__name__]
        first = mul.rn.f32(magnitude, 1 / top)
        scale = fma.rn.f32(fma.rn.f32(first, -top, magnitude), 1 / top, first)
        near = rcp.approx.ftz.f32(scale)
        inverse = fma.rn.f32(near, fma.rn.f32(near, neg.f32(scale), 1.0), near)
        grown, growth = mov.f32(scale), mov.f32(1.0)
        rare = vote.sync.any.pred(setp.ltu.f32(scale, SMALL), ALL)          # of an infinity the remainder above is NaN
        with if_(rare):
            exact = div.rn.f32(magnitude, top)
            selp.f32(scale, 1.0, exact, setp.eq.f32(exact, 0.0))
            selp.f32(growth, GROWTH, 1.0, setp.lt.f32(scale, SMALL))
            mul.rn.f32(grown, scale, growth)
            infinite = setp.eq.f32(grown, float("inf"))
            rcp.rn.f32(inverse, grown)                                      # of an infinity 0
            selp.f32(grown, 0.0, grown, infinite)
        return cls(scale, growth, grown, inverse, rare)

    def quotient(self, x: Reg[f32]) -> Reg[f32]:
        """x / scale, of x that has grown."""
        return quotient(x, self.grown, self.inverse)


def quotient(x: Reg[f32], grown: Reg[f32], inverse: Reg[f32]) -> Reg[f32]:
    """x / scale, of x and a scale that have grown, and the reciprocal of the latter."""
    first = mul.rn.f32(x, inverse)
    return fma.rn.f32(fma.rn.f32(first, grown, neg.f32(x)), neg.f32(inverse), first)


@dataclass(frozen=True, slots=True)
class Vectors:
    """How a thread reads vectors of elements of X, and stores them in fp8. Without `wide`, rows begin anywhere or end within a vector: then
    it reads and stores element by element."""

    source: type[Scalar]
    out: type[Scalar]
    given: Matrices
    wide: bool

    @property
    def count(self) -> int:
        """The elements of a vector."""
        return VECTOR * 8 // self.source.bits

    def read(self, row: Reg[u32], column: Reg[u32]) -> list[Reg[b32]]:
        """The words of the vector of this row that begins at this column; zeros past the ends of X."""
        given, size = self.given, self.source.bits // 8
        place = given.x.at(mul.wide.u32(row, given.x_row) * size).at(mul.wide.u32(column, size))
        inside = row < given.rows
        words: list[Any] = [mov.b32(0) for _ in range(VECTOR // 4)]
        if self.wide:
            opcode("ld.global.nc.v4.b32")(Vec(words), place, pred=inside & (column < given.columns))
            return words
        if size == 4:
            for e, word in enumerate(words):
                ld.global_.nc.b32(word, place.at(4 * e), pred=inside & (column + e < given.columns))
            return words
        halves: list[Any] = [mov.b16(0) for _ in range(self.count)]
        for e, half in enumerate(halves):
            ld.global_.nc.b16(half, place.at(2 * e), pred=inside & (column + e < given.columns))
        return [mov.b32(Vec(halves[e:e + 2])) for e in range(0, self.count, 2)]

    def largest(self, words: list[Reg[b32]], so_far: Any = None) -> Any:
        """The bits of the largest magnitudes: two of 16 bits, or one. Bits of magnitudes are in the order of their values, NaN last."""
        bits = 0x7FFF7FFF if self.source.bits == 16 else 0x7FFFFFFF
        for word in words:
            own = opcode("and.b32")(word, bits)
            so_far = own if so_far is None else self.larger(so_far, own)
        return so_far

    def larger(self, one: Any, other: Any) -> Any:
        """The larger of the bits of largest magnitudes: two of 16 bits, or one."""
        return mov.b32((max_.u16x2 if self.source.bits == 16 else max_.u32)(one, other))

    def magnitude(self, largest: Any) -> Reg[u32]:
        """The bits of the largest magnitude as f32."""
        if self.source is f32:
            return mov.b32(largest)
        bits: Reg[u32] = mov.b32(largest)
        one = max_.u32(bits >> 16, bits & 0xFFFF)
        return mov.b32(self._values(one)[0])

    def one(self, largest: Any, odd: Reg[u32]) -> Reg[f32]:
        """The first of two largest magnitudes of 16 bits, or the second where this is odd; or the only one."""
        bits: Reg[u32] = mov.b32(largest)
        return self._values(bits if self.source is f32 else bits >> (odd * 16) & 0xFFFF)[0]

    def grow(self, words: list[Reg[b32]], growths: list[Reg[f32]]) -> None:
        """Multiply the elements of a vector by these growths, in place."""
        for i, word in enumerate(words):
            if self.source is f32:
                opcode("mul.rn.f32")(word, word, growths[i])
            else:
                opcode("mul.rn.bf16x2")(word, word, prmt.b32(mov.b32(growths[2 * i]), mov.b32(growths[2 * i + 1]), 0x7632))

    def grow_all(self, vectors: list[list[Reg[b32]]], divisor: Divisor) -> None:
        """Make vectors ready for this divisor, in place. Scales of f16 are never small."""
        if self.source is not f16:
            with if_(divisor.rare):
                for words in vectors:
                    self.grow(words, [divisor.growth] * self.count)

    def values(self, words: list[Reg[b32]]) -> list[Reg[f32]]:
        """The elements of a vector as f32."""
        return [value for word in words for value in self._values(word)]

    def packed(self, four: list[Reg[f32]]) -> Any:
        """Four values in fp8 as a word."""
        narrow: Any = opcode(f"cvt.rn.satfinite.{self.out.__name__}x2.f32")
        return mov.b32(Vec([narrow(four[e + 1], four[e]) for e in (0, 2)]))

    def store_line(self, words: list[Any], row: Reg[u32], column: Reg[u32], wide: bool) -> None:
        """Store words of four results of a row of Q, whose rows are the columns of X: 16 bytes or one at a time."""
        given = self.given
        place, inside = given.q.at(mul.wide.u32(row, given.q_row)).at(column), row < given.columns
        for first, word in enumerate(words):
            if wide and not first % 4:
                st.global_.v4.b32(place.at(4 * first), Vec(words[first:first + 4]), pred=inside & (column + 4 * first < given.rows))
            for byte in range(0 if wide else 4):
                at = 4 * first + byte
                bits: Reg[u32] = mov.b32(word)
                st.global_.b8(place.at(at), bits >> 8 * byte if byte else bits, pred=inside & (column + at < given.rows))

    def store(self, words: list[Reg[b32]], row: Reg[u32], column: Reg[u32], divisor: Divisor) -> None:
        """Divide a vector that has grown, and store it."""
        values = [divisor.quotient(value) for value in self.values(words)]
        narrow: Any = opcode(f"cvt.rn.satfinite.{self.out.__name__}x2.f32")
        pairs = [narrow(values[e + 1], values[e]) for e in range(0, self.count, 2)]
        given = self.given
        place = given.q.at(mul.wide.u32(row, given.q_row)).at(column)
        inside = row < given.rows
        if self.wide:
            packed: Any = [mov.b32(Vec(pairs[e:e + 2])) for e in range(0, len(pairs), 2)]
            store: Any = st.global_.b32 if len(packed) == 1 else st.global_.v2.b32
            store(place, packed[0] if len(packed) == 1 else Vec(packed), pred=inside & (column < given.columns))
            return
        for e in range(self.count):
            pair = cvt.u32.u16(mov.b16(pairs[e // 2]))
            st.global_.b8(place.at(e) if e else place, pair >> 8 if e % 2 else pair, pred=inside & (column + e < given.columns))

    def _values(self, word: Any) -> list[Reg[f32]]:
        if self.source is f32:
            return [mov.b32(word)]
        if self.source.__name__ == "bf16":
            return [shl.b32(word, 16), opcode("and.b32")(word, 0xFFFF0000)]
        low, high = mov.b16(0), mov.b16(0)
        mov.b32(Vec([low, high]), word)
        return [cvt.f32.f16(low), cvt.f32.f16(high)]


def over_lanes(bits: Reg[u32], lanes: int) -> Reg[u32]:
    """The largest of neighbouring lanes' bits, `lanes` of them together."""
    if lanes == 32:
        return redux.sync.max.u32(bits, ALL)
    distance = 1
    while distance < lanes:
        bits = max_.u32(bits, shfl.sync.bfly.b32(bits, distance, 31, ALL))
        distance *= 2
    return bits


def over_warps(bits: Reg[u32], warp: Reg[u32], team: int, warps: int) -> Reg[u32]:
    """The largest of the bits of the warps of a team, each of which has its own largest already. All threads of the CTA call it."""
    if team == 1:
        return bits
    places = smem.array(u32, warps, name="largest of a warp")
    st.shared__cta.u32(places.at(warp), bits)
    bar.sync(0)
    first = warp // team * team
    found = ld.shared__cta.u32(places.at(first))
    for other in range(1, team):
        found = max_.u32(found, ld.shared__cta.u32(places.at(first + other)))
    return found


def store_scale(given: Matrices, row: Reg[u32], column: Reg[u32] | int, divisor: Divisor, where: Reg[pred]) -> None:
    """Store the scale of a row and a column of scales where this holds."""
    place = given.scale.at(mul.wide.u32(row, given.scale_row))
    place = place if isinstance(column, int) else place.at(mul.wide.u32(column, given.scale_column))
    st.global_.f32(place, divisor.scale, pred=where)


__all__ = ["LARGEST", "VECTOR", "Divisor", "Matrices", "Tiling", "Vectors", "over_lanes", "over_warps", "quotient", "store_scale"]
