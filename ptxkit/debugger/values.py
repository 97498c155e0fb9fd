"""Values as a session shows them: bits as numbers of a type, 32 lanes in as few words as they need, matrices of elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..html.parts import framed, table, title
from ..sim.errors import SimulationError
from ..sim.formats import decode
from ..sim.values import FULL, Array, lane_list, lanes
from .tables import aligned

PLAIN: dict[str, Any] = {
    "u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16, "u32": np.uint32, "s32": np.int32,
    "b32": np.uint32, "u64": np.uint64, "s64": np.int64, "b64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64}
CODED = {"bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}
"""Types without one of NumPy's: bytes of an element."""
PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "u16x2": "u16", "s16x2": "s16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}
MOST = 16
"""Rows and columns of a matrix that are shown; the middle of a larger one is left out."""


def element_bytes(type: str) -> int:
    if type not in PLAIN and type not in CODED:
        raise SimulationError(f"there is no element type {type!r}; there are {', '.join((*PLAIN, *CODED))}")
    return CODED.get(type) or int(np.dtype(PLAIN[type]).itemsize)


def elements(data: Array, type: str) -> Array:
    """Bytes (any shape, the last axis those of whole elements) as numbers; 8- and 16-bit floats and tf32 as float32."""
    element_bytes(type)
    data = np.ascontiguousarray(data)
    return decode(data, type) if type in CODED else data.view(PLAIN[type])


def numbers(value: Any, bits: int, type: str) -> Array:
    """A register's value as 32 numbers: booleans, integers or floats; bits of no such type as unsigned integers."""
    if bits == 1:
        return np.full(32, value, np.bool_) if isinstance(value, bool) else value
    if bits == 128:
        return np.array([value] * 32 if isinstance(value, int) else [int(low) | int(high) << 64 for low, high in value], object)
    words = np.full(32, value, PLAIN[f"u{bits}"]) if isinstance(value, int) else value.astype(PLAIN[f"u{bits}"])
    return words.view(PLAIN[type]) if type in PLAIN and np.dtype(PLAIN[type]).itemsize * 8 == bits else words


def compact(values: Array, mask: int) -> str:
    """The lanes of the mask: one number where all have it, `a + b * lane` where that is so, else what each lane has, runs together."""
    chosen = lane_list(mask)
    if not chosen:
        return "no lanes"
    shown = [number(values[lane]) for lane in chosen]
    if len(set(shown)) == 1:
        return shown[0]
    if values.dtype.kind == "b":
        return "true in lanes " + ranges([lane for lane in chosen if values[lane]])
    line = _line(values, chosen)
    runs = _runs(chosen, shown)
    if line or len(runs) > 4:
        return line or " ".join(shown)
    return ", ".join(f"lane {first}: {each}" if first == last else f"lanes {first}-{last}: {each}" for first, last, each in runs)


def _line(values: Array, chosen: tuple[int, ...]) -> str:
    if values.dtype.kind not in "iu" or len(chosen) < 3:
        return ""
    given = [int(values[lane]) for lane in chosen]
    step, rest = divmod(given[1] - given[0], chosen[1] - chosen[0])
    start = given[0] - step * chosen[0]
    if rest or any(start + step * lane != value for lane, value in zip(chosen, given, strict=True)):
        return ""
    times = "lane" if step == 1 else f"{step} * lane"
    return times if not start else f"{start} + {times}"


def _runs(chosen: tuple[int, ...], shown: list[str]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for lane, each in zip(chosen, shown, strict=True):
        if found and found[-1][1] == lane - 1 and found[-1][2] == each:
            found[-1] = found[-1][0], lane, each
        else:
            found.append((lane, lane, each))
    return found


def ranges(numbers: list[int]) -> str:
    """"0-3, 7"."""
    runs = _runs(tuple(numbers), [""] * len(numbers))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b, _ in runs)


def lanes_words(mask: int) -> str:
    """The lanes of a mask in words; of all 32 there is nothing to say."""
    return "" if mask == FULL else ranges(list(lane_list(mask)))


def number(value: Any, digits: int = 6) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.floating | float):
        return f"{float(value):.{digits}g}"
    return str(int(value))


def digits_of(type: str) -> int:
    """The digits that tell numbers of a type apart, but for the last."""
    return {"bf16": 3, "f16": 4, "e4m3": 3, "e5m2": 3, "tf32": 4}.get(type, 6)


def address(value: int) -> str:
    return f"{value:#x}"


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Elements of memory as numbers. `what` says which; `values` is the NumPy array, whose floats are shown with so many digits."""

    what: str
    values: Array
    digits: int = 6

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.values if dtype is None else self.values.astype(dtype)

    def _cells(self) -> list[list[str]]:
        """With numbers of rows and columns before them; "..." stands for the middle of a large one. A vector has eight elements a row."""
        if self.values.ndim < 2:
            return self._vector(self.values.reshape(-1))
        table = self.values.reshape(-1, self.values.shape[-1])
        rows, columns = _ends(table.shape[0]), _ends(table.shape[1])
        cells = [["", *("..." if c is None else str(c) for c in columns)]]
        for r in rows:
            cells.append(["..." if r is None else str(r),
                          *("" if r is None else "..." if c is None else number(table[r, c], self.digits) for c in columns)])
        return cells

    def _vector(self, values: Array) -> list[list[str]]:
        across = min(len(values), 8)
        cells = [["", *map(str, range(across))]]
        for first in _ends(-(-len(values) // 8)):
            row = [] if first is None else [number(value, self.digits) for value in values[8 * first:8 * first + 8]]
            cells.append(["..." if first is None else str(8 * first), *row, *[""] * (across - len(row))])
        return cells

    def __repr__(self) -> str:
        return f"{self.what}\n{aligned(self._cells(), right=True)}"

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        return framed(title(self.what), table(head, rows, numbers=range(len(head)), mono=True))


def _ends(count: int) -> list[int | None]:
    if count <= MOST:
        return list(range(count))
    return [*range(MOST // 2), None, *range(count - MOST // 2, count)]


__all__ = ["Matrix", "compact", "elements", "lanes", "numbers"]
