"""What PTX is: the instruction table (`forms`), the tree (`tree`), and text to tree and back (`parse`, `write`)."""

from __future__ import annotations

if __name__ == "grammar":
    raise ImportError("the package `grammar` is called `ptxkit.grammar`: write `from ptxkit import grammar`")

from .tree import Module
from .write import write

__all__ = ["parse", "write"]


def parse(text: str) -> Module:
    """The module that a PTX text is; `ParseError` says where it is not PTX and what was expected there."""
    from .read import parse

    return parse(text)
