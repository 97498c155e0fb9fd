"""The TOML file of a launch: `ptxkit simulate --record FILE` writes it, and `--spec FILE` runs it again."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..files import read_text, write_whole
from .generators import is_array
from .spec import Map, Spec, SpecError

_SIMPLE = ("entry", "grid", "block", "cluster", "dynamic_smem", "config", "schedules", "schedule", "seed", "max_steps",
           "previous_reads", "previous_writes")
_MAP = ("box", "swizzle", "element_strides", "fill", "interleave")


def write_spec(spec: Spec, path: Path) -> None:
    """Write a resolved spec, all of it or nothing. The names of files become relative to the file's folder."""
    def moved(name: str) -> str:
        return os.path.relpath(name, path.parent)

    lines = _lines(spec, moved, lambda name: os.path.relpath(spec.folder / name, path.parent))
    write_whole(path, ("\n".join(lines) + "\n").encode())


def read_spec(path: Path) -> Spec:
    """The spec of a file that `write_spec` made, or that was written by hand."""
    try:
        data = tomllib.loads(read_text(path))
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is no TOML: {error}") from None
    except RecursionError:
        raise SpecError(f"{path} is no launch file: it is nested too deeply") from None
    try:
        return _spec(data, path.parent)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


# ---------------------------------------------------------------------------------------------------- to TOML


def _lines(spec: Spec, source: Callable[[str], str], moved: Callable[[str], str]) -> Iterator[str]:
    yield "# A launch for `ptxkit simulate --spec FILE`. Names of files are relative to this file."
    yield f"source = {_toml(_source(spec.source, source))}"
    for name in _SIMPLE:
        value = getattr(spec, name)
        if value is not None and value != () and not (spec.schedules is not None and name in ("schedule", "seed")):
            yield f"{name} = {_toml(value)}"
    arrays = dict(spec.arrays)
    if arrays:
        yield from ("", "[arrays]", *(f"{_toml(name)} = {_toml(_moved(text, moved))}" for name, text in arrays.items()))
    for name, value in spec.arguments:
        yield from ("", "[[arguments]]", f"parameter = {_toml(name)}")
        if isinstance(value, Map):
            yield f"array = {_toml(value.array)}"
            yield from (f"{key} = {_toml(given)}" for key in _MAP if (given := getattr(value, key)) is not None)
        else:
            yield f"{'array' if value in arrays else 'value'} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def _moved(text: str, moved: Callable[[str], str]) -> str:
    """The text of an array, with the name of its file elsewhere."""
    file, colon, kind = (text, "", "") if text.endswith(".npy") else text.rpartition(":")
    return moved(file) + colon + kind if file.endswith(".npy") else text


def _source(source: str, moved: Callable[[str], str]) -> str:
    """The source, with the name of its file elsewhere."""
    place, colon, attribute = source.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{moved(place)}:{attribute}"
    return source if colon and all(part.isidentifier() for part in place.split(".")) else moved(source)


# ---------------------------------------------------------------------------------------------------- from TOML


def _spec(data: Mapping[str, Any], folder: Path) -> Spec:
    if unknown := [name for name in data if name not in (*_READ, "arrays", "arguments")]:
        raise SpecError(f"there is no key {unknown[0]!r}; there are {', '.join((*_READ, 'arrays', 'arguments'))}")
    if "source" not in data:
        raise SpecError("source is missing: the PTX file or module:kernel")
    values = {name: _READ[name](name, value) for name, value in data.items() if name in _READ}
    values["source"] = _source(values["source"], lambda name: os.path.relpath(folder / name))
    arrays, arguments = data.get("arrays", {}), data.get("arguments", [])
    if not isinstance(arrays, dict) or not isinstance(arguments, list) or not all(isinstance(each, dict) for each in arguments):
        raise SpecError("[arrays] is a table of texts, and [[arguments]] is a list of tables")
    return Spec(**values, arrays=tuple((name, _array(name, text)) for name, text in arrays.items()),
                arguments=tuple(_argument(each, arrays) for each in arguments), folder=folder)


def _argument(given: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[str, str | Map]:
    known = ("parameter", "array", "value", *_MAP)
    if unknown := [name for name in given if name not in known]:
        raise SpecError(f"an argument has no key {unknown[0]!r}; there are {', '.join(known)}")
    name = _text("parameter", given.get("parameter", ""))
    if ("array" in given) is ("value" in given):
        raise SpecError(f"the argument {name} has one of array and value")
    fields = {key: value for key, value in given.items() if key in _MAP}
    if "value" in given:
        return name, str(given["value"])
    array = _text("array", given["array"])
    if array not in arrays:
        raise SpecError(f"the argument {name}: there is no array {array!r} in [arrays]")
    if not fields:
        return name, array
    if "box" not in fields:
        raise SpecError(f"the tensor map {name} has no box")
    return name, Map(array, **{key: _MAP_READ[key](key, value) for key, value in fields.items()})


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{name} is a text, not {value!r}")
    return value


def _number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(f"{name} is a whole number, not {value!r}")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SpecError(f'{name} is a list of texts as in ["BM=64"], not {value!r}')
    return tuple(value)


def _extents(name: str, value: Any) -> tuple[int, ...]:
    extents = value if isinstance(value, list) else [value]
    if not extents or any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in extents):
        raise SpecError(f"{name} is positive extents as in [4, 2], not {value!r}")
    return tuple(extents)


def _array(name: str, value: Any) -> str:
    if not isinstance(value, str) or not is_array(value):
        raise SpecError(f"the array {name} is a generator (normal:bf16:512x512) or a .npy file, not {value!r}")
    return value


_READ: dict[str, Callable[[str, Any], Any]] = {
    "source": _text, "entry": _text, "grid": _extents, "block": _extents, "cluster": _extents, "dynamic_smem": _number,
    "config": _texts, "schedules": _number, "schedule": _text, "seed": _number, "max_steps": _number,
    "previous_reads": _texts, "previous_writes": _texts}
_MAP_READ: dict[str, Callable[[str, Any], Any]] = {
    "box": _extents, "swizzle": _number, "element_strides": _extents, "fill": _text, "interleave": _number}
