"""Random calls of random opcodes, as Python lines and as run-time values: a type checker accepts exactly what the trace accepts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptxkit import ptx, smem
from ptxkit.dsl.ambient import current
from ptxkit.dsl.convert import Mismatch
from ptxkit.dsl.function import func
from ptxkit.dsl.kernel import kernel
from ptxkit.dsl.reg import Negated, Ptr, Vec, sink
from ptxkit.dsl.special import clock64, tid
from ptxkit.dsl.tensormap import TensorMap
from ptxkit.flow import label
from ptxkit.grammar import forms
from ptxkit.grammar.operands import accepts
from ptxkit.grammar.schema import Operand
from ptxkit.types import TYPES, bf16, f32, u32, u64

HEADER = """\
from __future__ import annotations
from typing import Literal
from ptxkit import MBarrier, Ptr, Reg, Shared, Special, TensorMap, Vec, ptx
from ptxkit.dsl.descriptor import Descriptor
from ptxkit.dsl.function import Func
from ptxkit.dsl.label import Label
from ptxkit.dsl.reg import Negated, Sink
from ptxkit.smem import TileView
from ptxkit.types import *

"""


@dataclass(frozen=True)
class Line:
    """One call; `legal` is the trace's verdict."""

    text: str
    legal: bool


class Pool:
    """Values by name, each with the annotation that a type checker sees."""

    def __init__(self, tensormap: TensorMap) -> None:
        builder = current()
        self.values: dict[str, Any] = {f"r_{name}": builder.register(type) for name, type in TYPES.items()}
        self.hints = {f"r_{name}": f"Reg[{static(name)}]" for name in TYPES}
        tile, barriers, numbers = smem.tile(bf16, (2, 64, 64)), smem.mbarrier(2), smem.array(u32, 4)
        for name, hint, value in (
            ("negated", "Negated", Negated(self.values["r_pred"])), ("pointer", "Ptr[f32]", Ptr(builder.register(u64), f32)),
            ("view", "TileView[bf16]", tile[0]), ("numbers", "Shared[u32]", numbers), ("barrier", "MBarrier", barriers[0]),
            ("tensormap", "TensorMap", tensormap), ("descriptor", "Descriptor", tile[0].desc()), ("sink", "Sink", sink),
            ("special", "Special[u32]", tid.x), ("special64", "Special[u64]", clock64), ("place", "Label", label()),
            ("function", "Func[[], None]", nothing),
        ):
            self.values[name], self.hints[name] = value, hint

    def vector(self, type: str, count: int) -> str:
        name = f"v_{type}_{count}"
        if name not in self.values:
            self.values[name] = Vec([current().register(TYPES[type]) for _ in range(count)])
            self.hints[name] = f"Vec[{static(type)}, Literal[{count}]]"
        return name

    def fitting(self, parameter: forms.Parameter, rng: random.Random) -> str:
        """An expression that the operand accepts."""
        operand = parameter.operand
        count = operand.count if isinstance(operand.count, int) else 1
        registers = [name for name in TYPES if accepts(operand, name)]
        literals = ["1.5"] if operand.float_immediate else ["sink"] if operand.sink else []
        if operand.immediate is not None and not literals:
            allowed: Any = operand.immediate
            literals = [str(allowed.choices[0] if allowed.choices else max(allowed.low or 0, 0))]
        if operand.tag == "descriptor":
            return "descriptor"
        if operand.kind == "immediate":
            return literals[0]
        if operand.kind == "predicate":
            return rng.choice(["r_pred", *(["negated"] if operand.negate else []), *literals])
        if operand.kind == "register":
            return rng.choice([f"r_{rng.choice(registers)}", *literals])
        if operand.kind == "special":
            return "special64" if accepts(operand, "u64") else "special"
        if operand.kind == "vector":
            lanes = [f"r_{name}" for name in registers] + literals
            several = f"({', '.join(rng.choice(lanes) for _ in range(count))},)"
            return rng.choice([self.vector(rng.choice(registers), count), *([several] if count <= 5 else [])])
        if operand.kind == "coordinates":
            lanes = [rng.choice([f"r_{rng.choice(registers)}", "0.5" if operand.float_immediate else "0"]) for _ in range(count)]
            return f"({', '.join(['r_u32', *lanes[1:]] if operand.index else lanes)},)"
        if operand.kind == "address":
            shared = str(operand.space).startswith("shared")
            return ("barrier" if operand.tag == "mbarrier" and shared else rng.choice(["view", "numbers", "r_u32", "r_u64"]) if shared
                    else "tensormap" if operand.tag == "tensormap" and operand.space == ""
                    else rng.choice(["r_b64", *(["pointer"] if operand.space in ("", "global") else [])]))
        return {"label": "place", "function": "function"}.get(operand.kind, "'name'")


