"""An opcode, or the beginning of one, explained from the instruction table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from ..grammar import forms
from ..grammar.errors import OpcodeError
from ..grammar.schema import DEPENDS, Effects, Form, Operand, Per, Range
from ..grammar.special import SPECIAL
from ..grammar.spelling import opcode_tokens, python_name
from ..grammar.summaries import SUMMARIES, about, fitting, summary
from .calls import calls, meaning, packed
from .words import CONTROL, CONVERGENCE, SYNC, TAGS, pitfalls

SAID = frozenset(("descriptor", "half", "converted", "mbarrier", "hint"))
"""Tags of operands that say more than what the operand means."""
WIDTH = 118
"""Columns of the text."""


@dataclass(frozen=True, slots=True)
class OperandNote:
    """One operand: `words` says its type, what may stand there and what it means."""

    name: str
    words: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class FormNote:
    """One form of an instruction. `slots` are the choices that `.name` stands for in `syntax`; `needs` the PTX version of single words;
    `calls` how Python calls a complete opcode; `packed` where the halves of a result come from.
    """

    syntax: str
    since: str
    target: str
    slots: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, str]
    operands: tuple[OperandNote, ...]
    effects: tuple[str, ...]
    limits: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the table says of the opcodes that begin with `opcode`. `complete`: it is one itself; `next`: modifiers that may follow."""

    opcode: str
    complete: bool
    summary: str
    forms: tuple[FormNote, ...] = ()
    next: tuple[str, ...] = ()
    pitfalls: tuple[str, ...] = ()
    python: str = ""
    note: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return text(self).rstrip()

    def _repr_html_(self) -> str:
        from ..html.reports import explanation

        return explanation(self, text(self))


def explain(query: str) -> Explanation:
    """An opcode, a prefix of one (`wgmma.mma_async...`), a whole instruction, its Python spelling, or a special register explained.

    OpcodeError when no opcode begins so.
    """
    words = _cleaned(query)
    name = words if words.startswith("%") else f"%{words}"
    if name in SPECIAL or any(key.startswith(f"{name}.") for key in SPECIAL):
        return _special(name)
    if not words:
        raise OpcodeError(f"{query!r} names no instruction", forms.mnemonics())
    try:
        return _opcode(words)
    except OpcodeError as error:
        spelled = ".".join(opcode_tokens(words.removeprefix("ptx.").split(".")))
        if spelled != words:
            try:
                return _opcode(spelled)
            except OpcodeError:
                raise error from None
        raise


def overview() -> dict[str, dict[str, str]]:
    """A sentence for each mnemonic, by chapter of the table."""
    from importlib import import_module
    from pkgutil import iter_modules

    from ..grammar import isa

    found: dict[str, dict[str, str]] = {}
    known = {id(form) for form in forms.forms()}
    for chapter in sorted(module.name for module in iter_modules(isa.__path__)):
        rows = getattr(import_module(f"ptxkit.grammar.isa.{chapter}"), "FORMS", ())
        for row in rows:
            if id(row) in known and not any(row.mnemonic in rows for rows in found.values()):
                found.setdefault(chapter, {})[row.mnemonic] = about(row.mnemonic)
    return found


def _cleaned(query: str) -> str:
    """The opcode in what was asked: without guard, operands, and the dots that say "and so on"."""
    text = re.sub(r"^\s*@\s*!?\s*[%\w$.]+\s+", "", query.strip()).removeprefix("ptx.")
    text = re.split(r"[\s;(]", text, maxsplit=1)[0]
    return re.sub(r"(\.\.\.|…|\*|\.)+$", "", text)


# ------------------------------------------------------------------------------------------------ opcodes


