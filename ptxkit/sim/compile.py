"""One Python function per basic block.

`block(f)` runs the block for fragment `f` and returns the next block's index, `BLOCK` when an instruction at the block's begin
must wait (the block is then run again), or `EXIT` when no lane goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..grammar.operands import width
from .errors import SimulationError, UnsupportedError
from .externals import EXTERNALS
from .meeting import Collective, align, full, meet, meets
from .operand import Address, Immediate, Indexed, Negated, Operand, Register, Sink, SpecialRegister, SymbolValue, Vector, Word
from .program import Block, Op, Program
from .semantics.registry import BLOCKED, Inline, semantics_of
from .spaces import SHARED
from .values import FULL, invert, mask_of, merge, resize

BLOCK, EXIT = -1, -2

Code = Callable[[Any], int]


def displace(value: Any, offset: int, mask: int) -> Any:
    """An address plus bytes, modulo its register's width."""
    return (value + offset) & mask if type(value) is int else value + offset


CLOCKS = ("%clock", "%globaltimer")


class Compiler:
    """Writes the functions of a program's blocks; before the instructions `watched` (by index) a checker of registers is called."""

    def __init__(self, program: Program, watched: frozenset[int] = frozenset()) -> None:
        self.program = program
        self.watched = watched
        self.environment: dict[str, Any] = {
            "BLOCKED": BLOCKED, "mask_of": mask_of, "merge": merge, "invert": invert, "resize": resize, "displace": displace,
            "meet": meet, "align": align, "full": full}
        self.lines: list[str] = []
        self._op: Op

    def compile(self) -> list[Code]:
        for block in self.program.blocks:
            self._block(block)
        exec(compile("\n".join(self.lines), f"<{self.program.entry.name}>", "exec"), self.environment)
        return [self.environment[f"b{block.index}"] for block in self.program.blocks]

    # ------------------------------------------------------------------------------------------------ blocks

    def _block(self, block: Block) -> None:
        out = self.lines
        out += [f"def b{block.index}(f):", " R = f.R"]
        for op in block.ops:
            if op.index in self.watched:
                out.append(f" f.machine.watch.touch(f, {self._constant('o', op)})")
            if op.signature.form.effects.control:
                self._control(block, op)
            else:
                self._instruction(op)
        if not block.ops or not _leaves(block.ops[-1]):
            if block.successors:
                out.append(f" return {block.index + 1}")
            elif self.program.owner[block.index].function.kind == "entry":
                out.append(f" return {EXIT}")
            else:
                out.append(" return f.ret()")

    def _control(self, block: Block, op: Op) -> None:
        out = self.lines
        control = op.signature.form.effects.control
        mnemonic = op.signature.form.mnemonic
        if control == "branch" and mnemonic == "bra":
            target = _word(op)
            if op.guard is None:
                out.append(f" return {target}")
                return
            yes, no = (block.index + 1, target) if op.negated else (target, block.index + 1)
            out += [f" p = R[{op.guard.index}]", f" if p is True: return {yes}", f" if p is False: return {no}",
                    f" return f.branch(p, {yes}, {no}, {block.join})"]
            return
        if control == "branch":
            self._guarded_jump(op, block)
            targets = tuple(int(t) for t in _word(op).split(","))
            chosen = self._sources(op)[0]
            out.append(f" return f.switch({chosen}, {targets}, {block.join})")
            return
        if control == "call":
            self._guarded_jump(op, block)
            parts = [self._constant("o", op)]
            name = op.operand("func")
            if isinstance(name, Word) and name.text not in self.program.routines and name.text not in EXTERNALS:
                place = f"{op.position}: " if op.position else ""
                raise UnsupportedError(f"{place}`{name.text}` is declared but not defined, and the simulator does not provide it")
            called = op.operand("fptr")
            parts.append(f"R[{called.index}]" if isinstance(called, Register) else "None")
            out.append(f" return f.call({', '.join(parts)}, {block.index + 1}, {block.join})")
            return
        if control == "trap":
            out.append(f" {self._lanes(op)}")
            out.append(f" if m: f.machine.trap(f, m, {self._constant('o', op)})")
            return
        owner = self.program.owner[block.index]
        if control == "return" and owner.function.kind != "entry":
            last = self._last_block(block)
            if op.guard is None:
                out.append(f" return {last}")
            else:
                yes, no = (block.index + 1, last) if op.negated else (last, block.index + 1)
                out += [f" p = R[{op.guard.index}]", f" return f.branch(p, {yes}, {no}, {block.join})"]
            return
        if op.guard is None:
            out.append(f" return {EXIT}")
        else:
            out += [f" {self._lanes(op)}", f" if m == f.mask: return {EXIT}", " if m: f.exit(m)"]

    def _guarded_jump(self, op: Op, block: Block) -> None:
        """A guarded jump that is no plain branch: the lanes that do not take it go on behind it."""
        if op.guard is None:
            return
        out = self.lines
        out += [f" {self._lanes(op)}", f" if not m: return {block.index + 1}",
                f" if m != f.mask: f.leave_behind(m, {block.index + 1}, {block.join}); R = f.R"]

    def _last_block(self, block: Block) -> int:
        index = block.index
        owner = self.program.owner
        while index + 1 < len(owner) and owner[index + 1] is owner[block.index]:
            index += 1
        return index

    # ------------------------------------------------------------------------------------------- instructions

    def _instruction(self, op: Op) -> None:
        semantics = semantics_of(op)
        try:
            made = semantics.factory(op)
        except UnsupportedError as error:
            raise UnsupportedError(f"{op.where}{error}") from None
        run, inline = (made.run, made.expression) if isinstance(made, Inline) else (made, None)
        members = op.operand("membermask")
        name = self._constant("i", run if members is None else Collective(op, run))
        sources = self._sources(op)
        if members is not None:
            self._meeting(op, name, self._source(members, "b32", False, ""), sources)
        elif meets(op):
            self._alignment(op)
        if semantics.kind == "pure":
            call = f"{name}({', '.join(sources)})"
            if inline is not None:
                call = self._inlined(op, sources, inline, name)
            self._pure(op, call)
            return
        self._action(op, name, sources, semantics.kind == "blocking")

    def _meeting(self, op: Op, name: str, members: str, sources: list[str]) -> None:
        """Code that waits for the other lanes of the member mask, where they may be elsewhere."""
        whole = "" if members == str(FULL) else f" or not full({members})"
        test = "" if op.guard is not None else f"(f.mask != f.warp.live{whole}) and "
        self.lines.append(f" if {test}meet(f, {self._constant('o', op)}, {name}, {members}, lambda f=f, R=R: ({', '.join(sources)},)): "
                          f"return {BLOCK}")

    def _alignment(self, op: Op) -> None:
        """Code that waits for the whole warp, where lanes of it are elsewhere."""
        if op.guard is not None:
            self.lines.append(f" {self._lanes(op)}")
        test, lanes = ("f.mask", "") if op.guard is None else ("m and m", ", m")
        self.lines.append(f" if {test} != f.warp.live and align(f, {self._constant('o', op)}{lanes}): return {BLOCK}")

    def _inlined(self, op: Op, sources: list[str], expression: str, name: str) -> str:
        tests, names = [], []
        parameters = [p for p in op.signature.parameters if p.operand.access == "r"]
        for i, (parameter, source) in enumerate(zip(parameters, sources, strict=True)):
            if source.isdigit() or source in ("True", "False", "None"):
                names.append(source)
                continue
            self.lines.append(f" v{i} = {source}")
            names.append(f"v{i}")
            tests.append(f"type(v{i}) is {'bool' if parameter.operand.type == 'pred' else 'int'}")
        plain = expression.format(*names)
        return f"({plain}) if {' and '.join(tests)} else {name}({', '.join(names)})" if tests else plain

    def _pure(self, op: Op, call: str) -> None:
        out = self.lines
        if op.guard is None:
            self._assign(op, call, " ")
            return
        out.append(f" {self._lanes(op)}")
        out.append(" if m == f.mask:")
        self._assign(op, call, "  ")
        out.append(" elif m:")
        self._assign(op, call, "  ", masked=True)

    def _action(self, op: Op, name: str, sources: list[str], blocking: bool) -> None:
        out = self.lines
        call = f"{name}({', '.join(['f', 'f.mask' if op.guard is None else 'm', *sources])})"
        indent = " "
        if op.guard is not None:
            out += [f" {self._lanes(op)}", " if m:"]
            indent = "  "
        if blocking:
            out += [f"{indent}t = {call}", f"{indent}if t is BLOCKED: return {BLOCK}"]
            call = "t"
        if op.guard is None:
            self._assign(op, call, indent)
        elif _destinations(op):
            if not blocking:
                out.append(f"{indent}t = {call}")
            out.append(f"{indent}if m == f.mask:")
            self._assign(op, "t", indent + " ")
            out.append(f"{indent}else:")
            self._assign(op, "t", indent + " ", masked=True)
        elif not blocking:
            out.append(f"{indent}{call}")

    def _lanes(self, op: Op) -> str:
        """Code that sets `m` to the executing lanes."""
        if op.guard is None:
            return "m = f.mask"
        predicate = f"R[{op.guard.index}]"
        return f"m = f.mask & ~mask_of({predicate})" if op.negated else f"m = f.mask & mask_of({predicate})"

    def _assign(self, op: Op, call: str, indent: str, *, masked: bool = False) -> None:
        out = self.lines
        destinations = _destinations(op)
        if not destinations:
            if call != "t":
                out.append(f"{indent}{call}")
            return
        single = len(destinations) == 1
        before = len(out)
        for i, (operand, type) in enumerate(destinations):
            bits = width(type) or (1 if type == "pred" else 0)
            value = "t" if single else f"t[{i}]"
            if i == 0 and (not single or isinstance(operand, Vector) or masked) and call != "t":
                out.append(f"{indent}t = {call}")
            elif single:
                value = call
            if isinstance(operand, Vector):
                where = operand.registers()
                plain = all(isinstance(e, Register) and e.bits == bits for e in operand.elements)
                if plain and not masked and where == tuple(range(where[0], where[0] + len(where))):
                    out.append(f"{indent}R[{where[0]}:{where[-1] + 1}] = {value}")
                    continue
                for lane, element in enumerate(operand.elements):
                    self._set(element, f"{value}[{lane}]", bits, type, indent, masked)
            else:
                self._set(operand, value, bits, type, indent, masked)
        if len(out) == before:
            out.append(f"{indent}pass")

    def _set(self, operand: Operand, value: str, bits: int, type: str, indent: str, masked: bool) -> None:
        if isinstance(operand, Sink):
            if value not in ("t",) and not value.startswith("t["):
                self.lines.append(f"{indent}{value}")
            return
        assert isinstance(operand, Register)
        if operand.bits > bits:
            value = f"resize({value}, {bits}, {operand.bits}, {type[0] == 's'})"
        target = f"R[{operand.index}]"
        if masked:
            value = f"merge(m, {value}, {target}, {operand.bits})"
        self.lines.append(f"{indent}{target} = {value}")

    # ------------------------------------------------------------------------------------------------ sources

    def _sources(self, op: Op) -> list[str]:
        self._op = op
        return [self._source(operand, str(parameter.operand.type), parameter.operand.wide, str(parameter.operand.space))
                for parameter, operand in op.parameters() if parameter.operand.access == "r"]

    def _source(self, operand: Operand | None, type: str, wide: bool, space: str) -> str:
        bits = 1 if type == "pred" else width(type)
        if operand is None or isinstance(operand, Sink):
            return "None"
        if isinstance(operand, Register):
            value = f"R[{operand.index}]"
            return f"resize({value}, {operand.bits}, {bits})" if wide and operand.bits > bits else value
        if isinstance(operand, Immediate):
            return repr(bool(operand.value)) if type == "pred" else str(operand.bits(bits, type))
        if isinstance(operand, Negated):
            return f"invert({self._source(operand.operand, type, wide, space)})"
        if isinstance(operand, Vector):
            where = operand.registers()
            if len(where) == len(operand.elements) > 1 and where == tuple(range(where[0], where[0] + len(where))) \
                    and all(isinstance(e, Register) and (not wide or e.bits == bits) for e in operand.elements):
                return f"R[{where[0]}:{where[-1] + 1}]"
            return f"({''.join(self._source(e, type, wide, space) + ', ' for e in operand.elements)})"
        if isinstance(operand, SpecialRegister):
            return f"f.special({operand.name!r}{self._behind() if operand.name.startswith(CLOCKS) else ''})"
        if isinstance(operand, Word):
            address = self.program.layout.functions.get(operand.text)
            return repr(operand.text) if address is None else str(address)
        if isinstance(operand, SymbolValue):
            return self._symbol(operand, "", generic=False)
        return self._address(operand, space)

    def _behind(self) -> str:
        """How many instructions of the block, from this one on, the count of steps has before they are executed."""
        ops = self.program.blocks[self._op.block].ops
        return f", {len(ops) - ops.index(self._op)}"

    def _address(self, operand: Address | Indexed, space: str) -> str:
        if isinstance(operand, Indexed):
            base = self._symbol(operand.base, space, generic=not space)
            index = f"resize(R[{operand.index.index}], {operand.index.bits}, 64, True)"
            return f"f.element({base}, {index}, {operand.scale})"
        at = operand.base
        if isinstance(at, SymbolValue):
            return self._symbol(SymbolValue(at.symbol, at.offset + operand.offset), space, generic=not space)
        if isinstance(at, Immediate):
            return str(at.value + operand.offset)
        if not operand.offset:
            return f"R[{at.index}]"
        mask = (1 << at.bits) - 1
        return f"displace(R[{at.index}], {operand.offset & mask}, {mask})"

    def _symbol(self, value: SymbolValue, space: str, *, generic: bool) -> str:
        """The address of a variable in its own space, or its generic address where the instruction has no space."""
        symbol, offset = value.symbol, value.offset
        layout = self.program.layout
        if symbol.region == "frame":
            return f"(f.frame + {symbol.address + offset})"
        if symbol.region == "reg":
            raise SimulationError(f"`{symbol.name}` has no address")
        if symbol.region in ("shared", "dynamic"):
            return f"(f.window + {layout.address(symbol) + offset + (SHARED if generic else 0)})"
        if symbol.region == "param":
            return str(symbol.address + offset)
        return str((layout.generic(symbol) if generic else layout.address(symbol)) + offset)

    def _constant(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.environment)}"
        self.environment[name] = value
        return name


def _destinations(op: Op) -> list[tuple[Operand, str]]:
    return [(operand, str(parameter.operand.type)) for parameter, operand in op.parameters()
            if operand is not None and parameter.operand.access == "w" and parameter.operand.kind != "arguments"]


def _word(op: Op) -> str:
    return next(o.text for o in op.operands if isinstance(o, Word))


def _leaves(op: Op) -> bool:
    """Whether nothing behind the instruction is reached by falling through in the generated code."""
    control = op.signature.form.effects.control
    if control in ("branch", "call"):
        return True
    if control == "return" and op.routine.function.kind != "entry":
        return True
    return control in ("return", "exit") and op.guard is None
