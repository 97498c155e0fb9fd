"""Kernels of other compilers. Each module reads what one of them knows of a launch, and imports its package only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from ..errors import PtxkitError

if TYPE_CHECKING:
    from ..proof.launch import Launch

Adapter = Callable[[Any, Any, Sequence[Any], Mapping[str, Any]], "Launch"]
_ADAPTERS = {"triton": (".for_triton", "triton", "3.9"), "cutlass": (".for_cute", "nvidia-cutlass-dsl", "4.8"),
             "tilelang": (".for_tilelang", "tilelang", "0.1.15"), "tvm": (".for_tilelang", "tilelang", "0.1.15")}
"""The module here that knows the kernels of a Python package; the package as pip names it, and the version that it was written for."""


def adapter_of(kernel: Any) -> Adapter | None:
    """The adapter's `launch_of`(kernel, grid, args, config), by the package that the kernel's type is from; None for any other object."""
    for made in type(kernel).__mro__:
        found = _ADAPTERS.get(made.__module__.partition(".")[0])
        if found is not None:
            return _guarded(*found)
    return None


def version_of(package: str) -> str:
    """The version that is installed, as messages name it; "" for what was not installed by pip."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _guarded(module: str, package: str, known: str) -> Adapter:
    """The adapter. What another version of the package does not have is said in one sentence."""
    adapter: Adapter = import_module(module, __name__).launch_of

    def launch_of(kernel: Any, grid: Any, args: Sequence[Any], config: Mapping[str, Any]) -> Launch:
        try:
            return adapter(kernel, grid, args, config)
        except (ImportError, AttributeError) as error:
            has = version_of(package) or "not installed by pip"
            raise PtxkitError(f"ptxkit reads kernels of {package} {known}, and {package} here is {has}: {error}. The dependency group "
                              f"`foreign` has the version that was tested: pip install --group foreign") from error

    return launch_of
