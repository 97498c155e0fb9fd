"""A function's body as lines of Python."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Mapping

from ..dsl.raw import held
from ..grammar import tree
from ..grammar.special import SPECIAL
from ..grammar.walk import instructions, statements
from ..grammar.write import write_statement
from .calls import Call, Calls, spelled
from .counting import Counting, counting
from .errors import LiftError
from .naming import Namer, register_name
from .scopes import Body, flattened, names
from .structure import DEPTH, If, Jump, Loop, Node, Place, Scope, Structure
from .terms import Names, quoted, register_types
from .typing import Bound, Registers, bound

WIDTH = 120
LANES = 8
"""A vector with at least so many lanes that stands in several instructions gets a name."""
RUN = 4
"""So many equal instructions in a row, each with a new register, become one line."""
INDENT = "    "


class FunctionSource:
    """One function: `calls` decides every instruction, `lines` writes them.

    `kept` is None but for a debugger, and then the names of PTX that stay: ptxas -g begins a basic block at each label, so that all of them
    stay and there are no others.
    """

    def __init__(self, function: tree.Function, variables: dict[str, str], parameters: dict[str, str], reserved: Collection[str],
                 files: Mapping[int, str], plain: frozenset[str], formals: Mapping[str, str], kept: frozenset[str] | None = None) -> None:
        self.function = function
        self.files = files
        self.body: Body = flattened(function, exact=kept is not None)
        self.needed: set[str] = set()
        self.opcodes: dict[str, int] = {}
        self.mentions: Counter[str] = Counter()
        self.formals = formals
        self.bare: set[str] = set()
        self.exact = kept is not None
        self.kept = frozenset() if kept is None else kept & self.body.registers.keys() | self.body.labels
        self.nodes = Structure(self.body.statements, self.needed, self.bare, 0 if kept is None else DEPTH).nodes()
        self.bare |= self.kept & self.body.labels
        self.namer = Namer(reserved)
        self.namer.taken.update(formals.values())
        self.variables = variables
        self.parameters = parameters
        self.plain = plain
        self._choose()

    # ------------------------------------------------------------------------------------------ decisions

    def _choose(self) -> None:
        listed = list(instructions(self.body.statements))
        variables = [statement for statement in statements(self.body.statements) if isinstance(statement, tree.Variable)]
        local = {v.name: f".{v.space}" for v in variables}
        formals = (*self.function.returns, *self.function.parameters)
        parameters = {v.name: ".param" for v in formals if v.space == "param"}
        known = ChainMap({**parameters, **local, **self.body.registers, **self.body.others}, self.variables)
        for instruction in listed:
            self._check(instruction, known)
        found: dict[int, Bound | None] = {id(i): bound(i, known.get) for i in listed}
        named = _register_names(listed, self.parameters)
        python = {name: self.formals.get(name) or self.namer(named.get(name) or register_name(name)) for name in self._mentioned(listed)}
        labels = {name: self.namer(register_name(name)) for name in sorted(self.needed & self.body.labels)}
        while True:
            given = {v.name: v.type for v in formals if held(v)}
            registers = Registers([(i, found[id(i)]) for i in listed], self.body.registers, given, self.kept)
            self.registers = registers
            self.names = Names(python, register_types(registers.types), self.parameters, labels)
            self.opcodes = {}
            calls = Calls(self.names, registers.fresh, self.opcodes, self.plain, self.exact)
            self.vectors = self._vectors(found)
            calls.vectors = {lanes: self.namer(name) for lanes, name in self.vectors.items()}
            self.calls = {id(i): calls.call(i, found[id(i)]) for i in listed if not self._is_bra(i)}
            self.hoisted = calls.vectors
            wrong = [i for i in listed if id(i) in registers.fresh and id(i) in self.calls and not self.calls[id(i)].results]
            if not wrong:
                break
            for instruction in wrong:
                found[id(instruction)] = None
            for name in calls.vectors.values():
                self.namer.taken.discard(name)
        self.vectors = calls.vectors
        self.named = {name: lanes for lanes, name in self.vectors.items()}
        self.whole = {tuple(self.names.registers[lane] for lane in lanes): lanes for lanes in self.vectors}

    def _check(self, instruction: tree.Instruction, known: Mapping[str, str]) -> None:
        """Raise for a register or label that there is not: Python could not name it."""
        where = f" (line {instruction.position.line})" if instruction.position else ""
        if self._is_bra(instruction) and [*map(type, instruction.operands)] != [tree.Name]:
            raise LiftError(f"`{self.function.name}`{where} branches to no label")
        mentioned = [name for operand in instruction.operands for name in names(operand)]
        if instruction.guard is not None and self.body.registers.get(instruction.guard.predicate) != "pred":
            raise LiftError(f"`{self.function.name}`{where}: the guard `{instruction.guard.predicate}` is not declared as a predicate")
        for name in mentioned:
            base = name.rpartition(".")[0]
            if self._is_bra(instruction) and name not in self.body.labels:
                raise LiftError(f"`{self.function.name}`{where} branches to `{name}`, a label that it does not have")
            if name[:1] == "%" and not any(n in known or n in SPECIAL for n in (name, base, f"{name}.x")):
                raise LiftError(f"`{self.function.name}`{where} uses `{name}`, which is not declared")

    def _is_bra(self, instruction: tree.Instruction) -> bool:
        return instruction.mnemonic == "bra" and instruction.opcode in ("bra", "bra.uni")

    def _mentioned(self, listed: list[tree.Instruction]) -> list[str]:
        found: dict[str, None] = {}
        for variable in (*self.function.returns, *self.function.parameters):
            if held(variable):
                found[variable.name] = None
        for instruction in listed:
            mentioned = [name for operand in instruction.operands for name in names(operand)]
            if instruction.guard:
                mentioned.append(instruction.guard.predicate)
            for name in mentioned:
                for candidate in (name, name.rpartition(".")[0]):
                    if candidate in self.body.registers:
                        found[candidate] = None
                        self.mentions[candidate] += 1
        return list(found)

    def _vectors(self, found: Mapping[int, Bound | None]) -> dict[tuple[str, ...], str]:
        """The long vectors that stand in several instructions, and what to call them."""
        count: dict[tuple[str, ...], int] = {}
        for each in found.values():
            for value in each.values if each else ():
                if isinstance(value, tree.Vector) and len(value.elements) >= LANES:
                    lanes = tuple(e.name if isinstance(e, tree.Name) else "" for e in value.elements)
                    if all(lane in self.body.registers for lane in lanes):
                        count[lanes] = count.get(lanes, 0) + 1
        return {lanes: "fragment" for lanes, times in count.items() if times > 1}

    # ------------------------------------------------------------------------------------------ lines

    def lines(self, aliases: Mapping[str, str]) -> list[str]:
        """The body, indented once."""
        self.aliases = aliases
        self.written: set[tuple[str, ...]] = set()
        self.where: tuple[int, int] | None = None
        made: list[str] = []
        loose: dict[tuple[str, bool], list[str]] = {}
        for name in self.registers.loose:
            loose.setdefault((self.registers.types[name], name in self.kept), []).append(name)
        for name in sorted(self.needed & self.body.labels):
            made.append(f"{INDENT}{self.names.labels[name]} = {self._label(name, self.names.labels[name])}")
        for (type, kept), listed in sorted(loose.items(), key=lambda pair: not pair[0][1]):
            made += self._loose(type, listed, kept)
        made += self._nodes(self.nodes, INDENT)
        return made

    def _label(self, name: str, hint: str) -> str:
        """A label that is made: under its own name if something outside of the body refers to it."""
        return f'{self.names.use("label")}({f"name={quoted(name)}" if name in self.kept else quoted(hint)})'

    def _loose(self, type: str, listed: list[str], kept: bool) -> list[str]:
        """Registers that are made before any instruction."""
        python = [self.names.registers[name] for name in listed]
        if len(listed) == 1:
            named = f", {quoted(listed[0])}" if kept else ""
            return [f'{INDENT}{python[0]} = {self.names.use("register")}({self._type(type)}{named})']
        if kept:
            return called(python, self.names.use("registers"), [self._type(type), f"({', '.join(map(quoted, listed))})"], INDENT)
        return assigned(python, f'{self.names.use("registers")}({self._type(type)}, {len(listed)})', INDENT)

    def _type(self, type: str) -> str:
        """A bit type is `bits32`, which stands for any operand of its width."""
        return self.names.use(f"bits{type[1:]}" if type in ("b16", "b32", "b64") else type)

    def _nodes(self, nodes: list[Node], indent: str) -> list[str]:
        made: list[str] = []
        index = 0
        while index < len(nodes):
            run = self._run(nodes, index)
            if run >= RUN and self._counted(nodes, index + run - 1) is not None:
                run -= 1                        # the last one is the start of a loop that counts
            if run >= RUN:
                calls = [self.calls[id(nodes[i])] for i in range(index, index + run)]
                one = Call(self._callee(calls[0]), calls[0].arguments).text()
                made += self._several([c.results[0] for c in calls], f"({one} for _ in range({run}))", indent)
                index += run
                continue
            counted = self._counted(nodes, index)
            if counted is not None:
                made += self._counting(counted, indent)
                index += counted.length
                continue
            made += self._node(nodes[index], indent)
            index += 1
        if not any(not line.lstrip().startswith("#") for line in made):
            made.append(f"{indent}pass")
        return made

    def _counted(self, nodes: list[Node], index: int) -> Counting | None:
        return counting(nodes, index, self.registers.fresh, self.registers.types, self.mentions, self.bare, self.needed)

    def _counting(self, node: Counting, indent: str) -> list[str]:
        for instruction in node.dropped:
            opcode = self.calls[id(instruction)].callee
            self.opcodes[opcode] -= 1
            if not self.opcodes[opcode]:
                del self.opcodes[opcode]
        words = [self._number(node.stop)]
        words += [f"start={self._number(node.start)}"] if node.start != tree.Integer(0) else []
        words += [f"step={self._number(node.step)}"] if node.step != tree.Integer(1) else []
        head = f"{indent}with {self.names.use('for_range')}({', '.join(words)}) as {self.names.registers[node.index]}:"
        return [head, *self._nodes(node.body, indent + INDENT)]

    def _number(self, operand: tree.Operand) -> str:
        return self.names.registers[operand.name] if isinstance(operand, tree.Name) else str(getattr(operand, "value", operand))

    def _several(self, results: list[str], values: str, indent: str) -> list[str]:
        """New registers from a generator, under the name of the vector that they are, if they are one."""
        lanes = self.whole.get(tuple(results))
        if lanes is not None and lanes not in self.written:
            self.written.add(lanes)
            name = self.vectors[lanes]
            return [f"{indent}{name} = {self.names.use('Vec')}{values}", *assigned(results, name, indent)]
        return assigned(results, values, indent)

    def _run(self, nodes: list[Node], index: int) -> int:
        """How many instructions from here on are equal but for their one new register."""
        first = self._simple(nodes[index])
        length = 1 if first is not None else 0
        while first is not None and index + length < len(nodes):
            other = self._simple(nodes[index + length])
            if other is None or (other.callee, other.arguments) != (first.callee, first.arguments):
                break
            length += 1
        return length

    def _simple(self, node: Node) -> Call | None:
        if not isinstance(node, tree.Instruction):
            return None
        call = self.calls.get(id(node))
        if call is None or len(call.results) != 1 or "," in call.results[0] or node.mnemonic != "mov":
            return None
        return call

    def _node(self, node: Node, indent: str) -> list[str]:
        if isinstance(node, tree.Instruction):
            return [*self._hoist(node, indent), *self._instruction(node, indent)]
        if isinstance(node, If):
            return self._if(node, indent)
        if isinstance(node, Loop):
            return self._loop(node, indent)
        if isinstance(node, Jump):
            how = f"{node.how}_if({self._predicate(node.guard)})" if node.guard else f"{node.how}_()"
            return [f"{indent}{self._loop_name(node.loop)}.{how}"]
        if isinstance(node, Place):
            if node.name in self.names.labels:
                return [f"{indent}{self.names.labels[node.name]}.place()"]
            return [f"{indent}{self._label(node.name, register_name(node.name))}.place()"] if node.name in self.bare else []
        if isinstance(node, Scope):
            return [f"{indent}with {self.names.use('scope')}():", *self._nodes(node.body, indent + INDENT)]
        if isinstance(node, tree.Loc):
            return self._loc(node, indent)
        return self._statement(node, indent)

    def _instruction(self, node: tree.Instruction, indent: str) -> list[str]:
        if self._is_bra(node):
            target = node.operands[0]
            assert isinstance(target, tree.Name)
            opcode = "bra" if node.guard is None else node.opcode
            self.opcodes.setdefault(opcode, 1)
            guard = f", pred={self._predicate(node.guard)}" if node.guard else ""
            return [f"{indent}{spelled(opcode)}({self.names.labels[target.name]}{guard})"]
        call = self.calls[id(node)]
        return called([] if self._unread(node) else call.results, self._callee(call), call.arguments, indent)

    def _unread(self, node: tree.Instruction) -> bool:
        """Whether nothing else mentions what the instruction makes."""
        made = list(names(node.operands[0])) if node.operands else []
        return id(node) in self.registers.fresh and all(self.mentions[name] == 1 for name in made)

    def _callee(self, call: Call) -> str:
        if call.callee == "verbatim":
            return call.callee
        return self.aliases.get(call.callee) or spelled(call.callee)

    def _hoist(self, node: tree.Instruction, indent: str) -> list[str]:
        """The names of long vectors that are first used here."""
        made: list[str] = []
        text = self.calls[id(node)].arguments if id(node) in self.calls else []
        for name in text:
            lanes = self.named.get(name)
            if lanes is not None and lanes not in self.written:
                self.written.add(lanes)
                listed = ", ".join(self.names.registers[lane] for lane in lanes)
                made += called([name], self.names.use("Vec"), [f"({listed})"], indent)
        return made

    def _if(self, node: If, indent: str) -> list[str]:
        inverted = tree.Guard(node.guard.predicate, not node.guard.negated)
        made = [f"{indent}with {self.names.use('if_')}({self._predicate(inverted)}):", *self._nodes(node.body, indent + INDENT)]
        if node.orelse is not None:
            made += [f"{indent}with {self.names.use('else_')}():", *self._nodes(node.orelse, indent + INDENT)]
        return made

    def _loop(self, node: Loop, indent: str) -> list[str]:
        named = f" as {self._loop_name(node)}" if node.used else ""
        made = [f"{indent}with {self.names.use('loop')}(){named}:"]
        body = self._nodes(node.body, indent + INDENT)
        if node.repeat is not None:
            if body[-1] == f"{indent}{INDENT}pass":
                body.pop()
            body.append(f"{indent}{INDENT}{self._loop_name(node)}.repeat_if({self._predicate(node.repeat)})")
        return made + body

    def _loop_name(self, loop: Loop) -> str:
        if not hasattr(self, "loops"):
            self.loops: dict[int, str] = {}
        if id(loop) not in self.loops:
            self.loops[id(loop)] = self.namer("loop_1")
        return self.loops[id(loop)]

    def _predicate(self, guard: tree.Guard | None) -> str:
        assert guard is not None
        return f"{'~' if guard.negated else ''}{self.names.registers[guard.predicate]}"

    def _loc(self, node: tree.Loc, indent: str) -> list[str]:
        if self.where == (node.file, node.line):
            return []
        self.where = (node.file, node.line)
        lines = [f"{self.files.get(node.file, f'file {node.file}')}:{node.line}"]
        if node.inlined is not None:
            lines.append(f"inlined at {self.files.get(node.inlined[2], f'file {node.inlined[2]}')}:{node.inlined[3]}")
        if len(f"{indent}# {', '.join(lines)}") <= WIDTH:
            lines = [", ".join(lines)]
        return [f"{indent}# {line.encode('utf-8', 'replace').decode()}" for line in lines]

    def _statement(self, node: tree.Statement, indent: str) -> list[str]:
        """A declaration, a table of labels, a directive: as PTX writes it."""
        if isinstance(node, tree.Targets):
            text = f"{node.label}: .{node.kind} {', '.join('{}' if n in self.names.labels else n for n in node.names)};"
            values = [self.names.labels[n] for n in node.names if n in self.names.labels]
            return called([], self.names.use("verbatim"), [quoted(text), *values], indent)
        return called([], self.names.use("verbatim"), [quoted(write_statement(node))], indent)


def _register_names(listed: list[tree.Instruction], parameters: Mapping[str, str]) -> dict[str, str]:
    """Names for the registers that only ever hold a special register or a parameter with a name of its own."""
    writes: dict[str, int] = {}
    for instruction in listed:
        if instruction.operands and instruction.mnemonic not in ("st", "red", "bra"):
            for name in names(instruction.operands[0]):
                writes[name] = writes.get(name, 0) + 1
    found: dict[str, str] = {}
    for instruction in listed:
        match instruction:
            case tree.Instruction(opcode=opcode, operands=(tree.Name(name), tree.Name(source))) if (
                    opcode.startswith("mov.") and source[:1] == "%" and source[1:2].isalpha() and writes.get(name) == 1):
                if source in SPECIAL:
                    found[name] = register_name(source.replace(".", "_"))
            case tree.Instruction(opcode=opcode, operands=(tree.Name(name), tree.Address(base=tree.Name(source), offset=0))) if (
                    opcode.startswith("ld.param") and source in parameters and writes.get(name) == 1):
                if "param_" not in parameters[source]:
                    found[name] = f"{parameters[source]}_value".replace("__", "_")
            case _:
                pass
    return found


# ---------------------------------------------------------------------------------------------- layout of lines


def filled(words: list[str], indent: str) -> list[str]:
    """The words with commas between them, in lines of the width."""
    lines: list[str] = []
    line = indent
    for number, word in enumerate(words):
        piece = word + (", " if number < len(words) - 1 else "")
        if len(line) + len(piece.rstrip()) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += piece
    return [*lines, line.rstrip()]


def called(results: list[str], callee: str, arguments: list[str], indent: str) -> list[str]:
    """`results = callee(arguments)`, broken into lines where it is too long for one."""
    text = indent + Call(callee, arguments, results).text()
    if len(text) <= WIDTH:
        return [text]
    words = [word for argument in arguments for word in _words(argument)]
    target = ", ".join(results)
    if not results or len(f"{indent}{target} = {callee}(") <= WIDTH:
        return [f"{indent}{f'{target} = ' if results else ''}{callee}(", *filled(words, indent + INDENT), f"{indent})"]
    head = assigned(target.split(", "), f"{callee}(", indent)
    return [*head, *filled(words, indent + INDENT), f"{indent})"]


def assigned(targets: list[str], value: str, indent: str) -> list[str]:
    """Several names assigned at once."""
    text = f"{indent}{', '.join(targets)} = {value}"
    if len(text) <= WIDTH:
        return [text]
    return [f"{indent}(", *filled(targets, indent + INDENT), f"{indent}) = {value}"]


def _words(argument: str) -> list[str]:
    """What may be broken into lines: the elements of a tuple; a text stays whole."""
    return argument.split(", ") if argument[:1] == "(" else [argument]
