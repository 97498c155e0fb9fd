"""The C text of products: their kernels and plans, and the functions of a single product and of a pack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ptxkit.cards import Card
from ptxkit.export import text

from ..config.dense import DenseConfig
from ..launch.aligning import CTAS
from ..launch.grid import COUNTER_BYTES
from ..scheduler.stream_k import MIN_STAGES_OF_PART
from .choices import KINDS, Layer, Table
from .plan import Plan

HERE = Path(__file__).parent
SHARED = ("driver", "tensormap")
LOAD = ("Finds the driver and loads what a launch needs for the current context: call it before a stream is first captured.",)
LOAD_ALL = ("Loads every kernel for the thread's current context. Without it a kernel is loaded at its first launch, but not while a",
            "stream is captured.")
ORDER = ("Where tiles are computed along a curve it makes the curve's table on the device, which the first launch would do: call it for",
         "the same extents before a stream is captured.")
"""Is added to WORKSPACE in a pack, where load does not know the rows yet."""
WORKSPACE = ("The bytes of workspace that it needs on the device of the thread's context; 0: it needs none. A workspace is device memory",
             "at a multiple of 16 bytes. One launch at a time may use it: give each stream its own.")
PREPARE = ("Clears what a workspace must have cleared before its first product. Later products leave it cleared.",)


def source(name: str, said: Sequence[str], tables: Sequence[Table], plans: Mapping[DenseConfig, Plan], functions: str,
           groups: Iterable[str] = ()) -> str:
    """The C file. `groups` are the plans and tables of group products."""
    data = [*_plans(plans), *_tables(tables, plans)] if tables else []
    grouped = list(groups)
    grouped = [text.part("group", HERE), *grouped] if grouped else []
    numbers = {"COUNTER_BYTES": COUNTER_BYTES, "MIN_STAGES_OF_PART": MIN_STAGES_OF_PART, "COPY_CTAS": CTAS}
    own = "\n".join([f"enum {{ {', '.join(f'PX_{word} = {number}' for word, number in numbers.items())} }};\n",
                     text.part("gemm", HERE), "/* ---- the kernels ---- */\n", *data, *grouped, functions])
    return text.source(name, said, SHARED, own)


def _plans(plans: Mapping[DenseConfig, Plan]) -> Iterator[str]:
    rows = []
    for number, plan in enumerate(plans.values()):
        yield text.cubin_data(f"px_cubin_{number}", plan.entry.cubin)
        yield text.kernel_data(f"px_kernel_{number}", f"px_cubin_{number}", plan.entry)
        for name, argument in plan.maps.items():
            yield text.box_data(f"px_{name}_{number}", argument, plan.promotion)
        yield arguments(f"px_arguments_{number}", plan.values)
        yield from _before(number, plan)
        rows.append(_row(number, plan))
    yield "static px_plan px_plans[] = {\n" + ",\n".join(rows) + "\n};\n"


def arguments(symbol: str, given: Sequence[tuple[str, int]]) -> str:
    """Where a kernel's arguments come from, as data."""
    values = ", ".join(f"{{{what}, {constant}u}}" for what, constant in given)
    return f"static const px_argument {symbol}[] = {{{values}}};\n"


def _before(number: int, plan: Plan) -> Iterator[str]:
    rows = []
    for place, copy in enumerate(plan.copies):
        name = f"{number}_{place}"
        yield text.cubin_data(f"px_copy_cubin_{name}", copy.entry.cubin)
        yield text.kernel_data(f"px_copy_kernel_{name}", f"px_copy_cubin_{name}", copy.entry)
        yield arguments(f"px_copy_arguments_{name}", copy.values)
        numbers = (len(copy.values), int(copy.of_b), f"{copy.bytes}u", copy.pitch, copy.ctas)
        rows.append(f"    {{&px_copy_kernel_{name}, px_copy_arguments_{name}, {', '.join(map(str, numbers))}}}")
    if rows:
        yield f"static const px_copy px_copies_{number}[] = {{\n" + ",\n".join(rows) + "\n};\n"


