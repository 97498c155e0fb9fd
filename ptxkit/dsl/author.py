"""What a decorator is given: the author's function and its annotations, or something else that is refused in one sentence."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any, get_type_hints

from ..errors import TraceError


def plain_function(given: Any, decorator: str) -> Callable[..., Any]:
    """The Python function that a decorator is given; that of a static method is taken out of it. Raises TraceError for anything else."""
    function = given.__func__ if isinstance(given, staticmethod) else given
    if not inspect.isfunction(function):
        raise TraceError(f"{decorator} is for Python functions, and {_told(function)}")
    kind = next((word for word, is_such in _OTHERS.items() if is_such(function)), None)
    if kind is not None:
        raise TraceError(f"{decorator} runs a function from its first to its last line, and `{function.__name__}` is {kind}: write a plain "
                         "`def` without `yield`")
    return function


_OTHERS: dict[str, Callable[[Any], bool]] = {
    "a coroutine": inspect.iscoroutinefunction, "a generator": inspect.isgeneratorfunction,
    "an asynchronous generator": inspect.isasyncgenfunction}


def _told(given: Any) -> str:
    """What was given instead of a function."""
    if isinstance(given, type):
        return f"`{given.__name__}` is a class: decorate a function at the top level of a module"
    if isinstance(given, (classmethod, property)):
        return f"this is a {type(given).__name__}: decorate a function, or a static method"
    name = getattr(given, "name", None)
    if (kind := getattr(given, "decorated_as", None)) is not None:
        return f"`{name}` is a {kind} already: decorate it once"
    return f"{given!r:.80} is none: write `def` and decorate that"


def hints_of(function: Callable[..., Any], what: str) -> dict[str, Any]:
    """The annotations of a function, evaluated where they stand: in its module, and among the names that it takes from around it.

    `what` is how a message calls it. Raises TraceError for one that cannot be evaluated.
    """
    try:
        return get_type_hints(function, localns=_around(function) or None, include_extras=True)
    except NameError as error:
        raise TraceError(f"{what}: {_annotation(function, error.name or '')} names `{error.name}`, which is not in its module: import it "
                         "at the top level of the module, where annotations that are texts are read") from None
    except Exception as error:
        raise TraceError(f"{what}: an annotation cannot be evaluated ({type(error).__name__}: {error})") from None


def _around(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function takes from the functions around it."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False) if inspect.isfunction(function) else ():
        with contextlib.suppress(ValueError):  # it has no value yet
            found[name] = cell.cell_contents
    return found


def _annotation(function: Callable[..., Any], name: str) -> str:
    found = getattr(function, "__annotations__", {})
    place = next((place for place, text in found.items() if isinstance(text, str) and name in text), None)
    return "an annotation" if place is None else f"the annotation `{found[place]}` of `{place}`"


def by_name(made: Any, function: Callable[..., Any], what: str) -> tuple[Any, tuple[str, str]]:
    """How a decorated function is pickled: as functions are, by its module and its name there. Raises PicklingError in one sentence."""
    module, name = function.__module__ or "__main__", function.__qualname__
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not made:
        raise pickle.PicklingError(f"{what} cannot be pickled: another process finds it as `{name}` of the module {module}, where it is "
                                   "not; define it at the top level of a module, under its function's own name")
    return found_by_name, (module, name)


def found_by_name(module: str, name: str) -> Any:
    """What stands under a name in a module."""
    import importlib

    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


__all__ = ["by_name", "found_by_name", "hints_of", "plain_function"]
