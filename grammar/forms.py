"""The engine over the instruction table: which opcodes are legal, and which operands each takes.

The forms of a mnemonic are compiled on first use, and nothing is enumerated before somebody asks for it. A `State` is the set of automaton
positions that one prefix of an opcode reaches. `lookup` of a known opcode is one dictionary access.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from . import ordering, tree
from .errors import OpcodeError, PtxkitError
from .notation import Notation, compile_form
from .schema import Form, Operand, Per
from .spelling import joined, spelled

GroupKind = Literal["plain", "address", "tensor", "pair", "arguments", "literal"]
Bindings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One operand of a complete opcode. Its type, count, space and immediates are resolved. `regions`: the optional brackets around it."""

    name: str
    operand: Operand
    regions: tuple[int, ...] = ()

    @property
    def optional(self) -> bool:
        return bool(self.regions)


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters (by index) that PTX writes as one operand. "literal" is the sink `_` that a form prescribes."""

    kind: GroupKind
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """One complete opcode of one form, with its operands in PTX order."""

    opcode: str
    form: Form
    bindings: Mapping[str, str]
    parameters: tuple[Parameter, ...]
    layout: tuple[Group, ...]
    since: tuple[int, int]

    @property
    def target(self) -> str:
        return self.form.target

    def render(self, values: Sequence[tree.Operand | None]) -> tuple[tree.Operand, ...]:
        """The operands as the tree holds them, from one value per parameter. None leaves an optional operand out."""
        self._check_presence(values)
        written: list[tree.Operand] = []
        for group in self.layout:
            given = [value for value in (values[i] for i in group.indices) if value is not None]
            if group.kind == "literal":
                written.append(tree.Name("_"))
            elif group.kind == "tensor" and given:
                written.append(_tensor_address(given[0], given[-1], given[1] if len(given) == 3 else None))
            elif group.kind == "pair" and len(given) == 2:
                written.append(tree.Pair(given[0], given[1]))
            else:
                written += given
        return tuple(written)

    def _check_presence(self, values: Sequence[tree.Operand | None]) -> None:
        if len(values) != len(self.parameters):
            raise PtxkitError(f"`{self.opcode}` has {len(self.parameters)} operands, {len(values)} were given")
        if all(value is not None for value in values):
            return
        open_regions = {region for p, v in zip(self.parameters, values, strict=True) if v is not None for region in p.regions}
        for parameter, value in zip(self.parameters, values, strict=True):
            if value is None and open_regions.issuperset(parameter.regions):
                why = "is required" if not parameter.regions else "must be given together with the other operands of its brackets"
                raise PtxkitError(f"`{self.opcode}`: operand `{parameter.name}` {why}")

    def __repr__(self) -> str:
        return f"<{self.opcode} {', '.join(p.name + '?' * p.optional for p in self.parameters)}>"


def _tensor_address(tensormap: tree.Operand, coordinates: tree.Operand, sampler: tree.Operand | None) -> tree.TensorAddress:
    named = [handle.base if isinstance(handle, tree.Address) and handle.offset == 0 else handle for handle in (tensormap, sampler)]
    if (not isinstance(named[0], tree.Name) or not isinstance(named[1], (tree.Name, type(None)))
            or not isinstance(coordinates, (tree.Vector, tree.Name))):
        raise PtxkitError(f"a tensor address is a register or variable with coordinates, not {tensormap!r} with {coordinates!r}")
    return tree.TensorAddress(named[0], coordinates, named[1])


# ------------------------------------------------------------------------------------------------ one form, compiled


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """A row with its automaton. `slots` and `words`: what its operands and its lowest version depend on. `resolved`: a cache by these."""

    form: Form
    notation: Notation
    slots: tuple[str, ...]
    words: tuple[str, ...]
    resolved: dict[Hashable, tuple[tuple[Parameter, ...], tuple[Group, ...], tuple[int, int]]]

    def dependence(self, bindings: Bindings, tokens: Sequence[str]) -> Hashable:
        """What the operands depend on. Two paths with equal values here have the same continuations if they are at the same position."""
        bound = dict(bindings)
        return tuple(bound.get(slot) for slot in self.slots), tuple(word in tokens for word in self.words)

    def signature(self, opcode: str, bindings: Bindings, tokens: Sequence[str]) -> Signature:
        key = self.dependence(bindings, tokens)
        bound = dict(bindings)
        if key not in self.resolved:
            self.resolved[key] = _resolve(self.form, self.notation, bound, tokens)
        parameters, layout, since = self.resolved[key]
        return Signature(opcode, self.form, bound, parameters, layout, since)


_compiled_forms: dict[int, _Compiled] = {}


def _compile(form: Form) -> _Compiled:
    known = _compiled_forms.get(id(form))
    if known is not None and known.form is form:
        return known
    notation = compile_form(form)
    slots: dict[str, None] = {}
    words = dict.fromkeys(form.needs)
    for operand in form.operands.values():
        for value in (operand.type, operand.count, operand.space, operand.immediate, operand.selector):
            for text in (value.slot, *value.values.values()) if isinstance(value, Per) else (value,):
                if isinstance(text, str) and text in form.slots:
                    slots[text] = None
        for word in operand.when.split():
            (slots if word in form.slots else words)[word] = None
    _compiled_forms[id(form)] = compiled = _Compiled(form, notation, tuple(slots), tuple(words), {})
    return compiled


def _resolve(form: Form, notation: Notation, bound: Mapping[str, str],
             tokens: Sequence[str]) -> tuple[tuple[Parameter, ...], tuple[Group, ...], tuple[int, int]]:
    parameters: list[Parameter] = []
    layout: list[Group] = []
    for places in notation.groups:
        if places.kind == "literal":
            layout.append(Group("literal", ()))
            continue
        indices: list[int] = []
        for place in places.places:
            operand = form.operands[place.name]
            if operand.when and not any(word in bound or word in tokens for word in operand.when.split()):
                continue
            indices.append(len(parameters))
            parameters.append(Parameter(place.name, _resolve_operand(form, operand, bound), () if operand.when else place.regions))
        if indices:
            layout.append(Group(places.kind if len(indices) == len(places.places) else "plain", tuple(indices)))
    since = max([_version(form.since), *(_version(form.needs[word]) for word in form.needs if word in tokens)])
    return tuple(parameters), tuple(layout), since


# Measured with ptxas 13.0: An integer operand accepts an .f16x2 register if the opcode names the operand's type, but not if it is always an
# integer (a count, a size). A floating operand accepts no integer literal (`add.f32 d, a, 1`). Only these types accept a floating one.
_NO_INTEGERS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "tf32", "f32", "f64"))
_FLOATING_LITERALS = frozenset(("f32", "f64", "b32", "b64"))


def _resolve_operand(form: Form, operand: Operand, bound: Mapping[str, str]) -> Operand:
    def value(of: Any, absent: Any) -> Any:
        if isinstance(of, Per):
            of = of.values.get(bound.get(of.slot, ""), of.default)
        if isinstance(of, str) and of in form.slots:
            of = bound.get(of)
        return absent if of is None else of

    count = value(operand.count, 1)
    count = count if isinstance(count, int) else int(re.sub(r"\D", "", count))
    kind = operand.kind
    if kind == "vector" and operand.scalar and count == 1:
        kind = "register"
    type = value(operand.type, "")
    return replace(operand, kind=kind, type=type, count=count, space=value(operand.space, ""), when="",
                   selector=value(operand.selector, ""), immediate=None if type in _NO_INTEGERS else value(operand.immediate, None),
                   float_immediate=operand.float_immediate and type in _FLOATING_LITERALS,
                   float_ok=operand.float_ok and (operand.wide or operand.type not in ("u32", "s32")))


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


# ------------------------------------------------------------------------------------------------ the table


@cache
def _table() -> Mapping[str, tuple[Form, ...]]:
    from .isa import FORMS

    table: dict[str, list[Form]] = {}
    for form in FORMS:
        table.setdefault(form.mnemonic, []).append(form)
    return {mnemonic: tuple(rows) for mnemonic, rows in table.items()}


def forms(mnemonic: str | None = None) -> tuple[Form, ...]:
    """All rows of the table, or those of one mnemonic, in the order of the manual."""
    if mnemonic is None:
        return tuple(form for rows in _table().values() for form in rows)
    return _table().get(mnemonic, ())


def mnemonics() -> tuple[str, ...]:
    return tuple(_table())


# ------------------------------------------------------------------------------------------------ states


class State:
    """The beginning of an opcode: the automaton positions that this prefix reaches. One object per prefix, so identity is equality."""

    __slots__ = ("_children", "_next", "_signatures", "_threads", "prefix", "tokens")

    def __init__(self, prefix: str, tokens: tuple[str, ...], threads: tuple[tuple[_Compiled, int, Bindings], ...]) -> None:
        self.prefix = prefix
        self.tokens = tokens
        self._threads = threads
        self._children: dict[str, State | None] = {}
        self._next: dict[str, State] | None = None
        self._signatures: tuple[Signature, ...] | None = None

    def step(self, token: str) -> State | None:
        """The state after one more modifier. None: the modifier is not legal here."""
        if token not in self._children:
            threads = tuple((row, p, (*bindings, (row.notation.slots[p], token)) if row.notation.slots[p] else bindings)
                            for row, at, bindings in self._threads for p in _after(row.notation, at) if token in row.notation.tokens[p])
            self._children[token] = State(f"{self.prefix}.{token}", (*self.tokens, token), threads) if threads else None
        return self._children[token]

    def next(self) -> dict[str, State]:
        """The legal next modifiers in the manual's order. Each leads to at least one complete opcode."""
        if self._next is None:
            legal = dict.fromkeys(token for row, at, _ in self._threads for p in _after(row.notation, at)
                                  for token in row.notation.tokens[p])
            self._next = {token: state for token in legal if (state := self.step(token)) is not None}
        return self._next

    def attributes(self) -> dict[str, State]:
        """`next` by Python names: a token that starts with a digit is joined to the token before it."""
        return dict(_attributes(self, ""))

    def signatures(self) -> tuple[Signature, ...]:
        """One signature per form that this opcode completes. (): more modifiers are needed."""
        if self._signatures is None:
            self._signatures = tuple(
                row.signature(self.prefix, bindings, self.tokens) for row, at, bindings in self._threads
                if (at in row.notation.accepting if at >= 0 else row.notation.empty))
        return self._signatures

    @property
    def key(self) -> Hashable:
        """States with equal keys have the same continuations and operands: they are one state of the minimised automaton."""
        return frozenset((id(row), at, row.dependence(bindings, self.tokens)) for row, at, bindings in self._threads)

    def __repr__(self) -> str:
        return f"State({self.prefix!r})"


