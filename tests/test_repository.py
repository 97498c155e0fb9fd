"""The house's own rules: who may import whom, what the linters and type checkers say, what a wheel holds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("grammar", "ptxkit", "gemm")
"""The folders of the one package: ptxkit.grammar, ptxkit itself, ptxkit.gemm. Each may import itself and those before it."""
LINKS = {"gemm": "../gemm", "grammar": "../grammar"}
"""How the folders beside ptxkit are found in it."""
BESIDE = [["ptxkit", name] for name in LINKS]
UPWARD = {"ptxkit/cli.py": "ptxkit.gemm.__main__"}
"""The one arrow from the command line to the kernels."""

LAYERS = (
    ("dsl.source", "errors", "types", "settings", "sass", "runtime.diagnostics"),
    ("dsl.reg", "dsl.descriptor", "layout", "files", "cards", "dsl.values"),
    ("dsl.trace", "smem", "dsl.tensormap", "dsl.special", "dsl.module"),
    ("dsl.convert", "dsl.rules", "ptx", "flow", "idioms", "dsl.debug", "dsl.raw"),
    ("dsl.kernel", "dsl.parameters", "runtime.joining"),
    ("runtime.cache", "runtime.toolchain", "runtime.driver", "inspect", "explain", "check", "sim"),
    ("runtime.arrays", "runtime.launcher", "runtime.launch", "runtime.compiled"),
    ("doctor", "dsl.stubs", "lift", "diff", "cli", "__main__"),
)
"""The rooms of ptxkit, lowest first, and the modules of the rooms that have more than one layer.

An import when the module is loaded goes to the same layer, without a circle, or to a lower one.
"""

WITHOUT_CYCLES = ("grammar", "gemm")
"""The folders in which no module may import itself through others, not even inside functions."""
CYCLE_EXCEPTIONS: dict[str, str] = {}
"""Imports that may close a cycle, as "ptxkit.a -> ptxkit.b", and the reason for each."""

CUDA = {
    "cuda.bindings": {"runtime.driver", "runtime.launcher", "runtime.launch", "runtime.cache"},
    "cuda.core": {"runtime.driver", "runtime.launcher", "runtime.launch", "runtime.cache"},
    "cuda.pathfinder": {"runtime.driver", "runtime.toolchain"},
}
BY_PROTOCOL_ONLY = ("torch", "cupy", "jax")


@dataclass(frozen=True)
class Import:
    """An import statement: what it names, where, and whether it runs when the module is loaded."""

    name: str
    line: int
    at_load: bool


def imports(source: str, package: str = "", *, is_package: bool = False) -> list[Import]:
    """Every import of a module's text that is not for type checkers alone; relative ones as absolute names."""
    return list(_imports(ast.parse(source).body, package, True, is_package))