def _row(number: int, plan: Plan) -> str:
    config, tile = plan.config, plan.config.tile
    maps = ", ".join(f"&px_{name}_{number}" if name in plan.maps else "NULL" for name in ("a", "b", "d", "sfa_map"))
    numbers = (tile.BM, tile.BN, tile.BK, config.multicast.m, config.multicast.n, config.splits, plan.panel, int(plan.along_m),
               config.warpgroups, config.loads.a_rows or 0, *plan.units, plan.d_unit, plan.scale_unit,
               int(config.swap_ab))
    copies = f"px_copies_{number}, {len(plan.copies)}" if plan.copies else "NULL, 0"
    return (f"    {{&px_kernel_{number}, px_arguments_{number}, {len(plan.values)}, {copies}, {maps},\n"
            f'     {", ".join(map(str, numbers))}, {plan.scheduler}, {int(plan.hilbert)}, "{config}", {{0}}}}')


def _tables(tables: Sequence[Table], plans: Mapping[DenseConfig, Plan]) -> Iterator[str]:
    numbers = {config: number for number, config in enumerate(plans)}
    rows = []
    for place, table in enumerate(tables):
        choices = ", ".join(f"{{{most}, {numbers[config]}}}" for most, config in table.choices)
        yield f"static const px_choice px_choices_{place}[] = {{{choices}}};      /* {table.layer} */\n"
        rows.append(f"    {{{_layer(table.layer)}, px_choices_{place}, {len(table.choices)}}}")
    yield "static const px_table px_tables[] = {\n" + ",\n".join(rows) + "\n};\n"


def _layer(layer: Layer) -> str:
    turned = ("a" in layer.turned, "b" in layer.turned)
    numbers = (list(KINDS).index(layer.kind), int(layer.padded), layer.n, layer.k, *map(int, (*layer.fast, *turned, *layer.across)),
               layer.bytes, layer.out_bytes, int(layer.scales == "block"), int(bool(layer.scales)))
    return f"{{{', '.join(map(str, numbers))}}}"


# --------------------------------------------------------------------------------------------------- one product


def one(name: str, said: Sequence[str], table: Table, m: int) -> tuple[str, str]:
    """The header of a single product with `m` rows, and its functions in C."""
    layer = table.layer
    scales = ["const float *a_scale", *(["uint64_t a_scale_ld"] if layer.scales == "block" else []), "const float *b_scale"]
    head = text.prototype(f"int {name}_gemm", ("const void *a", "uint64_t lda", "const void *b", "uint64_t ldb", "void *d", "uint64_t ldd",
                                               *(scales if layer.scales else []), "void *workspace", "uint64_t workspace_bytes",
                                               "void *stream"))
    a, b = ("[K, M]" if layer.layout[0] == "t" else "[M, K]"), ("[K, N]" if layer.layout[1] == "n" else "[N, K]")
    notes = [f"D = A B on `stream` (a CUstream or cudaStream_t) of the thread's current context, with M {m}, N {layer.n}, K {layer.k}.",
             f"A lies {a}, B {b}, D [M, N]; a leading dimension is the elements from line to line, 0 that of lines without gaps.",
             *_scale_notes(layer.scales)]
    declarations = "\n".join([
        f"{text.comment(LOAD)}int {name}_load(void);\n",
        f"{text.comment(WORKSPACE)}int {name}_workspace(uint64_t *bytes);\n",
        f"{text.comment(PREPARE)}int {name}_prepare(void *workspace, uint64_t bytes, void *stream);\n",
        f"{text.comment(notes)}{head};\n"])
    scaled = (["a_scale", "b_scale", "a_scale_ld" if layer.scales == "block" else "0"] if layer.scales else ["NULL", "NULL", "0"])
    fields = ", ".join(("a", "b", "d", "lda", "ldb", "ldd", *scaled, "workspace", "workspace_bytes"))
    names = ("a", "b", "d", "lda", "ldb", "ldd", "a_scale", "b_scale", "a_scale_ld", "workspace", "workspace_bytes")
    filled = "\n".join(f"    product.{field} = {value};" for field, value in zip(names, fields.split(", "), strict=True))
    functions = f"""int {name}_load(void)
{{
    uint64_t bytes;
    int status = px_loaded(&px_plans[0]);
    return status == PX_OK ? px_needs(&px_tables[0].layer, &px_plans[0], {m}, &bytes) : status;
}}

int {name}_workspace(uint64_t *bytes)
{{
    return px_needs(&px_tables[0].layer, &px_plans[0], {m}, bytes);
}}

int {name}_prepare(void *workspace, uint64_t bytes, void *stream)
{{
    return px_prepare(px_plans[0].kernel, workspace, bytes, stream);
}}

{head}
{{
    px_product product;
    product.m = {m};
{filled}
    return px_run(&px_tables[0].layer, &px_plans[0], product, stream);
}}
"""
    return text.header(name, said, declarations), functions


