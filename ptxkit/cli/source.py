"""What a command line names: a kernel with its configuration, or PTX."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .configuration import configured
from .errors import FileError, UsageError
from .files import is_file, no_file

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel


def kernel_of(source: str, pairs: Sequence[str] = ()) -> tuple[Kernel[Any], dict[str, Any]]:
    """The kernel at `module:attribute` or `file.py:attribute`, and its full configuration after `--set`."""
    place, colon, attribute = source.rpartition(":")
    if not colon:
        raise UsageError(f"{source} is a file, not module:kernel") if is_file(source) else no_file(source)
    if not (place.endswith(".py") or all(part.isidentifier() for part in place.split("."))):
        raise UsageError(f"{place!r} is neither the name of a module nor a .py file")
    kernel = _attribute(place, attribute)
    return kernel, configured(kernel, pairs)


def refuse_config(source: str, pairs: Sequence[str], what: str) -> None:
    """Raise when `--set` is given for a file."""
    if pairs:
        raise UsageError(f"--set is for kernels; {source} is {what}")


def _attribute(place: str, attribute: str) -> Kernel[Any]:
    from ..dsl.kernel import Kernel

    module = _import(place)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Kernel):
        return found
    names = sorted(name for name, value in vars(module).items() if isinstance(value, Kernel))
    raise UsageError(f"{place} has no kernel {attribute!r}; it has {', '.join(names) or 'none'}")


def _import(place: str) -> Any:
    if place.endswith(".py"):
        if not is_file(place):
            raise FileError(f"there is no file {place}")
        path = Path(place).resolve()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.path.insert(0, str(path.parent))
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {place}") from None
        raise