def _imports(nodes: list[ast.stmt], package: str, at_load: bool, is_package: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[:len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield from (Import(f"{base}.{alias.name}", node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(node.orelse, package, at_load, is_package)
        else:
            inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for field in ("body", "orelse", "finalbody"):
                yield from _imports(getattr(node, field, []), package, inside, is_package)
            for handler in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from _imports(handler.body, package, inside, is_package)


def loaded_by_name(source: str, package: str = "") -> list[str]:
    """The modules that a text loads with `import_module("literal")`, as absolute names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.append(resolve_name(name.value, package))
    return found


def modules(package: str) -> list[tuple[Path, list[Import]]]:
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        within = ".".join(path.relative_to(ROOT).parent.parts)
        within = within if package == "ptxkit" else f"ptxkit.{within}"
        found.append((path, imports(path.read_text(encoding="utf-8"), within)))
    return found


def arrows(package: str) -> dict[str, set[str]]:
    """For each module of a folder the modules of this folder that it imports.

    Imports inside functions count, imports for type checkers alone do not. `from . import tree` is an import of the module `tree`, not of
    the package's `__init__`.
    """
    names = {}
    for path, found in modules(package):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts if parts[0] == "ptxkit" else ("ptxkit", *parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        within = ".".join(parts[:-1])
        given = {made.name for made in found}.union(loaded_by_name(path.read_text(encoding="utf-8"), within))
        names[name] = {name for name in given if package != "ptxkit" or name.split(".")[:2] not in BESIDE}
    return {name: {module for given in found if (module := _module(given, names)) is not None and module != name}
            for name, found in names.items()}


def _module(name: str, modules: Iterable[str]) -> str | None:
    """The module that an absolute name is or stands in."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def cycles(arrows: dict[str, set[str]]) -> list[str]:
    """The groups of modules that all reach each other, sorted."""
    reached = {name: _reached(name, arrows) for name in arrows}
    groups = {frozenset(other for other in found if name in reached[other]) for name, found in reached.items() if name in found}
    return sorted(", ".join(sorted(group)) for group in groups)


def _reached(name: str, arrows: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        fresh = arrows[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found


def room(path: Path) -> str:
    """The name under which a module of ptxkit stands in LAYERS."""
    parts = path.relative_to(ROOT / "ptxkit").with_suffix("").parts
    return placed(parts) or ".".join(parts)


def rooms(name: str) -> str | None:
    """The room of ptxkit that an absolute import goes to, None when it goes elsewhere."""
    first, *parts = name.split(".")
    return placed(parts) if first == "ptxkit" else None


def placed(parts: Sequence[str]) -> str | None:
    """The module or the room among LAYERS that these names lead to."""
    names = (".".join(parts[:count]) for count in (2, 1) if len(parts) >= count)
    return next((name for name in names if any(name in layer for layer in LAYERS)), None)


def test_the_reader_of_imports_sees_every_kind() -> None:
    source = """
import a.b
from . import c
from ..d import e
if TYPE_CHECKING:
    import hidden
else:
    import shown
def f():
    from x import y
try:
    import t
except ImportError:
    import u
with z:
    import v
class C:
    import w
"""
    found = imports(source, "p.q")
    assert [made.name for made in found] == ["a.b", "p.q.c", "p.d.e", "shown", "x.y", "t", "u", "v", "w"]
    assert [made.name for made in found if not made.at_load] == ["x.y"]


def test_the_finder_of_cycles_sees_them() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}, "g": {"a"}}) == ["a, b, c", "e, f"]
    assert loaded_by_name('import_module(".b", __package__); importlib.import_module("c"); import_module(name)', "p.q") == ["p.q.b", "c"]
    assert _module("p.a.b", ["p", "p.a"]) == "p.a"
    assert _module("q.a", ["p"]) is None


@pytest.mark.parametrize("package", WITHOUT_CYCLES)
def test_no_module_imports_itself_in_a_cycle(package: str) -> None:
    found = arrows(package)
    for exception in CYCLE_EXCEPTIONS:
        first, _, second = exception.partition(" -> ")
        if first in found:
            assert second in found[first], f"{exception} is no import any more: remove the exception"
            found[first].remove(second)
            assert first in _reached(second, found), f"{exception} closes no cycle any more: remove the exception"
    assert cycles(found) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_those_below(package: str) -> None:
    above = tuple(f"ptxkit.{name}" if name != "ptxkit" else name for name in PACKAGES[PACKAGES.index(package) + 1:])
    wrong = [f"{path.relative_to(ROOT)}:{made.line} imports {made.name}" for path, found in modules(package) for made in found
             if any(made.name == name or made.name.startswith(f"{name}.") for name in (*above, "tests", "examples", "benchmarks"))
             and not (package == "grammar" and made.name.startswith("ptxkit.grammar."))
             and not made.name.startswith(UPWARD.get(path.relative_to(ROOT).as_posix(), "nothing"))]
    assert wrong == []


@pytest.mark.parametrize("name", LINKS)
def test_a_folder_beside_ptxkit_is_a_part_of_it(name: str) -> None:
    link = ROOT / "ptxkit" / name
    assert link.is_symlink()
    assert link.readlink().as_posix() == LINKS[name]
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: the package `{name}` is called `ptxkit.{name}`: write `from ptxkit import {name}`"


def test_the_rooms_of_ptxkit_keep_their_arrows() -> None:
    height = {name: level for level, layer in enumerate(LAYERS) for name in layer}
    wrong, sideways = [], {}
    for path, found in modules("ptxkit"):
        here = room(path)
        if path.name == "__init__.py" and here not in height:
            assert here == "__init__" or not found, f"{path.relative_to(ROOT)} imports from its room's layers"
            continue
        assert here in height, f"{path.relative_to(ROOT)} has no place in LAYERS"
        for made in found:
            there = rooms(made.name)
            if not made.at_load or there is None or there == here:
                continue
            if height[there] > height[here]:
                wrong.append(f"{path.relative_to(ROOT)}:{made.line} imports {there}")
            elif height[there] == height[here]:
                sideways.setdefault(here, set()).add(there)
    assert wrong == []
    while leaves := [name for name, needed in sideways.items() if not needed & set(sideways)]:
        for name in leaves:
            del sideways[name]
    assert sideways == {}, "these import each other in a circle"


@pytest.mark.parametrize("package", PACKAGES[1:])
def test_only_the_grammar_imports_its_readers(package: str) -> None:
    wrong = [f"{path.relative_to(ROOT)}:{made.line} imports {made.name}" for path, found in modules(package) for made in found
             if made.name.startswith("ptxkit.grammar.readers")]
    assert wrong == []


@pytest.mark.parametrize("package", PACKAGES)
def test_cuda_is_imported_in_its_places_only(package: str) -> None:
    wrong = []
    for path, found in modules(package):
        for made in found:
            for library, places in CUDA.items():
                if made.name.startswith(library) and (package != "ptxkit" or room(path) not in places):
                    wrong.append(f"{path.relative_to(ROOT)}:{made.line} imports {made.name}")
    assert wrong == []


@pytest.mark.parametrize("package", PACKAGES[:2])
def test_array_libraries_are_met_by_protocol_only(package: str) -> None:
    wrong = [f"{path.relative_to(ROOT)}:{made.line} imports {made.name}" for path, found in modules(package) for made in found
             if made.name.split(".")[0] in BY_PROTOCOL_ONLY]
    assert wrong == []


def test_importing_ptxkit_loads_nothing_heavy() -> None:
    program = "import sys, ptxkit; print([m for m in ('numpy', 'lark', 'cuda', 'torch', 'rich', 'subprocess') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff() -> None:
    run("ruff", "check", "--no-fix", ".")


def test_mypy() -> None:
    run("mypy", "--no-error-summary")


def test_basedpyright() -> None:
    run("basedpyright", "--level", "error")


def tracked() -> list[Path]:
    """The files of the repository; in a copy without git, those that its packages and tests hold."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    return [path for folder in (*PACKAGES, "tests", "docs", "examples", "benchmarks") for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts]


def test_no_file_knows_a_machines_paths() -> None:
    pattern = re.compile(rb"(?<![\w.$}])/(?:work|root|farm|home/\w+|Users/\w+)/")
    wrong = [f"{path.relative_to(ROOT)}: {found.group().decode()}" for path in tracked() if path != Path(__file__).resolve()
             if (found := pattern.search(path.read_bytes()))]
    assert wrong == []


def test_modules_stay_readable() -> None:
    long = {}
    for path in tracked():
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES:
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > 500 and "generated" not in "".join(lines[:1]).lower():
                long[str(path.relative_to(ROOT))] = len(lines)
    assert long == {}
    assert not [path for path in tracked() if path.name == "utils.py"]


def test_a_wheel_holds_every_package_and_its_data() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert included == ["ptxkit", "ptxkit.*"]
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
            assert (folder / "__init__.py").is_file(), f"{folder.relative_to(ROOT)} is no package"
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    data = [path for package in PACKAGES for path in (ROOT / package).rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc") and "__pycache__" not in path.parts]
    assert data
    for path in data:
        assert any(path.match(pattern) for pattern in patterns), f"{path.relative_to(ROOT)} would not be in a wheel"
