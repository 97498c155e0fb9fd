"""The facts of an entry as tables: a title, the heads of its columns and its rows. The terminal and the page write the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from .facts import BarrierFact, CopyFact, DescriptorFact, EntryFacts, UseFact

WIDTH = 118
"""Columns of sentences."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table. `lines` are the PTX lines that each row is about, in the order of the places that its cell names; `after` sentences below.

    The cells of one that is `prose` are sentences: a terminal shows them below each other.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[tuple[int | None, ...], ...] = ()
    after: tuple[str, ...] = field(default=())
    prose: bool = False


class Entries(tuple[EntryFacts, ...]):
    """The facts of entries. It is a tuple; as text and in a notebook it is their tables."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(text, self)).rstrip()

    def _repr_html_(self) -> str:
        from ..html.kernels import facts

        return facts([(entry.name, sections(entry)) for entry in self])


def sections(entry: EntryFacts) -> list[Section]:
    """The tables that have something to say."""
    found = [*_summary(entry), *_declared(entry), *_instructions(entry), *_roles(entry), *_descriptors(entry.descriptors),
             *_copies(entry.copies), *_barriers(entry.barriers), *_named(entry), *_banks(entry), *_notes(entry)]
    if entry.missing:
        found.append(Section("not known", ("",), tuple((said,) for said in entry.missing)))
    return found


def _summary(entry: EntryFacts) -> Iterator[Section]:
    rows: list[tuple[str, str]] = []
    used = entry.resources
    if used is not None:
        rows = [("registers", str(used.registers)), ("spills (bytes stored, loaded)", f"{used.spill_stores}, {used.spill_loads}"),
                ("stack (bytes)", str(used.stack)), ("static shared memory (bytes)", f"{used.shared:,}"), ("barriers", str(used.barriers))]
        block = entry.bounds.get("reqntid") or entry.bounds.get("maxntid")
        if block:
            threads = 1
            for extent in block:
                threads *= extent
            rows.append(("registers of a CTA", f"{used.registers} x {threads:,} threads = {used.registers * threads:,}"))
    rows += [(_BOUNDS.get(name, name), " x ".join(map(str, values)) or "yes") for name, values in entry.bounds.items()]
    rows += [(word.replace("_", " "), f"{count:,}") for word, count in entry.counts.items() if count or word in ("instructions", "wgmma")]
    if entry.counts.get("setmaxnreg") or entry.setmaxnreg is not None:
        rows.append(("setmaxnreg in effect", {True: "yes", False: "no", None: "unknown"}[entry.setmaxnreg]))
    if entry.hint:
        rows.append(("machine-code hint", entry.hint))
    yield Section("resources", ("", ""), tuple(rows))


_BOUNDS = {"reqntid": "threads of a CTA", "maxntid": "threads of a CTA, at most", "minnctapersm": "CTAs on a multiprocessor, at least",
           "maxnreg": "registers of a thread, at most", "reqnctapercluster": "CTAs of a cluster",
           "maxclusterrank": "CTAs of a cluster, at most",
           "explicitcluster": "launched in clusters", "blocksareclusters": "a grid counts clusters"}


def _declared(entry: EntryFacts) -> Iterator[Section]:
    if entry.parameters:
        yield Section("parameters", ("name", "type", "offset", "bytes"), tuple(
            (p.name, p.what, str(p.offset), str(p.bytes)) for p in entry.parameters))
    if entry.shared:
        yield Section("shared memory", ("name", "bytes", "align", "offset", ""), tuple(
            (f"  {s.name}" if s.within else s.name, "?" if s.bytes is None else f"{s.bytes:,}", str(s.align),
             "" if s.offset is None else f"{s.offset:,}", s.what) for s in entry.shared))


def _instructions(entry: EntryFacts) -> Iterator[Section]:
    total = sum(entry.mix.values())
    if total:
        yield Section("instruction mix", ("class", "count", "%"), tuple(
            (name, f"{count:,}", f"{100 * count / total:.1f}") for name, count in entry.mix.items()))
    if entry.wgmma:
        said = ""
        if entry.flight is not None and entry.flight.products is None:
            said = "no wait_group that the text shows bounds how many wgmmas are in flight"
        elif entry.flight is not None:
            said = f"at most {_many(entry.flight.products or 0, 'wgmma')} in flight, in {_many(entry.flight.groups or 0, 'group')}"
        yield Section("matrix products", ("instruction", "count"), tuple((name, str(count)) for name, count in entry.wgmma.items()),
                      after=(said,) if said else ())


def _roles(entry: EntryFacts) -> Iterator[Section]:
    if entry.roles:
        rows = tuple((role.name, role.threads, f"{len(role.lines):,}", str(role.lines[0])) for role in entry.roles)
        yield Section("roles", ("role", "threads", "PTX lines", "first PTX line"), rows, tuple((role.lines[0],) for role in entry.roles))


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"


def _descriptors(found: Sequence[DescriptorFact]) -> Iterator[Section]:
    if found:
        rows = tuple((_line(d.line, d.author), d.operand.upper(), d.address or "?", _bytes(d.leading), _bytes(d.stride),
                      _swizzle(d.swizzle), {"k": "K", "mn": "MN"}[d.major]) for d in found)
        unknown = sum(not d.derived for d in found)
        said = f"{unknown} of {len(found)} are not put together in this text: loaded, or made where it cannot be followed"
        after = (said,) if unknown else ()
        yield Section("matrix descriptors", ("line", "of", "address", "leading", "stride", "swizzle", "major"), rows,
                      tuple((d.line,) for d in found), after)


def _copies(found: Sequence[CopyFact]) -> Iterator[Section]:
    if found:
        rows = tuple((_line(c.line, c.author), f"{c.kind} {f'{c.dimensions}d' if c.dimensions else 'bulk'}", c.tensormap, _box(c),
                      _bytes(c.bytes), c.shared, c.barrier, c.multicast or "no", c.threads) for c in found)
        after = ("a box is in the tensor map, which the host encodes: the PTX does not say it",) if any(
            c.dimensions and not c.box for c in found) else ()
        yield Section("copies (TMA)", ("line", "what", "tensor map", "box", "bytes", "shared memory", "barrier", "multicast", "by"), rows,
                      tuple((c.line,) for c in found), after)


def _box(copy: CopyFact) -> str:
    if not copy.dimensions:
        return ""
    if not copy.box:
        return "?"
    return f"{' x '.join(map(str, copy.box))} {copy.box_type}" + (f", swizzle {copy.swizzle}" if copy.swizzle else "")


def _barriers(found: Sequence[BarrierFact]) -> Iterator[Section]:
    if not found:
        return
    rows: list[tuple[str, ...]] = []
    lines: list[tuple[int | None, ...]] = []
    for barrier in found:
        name = f"{barrier.name}{f'[{barrier.count}]' if (barrier.count or 1) > 1 else ''}"
        alike: dict[tuple[str, str, str, str, str], dict[str, int | None]] = {}
        for use in (*barrier.inits, *barrier.arrives, *barrier.copies, *barrier.waits):
            counted = use in barrier.copies or "expect_tx" in use.what
            row = (use.what, use.threads, _amount(barrier, use), _bytes(use.bytes) if counted else "",
                   "another CTA's" if use.remote else "")
            alike.setdefault(row, {}).setdefault(_line(use.line, use.author), use.line)
        for alike_row, places in alike.items():
            rows.append((name, *alike_row, ", ".join(places)))
            lines.append(tuple(places.values()))
            name = ""
    yield Section("mbarriers", ("barrier", "what", "by", "count or parity", "bytes", "", "line"), tuple(rows), tuple(lines))


def _amount(barrier: BarrierFact, use: UseFact) -> str:
    if use in barrier.copies:
        return ""
    if use.amount is not None:
        return f"parity {use.amount}" if use in barrier.waits else str(use.amount)
    return "parity in a register" if use in barrier.waits else "in a register"


def _named(entry: EntryFacts) -> Iterator[Section]:
    alike: dict[tuple[str, ...], dict[str, int | None]] = {}
    for barrier in entry.named:
        for opcode, count, who, line, author in barrier.uses:
            row = ("?" if barrier.number is None else str(barrier.number), opcode, "all" if count is None else str(count), who)
            alike.setdefault(row, {}).setdefault(_line(line, author), line)
    if alike:
        rows = tuple((*row, ", ".join(filter(None, places))) for row, places in alike.items())
        yield Section("barriers of the CTA", ("number", "instruction", "threads", "by", "line"), rows,
                      tuple(tuple(places.values()) for places in alike.values()))


def _banks(entry: EntryFacts) -> Iterator[Section]:
    banks = entry.banks
    if banks is None or not banks.accesses:
        return
    alike: dict[tuple[str, ...], list[int | None]] = {}
    for b in banks.conflicts:
        row = (_line(b.line, b.author), b.opcode, str(b.warp), f"{b.passes} passes instead of {b.ideal}",
               " and ".join(f"lane {lane}" for lane in b.lanes))
        alike.setdefault(row, []).append(b.line)
    rows = tuple((*row, f"{len(lines)} times" if len(lines) > 1 else "") for row, lines in alike.items())
    after = (f"{banks.known} of {banks.accesses} loads and stores of shared memory have addresses that are known: "
             f"{banks.known - len(banks.conflicts)} without conflicts",)
    yield Section("shared-memory bank conflicts", ("line", "instruction", "warp", "", "for example", "") if rows else (), rows,
                  tuple((lines[0],) for lines in alike.values()), after)


def _notes(entry: EntryFacts) -> Iterator[Section]:
    if entry.notes:
        yield Section("ptxas says", ("rule", "where", "what", "remedy"), tuple((n.rule, n.place, n.message, n.remedy) for n in entry.notes),
                      tuple((n.line,) for n in entry.notes), prose=True)


def _line(line: int | None, author: str) -> str:
    if author:
        return author.rpartition("/")[2]
    return "" if line is None else str(line)


def _bytes(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _swizzle(span: int | None) -> str:
    return "?" if span is None else f"{span} bytes" if span else "none"


def text(entry: EntryFacts) -> str:
    """The entry for a terminal."""
    lines = [entry.name]
    for section in sections(entry):
        lines += ["", f"{section.title}:", *_columns(section)]
    return "\n".join(lines) + "\n"


def _prose(section: Section) -> Iterator[str]:
    for rule, where, what, remedy in section.rows:
        yield from wrap(f"{f'{where}: ' if where else ''}{what} [{rule}]", WIDTH, initial_indent="  ", subsequent_indent="    ")
        if remedy:
            yield from wrap(remedy, WIDTH, initial_indent="    -> ", subsequent_indent="       ")


def _columns(section: Section) -> Iterator[str]:
    if section.prose:
        yield from _prose(section)
        return
    cells = [section.heads, *section.rows] if any(section.heads) else list(section.rows)
    used = [column for column in range(len(section.heads)) if any(row[column] for row in section.rows)]
    widths = {column: max(len(row[column]) for row in cells) for column in used}
    for row in cells:
        yield "  " + "  ".join(row[column].ljust(widths[column]) for column in used).rstrip()
    for said in section.after:
        yield f"  {said}"
