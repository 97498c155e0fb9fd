"""Sums of chosen rows with weights, in a fixed order, and products of pairs of rows: the end of a mixture of experts, and its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ptxkit import Ptr, Reg, Vec, ctaid, for_range, if_, kernel, tid
from ptxkit.fragments import pack, unpack
from ptxkit.ptx import add, createpolicy, cvt, fma, griddepcontrol, ld, mov, mul, opcode, st
from ptxkit.ptx import min as min_
from ptxkit.reductions import warp_reduce
from ptxkit.types import Scalar, b8, b64, bf16, f32, pred, u32

THREADS = 256
VECTOR = 16                 # bytes that a thread loads at once
MOST_AT_ONCE = 8            # rows whose loads a thread has under way
PLACES = 8                  # numbers of a row's places that a thread reads at once
NOWHERE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a matrix: its address, the elements from row to row, and how many rows there are."""

    pointer: Ptr[b8]
    row: Reg[u32]
    rows: Reg[u32]


@dataclass(frozen=True, slots=True)
class Choices:
    """The rows of Y that each row of a result is summed of: their numbers, weights if they have any, and where those of each row begin
    (`starts`), or how many each row has (`top`). `count`: how many there are in all."""

    place: Ptr[u32]
    weights: Ptr[f32]
    starts: Ptr[u32]
    top: Reg[u32]
    count: Reg[u32]