def _after(notation: Notation, at: int) -> tuple[int, ...]:
    return notation.follow[at] if at >= 0 else notation.first


def _attributes(state: State, before: str) -> Iterator[tuple[str, State]]:
    for token, after in state.next().items():
        if token[0].isdigit() == bool(before):
            yield from _named(joined(before, token) if before else spelled(token), after)


def _named(name: str, state: State) -> Iterator[tuple[str, State]]:
    """The state, unless a token that starts with a digit must follow, and the states after such tokens."""
    if state.signatures() or any(not token[0].isdigit() for token in state.next()):
        yield name, state
    yield from _attributes(state, name)


@cache
def names() -> Mapping[str, State]:
    """The first Python name of every opcode: a mnemonic, joined to the next token if that starts with a digit (`tex_1d`)."""
    return dict(named for mnemonic in mnemonics() for named in _named(spelled(mnemonic), start(mnemonic)))


@cache
def start(mnemonic: str) -> State:
    """The state before any modifier."""
    rows = forms(mnemonic)
    if not rows:
        raise _unknown(mnemonic)
    return start_of(rows)


def start_of(rows: Sequence[Form]) -> State:
    """The state before any modifier, for these rows. They need not be in the table."""
    return State(rows[0].mnemonic, (), tuple((_compile(row), -1, ()) for row in rows))


