"""The names of files that are kept for a card."""

from __future__ import annotations

import re

from ..cards import Card, known


def file_name(device: str) -> str:
    """The file of a card's table: "NVIDIA H200" has h200.json."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower().removeprefix("nvidia ")).strip("-") + ".json"


def own_name(card: Card) -> str:
    """The file of a user's table of a card. With fewer SMs than the card of that name has it is another one."""
    whole = known(card.name)
    return file_name(card.name if whole is None or whole.sms == card.sms else f"{card.name} {card.sms} SMs")


__all__ = ["file_name", "own_name"]
