"""Small files of the form of a cubin."""

from __future__ import annotations

import struct


def small(payload: bytes, entry: str = "k", *, machine: int = 190, extended: bool = False) -> bytes:
    """A file with the payload as the code of one entry. `extended`: the number of sections is in the first one, as if there were many."""
    names = f"\0.shstrtab\0.text.{entry}\0".encode()
    code, table = 64 + len(names), 64 + len(names) + len(payload)
    sections = [(0, 0, 0, 0, 0, 3 if extended else 0, 1 if extended else 0, 0, 0, 0), (1, 3, 0, 0, 64, len(names), 0, 0, 1, 0),
                (11, 1, 6, 0, code, len(payload), 0, 0, 1, 0)]
    segments = table + 64 * len(sections)
    count, strings = (0, 0xFFFF) if extended else (len(sections), 1)
    header = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7) + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, segments, table, 0x6005A04,
                                                                   64, 56, 1, 64, count, strings)
    segment = struct.pack("<IIQQQQQQ", 1, 5, code, 0, 0, len(payload), len(payload), 1)
    return header + names + payload + b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections) + segment
