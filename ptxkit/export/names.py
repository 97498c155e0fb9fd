"""Names that C and C++ take."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .exported import ExportError

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
KEYWORDS = frozenset([
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char", "char8_t",
    "char16_t", "char32_t", "class", "compl", "concept", "const", "consteval", "constexpr", "constinit", "const_cast", "continue",
    "co_await", "co_return", "co_yield", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit",
    "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new",
    "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "restrict", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch",
    "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "typeof_unqual", "union",
    "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq", "errno", "linux", "unix", "assert",
    "P_tmpdir", "L_ctermid", "L_cuserid", "L_tmpnam",
])
"""Of C and C++, and macros that their headers or compilers define."""
_TAKEN = re.compile(r"[A-Z][A-Z0-9_]+[A-Z0-9]|\w+_t", re.ASCII)
"""As macros are written, EOF and SIZE_MAX, and as types of the headers are, uint32_t."""
_OWN = re.compile(r"pxg?(_\w*)?", re.ASCII | re.IGNORECASE)
"""What the C file's own functions and constants are called."""
_GUARD = "PTXKIT_"              # begins the name of the header's guard


def check_name(name: str) -> None:
    """Raise ExportError unless the functions of an export may begin so."""
    if not identifier(name):
        raise ExportError(f"{name!r} cannot begin the names of C functions: give name= (--name), a word of letters, digits and single _ "
                          "that begins with a letter and is no keyword of C or C++; it is not px or pxg, and does not begin with px_ or "
                          "pxg_, as names within the C file do")


def identifier(name: str) -> bool:
    """Whether a C or C++ function may have this name. It must differ from the functions of the C file, and from names with two underscores
    or with one before a capital, which belong to the compiler."""
    return _IDENTIFIER.fullmatch(name) is not None and name not in KEYWORDS and "__" not in name and not name.startswith("_") \
        and not _OWN.fullmatch(name)


def renamed(names: Sequence[str], reserved: Sequence[str] = ()) -> tuple[str, ...]:
    """The names as C may have them, all different, and none of `reserved`."""
    found: list[str] = []
    for name in names:
        made = re.sub(r"\W", "_", name, flags=re.ASCII)
        made = made if re.match("[A-Za-z]", made) and "__" not in made else "p" + re.sub("_+", "_", made)
        made = f"a_{made}" if _OWN.fullmatch(made) or made.startswith(_GUARD) else made
        while made in KEYWORDS or _TAKEN.fullmatch(made) or made in reserved or made in found:
            made += "_" if not made.endswith("_") else "2"
        found.append(made)
    return tuple(found)
