"""The export of one kernel: its cubin, a header and a C file with `NAME_launch`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.toolchain import assemble
from . import text
from .exported import Argument, Entry, Exported
from .folder import write
from .kernel import entry
from .names import check_name

if TYPE_CHECKING:
    from os import PathLike

    from ..dsl.traced import Traced

OWN = ("grid_x", "grid_y", "grid_z", "pdl", "stream", "grid", "arguments", "status")
"""Names of the launch function, which no parameter of a kernel gets."""


def export(traced: Traced, folder: str | PathLike[str], *, name: str | None = None, force: bool = False) -> Exported:
    """Write NAME.cubin, NAME.h and NAME.c of a traced kernel into a folder. Raises ExportError, AssembleError or NoToolError, and then
    leaves the folder as it was."""
    name = traced.name if name is None else name
    check_name(name)
    assembly = assemble(traced.ptx(locs=True), traced.module.target[0], lines=traced.positions(), exact_lines=True)
    made = entry(traced, assembly, reserved(traced))
    head = prototype(name, made)
    said = (f"{name}: the kernel `{traced.name}`{_config(traced)}, for {made.target}. Written by `ptxkit export`.",)
    paths = write(folder, {f"{name}.cubin": made.cubin, f"{name}.h": header(name, said, made, head).encode(),
                           f"{name}.c": source(name, said, made, head).encode()}, force=force)
    return Exported(name, paths, made, f"{head};")


def reserved(traced: Traced) -> tuple[str, ...]:
    """The names that C's launch function has besides the kernel's parameters."""
    maps = [parameter.name for parameter in traced.parameters if parameter.kind == "tensormap"]
    return (*OWN, *(f"{each}_{suffix}" for each in maps for suffix in ("shape", "strides", "room")))


def _config(traced: Traced) -> str:
    config: dict[str, Any] = dict(traced.config)
    return " with " + ", ".join(f"{name}={value!r}" for name, value in config.items()) if config else ""


def prototype(name: str, made: Entry) -> str:
    """The head of the launch function."""
    parameters = [each for argument in made.arguments for each in text.declared(argument)]
    overlap = ("int pdl",) if made.pdl else ()
    return text.prototype(f"int {name}_launch", (*parameters, "uint32_t grid_x", "uint32_t grid_y", "uint32_t grid_z", *overlap,
                                                 "void *stream"))


def header(name: str, said: Sequence[str], made: Entry, head: str) -> str:
    """The header of one kernel."""
    block, cluster = ("x".join(map(str, extents)) for extents in (made.block, made.cluster))
    notes = ["Launches the kernel on `stream` (a CUstream or cudaStream_t; NULL is the legacy stream) of the thread's current context,",
             f"in blocks of {block} threads, clusters of {cluster} CTAs, with {made.shared} bytes of dynamic shared memory. A grid counts "
             "CTAs.", "Returns before the kernel ends. Pointers are addresses of device memory."]
    if any(argument.box for argument in made.arguments):
        notes.append("Shapes and strides count elements, the slowest dimension first; strides may be NULL: rows without gaps.")
    if made.pdl:
        notes.append("With `pdl` it may start before the kernel ahead of it in the stream has ended.")
    notes += [f"{argument.name}: {_word(argument)}." for argument in made.arguments]
    return text.header(name, said, f"{text.comment(_loads(name))}int {name}_load(void);\n\n{text.comment(notes)}{head};\n")


def _loads(name: str) -> tuple[str, ...]:
    return (f"Finds the driver and loads the kernel for the thread's current context. {name}_launch does so where it is needed, but not",
            "while a stream is captured for the first time.")


def _word(argument: Argument) -> str:
    parameter = argument.parameter
    renamed = "" if argument.name == parameter.name else f" (`{parameter.name}` in Python)"
    if argument.box is not None:
        extents = " x ".join(map(str, reversed(argument.box.box)))
        return f"an array of {argument.box.rank} dimensions, {argument.box.bytes} bytes an element, copied in boxes of {extents}{renamed}"
    kind = "" if parameter.type is None else parameter.type.__name__
    if parameter.kind == "pointer":
        return f"a pointer to {kind or 'memory'}{renamed}"
    return f"{kind}{', the integer of its bits' if kind in ('f16', 'bf16') else ''}{renamed}"


def source(name: str, said: Sequence[str], made: Entry, head: str) -> str:
    """The C file of one kernel."""
    maps = any(argument.box for argument in made.arguments)
    pointers = any(argument.box is None and argument.alignment > 1 for argument in made.arguments)
    parts = ["driver", *(["pointer"] if pointers else []), *(["tensormap"] if maps else [])]
    return text.source(name, said, parts, "\n".join(_functions(name, made, head)))


def _functions(name: str, made: Entry, head: str) -> Iterator[str]:
    yield "/* ---- the kernel ---- */\n"
    yield text.cubin_data("px_cubin", made.cubin)
    yield text.kernel_data("px_entry", "px_cubin", made)
    boxes = [argument for argument in made.arguments if argument.box is not None]
    for argument in boxes:
        yield text.box_data(f"px_box_{argument.name}", argument)
    yield f"int {name}_load(void)\n{{\n    return px_ready(&px_entry);\n}}\n"
    body = ["    const uint32_t grid[3] = {grid_x, grid_y, grid_z};"]
    body += [f"    uint64_t {argument.name}_room[PX_ROOM];" for argument in boxes]
    body += [f"    void *arguments[{max(1, len(made.arguments))}];", "    int status = px_ready(&px_entry);"]
    for index, argument in enumerate(made.arguments):
        one = argument.name
        if argument.box is not None:
            body += ["    if (status == PX_OK)",
                     f"        status = px_encode({one}_room, &arguments[{index}], &px_box_{one}, {one}, {one}_shape, {one}_strides);"]
            continue
        body.append(f"    arguments[{index}] = &{one};")
        if argument.alignment > 1:
            body += ["    if (status == PX_OK)", f'        status = px_aligned("{one}", {one}, {argument.alignment});']
    if not made.arguments:
        body.append("    arguments[0] = NULL;")
    pdl = "pdl" if made.pdl else "0"
    body.append(f"    return status == PX_OK ? px_launch(&px_entry, grid, arguments, {pdl}, stream) : status;")
    yield head + "\n{\n" + "\n".join(body) + "\n}\n"


__all__ = ["Exported", "export", "header", "prototype", "source"]