@cache
def lookup(opcode: str) -> tuple[Signature, ...]:
    """The signatures of a complete opcode, one per form. `OpcodeError` names the wrong token and what is legal there."""
    mnemonic, *tokens = opcode.split(".")
    if not forms(mnemonic):
        raise _newer(opcode) or _unknown(mnemonic)
    state = start(mnemonic)
    for i, token in enumerate(tokens):
        after = state.step(token)
        if after is None:
            raise _newer(opcode) or _wrong(state, tokens, i)
        state = after
    found = state.signatures()
    if not found:
        if newer := _newer(opcode):
            raise newer
        legal = tuple(state.next())
        raise OpcodeError(f"`{opcode}` is incomplete: {_one_of(legal)} is due next{_reordered(mnemonic, tokens)}", legal)
    return found


def variants(form: Form) -> Iterator[Signature]:
    """Every legal opcode of the form, in the manual's order."""
    row = _compile(form)
    notation = row.notation
    stack: list[tuple[int, tuple[str, ...], Bindings]] = [(-1, (), ())]
    while stack:
        at, tokens, bindings = stack.pop()
        if at in notation.accepting if at >= 0 else notation.empty:
            yield row.signature(".".join((notation.mnemonic, *tokens)), bindings, tokens)
        stack += [(p, (*tokens, token), (*bindings, (notation.slots[p], token)) if notation.slots[p] else bindings)
                  for p in reversed(_after(notation, at)) for token in reversed(notation.tokens[p])]


