"""Arrays named by a text: a .npy file, or a generator with type, shape and seed.

    normal:bf16:512x512             N(0, 1), seeded
    uniform:f32:1000:low=-1:high=1  low <= x < high
    randint:s32:16:low=0:high=10    low <= x < high
    arange:u32:64                   0, 1, 2, ...
    zeros:f32:64x64, ones:f32:8, full:f16:8:value=2.5
    poison:f32:64x64                NaN, for results; of integers, bytes of 0xa5
    weights.npy, weights.npy:bf16   a file; its bits read as another type of that width
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.arrays import NUMPY_NAMES
from ..sim import SimulationError

Make = Callable[[tuple[int, ...], Any, Mapping[str, float]], Any]
LARGEST = 1 << 32
"""Bytes of the largest array that is made."""


@dataclass(frozen=True, slots=True)
class Generator:
    """How the elements of an array are made: its options with their defaults, and the function."""

    options: Mapping[str, float]
    make: Make
    seeded: bool = False


def _random(options: Mapping[str, float]) -> Any:
    return np.random.default_rng(int(options["seed"]))


def _normal(shape: tuple[int, ...], dtype: Any, options: Mapping[str, float]) -> Any:
    return (_random(options).standard_normal(shape) * options["std"] + options["mean"]).astype(dtype)


def _uniform(shape: tuple[int, ...], dtype: Any, options: Mapping[str, float]) -> Any:
    return _random(options).uniform(options["low"], options["high"], shape).astype(dtype)


def _randint(shape: tuple[int, ...], dtype: Any, options: Mapping[str, float]) -> Any:
    return _random(options).integers(int(options["low"]), int(options["high"]), shape).astype(dtype)


def _arange(shape: tuple[int, ...], dtype: Any, options: Mapping[str, float]) -> Any:
    return (np.arange(prod(shape)) * options["step"] + options["start"]).reshape(shape).astype(dtype)


def _full(shape: tuple[int, ...], dtype: Any, options: Mapping[str, float]) -> Any:
    kind, value = np.dtype(dtype).kind, options["value"]
    if kind in "iu" and (value != int(value) or not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max):
        raise ValueError(f"{value} is no value of {np.dtype(dtype)}, which has {np.iinfo(dtype).min} to {np.iinfo(dtype).max}")
    return np.full(shape, value).astype(dtype)


def poison(shape: tuple[int, ...], dtype: Any, options: Mapping[str, float] | None = None) -> Any:
    """Values that no kernel computes: NaN with all bits set; of integers, bytes of 0xa5."""
    number = np.dtype(dtype).kind in "iub"
    return np.full(prod(shape) * np.dtype(dtype).itemsize, 0xA5 if number else 0xFF, np.uint8).view(dtype).reshape(shape)


GENERATORS: Mapping[str, Generator] = {
    "zeros": Generator({}, lambda shape, dtype, _: np.zeros(shape, dtype)),
    "ones": Generator({}, lambda shape, dtype, _: np.ones(shape).astype(dtype)),
    "full": Generator({"value": 0}, _full),
    "arange": Generator({"start": 0, "step": 1}, _arange),
    "normal": Generator({"mean": 0, "std": 1}, _normal, seeded=True),
    "uniform": Generator({"low": 0, "high": 1}, _uniform, seeded=True),
    "randint": Generator({"low": 0, "high": 100}, _randint, seeded=True),
    "poison": Generator({}, poison),
}


def is_array(text: str) -> bool:
    """Whether a text names an array: a generator or a .npy file."""
    kind, _, rest = text.partition(":")
    return (kind in GENERATORS and bool(rest)) or kind.endswith(".npy") or (bool(rest) and text.rpartition(":")[0].endswith(".npy"))


def array_of(text: str, folder: Path = Path()) -> Any:
    """The array that a text names. Files are looked for in `folder`."""
    kind, *parts = text.split(":")
    if kind not in GENERATORS:
        return _loaded(text, folder)
    if len(parts) < 2:
        raise SimulationError(f"{text}: write {kind}:TYPE:SHAPE, as in {kind}:f32:512x512")
    dtype, shape, options = dtype_of(parts[0]), _shape(parts[1], text), _options(kind, parts[2:], text)
    if (size := prod(shape) * np.dtype(dtype).itemsize) > LARGEST:
        raise SimulationError(f"{text}: {size:,} bytes, at most {LARGEST:,}")
    try:
        with np.errstate(all="ignore"):
            return GENERATORS[kind].make(shape, dtype, options)
    except (ValueError, OverflowError) as error:
        raise SimulationError(f"{text}: {error}") from None


def seeded(text: str, seed: int) -> str:
    """The text with this seed, where it names a generator that takes one and does not say it."""
    kind, *parts = text.split(":")
    wants = kind in GENERATORS and GENERATORS[kind].seeded and not any(part.startswith("seed=") for part in parts)
    return f"{text}:seed={seed}" if wants else text


def dtype_of(name: str) -> Any:
    """NumPy's type of a PTX type ("bf16", "s32"), or of NumPy's own name ("bfloat16", "int32")."""
    numpy = NUMPY_NAMES.get(name, name)
    if numpy not in NUMPY_NAMES.values():
        raise SimulationError(f"there is no element type {name!r}; there are {', '.join(NUMPY_NAMES)}")
    if numpy.startswith(("bfloat", "float8")):
        try:
            import ml_dtypes
        except ImportError:
            raise SimulationError(f"NumPy has no {name} by itself: pip install 'ptxkit[dtypes]' brings it") from None
        return np.dtype(getattr(ml_dtypes, numpy))
    return np.dtype(numpy)


def _shape(text: str, whole: str) -> tuple[int, ...]:
    extents = text.split("x")
    if not all(extent.isascii() and extent.isdigit() and int(extent) for extent in extents):
        raise SimulationError(f"{whole}: the shape is positive extents as in 512x512, not {text!r}")
    return tuple(map(int, extents))


def _options(kind: str, parts: list[str], whole: str) -> dict[str, float]:
    generator = GENERATORS[kind]
    options = {**generator.options, **({"seed": 0} if generator.seeded else {})}
    given: set[str] = set()
    for part in parts:
        name, equals, value = part.partition("=")
        if name in given:
            raise SimulationError(f"{whole}: {name} is given twice")
        given.add(name)
        if name not in options or not equals:
            raise SimulationError(f"{whole}: {kind} has no option {part!r}; it has {', '.join(options) or 'none'}")
        try:
            options[name] = int(value, 0) if value.lstrip("+-").isalnum() and value.lstrip("+-")[0].isdigit() else float(value)
        except ValueError:
            raise SimulationError(f"{whole}: {name} is a number, not {value!r}") from None
    if options.get("seed", 0) < 0 or options.get("seed", 0) != int(options.get("seed", 0)):
        raise SimulationError(f"{whole}: a seed is a whole number of at least 0")
    return options


def _loaded(text: str, folder: Path) -> Any:
    name, _, kind = text.rpartition(":") if not text.endswith(".npy") else (text, "", "")
    path = folder / name
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise SimulationError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        why = "it holds objects, or is another kind of file" if "pickle" in str(error) else str(error)
        raise SimulationError(f"{path} is no array of numbers in NumPy's format: {why}") from None
    if not isinstance(array, np.ndarray):
        raise SimulationError(f"{path} is an archive: name a .npy file with one array")
    if kind:
        dtype = dtype_of(kind)
        if dtype.itemsize != array.dtype.itemsize:
            raise SimulationError(f"{text}: {kind} has {8 * dtype.itemsize} bits, the file's {array.dtype} {8 * array.dtype.itemsize}")
        array = array.view(dtype)
    if array.dtype.kind in "SUMm":
        raise SimulationError(f"{path} has elements of {array.dtype}, which no kernel can use: save numbers")
    if array.dtype.kind == "V":
        raise SimulationError(f"{path} does not say its type ({array.dtype}): add it, as in {name}:bf16")
    return array
