"""`--set`: compile-time parameters of a kernel, and fields of those that are frozen dataclasses.

`--set BM=64` sets a parameter, `--set tile.BM=64` one field of it. `--set schedule=Pingpong` chooses a member of a sum type, and
`--set 'schedule=Cooperative(warpgroups=2)'` one with fields.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from ..dsl.author import hints_of
from ..dsl.values import changed, parsed, records
from ..errors import PtxkitError, TraceError
from ..types import TYPES
from .errors import UsageError

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel


def configured(kernel: Kernel[Any], pairs: Sequence[str]) -> dict[str, Any]:
    """The kernel's full configuration. The texts `K=V` change it one after the other."""
    parameters = {name: parameter.default for name, parameter in inspect.signature(kernel.function).parameters.items()
                  if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    given: dict[str, Any] = {}
    for text in pairs:
        path, equals, value = text.partition("=")
        if not equals or not all(part.isidentifier() for part in path.split(".")):
            raise UsageError(f"--set {text}: write name=value")
        name, _, fields = path.partition(".")
        if name not in parameters:
            given[name] = value  # kernel.config refuses the name
            continue
        before = given.get(name, parameters[name])
        try:
            given[name] = _with_field(name, before, fields, value) if fields else _whole(kernel, name, before, value)
        except (PtxkitError, ValueError) as error:  # ValueError comes from the __post_init__ of the author's dataclass
            raise UsageError(f"--set {text}: {error}") from None
    try:
        return kernel.config(given)
    except TraceError as error:
        raise UsageError(error.message) from None  # the sentence alone: no line of Python is wrong


def _with_field(name: str, before: Any, fields: str, value: str) -> Any:
    """The dataclass with one field replaced."""
    if not is_dataclass(before) or isinstance(before, type):
        what = "has no default" if before is inspect.Parameter.empty else f"is {before!r}"
        raise ValueError(f"`{name}` {what}, so it has no fields to set")
    return changed(before, fields, value)


def _whole(kernel: Kernel[Any], name: str, before: Any, value: str) -> Any:
    """The value of the whole parameter. For a dataclass it is named; else it is a Python literal, a scalar type by its name, or text."""
    hint = hints_of(kernel.function, f"kernel `{kernel.name}`").get(name)
    if not records(hint) and is_dataclass(before):
        hint = type(before)  # the annotation says less than the default
    if records(hint):
        return parsed(hint, value, name)
    try:
        made = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        made = TYPES.get(value, value)
    plain = hint if hint in _PLAIN else type(before) if hint is None and type(before) in _PLAIN else None
    if plain is bool and made in (0, 1):
        return bool(made)
    if plain is not None and type(made) not in _PLAIN[plain] and not (hint is None and made is None):
        if plain is str:
            return value
        raise ValueError(f"`{name}` is {'an' if plain is int else 'a'} {plain.__name__}, not {value!r:.60}")
    return made


_PLAIN: dict[Any, tuple[type, ...]] = {int: (int,), bool: (bool,), float: (float, int), str: (str,)}
"""Types of Python that a parameter may have, and the types of what may be written for it."""
