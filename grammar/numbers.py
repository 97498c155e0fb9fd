"""Numbers of a text that have more than 64 bits and are read as ptxas reads them: by their lowest bits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .readers import constant

LONG = re.compile(r"[0-9][0-9a-fA-FxX]{17,}U?")
"""What may be a number of more than 64 bits. Each match begins at a digit, so that most of a text is passed over quickly."""
FLOATS = ("0d", "0D", "0f", "0F")


def cut_numbers(text: str) -> Iterator[tuple[int, str, int]]:
    """The numbers of more than 64 bits: where they stand, as they are written, and what ptxas takes."""
    for found in LONG.finditer(text):
        word, at = found[0], found.start()
        before, after = text[at - 1:at], text[found.end():found.end() + 1]
        if word[:2] in FLOATS or before in ("_", "$", "%", ".") or before.isalnum() or after in ("_", "$", ".") or after.isalnum():
            continue
        try:
            taken = constant.integer(word).value
        except ValueError:
            continue
        if len(word) > constant.MAX_DIGITS or _whole(word) != taken:
            yield at, word, taken


def _whole(word: str) -> int:
    digits = word.removesuffix("U")
    return int(digits, 0 if digits[1:2] in ("x", "X", "b", "B") or digits[0] != "0" else 8)
