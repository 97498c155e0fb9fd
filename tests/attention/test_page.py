"""docs/attention.md: what it shows is printed, its calls are legal, and its table is what the heuristic takes."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from ptxkit.attention import attention
from ptxkit.attention.ladder.rungs import RUNGS
from tests.test_docs import blocks, run

from .test_forward import shipped

PAGE = Path(__file__).parents[2] / "docs" / "attention.md"

pytestmark = pytest.mark.pure


def test_what_the_page_shows_is_printed() -> None:
    call, *examples = blocks(PAGE)
    for example, shown in zip(examples[::2], examples[1::2], strict=True):
        assert run(example, PAGE, {"__name__": "page"}) == shown.text
    for name in re.findall(r"(\w+)=", call.text):
        assert name in inspect.signature(attention).parameters


def test_the_table_of_configurations_is_the_heuristics() -> None:
    rows = re.findall(r"^\| (\d+) \| ([a-z ]+) \| (\d+) x (\d+) \| (\d)", PAGE.read_text(encoding="utf-8"), re.M)
    shown = {(int(head), mask): (int(BM), int(BN), int(warpgroups)) for head, mask, BM, BN, warpgroups in rows}
    for config in shipped():
        mask = "full" if not config.causal and not config.packed else "causal or packed"
        assert shown.get((config.head, mask), shown.get((config.head, "both"))) == (config.BM, config.BN, config.warpgroups)


def test_the_page_names_every_step_of_the_ladder() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for rung in RUNGS:
        assert f"| {rung.step} | [{Path(sys.modules[rung.kernel.__module__].__file__ or '').name}](../attention/ladder/" in page
