"""@func: a Python function becomes a `.func`, once per module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, get_args, get_origin

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..grammar.operands import alike
from ..types import ScalarType, is_scalar
from .ambient import current, tracing
from .author import by_name, hints_of, plain_function
from .module import ModuleBuilder
from .names import identifier
from .reg import Reg
from .source import named
from .trace import Builder
from .uncalled import check_called

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Func(Generic[P, R]):
    """A device function. It is traced once per module and called with `call.uni`. Parameters and the result are `Reg[...]`."""

    decorated_as = "@func"

    def __init__(self, function: Callable[P, R]) -> None:
        function = plain_function(function, "@func")
        self.function: Callable[..., R] = function
        self.__name__ = self.name = identifier(function.__name__, "rename it")
        self.__doc__ = function.__doc__

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name(self, self.function, f"@func `{self.name}`")

    def __copy__(self) -> Func[P, R]:
        return self

    def __deepcopy__(self, memo: object) -> Func[P, R]:
        return self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        builder = current()
        names, types, results = self._types()
        if kwargs or len(args) != len(names):
            raise TraceError(f"@func `{self.name}` takes {len(names)} registers ({', '.join(names)}), {len(args)} were given")
        for name, type_, value in zip(names, types, args, strict=True):
            if not isinstance(value, Reg) or value.type.bits != type_.bits or value.type.register != type_.register \
                    or not alike(value.type.__name__, type_.__name__):
                raise TraceError(f"@func `{self.name}`: parameter `{name}` is Reg[{type_.__name__}], not {value!r}")
            builder.own(value)
        if self not in builder.module.functions:
            self._check_name(builder.module)
            builder.module.open.append(self)
            builder.module.functions[self] = self._trace(builder.module, names, types, results)
            builder.module.open.remove(self)
        made: Any = self._call(builder, args, types, results)
        return made  # type: ignore[no-any-return]

    def _check_name(self, module: ModuleBuilder) -> None:
        if self in module.open:
            raise TraceError(f"@func `{self.name}` calls itself: a trace would never end; write the recursion as a loop")
        if self.name == module.name or any(other.name == self.name for other in (*module.functions, *module.open)):
            raise TraceError(f"two functions of this module are called `{self.name}`: rename one")

    def _types(self) -> tuple[list[str], list[ScalarType], list[ScalarType]]:
        """The parameters' names, their types, and the result type as () or (type,)."""
        hints = hints_of(self.function, f"@func `{self.name}`")
        names = [identifier(name, "rename the parameter") for name in inspect.signature(self.function).parameters]
        annotated = [hints.get(name) for name in names]
        if hints.get("return") not in (None, type(None)):
            annotated.append(hints["return"])
        types: list[ScalarType] = [get_args(hint)[0] for hint in annotated if get_origin(hint) is Reg and is_scalar(get_args(hint)[0])]
        if len(types) != len(annotated):
            raise TraceError(f"@func `{self.name}` takes and returns Reg[...] values (or returns None)")
        return names, types[:len(names)], types[len(names):]

    def _trace(self, module: ModuleBuilder, names: list[str], types: list[ScalarType], results: list[ScalarType]) -> tree.Function:
        here = Position(named(self.function.__code__.co_filename), self.function.__code__.co_firstlineno)
        builder = Builder(module, self.name, here)
        builder.parameters.update(f"{self.name}_{name}" for name in (*names, "result"))
        parameters = [tree.Variable("param", f"b{t.bits}", f"{self.name}_{n}") for n, t in zip(names, types, strict=True)]
        if results and "result" in names:
            raise TraceError(f"@func `{self.name}`: its parameter `result` and its result are both `{self.name}_result` in PTX: rename the "
                             "parameter", here)
        returns = [tree.Variable("param", f"b{t.bits}", f"{self.name}_result") for t in results]
        frame = f"{self.name}_marks"
        if module.marks is not None:
            parameters.append(tree.Variable("param", "b64", frame))
        with tracing(builder):
            if module.marks is not None:
                module.marks.enter(builder, frame)
            arguments = [builder.register(type_) for type_ in types]
            for parameter, argument in zip(parameters, arguments, strict=False):
                builder.emit(f"ld.param.{parameter.type}", (argument.operand(), tree.Address(tree.Name(parameter.name))), position=here)
            check_called(self.function)
            value = self.function(*arguments)
            for variable, type_ in zip(returns, results, strict=True):
                if not isinstance(value, Reg) or value.type.bits != type_.bits or not alike(value.type.__name__, type_.__name__):
                    raise TraceError(f"@func `{self.name}` says it returns Reg[{type_.__name__}], but returned {value!r}", here)
                builder.own(value)
                builder.emit(f"st.param.{variable.type}", (tree.Address(tree.Name(variable.name)), value.operand()), position=here)
            body = builder.finish()
        return tree.Function("func", self.name, tuple(parameters), tuple(returns), body=body)

    def _call(self, builder: Builder, args: tuple[Any, ...], types: list[ScalarType], results: list[ScalarType]) -> Reg[Any] | None:
        outer, builder.body = builder.body, []
        sent = [tree.Variable("param", f"b{t.bits}", builder.free(f"argument{i}", self.name)) for i, t in enumerate(types)]
        received = [tree.Variable("param", f"b{t.bits}", builder.free("result", self.name)) for t in results]
        marks, frames = builder.marks, list[tree.Variable]()
        if marks is not None:
            frames = [tree.Variable("local", "b8", "marks", align=8, shape=(24,))]
            sent.append(tree.Variable("param", "b64", builder.free("argument_marks", self.name)))
            args = (*args, marks.saved("marks"))
        for variable, value in zip(sent, args, strict=True):
            builder.emit(f"st.param.{variable.type}", (tree.Address(tree.Name(variable.name)), value.operand()))
        call: list[tree.Operand] = [tree.Arguments((tree.Name(received[0].name),))] if results else []
        call.append(tree.Name(self.name))
        if sent:
            call.append(tree.Arguments(tuple(tree.Name(v.name) for v in sent)))
        builder.emit("call.uni", tuple(call))
        made = [builder.register(t) for t in results]
        for variable, value in zip(received, made, strict=True):
            builder.emit(f"ld.param.{variable.type}", (value.operand(), tree.Address(tree.Name(variable.name))))
        if marks is not None:
            marks.restored(args[-1])
        block, builder.body = builder.body, outer
        builder.body.append(tree.Block((*frames, *sent, *received, *block)))
        return made[0] if made else None


def func(function: Callable[P, R]) -> Func[P, R]:
    """Make a Python function a `.func` that kernels call. A plain Python function is inlined instead."""
    return Func(function)
