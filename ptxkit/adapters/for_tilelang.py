"""TileLang kernels: lowered to CUDA C for sm_90a, without a GPU, and to PTX by the nvcc of the toolchain extra.

The lowered host function is read, not run: it makes the tensor maps, and calls the kernel with its arguments, its grid and block, and its
shared memory. Extents that are symbols are those of the arrays.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ..dsl.tensormap import TensorMap
from ..errors import NoToolError, PtxkitError
from ..files import temporary_folder
from ..grammar import parse
from ..proof.launch import Launch, own
from ..runtime.toolchain import ptxas
from ..sim import SimulationError
from ..sim.program import entry_of
from . import version_of
from .for_cute import HOST_TYPES
from .tensors import checked, is_tensor

_MAKES_MAP = "__tvm_tensormap_create_tiled"
_NVCC_SECONDS = 300


def launch_of(kernel: Any, grid: Any, args: Sequence[Any], config: Mapping[str, Any]) -> Launch:
    """The launch of a function with @T.prim_func, or of a kernel that was compiled of one."""
    function = getattr(kernel, "prim_func", kernel)
    if not hasattr(function, "buffer_map"):
        raise SimulationError(f"{kernel!r} is no kernel of TileLang: pass a function with @T.prim_func")
    if grid is not None:
        args = (grid, *args)                                    # T.Kernel has the grid: this is the first argument
    values = _bound(function, args, config)
    artifact = _lowered(function)
    calls = list(_calls(artifact.host_mod))
    devices = {str(device.attrs["global_symbol"]): device for device in artifact.device_mod.functions.values()}
    launches = [(name, given) for name, given in calls if name in devices]
    if len(launches) != 1:
        raise SimulationError(f"`{function.attrs['global_symbol']}` launches {len(launches)} kernels: ptxkit proves functions with one")
    for name, (made, *fields) in calls:
        if name == _MAKES_MAP:
            values[made.name] = _map(made.name, [_value(field, values) for field in fields])
    (name, given), = launches
    device = devices[name]
    count = len(device.params)
    shape = dict(zip(map(str, device.attrs["tirx.kernel_launch_params"]), [_value(each, values) for each in given[count:]], strict=True))
    ctas = _extents(shape, "blockIdx")
    if 0 in ctas:
        raise SimulationError(f"`{function.attrs['global_symbol']}` launches a grid of {' x '.join(map(str, ctas))} CTAs where "
                              f"{', '.join(f'{name} is {value}' for name, value in values.items() if isinstance(value, int))}")
    text = _ptx(artifact.kernel_source)
    module = parse(text)
    entry_of(module, name)
    arrays = {each: value for each, value in values.items() if isinstance(value, np.ndarray)}
    return Launch(name, module, ctas, tuple(_value(each, values) for each in given[:count]),
                  _extents(shape, "threadIdx"), None, shape.get("tirx.use_dyn_shared_memory", 0), arrays,
                  f"TileLang {version_of('tilelang')}", text, names=tuple(str(getattr(each, 'name', each)) for each in given[:count]))


def _bound(function: Any, args: Sequence[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, and the symbols among the extents of the arrays."""
    names = [function.buffer_map[each].data.name if each in function.buffer_map else each.name for each in function.params]
    takes = f"`{function.attrs['global_symbol']}` takes {', '.join(names)}"
    if unknown := [name for name in config if name not in names]:
        raise SimulationError(f"{takes}: there is no {', '.join(unknown)} (a function with @T.prim_func has no compile-time parameters)")
    by_place = [name for name in names if name not in config]
    if len(args) != len(by_place):
        raise SimulationError(f"{takes}: {len(args) + len(config)} arguments were given")
    given = {**config, **dict(zip(by_place, args, strict=True))}
    values: dict[str, Any] = {}
    for name, parameter in zip(names, function.params, strict=True):
        value = given[name]
        if parameter not in function.buffer_map:
            if not isinstance(value, Real):
                shown = "an array" if is_tensor(value) else repr(value)
                raise SimulationError(f"`{name}` is a number ({parameter.dtype}): pass one, not {shown}")
            values[name] = value
            continue
        if not is_tensor(value):
            raise SimulationError(f"`{name}` is a tensor: pass an array, not {value!r}")
        array, buffer = own(checked(name, value)), function.buffer_map[parameter]
        if array.ndim != len(buffer.shape) or array.dtype.name != str(buffer.dtype):
            raise SimulationError(f"`{name}` has {len(buffer.shape)} dimensions of {buffer.dtype}, the array {array.ndim} of {array.dtype}")
        if not array.flags.c_contiguous:
            raise SimulationError(f"`{name}` is not contiguous: pass a copy")
        values[name] = array
        for extent, wanted in zip(array.shape, buffer.shape, strict=True):
            if hasattr(wanted, "name"):
                if values.setdefault(wanted.name, extent) != extent:
                    raise SimulationError(f"`{name}`: {wanted.name} is {values[wanted.name]} and {extent}")
            elif hasattr(wanted, "value") and int(wanted) != extent:
                raise SimulationError(f"`{name}` is {' x '.join(map(str, buffer.shape))}, the array {' x '.join(map(str, array.shape))}")
    return values


