"""How much of ptxkit a type checker reads for a kernel's file: signatures that a kernel has to do with, and no machine behind them."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ptxkit"
KERNEL = "import ptxkit\nfrom ptxkit.ptx import add\n"
"""What every file with a kernel imports, as far as it matters here."""
MOST = 145
"""Modules that may be read for it. mypy takes about 3 ms for each, whenever it has no cache: an import that needs more of them belongs in
the function that needs it, and a type that needs more of them has a part that does not (see `Session`, `Record`, `sim.asked`).
"""
MACHINE = ("sim.machine", "sim.simulation", "sim.semantics", "sim.checker", "debugger.live", "replay.record", "replay.searching",
           "proof.proving", "measure.device", "tuning.tune", "export.one", "gemm", "attention", "cli", "adapters", "torch", "jax")
"""What is never read for it."""


@functools.cache
def sources() -> dict[str, Path]:
    """The file of each module that a type checker takes: a stub before the source."""
    found: dict[str, Path] = {}
    for path in sorted(PACKAGE.rglob("*.py*")) + [each for link in PACKAGE.iterdir() if link.is_symlink() for each in link.rglob("*.py*")]:
        if path.suffix in (".py", ".pyi") and (path.suffix == ".pyi" or not path.with_suffix(".pyi").exists()):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: str, package: str) -> Iterator[str]:
    """What a checker follows: imports outside functions, also those for type checkers alone. It skips bodies in installed packages."""
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        match todo.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pass
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module, names, level):
                base = resolve_name("." * level + (module or ""), package) if level else module or ""
                yield from (base, *(f"{base}.{alias.name}" for alias in names))
            case node:
                todo += ast.iter_child_nodes(node)


@functools.cache
def needed(module: str) -> frozenset[str]:
    """The modules of ptxkit that one imports, and the packages that they are in."""
    path = sources()[module]
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    return frozenset(within(imports(path.read_text(encoding="utf-8"), package)))


def within(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        parts = name.split(".")
        if name in sources():
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def read(source: str, edge: tuple[str, str] = ("", "")) -> set[str]:
    """The modules of ptxkit that a checker reads for a file. `edge`: a module, and what it imports besides."""
    todo, found = list(within(imports(source, ""))), set[str]()
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo += [*needed(module), *within(edge[1:] if module == edge[0] else ())]
    return found


def test_a_kernels_file_needs_few_modules() -> None:
    found = read(KERNEL)
    assert len(found) <= MOST, f"a type checker reads {len(found)} modules of ptxkit for a kernel, {MOST} were said to be enough"
    assert [name for name in found for part in MACHINE if f"{name}.".startswith(f"ptxkit.{part}.")] == []


@pytest.mark.parametrize("edge", [("ptxkit.sim.report", "ptxkit.sim.checker"), ("ptxkit.dsl.kernel", "ptxkit.debugger.live"),
                                  ("ptxkit.proof.result", "ptxkit.replay.searching"), ("ptxkit.tuning.tuned", "ptxkit.measure.device")])
def test_an_import_of_the_machine_is_seen(edge: tuple[str, str]) -> None:
    """One more import in a module that is read brings more than the bound allows."""
    found = read(KERNEL, edge)
    assert edge[1] in found
    assert len(found) > MOST


def test_what_is_read_is_what_mypy_reads(tmp_path: Path) -> None:
    """mypy says which modules it parses. Imports followed silently are treated as those of an installed package."""
    pytest.importorskip("mypy")
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "mypy"), "-v", str(file)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    parsed = set(re.findall(r"Parsing .* \((ptxkit[\w.]*)\)$", run.stderr, re.MULTILINE))
    assert parsed == read(KERNEL)


def test_the_reader_of_imports_sees_what_a_checker_follows() -> None:
    source = """
import a.b
from . import c
from ..d import e
if TYPE_CHECKING:
    from f import g
class C:
    import h
def i():
    import j
try:
    import k
except ImportError:
    import l
"""
    found = set(imports(source, "p.q"))
    assert found == {"a.b", "p.q", "p.q.c", "p.d", "p.d.e", "f", "f.g", "h", "k", "l"}
