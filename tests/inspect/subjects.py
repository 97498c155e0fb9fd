"""What `inspect` is tried on: the corpus and the kernels that the packages and examples hold."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

from ptxkit.dsl.kernel import Kernel
from ptxkit.gemm import kernels as kernels_of_gemm

ROOT = Path(__file__).parents[2]
CORPUS = sorted((ROOT / "tests" / "corpus").glob("*.ptx"))
PARTS = {"separate": "Unresolved extern"}
"""Files of the corpus that are parts of a program: ptxas assembles them for a linker only."""


@functools.cache
def kernels() -> dict[str, str]:
    """The source that names each kernel of gemm (without its ladder and its benchmarks) and of the examples, by name."""
    found = {}
    for module in pkgutil.iter_modules(kernels_of_gemm.__path__):
        held = importlib.import_module(f"{kernels_of_gemm.__name__}.{module.name}")
        own = [name for name, value in _kernels(held) if value.function.__module__ == held.__name__]
        found |= {name: f"{held.__name__}:{name}" for name in own}
    for path in sorted((ROOT / "examples").glob("*.py")):
        name = f"example_of_inspect_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        held = importlib.util.module_from_spec(spec)
        sys.modules[name] = held
        spec.loader.exec_module(held)
        found |= {kernel: f"{path}:{kernel}" for kernel, _ in _kernels(held)}
    return found


def _kernels(module: object) -> Iterator[tuple[str, Kernel]]:
    return ((name, value) for name, value in vars(module).items() if isinstance(value, Kernel))
