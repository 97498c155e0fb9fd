"""The words of a syntax error: what was found, and what was expected there."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lark.exceptions import UnexpectedInput, UnexpectedToken

from ..errors import ParseError, Position

FOUND = re.compile(r'"[^"\n]*"?|[A-Za-z0-9_$%.]+(?:::[A-Za-z0-9_.]+)*|\S')

# Terminals that a message names together, in the order in which it names them.
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("an instruction", ("OPCODE", "CALL")),
    ("a label", ("LABEL",)),
    ("an operand", ("NAME",)),
    ("a name", ("IDENT",)),
    ("a number", ("INTEGER", "DECIMAL", "SINGLE", "DOUBLE", "WARP_SZ")),
    ("a version such as 9.0", ("VERSION",)),
    ("a target such as sm_90a", ("TARGET",)),
    ("a string", ("STRING",)),
    ("a state space such as .reg", ("SPACE",)),
    ("a type such as .b32", ("TYPE",)),
    ("a linkage such as .visible", ("LINKAGE",)),
    (".v2, .v4 or .v8", ("VECTOR",)),
    ("a directive such as .maxntid", ("DIRECTIVE",)),
    (".managed or .unified", ("ATTRIBUTE",)),
    ("a section's name", ("WORD",)),
    ("an operator", ("TIMES", "OVER", "MODULO", "LEFT", "RIGHT", "LESS", "GREATER", "AT_MOST", "AT_LEAST", "EQUAL", "UNEQUAL", "AND",
                     "XOR", "AND_THEN", "OR_ELSE", "QUERY")),
)
WORDS = {terminal: words for words, terminals in GROUPS for terminal in terminals}
ORDER = [words for words, _ in GROUPS]
MAX_SHOWN = 80
"""How many characters of a found word a message shows."""
BYTE = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, as the error handler `surrogateescape` decodes it
OPERAND_SYMBOLS = {"PLUS", "MINUS", "NOT", "COMPLEMENT", "OR", "LPAR"}


def syntax_error(error: UnexpectedInput, text: str, spellings: Mapping[str, str]) -> ParseError:
    """lark's error as a `ParseError`. `text`: what lark read. `spellings`: how each terminal is written."""
    start = error.pos_in_stream if error.pos_in_stream is not None else len(text)
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        start = len(text)
    terminals = _accepted(error)
    expected = _words(terminals, spellings)
    end = len(text[:start].rstrip())
    if "SEMICOLON" in terminals and "\n" in text[end:start]:
        return ParseError("expected ';' at the end of the line", _position(text, end), expected)
    match = FOUND.match(text, start)
    found = "the end of the text" if match is None else f"'{_shown(match[0])}'"
    hint = " (a negative offset is written +-8)" if found.startswith("'-") and "PLUS" in terminals else ""
    return ParseError(f"found {found}, expected {_either(expected)}{hint}", _position(text, start), expected)


def _shown(word: str) -> str:
    """A word that can be printed anywhere: not too long, and bytes that are not text are shown by their numbers."""
    shown = word if len(word) <= MAX_SHOWN else f"{word[:MAX_SHOWN]}..."
    return BYTE.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", shown).encode("utf-8", "backslashreplace").decode("utf-8")


def _accepted(error: UnexpectedInput) -> set[str]:
    """The terminals that the parser would have accepted."""
    if isinstance(error, UnexpectedToken) and error.interactive_parser is not None:
        return set(error.interactive_parser.accepts())  # type: ignore[no-untyped-call]
    return set(getattr(error, "allowed", None) or getattr(error, "expected", None) or ())


def _words(terminals: set[str], spellings: Mapping[str, str]) -> tuple[str, ...]:
    grouped: set[str] = set()
    others: set[str] = set()
    for terminal in terminals:
        if terminal == "$END":
            others.add("the end of the text")
        elif terminal in WORDS:
            grouped.add(WORDS[terminal])
        elif not (terminal in OPERAND_SYMBOLS and ("INTEGER" in terminals or "TIMES" in terminals)):
            others.add(f"'{spellings[terminal]}'")
    return (*[words for words in ORDER if words in grouped], *sorted(others))


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _position(text: str, offset: int) -> Position:
    return Position(None, text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))
