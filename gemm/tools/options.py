"""Options that several commands have: the card that configurations are for, and changes of a configuration."""

from __future__ import annotations

import argparse
import sys

from ptxkit.cards import CARDS, H200, Card, CardError, named
from ptxkit.runtime import driver

from ..launch.dense import card_of

A_SECOND = 1e8
"""Multiplications of a product that the CPU device executes and checks in a second: 512 x 512 x 512 takes 1.5 on a core of 2024."""
LONG = 60
"""Seconds."""


def add_card(parser: argparse.ArgumentParser, of: str = "") -> None:
    """`--card NAME`; `of` says what it is for, where that is not the whole command."""
    parser.add_argument("--card", type=_card, metavar="NAME",
                        help=f"{of}the card that configurations are for: {', '.join(CARDS)} (default: this machine's, else h200)")


def _card(text: str) -> Card:
    try:
        return named(text)
    except CardError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def card(given: Card | None) -> Card:
    """The given card, else that of the current device, else the H200."""
    if given is not None:
        return given
    return card_of(driver.current_device()) if driver.available("sm_90a") else H200


def add_set(parser: argparse.ArgumentParser) -> None:
    """`--set PATH=VALUE`, again for more."""
    parser.add_argument("--set", dest="changes", action="append", type=_change, default=[], metavar="PATH=VALUE",
                        help="change a field of the configuration, such as tile.BM=64 or schedule=Pingpong; again for more")


def _change(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not (path and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} changes nothing: write PATH=VALUE, such as tile.BM=64")
    return path.strip(), value.strip()


def say_how_long(multiplications: int) -> None:
    """Say it on stderr before the CPU device begins with a product that takes longer than a user would expect."""
    seconds = multiplications / A_SECOND
    if seconds > LONG:
        print(f"the CPU device executes this product, which takes some {seconds / 60:,.0f} minutes: -m, -n and -k make it smaller, a GPU "
              "takes microseconds", file=sys.stderr, flush=True)


__all__ = ["add_card", "add_set", "card", "say_how_long"]