def _opcode(words: str) -> Explanation:
    mnemonic, *tokens = words.split(".")
    if not forms.forms(mnemonic):
        return _beginning(mnemonic, tokens)
    state, note = forms.start(mnemonic), ""
    for index, token in enumerate(tokens):
        after = state.step(token)
        if after is None and index == len(tokens) - 1:
            begun = [name for name in state.next() if name.startswith(token)]
            if len(begun) == 1:
                after = state.step(begun[0])
            elif begun:
                made = _of(state, "")
                return Explanation(made.opcode, False, made.summary, _rows(mnemonic, state.tokens), tuple(begun), made.pitfalls,
                                   made.python, f"{len(begun)} modifiers begin with `.{token}`")
        if after is None:
            reordered = forms.canonical(words)
            if reordered is None:
                beyond = forms.accepted(words)
                if beyond:
                    return Explanation(words, True, summary(words), tuple(map(_signed, beyond)), pitfalls=pitfalls(words),
                                       note="ptxas takes it, but the manual does not have it: ptxkit reads it and never writes it")
                forms.lookup(words)  # says which token is wrong
                raise OpcodeError(f"`{words}` is not the beginning of an opcode")
            return _of(_state(reordered), f"in PTX's order; `{words}` means the same")
        state = after
    return _of(state, note)


def _state(opcode: str) -> forms.State:
    mnemonic, *tokens = opcode.split(".")
    state = forms.start(mnemonic)
    for token in tokens:
        after = state.step(token)
        assert after is not None
        state = after
    return state


def _beginning(mnemonic: str, tokens: Sequence[str]) -> Explanation:
    """Of a word that mnemonics begin with: the one, or their list."""
    begun = [name for name in forms.mnemonics() if name.startswith(mnemonic)] if mnemonic and not tokens else []
    if len(begun) == 1:
        return _opcode(begun[0])
    if not begun:
        forms.start(mnemonic)  # raises, and says what is near
    return Explanation(mnemonic, False, f"{len(begun)} instructions begin so.", parts={name: about(name) for name in begun})


def _of(state: forms.State, note: str) -> Explanation:
    mnemonic, opcode = state.prefix.partition(".")[0], state.prefix
    signatures = state.signatures()
    if signatures:
        rows = tuple(_signed(signature) for signature in signatures)
    else:
        rows = _rows(mnemonic, state.tokens)
    parts = {} if signatures else _parts(mnemonic, state.tokens)
    names = ".".join(python_name(opcode.split(".")))
    kind = next(iter(parts)) if len(parts) == 1 else opcode  # all that begins so is of one kind
    return Explanation(opcode, bool(signatures), summary(opcode) or parts.get(kind, ""), rows, tuple(state.next()), pitfalls(kind),
                       f"ptx.{names}", note, parts if len(parts) > 1 else {})


def _rows(mnemonic: str, tokens: Sequence[str]) -> tuple[FormNote, ...]:
    """The forms that have an opcode with this beginning."""
    return tuple(_unsigned(form) for form in _matching(mnemonic, tokens))


def _matching(mnemonic: str, tokens: Sequence[str]) -> Iterator[Form]:
    for form in forms.forms(mnemonic):
        state: forms.State | None = forms.start_of((form,))
        for token in tokens:
            state = state.step(token) if state is not None else None
        if state is not None:
            yield form


def _parts(mnemonic: str, tokens: Sequence[str]) -> dict[str, str]:
    """What the forms with this beginning are, by the longest name that a sentence is about."""
    found: dict[str, str] = {}
    for form in _matching(mnemonic, tokens):
        opcode = re.split(r"[{( ]", form.syntax, maxsplit=1)[0]
        keys = fitting(opcode, SUMMARIES)
        if keys:
            found.setdefault(keys[-1], SUMMARIES[keys[-1]])
    return found


# ------------------------------------------------------------------------------------------------ forms and operands


def _signed(signature: forms.Signature) -> FormNote:
    """A form of a complete opcode: operands with their types decided."""
    names = [parameter.name for parameter in signature.parameters]
    operands = tuple(OperandNote(p.name, _meant(signature.opcode, p.name, names, p.operand), p.optional)
                     for p in signature.parameters)
    form = signature.form
    tokens = signature.opcode.split(".")
    needs = {word: version for word, version in form.needs.items() if word in tokens}
    since = f"{signature.since[0]}.{signature.since[1]}"
    chosen = {name: (token,) for name, token in signature.bindings.items()}
    return FormNote(form.syntax, since, form.target, chosen, needs, operands, tuple(_effects(form.effects)), form.rules,
                    calls(signature), tuple(packed(signature)))


