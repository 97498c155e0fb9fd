"""What an export of one kernel needs of its trace and its cubin: entry, launch shape, and the parameters as C passes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..dsl.arguments import FORMATS
from ..dsl.parameters import Parameter
from ..errors import AssembleError
from ..grammar import tree
from ..runtime.launcher import data_type, fetch_modes
from ..sass.cubin import read as read_cubin
from .exported import TARGET, Argument, Box, Entry, ExportError
from .names import renamed

if TYPE_CHECKING:
    from ..dsl.module import CopyRecord
    from ..dsl.traced import Traced
    from ..runtime.toolchain import Assembly


def entry(traced: Traced, assembly: Assembly, reserved: Sequence[str] = (), parameters: Sequence[Parameter] | None = None) -> Entry:
    """The description of a kernel. C names of parameters avoid `reserved`. `parameters` are those to describe, None for all. Raises
    ExportError for what C cannot launch."""
    if traced.block is None:
        raise ExportError(f"kernel `{traced.name}` has no block size: give @kernel(block=...)")
    if traced.marks is not None:
        raise ExportError(f"kernel `{traced.name}` was traced with marks, whose buffer only a launch from Python adds: trace it without")
    target = traced.module.target[0]
    if TARGET.fullmatch(target) is None:
        raise ExportError(f"kernel `{traced.name}` has the target {target!r}: an export needs one such as 'sm_90a'")
    errors = tuple(finding for finding in assembly.findings if finding.severity == "error")
    if errors:
        raise AssembleError(assembly.log, errors, summary=f"kernel `{traced.name}` is not exported with this remark of ptxas")
    machine = read_cubin(assembly.cubin).entries[traced.name]
    parameters = traced.parameters if parameters is None else parameters
    names = renamed([parameter.name for parameter in parameters], reserved)
    arguments = tuple(_argument(traced.name, name, parameter, traced.copies.records.get(parameter.name))
                      for name, parameter in zip(names, parameters, strict=True))
    return Entry(traced.name, target, assembly.tool.version, assembly.cubin, traced.block, traced.cluster, traced.dynamic_smem,
                 machine.shared, arguments, waits(traced.module))


def _argument(kernel: str, name: str, parameter: Parameter, record: CopyRecord | None) -> Argument:
    if parameter.kind == "tensormap":
        if record is None:
            raise ExportError(f"kernel `{kernel}` copies no tile through `{parameter.name}`, so its box is unknown: an export cannot "
                              "encode this tensor map")
        return Argument(name, parameter, "void *", 16, box(kernel, parameter.name, record))
    if parameter.kind == "pointer":
        bits = 8 if parameter.type is None else parameter.type.bits
        return Argument(name, parameter, "void *", max(1, bits // 8))
    if parameter.kind != "scalar" or parameter.type is None:
        raise ExportError(f"parameter `{parameter.name}` of kernel `{kernel}` is a block of bytes: an export passes numbers, pointers and "
                          "tensor maps; read each of its members from a parameter of its own")
    word = parameter.type.__name__
    if word not in FORMATS:
        raise ExportError(f"parameter `{parameter.name}` of kernel `{kernel}` is a {word}: an export passes only {', '.join(FORMATS)}, "
                          "pointers and tensor maps")
    return Argument(name, parameter, c_type(word))


def c_type(word: str) -> str:
    """The C type of a scalar. A float that C lacks (f16, bf16) is the integer of its bits."""
    if word in ("f32", "f64"):
        return {"f32": "float", "f64": "double"}[word]
    bits = re.sub(r"\D", "", word) or "16"
    return f"{'' if word[0] == 's' else 'u'}int{bits}_t"


def box(kernel: str, name: str, record: CopyRecord) -> Box:
    """The box of a tensor map as the driver takes it."""
    if record.type.bits % 8 or (kind := data_type(record.type)) < 0:
        raise ExportError(f"kernel `{kernel}` copies {record.type.__name__} through `{name}`, which no array in C has: an export cannot "
                          "encode this tensor map")
    fields = record.fields((256,) * len(record.box), (256,) * (len(record.box) - 1))
    if (problem := fields.problem()) is not None:
        raise ExportError(f"the tensor map of `{name}` cannot be encoded: {problem}")
    return Box(kind, record.type.bits // 8, record.box, *fetch_modes(record.swizzle, fields.l2_promotion))


def waits(module: tree.Module) -> bool:
    """Whether a module has griddepcontrol, so that a launch of it may overlap with the one before."""
    return any(_waits(function.body or ()) for function in module.functions)


def _waits(body: Sequence[tree.Statement]) -> bool:
    return any(_waits(statement.body) if isinstance(statement, tree.Block)
               else isinstance(statement, tree.Instruction) and statement.mnemonic == "griddepcontrol" for statement in body)


__all__ = ["Argument", "Box", "Entry", "ExportError", "box", "c_type", "entry", "waits"]
