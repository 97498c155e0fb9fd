"""Nested frozen values: writing them as JSON, reading them back, and changing a field by a path such as `tile.BM=64`.

A field's annotation is an int, a bool, a float, a str, a `Literal`, a scalar type (`type[Scalar]`), a frozen dataclass, or a sum type: a
union of frozen dataclasses (and None). In JSON a dataclass is an object of its fields, without fields that have their defaults. A member of
a sum type is an object with one key, its name; or only its name if all its fields have their defaults.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import PtxkitError
from ..types import TYPES, Scalar

T = TypeVar("T")


class FieldError(PtxkitError, ValueError):
    """A value that a field does not take. The message names the field and what it takes."""


def to_json(value: Any) -> Any:
    """The value as numbers, strings, lists and objects. Raises FieldError for a value without a name, such as a function."""
    if is_dataclass(value) and not isinstance(value, type):
        found, hints = {}, _hints(type(value))
        for field in fields(value):
            here = getattr(value, field.name)
            if here != _default(field):
                found[field.name] = named(here) if _members(hints[field.name]) else to_json(here)
        return found
    if isinstance(value, type) and issubclass(value, Scalar):
        return value.__name__
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [to_json(each) for each in value]
    raise FieldError(f"{value!r} cannot be written as JSON: it is known to this process alone")


def from_json(hint: type[T] | Any, data: Any, name: str = "") -> T:
    """The value of the annotated type, from what `to_json` wrote. Raises FieldError for anything else."""
    members = _members(hint)
    if members:
        return _member_of(members, data, name)  # type: ignore[no-any-return]
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(data, Mapping):
            raise FieldError(f"{name or hint.__name__} is an object of {_listed(hint)}, not {data!r}")
        hints = _hints(hint)
        unknown = [key for key in data if key not in hints]
        if unknown:
            raise FieldError(f"{name or hint.__name__} has no field {unknown[0]!r}: it has {_listed(hint)}")
        return _made(hint, {key: from_json(hints[key], each, _path(name, key)) for key, each in data.items()})  # type: ignore[no-any-return]
    return _leaf(hint, data, name)  # type: ignore[no-any-return]


def changed(value: T, path: str, new: Any) -> T:
    """The value with the field at the dotted path replaced. `new` is a value, or text from a command line."""
    head, _, rest = path.partition(".")
    if not is_dataclass(value) or isinstance(value, type):
        raise FieldError(f"{value!r} has no field {head!r}")
    hints = _hints(type(value))
    if head not in hints:
        raise FieldError(f"{type(value).__name__} has no field {head!r}: it has {_listed(type(value))}")
    here = getattr(value, head)
    made = changed(here, rest, new) if rest else parsed(hints[head], new, head) if isinstance(new, str) else new
    return replace(value, **{head: made})


def parsed(hint: Any, text: str, name: str = "") -> Any:
    """The value of the annotated type, from text: `64`, `bf16`, `Pingpong`, `Cooperative(warpgroups=2)`."""
    members = records(hint)
    if not members:
        return _leaf(hint, text, name)
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise FieldError(f"{name}={text} is no value: write {_choices(members)}") from None
    if isinstance(node, ast.Constant) and node.value is None:
        return _member_of(members, None, name)
    if isinstance(node, ast.Name):
        return _member_of(members, node.id, name)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        given = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg is not None}
        member = _by_name(members, node.func.id, name)
        hints = _hints(member)
        unknown = [key for key in given if key not in hints]
        if unknown:
            raise FieldError(f"{member.__name__} has no field {unknown[0]!r}: it has {_listed(member)}")
        return _made(member, {key: parsed(hints[key], each.strip("'\""), key) for key, each in given.items()})
    raise FieldError(f"{name}={text} is no value: write {_choices(members)}, or one with fields, as `Name(field=1)`")


def records(hint: Any) -> tuple[Any, ...]:
    """The members of a sum type, or the annotation itself if it is a dataclass; () for any other annotation."""
    return (hint,) if isinstance(hint, type) and is_dataclass(hint) else _members(hint)


def leaves(value: Any) -> int:
    """The number of the value's fields that are not dataclasses, nested ones included."""
    if not is_dataclass(value) or isinstance(value, type):
        return 1
    return sum(leaves(getattr(value, field.name)) for field in fields(value))


