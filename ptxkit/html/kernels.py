"""A kernel: its signature, parameters, shared memory and registers, and its PTX behind a click. Nothing is assembled to show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .layouts import shared
from .parts import code, finding, folded, framed, pre, said, table, title

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel
    from ..dsl.parameters import Parameter, Record
    from ..dsl.traced import Traced
    from ..inspect.sections import Section
    from ..runtime.toolchain import Assembly

LINES = 2_000
"""Lines of PTX that are shown."""


def kernel(made: Kernel[...]) -> str:
    """A kernel in its default configuration: it is traced for that."""
    head = [title(f"@kernel {made.name}"), *_documented(made.__doc__)]
    try:
        traced = made.trace()
    except Exception as error:                      # whatever the kernel's own code says: what is shown must not raise
        words = (str(error).splitlines() or [type(error).__name__])[0]
        return framed(*head, pre(f"{made.name}({', '.join(made.arguments)})"),
                      f'<div class="f review"><p><b>not traced</b>: {code(words)}</p></div>')
    return framed(*head, *_traced(traced))


def trace(made: Traced) -> str:
    """A trace: a kernel in one configuration."""
    return framed(title(f"{made.name}, traced"), *_traced(made))


def assembly(made: Assembly) -> str:
    """What ptxas made of a module."""
    rows = [(used.name, used.registers, used.spill_stores, used.spill_loads, used.stack, f"{used.shared:,}", used.barriers)
            for used in made.resources.values()]
    heads = ("entry", "registers", "spill stores", "spill loads", "stack", "static shared memory", "barriers")
    return framed(title(f"{len(made.cubin):,} bytes of machine code for {made.target}, by {made.tool.name} {made.tool.version}"),
                  table(heads, rows, numbers=range(1, 7)), *map(finding, made.findings))


def _documented(text: str | None) -> Iterator[str]:
    if text and text.strip():
        yield f"<p>{code(' '.join(text.strip().partition(chr(10) * 2)[0].split()))}</p>"


def _traced(made: Traced) -> Iterator[str]:
    yield pre(_signature(made))
    if made.parameters:
        yield table(("parameter", "type", "a launch passes"), [(each.name, typed(each), _passed(made, each)) for each in made.parameters])
    yield table(("", ""), _facts(made))
    if made.shared.allocations:
        yield from shared(made.shared)
    lines = made.ptx().splitlines()
    more = [] if len(lines) <= LINES else [f"... and {len(lines) - LINES:,} lines more, which `.ptx()` has"]
    yield folded(f"PTX, {len(lines):,} lines", pre("\n".join([*lines[:LINES], *more])))


def _signature(made: Traced) -> str:
    """As Python has it, with the values of compile-time parameters."""
    given = [f"{each.name}: {typed(each)}" for each in made.signature]
    fixed = [f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in made.config.items()]
    return f"{made.name}({', '.join([*given, *(['*', *fixed] if fixed else [])])})"


def typed(each: Parameter | Record) -> str:
    """The type of a parameter as its annotation says it."""
    kind = getattr(each, "kind", "record")
    if kind == "tensormap":
        return "TensorMap"
    name = "bytes" if each.type is None else each.type.__name__
    return {"pointer": f"Ptr[{name}]", "scalar": f"Reg[{name}]"}.get(kind, name)


def _passed(made: Traced, each: Parameter) -> str:
    name = "" if each.type is None else each.type.__name__
    if each.kind == "tensormap":
        record = made.copies.records.get(each.name)
        return "an array, or a TensorMap" + (f": copied by {record}" if record is not None else "")
    return {"pointer": f"an array of {name}", "scalar": f"a number of type {name}"}.get(each.kind, "bytes")


def _facts(made: Traced) -> Iterator[tuple[str, str]]:
    block = " x ".join(map(str, made.block)) if made.block else "any"
    yield "threads of a CTA", block.removesuffix(" x 1").removesuffix(" x 1")
    if made.cluster != (1, 1, 1):
        yield "CTAs of a cluster", " x ".join(map(str, made.cluster))
    yield "target", f"{', '.join(made.module.target)}, PTX {'.'.join(map(str, made.module.version))}"
    if not made.shared.allocations:
        yield "shared memory", "none"
    used = made.resources.get(made.name)
    if used is None:
        yield "registers", "not assembled yet: `.assemble()` tells"
    else:
        yield "registers", f"{used.registers} of a thread, {used.spills} bytes spilled"


def facts(entries: Sequence[tuple[str, Sequence[Section]]]) -> str:
    """What `inspect` finds out about entries, table by table."""
    parts = []
    for name, sections in entries:
        parts.append(title(name))
        for section in sections:
            rows = table(section.heads, section.rows) if section.rows else ""
            parts.append(folded(section.title, rows + "".join(map(said, section.after)), open=True))
    return framed(*parts)


def trail(steps: Sequence[tuple[str, Sequence[Sequence[str]]]], why: str) -> str:
    """Lines of the source, each with rows of its PTX and of its machine code."""
    parts = [part for line, rows in steps for part in (pre(line), table(("", "", ""), rows, numbers=(1,), mono=True))]
    return framed(*parts, *([said(why)] if why else []))


__all__ = ["assembly", "facts", "kernel", "trace", "trail", "typed"]