def _unsigned(form: Form) -> FormNote:
    opcode = re.split(r"[{( ]", form.syntax, maxsplit=1)[0]
    operands = tuple(OperandNote(name, _meant(opcode, name, list(form.operands), operand, form), bool(operand.when))
                     for name, operand in form.operands.items())
    return FormNote(form.syntax, form.since, form.target, form.slots, form.needs, operands, tuple(_effects(form.effects)), form.rules)


def _meant(opcode: str, name: str, names: Sequence[str], operand: Operand, form: Form | None = None) -> str:
    """What an operand means, then what may stand there."""
    said = meaning(opcode, name, names)
    words = _operand(operand, form, tagged=not said or operand.tag in SAID)
    return f"{said}: {words}" if said else words


def _operand(operand: Operand, form: Form | None = None, *, tagged: bool = True) -> str:
    """An operand in words."""
    words = [_kind(operand, form)]
    if operand.kind in ("register", "vector", "predicate"):
        words.append({"r": "read", "w": "written", "rw": "read and written"}[operand.access])
    words += [_immediate(operand), "or `!p`" if operand.negate else "", "or `_`" if operand.sink else "",
              "or a variable's name" if operand.variable else "", "a wider register too" if operand.wide else ""]
    if operand.tag and tagged:
        words.append(TAGS.get(operand.tag, operand.tag))
    if operand.when:
        words.append("with " + " or ".join(f".{word}" for word in operand.when.split()))
    if operand.default is not None:
        words.append(f"{operand.default} in ptxkit unless said")
    return ", ".join(word for word in words if word)


def _kind(operand: Operand, form: Form | None) -> str:
    type = _varying(operand.type, form)
    if operand.kind == "address":
        space = _varying(operand.space, form)
        return f"an address {'' if space.startswith('of') else 'in '}{space}" if space else "a generic address"
    if operand.kind == "vector":
        count = operand.count.slot if isinstance(operand.count, Per) else operand.count
        if isinstance(count, int):
            return f"{count} registers {type} in braces"
        return f"registers {type} in braces, as many as `.{count}` says"
    if operand.kind == "coordinates":
        many = f"as many as `.{operand.count.slot}` says" if isinstance(operand.count, Per) else str(operand.count)
        return f"{type} registers or integers in braces, {many}"
    if operand.kind == "register":
        return f"a register {type}".rstrip()
    return {"predicate": "a predicate", "immediate": "an immediate", "arguments": "a list in parentheses", "special": "a special register",
            "label": "a label", "function": "a function", "symbol": "a variable"}.get(operand.kind, operand.kind)


def _varying(value: str | Per, form: Form | None) -> str:
    if isinstance(value, Per):
        return f"by `.{value.slot}`"
    if form is not None and value in form.slots:
        return f"of `.{value}`"
    return f".{value}" if value else ""


def _immediate(operand: Operand) -> str:
    allowed = operand.immediate
    literal = "or a floating literal" if operand.float_immediate else ""
    if allowed is None or operand.kind == "coordinates":
        return literal
    head = "" if operand.kind == "immediate" else "or a number"
    if isinstance(allowed, Per):
        return f"{head} by `.{allowed.slot}`".strip()
    said = _range(allowed)
    return ", ".join(part for part in (f"{head} {said}".strip(), literal) if part)


def _range(allowed: Range) -> str:
    if allowed.choices:
        return " or ".join(map(str, allowed.choices))
    low, high = allowed.low, allowed.high
    said = (f"from {low} to {high}" if low is not None and high is not None else f"from {low} on" if low is not None
            else f"up to {high}" if high is not None else "")
    return f"{said} in steps of {allowed.multiple}".strip() if allowed.multiple > 1 else said


