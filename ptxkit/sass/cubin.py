"""A cubin read without tools: its entries with registers, stack, shared memory, barriers, parameters and launch bounds.

The attributes of `.nv.info` sections are those that `cuobjdump -elf` names; the tests compare with it and with ptxas.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import PtxkitError

CUDA_MACHINE = 190
NO_BITS = frozenset((0, 8, 0x7000_0007, 0x7000_0009, 0x7000_000A))
"""Section types with a size but without bytes in the file: NULL, NOBITS and, in a relocatable file, global, local and shared variables."""
SECTION_BYTES, SEGMENT_BYTES = 64, 56
EXTENDED = 0xFFFF
"""The header's value if the number of the section of names does not fit."""
NEWER_ABI = 8
RESERVED = 1024
"""Bytes at the start of a CTA's shared memory that the system reserves on sm_90 and later. An entry's section counts them (measured)."""
_ACCELERATED_FLAG, _ACCELERATED = 0x800, 9
_PTX_TEXT = ".nv_debug_ptx_txt"
_NO_BOUND = 0xFFFFFFFF
"""The value for the bytes of stack of recursive code. Only the entry's own frame is known then."""

_REQNTID, _MAX_THREADS, _FRAME, _MIN_STACK, _KPARAM, _REGISTERS, _CLUSTER, _BARRIERS = 0x10, 0x05, 0x11, 0x12, 0x17, 0x2F, 0x3D, 0x4C


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter in the machine code: its offset and size in bytes."""

    ordinal: int
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """One entry of a cubin. `reqntid` and `maxntid` are the block it was compiled for, `cluster` its CTAs; () if the cubin has none."""

    name: str
    registers: int
    stack: int
    shared: int
    barriers: int
    code_bytes: int
    parameters: tuple[KernelParameter, ...] = ()
    reqntid: tuple[int, ...] = ()
    maxntid: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cubin:
    """The contents of a cubin. `target` is for example "sm_90a". A note gives the assembler's version, `tool`, and its flags, `options`."""

    target: str
    entries: Mapping[str, Machine]
    sections: Mapping[str, bytes] = field(repr=False)
    tool: str = ""
    options: str = ""

    @property
    def ptx(self) -> str | None:
        """The PTX that `ptxas -lineinfo` or -g stores in the file. It has all lines, but blank lines are empty."""
        text = self.sections.get(_PTX_TEXT)
        return None if text is None else text.rstrip(b"\0").decode("utf-8", "replace").replace("\0", "\n") + "\n"


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    size: int
    info: int
    start: int
    data: bytes


def is_elf(data: bytes) -> bool:
    return data[:4] == b"\x7fELF"


def read(data: bytes, name: str = "this file") -> Cubin:
    """Read a cubin. Raises PtxkitError if the bytes are something else or are truncated."""
    try:
        sections, flags = _sections(data, name)
        return _cubin(sections, flags, data[8])
    except _BROKEN as error:
        raise _cut(data, name, error) from None


def require_whole(data: bytes, name: str = "this file", entries: Iterable[str] = ()) -> None:
    """Raise PtxkitError unless the bytes are a complete cubin with the machine code of these entries."""
    try:
        sections, _ = _sections(data, name)
        _check_segments(data, name)
    except _BROKEN as error:
        raise _cut(data, name, error) from None
    present = {section.name for section in sections if section.size}
    missing = [entry for entry in entries if f".text.{entry}" not in present]
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise PtxkitError(f"{name} is a cubin without the entry `{missing[0]}`{more}")


_BROKEN = struct.error, IndexError, ValueError, OverflowError
"""The exceptions of reading if a table refers to places outside of the file."""


def _cut(data: bytes, name: str, error: Exception) -> PtxkitError:
    return PtxkitError(f"{name} is not a whole cubin: its {len(data):,} bytes end, or point, where they must not ({error})")


def code_of(data: bytes) -> list[tuple[int, int]]:
    """The machine code of each function: its first byte and its size."""
    found, _ = _sections(data, "this file")
    return [(section.start, section.size) for section in found if section.name.startswith(".text.")]


def _sections(data: bytes, name: str) -> tuple[list[_Section], int]:
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        raise PtxkitError(f"{name} is not a whole cubin: no header of a 64-bit ELF file")
    machine, = struct.unpack_from("<H", data, 18)
    if machine != CUDA_MACHINE:
        raise PtxkitError(f"{name} is an ELF file, but not of CUDA machine code: extract cubins from it with `cuobjdump -xelf all`")
    table, = struct.unpack_from("<Q", data, 40)
    flags, = struct.unpack_from("<I", data, 48)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if size != SECTION_BYTES:
        raise ValueError(f"{size} bytes for each section in the table")
    _check_end(data, name, "the table of sections", table + size)
    first = struct.unpack_from("<IIQQQQIIQQ", data, table)
    count = count or first[5]  # a number of sections that does not fit into the header is the size of the first
    _check_end(data, name, "the table of sections", table + size * count)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + index * size) for index in range(count)]
    strings = headers[first[6] if names == EXTENDED else names]
    texts = data[strings[4]:strings[4] + strings[5]]
    found = []
    for header in headers:
        at, kind, section_flags, _, start, length, _, info = header[:8]
        empty = kind in NO_BITS
        if not empty:
            _check_end(data, name, "a section", start + length)
        text = texts[at:texts.index(b"\0", at)].decode()
        found.append(_Section(text, kind, section_flags, length, info, start, b"" if empty else data[start:start + length]))
    return found, flags


