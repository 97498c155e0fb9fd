"""What the commands share that run a launch on the CPU device: their options, and the launch of a command line."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_whole
from . import output
from .errors import UsageError
from .files import errors_in, is_file, read_ptx
from .numbers import count, positive
from .paths import named
from .source import kernel_of, refuse_config

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from ..grammar import tree
    from ..proof.spec import Map, Spec

_NAMED = re.compile(r"([A-Za-z_$%][\w$]*)=(.+)", re.S)
ARRAYS = """\
An array is KIND:TYPE:SHAPE[:OPTION=VALUE...]: zeros, ones, full (value), arange (start, step), normal (mean, std, seed), uniform (low,
high, seed), randint (low, high, seed), poison (NaN, or bytes of 0xa5: what the kernel leaves shows); or a .npy file, FILE.npy:bf16 to
read its bits as another type. A launch file (--record) has the same texts."""
"""What stands below the options of a command that makes arrays."""


def launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the source, the launch and how it runs once."""
    add = parser.add_argument
    add("source", metavar="FILE|module:kernel", nargs="?",
        help="module:attribute or file.py:attribute of a kernel or a PTX file, - for stdin; a launch file has one")
    add("--set", action="append", default=[], metavar="K=V", dest="config", help="a compile-time parameter, as of the other commands")
    add("--spec", type=named, metavar="F", help="a launch file; options on the command line go before what it says")
    add("--record", type=named, metavar="F", help="write the launch as a file for --spec")
    add("--entry", metavar="NAME", help="the entry, where the PTX has several")
    add("--grid", metavar="4x2", help="CTAs")
    add("--block", metavar="128", help="threads, where the PTX does not say them (.reqntid; else .maxntid)")
    add("--cluster", metavar="2", help="CTAs of a cluster, where the PTX does not say them")
    add("--smem", type=count, metavar="BYTES", help="dynamic shared memory; static memory is taken from the PTX")
    add("--arg", action="append", type=_argument, default=[], dest="arguments", metavar="[NAME=]VALUE",
        help="the next parameter, or the one of that name: a number, an array, or the name of an array; repeatable")
    add("--tensormap", action="append", type=_tensormap, dest="arguments", metavar="NAME=ARRAY,box=64x64[,swizzle=128]",
        help="the tensor map of that name, or the next: an array or the name of one, then box, swizzle, element_strides, fill=nan, "
             "interleave; repeatable")
    add("--schedule", metavar="NAME", help="one schedule by name (fifo)")
    add("--seed", type=count, metavar="N", help="its seed (0)")
    add("--replay", type=named, metavar="F.json", help="run under the choices that --keep has written, instead of a schedule")
    add("--max-steps", type=positive, metavar="N", help="end after so many warp instructions")
    for way in ("reads", "writes"):
        add(f"--previous-{way}", action="append", default=[], metavar="NAME",
            help=f"a parameter that the grid before still {way} until griddepcontrol.wait; repeatable")
    add("--no-check", action="store_true", help="only execute: no races, no certificate")
    add("-o", "--output", action="append", type=_named, default=[], metavar="NAME=F.npy", dest="outputs",
        help="write an array as the first schedule leaves it; repeatable")


def from_file(options: argparse.Namespace) -> Spec:
    from ..proof.spec import Spec
    from ..proof.spec_file import read_spec

    return read_spec(Path(options.spec)) if options.spec else Spec("")


def spec_of(options: argparse.Namespace, spec: Spec) -> tuple[Spec, tree.Module | Traced, str]:
    """The launch of the command line, over that of --spec, with every argument at its parameter; its kernel, and its text."""
    from ..dsl.traced import Traced
    from ..proof.spec import SpecError, extents_of

    given: dict[str, Any] = {"source": options.source, "entry": options.entry, "dynamic_smem": options.smem, "schedules": options.schedules,
                             "schedule": options.schedule, "seed": options.seed, "max_steps": options.max_steps,
                             "config": tuple(options.config) or None, "previous_reads": tuple(options.previous_reads) or None,
                             "previous_writes": tuple(options.previous_writes) or None, "arguments": tuple(options.arguments) or None}
    given.update({name: extents_of(text, f"--{name}") for name in ("grid", "block", "cluster") if (text := getattr(options, name))})
    if options.arguments and options.spec:
        raise SpecError("--spec has the arguments: change them in the file")
    if (options.schedule or options.seed is not None) and options.schedules is None:
        spec = replace(spec, schedules=None)
    spec = replace(spec, **{name: value for name, value in given.items() if value is not None})
    if not spec.source:
        raise SpecError("no source: name a PTX file or module:kernel, or give --spec")
    if options.record and spec.source == "-":
        raise SpecError("--record needs a file to name as the source, not stdin")
    source, text = _source(spec)
    module = source.module if isinstance(source, Traced) else source
    return spec.resolved(module, source.name if isinstance(source, Traced) else None), source, text


def _source(spec: Spec) -> tuple[tree.Module | Traced, str]:
    if is_file(spec.source):
        from ..grammar import parse

        refuse_config(spec.source, spec.config, "PTX text")
        text = read_ptx(spec.source)
        with errors_in(spec.source):
            return parse(text), text
    kernel, config = kernel_of(spec.source, spec.config)
    return kernel.trace(**config), ""


def _argument(text: str) -> tuple[str, str]:
    found = _NAMED.fullmatch(text)
    return (found[1], found[2]) if found else ("", text)


def _named(text: str) -> tuple[str, str]:
    found = _NAMED.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"write NAME=F.npy, not {text!r}")
    return found[1], found[2]


def _tensormap(text: str) -> tuple[str, Map]:
    from ..proof.spec import SpecError, map_of

    found = re.fullmatch(r"([A-Za-z_$%][\w$]*)=([^=,]+(?:=[^,]*)?(?:,.*)?)", text, re.S)
    if found is None:
        raise argparse.ArgumentTypeError(f"write NAME=ARRAY,box=64x64, not {text!r}")
    try:
        return found[1], map_of(found[2])
    except SpecError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# ------------------------------------------------------------------------------------------------------ what is written


def writable(options: argparse.Namespace, arrays: Mapping[str, Any], others: Sequence[str | None]) -> None:
    """Refuse outputs that cannot be, before anything runs."""
    for name, path in options.outputs:
        if name not in arrays:
            raise UsageError(f"-o {name}={path}: there is no array {name!r}; there are {', '.join(arrays) or 'none'}")
    written = [path for path in (options.record, *others) if path]
    for path in (*(path for _, path in options.outputs), *written):
        if path == "-" or Path(path).is_dir() or not Path(path).parent.is_dir():
            raise UsageError(f"cannot write {path}: name a file in a folder that is there")


def write_files(options: argparse.Namespace, spec: Spec, arrays: Mapping[str, Any]) -> None:
    """Write what -o and --record ask for."""
    from ..proof.spec_file import write_spec

    for name, path in options.outputs:
        _save(Path(path), arrays[name])
    if options.record:
        _write(options.record, lambda: write_spec(spec, Path(options.record)))


def _save(path: Path, array: Any) -> None:
    import numpy as np

    made = io.BytesIO()
    np.save(made, array, allow_pickle=False)
    _write(str(path), lambda: write_whole(path, made.getvalue()))


def _write(name: str, write: Any) -> None:
    try:
        write()
    except OSError as error:
        raise output.cannot_write(name, error) from None
