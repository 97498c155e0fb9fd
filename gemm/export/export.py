"""Exports of one product, and of a pack of a model's products."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ptxkit.cards import H200, Card
from ptxkit.export.exported import ExportError
from ptxkit.export.folder import write
from ptxkit.export.names import check_name

from ..config.dense import DenseConfig
from ..config.grouped import GroupedConfig
from ..launch.slabs import slabs
from ..problem.dense import PLAIN
from . import text
from .choices import Layer, Table, model_tables, table
from .groups import GroupLayer, GroupPlan, GroupTable, group_header, group_plans, group_source, group_tables
from .plan import Plan, plan

Grouped = Mapping[tuple[GroupLayer, GroupedConfig], Sequence[GroupPlan]]


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an export, its products and the configurations that they are given."""

    name: str
    files: tuple[Path, ...]
    tables: tuple[Table, ...]
    configs: tuple[DenseConfig, ...]
    groups: tuple[GroupTable, ...] = ()
    group_configs: tuple[GroupedConfig, ...] = ()           # the kernels, in the order of their numbers

    def __str__(self) -> str:
        cubins = [file for file in self.files if file.suffix == ".cubin"]
        lines = [f"{file}  {file.stat().st_size:,} bytes" for file in self.files if file.suffix != ".cubin"]
        shown = f"{cubins[0]}" + (f" ... {cubins[-1].name}" if len(cubins) > 1 else "")
        bytes = sum(file.stat().st_size for file in cubins)
        return "\n".join([*lines, f"{shown}  {bytes:,} bytes", *map(str, (*self.configs, *self.group_configs))])


def product(m: int, layer: Layer, folder: str | PathLike[str], *, name: str = "", card: Card = H200, force: bool = False) -> Exported:
    """Write NAME.h, NAME.c and the cubin of the product that `gemm.gemm` launches for `m` rows on a card. Raises ExportError."""
    words = [layer.dtype, *([layer.b_dtype] if layer.b_dtype != layer.dtype else []),
             *([layer.scales] if layer.scales in ("row", "block") else []),
             *([layer.out] if layer.out != layer.dtype else []), layer.layout]
    name = name or f"gemm_{m}x{layer.n}x{layer.k}_{'_'.join(words)}"
    check_name(name)
    layer = layer.read(m)
    made = table(layer, (m,), card)
    if len(slabs(layer.arrays(m), PLAIN, lambda: card)) > 1:
        raise ExportError(f"M {m}, {layer}: rows do not begin at multiples of 16 bytes, and Python launches a product of this size in "
                          "slabs: pad N and K")
    plans = {config: plan(config, layer, m) for _, config in made.choices}
    said = (f"{name}: D = A B, M {m}, {layer}, as ptxkit.gemm.gemm computes it on {card.name}. Written by `ptxkit export gemm`.",
            *map(str, plans))
    header, functions = text.one(name, said, made, m)
    return _write(folder, name, said, (made,), plans, header, functions, force)


def pack(model: str, folder: str | PathLike[str], *, cards: int | None = None, rows: Sequence[int] = (), by_row: bool = False,
         name: str = "", card: Card = H200, force: bool = False) -> Exported:
    """Write NAME.h, NAME.c and the cubins of the products of a model: the dense ones on one of `cards` cards (None: as many as it is listed
    for), with the listed numbers of rows and these, and the group products of its experts as they are listed. `by_row`: fp8 without blocks
    has scales of rows and columns. Raises ModelError or ExportError."""
    tables, groups = model_tables(model, cards, card, rows, by_row), group_tables(model, card)
    name = name or "gemm_" + re.sub(r"\W+", "_", model.lower()) + (f"_tp{cards}" if cards else "")
    check_name(name)
    plans = _plans(tables)
    grouped = group_plans(groups)
    said = (f"{name}: the products of {model}{f' on {cards} cards' if cards else ''}, as ptxkit.gemm computes them on "
            f"{card.name}. Written by `ptxkit export gemm`.",)
    header, functions = text.pack(name, said, tables, card, group_header(name, groups) if groups else "")
    return _write(folder, name, said, tables, plans, header, functions, force, groups, grouped)


def _plans(tables: Sequence[Table]) -> dict[DenseConfig, Plan]:
    found: dict[DenseConfig, Plan] = {}
    for each in tables:
        for _, config in each.choices:
            if config not in found:
                found[config] = plan(config, each.layer)
    return found


def _write(folder: str | PathLike[str], name: str, said: Sequence[str], tables: Sequence[Table], plans: dict[DenseConfig, Plan],
           header: str, functions: str, force: bool, groups: Sequence[GroupTable] = (), grouped: Grouped | None = None) -> Exported:
    kernels = [each for made in (grouped or {}).values() for each in made]
    entries = [each.entry for each in plans.values()] + [each.entry for each in kernels]
    codes = list(dict.fromkeys(each.cubin for each in entries))
    cubins = {f"{name}.cubin" if len(codes) == 1 else f"{name}_{number}.cubin": code for number, code in enumerate(codes)}
    source = text.source(name, said, tables, plans, functions, group_source(groups, grouped) if grouped else ())
    files = {f"{name}.h": header.encode(), f"{name}.c": source.encode(), **cubins}
    return Exported(name, write(folder, files, force=force), tuple(tables), tuple(plans), tuple(groups),
                    tuple(each.config for each in kernels))


__all__ = ["Exported", "pack", "product"]
