"""The house's own rules: who may import whom, what the linters and type checkers say, what a wheel holds."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if (ROOT / "PKG-INFO").exists():
    pytest.skip("an unpacked source distribution: these are the rules of a checkout", allow_module_level=True)

PACKAGES = ("grammar", "ptxkit", "gemm", "attention")
"""The folders of the one package: ptxkit.grammar, ptxkit itself, and those that use it. Each may import itself and those before it."""
LINKS = {"attention": "../attention", "gemm": "../gemm", "grammar": "../grammar"}
"""How the folders beside ptxkit are found in it."""
UPWARD = {"ptxkit/cli/main.py": "ptxkit.gemm.__main__"}
"""The one arrow from the command line to the kernels."""
FRAMEWORKS = {"torch": "ptxkit/torch/", "jax": "ptxkit/jax/"}
"""Adapters above everything, kernels included, by the framework that they alone import when they are loaded. Nobody imports them."""

LAYERS = (
    ("html",),
    ("dsl.source", "dsl.bytecode", "dsl.iterators", "errors", "types", "files", "newest", "once", "settings", "sass",
     "runtime.diagnostics"),
    ("dsl.ambient", "dsl.author", "dsl.names", "dsl.allocation", "dsl.label", "dsl.values", "dsl.signs", "dsl.refused", "dsl.fates",
     "dsl.computed", "dsl.assigned", "layout", "cards"),
    ("cli.errors", "cli.extras", "cli.messages", "cli.files", "cli.numbers", "cli.configuration", "cli.source",
     "cli.output", "cli.paths", "cli.guard"),
    ("dsl.dropped", "dsl.reg", "dsl.regions", "dsl.blocks", "dsl.uncalled", "dsl.descriptor"),
    ("dsl.held", "dsl.bounds", "dsl.plain", "dsl.around", "dsl.touched", "dsl.taken", "dsl.changes", "dsl.rebound", "dsl.branched",
     "dsl.trace", "dsl.coordinates", "dsl.plan", "smem", "dsl.tensormap", "dsl.special", "dsl.module"),
    ("dsl.function", "dsl.convert", "dsl.rules", "ptx", "dsl.division", "dsl.carried", "dsl.named", "flow", "idioms",
     "dsl.debug", "dsl.marks", "dsl.raw", "fragments", "reductions", "copies", "pipeline"),
    ("dsl.misused", "dsl.parameters", "dsl.scopes", "dsl.arguments", "dsl.lines", "dsl.traced", "dsl.kernel", "runtime.joining"),
    ("runtime.cache", "runtime.toolchain", "runtime.driver", "inspect", "explain", "check", "sim"),
    ("runtime.arrays", "runtime.overlap", "runtime.images", "runtime.launcher", "runtime.launch", "runtime.compiled", "proof"),
    ("measure",),
    ("tuning",),
    ("replay",),
    ("debugger",),
    ("adapters", "timeline", "export"),
    ("dsl.stubs", "lift", "diff", "cli", "testing", "__main__"),
    ("torch", "jax"),
)
"""The rooms of ptxkit, lowest first, and the modules of the rooms that have more than one layer.

An import when the module is loaded goes to the same layer, without a circle, or to a lower one.
"""

CUDA = {
    "cuda.bindings": {"runtime.driver", "runtime.launcher", "runtime.launch", "runtime.cache"},
    "cuda.core": {"runtime.driver", "runtime.launcher", "runtime.launch", "runtime.cache"},
    "cuda.pathfinder": {"runtime.driver", "runtime.toolchain"},
}
BY_PROTOCOL_ONLY = ("torch", "cupy", "jax")
COMPILERS = ("triton", "cutlass", "tilelang", "tvm")


@dataclass(frozen=True)
class Import:
    """An import statement: what it names, where, and whether it runs when the module is loaded."""

    name: str
    line: int
    at_load: bool


@functools.cache
def imports(source: str, package: str = "", *, is_package: bool = False) -> tuple[Import, ...]:
    """Every import of a module's text that is not for type checkers alone; relative ones as absolute names."""
    return tuple(_imports(ast.parse(source).body, package, True, is_package))


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


@functools.cache
def modules(package: str) -> list[tuple[Path, tuple[Import, ...]]]:
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        within = ".".join(path.relative_to(ROOT).parent.parts)
        within = within if package == "ptxkit" else f"ptxkit.{within}"
        found.append((path, imports(path.read_text(encoding="utf-8"), within)))
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


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_those_below(package: str) -> None:
    above = tuple(f"ptxkit.{name}" if name != "ptxkit" else name for name in PACKAGES[PACKAGES.index(package) + 1:])
    wrong = [f"{path.relative_to(ROOT)}:{made.line} imports {made.name}" for path, found in modules(package) for made in found
             if any(made.name == name or made.name.startswith(f"{name}.") for name in (*above, "tests", "examples", "benchmarks"))
             and not (package == "grammar" and made.name.startswith("ptxkit.grammar."))
             and not made.name.startswith(UPWARD.get(path.relative_to(ROOT).as_posix(), "nothing"))
             and not (made.name.startswith(("ptxkit.gemm", "ptxkit.attention"))
                      and path.relative_to(ROOT).as_posix().startswith(tuple(FRAMEWORKS.values())))]
    assert wrong == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_is_loaded_by_its_adapter_alone_which_nobody_imports(framework: str) -> None:
    home, adapter = FRAMEWORKS[framework], FRAMEWORKS[framework].rstrip("/").replace("/", ".")
    seen = [(path.relative_to(ROOT).as_posix(), made) for package in PACKAGES for path, found in modules(package) for made in found]
    of_framework = [place for place, made in seen if made.name.split(".")[0] == framework and made.at_load]
    assert of_framework
    assert [place for place in of_framework if not place.startswith(home)] == []
    assert [place for place, made in seen if f"{made.name}.".startswith(f"{adapter}.") and not place.startswith(home)] == []


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
    assert sideways == {}, "these import each other in a cycle"


