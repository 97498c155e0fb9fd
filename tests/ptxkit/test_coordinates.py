"""Coordinates of every mma and wgmma of the table: the products of the CPU device, and each element of an operand once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, Vec, kernel, laneid
from ptxkit.errors import TraceError
from ptxkit.grammar import forms
from ptxkit.ptx import Opcode, ld, mov, opcode, wgmma
from ptxkit.ptx import st as store
from ptxkit.types import b32, f64, u32
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Array = np.ndarray[Any, Any]
FLOATS = {"f64": (64, np.float64), "f32": (32, np.float32), "tf32": (32, np.float32), "f16": (16, np.float16)}
SMALL = {"e4m3": {0: 0, 1: 0x38, 2: 0x40, -1: 0xB8}, "e5m2": {0: 0, 1: 0x3C, 2: 0x40, -1: 0xBC},
         "bf16": {0: 0, 1: 0x3F80, 2: 0x4000, -1: 0xBF80}}
WIDTH = {"bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}


def opcodes(mnemonic: str) -> Iterator[str]:
    """The opcodes of the table, each once."""
    yield from dict.fromkeys(signature.opcode for form in forms.forms(mnemonic) for signature in forms.variants(form))


def types(name: str) -> list[str]:
    """The types of d, a and b."""
    return [token for token in name.split(".") if token in {**FLOATS, **WIDTH}][:3]


def width(type: str) -> int:
    return FLOATS[type][0] if type in FLOATS else WIDTH[type]


def extents(name: str) -> tuple[int, int, int]:
    shape = next(token for token in name.split(".") if token[0] == "m" and "n" in token and "k" in token)
    rows, rest = shape[1:].split("n")
    columns, depth = rest.split("k")
    return int(rows), int(columns), int(depth)


def encoded(values: Array, type: str) -> Array:
    """The bits of each value."""
    if type in SMALL:
        return np.vectorize(SMALL[type].__getitem__, otypes=[np.uint64])(values)
    if type in FLOATS:
        bits, kind = FLOATS[type]
        found: Array = values.astype(kind).view(f"u{bits // 8}").astype(np.uint64)
        return found
    return values.astype(np.int64).view(np.uint64) & np.uint64((1 << WIDTH[type]) - 1)


def words(values: Array, type: str, rows: Array, columns: Array) -> Array:
    """The registers of each lane, whose elements lie at these rows and columns: (lanes, registers)."""
    bits, elements = width(type), encoded(values, type)[rows, columns]
    packed = max(1, 32 // bits)
    parts = elements.reshape(32, -1, packed) << (np.arange(packed, dtype=np.uint64) * np.uint64(bits))
    joined: Array = parts.sum(2).astype(np.uint64 if bits == 64 else np.uint32)
    return joined


DENSE = [name for name in opcodes("mma") if ".sp" not in name and ".m16n8" in name]


@pytest.mark.parametrize("name", DENSE)
def test_a_product_at_its_coordinates(name: str) -> None:
    """Law: with A and B put into registers by their coordinates, D at its coordinates is the product."""
    product, kinds = opcode(name), types(name)
    _, columns, depth = extents(name)
    places: dict[str, Any] = {}

    @kernel(block=32)
    def located(out: Ptr[u32]) -> None:
        lane = mov.u32(laneid)
        for i, operand in enumerate("dab"):
            places[operand] = here = product.coordinates(lane, operand)
            store.global_.v2.u32(out.at(lane * 2) + 64 * i, (here.row, here.column))

    first = np.zeros((3, 32, 2), np.uint32)
    assert located.simulate(1, first).verdict == "clean"
    at = {operand: first[i][:, None, :].astype(int) + np.array(places[operand].places) for i, operand in enumerate("dab")}
    wide = kinds[1] == "f64"
    counts = [len(places[operand].places) // places[operand].packed for operand in "dab"]

    @kernel(block=32)
    def multiplied(a: Ptr[f64 if wide else b32], b: Ptr[f64 if wide else b32], d: Ptr[f64 if wide else b32]) -> None:
        lane = mov.u32(laneid)
        load, save = (ld.global_.f64, store.global_.f64) if wide else (ld.global_.b32, store.global_.b32)
        left, right = ([load(source.at(lane * count) + i) for i in range(count)] for source, count in ((a, counts[1]), (b, counts[2])))
        zero = {"f64": lambda: mov.f64(0.0), "f32": lambda: mov.f32(0.0), "s32": lambda: mov.s32(0), "f16": lambda: mov.b32(0)}[kinds[0]]
        sums: Any = Vec([zero() for _ in range(counts[0])])
        product(sums, Vec(left), Vec(right), sums)
        for i, register in enumerate(sums):
            save(d.at(lane * counts[0]) + i, register)

    generator = np.random.default_rng(0)
    a, b = (generator.choice([0, 1] if kind == "b1" else [0, 1, 2] if kind[0] == "u" else [0, 1, 2, -1], shape)
            for kind, shape in zip(kinds[1:], ((16, depth), (depth, columns)), strict=True))
    d = np.zeros((32, counts[0]), np.uint64 if wide else np.uint32)
    fragments = [words(values, kind, at[operand][..., 0], at[operand][..., 1])
                 for values, kind, operand in ((a, kinds[1], "a"), (b, kinds[2], "b"))]
    assert multiplied.simulate(1, *(x.view(np.float64) if wide else x for x in (*fragments, d))).verdict == "clean"
    expected = (a[:, :, None] ^ b[None]).sum(1) if ".xor." in name else a @ b
    found = np.full((16, columns), -9999.0)
    found[at["d"][..., 0], at["d"][..., 1]] = d.view({"s32": np.int32, **{k: v[1] for k, v in FLOATS.items()}}[kinds[0]])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", [name for name in opcodes("wgmma") if ".m64n16k" in name and ".mma_async.sync" in name])
def test_operands_of_a_warpgroup_are_those_of_its_warps(name: str) -> None:
    """Law: in its 16 rows a warp holds A as one mma of as many bits does, and D as mma does, 8 columns after 8 columns."""
    depth, (d, a, _) = extents(name)[2], (types(name) * 2)[:3]
    of_a = {"b1": "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"}.get(
        a, f"mma.sync.aligned.m16n8k{depth}.row.col.{'s32' if a[1:] == '8' else 'f32'}.{a}.{a}.{'s32' if a[1:] == '8' else 'f32'}")

    def compared(n: Reg[u32]) -> None:
        one = opcode(of_a)
        assert opcode(name).coordinates(n, "a").places == one.coordinates(n, "a").places
        here = opcode(name).coordinates(n)
        assert here.packed == (2 if d == "f16" else 1)
        due = one.coordinates(n).places
        assert here.places == (*due, *((row, column + 8) for row, column in due))

    trace(compared)


def test_every_other_opcode_says_that_it_has_none() -> None:
    """Law: coordinates are given or refused by a sentence, for every opcode about matrices and for each beginning of one."""
    def asked(n: Reg[u32]) -> None:
        for mnemonic in ("mma", "wgmma", "ldmatrix", "stmatrix", "movmatrix"):
            whole = [name for name in opcodes(mnemonic) if ".m64n" not in name or ".m64n8k" in name]
            for name in dict.fromkeys(part for each in whole for part in (each, each.rpartition(".")[0])):
                for operand in ("d", "a", "b"):
                    if name in DENSE or (name in whole and name.startswith("wgmma.mma_async.sync") and operand != "b"):
                        places = spelled(name).coordinates(n, operand).places
                        assert len(set(places)) == len(places)
                    else:
                        with pytest.raises(TraceError, match=r"has no coordinates|is incomplete|is in shared memory"):
                            spelled(name).coordinates(n, operand)

    trace(asked)


def spelled(name: str) -> Any:
    """An opcode, or the beginning of one."""
    state: Any = forms.start(name.partition(".")[0])
    for token in name.split(".")[1:]:
        state = state.step(token)
    return Opcode(state)


def test_where_a_fragment_begins_moves_its_rows() -> None:
    """Rows of b are its depth."""
    product: Any = opcode("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")

    @kernel(block=32)
    def located(out: Ptr[u32]) -> None:
        lane = mov.u32(laneid)
        for i, operand in enumerate("dab"):
            here, moved = product.coordinates(lane, operand), product.coordinates(lane, operand, row=32)
            store.global_.v2.u32(out.at(lane * 2) + 64 * i, (moved.row - here.row, moved.column - here.column))

    found = np.ones((3, 32, 2), np.uint32)
    assert located.simulate(1, found).verdict == "clean"
    assert (found[..., 0] == 32).all()
    assert not found[..., 1].any()


def test_bad_operands() -> None:
    def c(n: Reg[u32]) -> None:
        opcode("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32").coordinates(n, "c")

    def part(n: Reg[u32]) -> None:
        wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.coordinates(n)           # type: ignore[attr-defined] # wrong

    refused(c, "coordinates are of operand 'd', 'a' or 'b', not 'c': those of c are those of d")
    refused(part, "is incomplete: it continues with one of .bf16")