def _member_of(members: tuple[Any, ...], data: Any, name: str) -> Any:
    if data is None:
        if type(None) in members:
            return None
        raise FieldError(f"{name} is {_choices(members)}, not None")
    if isinstance(data, str):
        return _made(_by_name(members, data, name), {})
    if isinstance(data, Mapping) and len(data) == 1:
        (key, inner), = data.items()
        return from_json(_by_name(members, key, name), inner, name)
    raise FieldError(f"{name} is {_choices(members)}, not {data!r}")


def _made(record: Any, given: Mapping[str, Any]) -> Any:
    missing = [field.name for field in fields(record) if field.name not in given and _default(field) is MISSING]
    if missing:
        raise FieldError(f"{record.__name__} needs a value for {missing[0]!r}: it has {_listed(record)}")
    return record(**given)


def _by_name(members: tuple[Any, ...], word: str, name: str) -> Any:
    found = next((member for member in members if getattr(member, "__name__", "") == word and member is not type(None)), None)
    if found is None:
        raise FieldError(f"{name} is {_choices(members)}, not {word}")
    return found


def _leaf(hint: Any, data: Any, name: str) -> Any:
    """A value that is not a dataclass, from JSON or from text."""
    text = isinstance(data, str)
    if get_origin(hint) is Literal:
        options = get_args(hint)
        for option in options:
            if (data == option and type(data) is type(option)) or (text and data == str(option)):
                return option
        raise FieldError(f"{name} is {', '.join(map(str, options))}, not {data}")
    if get_origin(hint) is type:
        found = TYPES.get(data) if text else None
        if found is None:
            raise FieldError(f"{name} is an element type such as bf16, not {data}")
        return found
    if hint is bool:
        word = {"true": True, "1": True, "false": False, "0": False}.get(data.lower()) if text else data
        if isinstance(word, bool):
            return word
        raise FieldError(f"{name} is True or False, not {data}")
    if hint in (int, float):
        try:
            made = hint(data) if text else data
        except ValueError:
            made = None
        if (isinstance(made, int) and not isinstance(made, bool)) or (hint is float and isinstance(made, float)):
            return made
        raise FieldError(f"{name} is {'a whole number' if hint is int else 'a number'}, not {data}")
    if get_origin(hint) is tuple:
        (each, *_) = get_args(hint)
        return tuple(from_json(each, item, name) for item in data)
    arms = [arm for arm in get_args(hint) if arm is not type(None)]
    if get_origin(hint) in (Union, types.UnionType) and arms:
        if data is None or data == "None":
            return None
        return _leaf(next((arm for arm in arms if isinstance(arm, type) or get_origin(arm) is not None), arms[0]), data, name)
    if hint is str and text:
        return data
    raise FieldError(f"{name} cannot be {data!r}")


def named(value: Any) -> Any:
    """A member of a sum type as JSON: its name, and the fields that differ from their defaults."""
    if value is None:
        return None
    inner = to_json(value)
    return {type(value).__name__: inner} if inner else type(value).__name__


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a sum type; () for any other annotation."""
    if get_origin(hint) not in (Union, types.UnionType):
        return ()
    arms = get_args(hint)
    records = [arm for arm in arms if isinstance(arm, type) and is_dataclass(arm)]
    return arms if records and all(arm in records or arm is type(None) for arm in arms) else ()


@functools.cache
def _hints(record: type) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _listed(record: type) -> str:
    return ", ".join(_hints(record)) or "no fields"


def _choices(members: tuple[Any, ...]) -> str:
    words = ["None" if member is type(None) else member.__name__ for member in members]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _path(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


__all__ = ["FieldError", "changed", "from_json", "leaves", "named", "parsed", "records", "to_json"]
