"""Runs notebooks without Jupyter: every code cell in its order, in one namespace.

`python -m tests.notebooks.runner` writes what the cells print, and the text of their last expressions, into examples/notebooks. An object
that a notebook shows as HTML has no stored output: it is made when the cell runs.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxkit.runtime import driver, toolchain

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
ASSEMBLER = "13.0"
"""The release of ptxas whose machine code stands in the notebooks."""
NOTEBOOKS = tuple(sorted(FOLDER.glob("*.ipynb")))


@dataclass(frozen=True)
class Ran:
    """What a code cell did: its number, what it printed, the value of its last expression."""

    number: int
    cell: dict[str, Any]
    printed: str
    value: Any

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """As a notebook holds them."""
        made: list[dict[str, Any]] = []
        if self.printed:
            made.append({"name": "stdout", "output_type": "stream", "text": self.printed.splitlines(True)})
        if self.value is not None and not hasattr(self.value, "_repr_html_"):
            made.append({"data": {"text/plain": repr(self.value).splitlines(True)}, "execution_count": self.number, "metadata": {},
                         "output_type": "execute_result"})
        return made


def read(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return made


def run(notebook: dict[str, Any]) -> Iterator[Ran]:
    """Runs the code cells. Their sources have the names that a notebook gives them when all are run: In[1], In[2], ..."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), 1):
        source, file = "".join(cell["source"]), f"In[{number}]"
        linecache.cache[file] = len(source), None, source.splitlines(True), file
        tree, last = ast.parse(source, file), None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)                    # type: ignore[attr-defined]
        with contextlib.redirect_stdout(io.StringIO()) as written:
            exec(compile(tree, file, "exec", dont_inherit=True), names)
            value = None if last is None else eval(compile(last, file, "eval", dont_inherit=True), names)
        yield Ran(number, cell, written.getvalue(), value)


def same_here(cell: dict[str, Any]) -> bool:
    """Whether a cell gives on this machine what is to be stored: that of a machine without a GPU, with this release of ptxas."""
    tags = cell["metadata"].get("tags", [])
    if "gpu" in tags and driver.available("sm_90a"):
        return False
    return f"ptxas-{ASSEMBLER}" not in tags or (toolchain.has_ptxas() and toolchain.ptxas().version.startswith(f"{ASSEMBLER}."))


def text_of(notebook: dict[str, Any]) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def write(path: Path) -> None:
    notebook = read(path)
    for ran in run(notebook):
        ran.cell["execution_count"] = ran.number
        if same_here(ran.cell):
            ran.cell["outputs"] = ran.outputs
    path.write_text(text_of(notebook), encoding="utf-8")


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:] or NOTEBOOKS):
        write(each)
