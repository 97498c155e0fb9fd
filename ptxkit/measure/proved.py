"""Whether a launch computed what it should: by a function of the user's, or by references for some of its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dsl.tensormap import TensorMap
from ..errors import PtxkitError
from .asked import Arguments, Check, Device
from .device import is_array
from .values import apart

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel

TOLERANCES = {"f64": 1e-12, "f32": 1e-4, "f16": 2e-3, "bf16": 1e-2, "e4m3": 6e-2, "e5m2": 1.2e-1}
"""The relative error, by the Frobenius norm, that a right result stays under: rounding of the result, and sums in another order.
Integers are equal."""


class CheckGivenError(PtxkitError, ValueError):
    """A check that cannot be made: no function and no mapping, of a name that is no argument, or of another shape than the argument's."""


class Proof:
    """The check of a kernel's launches on copies of some arguments. `pristine` is not written."""

    def __init__(self, kernel: Kernel[...], device: Device, pristine: Arguments, check: Check, tolerance: float | None = None) -> None:
        self.device, self.pristine, self.check, self.tolerance = device, pristine, check, tolerance
        self.names = kernel.arguments
        self.references: dict[str, Any] = {}
        self.same: set[str] = set()
        self.right: dict[str, Any] = {}             # the bytes of a right result: most others are the same
        if check is not None and not callable(check) and not isinstance(check, Mapping):
            last = self.names[-1] if self.names else "y"
            raise CheckGivenError(f"check= is {type(check).__name__}: give a function of the arguments, or what a named argument must "
                                  f"hold, as {{'{last}': expected}}")
        if isinstance(check, Mapping):
            for name, given in check.items():
                self._refer(kernel, name, given)

    def _refer(self, kernel: Kernel[...], name: str, given: Any) -> None:
        if name not in self.names:
            raise CheckGivenError(f"check= names `{name}`, the arguments of kernel `{kernel.name}` are {', '.join(self.names)}")
        before = _array(self.pristine[self.names.index(name)])
        if not is_array(before):
            raise CheckGivenError(f"check= names `{name}`, which is {before!r}: a reference is for an array")
        wanted = given(*self.pristine) if callable(given) else given
        holds = self.device.values(before)
        self.references[name] = reference = _float64(self.device, wanted)
        if reference.shape != holds.shape:
            raise CheckGivenError(f"the reference of `{name}` has shape {reference.shape}, the argument {holds.shape}")
        if reference.size and not np.isfinite(reference).any():
            raise CheckGivenError(f"the reference of `{name}` has no finite number, so that it proves nothing")
        if apart(holds, reference) <= self._allowed(before):
            self.same.add(name)

    def prepare(self, arguments: Arguments) -> None:
        """Arguments as they were given. A result that is right before the launch would be right without one: it is filled with NaN."""
        self.device.restore(arguments, self.pristine)
        for name in self.same:
            self.device.poison(_array(arguments[self.names.index(name)]))

    def fault(self, arguments: Arguments) -> str | None:
        """What is wrong after a launch; None when nothing is."""
        if callable(self.check):
            return _said(self.check, arguments)
        for name, reference in self.references.items():
            array = _array(arguments[self.names.index(name)])
            raw = self.device.raw(array)
            if name in self.right and np.array_equal(raw, self.right[name]):
                continue
            error, allowed = apart(self.device.values(array, raw), reference), self._allowed(array)
            if not error <= allowed:
                return f"`{name}` differs from its reference by {error:.2g} of its norm, {allowed:g} is allowed"
            self.right[name] = raw
        return None

    def _allowed(self, array: Any) -> float:
        word = str(getattr(array, "dtype", "")).removeprefix("torch.")
        names = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
        known = TOLERANCES.get(names.get(word, word), 0.0)
        return known if self.tolerance is None else self.tolerance


def _array(value: Any) -> Any:
    return value.array if isinstance(value, TensorMap) else value


def _float64(device: Device, wanted: Any) -> Any:
    if isinstance(wanted, np.ndarray | np.generic | list | tuple | float | int):
        return np.asarray(wanted).astype(np.float64)
    if getattr(wanted, "device", None) is not None and str(wanted.device) == "cpu":       # torch's tensors of the host
        return np.asarray(wanted.double().numpy())
    return device.values(wanted)


def _said(check: Callable[..., Any], arguments: Arguments) -> str | None:
    try:
        said = check(*arguments)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return lines[0].strip() if lines else "an assertion of the check failed"
    if said is None or said is True or (isinstance(said, np.bool_) and bool(said)):
        return None
    return said if isinstance(said, str) and said else "the check says no"


__all__ = ["TOLERANCES", "Check", "CheckGivenError", "Proof"]
