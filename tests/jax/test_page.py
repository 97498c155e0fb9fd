"""What docs/jax.md shows runs, and prints what the page says."""

from __future__ import annotations

import itertools
from typing import Any

from tests.jax import wanted
from tests.test_docs import ROOT, blocks, run

jax = wanted(__name__)


def test_the_page_prints_what_it_shows() -> None:
    page = ROOT / "docs" / "jax.md"
    found, names = blocks(page), {"__name__": "page"}
    assert {block.language for block in found} == {"python", "text"}
    with jax.default_device(jax.devices("cpu")[0]):
        for block, after in itertools.pairwise([*found, None]):
            if block is not None and block.language == "python":
                shown = after.text if after is not None and after.language == "text" else ""
                assert run(block, page, names).strip() == shown.strip(), f"docs/jax.md:{block.line + 1}"


def test_the_page_lists_every_function_and_its_arguments() -> None:
    import inspect

    import ptxkit.jax

    text = (ROOT / "docs" / "jax.md").read_text()
    rows = {row.split("|")[1].strip(" `"): row.split("|")[2] for row in text.splitlines() if row.startswith("| `")}
    others = {"cpu_device", "deserialize", "export"}
    functions: dict[str, Any] = {name: getattr(ptxkit.jax, name) for name in {*ptxkit.jax.__all__} - others}
    assert rows.keys() == functions.keys()
    for name in ("gemm", "scaled_gemm", "grouped_gemm", "weight_gradient", "combine", "attention"):
        assert [each.strip() for each in rows[name].replace(";", ",").split(",")] == list(inspect.signature(functions[name]).parameters)
