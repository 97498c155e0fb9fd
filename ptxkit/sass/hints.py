"""A hint in machine code that PTX has no words for: where a run of fma yields to other warps.

A kernel asks for it with `.pragma "ptxkit fma_yield 8";` in its head. Without that line no machine code is changed.

In a loop with wgmma ptxas lets every second fma yield. A warp that yields reads all three operands again. An fma that does not yield can
keep a factor for the next one (`.reuse`), which saves a read of the register file. But a warp that never yields keeps other warps from
issuing their wgmma. With the pragma, a run of fma with one common second factor yields at every `every`-th fma and at the last, and keeps
the factor in between. A run ends where a branch may enter. Only these two hints change in the machine code of sm_90, for every function of
the module. A driver that assembles the module itself gets it without the pragma, and sets no hints.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from ..errors import PtxkitError
from ..grammar import tree
from ..grammar.walk import statements

LEAST = 4
"""The fewest instructions of a run that gets hints."""

_PRAGMA = re.compile(r'\.pragma\s+"ptxkit\b([^"\n]*)"\s*;')
_ASKS = re.compile(r"ptxkit\b(.*)")
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
    """The text without such pragmas, each line where it was, and what the first pragma asks for, or None."""
    every = _first(_PRAGMA.findall(ptx))
    return (ptx, None) if every is None else (_PRAGMA.sub("", ptx), every)


def said(module: tree.Module) -> str:
    """What the module asks for, in words: "fma yields at every 8th"; "" when it asks for nothing."""
    words = (argument.value for directive in _directives(module) if directive.name == "pragma"
             for argument in directive.arguments if isinstance(argument, tree.Text))
    every = _first([found.group(1) for word in words if (found := _ASKS.fullmatch(word))])
    if every is None:
        return ""
    ending = "th" if every % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(every % 10, "th")
    return f"fma yields at every {every}{ending}"


def _directives(module: tree.Module) -> Iterator[tree.Directive]:
    """In the order of the text."""
    for item in module.items:
        inner = (*item.directives, *statements(item.body or ())) if isinstance(item, tree.Function) else (item,)
        yield from (node for node in inner if isinstance(node, tree.Directive))


def _first(pragmas: Sequence[str]) -> int | None:
    every = None
    for pragma in pragmas:
        asked = _FMA_YIELD.fullmatch(pragma)
        if asked is None:
            raise PtxkitError(f'.pragma "ptxkit{pragma}" says nothing that ptxkit knows: write "ptxkit fma_yield 8"')
        every = every or int(asked.group(1))
    return every


def spaced(cubin: bytes, every: int) -> bytes:
    """The cubin in which runs of fma yield at every `every`-th."""
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
    """Numbers of the instructions that branches go to; None when a branch goes by a table."""
    found = set()
    for number, (low, high) in enumerate(words):
        if low & _FORMS in _TABLES:
            return None
        if low & _FORMS == _BRA:                        # relative to the next one: 4 * 8 bits, and 1024 * 48 bits with a sign
            far = low >> 34 | (high & 0x3FFFF) << 30
            found.add(number + 1 + ((low >> 16 & 0xFF) * 4 + (far - (far >> 47 << 48)) * 1024) // _SIZE)
        if low & _FORMS == _BSSY:                       # where diverged threads meet again: 32 bits with a sign
            far = low >> 32
            found.add(number + 1 + (far - (far >> 31 << 32)) // _SIZE)
    return found


def _end_of_run(words: Sequence[tuple[int, int]], first: int, entered: set[int]) -> int:
    """The end of the run that begins at `first`: fma with one second factor, which none of them writes. Branches enter only the first."""
    factor = words[first][0] >> _SECOND & 0xFF
    end = first
    while end < len(words) and (end == first or end not in entered):
        low = words[end][0]
        if low & _OPCODE != _FFMA or low >> _SECOND & 0xFF != factor or low >> _RESULT & 0xFF == factor:
            break
        end += 1
    return end


__all__ = ["LEAST", "fma_yield", "said", "spaced", "take", "targets"]
