"""The trace of one function. It holds all state while a kernel is traced."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..grammar.special import RESERVED, SPECIAL
from ..grammar.walk import instructions
from ..types import Scalar
from .blocks import check_entered
from .branched import check_rebound
from .names import SYMBOL
from .rebound import check_results
from .reg import Reg
from .regions import WRITES, Region, Regions, check_reads, names, writes
from .source import user_position

if TYPE_CHECKING:
    from types import CodeType

    from ..smem import SharedPlan
    from .blocks import Block
    from .dropped import Result
    from .marks import Marks
    from .module import ModuleBuilder
    from .reg import Value

S = TypeVar("S", bound=Scalar)
V = TypeVar("V")

LEAVES = frozenset(("ret", "ret.uni", "exit"))
"""Before these a thread's marks end."""
_PREFIX = {"pred": "%p", "b16": "%rs", "b32": "%r", "b64": "%rd", "b128": "%rq", "f32": "%f", "f64": "%fd"}


class LastIf(NamedTuple):
    """The `if_` block that ended last: the label after it, the most threads in it, the region, and the `with` statement that left it.
    `shared` says whether that statement entered another `if_` inside it, too.
    """

    label: str
    population: int
    region: Region
    statement: tuple[int, int | None] | None
    shared: bool


class Builder:
    """The body of one `.entry` or `.func` while its Python function runs."""

    def __init__(self, module: ModuleBuilder, name: str, start: Position | None = None) -> None:
        self.module = module
        self.name = name
        self.start = start
        self.body: list[tree.Statement] = []
        self._counted, self._before = self.body, 0
        """The statements of the innermost `raw.scope`, and what to add to their number for that of all statements so far."""
        self._scopes: set[int] = set()
        self.regions = Regions()
        self.remote: set[str] = set()
        """The registers with addresses that mapa made, in this CTA's shared memory or another's."""
        self.populations: list[int] = []
        self.unlimited = 1 << 30
        self.last_if: LastIf | None = None
        self._counts: dict[str, int] = {}
        self._named: dict[str, str] = {}
        self._memo: list[tuple[bool, dict[Hashable, Any]]] = [(False, {})]
        self.versions: dict[str, int] = {}
        """How often each register was written in place."""
        self._labels: dict[str, Position | None] = {}
        self._branches: dict[str, Position | None] = {}
        self._given: set[str] = set()
        self.parameters: set[str] = set()
        """The names of the PTX parameters."""
        self._label_count = 0
        self.unentered: dict[int, tuple[Block, Position | None]] = {}
        """The blocks that were made and not entered yet, and where."""
        self.results: list[tuple[int, set[str], str, CodeType, int]] = []
        """Of each loop that carries a value under the value's own name: where it ends, the registers, the name, the code and the place."""
        self.rebound: list[tuple[int, Value, str, str, Position | None]] = []
        """Slots that an `if_` body binds to an older value: the statement after the body, the value, the kind, the path, the line."""
        self.dropped: list[Result] = []
        """The results that the author's code takes from no call."""
        self.guarded: list[Result] = []
        """The results of guarded calls without a destination."""
        self.marks: Marks | None = None
        """The state of marks, where the kernel is traced with them."""
        self.bounds: dict[str, tuple[int, int]] = {}
        """What the registers that loops count stay below, where it is known, and how many blocks are open around the loop."""
        self.said: set[str] = set()
        """The labels that the author placed. Control flow makes the other labels."""

    @property
    def shared(self) -> SharedPlan:
        """The shared-memory plan of the kernel."""
        return self.module.shared

    def register(self, type: type[S], name: str = "") -> Reg[S]:
        """A fresh virtual register, with this name if one is given."""
        if name:
            return self._under(name, type)
        register_type = type.register
        index = self._counts.get(register_type, 0)
        while self._named and f"{_PREFIX[register_type]}{index}" in self._named:
            index += 1
        self._counts[register_type] = index + 1
        return Reg(self, f"{_PREFIX[register_type]}{index}", type)

    def free(self, name: str, callee: str) -> str:
        """The name, or one like it, for a variable of a call's scope. It hides no parameter or named register, and not the callee."""
        while name in self.parameters or name in self._named or name == callee:
            name += "_"
        return name

    def counts(self) -> dict[str, int]:
        """The number of registers made so far, by register type."""
        return dict(self._counts)

    def _under(self, name: str, type: type[S]) -> Reg[S]:
        if not SYMBOL.fullmatch(name) or name == "_" or name in RESERVED or {name, f"{name}.x"} & SPECIAL.keys():
            raise TraceError(f"a register cannot be called {name!r}: write a name of PTX, as \"%r1\" or \"total\"")
        if name in self._named or any(_index(name, prefix) < self._counts.get(type_, 0) for type_, prefix in _PREFIX.items()):
            raise TraceError(f"`{self.name}` has a register `{name}` already: name registers before others are made")
        self._named[name] = type.register
        return Reg(self, name, type)

    def own(self, reg: Reg[Any]) -> None:
        """Raise unless `reg` was made by this trace."""
        if reg.builder is not self:
            if reg.builder.name == self.name:
                raise TraceError(f"{reg!r} is of an earlier trace of `{self.name}`, in another configuration or by another kernel of that "
                                 "name: make registers in the function itself, and keep none outside of it")
            raise TraceError(f"{reg!r} belongs to the trace of `{reg.builder.name}`, not to `{self.name}`: pass it as a parameter")

    def population(self) -> int | None:
        """An upper bound of the threads of a CTA that execute the current line, from the enclosing `if_`s; None without a block size."""
        threads = self.module.threads
        return None if threads is None else min([threads, *self.populations])

    def emit(self, opcode: str, operands: tuple[tree.Operand, ...] = (), guard: tree.Guard | None = None,
             position: Position | None = None) -> None:
        """Append one instruction at the user's line."""
        if self.marks is not None and opcode in LEAVES and not self.marks.closing:
            self.marks.leave(opcode, guard, position)
            return
        self.body.append(tree.Instruction(opcode, operands, guard, position or user_position()))

    def repeats(self) -> bool:
        """Whether the current line may run more than once in a thread: it is in a loop, a @func, or after a label of the author's."""
        return bool(self.module.open) or bool(self.said) or any(region.kind in ("loop", "for_range") for region in self.regions.open)

    def wrote(self, reg: Reg[Any]) -> None:
        """Record that `reg` was written in place: addresses computed from its old value are not reused."""
        self.versions[reg.name] = self.versions.get(reg.name, 0) + 1

    def moved(self, mnemonic: str, result: str, sources: Sequence[tree.Operand]) -> None:
        """Record whether the result is an address that mapa made, moved or displaced. Bits from 24 on are the rank of its CTA."""
        far = [isinstance(source, tree.Name) and source.name in self.remote for source in sources]
        if mnemonic in ("sub", "selp"):
            remote = far[0] and far[1] == (mnemonic == "selp")
        elif mnemonic in ("or", "xor"):
            remote = any(far) and any(isinstance(source, tree.Integer) and 0 <= source.value < 1 << 24 for source in sources)
        else:
            remote = any(far) and mnemonic in ("mov", "add", "mad", "cvt")
        (self.remote.add if remote else self.remote.discard)(result)

    # ------------------------------------------------------------------ statements in PTX's braces

    @property
    def now(self) -> int:
        """How many statements there are so far, those within `raw.scope` too. Variables and moves of a call are part of the call."""
        return self._before + len(self._counted)

    @contextmanager
    def braces(self) -> Iterator[None]:
        """Statements within `{ ... }`."""
        outer, counted = self.body, self._counted
        self._before, self._counted = self.now, []
        self.body = self._counted
        try:
            yield
        finally:
            block, end = tree.Block(tuple(self.body)), self.now
            self.body, self._counted = outer, counted
            self.body.append(block)
            self._scopes.add(id(block))
            self._before = end - len(counted)

    def statements(self) -> list[tree.Statement]:
        """The statements in their order, those within `raw.scope` too."""
        return [*self._flat(self.body)] if self._scopes else self.body

    def _flat(self, body: Iterable[tree.Statement]) -> Iterator[tree.Statement]:
        for each in body:
            if isinstance(each, tree.Block) and id(each) in self._scopes:
                yield from self._flat(each.body)
            else:
                yield each

    # ------------------------------------------------------------------ labels

    def new_label(self, hint: str) -> str:
        """A label name that no other statement of this function has."""
        self._label_count += 1
        while self._given and f"${hint}_{self._label_count}" in self._given:
            self._label_count += 1
        return f"${hint}_{self._label_count}"

    def given_label(self, name: str) -> str:
        """A label name that the author chose. No label made later gets it."""
        if not SYMBOL.fullmatch(name) or name in RESERVED:
            raise TraceError(f"a label cannot be called {name!r}: write a name of PTX, as \"$L1\" or \"done\"")
        self._given.add(name)
        return name

    def place(self, name: str) -> None:
        """Put a label here."""
        position = user_position()
        if name in self._labels:
            raise TraceError(f"label `{name}` is defined twice: first at {self._labels[name]}, again at {position}")
        self._labels[name] = position
        self.body.append(tree.Label(name, position))

    def branch(self, name: str, guard: tree.Guard | None = None) -> None:
        """Emit `bra name`. The label may be placed later."""
        self.branched(name)
        self.emit("bra", (tree.Name(name),), guard)

    def branched(self, name: str) -> None:
        """Record a branch instruction to `name`."""
        self._branches.setdefault(name, user_position())

    def forget(self) -> None:
        """Record that control may arrive here from anywhere: addresses computed before are not reused."""
        for _, memo in self._memo:
            memo.clear()

    # ------------------------------------------------------------------ reuse of address arithmetic

    @contextmanager
    def scope(self, *, loop: bool = False) -> Iterator[None]:
        """A region. Addresses computed in it are not reused after it. A loop reuses only constants from before it."""
        self._memo.append((loop, {}))
        try:
            yield
        finally:
            self._memo.pop()

    def memo(self, key: tuple[Hashable, ...], inputs: tuple[Reg[Any], ...], make: Callable[[], V]) -> V:
        """`make()`, or its earlier value if that is still valid: address arithmetic is emitted once per region."""
        full = (*key, *((name, self.versions.get(name, 0)) for name in [reg.operand().name for reg in inputs]))
        for is_loop, memo in reversed(self._memo):
            if full in memo:
                return memo[full]  # type: ignore[no-any-return]
            if is_loop and inputs:
                break
        value = make()
        self._memo[-1][1][full] = value
        return value

    # ------------------------------------------------------------------ the finished body

    def finish(self) -> tuple[tree.Statement, ...]:
        """The body for the tree: register declarations first, then statements with `.loc` positions."""
        check_entered(self)
        missing = [name for name in self._branches if name not in self._labels]
        if missing:
            raise TraceError(f"label `{missing[0]}` is branched to but never placed in `{self.name}`: `label.place()` puts it",
                             self._branches[missing[0]])
        reached = (s for s in reversed(self.body) if not isinstance(s, tree.Label) or s.name in self._branches)
        last = next(reached, None)
        if not (isinstance(last, tree.Instruction) and last.opcode in ("ret", "exit", "trap") and last.guard is None):
            self.emit("ret", position=next((i.position for i in reversed([*instructions(self.body)])), self.start))
        reads = self._reads()
        check_reads(self, reads, _PREFIX)
        check_results(self, reads)
        check_rebound(self, reads)
        self.module.guarded += self.guarded
        self.module.dropped += [each for each in self.dropped if not any(name in reads for name in names(each.result))]
        if self.module.joined:
            renamed: dict[str, str] = {}
            self.body = self._renamed(self._joined(self.body, renamed), renamed)
        return (*self._registers(), *self._with_locs(self._sink_unused(reads)))

    def _joined(self, body: Iterable[tree.Statement], names: dict[str, str]) -> list[tree.Statement]:
        """The body with at most one of the labels that control flow made at one place, and no label that nothing branches to.

        `names` maps each removed label to the one that stays."""
        found: list[tree.Statement] = []
        for label, group in groupby(body, lambda statement: isinstance(statement, tree.Label)):
            if not label:
                found += [tree.Block(tuple(self._joined(s.body, names))) if isinstance(s, tree.Block) else s for s in group]
                continue
            here = [s for s in group if isinstance(s, tree.Label) and (s.name in self.said or s.name in self._branches)]
            kept = [s for s in here if s.name in self.said] or here[:1]
            names.update({s.name: kept[0].name for s in here if s not in kept})
            found += kept
        return found

    def _renamed(self, body: Iterable[tree.Statement], names: Mapping[str, str]) -> list[tree.Statement]:
        """The body with branches to other labels."""
        found: list[tree.Statement] = []
        for statement in body:
            if isinstance(statement, tree.Block):
                statement = tree.Block(tuple(self._renamed(statement.body, names)))
            elif isinstance(statement, tree.Instruction) and statement.opcode in ("bra", "bra.uni"):
                label = statement.operands[0]
                if isinstance(label, tree.Name) and label.name in names:
                    statement = replace(statement, operands=(tree.Name(names[label.name]),))
            found.append(statement)
        return found

    def _registers(self) -> Iterator[tree.Statement]:
        """The register declarations: a range for each type, then the names outside of ranges one by one."""
        left = dict(self._named)
        for type, prefix in _PREFIX.items():
            count = self._counts.get(type, 0)
            within = {name: of for name, of in self._named.items() if _index(name, prefix) < count}
            if all(of == type for of in within.values()):
                if count:
                    yield tree.Variable("reg", type, prefix, count=count)
                left = {name: of for name, of in left.items() if name not in within}
            else:
                yield from (tree.Variable("reg", type, name) for i in range(count) if (name := f"{prefix}{i}") not in within)
        yield from (tree.Variable("reg", type, name) for name, type in left.items())

    def _reads(self) -> dict[str, int]:
        """The last statement that reads each name. A name in the first place of an instruction is its result."""
        reads: dict[str, int] = {}
        name = tree.Name
        for i, statement in enumerate(self.statements()):
            for instruction in (statement,) if isinstance(statement, tree.Instruction) else instructions((statement,)):
                operands, opcode = instruction.operands, instruction.opcode
                result = WRITES.get(opcode)
                if result is None:
                    result = writes(opcode)
                for operand in operands[1:] if result and operands and type(operands[0]) is name else operands:
                    if type(operand) is name:
                        reads[operand.name] = i
                    elif type(operand) is tree.Address and type(operand.base) is name:
                        reads[operand.base.name] = i
                    elif type(operand) is not tree.Integer:
                        for each in names(operand):
                            reads[each] = i
                if instruction.guard:
                    reads[instruction.guard.predicate] = i
        return reads

    def _sink_unused(self, reads: Mapping[str, int]) -> Iterator[tree.Statement]:
        """Replace unused results by `_` where the table allows it (the state of an mbarrier arrive)."""
        from ..grammar.forms import lookup

        for statement in self.body:
            if (isinstance(statement, tree.Instruction) and statement.opcode.startswith("mbarrier.arrive")
                    and isinstance(statement.operands[0], tree.Name) and statement.operands[0].name not in reads
                    and any(s.parameters and s.parameters[0].operand.sink for s in lookup(statement.opcode))):
                yield tree.Instruction(statement.opcode, (tree.Name("_"), *statement.operands[1:]), statement.guard, statement.position)
            else:
                yield statement

    def _with_locs(self, statements: Iterator[tree.Statement]) -> Iterator[tree.Statement]:
        """The statements with a `.loc` wherever the Python line changes."""
        last: tuple[str, int] | None = None

        def placed(statements: Iterable[tree.Statement]) -> Iterator[tree.Statement]:
            nonlocal last
            for statement in statements:
                if isinstance(statement, tree.Block):
                    yield tree.Block(tuple(placed(statement.body)))
                    continue
                if isinstance(statement, tree.Instruction) and statement.position is not None and statement.position.file:
                    here = (statement.position.file, statement.position.line)
                    if here != last:
                        last = here
                        yield tree.Loc(self.module.file_index(here[0]), here[1], 1)
                yield statement

        return placed(statements)


def _index(name: str, prefix: str) -> int | float:
    """The number of a name in the range of a prefix: 5 for `%r5` of `%r`. Infinity if it is not in the range."""
    number = name[len(prefix):] if name.startswith(prefix) else ""
    return int(number) if number.isdecimal() and (number[0] != "0" or number == "0") else inf