def _lowered(function: Any) -> Any:
    import tilelang  # pyright: ignore[reportMissingImports]
    from tilelang import tvm  # pyright: ignore[reportMissingImports]

    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    try:
        with target:
            return tilelang.lower(function, target=target, enable_host_codegen=False, enable_device_compile=False)
    except Exception as error:
        raise PtxkitError(f"TileLang cannot compile `{function.attrs['global_symbol']}`: {type(error).__name__}: {error}") from error


def _calls(module: Any) -> Iterator[tuple[str, list[Any]]]:
    """The packed calls of the host functions: name and arguments."""
    from tilelang import tvm  # pyright: ignore[reportMissingImports]

    found: list[tuple[str, list[Any]]] = []

    def look(node: Any) -> None:
        if isinstance(node, tvm.tirx.Call) and getattr(node.op, "name", "").endswith("tvm_call_packed"):
            found.append((node.args[0].value, list(node.args[1:])))

    for host in module.functions.values():
        tvm.tirx.stmt_functor.post_order_visit(host.body, look)
    yield from found


def _value(expression: Any, values: Mapping[str, Any]) -> Any:
    """What an argument of a call is: an array, a tensor map or a number."""
    from tilelang import tvm  # pyright: ignore[reportMissingImports]

    if isinstance(expression, tvm.tirx.Var) and expression.name in values:
        return values[expression.name]
    symbols: dict[Any, Any] = {}

    def look(node: Any) -> None:
        if isinstance(node, tvm.tirx.Var) and node.name in values:
            symbols[node] = tvm.tirx.const(values[node.name], node.dtype)

    tvm.tirx.stmt_functor.post_order_visit(expression, look)
    found = tvm.arith.Analyzer().simplify(tvm.tirx.stmt_functor.substitute(expression, symbols))
    if not hasattr(found, "value"):
        raise SimulationError(f"`{found}` of TileLang's host code is not known before the launch")
    return found.value


def _map(name: str, fields: Sequence[Any]) -> TensorMap:
    """The tensor map of what `__tvm_tensormap_create_tiled` is called with; its strides begin with that of the contiguous dimension."""
    kind, rank, array, *rest = fields
    if not isinstance(array, np.ndarray):
        raise SimulationError(f"`{name}` is a tensor map of {array!r}, which is no argument's array")
    dims, strides, box, steps = (tuple(rest[part * rank:(part + 1) * rank][::-1]) for part in range(4))
    interleave, swizzle, _, fill = rest[4 * rank:]
    size = array.dtype.itemsize
    return TensorMap(array, box=box, swizzle=(0, 32, 64, 128)[swizzle], interleave=(0, 16, 32)[interleave], element_strides=steps,
                     fill="nan" if fill else "zeros", dtype=HOST_TYPES[kind].partition(".")[0], shape=dims,
                     strides=(*(stride // size for stride in strides[:-1]), 1))


def _extents(shape: Mapping[str, Any], what: str) -> tuple[int, ...]:
    return tuple(int(shape.get(f"{what}.{axis}", 1)) for axis in "xyz")


def _ptx(source: str) -> str:
    """The PTX that nvcc makes of TileLang's CUDA C."""
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH  # pyright: ignore[reportMissingImports]

    with temporary_folder() as folder:
        (file := folder / "kernel.cu").write_text(source, encoding="utf-8")
        command = [str(_nvcc()), "-ptx", "-arch=sm_90a", "-std=c++20", "-w", f"-I{TILELANG_TEMPLATE_PATH}", f"-I{CUTLASS_INCLUDE_DIR}",
                   str(file), "-o", f"{folder}/kernel.ptx"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_NVCC_SECONDS)
        except subprocess.TimeoutExpired:
            raise PtxkitError(f"nvcc has not compiled TileLang's CUDA C within {_NVCC_SECONDS} seconds") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise PtxkitError(f"nvcc cannot compile TileLang's CUDA C (it needs a C++ compiler and the headers of nvidia-cuda-runtime and "
                              f"nvidia-cuda-cccl): {lines[0] if lines else 'no message'}")
        return Path(f"{folder}/kernel.ptx").read_text(encoding="utf-8")


def _nvcc() -> Path:
    """nvcc, beside ptxas or on PATH."""
    try:
        beside = Path(ptxas().path).with_name("nvcc")
        if beside.exists():
            return beside
    except NoToolError:
        pass
    found = shutil.which("nvcc")
    if found is None:
        raise NoToolError("nvcc, which turns TileLang's CUDA C into PTX, is not installed: pip install 'ptxkit[toolchain]'")
    return Path(found)
