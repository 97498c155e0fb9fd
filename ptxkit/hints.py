"""What PTX has no words for: where a run of fma yields to other warps. `.pragma "ptxkit fma_yield 8";` in the head of an entry.

In a loop with wgmma ptxas lets every second fma yield, and whoever yields reads all three operands anew. An fma that does not yield can
keep its factor for the next one (`.reuse`), which saves a read of the register file; but a warp that never yields keeps others from issuing
their wgmma. With the pragma, runs of fma that share their second factor yield at every `every`-th and at the last, and keep the factor in
between. Nothing but these two hints of the machine code changes (sm_90, as ptxas 13.0 writes it). The driver knows neither the pragma nor
the hints: a module that it assembles itself is the same without them.
"""

from __future__ import annotations

import re
import struct

from .errors import PtxkitError

LEAST = 4
"""Instructions of a run that is worth it."""

_PRAGMA = re.compile(r'\.pragma\s+"ptxkit\b([^"\n]*)"\s*;')
_FMA_YIELD = re.compile(r"\s+fma_yield\s+([1-9]\d{0,3})\s*")
_SIZE = 16                                      # bytes of an instruction: two words
_OPCODE, _FFMA = 0xFFF, 0x223                   # in the first word: fma.f32 of three registers
_RESULT, _SECOND = 16, 32                       # where it has its result and its second factor
_STAYS, _KEEPS, _KEEPS_SECOND = 1 << 45, 0xF << 58, 1 << 59     # in the second word: the warp goes on, any operand is kept, this one is


def fma_yield(every: int) -> str:
    """The directive, for `@kernel(directives=...)`."""
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
    from .inspect.cubin import code_of

    made = bytearray(cubin)
    for start, size in code_of(cubin):
        words = [struct.unpack_from("<QQ", cubin, at) for at in range(start, start + size, _SIZE)]
        lows = [low for low, _ in words]
        first = 0
        while first < len(words):
            end = _end_of_run(lows, first)
            if end - first >= LEAST:
                for number in range(first, end):
                    low, high = words[number]
                    yields = number == end - 1 or (number - first) % every == every - 1
                    high = high & ~(_STAYS | _KEEPS) if yields else high | _STAYS | _KEEPS_SECOND
                    struct.pack_into("<QQ", made, start + number * _SIZE, low, high)
            first = max(end, first + 1)
    return bytes(made)


def _end_of_run(lows: list[int], first: int) -> int:
    """Behind the last fma in a row from `first` on with the same second factor, which none of them writes."""
    factor = lows[first] >> _SECOND & 0xFF
    end = first
    while end < len(lows) and lows[end] & _OPCODE == _FFMA and lows[end] >> _SECOND & 0xFF == factor != lows[end] >> _RESULT & 0xFF:
        end += 1
    return end


__all__ = ["LEAST", "fma_yield", "spaced", "take"]
