"""Opcodes as Python names: `::` is `__`, a keyword gets `_`, and a token that starts with a digit is joined to the token before it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence


def spelled(token: str) -> str:
    """A token as a Python name."""
    name = token.replace("::", "__")
    return f"{name}_" if keyword.iskeyword(name) else name


def joined(name: str, token: str) -> str:
    """A token that starts with a digit, joined to the name before it: `tensor_2d`, `and_1d`. The name loses the `_` of a keyword."""
    return f"{name.removesuffix('_')}_{token}"


def python_name(tokens: Sequence[str]) -> list[str]:
    """The tokens of an opcode as Python attributes."""
    names: list[str] = []
    for token in tokens:
        if names and token[0].isdigit():
            names[-1] = joined(names[-1], token)
        else:
            names.append(spelled(token))
    return names


def opcode_tokens(names: Sequence[str]) -> list[str]:
    """The tokens of an opcode from its Python attributes: the inverse of `python_name`."""
    tokens: list[str] = []
    for name in names:
        bare = name.removesuffix("_")
        tokens += re.split(r"(?<!_)_(?=\d+[A-Za-z])", bare.replace("__", "::"))
    return tokens
