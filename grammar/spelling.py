"""Opcodes as Python spells them: `::` is `__`, a keyword gets `_`, a token that starts with a digit joins the one before it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence


def spelled(token: str) -> str:
    """A token as a Python name."""
    name = token.replace("::", "__")
    return f"{name}_" if keyword.iskeyword(name) else name


def joined(name: str, token: str) -> str:
    """`2d` joined to the name before it, which needs no `_` of its own then: `tensor_2d`, `and_1d`."""
    return f"{name.removesuffix('_')}_{token}"


def python_name(tokens: Sequence[str]) -> list[str]:
    """An opcode's tokens as Python attributes: `::` is `__`, a keyword gets `_`, a token that starts with a digit joins its neighbour."""
    names: list[str] = []
    for token in tokens:
        if names and token[0].isdigit():
            names[-1] = joined(names[-1], token)
        else:
            names.append(spelled(token))
    return names


def opcode_tokens(names: Sequence[str]) -> list[str]:
    """The tokens that `python_name` spells so: its inverse."""
    tokens: list[str] = []
    for name in names:
        bare = name.removesuffix("_")
        tokens += re.split(r"(?<!_)_(?=\d+[A-Za-z])", bare.replace("__", "::"))
    return tokens
