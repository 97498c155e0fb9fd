"""Numbers of a command line, as `type=` of its options."""

from __future__ import annotations

import argparse
import math

DIGITS = 15


def whole(text: str) -> int:
    """A whole number from 0 on that is a part of a word, as of 64x64x64. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        raise ValueError(f"a whole number from 0 on with at most {DIGITS} digits, not {text!r:.40}")
    return int(text)


def count(text: str) -> int:
    """A whole number from 0 on."""
    try:
        return whole(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not count(text):
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def seconds(text: str) -> float:
    """A time that is not negative and ends."""
    try:
        made = float(text)
    except ValueError:
        made = math.nan
    if not 0 <= made < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds, not {text!r:.40}")
    return made


__all__ = ["count", "positive", "seconds", "whole"]