def _scale_notes(scales: str) -> tuple[str, ...]:
    if scales == "block":
        return ("a_scale is float32 [K / 128, M], with a_scale_ld elements from line to line (0: M).",
                "b_scale is float32 [N / 128, K / 128].")
    if scales == "row":
        return ("a_scale is float32 [M], one for each row of A, and b_scale float32 [N], one for each column of B.",)
    return ("a_scale and b_scale are one float32 each, on the device.",) if scales else ()


# --------------------------------------------------------------------------------------------------- a pack


def pack(name: str, said: Sequence[str], tables: Sequence[Table], card: Card, groups: str = "") -> tuple[str, str]:
    """The header of a pack, and its functions in C. `groups` is what the header says of group products."""
    big = name.upper()
    products = tuple(dict.fromkeys(f"  {table.layer}: M {', '.join(str(most) for most, _ in table.choices)}" for table in tables))
    fields = (("int type;", f"{big}_BF16, ..."), ("uint64_t m, n, k;", ""), ("const void *a, *b;", "A [M, K], B [N, K]"),
              ("void *d;", "D [M, N]"), ("uint64_t lda, ldb, ldd;", "elements from line to line; 0: without gaps"),
              ("const float *a_scale, *b_scale;", "one number each, or by rows [M] and [N], or [K / 128, M] and [N / 128, K / 128]"),
              ("uint64_t a_scale_ld;", "of block scales: elements from line to line; 0: M"), ("void *workspace;", ""),
              ("uint64_t workspace_bytes;", ""))
    struct = "\n".join(f"    {field:<34}{f'/* {note} */' if note else ''}".rstrip() for field, note in fields)
    types = ("Types. FP8 is e4m3 with one scale for each operand, FP8_ROW with one for each row of A and column of B, FP8_BLOCK with",
             "scales of 1 x 128 and 128 x 128; D is then bf16.")
    chooses = (f"The number of the configuration that a product gets, as ptxkit chooses on {card.name} for the next number of rows in the",
               f"table; -1, with a sentence in {name}_error(), where the pack has none. Needs no driver.")
    runs = "D = A B on `stream` (a CUstream or cudaStream_t) of the thread's current context."
    head = f"""{text.comment(types)}{text.constants(big, "TYPES", KINDS.values())}
{text.comment(LOAD_ALL)}int {name}_load(void);

{text.comment(PREPARE)}int {name}_prepare(void *workspace, uint64_t bytes, void *stream);
"""
    dense = f"""
{text.comment(("The products, and up to how many rows each choice is for:", *products))}
typedef struct {{
{struct}
}} {name}_product;

{text.comment(chooses)}int {name}_choice(const {name}_product *product);

/* A configuration in words. */
const char *{name}_configuration(int choice);

{text.comment((*WORKSPACE, *ORDER))}int {name}_workspace(const {name}_product *product, uint64_t *bytes);

{text.comment((runs,))}int {name}_gemm(const {name}_product *product, void *stream);
"""
    parts = [*(["pack"] if tables else []), *(["group_pack"] if groups else [])]
    functions = "\n".join([_common(name, bool(tables), bool(groups)), *(text.part(each, HERE).replace("NAME", name) for each in parts)])
    return text.header(name, said, head + (dense if tables else "") + groups), functions


def _common(name: str, dense: bool, groups: bool) -> str:
    """Loading and preparing, whatever products there are."""
    loops = ""
    for array, of in ((dense, "px_plans[i]"), (groups, "px_group_plans[i].base")):
        count = of.partition("[")[0]
        if array:
            loops += (f"    for (i = 0; i < (int)(sizeof {count} / sizeof *{count}) && status == PX_OK; ++i)\n"
                      f"        status = px_loaded(&{of});\n")
    unused = "" if dense else "    (void)px_run;\n    (void)px_needs;\n"
    first = "px_plans[0].kernel" if dense else "px_group_plans[0].base.kernel"
    return f"""int {name}_load(void)
{{
    int i, status = PX_OK;
{unused}{loops}    return status;
}}

int {name}_prepare(void *workspace, uint64_t bytes, void *stream)
{{
    return px_prepare({first}, workspace, bytes, stream);
}}
"""


__all__ = ["arguments", "one", "pack", "source"]
