"""Kernels stay readable: at most 120 lines each, and 14 leaf fields of the configuration."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from ptxkit import Kernel
from ptxkit.gemm import kernels

MOST_LINES, MOST_FIELDS = 120, 14
FILES = sorted(Path(kernels.__path__[0]).glob("*.py"))

pytestmark = pytest.mark.pure


def kernels_in(text: str) -> dict[str, tuple[int, set[str]]]:
    """The lines of each kernel and the compile-time fields that it reads: `tile.BM`, or `stages` where it is a plain number."""
    found = {}
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef) or not function.decorator_list or not function.args.kwonlyargs:
            continue
        plain = {arg.arg for arg in function.args.kwonlyargs if ast.unparse(arg.annotation or arg) in ("int", "bool")}
        names = {arg.arg for arg in function.args.kwonlyargs}
        read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in plain}
        read |= {ast.unparse(node) for node in ast.walk(function)
                 if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names}
        found[function.name] = (function.end_lineno or 0) - function.lineno + 1, read
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_kernel_is_short_and_reads_few_fields(path: Path) -> None:
    for name, (lines, fields) in kernels_in(path.read_text()).items():
        assert lines <= MOST_LINES, name
        assert len(fields) <= MOST_FIELDS, (name, sorted(fields))


def test_every_kernel_is_seen() -> None:
    """Those of the texts are those that the modules hold."""
    seen = {(path.stem, name) for path in FILES for name in kernels_in(path.read_text())}
    held = {(path.stem, name) for path in FILES for name, value in vars(import_module(f"{kernels.__name__}.{path.stem}")).items()
            if isinstance(value, Kernel) and value.function.__code__.co_kwonlyargcount and value.function.__module__.endswith(path.stem)}
    assert seen == held
    assert len(seen) > 20


def test_a_field_is_counted() -> None:
    text = "@kernel()\ndef f(a, *, tile: Tile, stages: int = 0) -> None:\n    use(tile.BM, tile.BN, stages, tile)\n"
    assert kernels_in(text) == {"f": (2, {"tile.BM", "tile.BN", "stages"})}