@dataclass(frozen=True, slots=True)
class Elements:
    """How a thread reads some neighbouring elements of a row as f32, and stores sums of them: 16 bytes, or without `wide` one element."""

    source: type[Scalar]
    wide: bool

    @property
    def count(self) -> int:
        """The elements that a thread reads at once."""
        return VECTOR * 8 // self.source.bits if self.wide else 1

    def read(self, rows: Rows, row: Reg[u32], column: Reg[u32], where: Reg[pred], policy: Reg[b64] | None = None) -> list[Any]:
        """The words of a row's elements from this column on; zeros where `where` does not hold, and nothing is read there. Vectors are
        read with this L2 policy."""
        size = self.size
        place = rows.pointer.at(mul.wide.u32(row, rows.row) * size).at(mul.wide.u32(column, size))
        if self.wide:
            words: list[Any] = [mov.b32(0) for _ in range(VECTOR // 4)]
            if policy is None:
                opcode("ld.global.nc.L1::no_allocate.v4.b32")(Vec(words), place, pred=where)
            else:
                opcode("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32")(Vec(words), place, policy, pred=where)
            return words
        one: Any = mov.b32(0) if size == 4 else mov.b16(0)
        (ld.global_.nc.b32 if size == 4 else ld.global_.nc.b16)(one, place, pred=where)
        return [one if size == 4 else mov.b32(Vec([one, mov.b16(0)]))]

    @property
    def size(self) -> int:
        """The bytes of an element."""
        return self.source.bits // 8

    def write(self, words: list[Any], place: Ptr[b8], where: Reg[pred]) -> None:
        """Store the words of `read` as they are."""
        if self.wide:
            st.global_.v4.b32(place, Vec(words), pred=where)
        elif self.size == 4:
            st.global_.b32(place, words[0], pred=where)
        else:
            opcode("st.global.b16")(place, cvt.u16.u32(words[0]), pred=where)

    def values(self, words: list[Any]) -> list[Reg[f32]]:
        """They as f32."""
        if self.source is f32:
            return [mov.b32(word) for word in words]
        return [value for word in words for value in unpack(self.source, word)][:self.count]

    def store(self, values: list[Reg[f32]], out: Ptr[b8], to: type[Scalar], where: Reg[pred]) -> None:
        """Store sums, rounded to their type."""
        if to is f32:
            for first in range(0, len(values), 4):
                part = values[first:first + 4]
                place = out.at(4 * first) if first else out
                if len(part) == 4:
                    st.global_.v4.f32(place, Vec(part), pred=where)
                else:
                    st.global_.f32(place, part[0], pred=where)
            return
        if not self.wide:
            opcode("st.global.b16")(out, opcode(f"cvt.rn.{to.__name__}.f32")(values[0]), pred=where)
            return
        packed: Any = [pack(to, *values[e:e + 2]) for e in range(0, len(values), 2)]
        (st.global_.v4.b32 if len(packed) == 4 else st.global_.v2.b32)(out, Vec(packed), pred=where)


@kernel(target="sm_90a", block=THREADS)
def combine(y: Rows, choices: Choices, out: Rows, columns: Reg[u32], *, source: type[Scalar] = bf16, result: type[Scalar] = bf16,
            threads: Literal[32, 64, 128, 256] = 256, at_once: Literal[1, 2, 4, 8] = 8, across: Literal[1, 2, 4] = 1,
            weighted: bool = True, ragged: bool = False, wide: bool = True, once: bool = False) -> None:
    """out[t] = the sum of weights[e] y[place[e]] over the choices e of row t, one after another, in f32, rounded once.

    `threads` share a row, each with 16 bytes of it in `across` places. The loads of `at_once` choices are under way together, and their
    sums are added in the order of the choices: a row's bits depend on nothing but its own choices. Choices outside of Y add nothing.
    `ragged`: rows have any number of choices, from starts[t] on. `once`: what is read has the L2 hint evict_first, since nobody reads it
    again; rows that the product before has just written stay until they are read.

    Nothing is read before griddepcontrol.wait: the product before may still write Y. There is no griddepcontrol.launch_dependents: the CTAs
    of a product that begins among these come to multiprocessors in another order than those of one that begins alone. On an H100 products
    with static schedules took 3 % to 100 % longer after a kernel that allowed it, and no longer after one that did not.
    """
    elements, thread = Elements(source, wide), mov.u32(tid.x)
    row = mov.u32(ctaid.x) * (THREADS // threads) + thread // threads
    column = (mov.u32(ctaid.y) * (threads * across) + (thread & (threads - 1))) * elements.count
    places = [column + number * threads * elements.count if number else column for number in range(across)]
    inside: list[Reg[pred]] = [(row < out.rows) & (place < columns) for place in places]
    policy = createpolicy.fractional.L2__evict_first.b64() if once else None
    griddepcontrol.wait()
    with if_(inside[0]):
        if ragged:
            first, end = (ld.global_.nc.u32(choices.starts.at(row) + at) for at in range(2))
            last = min_.u32(end, choices.count)
        else:
            first = row * choices.top
            last = first + choices.top
        sums = [mov.f32(0.0) for _ in range(elements.count * across)]
        with for_range(last, start=first, step=at_once) as choice:
            loaded = []
            for number in range(at_once):
                own = choice + number if number else choice
                place, weight = mov.u32(NOWHERE), mov.f32(0.0)
                ld.global_.nc.u32(place, choices.place.at(own), pred=own < last)
                there = place < y.rows
                if weighted:
                    ld.global_.nc.f32(weight, choices.weights.at(own), pred=there)
                parts = [elements.read(y, place, at, there & whole, policy) for at, whole in zip(places, inside, strict=True)]
                loaded.append((weight, parts))
            for weight, parts in loaded:
                for total, value in zip(sums, [value for words in parts for value in elements.values(words)], strict=True):
                    fma.rn.f32(total, weight, value, total) if weighted else add.rn.f32(total, total, value)
        begin = out.pointer.at(mul.wide.u32(row, out.row) * (result.bits // 8))
        for number, (at, whole) in enumerate(zip(places, inside, strict=True)):
            values = sums[number * elements.count:(number + 1) * elements.count]
            elements.store(values, begin.at(mul.wide.u32(at, result.bits // 8)), result, whole)


@kernel(target="sm_90a", block=THREADS)
def spread(x: Rows, place: Ptr[u32], top: Reg[u32], out: Rows, columns: Reg[u32], *, source: type[Scalar] = bf16,
           threads: Literal[32, 64, 128, 256] = 256, across: Literal[1, 2, 4] = 4, wide: bool = True) -> None:
    """out[place[t, k]] = x[t] for every k below `top`: a row is read once and written to each of its places. Numbers of no row of `out`
    are written nowhere.

    `threads` share a row, each with 16 bytes of it in `across` places. The loads of a row are under way together with those of
    `PLACES` of its numbers.
    """
    elements, thread = Elements(source, wide), mov.u32(tid.x)
    row = mov.u32(ctaid.x) * (THREADS // threads) + thread // threads
    column = (mov.u32(ctaid.y) * (threads * across) + (thread & (threads - 1))) * elements.count
    columns_of = [column + number * threads * elements.count if number else column for number in range(across)]
    inside: list[Reg[pred]] = [(row < x.rows) & (at < columns) for at in columns_of]
    griddepcontrol.wait()
    with if_(inside[0]):
        parts = [elements.read(x, row, at, whole) for at, whole in zip(columns_of, inside, strict=True)]
        first = row * top
        last = first + top
        with for_range(last, start=first, step=PLACES) as choice:
            found = []
            for number in range(PLACES):
                own, at = choice + number if number else choice, mov.u32(NOWHERE)
                ld.global_.nc.u32(at, place.at(own), pred=own < last)
                found.append(at)
            for at in found:
                begin, there = out.pointer.at(mul.wide.u32(at, out.row) * elements.size), at < out.rows
                for words, to, whole in zip(parts, columns_of, inside, strict=True):
                    elements.write(words, begin.at(mul.wide.u32(to, elements.size)), there & whole)


@kernel(target="sm_90a", block=THREADS)
def row_products(a: Rows, first: Ptr[u32], b: Rows, second: Ptr[u32], out: Ptr[f32], count: Reg[u32], columns: Reg[u32], *,
                 source: type[Scalar] = bf16, wide: bool = True) -> None:
    """out[e] = the product of row first[e] of A and row second[e] of B, in f32: a warp for each. It is 0 where there is no such row.

    A lane sums every 32nd vector of a row, and the lanes' sums are added by halves: in one order whatever the other pairs are.
    """
    elements, thread = Elements(source, wide), mov.u32(tid.x)
    pair, lane = mov.u32(ctaid.x) * (THREADS // 32) + (thread >> 5), thread & 31
    griddepcontrol.wait()
    with if_(pair < count):
        left, right = ld.global_.nc.u32(first.at(pair)), ld.global_.nc.u32(second.at(pair))
        there: Reg[pred] = (left < a.rows) & (right < b.rows)
        total = mov.f32(0.0)
        with for_range(columns, start=mul.lo.u32(lane, elements.count), step=32 * elements.count) as column:
            x, y = (elements.values(elements.read(rows, row, column, there)) for rows, row in ((a, left), (b, right)))
            for one, other in zip(x, y, strict=True):
                fma.rn.f32(total, one, other, total)
        total = warp_reduce(add.rn.f32, total)
        st.global_.f32(out.at(pair), total, pred=lane == 0)


__all__ = ["MOST_AT_ONCE", "THREADS", "VECTOR", "combine", "row_products", "spread"]
