"""Machine code written so that only what it does counts: parameters by name, branches by distance, no symbols.

Every line also has the control bits of its instruction (stall counts, yield, barriers, operands that are kept), which `nvdisasm` does not
print and `ptxkit.hints` edits.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ptxkit.errors import AssembleError
from ptxkit.files import temporary_folder
from ptxkit.runtime.toolchain import nvdisasm
from ptxkit.sass import cubin

ARCHITECTURE = "SM90"
FIRST_PARAMETER = 0x210
"""Where the parameters begin in constant bank 0."""
PARAMETERS_AT = 0x198
"""Where constant bank 0 holds the generic address of the parameters: tensor maps are found from it."""
_SIZE = 16
_CONTROL = 41, 0x1FFFFF
"""In the second word of an instruction: 21 bits."""
_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*\S)\s*$")
_WORDS = re.compile(r"^(?:@!?U?P\w+ )?([A-Z][\w.]*)(?: (.*))?$")
_CONSTANT = re.compile(r"c\[0x0\]\[(U?R\w+\+)?0x([0-9a-f]+)\]")
_TARGET = re.compile(r"0x([0-9a-f]+)$")
_BRANCHES = ("BRA", "BSSY", "CALL", "BRX", "JMP", "JMX", "RET", "WARPSYNC", "BPT")
_MOVES = ("MOV", "UMOV", "R2UR", "IMAD.U32", "IMAD.MOV.U32", "IMAD.MOV")
_ADDS = ("IADD3", "UIADD3", "VIADD", "IMAD.IADD")
_LEAS = ("LEA", "ULEA")
_IMMEDIATE = re.compile(r"0x[0-9a-f]+")
_ADDRESS = re.compile(r"\[((U?R\d+)[.\w]*(?:\+U?R\d+)?)\+(0x[0-9a-f]+)\]")
_REGISTER = re.compile(r"^(U?R)(\d+)$")


@dataclass(frozen=True)
class Parameters:
    """Where each parameter of a kernel lies: (first byte, bytes, name), from the start of all parameters."""

    places: tuple[tuple[int, int, str], ...]

    @classmethod
    def of(cls, entry: cubin.Machine, names: Sequence[str], renamed: Mapping[str, str]) -> Parameters:
        """From a cubin, whose parameters have numbers, and the names in their order."""
        return cls(tuple((each.offset, each.bytes, renamed.get(name, name))
                         for each, name in zip(entry.parameters, names, strict=True)))

    def named(self, offset: int, size: int) -> str | None:
        """The parameters that `size` bytes lie in, joined by commas, and the first byte within the first one; None outside of all."""
        found = [(start, name) for start, bytes, name in self.places if start < offset + size and offset < start + bytes]
        if not found:
            return None
        within = offset - found[0][0]
        return ",".join(name for _, name in found) + (f"+{within:#x}" if within else "")


def code(data: bytes) -> bytes:
    """The machine code of a cubin, its functions one after another."""
    return b"".join(data[start:start + size] for start, size in cubin.code_of(data))


def constants(data: bytes) -> dict[str, bytes]:
    """The sections of constants that are not parameters."""
    sections = cubin.read(data).sections
    return {name: found for name, found in sections.items() if name.startswith(".nv.constant") and not name.startswith(".nv.constant0")}


def disassembled(codes: Sequence[bytes]) -> list[list[str]]:
    """The instructions of each piece of machine code, one a line. One process reads all of them, since it takes 0.25 s to start."""
    if not codes:
        return []
    with temporary_folder() as folder:
        path = folder / "code.bin"
        path.write_bytes(b"".join(codes))
        done = subprocess.run([nvdisasm().path, "--binary", ARCHITECTURE, path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssembleError(done.stdout + done.stderr, summary="nvdisasm refused this machine code")
    lines = [found[2].removesuffix(";").rstrip() for found in map(_LINE.match, done.stdout.splitlines()) if found]
    pieces, at = [], 0
    for piece in codes:
        pieces.append([_relative(text, (at + number) * _SIZE) for number, text in enumerate(lines[at:at + len(piece) // _SIZE])])
        at += len(piece) // _SIZE
    if at != len(lines):
        raise AssembleError(done.stdout[:200], summary=f"nvdisasm wrote {len(lines):,} instructions of {at:,}")
    return pieces


def _relative(text: str, here: int) -> str:
    """The target of a branch as its distance."""
    found = _WORDS.match(text)
    if found is None or found[1].split(".")[0] not in _BRANCHES:
        return text
    return _TARGET.sub(lambda target: f"{int(target[1], 16) - here:+#x}", text)


def normalised(lines: Sequence[str], code: bytes, parameters: Parameters) -> list[str]:
    """The lines with names of parameters and control bits."""
    shift, mask = _CONTROL
    bits = [struct.unpack_from("<Q", code, at + 8)[0] >> shift & mask for at in range(0, len(code), _SIZE)]
    return [f"{control:06x} {text}" for control, text in zip(bits, _named(lines, parameters), strict=True)]


def _named(lines: Sequence[str], parameters: Parameters) -> Iterator[str]:
    parts = [_parts(text) for text in lines]
    for text, (opcode, operands, _), bases in zip(lines, parts, _bases(parts), strict=True):
        text = _CONSTANT.sub(lambda found, opcode=opcode: _constant(found, opcode, parameters), text)  # type: ignore[misc]
        yield _with_address(text, opcode, operands, bases, parameters) if bases else text


def _parts(text: str) -> tuple[str, tuple[str, ...], bool]:
    """The opcode, the operands, and whether the instruction has a predicate."""
    found = _WORDS.match(text)
    if found is None or found[2] is None:
        return text if found is None else found[1], (), text[0] == "@"
    return found[1], tuple(word.strip().removesuffix(".reuse") for word in found[2].split(",")), text[0] == "@"


def _constant(found: re.Match[str], opcode: str, parameters: Parameters) -> str:
    """A reference to constant bank 0 with the name of the parameter that it lies in."""
    modifiers = opcode.split(".")
    size = next((bytes for word, bytes in (("64", 8), ("128", 16), ("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2)) if word in modifiers), 4)
    words = parameters.named(int(found[2], 16) - FIRST_PARAMETER, size)
    return found[0] if words is None else f"c[{found[1] or ''}{words}]"


def _with_address(text: str, opcode: str, operands: Sequence[str], bases: frozenset[str], parameters: Parameters) -> str:
    """The offset of a parameter as its name, where it is added to the address of all parameters, also in an address of memory."""
    offset = _added(opcode, operands, bases)
    if offset is not None:
        name = parameters.named(int(offset, 16), 1)
        return text if name is None else re.sub(rf" {offset}\b", f" &{name}", text, count=1)

    def place(found: re.Match[str]) -> str:
        name = parameters.named(int(found[3], 16), 1) if found[2] in bases else None
        return found[0] if name is None else f"[{found[1]}+&{name}]"

    return _ADDRESS.sub(place, text)


def _added(opcode: str, operands: Sequence[str], bases: frozenset[str]) -> str | None:
    """The immediate that an addition adds to the address of all parameters."""
    if opcode not in _ADDS or not bases.intersection(operands[1:]):
        return None
    return next((word for word in operands[1:] if _IMMEDIATE.fullmatch(word)), None)


def _bases(parts: Sequence[tuple[str, tuple[str, ...], bool]]) -> list[frozenset[str]]:
    """Before each instruction the registers that may hold the low half of the address of all parameters, or that plus an index."""
    nothing: frozenset[str] = frozenset()
    before = [nothing] * len(parts)
    if not any(_loads(opcode, operands) for opcode, operands, _ in parts):
        return before
    waiting = [number for number, (opcode, operands, _) in enumerate(parts) if _loads(opcode, operands)]
    while waiting:
        number = waiting.pop()
        after = _after(*parts[number], before[number])
        for next_ in _successors(number, *parts[number]):
            if 0 <= next_ < len(parts) and not after <= before[next_]:
                before[next_] |= after
                waiting.append(next_)
    return before


def _loads(opcode: str, operands: Sequence[str]) -> bool:
    return opcode.split(".")[0] in ("LDC", "ULDC") and operands[1:] == (f"c[0x0][{PARAMETERS_AT:#x}]",)


def _after(opcode: str, operands: tuple[str, ...], predicated: bool, bases: frozenset[str]) -> frozenset[str]:
    target = _REGISTER.match(operands[0]) if operands else None
    if target is None:
        return bases
    read = not bases.isdisjoint(operands[1:])
    copies = opcode in (*_MOVES, *_LEAS) or (opcode in _ADDS and not _added(opcode, operands, bases))
    holds = _loads(opcode, operands) or (read and copies)
    if not predicated and bases:
        written = {operands[0]}
        if "64" in opcode.split(".") or "WIDE" in opcode:
            written.add(f"{target[1]}{int(target[2]) + 1}")
        bases -= written
    return bases | {operands[0]} if holds else bases


def _successors(number: int, opcode: str, operands: tuple[str, ...], predicated: bool) -> list[int]:
    """Where the program may go on; a branch has its distance as its last operand, `+0x40`."""
    stem = opcode.split(".")[0]
    branches = stem in _BRANCHES and operands and operands[-1].startswith(("+", "-"))
    found = [number + int(operands[-1], 16) // _SIZE] if branches else []
    if predicated or stem not in ("BRA", "EXIT", "RET") or len(operands) > 1:
        found.append(number + 1)
    return found


__all__ = ["Parameters", "code", "constants", "disassembled", "normalised"]
