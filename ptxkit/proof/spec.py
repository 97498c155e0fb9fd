"""A launch as text, as the command line and a launch file say it: arguments by generators, files and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..dsl.tensormap import TensorMap
from ..dsl.traced import Traced
from ..errors import PtxkitError, TraceError
from ..grammar import tree
from ..sim.program import entry_of
from .generators import GENERATORS, array_of, is_array, seeded
from .given import most_threads
from .launch import Launch

MAP_BYTES = 128


class SpecError(PtxkitError, ValueError):
    """A launch that is written wrongly, or that does not fit the kernel."""


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map over an array, by the array's name or text."""

    array: str
    box: tuple[int, ...]
    swizzle: int = 0
    element_strides: tuple[int, ...] | None = None
    fill: str = "zeros"
    interleave: int = 0


@dataclass(frozen=True, slots=True)
class Spec:
    """A launch as text. An argument is (name or "", value): a number, the text of an array, the name of one, or a tensor map.

    `arrays` are arrays by name that are no arguments themselves.

    The source is a PTX file or module:kernel; `config` are the texts of --set.
    """

    source: str
    grid: tuple[int, ...] | None = None
    entry: str | None = None
    block: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    dynamic_smem: int | None = None
    config: tuple[str, ...] = ()
    arrays: tuple[tuple[str, str], ...] = ()
    arguments: tuple[tuple[str, str | Map], ...] = ()
    schedules: int | None = None
    schedule: str = "fifo"
    seed: int = 0
    max_steps: int | None = None
    previous_reads: tuple[str, ...] = ()
    previous_writes: tuple[str, ...] = ()
    folder: Path = field(default=Path())

    def resolved(self, module: tree.Module, name: str | None) -> Spec:
        """The same launch with each argument at its parameter, in the order of PTX, and with the seeds of its arrays."""
        function = entry_of(module, self.entry or name)
        given = self._given()
        placed = _placed(given, function)
        if missing := [f"`{parameter.name}` ({needs(parameter)})" for parameter in function.parameters if parameter.name not in placed]:
            count = len(function.parameters)
            raise SpecError(f"`{function.name}` has {count} parameter{'s' * (count != 1)}, and nothing is given for {', '.join(missing)}")
        used = {value.array if isinstance(value, Map) else value for value in placed.values()}
        arrays = tuple((each.label, each.declares) for each in given if each.declares and each.label in used)
        return replace(self, entry=function.name, arrays=arrays, arguments=tuple((p.name, placed[p.name]) for p in function.parameters),
                       block=self.block or most_threads(function))

    def launch(self, source: tree.Module | Traced) -> Launch:
        """The launch of a resolved spec: makes the arrays."""
        module = source.module if isinstance(source, Traced) else source
        function = entry_of(module, self.entry)
        if self.grid is None:
            raise SpecError(f"`{function.name}` does not say its grid: give the number of CTAs, --grid 4 or --grid 4x2")
        if self.block is None and not any(directive.name == "reqntid" for directive in function.directives):
            raise SpecError(f"`{function.name}` does not say its block: give the number of threads, --block 128 or --block 16x8")
        labels = [label for label, _ in self.arrays]
        for parameter, (name, value) in zip(function.parameters, self.arguments, strict=True):
            if is_map(parameter) and value in labels and not isinstance(source, Traced):
                raise SpecError(f"`{name}` is a tensor map: say which, as in --tensormap {name}={value},box=64x64,swizzle=128")
        made = {label: array_of(text, self.folder) for label, text in self.arrays}
        args = tuple(_value(name, value, made) for name, value in self.arguments)
        previous = {"reads": self.previous_reads, "writes": self.previous_writes}
        return Launch(function.name, source, self.grid, args, self.block, self.cluster, self.dynamic_smem, made,
                      previous=previous if any(previous.values()) else None)

    def _given(self) -> list[_Given]:
        """Each argument; arrays that are written out get a name and a seed of their own."""
        found: list[_Given] = []
        labels: set[str] = set()
        given = [*((name, text, True) for name, text in self.arrays), *((name, value, False) for name, value in self.arguments)]
        for name, value, only in given:
            text = value.array if isinstance(value, Map) else value
            declared = ""
            if is_array(text):
                label = name or f"array{len(labels)}"
                if label in labels:
                    raise SpecError(f"two arrays are called `{label}`")
                declared, text = seeded(text, len(labels)), label
                labels.add(label)
            found.append(_Given(name, replace(value, array=text) if isinstance(value, Map) else text, declared, only))
        for each in found:
            if isinstance(each.value, Map) and each.value.array not in labels:
                has = ", ".join(sorted(labels)) or "none"
                raise SpecError(f"the tensor map {each.name or each.value.array}: there is no array {each.value.array!r}; there are {has}")
        return found


@dataclass(frozen=True, slots=True)
class _Given:
    """An argument whose array has a name. `declares` is the text of the array where this argument is the one that says it.

    `only` where it is an array and no argument.
    """

    name: str
    value: str | Map
    declares: str
    only: bool

    @property
    def is_map(self) -> bool:
        return isinstance(self.value, Map)

    @property
    def label(self) -> str:
        """The name of the array."""
        return self.value.array if isinstance(self.value, Map) else self.value


