"""A problem of the gallery: operands, the launches that solve it, and what float64 says about the result.

The same problem is simulated, launched and timed. Arrays hold the bits of their type: bf16 as uint16, e4m3 as uint8.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxkit import Kernel, device_array
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView, contiguous_strides, view
from ptxkit.runtime.overlap import refuse_overlap, refuse_shared_elements

Array = np.ndarray[Any, Any]
DTYPES = {"bf16": np.uint16, "f32": np.float32, "e4m3": np.uint8, "u8": np.uint8, "s8": np.int8, "u32": np.uint32, "s32": np.int32,
          "u64": np.uint64}


@dataclass(frozen=True)
class Step:
    """One launch: a kernel, its grid in CTAs, its arguments and its configuration.

    `constant`: the kernel begins while the launch before it ends (programmatic dependent launch), and that launch writes none of these
    arrays. All others it may still use until `griddepcontrol.wait`. None: the kernel begins afterwards.
    """

    kernel: Kernel[...]
    grid: int | tuple[int, ...]
    args: tuple[Any, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    constant: Sequence[str] | None = None

    def launch(self) -> None:
        """On the GPU, on the current stream of the arrays' library."""
        self.kernel.launch(self.grid, *self.args, pdl=self.constant is not None, **self.config)

    def simulate(self, **how: Any) -> Any:
        """On the CPU device. Returns its report."""
        others = [name for name, value in zip(self.kernel.arguments, self.args, strict=True)
                  if getattr(value, "shape", ()) and name not in (self.constant or ())]
        previous = None if self.constant is None else {"writes": others, "reads": others}
        return self.kernel.simulate(self.grid, *self.args, previous=previous, **how, **self.config)


