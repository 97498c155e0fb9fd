"""The experts of a model in an export: their tables, and the plans of their configurations."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxkit.cards import Card
from ptxkit.dsl.arguments import FORMATS
from ptxkit.export import text
from ptxkit.export.exported import Argument, Entry, ExportError
from ptxkit.export.kernel import entry
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.launcher import fetch_modes
from ptxkit.types import TYPES

from ..collective.tensormaps import MOST_SMS
from ..config.grouped import GroupedConfig, StagedGroups
from ..config.parts import Direct
from ..heuristic.grouped import heuristic
from ..launch.group_kernels import kernel_of
from ..problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ..tools import models
from .choices import KINDS, LINE
from .plan import assembled
from .text import arguments

UNUSED = 17             # numbers of a dense plan (px_plan of gemm.c) that a group plan leaves 0
MAPS = ("x", "w", "y", "sfa_map", "sfb_map", "x_tail")
"""Of the kernels, in the order of gemm/export/group.c."""
SOURCES = {"groups_rows": "PXG_ROWS", "groups_lengths": "PXG_LENGTHS", "out_pointer": "PXG_OUT", "out_row": "PXG_OUT_ROW",
           "x_scale": "PXG_X_SCALE", "x_scale_pointer": "PXG_X_SCALE", "w_scale_pointer": "PXG_W_SCALE", "workspace": "PXG_WORKSPACE",
           "x": "PXG_MAP_X", "x_tail": "PXG_MAP_X_TAIL", "w": "PXG_MAP_W", "y": "PXG_MAP_Y", "sfa_map": "PXG_MAP_X_SCALE",
           "sfb_map": "PXG_MAP_W_SCALE"}


@dataclass(frozen=True, slots=True)
class GroupLayer:
    """Group products with the same weights, [groups, N, K], or [groups, 2 N, K] with a gate."""

    kind: str
    groups: int
    n: int
    k: int
    gated: bool = False

    def arrays(self, rows: int) -> GroupArrays:
        """The arrays of `rows` tokens, without their memory."""
        lines, depth = self.n * (1 + self.gated), -(-self.k // 128)
        scales: tuple[ArrayView | None, ...] = (None, None)
        if self.kind == "fp8":
            scales = _array("f32", 1), _array("f32", self.groups)
        elif self.kind == "fp8-block":
            blocks = ArrayView(0, (rows, depth), (1, -(-rows // LINE) * LINE), "f32", 0, "other")
            scales = blocks, _array("f32", self.groups, -(-lines // 128), depth)
        return GroupArrays(_array(self.dtype, rows, self.k), _array(self.dtype, self.groups, lines, self.k), _array("s32", self.groups + 1),
                           _array(self.out, rows, self.n), *scales)

    def problem(self, mean: int) -> GroupProblem:
        """The product of groups with so many tokens on average."""
        return GroupProblem(self.arrays(self.groups * mean), GroupOptions(gated=self.gated))

    @property
    def dtype(self) -> str:
        """Of X and W."""
        return "e4m3" if self.kind.startswith("fp8") else self.kind

    @property
    def out(self) -> str:
        """Of Y."""
        return "bf16" if self.kind.startswith("fp8") else self.kind

    def __str__(self) -> str:
        return f"{self.groups} groups, N {self.n}, K {self.k}, {self.kind}{', gated' if self.gated else ''}"


@dataclass(frozen=True, slots=True)
class GroupTable:
    """A layer with its choices: each is the configuration for up to so many tokens a group on average, by tokens."""

    layer: GroupLayer
    choices: tuple[tuple[int, GroupedConfig], ...]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One kernel in C. `number`: its place among all; `second` that of the other kernel of its configuration, or -1."""

    config: GroupedConfig
    entry: Entry
    values: tuple[tuple[str, int], ...]
    maps: dict[str, Argument]
    number: int
    second: int
    problem: GroupProblem


def _array(dtype: str, *shape: int) -> ArrayView:
    return ArrayView(0, shape, contiguous_strides(shape), dtype, 0, "other")


