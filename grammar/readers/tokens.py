"""Patterns of the tokens that the fast readers share, and the exception with which they hand a text to the reference reader."""

from __future__ import annotations

IDENT = r"(?:[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+)"
NAME = r"[A-Za-z_$%][A-Za-z0-9_$]*(?:\.(?:[xyzwrgba]|[bh][0-9]+))?"
OPCODE = r"[a-z][a-z0-9_]*(?:\.(?!(?:reg|loc|pragma)\b)[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)*"
NUMBER = r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?"
SPACES = "reg|sreg|const|global|local|param|shared|tex"
TYPES = r"[bus](?:8|16|32|64)|b128|f16x2|f16|f32|f64|pred|texref|samplerref|surfref"
NAME_END = "(?![A-Za-z0-9_$])"
NUMBER_END = "(?![A-Za-z0-9_$.])"
BLANKS = " \t\r\n"
GAP = r"[ \t\r\n]*+"
NOT_BLANK = r"[^ \t\r]"
"""A character of a line that is not blank."""
LONG = 1 << 14
"""Characters of a part of a text that is long: errors are looked for in as many before more is read."""


class NeedsReference(Exception):
    """The fast readers do not know this spelling. The reference reader decides whether it is PTX."""
