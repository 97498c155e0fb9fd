"""What PTX is: the instruction table, the tree, and text to tree and back.

- The tree: `tree`, `walk`, and `lazy` for bodies whose nodes are not built yet. `read` turns text into a tree with the readers of
  `readers`, `write` turns a tree into text.
- The table: `isa` holds its rows, one module a chapter, in the words of `schema` and the notation of `notation`. `forms` tells which
  opcodes are legal and which operands each has, `ordering` which order of modifiers ptxas accepts, `operands` which registers an operand
  accepts. `match` compares an instruction with the table, and `wording` words what is wrong. `special` lists the special registers,
  `spelling` the names of opcodes in Python.
- `errors` is for all of ptxkit. `gc_pause` pauses the garbage collector while a large tree is built.
"""

from __future__ import annotations

if __name__ == "grammar":
    raise ImportError("the package `grammar` is called `ptxkit.grammar`: write `from ptxkit import grammar`")

from .tree import Module
from .write import write

__all__ = ["parse", "write"]


def parse(text: str) -> Module:
    """The module that a PTX text is. `ParseError` says where it is not PTX and what was expected there."""
    from .read import parse

    return parse(text)
