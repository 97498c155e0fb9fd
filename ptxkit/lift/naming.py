"""Python names for what PTX names."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection

from ..dsl import special
from ..dsl.reg import Special
from ..grammar import forms
from ..types import TYPES

_SPECIAL = tuple(name for name, value in vars(special).items() if isinstance(value, Special | special.Dim3))
HELPERS = {
    "ptxkit": ("Ptr", "Special", "Vec", "else_", "for_range", "if_", "kernel", "label", "loop", "sink", *_SPECIAL),
    "ptxkit.dsl.raw": ("Module", "Param", "at", "function", "raw", "register", "registers", "scope", "verbatim"),
}
"""What a lifted file imports, by module."""


class Namer:
    """Names that nothing else has: `r5`, or `r5_2` when that is taken."""

    def __init__(self, reserved: Collection[str] = ()) -> None:
        self.reserved = reserved
        self.taken: set[str] = set()
        self.numbers: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        base = name
        if (numbered := re.fullmatch(r"(loop)_1", name)) is not None:
            base, number = numbered[1], 1
            name = f"{base}_1"
        else:
            number = 1
        if self.has(name):
            number = max(number, self.numbers.get(base, 0))
        while self.has(name):
            number += 1
            name = f"{base}_{number}"
        self.numbers[base] = number
        self.taken.add(name)
        return name

    def has(self, name: str) -> bool:
        """Whether the name is reserved or given."""
        return name in self.taken or name in self.reserved


def register_name(name: str) -> str:
    """`%r5` is r5, `$L__BB0_2` is L__BB0_2; what Python or the DSL has already gets a `_`."""
    plain = re.sub(r"\W", "_", name.lstrip("%$"), flags=re.ASCII).lstrip("_") or "x"
    plain = re.sub(r"^L__BB(\d+_\d+)$", r"L\1", plain)
    if plain[0].isdigit():
        plain = f"x{plain}"
    return f"{plain}_" if plain in RESERVED else plain


def parameter_name(name: str, function: str) -> str:
    """`axpy_param_0` of `axpy` is param_0."""
    short = name.removeprefix(f"{function}_")
    return register_name(short if re.match(r"[A-Za-z]", short) else name)


RESERVED = frozenset((*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *forms.names(), *TYPES,
                      "bits16", "bits32", "bits64", "annotations", "Annotated", "Any", "DECLARATIONS", "DWARF", "MODULE",
                      *(name for names in HELPERS.values() for name in names)))
"""Names that a lifted file uses for something else."""