def _effects(effects: Effects) -> Iterator[str]:
    """What the instruction does beside its destination registers, a sentence each."""
    for access in effects.memory:
        verb = {"r": "reads", "w": "writes", "rw": "reads and writes"}[access.mode]
        size = {"type": "as many bytes as its type has", "box": "one box", "tile": "one tile of the instruction's shape"}.get(
            str(access.bytes), f"{access.bytes} bytes" if isinstance(access.bytes, int) else f"`{access.bytes}` bytes")
        proxy = "" if access.proxy == "generic" else f", through the {access.proxy} proxy"
        yield f"{verb} memory at `{access.operand}`: {size}{proxy}"
    for word in effects.sync:
        yield SYNC.get(word, word)
    if effects.fence is not None:
        yield f"orders the {effects.fence[0]} with the {effects.fence[1]} proxy"
    if effects.convergence != "none":
        yield CONVERGENCE[effects.convergence]
    if effects.control:
        yield CONTROL[effects.control]
    if effects.in_flight:
        yield f"uses the registers of {' and '.join(f'`{name}`' for name in effects.in_flight)} until it has been waited for"
    if effects.carry:
        yield f"{ {'r': 'reads', 'w': 'writes', 'rw': 'reads and writes'}[effects.carry]} the carry flag CC"
    if effects.dependence != "never":
        yield f"what it gives or leaves depends {DEPENDS[effects.dependence]}"


# ------------------------------------------------------------------------------------------------ special registers


_SPECIALS = {
    "tid": "The thread's place in its CTA.", "ntid": "The CTA's extents in threads.", "ctaid": "The CTA's place in the grid.",
    "nctaid": "The grid's extents in CTAs.", "laneid": "The lane in its warp, 0 to 31.",
    "warpid": "The warp's number in the CTA; it may change, so take it for information (tid gives the stable one).",
    "clusterid": "The cluster's place in the grid.", "nclusterid": "The grid's extents in clusters.",
    "cluster_ctaid": "The CTA's place in its cluster.", "cluster_nctaid": "The cluster's extents in CTAs.",
    "cluster_ctarank": "The CTA's rank in its cluster.", "cluster_nctarank": "How many CTAs the cluster has.",
    "smid": "The multiprocessor that the thread runs on now.", "nsmid": "More than the highest %smid; numbers may be missing.",
    "clock": "A cycle counter of the multiprocessor, 32 bits.", "clock64": "A cycle counter of the multiprocessor.",
    "globaltimer": "Nanoseconds of a clock that all multiprocessors share.", "gridid": "The grid's number in its context.",
    "dynamic_smem_size": "Bytes of dynamic shared memory that the launch gave.",
    "total_smem_size": "Bytes of shared memory of the CTA, without what the system reserves.",
    "is_explicit_cluster": "Whether the launch asked for clusters.",
    "lanemask_eq": "A mask of this lane.", "lanemask_lt": "A mask of the lanes below this one.",
    "lanemask_le": "A mask of this lane and those below.",
    "lanemask_gt": "A mask of the lanes above this one.", "lanemask_ge": "A mask of this lane and those above.",
}


def _special(name: str) -> Explanation:
    registers = {key: type for key, type in SPECIAL.items() if key == name or key.startswith(f"{name}.")}
    base = name.lstrip("%").partition(".")[0]
    said = _SPECIALS.get(base, "A special register.")
    return Explanation(name, name in SPECIAL, said, pitfalls=("A special register is only the source of `mov` or `cvt`: move it first.",),
                       python=f"ptxkit.{name.lstrip('%')}" if base in _EXPORTED else "",
                       parts={key: f"a .{type} register" for key, type in registers.items()})


_EXPORTED = frozenset(("tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "smid", "nsmid", "clusterid", "nclusterid", "cluster_ctaid",
                       "cluster_nctaid", "cluster_ctarank", "cluster_nctarank", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge",
                       "lanemask_gt", "clock", "clock64", "globaltimer", "dynamic_smem_size", "total_smem_size"))


# ------------------------------------------------------------------------------------------------ text


def text(made: Explanation) -> str:
    """The explanation as a page of text."""
    lines = [made.opcode + ("" if made.complete or not made.forms else "..."), *_wrapped(made.summary, "  ")]
    if made.note:
        lines += _wrapped(f"({made.note})", "  ")
    if made.parts:
        lines += ["", *_table(made.parts)]
    if made.python:
        lines += ["", "in Python", f"  {made.python}"]
    lines += _each_form(made.forms) if made.complete else _all_forms(made.forms, bool(made.parts))
    if made.next:
        shown = _choices([f".{token}" for token in made.next])
        lines += ["", "may go on with" if made.complete else "goes on with", *_wrapped(shown, "  ")]
    if made.pitfalls:
        lines += ["", "look out", *_bullets(made.pitfalls)]
    return "\n".join(lines) + "\n"


