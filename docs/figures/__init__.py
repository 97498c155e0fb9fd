"""Measured figures of the pages, from the records in benchmarks/results: `make docs` writes them, `--check` of docs/generate.py compares.

A page has `<!-- figure: NAME -->` before a figure and `<!-- /figure -->` after it; what stands between is made here. Each module has the
figures of a subject by name, in its FIGURES.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from . import attention, choices, gains, gallery, grouped, host, products, records, shapes, tools

PLOT = records.ROOT / "docs" / "random.svg"
MARK = re.compile(r"(<!-- figure: (?P<name>[\w.-]+) -->)(?P<text>.*?)(<!-- /figure -->)", re.S)
SUBJECTS = products, shapes, grouped, choices, gains, host, attention, gallery, tools
FIGURES: dict[str, records.Figure] = {name: figure for subject in SUBJECTS for name, figure in subject.FIGURES.items()}
TWICE = [name for name, count in Counter(name for subject in SUBJECTS for name in subject.FIGURES).items() if count > 1]
assert not TWICE, f"two subjects have the figures {TWICE}"


def filled(text: str, place: str = "a page") -> str:
    """A page with its figures as the records have them. Raises ValueError for a name that is no figure."""
    def figure(found: re.Match[str]) -> str:
        if found["name"] not in FIGURES:
            raise ValueError(f"{place}: `{found['name']}` is no figure of docs/figures; figures are {', '.join(FIGURES)}")
        return f"{found[1]}{FIGURES[found['name']]()}{found[4]}"
    return MARK.sub(figure, text)


def pages() -> list[Path]:
    return [records.ROOT / "README.md", *sorted((records.ROOT / "docs").glob("*.md"))]