@dataclass(frozen=True)
class Problem:
    """Operands by name, as (type, array). `steps` makes the launches for arrays of any library, by the same names.

    `right` has the float64 result of each output, and the error that rounding allows. `bytes` are those that must move, `operations` the
    multiplications and additions. `library` takes torch and its tensors and returns a function that does the same work; `library_name`
    says which. `prepare` makes tensors of a library's own from the tensors, once.
    """

    operands: Mapping[str, tuple[str, Array]]
    steps: Callable[[Mapping[str, Any]], list[Step]]
    right: Mapping[str, tuple[Array, Any]]
    bytes: int
    operations: int = 0
    library: Callable[[Any, Mapping[str, Any]], Callable[[], Any]] | None = None
    library_name: str = "torch.compile"
    decode: Mapping[str, Callable[[Array, Mapping[str, Array]], Array]] = field(default_factory=dict)
    """How the bits of an output become values, where `wide` does not say it."""

    def share(self, arrays: Mapping[str, Array]) -> float:
        """The largest error of any output, as a share of what is allowed: right up to 1."""
        return max(self._share(name, arrays) for name in self.right)

    def mismatches(self, arrays: Mapping[str, Array], most: int = 8) -> list[str]:
        """A line for each output with errors, and for the first elements that are wrong."""
        lines = []
        for name, (exact, _) in self.right.items():
            found, shares = self._shares(name, arrays)
            wrong = np.argwhere(~(shares <= 1))
            if len(wrong):
                lines.append(f"{name} {list(exact.shape)}: {len(wrong):,} of {exact.size:,} elements are wrong")
            lines += [f"{name}[{', '.join(map(str, place))}] is {found[tuple(place)]:.9g}, not {exact[tuple(place)]:.9g}"
                      for place in wrong[:most]]
        return lines

    def _share(self, name: str, arrays: Mapping[str, Array]) -> float:
        return float(np.max(self._shares(name, arrays)[1], initial=0.0))

    def _shares(self, name: str, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        """The values of an output, and each error as a share of what is allowed."""
        exact, allowed = self.right[name]
        found = self.decode[name](arrays[name], arrays) if name in self.decode else wide(self.operands[name][0], arrays[name])
        error = np.abs(found - exact)
        allowed = np.broadcast_to(np.asarray(allowed, np.float64), error.shape)
        return found, np.where(error == 0, 0.0, error / np.maximum(allowed, 2.0**-200))


def extents(what: str, array: Any) -> tuple[int, ...]:
    """The shape of an array that `what` names with its axes, as "x [rows, columns]". Refuses other numbers of axes, and arrays without
    elements: a grid has a CTA at least, and a tensor map an element."""
    name, _, axes = what.partition(" ")
    shape = getattr(array, "shape", None)
    if shape is None:
        raise ValueError(f"{name} is a {type(array).__name__}, not an array" + (f" {axes}" if axes else ""))
    if axes and len(shape) != axes.count(",") + 1:
        raise ValueError(f"{name} has shape {list(shape)}: it is {axes}")
    if 0 in shape:
        raise ValueError(f"{name} has shape {list(shape)}: without elements there is nothing to launch")
    return tuple(shape)


def apart(*written: str, **arrays: Any) -> None:
    """Refuse a `written` array that shares memory with another one: kernels read in no fixed order, and by `ld.global.nc`. Refuse one whose
    own elements share memory, too."""
    seen = {name: _view(name, array) for name, array in arrays.items()}
    for name in written:
        if name in seen:
            refuse_shared_elements(name, seen[name])
    refuse_overlap(seen.items(), written)


def _view(name: str, array: Any) -> ArrayView:
    if not isinstance(array, np.ndarray):
        return view(array, name)
    size = array.dtype.itemsize
    return ArrayView(array.ctypes.data, array.shape, tuple(stride // size for stride in array.strides), f"b{8 * size}", 0, "numpy")


def taken(**arrays: tuple[Any, Sequence[int]]) -> None:
    """Refuse arrays that a kernel would read or write past: each has the shape beside it, no gaps, and begins at 16 bytes."""
    for name, (array, shape) in arrays.items():
        if extents(name, array) != tuple(shape):
            raise ValueError(f"{name} has shape {list(array.shape)}: with the other arrays it is {list(shape)}")
        seen = _view(name, array)
        dense = all(extent == 1 or stride == step for extent, stride, step in
                    zip(seen.shape, seen.strides, contiguous_strides(seen.shape), strict=True))
        if not dense or (seen.pointer % 16 and seen.owner != "numpy"):      # the CPU device places arrays itself
            raise ValueError(f"{name} has gaps between its elements, or begins at no multiple of 16 bytes: pass a copy")


def wide(kind: str, bits: Array) -> Array:
    """The values of an array's bits, in float64."""
    if kind == "bf16":
        bits = (bits.astype(np.uint32) << 16).view(np.float32)
    if kind == "e4m3":
        exponent, mantissa = (bits >> 3) & 15, (bits & 7).astype(np.float64)
        value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent.astype(np.float64) - 7))
        return np.where(bits & 127 == 127, np.nan, np.where(bits >> 7, -value, value))
    return bits.astype(np.float64)


def narrow(values: Array) -> Array:
    """The bits of bf16 nearest to float32 values."""
    word = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((word + 0x7FFF + ((word >> 16) & 1)) >> 16).astype(np.uint16)


def normal(seed: int, *shape: int, kind: str = "bf16") -> Array:
    """Normal values, as bits of bf16 or as f32."""
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return narrow(values) if kind == "bf16" else values


def poison(kind: str, *shape: int) -> Array:
    """An output before the launch: NaN, or all bits set, so that a kernel that writes nothing is wrong."""
    if kind == "f32":
        return np.full(shape, np.nan, np.float32)
    return np.full(shape, 0xFF if kind != "bf16" else 0x7FFF, np.uint8 if kind in ("e4m3", "u8") else np.uint16).astype(DTYPES[kind])


def ulps(values: Array, kind: str = "bf16") -> Array:
    """Half a unit in the last place of bf16 or f32 at each value: what one rounding adds."""
    bits = {"bf16": 8, "f32": 24}[kind]
    found: Array = np.exp2(np.floor(np.log2(np.maximum(np.abs(values), 2.0**-120)))) * 2.0**-bits
    return found


def simulated(problem: Problem, **how: Any) -> tuple[float, list[Any]]:
    """The largest share of the allowed error on the CPU device, and the reports."""
    arrays = {name: np.array(bits) for name, (_, bits) in problem.operands.items()}
    reports = [step.simulate(**how) for step in problem.steps(arrays)]
    return problem.share(arrays), reports


def launched(problem: Problem) -> float:
    """The largest share of the allowed error on the GPU."""
    arrays = {name: device_array(bits, kind) if kind in ("bf16", "e4m3") else device_array(bits)
              for name, (kind, bits) in problem.operands.items()}
    for step in problem.steps(arrays):
        step.launch()
    return problem.share({name: array.numpy().view(problem.operands[name][1].dtype) for name, array in arrays.items()})


def report(name: str, gpu: Problem, small: Problem) -> str:
    """Run the first on a GPU or the second on the CPU device, and say in one line how near to float64 it came."""
    if driver.available("sm_90a"):
        share, where = launched(gpu), ""
    else:
        share, reports = simulated(small)
        assert all(one.verdict in ("clean", "incomplete") for one in reports), reports
        where = ", on the CPU device: there is no Hopper GPU"
    assert share <= 1, share
    return f"{name}: within {share:.2g} of what rounding allows{where}"
