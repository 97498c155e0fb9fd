"""Arguments of a compiled function of CuTe DSL: what its signature and its names say of them. Its own call looks at nothing.

Annotations say what is a tensor and what is a number. Types of elements stand in the mangled names of the function and its kernels.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from ..proof.launch import own
from ..sim import SimulationError
from .tensors import checked, is_tensor

_NAMES = {"Float16": "float16", "BFloat16": "bfloat16", "Float32": "float32", "TFloat32": "float32", "Float64": "float64", "Int8": "int8",
          "Int16": "int16", "Int32": "int32", "Int64": "int64", "Uint8": "uint8", "Uint16": "uint16", "Uint32": "uint32",
          "Uint64": "uint64", "Boolean": "bool", "Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2"}
"""Types of elements as the name of a function has them, and as NumPy does."""
_FAKE = re.compile(rf"(?<=_)FakeTensor({'|'.join(sorted(_NAMES, key=len, reverse=True))})")


def name_of(kernel: Any) -> str:
    """The function's name, without what CuTe DSL appends of its arguments."""
    return re.split(r"_(?:Fake)?Tensor", str(kernel.function_name))[0].removeprefix("cutlass_")


def of_cute(value: Any) -> bool:
    """Whether the value is a tensor of CuTe's run time, as from_dlpack makes them."""
    return hasattr(value, "__c_pointers__") and hasattr(value, "element_type")


def bound(kernel: Any, args: Sequence[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name. Arrays of other libraries become NumPy's, NumPy's numbers Python's; what cannot be is refused by name."""
    signature = kernel.execution_args.signature
    try:
        placed = signature.bind(*args, **config)
    except TypeError as error:
        raise SimulationError(f"`{name_of(kernel)}` takes {', '.join(signature.parameters)}: {error}") from None
    placed.apply_defaults()
    given = {name: _taken(name, signature.parameters[name].annotation, value) for name, value in placed.arguments.items()}
    _judge(kernel, [(name, value) for name, value in given.items() if _is_tensor(signature.parameters[name].annotation)])
    return given


def as_cute_takes_them(kernel: Any, given: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments, by place where they have one. Arrays are taken by DLPack, which has no names for NumPy's bf16 and fp8: their bits."""
    placed = inspect.BoundArguments(kernel.execution_args.signature, dict(given))
    for name, value in given.items():
        if isinstance(value, np.ndarray) and value.dtype.kind not in "iufb":
            placed.arguments[name] = value.view(f"u{value.dtype.itemsize}")
    return placed


def _is_tensor(annotation: Any) -> bool:
    return getattr(annotation, "__name__", "") == "Tensor"


def _taken(name: str, annotation: Any, value: Any) -> Any:
    """One argument; an annotation says whether it is a tensor or a number."""
    numeric = hasattr(annotation, "width")                      # Int32, Float32 and their like
    if isinstance(value, np.generic):
        value = value.item()
    if of_cute(value):
        if numeric:
            raise SimulationError(f"`{name}` is a number ({annotation.__name__}), not a tensor")
        return value
    if is_tensor(value):
        if numeric:
            raise SimulationError(f"`{name}` is a number ({annotation.__name__}), not an array")
        return own(checked(name, value))
    if _is_tensor(annotation):
        raise SimulationError(f"`{name}` is a tensor: pass an array, not {value!r}")
    if numeric and not isinstance(value, Real) and type(value).__module__.partition(".")[0] != "cutlass":
        raise SimulationError(f"`{name}` is a number ({annotation.__name__}): pass one, not {value!r}")
    if annotation is inspect.Parameter.empty and isinstance(value, str | bytes | list | dict | set):
        raise SimulationError(f"`{name}` is {value!r}: pass an array or a number")
    return value


def _judge(kernel: Any, tensors: Sequence[tuple[str, Any]]) -> None:
    """Raise where an array has other elements than the function was compiled for. Unsigned numbers are taken for the bits of any type."""
    wanted = [_NAMES[word] for word in _FAKE.findall(str(kernel.function_name))]
    if len(wanted) != len(tensors):
        return                                                  # compiled for real tensors: their names do not say it
    for (name, value), type_ in zip(tensors, wanted, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype.name == type_:
            continue
        size = 2 if type_ == "bfloat16" else 1 if type_.startswith("float8") else np.dtype(type_).itemsize
        if value.dtype.kind != "u" or value.dtype.itemsize != size:
            raise SimulationError(f"`{name}` has elements of {value.dtype}: `{name_of(kernel)}` was compiled for {type_}")
