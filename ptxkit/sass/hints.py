"""A scheduling hint in machine code that PTX cannot express: the places where a run of fma yields to other warps.

A kernel asks for it with `.pragma "ptxkit fma_yield 8";` in its head. Without that line no machine code is changed.

In a loop with wgmma, ptxas makes every second fma yield. After a yield the warp reads all three operands from the register file. An fma
that does not yield can keep a factor for the next fma (`.reuse`), which saves a read. But a warp that never yields prevents other warps
from issuing their wgmma.

With the pragma, a run of fma with a common second factor yields at every `every`-th fma and at the last one, and keeps the factor in
between. A run ends where a branch may enter. Only these two hints change in the machine code of sm_90, in every function of the module. If
the driver assembles the module, it gets the text without the pragma and sets no hints.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from ..errors import PtxkitError
from ..grammar import tree
from ..grammar.walk import statements

LEAST = 4
"""The shortest run that gets hints, in instructions."""

_PRAGMA = re.compile(r'\.pragma\s+"ptxkit\b([^"\n]*)"\s*;')
_ASKS = re.compile(r"ptxkit\b(.*)")
_FMA_YIELD = re.compile(r"\s+fma_yield\s+([1-9]\d{0,3})\s*")
_SIZE = 16                                      # bytes of an instruction: two words
_OPCODE, _FFMA = 0xFFF, 0x223                   # in the first word: fma.f32 with three registers
_FORMS, _BRA, _BSSY, _TABLES = 0x1FF, 0x147, 0x145, (0x149, 0x14C)      # the opcode without its form; branches by a table: BRX, JMX
_RESULT, _SECOND = 16, 32                       # the bits of the result and of the second factor
_STAYS, _KEEPS, _KEEPS_SECOND = 1 << 45, 0xF << 58, 1 << 59     # in the second word: no yield; any operand is kept; the second factor is


def fma_yield(every: int) -> str:
    """The directive for `@kernel(directives=...)`. `every` is 1 to 9999."""
    if not 1 <= every <= 9999:
        raise PtxkitError(f"a run of fma yields at every 1st to 9999th, not at every {every}")
    return f'.pragma "ptxkit fma_yield {every}";'


def take(ptx: str) -> tuple[str, int | None]:
    """The text without such pragmas, with unchanged line numbers, and the number of the first pragma, or None."""
    every = _first(_PRAGMA.findall(ptx))
    return (ptx, None) if every is None else (_PRAGMA.sub("", ptx), every)


def said(module: tree.Module) -> str:
    """The module's hint in words: "fma yields at every 8th"; "" without a hint."""
    words = (argument.value for directive in _directives(module) if directive.name == "pragma"
             for argument in directive.arguments if isinstance(argument, tree.Text))
    every = _first([found.group(1) for word in words if (found := _ASKS.fullmatch(word))])
    if every is None:
        return ""
    ending = "th" if every % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(every % 10, "th")
    return f"fma yields at every {every}{ending}"


def _directives(module: tree.Module) -> Iterator[tree.Directive]:
    """The module's directives, in the order of the text."""
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
    """The cubin with runs of fma that yield at every `every`-th fma."""
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
    """The numbers of the instructions that branches lead to; None if a branch uses a table."""
    found = set()
    for number, (low, high) in enumerate(words):
        if low & _FORMS in _TABLES:
            return None
        if low & _FORMS == _BRA:                        # relative to the next one: 8 bits times 4, plus 48 signed bits times 1024
            far = low >> 34 | (high & 0x3FFFF) << 30
            found.add(number + 1 + ((low >> 16 & 0xFF) * 4 + (far - (far >> 47 << 48)) * 1024) // _SIZE)
        if low & _FORMS == _BSSY:                       # the place where diverged threads reconverge: 32 signed bits
            far = low >> 32
            found.add(number + 1 + (far - (far >> 31 << 32)) // _SIZE)
    return found


def _end_of_run(words: Sequence[tuple[int, int]], first: int, entered: set[int]) -> int:
    """The end of the run from `first`: fma with a common second factor that none of them writes. Branches enter only at `first`."""
    factor = words[first][0] >> _SECOND & 0xFF
    end = first
    while end < len(words) and (end == first or end not in entered):
        low = words[end][0]
        if low & _OPCODE != _FFMA or low >> _SECOND & 0xFF != factor or low >> _RESULT & 0xFF == factor:
            break
        end += 1
    return end


__all__ = ["LEAST", "fma_yield", "said", "spaced", "take", "targets"]
