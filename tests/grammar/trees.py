"""Random modules: a strategy for every node of the tree, over all that PTX text can say and nothing that it cannot.

Trees that no text gives are left out on purpose: an instruction named `WARP_SZ`, a negative unsigned integer, `displaced` beside
an offset that is not zero, a quote in a string.
"""

from __future__ import annotations

import string
from typing import TypeVar

from hypothesis import strategies as st

from ptxkit.grammar import tree

T = TypeVar("T")


def named(name: str, strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """The strategy under a short name: hypothesis prints strategies, and these nest into hundreds of kilobytes."""

    def drawn(draw: st.DrawFn) -> T:
        return draw(strategy)

    drawn.__name__ = name
    return st.composite(drawn)()


LETTERS, TAIL = string.ascii_letters, string.ascii_letters + string.digits + "_$"
RESERVED = {"WARP_SZ", "generic"}
TYPES = ["b8", "b16", "b32", "b64", "b128", "u8", "s16", "u32", "s64", "f16", "f16x2", "f32", "f64", "pred"]
HEADERS = [
    "maxntid",
    "reqntid",
    "minnctapersm",
    "maxnctapersm",
    "maxnreg",
    "noreturn",
    "explicitcluster",
    "reqnctapercluster",
    "maxclusterrank",
    "blocksareclusters",
    "abi_preserve",
    "abi_preserve_control",
]

counts = st.integers(0, 2**32)
names = named(
    "names",
    st.one_of(
        st.builds(str.__add__, st.sampled_from(LETTERS), st.text(TAIL, max_size=8)),
        st.builds(str.__add__, st.sampled_from("_$%"), st.text(TAIL, min_size=1, max_size=8)),
        st.sampled_from(["add", "call", "reg", "ret", "f32", "_Z3foo", "%r1", "$L__BB0_1", "b8", "e5", "x0f"]),
    ).filter(lambda name: name not in RESERVED),
)
lanes = st.sampled_from(["x", "y", "z", "w", "r", "g", "b", "a", "b0", "h1", "b3210"])
texts = named(
    "texts",
    st.text(st.characters(blacklist_characters='"\n', blacklist_categories=["Cs"]), max_size=12) | st.sampled_from(["a//b", "/*", "c:\\d"]),
)


# ---------------------------------------------------------------------------------------------------- operands

naturals = named("naturals", st.builds(tree.Integer, st.integers(0, 2**64 - 1) | st.integers(0, 300), st.booleans()))
integers = naturals | st.builds(tree.Integer, st.integers(-(2**63), -1) | st.integers(-9, -1))
floats = st.builds(tree.Float, st.integers(0, 2**32 - 1), st.just(32)) | st.builds(tree.Float, st.integers(0, 2**64 - 1))
numbers = named("numbers", integers | floats)
offsets = st.integers(-(2**63), 2**63 - 1) | st.integers(-64, 64)
plain = st.builds(tree.Name, names)
registers = named("registers", plain | st.just(tree.Name("_")) | st.builds(lambda name, lane: tree.Name(f"{name}.{lane}"), names, lanes))
vectors = named("vectors", st.builds(tree.Vector, st.lists(registers | numbers, min_size=1, max_size=5).map(tuple)))
operands = named(
    "operands",
    st.one_of(
        registers,
        numbers,
        vectors,
        st.builds(tree.Offset, registers, offsets),
        st.builds(tree.Address, registers, offsets),
        st.builds(tree.Address, registers, st.just(0), st.just(True)),
        st.builds(tree.Address, integers),
        st.builds(tree.Address, registers, offsets, st.just(False), st.just(True)),
        st.builds(tree.Element, registers, registers, offsets),
        st.builds(tree.Element, registers, integers),
        st.builds(tree.TensorAddress, registers, vectors | registers, st.none() | registers),
        st.builds(tree.Pair, registers | vectors, registers),
        st.builds(tree.Not, registers),
        st.builds(tree.Minus, registers),
    ),
)
arguments = named("arguments", st.builds(tree.Arguments, st.lists(registers | numbers, max_size=4).map(tuple)))

# -------------------------------------------------------------------------------------------------- statements

guards = st.none() | st.builds(tree.Guard, names, st.booleans())
words = st.builds(str.__add__, st.sampled_from(string.ascii_lowercase), st.text(string.ascii_lowercase + string.digits + "_", max_size=5))
tokens = st.builds(str.__add__, st.just("."), words.filter(lambda word: word not in ("reg", "loc", "pragma"))) | st.sampled_from(
    [".shared::cta", ".mbarrier::complete_tx::bytes", ".L2::128B", ".f32", ".u32", ".1d", ".param", ".global"]
)
opcodes = st.builds(lambda word, tail: word + "".join(tail), words.filter(lambda word: word != "call"), st.lists(tokens, max_size=4))
instructions = named(
    "instructions",
    st.builds(tree.Instruction, opcodes, st.lists(operands, max_size=5).map(tuple), guards)
    | st.builds(
        tree.Instruction, st.sampled_from(["call", "call.uni"]), st.lists(registers | arguments, min_size=1, max_size=4).map(tuple), guards
    ),
)
labels = st.builds(tree.Label, names)
some_names = st.lists(names, min_size=1, max_size=3).map(tuple)
pragmas = st.builds(tree.Directive, st.just("pragma"), st.lists(st.builds(tree.Text, texts), min_size=1, max_size=2).map(tuple))
locs = st.builds(tree.Loc, counts, counts, counts, st.none() | st.tuples(names, counts, counts, counts, counts))
directives = st.builds(tree.Directive, st.sampled_from(HEADERS), st.lists(counts, max_size=3).map(tuple))
headers = named("headers", st.lists(pragmas | directives, max_size=3).map(tuple))

# ------------------------------------------------------------------------------------------------ declarations

symbols = named(
    "symbols",
    st.one_of(
        plain,
        st.builds(lambda name: tree.Expression("generic", (name,)), plain),
        st.builds(lambda name, by: tree.Expression("+", (name, by)), plain, integers),
        st.builds(lambda name, by: tree.Expression("+", (tree.Expression("generic", (name,)), by)), plain, integers),
    ),
)
constants = named(
    "constants",
    numbers
    | symbols
    | st.builds(
        lambda mask, symbol: tree.Expression("mask", (tree.Integer(mask), symbol)),
        st.sampled_from([0xFF << 8 * i for i in range(8)]),
        symbols,
    ),
)
fields = st.builds(lambda field, value: tree.Expression("=", (field, value)), plain, plain | naturals)
flat = st.builds(tree.Aggregate, st.lists(constants | fields, max_size=40).map(tuple))
initializers = named("initializers", constants | flat | st.builds(tree.Aggregate, st.lists(flat | constants, max_size=3).map(tuple)))
attributes = st.lists(st.sampled_from(["managed", "unified(19, 95)", "unified(0, 18446744073709551615)"]), max_size=2).map(tuple)
aligns = st.none() | st.sampled_from([1, 2, 4, 8, 16, 128, 256])
shapes = st.lists(st.none() | counts, max_size=3).map(tuple)
pointers = st.builds(tree.Pointer, st.sampled_from(["", "global", "shared", "const", "local"]), aligns)
spaces = st.sampled_from(["reg", "param", "shared", "global", "const", "local", "tex", "sreg"])
types = st.sampled_from([*TYPES, "texref", "samplerref", "surfref"])


def _variables(linkages: st.SearchStrategy[str]) -> st.SearchStrategy[tree.Variable]:
    return st.builds(
        tree.Variable,
        spaces,
        types,
        names,
        st.none() | counts,
        st.sampled_from([1, 2, 4, 8]),
        aligns,
        shapes,
        st.none() | initializers,
        linkages,
        attributes,
    )


linkages = st.sampled_from(["", "", "visible", "extern", "weak", "common"])
variables = named("variables", _variables(linkages))
local_variables = named("local_variables", _variables(st.just("")))
parameters = named(
    "parameters",
    st.lists(
        st.builds(
            tree.Variable,
            st.sampled_from(["param", "reg"]),
            st.sampled_from(TYPES),
            names | st.just("_"),
            vector=st.sampled_from([1, 1, 2, 4]),
            align=aligns,
            shape=shapes,
            pointer=st.none() | pointers,
        ),
        max_size=4,
    ).map(tuple),
)
prototypes = named("prototypes", st.builds(tree.Prototype, names, parameters, parameters, st.lists(directives, max_size=2).map(tuple)))
targets = st.builds(tree.Targets, names, st.sampled_from(["branchtargets", "calltargets"]), some_names)
simple = named("simple", st.one_of(instructions, instructions, labels, local_variables, pragmas, locs, prototypes, targets))
blocks = st.builds(tree.Block, st.lists(simple, max_size=3).map(tuple))
nested = st.builds(tree.Block, st.lists(simple | blocks, max_size=3).map(tuple))
bodies = named("bodies", st.none() | st.lists(simple | blocks | nested, max_size=6).map(tuple))

# --------------------------------------------------------------------------------------------------- the module

functions = named(
    "functions",
    st.builds(tree.Function, st.just("entry"), names, parameters, st.just(()), headers, bodies, linkages, attributes)
    | st.builds(tree.Function, st.just("func"), names, parameters, parameters, headers, bodies, linkages, attributes),
)
files = st.builds(
    lambda index, text, rest: tree.Directive("file", (index, text, *rest)),
    counts,
    st.builds(tree.Text, texts),
    st.lists(counts, max_size=2),
)
places = plain | st.builds(lambda name: tree.Name("." + name), st.sampled_from(["debug_abbrev", "debug_str", "x"]))
debug_integers = st.builds(tree.Integer, st.integers(-(2**63) + 1, -1)) | naturals
data = named(
    "data",
    st.builds(
        tree.Data,
        st.sampled_from(TYPES),
        st.lists(
            debug_integers
            | places
            | st.builds(lambda place, by: tree.Expression("+", (place, by)), places, naturals)
            | st.builds(lambda left, right: tree.Expression("-", (left, right)), places, places),
            min_size=1,
            max_size=4,
        ).map(tuple),
    ),
)
sections = st.builds(tree.Section, st.sampled_from([".debug_info", ".debug_str", ".x"]), st.lists(labels | data, max_size=5).map(tuple))
items = named("items", st.one_of(variables, functions, functions, pragmas, files, st.builds(tree.Alias, names, names), sections))
modules = named(
    "modules",
    st.builds(
        tree.Module,
        st.tuples(st.integers(1, 99), st.integers(0, 9)),
        st.lists(st.sampled_from(["sm_90a", "sm_90", "sm_100f", "debug", "texmode_independent"]), min_size=1, max_size=3).map(tuple),
        st.none() | st.sampled_from([32, 64]),
        st.lists(items, max_size=5).map(tuple),
    ),
)
