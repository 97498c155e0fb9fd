"""Kernels of Triton and Gluon: compiled ahead for sm_90, without a GPU, and launched as Triton's own launcher does.

Constexprs, arguments of None and integers of 1 are no parameters of the PTX. A host descriptor is a tensor map, then its shape, then its
strides. The last two parameters are scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dsl.tensormap import TensorMap
from ..errors import PtxkitError
from ..grammar import parse
from ..proof.launch import Launch, own
from ..sim import SimulationError
from ..sim.tensormap import TYPES as ELEMENTS
from . import version_of
from .tensors import Tensor, as_array, checked, is_tensor

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel  # pyright: ignore[reportMissingImports]

CAPABILITY = 90
SCRATCH = 0xA5
"""What scratch memory holds before a launch: Triton's allocators promise nothing."""


def launch_of(kernel: Any, grid: Any, args: Sequence[Any], config: Mapping[str, Any]) -> Launch:
    """The launch of a JIT function, or of what triton.compile made of one. `config` has constexprs, options and arguments by name."""
    from triton.compiler import CompiledKernel  # pyright: ignore[reportMissingImports]
    from triton.runtime import JITFunction  # pyright: ignore[reportMissingImports]

    kernel, config = _plain(kernel, args, dict(config))
    if isinstance(kernel, CompiledKernel):
        compiled, bound = kernel, _bound(kernel, args, config)
    elif isinstance(kernel, JITFunction):
        compiled, bound = _compile(kernel, args, config)
    else:
        raise SimulationError(f"{kernel!r} is no kernel of Triton: pass a function with @triton.jit or @gluon.jit")
    return _launch(compiled, _extents(compiled.metadata.name, grid, bound), bound)


def _extents(name: str, grid: Any, bound: Mapping[str, Any]) -> tuple[int, ...]:
    """The grid as numbers; a function of it is given the arguments by name, as Triton does."""
    if callable(grid):
        try:
            grid = grid(bound)
        except Exception as error:
            raise SimulationError(f"the grid of `{name}` is a function, which fails: {type(error).__name__}: {error}") from error
    if grid is None:
        raise SimulationError(f"`{name}` does not say its grid: give the number of programs behind the kernel, as 4 or (4, 2)")
    extents = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(extents) <= 3 or not all(isinstance(extent, Integral) and int(extent) > 0 for extent in extents):
        raise SimulationError(f"the grid of `{name}` is one to three positive numbers of programs, not {grid!r}")
    return tuple(map(int, extents))