@pytest.mark.parametrize("package", PACKAGES[1:])
def test_only_the_grammar_imports_its_readers(package: str) -> None:
    wrong = [f"{path.relative_to(ROOT)}:{made.line} imports {made.name}" for path, found in modules(package) for made in found
             if made.name.startswith("ptxkit.grammar.readers")]
    assert wrong == []


CYCLE_EXCEPTIONS: dict[tuple[str, str], str] = {}
"""Imports that may close a cycle, as (who imports, what), each with the reason why it stays."""


def needs(folder: str) -> dict[str, set[str]]:
    """Every module of a folder and those of it that it imports: at load, in functions, and by `import_module` of a literal.

    An import from another package of the folder also runs that package's `__init__`.
    """
    found: dict[str, set[str]] = {}
    named = {dotted(path): path for path in sorted((ROOT / folder).rglob("*.py")) if path.relative_to(ROOT / folder).parts[0] not in LINKS}
    for name, path in named.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        source = path.read_text(encoding="utf-8")
        asked = [made.name for made in imports(source, package)] + list(by_literal(source, package))
        found[name] = set()
        for each in asked:
            module = each if each in named else each.rpartition(".")[0]
            parents = [module[:end] for end, sign in enumerate(module) if sign == "."]
            found[name] |= {module, *(parent for parent in parents if not f"{name}.".startswith(f"{parent}."))} & named.keys() - {name}
    return found


def dotted(path: Path) -> str:
    """The absolute name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "ptxkit" else ("ptxkit", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def by_literal(source: str, package: str) -> Iterator[str]:
    """What `import_module("...")` names."""
    for node in ast.walk(ast.parse(source)) if "import_module" in source else ():
        match node:
            case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[ast.Constant(str(name)), *_]):
                yield resolve_name(name, package)
            case _:
                pass


def cycles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """The groups of modules that import each other in a cycle."""
    reached = {name: set(graph[name]) for name in graph}
    for through in graph:
        for name in graph:
            if through in reached[name]:
                reached[name] |= reached[through]
    return sorted({tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph if name in reached[name]})


def test_the_finder_of_cycles_finds_them() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}) == [("a", "b", "c"), ("d", "e")]
    source = "def f():\n    return import_module('.x', __package__), importlib.import_module('p.y'), import_module(z)"
    assert list(by_literal(source, "p.q")) == ["p.q.x", "p.y"]
    found = needs("ptxkit")
    assert {"ptxkit.check", "ptxkit.sim", "ptxkit.runtime.compiled", "ptxkit.dsl.trace"} <= found["ptxkit.dsl.kernel"]
    assert not {"ptxkit", "ptxkit.dsl", "ptxkit.dsl.kernel"} & found["ptxkit.dsl.kernel"]
    assert "ptxkit.check" in found["ptxkit.inspect.entry"]


@pytest.mark.parametrize("folder", PACKAGES)
def test_no_modules_import_each_other_in_a_cycle(folder: str) -> None:
    graph = needs(folder)
    for who, what in CYCLE_EXCEPTIONS:
        if who in graph:
            assert what in graph[who], f"{who} does not import {what}: take it out of CYCLE_EXCEPTIONS"
            graph[who].discard(what)
    assert cycles(graph) == []


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
             if made.name.split(".")[0] in BY_PROTOCOL_ONLY
             and not path.relative_to(ROOT).as_posix().startswith(FRAMEWORKS.get(made.name.split(".")[0], "nothing"))]
    assert wrong == []


@pytest.mark.parametrize("package", PACKAGES)
def test_other_compilers_are_imported_by_their_adapters_when_they_are_used(package: str) -> None:
    wrong = [f"{path.relative_to(ROOT)}:{made.line} imports {made.name}" for path, found in modules(package) for made in found
             if made.name.split(".")[0] in COMPILERS and (made.at_load or package != "ptxkit" or room(path) != "adapters")]
    assert wrong == []


def loaded_by(program: str) -> set[str]:
    """The modules that a program has loaded when it ends."""
    shown = f"import sys; {program}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"numpy", "lark", "cuda", "torch", "jax", "rich", "subprocess"}


def test_importing_ptxkit_loads_nothing_heavy() -> None:
    assert not loaded_by("import ptxkit; from ptxkit import Layout, Ptr, TensorMap, func, if_, kernel, smem, tid") & HEAVY


def test_importing_kernels_loads_nothing_heavy() -> None:
    """The heuristics, which choose one for a problem, compute with NumPy."""
    assert not loaded_by("import ptxkit.gemm.kernels.dense, ptxkit.gemm.kernels.grouped, ptxkit.attention.kernels.forward") & HEAVY


def test_importing_the_grammar_loads_no_other_room() -> None:
    found = loaded_by("import ptxkit.grammar")
    assert not found & HEAVY
    assert [name for name in found if name.startswith("ptxkit.") and not name.startswith("ptxkit.grammar")] == []
    assert len([name for name in found if name.startswith("ptxkit")]) <= 8


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff() -> None:
    run("ruff", "check", "--no-fix", ".")


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
