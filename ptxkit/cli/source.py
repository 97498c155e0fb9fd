"""What a command line names: a kernel with its configuration, or PTX."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import PtxkitError
from .configuration import configured
from .errors import FileError, UsageError
from .files import is_file, kernels_in, no_file

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel


def kernel_of(source: str, pairs: Sequence[str] = ()) -> tuple[Kernel[Any], dict[str, Any]]:
    """The kernel at `module:attribute` or `file.py:attribute`, and its full configuration after `--set`."""
    place, colon, attribute = source.rpartition(":")
    if not colon:
        if not is_file(source):
            raise no_file(source)
        way_out = f": {kernels_in(source)}" if source.endswith(".py") else ""
        raise UsageError(f"{source} is a file, not module:kernel{way_out}")
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
    from ..adapters import adapter_of

    if adapter_of(found) is not None:
        raise UsageError(f"{place}:{attribute} is a kernel of another compiler: prove it from Python, "
                         f"ptxkit.prove({attribute}, grid, *arguments), or give the PTX that the compiler writes")
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
        loader = spec.loader
        _imported(place, lambda: loader.exec_module(module))
        return module
    sys.path.insert(0, os.getcwd())
    return _imported(place, lambda: importlib.import_module(place))


def _imported(place: str, run: Callable[[], Any]) -> Any:
    """What `run` imports. What the author's module prints goes to stderr: stdout is for the command's data.

    An exception of that module is told in a sentence with the line that raised it.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return run()
    except PtxkitError:
        raise  # it has the author's line
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {place}") from None
        raise UsageError(f"{_where(error)}{place} imports {error.name}, which is not installed: pip may have it") from None
    except SyntaxError as error:
        raise UsageError(f"{error.filename}:{error.lineno}: {place} is no Python: {error.msg}") from None
    except SystemExit as error:
        raise UsageError(f"{_where(error)}{place} ends Python when it is imported (status {error.code!r:.40}): put what is only for a "
                         "program below `if __name__ == \"__main__\":`") from None
    except (Exception, GeneratorExit) as error:
        raise UsageError(f"{_where(error)}{place} cannot be imported: {error_named(error)}") from None


def _where(error: BaseException) -> str:
    place = author_line(error)
    return f"{place}: " if place else ""


def error_named(error: BaseException) -> str:
    """The class of an exception, and what it says."""
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def author_line(error: BaseException) -> str | None:
    """The line that raised an exception, where it is one of an author's file: neither of ptxkit nor of what is installed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    if not frames or Path(frames[-1].filename).is_relative_to(sys.prefix) or Path(frames[-1].filename).is_relative_to(sys.base_prefix):
        return None
    ours = [Path(__file__).parents[1], *(Path(__file__).parents[2] / name for name in ("attention", "gemm", "grammar"))]
    if any(Path(frames[-1].filename).resolve().is_relative_to(folder) for folder in ours):
        return None
    return f"{frames[-1].filename}:{frames[-1].lineno}"
