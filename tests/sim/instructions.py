"""Every ordinary instruction of the table on edge values and random ones, as kernels that run on the simulator and on a GPU.

A `Batch` is one kernel: it loads the operands of each thread from memory, executes each of its instructions on them, and stores every
result as 64 bits. Both devices are given the same inputs, so that their outputs can be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxkit.grammar import forms, tree
from ptxkit.grammar.isa import compare, floating, half, integer, logic, mma, move, warp
from ptxkit.grammar.operands import width
from ptxkit.grammar.write import write_instruction

THREADS = 256
SLOTS = 4
CHAPTERS = (integer, floating, half, compare, logic, move, warp, mma)
FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16}
_NOT_HERE = ("cvta", "isspacep", "elect", "activemask", "bar")  # addresses, and what a GPU may decide

_EDGES = {
    "f16": [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x3C01, 0x3555, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7FFF, 0x7C01,
            0x7FF7, 0xFFF7],
    "bf16": [0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x3F80, 0xBF80, 0x3F81, 0x3EAA, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x7FFF, 0x7F81,
             0x7FF7, 0xFFF7],
    "f32": [0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001, 0x3F7FFFFF, 0x3F000000,
            0xBF000000, 0x3FC00000, 0x40200000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF, 0x7F800001,
            0xFFC00001, 0x4F000000, 0xCF000000, 0x4F7FFFFF, 0x4F800000, 0x5F000000, 0x477FE000, 0x477FF000, 0x477FEFFF, 0x33000000,
            0x33000001, 0x38800000, 0x387FC000, 0x43E00000, 0x43E80000, 0x47600000, 0x7F7F8000, 0x3F808000, 0x3F818000, 0x3F801000],
    "f64": [0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000, 0x3FF0000000000001,
            0x3FE0000000000000, 0x4004000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000,
            0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF, 0x41E0000000000000, 0xC1E0000000000000, 0x43E0000000000000, 0x43F0000000000000,
            0x47EFFFFFF0000000, 0x47EFFFFFE0000000, 0x3690000000000000, 0x3690000000000001, 0x40EFFC0000000000, 0x40EFFE0000000000],
}
_INTEGER_EDGES = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000,
                  0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, 0x123456789ABCDEF0]


# ------------------------------------------------------------------------------------------------ inputs


def _random_floats(rng: np.random.Generator, type: str, count: int) -> Any:
    """Bits of a format whose exponents are near one, for the most part."""
    bits, fraction = FLOATS[type], {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[type]
    bias = (1 << bits - 2 - fraction) - 1
    exponent = rng.integers(bias - min(bias - 1, 12), bias + 13 if bits > 16 or type == "bf16" else bias + 6, count).astype(np.uint64)
    wild = rng.integers(0, 1 << bits - 1 - fraction, count).astype(np.uint64)
    exponent = np.where(rng.random(count) < 0.2, wild, exponent)
    mantissa = rng.integers(0, 1 << fraction, count).astype(np.uint64)
    short = mantissa & ~np.uint64((1 << fraction - 3) - 1)
    mantissa = np.where(rng.random(count) < 0.3, short, mantissa)
    return rng.integers(0, 2, count).astype(np.uint64) << np.uint64(bits - 1) | exponent << np.uint64(fraction) | mantissa


def _values(rng: np.random.Generator, kind: str, count: int) -> Any:
    """64-bit words whose low bits are operands of a kind."""
    if kind.endswith("x2"):
        low, high = _values(rng, kind[:-2], count), _values(rng, kind[:-2], count)
        return low | high << np.uint64(16)
    whole = rng.integers(0, 1 << 64, count, np.uint64)
    if kind in _EDGES:
        numbers, edges = _random_floats(rng, kind, count), _EDGES[kind]
    else:
        numbers = np.where(rng.random(count) < 0.3, whole >> rng.integers(0, 64, count).astype(np.uint64), whole)
        edges = _INTEGER_EDGES
    chosen = np.array(edges, np.uint64)[rng.integers(0, len(edges), count)]
    return np.where(rng.random(count) < 0.4, chosen, numbers)


_KINDS = ("int", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
_SMALL = {"f16": [0, 0x3C00, 0x4000, 0xBC00], "bf16": [0, 0x3F80, 0x4000, 0xBF80], "tf32": [0, 0x3F800000, 0x40000000, 0xBF800000],
          "e4m3": [0, 0x38, 0x40, 0xB8], "e5m2": [0, 0x3C, 0x40, 0xBC], "f64": [0, 0x3FF0000000000000, 0x4000000000000000],
          "f32": [0, 0x3F800000, 0x40000000, 0xBF800000]}


def inputs(seed: int, threads: int = THREADS) -> Any:
    """(kind and slot, thread) words; the kinds of `_KINDS`, then those of `_SMALL`, whose numbers are small and whole."""
    rng = np.random.default_rng(seed)
    rows = [_values(rng, kind, threads) for kind in _KINDS for _ in range(SLOTS)]
    for a in range(0, len(rows), SLOTS):  # some equal operands
        same = rng.random(threads) < 0.1
        rows[a + 1] = np.where(same, rows[a], rows[a + 1])
    for kind, choices in _SMALL.items():
        size = {"e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16}.get(kind, 64 if kind == "f64" else 32)
        for _ in range(SLOTS):
            word = np.zeros(threads, np.uint64)
            for shift in range(0, 64, size):
                word |= np.array(choices, np.uint64)[rng.integers(0, len(choices), threads)] << np.uint64(shift)
            rows.append(word)
    return np.array(rows, np.uint64)


def _row(type: str, slot: int, small: str) -> int:
    if small in _SMALL:
        return (len(_KINDS) + list(_SMALL).index(small)) * SLOTS + slot
    kind = type if type in _KINDS else {"tf32": "f32"}.get(type, "int")
    return _KINDS.index(kind) * SLOTS + slot


# ------------------------------------------------------------------------------------------------ instructions


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """An instruction: its opcode, and the type of each of its results."""

    signature: forms.Signature
    results: tuple[str, ...]

    @property
    def opcode(self) -> str:
        return self.signature.opcode

    @property
    def approximate(self) -> bool:
        return not {"approx", "full"}.isdisjoint(self.opcode.split("."))


def _usable(signature: forms.Signature) -> bool:
    name = signature.opcode.split(".")[0]
    if name in _NOT_HERE or any(p.operand.kind in ("special", "symbol", "function", "address", "label") for p in signature.parameters):
        return False
    return all(p.operand.type == "pred" or width(str(p.operand.type)) in (16, 32, 64) or str(p.operand.type) in ("u8", "s8")
               for p in signature.parameters)


def cases(chapters: Sequence[Any] = CHAPTERS) -> Iterator[Case]:
    """Every ordinary opcode of the table whose operands are registers, those the simulator does not execute included."""
    for chapter in chapters:
        for form in chapter.FORMS:
            for signature in forms.variants(form):
                if _usable(signature):
                    yield Case(signature, _results(signature))


def _results(signature: forms.Signature) -> tuple[str, ...]:
    found = [str(p.operand.type) for p in signature.parameters if p.operand.access == "w"
             for _ in range(p.operand.count if p.operand.kind == "vector" else 1)]  # type: ignore[arg-type]
    carry = signature.form.effects.carry
    return (*found, str(signature.bindings["type"])) if "w" in carry else tuple(found)


def supported(case: Case) -> bool:
    """Whether the simulator knows the opcode (its factory may still refuse it)."""
    from ptxkit.sim.semantics.registry import find

    class Bound:
        signature, tokens, bindings = case.signature, case.opcode.split("."), case.signature.bindings

    return find(Bound) is not None  # type: ignore[arg-type]


class Batch:
    """One kernel for some cases: `ptx`, and the rows of its output, of which the first `block` threads write theirs."""

    def __init__(self, chosen: Sequence[Case], seed: int = 0, block: int = THREADS) -> None:
        self.block = block
        self.cases = tuple(chosen)
        self.rows: list[tuple[Case, int]] = [(case, i) for case in self.cases for i in range(len(case.results))]
        self.rng = np.random.default_rng(seed)
        self.used: dict[int, None] = {}
        self.operands: list[list[int]] = []
        """The rows of the inputs that each case reads, in order (a chain's carry comes from the last two)."""
        self.tables: list[int] = []
        """The immediate of each case that has one."""
        body: list[str] = []
        row = 0
        for case in self.cases:
            body += self._one(case, row)
            row += len(case.results)
        loads = [line for i in self.used for line in (
            f"ld.global.b64 %in{i}, [%base+{i * 8 * THREADS}];", f"cvt.u32.u64 %w{i}, %in{i};", f"cvt.u16.u64 %h{i}, %in{i};",
            f"cvt.u8.u16 %b{i}, %h{i};", f"and.b32 %bit, %w{i}, 1;", f"setp.ne.u32 %q{i}, %bit, 0;")]
        declared = "".join(f".reg .b64 %in{i}; .reg .b32 %w{i}; .reg .b16 %h{i}; .reg .u8 %b{i}; .reg .pred %q{i};\n" for i in self.used)
        self.ptx = "\n".join((
            ".version 8.7", ".target sm_90a", ".address_size 64", ".visible .entry batch(.param .u64 input, .param .u64 output)",
            f".reqntid {block}", "{", ".reg .b64 %base, %out, %word, %n; .reg .b32 %thread, %bit;", declared,
            "ld.param.u64 %base, [input];", "ld.param.u64 %out, [output];", "mov.u32 %thread, %tid.x;", "cvt.u64.u32 %n, %thread;",
            "shl.b64 %n, %n, 3;", "add.u64 %base, %base, %n;", "add.u64 %out, %out, %n;", *loads, *body, "ret;", "}", ""))

    def _operand(self, type: str, slot: int, small: str, wide: bool = True) -> str:
        row = _row(type, slot % SLOTS, small)
        self.used[row] = None
        self.operands[-1].append(row)
        bits = 1 if type == "pred" else width(type)
        names = {1: "q", 8: "h" if wide else "b", 16: "h", 32: "w", 64: "in"}
        return f"%{names[bits]}{row}"

    def _one(self, case: Case, row: int) -> list[str]:
        signature = case.signature
        tokens = case.opcode.split(".")
        self.operands.append([])
        self.tables.append(int(self.rng.integers(0, 256)))
        values: list[tree.Operand | None] = []
        results: list[tuple[str, str]] = []
        declared: list[str] = []
        slot = 0

        def result(type: str, wide: bool = True) -> tree.Name:
            name = f"%d{row + len(results)}"
            bits = 1 if type == "pred" else width(type)
            declared.append(f".reg .{'pred' if bits == 1 else type if bits == 8 and not wide else f'b{max(bits, 16)}'} {name};")
            results.append((name, type))
            return tree.Name(name)

        for index, parameter in enumerate(signature.parameters):
            operand = parameter.operand
            type = str(operand.type)
            small = ""
            if tokens[0] == "mma":
                small = _mma_kind(tokens, parameter.name, type)
            if operand.access == "w":
                made = [result(type, operand.wide) for _ in range(int(operand.count) if operand.kind == "vector" else 1)]  # type: ignore[arg-type]
                values.append(tree.Vector(tuple(made)) if operand.kind == "vector" else made[0])
            elif operand.tag == "members":
                values.append(tree.Integer(0xFFFFFFFF))
            elif operand.kind == "immediate":
                values.append(tree.Integer(self.tables[-1] if parameter.name == "immLut" else 0))
            elif operand.kind == "vector":
                values.append(tree.Vector(tuple(tree.Name(self._operand(type, index + i, small))
                                                for i in range(int(operand.count)))))  # type: ignore[arg-type]
            else:
                values.append(tree.Name(self._operand(type, slot, small, operand.wide)))
                slot += 1
        lines = []
        carry = signature.form.effects.carry
        type = str(signature.bindings.get("type", ""))
        if "r" in carry:
            declared.append(f".reg .b{width(type)} %x{row};")
            lines.append(f"add.cc.{type} %x{row}, {self._operand(type, 2, '')}, {self._operand(type, 3, '')};")
        lines.append(write_instruction(tree.Instruction(case.opcode, signature.render(values))))
        if "w" in carry:
            lines.append(f"addc.{type} {result(type).name}, 0, 0;")
        for i, (name, of) in enumerate(results):
            bits = 1 if of == "pred" else 8 if of in ("u8", "s8") and f".reg .{of} {name};" in declared else max(width(of), 16)
            lines.append(f"selp.b64 %word, 1, 0, {name};" if bits == 1 else f"mov.b64 %word, {name};" if bits == 64
                         else f"cvt.u64.u{bits} %word, {name};")
            lines.append(f"st.global.b64 [%out+{(row + i) * 8 * THREADS}], %word;")
        return [*declared, *lines]

    def simulate(self, words: Any) -> Any:
        """(row, thread) results of the simulator."""
        from ptxkit.sim import run

        out = np.zeros((len(self.rows), THREADS), np.uint64)
        report = run(self.ptx, "batch", grid=1, block=self.block, args=[words, out], check=False)
        assert not report.findings, report.findings
        return out


def _mma_kind(tokens: list[str], name: str, type: str) -> str:
    types = [t for t in tokens if t in _SMALL or t in ("s32", "u8", "s8", "u4", "s4", "b1")]
    return types[{"a": 1, "b": 2}.get(name, 3)] if name in "abc" else type


def batches(chosen: Sequence[Case], size: int = 200, seed: int = 0) -> list[Batch]:
    return [Batch(chosen[i:i + size], seed + i) for i in range(0, len(chosen), size)]