def group_tables(name: str, card: Card) -> tuple[GroupTable, ...]:
    """The experts of a model, with the listed tokens of a group. Raises ModelError."""
    found = []
    for experts in models.model(name).experts:
        for kind in experts.types:
            layer = GroupLayer(kind, experts.groups, experts.n // (1 + experts.gated), experts.k, experts.gated)
            found.append(GroupTable(layer, tuple(_choices(layer, experts.rows, card))))
    return tuple(found)


def _choices(layer: GroupLayer, rows: Iterable[int], card: Card) -> Iterator[tuple[int, GroupedConfig]]:
    for mean in sorted(set(rows)):
        yield mean, heuristic(layer.problem(mean), card)


def group_plans(tables: Sequence[GroupTable]) -> dict[tuple[GroupLayer, GroupedConfig], list[GroupPlan]]:
    """The kernels of each choice, in C. Raises ExportError for what only Python launches."""
    found: dict[tuple[GroupLayer, GroupedConfig], list[GroupPlan]] = {}
    entries: dict[tuple[Any, ...], tuple[Entry, dict[str, Argument], Sequence[Any]]] = {}
    count = 0
    for table in tables:
        for mean, config in table.choices:
            if (table.layer, config) in found:
                continue
            made, problem = [], table.layer.problem(mean)
            for place, each in enumerate(config.kernels):
                if each.updates_maps:
                    raise ExportError(f"{table.layer}: the choice makes tensor maps on the device ({each}), which only Python launches")
                key = tuple(each.parameters.values())
                if key not in entries:
                    entries[key] = _entry(each)
                made.append(_plan(table.layer, problem, each, entries[key], count, count + 1 if place + 1 < len(config.kernels) else -1))
                count += 1
            found[table.layer, config] = made
    return found


def _entry(config: GroupedConfig) -> tuple[Entry, dict[str, Argument], Sequence[Any]]:
    traced = kernel_of(config).trace(**config.parameters)
    assembly = assembled(traced)
    records = traced.copies.records
    read = [parameter for parameter in traced.parameters if parameter.kind != "tensormap" or parameter.name in records]
    made = entry(traced, assembly, parameters=read)
    return made, {argument.parameter.name: argument for argument in made.arguments if argument.box is not None}, traced.parameters


def _plan(layer: GroupLayer, problem: GroupProblem, config: GroupedConfig, known: tuple[Entry, dict[str, Argument], Sequence[Any]],
          number: int, second: int) -> GroupPlan:
    made, maps, parameters = known
    named = dict(_flat("", problem.arguments(layer.arrays(problem.rows), config, lambda _: 0)))
    values = []
    for parameter in parameters:
        name = parameter.name
        if name in SOURCES:
            values.append((SOURCES[name], 0))
        elif name == "x_scale_k_stride" and problem.block_scales:
            values.append(("PXG_X_SCALE_LD", 0))
        else:
            word = "u64" if parameter.kind == "pointer" or parameter.type is None else parameter.type.__name__
            values.append(("PXG_CONSTANT", int.from_bytes(struct.pack("<" + FORMATS[word], named[name]), "little")))
    return GroupPlan(config, made, tuple(values), maps, number, second, problem)


def _flat(prefix: str, given: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(given, Mapping):
        for name, value in given.items():
            yield from _flat(f"{prefix}_{name}" if prefix else name, value)
    else:
        yield prefix, given


# --------------------------------------------------------------------------------------------------- in C


def group_source(tables: Sequence[GroupTable], plans: Mapping[tuple[GroupLayer, GroupedConfig], Sequence[GroupPlan]]) -> Iterator[str]:
    """The plans and tables in C."""
    cubins: dict[bytes, str] = {}
    rows = []
    for plan in (each for made in plans.values() for each in made):
        number = plan.number
        if plan.entry.cubin not in cubins:
            cubins[plan.entry.cubin] = f"{len(cubins)}"
            yield text.cubin_data(f"pxg_cubin_{cubins[plan.entry.cubin]}", plan.entry.cubin)
            yield text.kernel_data(f"pxg_kernel_{cubins[plan.entry.cubin]}", f"pxg_cubin_{cubins[plan.entry.cubin]}", plan.entry)
        for name in MAPS:
            if name in plan.maps:
                yield text.box_data(f"pxg_{name}_{number}", plan.maps[name], fetch_modes(0, plan.config.loads.l2_fetch)[1])
        yield arguments(f"pxg_arguments_{number}", plan.values)
        rows.append(_row(plan, cubins[plan.entry.cubin]))
    yield "static px_group_plan px_group_plans[] = {\n" + ",\n".join(rows) + "\n};\n"
    rows = []
    for place, table in enumerate(tables):
        listed = ", ".join(f"{{{most}, {plans[table.layer, config][0].number}}}" for most, config in table.choices)
        yield f"static const px_choice px_group_choices_{place}[] = {{{listed}}};      /* {table.layer} */\n"
        layer = table.layer
        numbers = (list(KINDS).index(layer.kind), int(layer.gated), layer.groups, layer.n, layer.k, TYPES[layer.dtype].bits // 8,
                   TYPES[layer.out].bits // 8, int(layer.kind == "fp8-block"), int(layer.kind.startswith("fp8")))
        rows.append(f"    {{{{{', '.join(map(str, numbers))}}}, px_group_choices_{place}, {len(table.choices)}}}")
    yield "static const px_group_table px_group_tables[] = {\n" + ",\n".join(rows) + "\n};\n"


def _row(plan: GroupPlan, kernel: str) -> str:
    config, problem = plan.config, plan.problem
    base = (f"{{&pxg_kernel_{kernel}, pxg_arguments_{plan.number}, {len(plan.values)}, NULL, 0, NULL, NULL, NULL, NULL, "
            f'{", ".join("0" * UNUSED)}, "{config}", {{0}}}}')
    maps = ", ".join(f"&pxg_{name}_{plan.number}" if name in plan.maps else "NULL" for name in MAPS)
    ragged = isinstance(config.store, StagedGroups) and config.store.ends == "ragged"
    size = problem.out.bits // 8
    unit = size * config.store.elements if problem.by_element and isinstance(config.store, Direct) else 16
    numbers = (config.tile_tokens * config.along_tokens, problem.weight_work_tiles(config), int(ragged), plan.second, unit, config.sharing,
               config.workspace_bytes(MOST_SMS))
    return f"    {{{base},\n     {{{maps}}}, {', '.join(map(str, numbers))}}}"


def group_header(name: str, tables: Sequence[GroupTable]) -> str:
    """What the header says of group products."""
    fields = (("int type;", f"{name.upper()}_BF16, ..."), ("int gated;", "1: Y is silu(X G) * (X U), and W has the rows of G, then of U"),
              ("uint64_t rows, groups, n, k;", "rows of X and Y of all groups, and past them; N is the columns of Y"),
              ("const void *x, *w;", "X [rows, K], W [groups, N, K], or [groups, 2 N, K] with a gate"), ("void *y;", "Y [rows, N]"),
              ("const int32_t *cu_seqlens;", "[groups + 1]: where each group begins, and the end of the last; on the device"),
              ("uint64_t ldx, ldy;", "elements from row to row; 0: without gaps"),
              ("const float *x_scale, *w_scale;", "[1] and [groups], or [K / 128, rows] and [groups, N / 128, K / 128]"),
              ("uint64_t x_scale_ld;", "of block scales, a multiple of 4; 0: rows rounded up to one"),
              ("uint64_t mean_rows;", "expected rows of a group, for the choice alone; 0: rows / groups"), ("void *workspace;", ""),
              ("uint64_t workspace_bytes;", ""))
    struct = "\n".join(f"    {field:<34}{f'/* {note} */' if note else ''}".rstrip() for field, note in fields)
    listed = [f"  {table.layer}: {', '.join(str(most) for most, _ in table.choices)}" for table in tables]
    notes = ("Y = X W^T for each group of rows, as ptxkit.gemm.group_gemm. Lengths stay on the device. Its workspace is not that of",
             "another product: give it one of its own, and prepare it.")
    return f"""
{text.comment(("Group products, and up to how many rows of a group on average each choice is for:", *listed))}
typedef struct {{
{struct}
}} {name}_group;

int {name}_group_choice(const {name}_group *group);
const char *{name}_group_configuration(int choice);
int {name}_group_workspace(const {name}_group *group, uint64_t *bytes);

{text.comment(notes)}int {name}_group_gemm(const {name}_group *group, void *stream);
"""


__all__ = ["GroupLayer", "GroupPlan", "GroupTable", "group_header", "group_plans", "group_source", "group_tables"]
