"""The C text of an export: header, the driver's part, the cubin as data, and the launch function."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap

from .kernel import Argument, Entry

STATUS = ("OK", "NO_DRIVER", "OLD_DRIVER", "NO_CONTEXT", "WRONG_DEVICE", "WRONG_ARGUMENT", "REFUSED")
"""What a function of an export returns, from 0 on."""
INCLUDES = ("dlfcn.h", "pthread.h", "stdarg.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")
HERE = Path(__file__).parent
WIDTH = 128
SPACE = "\0"
"""A space that no line ends at."""


def part(name: str, folder: Path = HERE) -> str:
    """A part of an export's C file."""
    return (folder / f"{name}.c").read_text(encoding="utf-8")


def comment(lines: Sequence[str]) -> str:
    """Lines as one comment of C."""
    return "/* " + "\n   ".join(line.replace("*/", "* /") for line in lines) + " */\n"


def header(name: str, said: Sequence[str], declarations: str) -> str:
    """The header: status codes, the error's sentence, and the export's own declarations."""
    big = name.upper()
    return f"""{comment(said)}
#ifndef PTXKIT_{name}_H
#define PTXKIT_{name}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* What each function returns. */
{constants(big, "STATUS", STATUS)}
/* One sentence on the last call in this thread that did not return {big}_OK. */
const char *{name}_error(void);

{declarations}
#ifdef __cplusplus
}}
#endif

#endif
"""


def constants(big: str, what: str, words: Iterable[str]) -> str:
    """Constants from 0 on, `big` before each. Names that differ in case alone have the same ones: one of the headers defines them."""
    lines = ",\n".join(f"    {big}_{word} = {number}" for number, word in enumerate(words))
    return f"#ifndef PTXKIT_{big}_{what}\n#define PTXKIT_{big}_{what}\nenum {{\n{lines}\n}};\n#endif\n"


def source(name: str, said: Sequence[str], parts: Sequence[str], own: str) -> str:
    """The C file: the parts that every export shares, then its own functions."""
    included = "".join(f"#include <{each}>\n" for each in INCLUDES)
    shared = "\n".join(part(each) for each in parts)
    return f"""{comment(said)}
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

{included}
#include "{name}.h"

{shared}
{own}
const char *{name}_error(void)
{{
    return px_said;
}}
"""


def words(data: bytes) -> str:
    """Bytes as an initialiser of 64-bit words. Machines with an NVIDIA driver are little-endian."""
    padded = data + bytes(-len(data) % 8)
    values = [f"0x{value:x}" for value in struct.unpack(f"<{len(padded) // 8}Q", padded)]
    return "\n".join(", ".join(values[at:at + 6]) + "," for at in range(0, len(values), 6))


def kernel_data(symbol: str, cubin: str, entry: Entry) -> str:
    """The px_kernel of an entry, whose cubin is the array of that name."""
    major, minor, exact = entry.capability
    block, cluster = (", ".join(map(str, extents)) for extents in (entry.block, entry.cluster))
    return (f'static px_kernel {symbol} = {{"{entry.name}", "{entry.target}", "{entry.tool}", {cubin}, {major}, {minor}, {int(exact)}, '
            f"{entry.tool.partition('.')[0]}, {{{block}}}, {{{cluster}}}, {entry.shared}, {entry.static_shared}, NULL, 0}};\n")


def cubin_data(symbol: str, cubin: bytes) -> str:
    """A cubin as data."""
    return f"static const uint64_t {symbol}[] = {{\n{words(cubin)}\n}};\n"


def box_data(symbol: str, argument: Argument, promotion: int | None = None) -> str:
    """The px_box of a tensor map."""
    box = argument.box
    assert box is not None
    extents = ", ".join(map(str, (*box.box, *(1,) * (5 - box.rank))))
    return (f'static const px_box {symbol} = {{"{argument.name}", {box.type}, {box.bytes}, {box.rank}, {{{extents}}}, {box.swizzle}, '
            f"{box.promotion if promotion is None else promotion}}};\n")


def declared(argument: Argument) -> tuple[str, ...]:
    """The parameters of the launch function for one of the kernel."""
    if argument.box is not None:
        one, rank = argument.name, argument.box.rank
        return f"void *{one}", f"const uint64_t {one}_shape[{rank}]", f"const uint64_t {one}_strides[{rank}]"
    return (f"{argument.c_type}{'' if argument.c_type.endswith('*') else ' '}{argument.name}",)


def prototype(head: str, parameters: Sequence[str]) -> str:
    """The head of a function, in lines that fit."""
    whole = f"{head.replace(' ', SPACE)}({', '.join(each.replace(' ', SPACE) for each in parameters)})"
    return "\n".join(wrap(whole, WIDTH, subsequent_indent=" " * (len(head) + 1), break_long_words=False)).replace(SPACE, " ")


__all__ = ["STATUS", "box_data", "comment", "constants", "cubin_data", "declared", "header", "kernel_data", "part", "prototype", "source",
           "words"]
