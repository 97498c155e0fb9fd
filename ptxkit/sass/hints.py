"""What PTX has no words for: where a run of fma yields to other warps. `.pragma "ptxkit fma_yield 8";` in the head of an entry.

In a loop with wgmma ptxas lets every second fma yield, and whoever yields reads all three operands anew. An fma that does not yield can
keep its factor for the next one (`.reuse`), which saves a read of the register file; but a warp that never yields keeps others from issuing
their wgmma. With the pragma, runs of fma that share their second factor yield at every `every`-th and at the last, and keep the factor in
between. Nothing but these two hints changes in the machine code of sm_90, and a run ends where a branch may come in. The driver knows
neither the pragma nor the hints: a module that it assembles itself is the same without them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from ..errors import PtxkitError

LEAST = 4
"""Instructions of a run that is worth it."""

_PRAGMA = re.compile(r'\.pragma\s+"ptxkit\b([^"\n]*)"\s*;')
_FMA_YIELD = re.compile(r"\s+fma_yield\s+([1-9]\d{0,3})\s*")
_SIZE = 16                                      # bytes of an instruction: two words
_OPCODE, _FFMA = 0xFFF, 0x223                   # in the first word: fma.f32 of three registers
_FORMS, _BRA, _BSSY, _TABLES = 0x1FF, 0x147, 0x145, (0x149, 0x14C)      # the opcode in all its forms; by a table: BRX, JMX
_RESULT, _SECOND = 16, 32                       # where it has its result and its second factor
_STAYS, _KEEPS, _KEEPS_SECOND = 1 << 45, 0xF << 58, 1 << 59     # in the second word: the warp goes on, any operand is kept, this one is


def fma_yield(every: int) -> str:
    """The directive, for `@kernel(directives=...)`; `every` is 1 to 9999."""
    if not 1 <= every <= 9999:
        raise PtxkitError(f"a run of fma yields at every 1st to 9999th, not at every {every}")
    return f'.pragma "ptxkit fma_yield {every}";'


def take(ptx: str) -> tuple[str, int | None]:
    """The text without such pragmas, its lines where they were, and what they ask for (of several the first), or None."""
    every = None
    for said in _PRAGMA.findall(ptx):
        asked = _FMA_YIELD.fullmatch(said)
        if asked is None:
            raise PtxkitError(f'.pragma "ptxkit{said}" says nothing that ptxkit knows: write "ptxkit fma_yield 8"')
        every = every or int(asked.group(1))
    return (ptx, None) if every is None else (_PRAGMA.sub("", ptx), every)


def spaced(cubin: bytes, every: int) -> bytes:
    """The cubin with yields of its runs of fma so far apart."""
    from .cubin import code_of

    made = bytearray(cubin)
    for start, size in code_of(cubin):
        words = [struct.unpack_from("<QQ", cubin, at) for at in range(start, start + size, _SIZE)]
        entered = targets(words)
        if entered is None:
            continue
        first = 0
        while first < len(words):
            end = _end_of_run(words, first, entered)
            if end - first >= LEAST:
                for number in range(first, end):
                    low, high = words[number]
                    yields = number == end - 1 or (number - first) % every == every - 1
                    high = high & ~(_STAYS | _KEEPS) if yields else high | _STAYS | _KEEPS_SECOND
                    struct.pack_into("<QQ", made, start + number * _SIZE, low, high)
            first = max(end, first + 1)
    return bytes(made)


def targets(words: Sequence[tuple[int, int]]) -> set[int] | None:
    """Numbers of the instructions that branches go to; None where a branch goes by a table."""
    found = set()
    for number, (low, high) in enumerate(words):
        if low & _FORMS in _TABLES:
            return None
        if low & _FORMS == _BRA:                        # from the next one on: 4 * 8 bits, and 1024 * 48 bits with a sign
            far = low >> 34 | (high & 0x3FFFF) << 30
            found.add(number + 1 + ((low >> 16 & 0xFF) * 4 + (far - (far >> 47 << 48)) * 1024) // _SIZE)
        if low & _FORMS == _BSSY:                       # where those meet again that part behind it: 32 bits with a sign
            far = low >> 32
            found.add(number + 1 + (far - (far >> 31 << 32)) // _SIZE)
    return found


def _end_of_run(words: Sequence[tuple[int, int]], first: int, entered: set[int]) -> int:
    """Behind the last fma in a row from `first` on with the same second factor, which none writes; none but the first is entered."""
    factor = words[first][0] >> _SECOND & 0xFF
    end = first
    while end < len(words) and (end == first or end not in entered):
        low = words[end][0]
        if low & _OPCODE != _FFMA or low >> _SECOND & 0xFF != factor or low >> _RESULT & 0xFF == factor:
            break
        end += 1
    return end


__all__ = ["LEAST", "fma_yield", "spaced", "take", "targets"]
