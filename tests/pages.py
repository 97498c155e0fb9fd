"""Whether a command prints what a page shows."""

from __future__ import annotations


def like(shown: str, printed: str) -> bool:
    """Whether a line is as it is shown; `...` stands for anything."""
    parts = shown.split("...")
    at = 0
    for index, part in enumerate(parts):
        found = printed.find(part, at)
        if found < 0 or (index == 0 and found):
            return False
        at = found + len(part)
    return parts[-1] == "" or printed.endswith(parts[-1])


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Line by line; a line of `...` stands for any lines."""
    here, there, any_lines, after = 0, 0, -1, 0
    while there < len(printed):
        if here < len(shown) and shown[here] == "...":
            any_lines, after, here = here, there, here + 1
        elif here < len(shown) and like(shown[here], printed[there]):
            here, there = here + 1, there + 1
        elif any_lines >= 0:
            after += 1
            here, there = any_lines + 1, after
        else:
            return False
    return all(line == "..." for line in shown[here:])
