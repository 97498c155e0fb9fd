"""`ptxkit export gemm`: one product, or the products of a model, for programs without Python."""

from __future__ import annotations

import argparse
import json

from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import positive
from ptxkit.cli.paths import named
from ptxkit.errors import LaunchError
from ptxkit.export.exported import ExportError

from ..config.parts import ConfigError
from ..tools import options as shared
from .choices import Layer
from .export import Exported, pack, product

HELP = "write a product, or those of a model, for programs without Python: cubins, C header and a C file"
TYPES = ("bf16", "f16", "f32", "e4m3", "e5m2")
LAYOUTS = ("nt", "nn", "tn", "tt")
MOST_ROWS = 1 << 16
"""The most numbers of rows that --rows may name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    parser.add_argument("-m", type=positive, metavar="M", help="rows of A and D")
    parser.add_argument("-n", type=positive, metavar="N", help="columns of B and D")
    parser.add_argument("-k", type=positive, metavar="K", help="columns of A, rows of B")
    parser.add_argument("--dtype", choices=TYPES, help="type of A and B (default bf16; f32 is multiplied as tf32)")
    parser.add_argument("--b-dtype", choices=TYPES, help="type of B, where 8-bit types differ")
    parser.add_argument("--out-dtype", choices=TYPES, help="type of D (default: that of A; bf16 for 8-bit types)")
    parser.add_argument("--layout", choices=LAYOUTS, help="A then B: n row-major, t column-major; nt (default) has K contiguous in both")
    parser.add_argument("--scales", choices=("none", "tensor", "row", "block"),
                        help="of 8-bit operands: none, one for each (default), one for each row of A and column of B, or of 1 x 128 (A) "
                        "and 128 x 128 (B) blocks; with --model tensor or row, for fp8 without blocks")
    parser.add_argument("--model", metavar="NAME", help="the products of a model instead, such as deepseek-v3")
    parser.add_argument("--tp", type=positive, metavar="CARDS",
                        help="dense ones on one of so many cards (default: those that it is listed for)")
    parser.add_argument("--rows", type=_rows, default=(), metavar="M,M-M",
                        help="with --model: choose for these rows of dense products too, as 1-512,2048")
    shared.add_card(parser)
    parser.add_argument("-o", "--output", type=named, required=True, metavar="DIR",
                        help="the folder of the files; it is made if it is not there")
    parser.add_argument("--name", default="", help="how the files and functions are called")
    parser.add_argument("--force", action="store_true", help="overwrite files")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def _rows(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.partition("-")
        try:
            low = positive(first)
            high = positive(last) if dash else low
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(f"{word!r} is no number of rows from 1 on, as 64, and no range of them, as 1-512") from None
        if high < low or len(found) + high - low >= MOST_ROWS:
            raise argparse.ArgumentTypeError(f"{word} is not a range of at most {MOST_ROWS:,} numbers of rows, as 1-512")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def run(options: argparse.Namespace) -> int:
    """0; 2 for options that do not go together, or products that there are not."""
    problem = _usage(options)
    if problem:
        raise UsageError(problem)
    card = shared.card(options.card)
    if options.model:
        made = pack(options.model, options.output, cards=options.tp, rows=options.rows, by_row=options.scales == "row", name=options.name,
                    card=card, force=options.force)
    else:
        try:
            layer = _layer(options)
            made = product(options.m, layer, options.output, name=options.name, card=card, force=options.force)
        except (LaunchError, ConfigError) as error:
            raise ExportError(str(error)) from None
    print(json.dumps(_report(made, card.name)) if options.json else made)
    return 0


def _usage(options: argparse.Namespace) -> str:
    extents = [name for name in "mnk" if getattr(options, name) is not None]
    others = [name for name in ("dtype", "b_dtype", "out_dtype", "layout") if getattr(options, name) is not None]
    others += ["scales"] * (options.scales in ("none", "block"))
    if options.model and (extents or others):
        return f"--model says which products there are: leave out {_option((extents + others)[0])}"
    if not options.model and len(extents) < 3:
        return "give -m, -n and -k of a product, or --model"
    if not options.model and (options.tp or options.rows):
        return f"{'--tp' if options.tp else '--rows'} is for --model"
    if not options.model and options.scales in ("tensor", "row", "block") and options.dtype not in ("e4m3", "e5m2"):
        return f"--scales {options.scales} is for operands of e4m3 and e5m2"
    return ""


def _option(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def _layer(options: argparse.Namespace) -> Layer:
    dtype = options.dtype or "bf16"
    eight = dtype in ("e4m3", "e5m2")
    scales = {"none": "", None: "tensor" if eight else ""}.get(options.scales, options.scales)
    kind = (f"fp8-{scales}" if scales in ("row", "block") else "fp8") if eight else dtype if dtype == "f16" else "bf16"
    return Layer(kind, options.n, options.k, dtype, options.b_dtype or dtype, options.out_dtype or ("bf16" if eight else dtype),
                 options.layout or "nt", scales, padded=scales == "block")


def _report(made: Exported, card: str) -> dict[str, object]:
    return {"name": made.name, "card": card, "files": list(map(str, made.files)), "configurations": list(map(str, made.configs)),
            "products": [{"n": table.layer.n, "k": table.layer.k, "kind": table.layer.kind, "padded": table.layer.padded,
                          "choices": [{"rows": most, "configuration": made.configs.index(config)} for most, config in table.choices]}
                         for table in made.tables],
            "group_kernels": list(map(str, made.group_configs)),
            "group_products": [{"groups": table.layer.groups, "n": table.layer.n, "k": table.layer.k, "kind": table.layer.kind,
                                "gated": table.layer.gated, "choices": [{"mean_rows": most, "configuration": str(config)}
                                                                        for most, config in table.choices]} for table in made.groups]}


__all__ = ["HELP", "add_arguments", "run"]