def _check_segments(data: bytes, name: str) -> None:
    """Raise an error if a segment, which the loader copies to memory, ends after the end of the file."""
    table, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    if count and size != SEGMENT_BYTES:
        raise ValueError(f"{size} bytes for each segment in the table")
    _check_end(data, name, "the table of segments", table + size * count)
    for index in range(count):
        _, _, start, _, _, length, _, _ = struct.unpack_from("<IIQQQQQQ", data, table + index * size)
        _check_end(data, name, "a segment", start + length)


def _check_end(data: bytes, name: str, what: str, end: int) -> None:
    if end > len(data):
        raise PtxkitError(f"{name} is not a whole cubin: {what} ends at byte {end:,} of {len(data):,}")


def _cubin(sections: list[_Section], flags: int, version: int) -> Cubin:
    by_name = {section.name: section for section in sections}
    symbols = _symbols(by_name)
    common: dict[int, dict[int, int]] = {}
    for code, payload in _attributes(by_name[".nv.info"].data if ".nv.info" in by_name else b""):
        if code in (_REGISTERS, _FRAME, _MIN_STACK) and len(payload) == 8:
            symbol, value = struct.unpack("<II", payload)
            common.setdefault(code, {})[symbol] = value
    numbers = {name: number for number, name in symbols.items()}
    entries = {}
    target = _target(flags, version, by_name)
    number = int(target.strip("sm_a"))
    for section in sections:
        if section.name.startswith(".nv.info.") and f".text.{section.name[9:]}" in by_name:
            name = section.name[9:]
            given = {code: value.get(numbers.get(name, -1)) for code, value in common.items()}
            machine = _machine(name, by_name, list(_attributes(section.data)), given, RESERVED if number >= 90 else 0)
            if machine is not None:
                entries[name] = machine
    tool, options = _note(by_name)
    return Cubin(target, entries, {section.name: section.data for section in sections}, tool, options)


def _machine(name: str, sections: Mapping[str, _Section], attributes: list[tuple[int, bytes]],
             given: Mapping[int, int | None], reserved: int) -> Machine | None:
    """None for a device function, which has no parameters in constant memory."""
    text = sections[f".text.{name}"]
    if f".nv.constant0.{name}" not in sections:
        return None
    parameters, dims, barriers = [], {}, text.flags >> 20 & 0x7F
    for code, payload in attributes:
        if code == _KPARAM and len(payload) == 12:
            _, ordinal, offset, packed = struct.unpack("<IHHI", payload)
            parameters.append(KernelParameter(ordinal, offset, packed >> 18))
        elif code in (_REQNTID, _MAX_THREADS, _CLUSTER) and len(payload) == 12:
            dims[code] = struct.unpack("<III", payload)
        elif code == _BARRIERS and payload:
            barriers = payload[0]
    shared = sections.get(f".nv.shared.{name}")
    registers = given.get(_REGISTERS)
    stack = given.get(_MIN_STACK) or 0
    if stack == _NO_BOUND:
        stack = given.get(_FRAME) or 0
    bytes_shared = max(shared.size - reserved, 0) if shared else 0
    return Machine(name, text.info >> 24 if registers is None else registers, stack, bytes_shared, barriers, text.size,
                   tuple(sorted(parameters, key=lambda parameter: parameter.ordinal)), dims.get(_REQNTID, ()),
                   dims.get(_MAX_THREADS, ()), dims.get(_CLUSTER, ()))


def _symbols(sections: Mapping[str, _Section]) -> dict[int, str]:
    """Symbol names by number."""
    if ".symtab" not in sections or ".strtab" not in sections:
        return {}
    table, texts = sections[".symtab"].data, sections[".strtab"].data
    found = {}
    for number in range(len(table) // 24):
        at, = struct.unpack_from("<I", table, number * 24)
        found[number] = texts[at:texts.index(b"\0", at)].decode()
    return found


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (code, value) pairs of an info section."""
    at = 0
    while at + 4 <= len(data):
        form, code, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            if at + size > len(data):
                raise ValueError("an attribute is cut off")
            yield code, data[at:at + size]
            at += size
        else:
            yield code, struct.pack("<H", size)


def _note(sections: Mapping[str, _Section]) -> tuple[str, str]:
    """The assembler's version and options, from its note."""
    data = sections[".note.nv.tkinfo"].data if ".note.nv.tkinfo" in sections else b""
    texts = [part.decode("utf-8", "replace") for part in data[24:].split(b"\0") if part.isascii() and len(part) > 3]
    version = next((text.rpartition(", ")[2] for text in texts if "release" in text), "")
    options = next((text.strip() for text in texts if text.lstrip().startswith("-")), "")
    return version, options


def _target(flags: int, version: int, sections: Mapping[str, _Section]) -> str:
    """The architecture. CUDA 13 and later keep it in other bits of the header's flags, and the "a" in a section."""
    if version < NEWER_ABI:
        return f"sm_{flags & 0xFF}{'a' if flags & _ACCELERATED_FLAG else ''}"
    compatible = dict(_attributes(sections[".nv.compat"].data)) if ".nv.compat" in sections else {}
    return f"sm_{flags >> 8 & 0xFF}{'a' if compatible.get(_ACCELERATED, bytes(1))[0] else ''}"