def overview_text(chapters: Mapping[str, Mapping[str, str]]) -> str:
    """The list of all instructions."""
    lines = []
    for chapter, rows in chapters.items():
        lines += [chapter, *_table(rows), ""]
    return "\n".join(lines)


def _each_form(rows: Sequence[FormNote]) -> list[str]:
    """Of a complete opcode."""
    lines = []
    for form in rows:
        lines += ["", "syntax", *_wrapped(form.syntax, "  ", "      "), "needs", f"  PTX {form.since}, {form.target}"]
        if form.calls:
            lines += ["calls", *(line for call in form.calls for line in _wrapped(call, "  ", "      "))]
        if form.operands:
            lines += ["operands", *_table({operand.name + "?" * operand.optional: operand.words for operand in form.operands})]
        if form.packed:
            lines += ["packed", *_bullets(form.packed)]
        if form.limits:
            lines += ["limits", *_bullets(form.limits)]
        if form.effects:
            lines += ["effects", *_bullets(form.effects)]
    return lines


def _all_forms(rows: Sequence[FormNote], short: bool) -> list[str]:
    """Of a beginning: the forms' lines, then (not when it is `short`) what their words and operands stand for, each once."""
    if not rows:
        return []
    slots, operands = dict[str, dict[str, None]](), dict[str, dict[str, None]]()
    syntax: dict[str, None] = {}
    for form in rows:
        needs = "".join(f", .{word} PTX {version}" for word, version in form.needs.items())
        gate = f"(PTX {form.since}, {form.target}{needs})".replace(" ", "\N{NO-BREAK SPACE}")
        syntax[f"{form.syntax}  {gate}"] = None
        for name, tokens in form.slots.items():
            slots.setdefault(name, {}).update(dict.fromkeys(tokens))
        for operand in sorted(form.operands, key=lambda operand, form=form: _place(operand.name, form)):  # type: ignore[misc]
            operands.setdefault(operand.name + "?" * operand.optional, {})[operand.words] = None
    lines = ["", "syntax", *(line.replace("\N{NO-BREAK SPACE}", " ") for said in syntax for line in _wrapped(said, "  ", "      "))]
    if short:
        return lines
    if slots:
        lines += ["where", *_table({f".{name}": _choices(list(tokens)) for name, tokens in slots.items()})]
    if operands:
        lines += ["operands", *_table({name: " | ".join(words) for name, words in operands.items()})]
    for title, said in (("limits", [limit for form in rows for limit in form.limits]),
                        ("effects", [effect for form in rows for effect in form.effects])):
        if said:
            lines += [title, *_bullets(tuple(dict.fromkeys(said)))]
    return lines


def _place(name: str, form: FormNote) -> int:
    found = re.search(rf"(?<![\w.]){re.escape(name)}\b", form.syntax)
    return found.start() if found else 0


def _choices(tokens: Sequence[str]) -> str:
    """Words, those that differ in numbers only as first, second, … last."""
    alike: dict[str, list[str]] = {}
    for token in tokens:
        alike.setdefault(re.sub(r"\d+", "#", token), []).append(token)
    return " ".join(" ".join(same) if len(same) < 7 else f"{same[0]} {same[1]} … {same[-1]} ({len(same)})" for same in alike.values())


def _table(rows: Mapping[str, str]) -> list[str]:
    width = min(max(map(len, rows)), 32)
    return [line for name, said in rows.items() for line in _wrapped(f"{name.ljust(width)}  {said}".rstrip(), "  ", " " * (width + 4))]


def _bullets(sentences: Sequence[str]) -> list[str]:
    return [line for said in sentences for line in _wrapped(said, "  - ", "    ")]


def _wrapped(said: str, first: str, then: str | None = None) -> list[str]:
    return wrap(said, WIDTH, initial_indent=first, subsequent_indent=first if then is None else then, break_long_words=False,
                break_on_hyphens=False)