# ------------------------------------------------------------------------------------------------ what is wrong


def canonical(opcode: str, *, lax: bool = False) -> str | None:
    """The opcode with its modifiers in the table's order. None: ptxas does not accept it.

    ptxas accepts most orders of modifiers, and some modifiers twice. `lax`: any order of the modifiers that is an opcode will do.
    """
    mnemonic = opcode.partition(".")[0]
    found = _reordering(start(mnemonic), opcode, lax) if forms(mnemonic) else None
    return found.prefix if found is not None else None


def _reordering(state: State, opcode: str, lax: bool = False) -> State | None:
    """The state of a complete opcode that has the modifiers in another order. `state`: before any modifier."""
    mnemonic, *given = opcode.split(".")
    if len(given) > 14:
        return None
    tokens = tuple(given) if lax else ordering.relevant(mnemonic, given)
    first = 0 if lax else ordering.base(mnemonic, tokens)
    apart = mnemonic in ("bar", "barrier") and "sync" in given and {"cta", "warp", "cluster"}.isdisjoint(given[1:])
    if not lax and not apart and first != ordering.base(mnemonic, given):
        return None

    def search(state: State, left: tuple[str, ...]) -> State | None:
        if not left:
            return state if state.signatures() else None
        for i, token in enumerate(left):
            kind = ordering.ordered(token)
            if token in left[:i] or (kind and any(kind == ordering.ordered(before) for before in left[:i])):
                continue
            after = state.step(token)
            if after is not None and (lax or ordering.base(mnemonic, after.tokens) == first):
                found = search(after, (*left[:i], *left[i + 1:]))
                if found:
                    return found
        return None

    at: State | None = state
    for token in tokens[:first]:
        at = at.step(token) if at is not None else None
    return search(at, tokens[first:]) if at is not None else None


@cache
def _starts(chapter: Literal["lenient", "later"]) -> Mapping[str, State]:
    """The states before any modifier, by mnemonic, of a chapter that is not part of the table."""
    from importlib import import_module

    rows: dict[str, list[Form]] = {}
    for row in import_module(f".isa.{chapter}", __package__).FORMS:
        rows.setdefault(row.mnemonic, []).append(row)
    return {mnemonic: start_of(found) for mnemonic, found in rows.items()}