def _plain(kernel: Any, args: Sequence[Any], config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The JIT function under @triton.heuristics and an @triton.autotune of one configuration."""
    while hasattr(kernel, "fn") and not hasattr(kernel, "params"):
        if hasattr(kernel, "configs"):
            if len(kernel.configs) != 1:
                raise SimulationError(f"{len(kernel.configs)} configurations of `{kernel.fn}` would be timed on a GPU: pass kernel.fn with "
                                      "the parameters of one")
            config = {**kernel.configs[0].all_kwargs(), **config}
        elif hasattr(kernel, "values"):
            given = {**dict(zip(kernel.arg_names, args, strict=False)), **config}
            config = {**config, **{name: value(given) for name, value in kernel.values.items()}}
        kernel = kernel.fn
    return kernel, config


def _compile(kernel: Any, args: Sequence[Any], config: dict[str, Any]) -> tuple[CompiledKernel, dict[str, Any]]:
    """What Triton's own run does: types and alignment of the arguments decide what is compiled."""
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
    from triton.compiler import compile, make_backend  # pyright: ignore[reportMissingImports]
    from triton.runtime.jit import create_function_from_signature  # pyright: ignore[reportMissingImports]

    target = GPUTarget("cuda", CAPABILITY, 32)
    backend = make_backend(target)
    given = _given(kernel, args, config)
    named = {name: given.pop(name) for name in list(given) if name not in kernel.arg_names}
    named.setdefault("debug", bool(kernel.debug))
    try:
        bound, specialization, options = create_function_from_signature(kernel.signature, kernel.params, backend)(**given, **named)
        options, signature, constexprs, attrs = kernel._pack_args(backend, {**given, **named}, bound, specialization, options)
    except KeyError as error:
        raise SimulationError(f"`{kernel.__name__}` takes {', '.join(kernel.arg_names)} and Triton's options: {error.args[0]}") from None
    except Exception as error:
        raise SimulationError(f"the arguments and options of `{kernel.__name__}`({', '.join(kernel.arg_names)}): {error}") from error
    try:
        compiled = compile(_source(kernel)(kernel, signature, constexprs, attrs), target=target, options=options.__dict__)
    except Exception as error:
        raise PtxkitError(f"Triton cannot compile `{kernel.__name__}`({', '.join(f'{n}: {t}' for n, t in signature.items())}): "
                          f"{_said(kernel, error)}") from error
    return compiled, bound


def _given(kernel: Any, args: Sequence[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name, and options, as Triton wants them."""
    names, name = kernel.arg_names, kernel.__name__
    if len(args) > len(names):
        raise SimulationError(f"`{name}` takes {', '.join(names)}: {len(args)} arguments were given")
    placed = dict(zip(names, args, strict=False))
    if twice := [each for each in config if each in placed]:
        raise SimulationError(f"`{name}` takes {', '.join(names)}: {', '.join(twice)} was given twice")
    given = {**placed, **config}
    if missing := [each.name for each in kernel.params if not each.has_default and each.name not in given]:
        raise SimulationError(f"`{name}` takes {', '.join(names)}: nothing is given for {', '.join(missing)}")
    constant = {each.name for each in kernel.params if each.is_constexpr}
    return {each: value if each in constant or each not in names else _wrapped(each, value) for each, value in given.items()}


def _said(kernel: Any, error: BaseException) -> str:
    """Triton's message in one line. A CompilationError shows the kernel's source: its place is said instead."""
    node, lines = getattr(error, "node", None), [line.strip() for line in str(error).splitlines() if line.strip()]
    if node is None or not hasattr(node, "lineno"):
        return f"{type(error).__name__}: {' '.join(lines)}"
    begin = next(i for i, line in enumerate(kernel.raw_src) if line.lstrip().startswith("def "))
    place = f"{kernel.fn.__code__.co_filename}:{kernel.starting_line_number + begin + node.lineno - 1}"
    pointed = next((i for i, line in enumerate(lines) if line == "^"), len(lines))
    message = " ".join(lines[pointed + 1:]) or " ".join(str(error.__cause__ or "").splitlines()[-1:])
    return f"{place}: {message or 'it does not say why'}"


def _source(kernel: Any) -> Any:
    """The class of what is compiled."""
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource  # pyright: ignore[reportMissingImports]

        return GluonASTSource
    from triton.compiler import ASTSource  # pyright: ignore[reportMissingImports]

    return ASTSource


def _wrapped(name: str, value: Any) -> Any:
    """An argument as Triton wants it, tuples too."""
    if isinstance(value, tuple):
        parts = [_wrapped(f"{name}[{i}]", part) for i, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_tensor(value):
        return Tensor(own(checked(name, value)))
    if isinstance(value, np.bool_ | np.number) and not isinstance(value, np.complexfloating):
        value = value.item()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise SimulationError(f"`{name}` is {value}, which no type of 64 bits holds")
    if value is None or isinstance(value, Real) or hasattr(value, "block_shape"):
        return value
    raise SimulationError(f"`{name}` is {value!r}: pass a NumPy array, a torch tensor on the CPU, a number or a TensorDescriptor")


def _bound(compiled: Any, args: Sequence[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a compiled kernel by name: all of the function's, or those that are no constexprs."""
    if not hasattr(compiled.src, "fn"):
        raise SimulationError("a kernel that was compiled from IR does not name its arguments: pass the function with @triton.jit")
    names = compiled.src.fn.arg_names
    free = [name for name in names if compiled.src.signature[name] != "constexpr"]
    takes = names if len(args) == len(names) else [name for name in free if name not in config]
    if len(args) != len(takes):
        raise SimulationError(f"`{compiled.metadata.name}` takes {', '.join(free)}: {len(args)} arguments were given")
    given = {**dict.fromkeys(names), **config, **dict(zip(takes, args, strict=True))}
    return {name: _wrapped(name, given[name]) if name in free else given[name] for name in names}


# ---------------------------------------------------------------------------------------------------- the launch


def _launch(compiled: Any, extents: tuple[int, ...], bound: Mapping[str, Any]) -> Launch:
    metadata = compiled.metadata
    ctas = int(getattr(metadata, "num_ctas", 1))
    extents = (extents[0] * ctas, *extents[1:])
    programs = int(np.prod(extents))
    descriptors = iter(metadata.tensordesc_meta or ()) if getattr(metadata, "tensordesc_meta", None) else None
    values: list[tuple[str, Any]] = []
    for name, type_ in compiled.src.signature.items():
        values += _values(name, type_, bound[name], descriptors)
    for name, size in (("scratch", metadata.global_scratch_size), ("profile scratch", metadata.profile_scratch_size)):
        values.append((name, np.full(size * programs, SCRATCH, np.uint8) if size else 0))
    return Launch(metadata.name, parse(compiled.asm["ptx"]), extents, tuple(value for _, value in values),
                  cluster=(ctas, 1, 1) if ctas > 1 else None,
                  block=(32 * metadata.num_warps,) if ".reqntid" not in compiled.asm["ptx"] else None,
                  dynamic_smem=metadata.shared, arrays=dict(_arrays(bound)), compiler=f"{_language(compiled)} {version_of('triton')}",
                  text=compiled.asm["ptx"], names=tuple(name for name, _ in values))


def _language(compiled: Any) -> str:
    return "Gluon" if type(compiled.src).__name__.startswith("Gluon") else "Triton"


def _values(name: str, type_: Any, value: Any, descriptors: Iterator[Mapping[str, Any]] | None) -> Iterator[tuple[str, Any]]:
    """The parameters of the PTX that an argument becomes, with what messages call them."""
    if isinstance(type_, tuple):
        for i, (part, element) in enumerate(zip(type_, value, strict=True)):
            yield from _values(f"{name}[{i}]", part, element, descriptors)
    elif type_ == "constexpr":
        return
    elif type_.startswith("tensordesc"):
        yield from _descriptor(name, value, None if descriptors is None else next(descriptors))
    else:
        yield name, value.array if isinstance(value, Tensor) else int(value) if isinstance(value, bool) else value


def _descriptor(name: str, value: Any, metadata: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    array, shape, strides = checked(name, value.base), tuple(map(int, value.shape)), tuple(map(int, value.strides))
    extents = [*((f"{name}.shape[{i}]", extent) for i, extent in enumerate(shape)),
               *((f"{name}.strides[{i}]", stride) for i, stride in enumerate(strides))]
    if metadata is None:
        yield name, array
        yield from extents
        yield from ((f"{name}.padding", int(value.padding == "nan")), (f"{name}.round_f32_to_tf32", int(value.round_f32_to_tf32)), *extents)
        return
    if metadata.get("is_im2col") or metadata["fp4_padded"]:
        raise SimulationError(f"`{name}`: the simulator has no descriptors for im2col or padded fp4")
    dtype = "tf32" if value.round_f32_to_tf32 else ELEMENTS[metadata["elem_type"]].partition(".")[0]
    yield name, TensorMap(array, box=tuple(metadata["block_size"]), swizzle=(0, 32, 64, 128)[metadata["swizzle"]], dtype=dtype,
                          shape=shape, strides=strides, fill="nan" if value.padding == "nan" else "zeros")
    yield from extents


def _arrays(bound: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays of the arguments by name, those of descriptors too."""
    for name, value in bound.items():
        if isinstance(value, tuple):
            yield from _arrays({f"{name}[{i}]": part for i, part in enumerate(value)})
        elif isinstance(value, Tensor):
            yield name, value.array
        elif hasattr(value, "base") and hasattr(value, "block_shape"):
            yield name, as_array(value.base)
