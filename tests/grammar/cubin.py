"""The sections of a cubin: a small reader of 64-bit ELF, enough to compare two of them."""

from __future__ import annotations

import struct

NO_BITS = 8
# Line tables of the PTX text itself, and a note of the command line: they follow the spelling, not the program.
OF_THE_TEXT = (".nv_debug", ".rela.nv_debug", ".rel.nv_debug", ".note.nv.tkinfo", ".debug_line")


def sections(cubin: bytes) -> dict[str, bytes]:
    """Contents by section name."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * size) for i in range(count)]
    strings = cubin[headers[names][4] : headers[names][4] + headers[names][5]]
    return {
        strings[name : strings.index(b"\0", name)].decode(): b"" if kind == NO_BITS else cubin[start : start + length]
        for name, kind, _, _, start, length, *_ in headers
    }


def differences(first: bytes, second: bytes) -> list[str]:
    """The sections in which two cubins differ, or which only one has, those of the text's own spelling apart."""
    a, b = sections(first), sections(second)
    return sorted(name for name in a.keys() | b.keys() if not name.startswith(OF_THE_TEXT) and a.get(name) != b.get(name))