@cache
def later(opcode: str) -> Signature | None:
    """The signature of an opcode of a GPU after Hopper: its `target` and `since` say what it needs. It has no operands."""
    start = _starts("later").get(opcode.partition(".")[0])
    found = _reordering(start, opcode) if start is not None else None
    return found.signatures()[0] if found is not None else None


@cache
def accepted(opcode: str) -> tuple[Signature, ...]:
    """Every signature with which ptxas accepts the opcode: also with its modifiers in another order, and forms that only ptxas has."""
    ordered = canonical(opcode)
    start = _starts("lenient").get(opcode.partition(".")[0])
    beyond = _reordering(start, opcode) if start is not None else None
    return (*(lookup(ordered) if ordered else ()), *(beyond.signatures() if beyond is not None else ()))


def _unknown(mnemonic: str) -> OpcodeError:
    if mnemonic in _starts("later"):
        return OpcodeError(f"`{mnemonic}` is an instruction of GPUs after sm_90a", mnemonics())
    return OpcodeError(f"`{mnemonic}` is not an instruction of the table for sm_90a{_close(mnemonic, mnemonics(), '')}", mnemonics())


def _newer(opcode: str) -> OpcodeError | None:
    found = later(opcode)
    if found is None:
        return None
    return OpcodeError(f"`{opcode}` needs {found.target} and PTX {'.'.join(map(str, found.since))}: sm_90a does not have it")


def _wrong(state: State, tokens: Sequence[str], i: int) -> OpcodeError:
    mnemonic = state.prefix.partition(".")[0]
    opcode, token, legal = ".".join((mnemonic, *tokens)), tokens[i], tuple(state.next())
    elsewhere = any(token in choices for form in forms(mnemonic) for choices in _compile(form).notation.tokens)
    ending = " (the opcode may also end there)" if state.signatures() else ""
    due = f"{_one_of(legal, token)} is legal there{ending}" if legal else f"`{state.prefix}` is complete"
    if not elsewhere:
        return OpcodeError(f"`{opcode}`: `.{token}` is not a modifier of `{mnemonic}`{_close(token, legal)}; "
                           f"after `{state.prefix}`, {due}", legal)
    reordered = _reordered(mnemonic, tokens)
    what = "is out of order" if reordered else f"is legal elsewhere in `{mnemonic}` but not"
    return OpcodeError(f"`{opcode}`: `.{token}` {what} after `{state.prefix}`{reordered}{_close(token, legal)}; {due}", legal)


def _reordered(mnemonic: str, tokens: Sequence[str]) -> str:
    found = canonical(".".join((mnemonic, *tokens)), lax=True)
    return f"; in PTX's order it is `{found}`" if found else ""


def _one_of(legal: Sequence[str], word: str = "") -> str:
    if len(legal) > 12:
        near = list(dict.fromkeys((*_alike(word, legal), *legal)))[:12]
        return f"one of {', '.join(f'`.{token}`' for token in near)}, … ({len(legal)} in all)"
    shown = [f"`.{token}`" for token in legal]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}" if shown else "nothing"


def _alike(word: str, legal: Sequence[str]) -> list[str]:
    """The tokens that differ from `word` only in numbers, the nearest first: `m64n96k16` for `m64n100k16`."""
    pattern, numbers = re.sub(r"\d+", "#", word), [int(n) for n in re.findall(r"\d+", word)]
    alike = [token for token in legal if numbers and re.sub(r"\d+", "#", token) == pattern]
    return sorted(alike, key=lambda token: sum(abs(int(n) - m) for n, m in zip(re.findall(r"\d+", token), numbers, strict=True)))


def _close(word: str, legal: Sequence[str], dot: str = ".") -> str:
    from difflib import get_close_matches

    found = _alike(word, legal) or get_close_matches(word, legal, 1)
    return f" (did you mean `{dot}{found[0]}`?)" if found else ""