def _placed(given: Sequence[_Given], function: tree.Function) -> dict[str, str | Map]:
    """What each parameter gets: first those named, then the maps at the parameters that are maps, then the others in order.

    An array that a tensor map is over need not be an argument itself: it is one if it has the name of a parameter.
    """
    mapped = {each.label for each in given if each.is_map}
    names = {parameter.name for parameter in function.parameters}
    for each in given:
        if each.name and each.name not in names and not (each.declares or each.is_map or each.only):   # it names no array either
            near = get_close_matches(each.name, names, 1)
            has = ", ".join(f"`{parameter.name}`" for parameter in function.parameters) or "none"
            raise SpecError(f"`{function.name}` has no parameter `{each.name}`; "
                            + (f"did you mean `{near[0]}`?" if near else f"it has {has}. Without a name a value is for the next parameter"))
    placed: dict[str, str | Map] = {}
    for each in sorted((each for each in given if each.name in names and not each.only), key=lambda each: not each.is_map):
        if each.name not in placed:
            placed[each.name] = each.value
        elif not (each.declares and each.label in mapped):
            raise SpecError(f"two arguments are for the parameter `{each.name}`")
    rest = [each for each in given if each.name not in names and not each.only]
    plain = [each for each in rest if not each.is_map and not (each.declares and each.label in mapped)]
    _fill(placed, [each for each in rest if each.is_map], [parameter for parameter in function.parameters if is_map(parameter)], function)
    _fill(placed, plain, function.parameters, function)
    return placed


def _fill(placed: dict[str, str | Map], given: Sequence[_Given], parameters: Sequence[tree.Variable], function: tree.Function) -> None:
    """Put the arguments at those of the parameters that are free, in order."""
    free = [parameter.name for parameter in parameters if parameter.name not in placed]
    if len(given) > len(free):
        left = given[len(free)]
        has = ", ".join(f"`{parameter.name}` ({needs(parameter)})" for parameter in function.parameters) or "none"
        what = "tensor maps" if left.is_map else "arguments"
        raise SpecError(f"too many {what}: no parameter of `{function.name}` is left for {left.name or left.label}; it has {has}")
    placed.update(zip(free, (each.value for each in given), strict=False))


def map_of(text: str) -> Map:
    """The tensor map of `ARRAY,box=64x64,swizzle=128,element_strides=1x2,fill=nan,interleave=none`."""
    array, *parts = text.split(",")
    given: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or name not in _FIELDS:
            raise SpecError(f"--tensormap: there is no {part!r}; there are {', '.join(f'{each}=' for each in _FIELDS)}")
        given[name] = _FIELDS[name](name, value)
    if not array or "box" not in given:
        raise SpecError(f"--tensormap {text}: write ARRAY,box=64x64, with the extents in the order of the array's shape")
    return Map(array, **given)


def extents_of(text: str, what: str) -> tuple[int, ...]:
    """One to three positive extents: `4`, `4x2`, `4,2,1`."""
    parts = text.replace(",", "x").split("x")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise SpecError(f"{what} is one to three positive extents as in 4 or 4x2, not {text!r}")
    return tuple(map(int, parts))


def _value(name: str, value: str | Map, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, Map):
        array = arrays[value.array]
        try:
            return TensorMap(array, box=value.box, swizzle=value.swizzle, interleave=value.interleave,
                             element_strides=value.element_strides, fill=value.fill)
        except TraceError as error:
            raise SpecError(f"--tensormap {name}: {error.message}") from None
    if value in arrays:
        return arrays[value]
    try:
        return int(value, 0)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        has = f"; there are {', '.join(arrays)}" if arrays else ""
        kinds = ", ".join(kind for kind in GENERATORS if kind != "normal")
        raise SpecError(f"--arg {value}: neither a number, nor a .npy file, nor a generator (normal:bf16:512x512; there are also {kinds}), "
                        f"nor the name of an array{has}") from None


def is_map(parameter: tree.Variable) -> bool:
    """Whether a parameter has the form of a tensor map."""
    return parameter.type == "b8" and parameter.shape == (MAP_BYTES,)


def needs(parameter: tree.Variable) -> str:
    """What to give for a parameter, in words."""
    if is_map(parameter):
        return "a tensor map, or 128 bytes"
    if parameter.shape:
        return f"{' x '.join(map(str, parameter.shape))} elements of .{parameter.type}"
    if parameter.pointer is not None:
        return "an array"
    return "an array, or a 64-bit number" if parameter.type in ("u64", "b64") else f"a number of type .{parameter.type}"


def _extent_text(name: str, text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if not all(part.isdigit() and int(part) for part in parts):
        raise SpecError(f"--tensormap: {name} is positive extents as in 64x64, not {text!r}")
    return tuple(map(int, parts))


def _bytes_text(name: str, text: str) -> int:
    if text == "none":
        return 0
    if not text.isdigit():
        raise SpecError(f"--tensormap: {name} is none or a number of bytes, not {text!r}")
    return int(text)


_FIELDS: dict[str, Callable[[str, str], Any]] = {
    "box": _extent_text, "swizzle": _bytes_text, "element_strides": _extent_text, "fill": lambda _, text: text, "interleave": _bytes_text}