def static(name: str) -> str:
    """What a register of a bit-size type is to a type checker."""
    return f"bits{name[1:]}" if name in ("b8", "b16", "b32", "b64") else name


@func
def nothing() -> None: ...


def sample(count: int, seed: int) -> tuple[str, list[Line]]:
    """A module's text and its calls, which begin at the line after its header; every other call has one wrong value."""
    lines: list[Line] = []
    texts: list[str] = []

    @kernel(block=128)
    def traced(tensormap: TensorMap) -> None:
        rng, pool = random.Random(seed), Pool(tensormap)
        while len(lines) < count:
            lines.append(_line(rng, pool, wrong=len(lines) % 2 == 1))
        texts.append(HEADER + f"def calls({', '.join(f'{name}: {hint}' for name, hint in pool.hints.items())}) -> None:\n")
        del current().body[:]
        current()._branches.clear()

    traced.trace()
    return texts[0] + "".join(f"    {line.text}\n" for line in lines), lines


def _line(rng: random.Random, pool: Pool, *, wrong: bool) -> Line:
    while True:
        opcode, signature = _opcode(rng)
        plan = ptx._Plan(signature)
        positions = [*(plan.outputs if rng.random() < 0.5 else []), *plan.inputs]
        options = {name: i for name, i in plan.options.items() if rng.random() < 0.5}
        parameters = signature.parameters
        if not positions or any(p.operand.kind == "arguments" or _no_such_special(p.operand) for p in parameters):
            continue
        given = [pool.fitting(parameters[i], rng) for i in positions]
        if wrong:
            given[rng.randrange(len(given))] = rng.choice(list(pool.values))
        keywords = {name: pool.fitting(parameters[i], rng) for name, i in options.items()}
        text = f"{opcode}({', '.join([*given, *(f'{name}={value}' for name, value in keywords.items())])})"
        legal = _legal(opcode, [eval(g, {}, pool.values) for g in given], {n: eval(v, {}, pool.values) for n, v in keywords.items()})
        if legal or wrong:
            return Line(text, legal)
        raise AssertionError(f"the trace rejects {text}")


def _no_such_special(operand: Operand) -> bool:
    return operand.kind == "special" and operand.type == "pred"


def _opcode(rng: random.Random) -> tuple[str, forms.Signature]:
    """A random complete opcode as Python spells it."""
    name, state = rng.choice(list(forms.names().items()))
    names = [name]
    while True:
        signatures, after = state.signatures(), state.attributes()
        if signatures and (not after or rng.random() < 0.3):
            return f"ptx.{'.'.join(names)}", rng.choice(signatures)
        name, state = rng.choice(list(after.items()))
        names.append(name)


def _legal(opcode: str, given: list[Any], keywords: dict[str, Any]) -> bool:
    found: Any = ptx
    for name in opcode.split(".")[1:]:
        found = getattr(found, name)
    return any(_binds(ptx._Plan(signature), given, keywords) for signature in found._signatures())


def _binds(plan: ptx._Plan, given: list[Any], keywords: dict[str, Any]) -> bool:
    try:
        plan.bind(current(), given, keywords)
    except Mismatch:
        return False
    return True


def marked(text: str, lines: list[Line]) -> Iterator[int]:
    """The numbers of the lines that a checker must report."""
    first = text.index("def calls")
    start = text[:first].count("\n") + 2
    yield from (start + i for i, line in enumerate(lines) if not line.legal)
