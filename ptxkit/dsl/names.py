"""The names that PTX allows for kernels, functions, parameters, registers and labels."""

from __future__ import annotations

import re

from ..errors import TraceError
from ..grammar.errors import shown
from ..grammar.special import RESERVED, SPECIAL_BASES

SYMBOL = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)
_BOTH = re.compile(r"[A-Za-z]\w*|_\w+", re.ASCII)


def identifier(name: str, way_out: str) -> str:
    """Return the Python name. Raises TraceError unless PTX allows it too."""
    if not _BOTH.fullmatch(name):
        raise TraceError(f"`{shown(name)}` is not an identifier of PTX (ASCII letters, digits and _): {way_out}")
    if name in RESERVED:
        raise TraceError(f"`{name}` is a word of PTX, so nothing can have that name: {way_out}")
    return name


def symbol(name: str) -> str:
    """Return the name. Raises TraceError unless PTX allows it."""
    if not SYMBOL.fullmatch(name):
        raise TraceError(f"`{shown(name)}` is not an identifier of PTX (ASCII letters, digits, _ and $): give another name")
    if name in RESERVED or name in SPECIAL_BASES:
        raise TraceError(f"`{name}` is a {'word' if name in RESERVED else 'special register'} of PTX: give another name")
    return name
