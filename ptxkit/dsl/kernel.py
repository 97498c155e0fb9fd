"""@kernel: a Python function becomes an `.entry`, once for each configuration of its compile-time parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, get_type_hints

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Finding, Position
from ..smem import SharedPlan
from . import raw
from .ambient import tracing
from .module import ModuleBuilder
from .names import identifier, symbol
from .parameters import Parameter, Record, argument, declared, described, flat, values
from .rules import check_barriers, check_setmaxnreg, entry_registers
from .trace import Builder
from .traced import Traceable, Traced

if TYPE_CHECKING:
    from ..cards import Card
    from ..runtime.compiled import Compiled
    from ..runtime.toolchain import Assembly
    from ..sim import Report

P = ParamSpec("P")
_NO_DWARF = (tree.Section(".debug_abbrev", ()), tree.Section(".debug_info", ()))
"""ptxas refuses the debug target without these sections. It makes the line table itself."""
Dim = int | tuple[int, ...] | Callable[[Mapping[str, Any]], "int | tuple[int, ...]"]
Directives = str | Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class _Part:
    """A traced entry of a module."""

    module: ModuleBuilder
    entry: tree.Function
    signature: tuple[Parameter | Record, ...]
    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int]


class Kernel(Traceable, Generic[P]):
    """A kernel function. Its keyword-only parameters are compile-time parameters. Each configuration is traced once and kept.

    `.ptx(**config)` is the text, `.module(**config)` the tree, `.trace(**config)` the trace with shared-memory plan and records,
    `.assemble(**config)` the result of ptxas. `.launch(grid, *args, stream=None, **config)` runs the kernel. A grid counts CTAs.
    """

    def __init__(self, function: Callable[P, None], *, target: str, block: Dim | None, cluster: Dim, min_ctas: int | None,
                 max_registers: int | None, smem: str | None, name: str | None, module: raw.Module | None = None,
                 directives: Directives = "") -> None:
        if smem not in (None, "static", "dynamic"):
            raise TraceError(f"smem is 'static', 'dynamic' or None (by size), not {smem!r}")
        self.function = function
        self._call: Callable[..., Any] = function
        self.name = symbol(name) if name else identifier(function.__name__, "give @kernel(name=...)")
        self.target, *self._modes = (word.strip() for word in target.split(","))
        self._block = block
        self._cluster = cluster
        self._min_ctas = min_ctas
        self._max_registers = max_registers
        self._dynamic = None if smem is None else smem == "dynamic"
        self._directives = directives if callable(directives) else raw.directives(directives)
        self._module = module or raw.Module(joined=False)
        self._module.members.append(self)
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__module__ = function.__module__
        signature = inspect.signature(function)
        self._defaults = {p.name: p.default for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
        self._positional = tuple(identifier(p.name, "rename it") for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)
        for taken in self._defaults.keys() & {"card", "locs", "pdl", "stream"}:
            raise TraceError(f"a compile-time parameter cannot be called `{taken}`: it is an option of .ptx or .launch")
        self._traced: dict[tuple[Any, ...], Traced] = {}
        self._compiled: dict[tuple[Any, ...], Compiled] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        raise TraceError(
            f"a kernel is not called but launched: {self.name}.launch(grid, ...); code shared by kernels is a plain function or a @func"
        )

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self._positional)})>"

    def config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The full configuration. Raises TraceError for unknown names and for missing values."""
        for name in given:
            if name not in self._defaults:
                has = ", ".join(self._defaults) or "none"
                raise TraceError(f"kernel `{self.name}` has no compile-time parameter `{name}`; it has {has}")
        full = {**self._defaults, **given}
        for name, value in full.items():
            if value is inspect.Parameter.empty:
                raise TraceError(f"kernel `{self.name}` needs a value for its compile-time parameter `{name}`")
        return full

    def trace(self, **config: Any) -> Traced:
        """Run the function once for this configuration."""
        full = self.config(config)
        key = _key(full)
        if key not in self._traced:
            self._traced[key] = self._trace(full)
        return self._traced[key]

    def ptx(self, *, locs: bool = False, **config: Any) -> str:
        """The PTX text for this configuration; `locs` keeps `.file` and `.loc`."""
        return self.trace(**config).ptx(locs=locs)

    def module(self, **config: Any) -> tree.Module:
        """The tree for this configuration."""
        return self.trace(**config).module

    def positions(self, **config: Any) -> dict[int, Position]:
        """The Python position by line of `ptx(locs=True)`."""
        return self.trace(**config).positions()

    def assemble(self, **config: Any) -> Assembly:
        """The result of ptxas: cubin, resources, and findings at Python lines."""
        from ..runtime.toolchain import assemble

        traced = self.trace(**config)
        return assemble(traced.ptx(locs=True), self.target, lines=traced.positions())

    def summary(self, **config: Any) -> str:
        """One line: threads and shared memory of a block, and registers and spills when ptxas is installed."""
        from ..runtime.toolchain import has_ptxas

        traced = self.trace(**config)
        threads = "x".join(map(str, traced.block)).removesuffix("x1").removesuffix("x1") if traced.block else "any number of"
        words = [f"{threads} threads", f"{traced.shared.total:,} bytes of shared memory"]
        if has_ptxas():
            entry = self.assemble(**config).resources[self.name]
            words += [f"{entry.registers} registers", f"{entry.spills} bytes spilled"]
        else:
            words.append("not assembled, there is no ptxas")
        return ", ".join(words)

    def cubin(self, **config: Any) -> bytes:
        return self.assemble(**config).cubin

    def sass(self, **config: Any) -> str:
        """The machine code as nvdisasm prints it."""
        from ..runtime.toolchain import disassemble

        return disassemble(self.cubin(**config))

    def compile(self, **config: Any) -> Compiled:
        """The kernel, loaded on the current device and ready to launch. It is kept per configuration."""
        key = _key(self.config(config))
        if key not in self._compiled:
            from ..runtime.compiled import Compiled

            self._compiled[key] = Compiled(self.trace(**config))
        return self._compiled[key]

    def launch(self, grid: int | tuple[int, ...], *args: Any, stream: Any = None, pdl: bool = False, **config: Any) -> None:
        """Launch on `grid` CTAs. Arrays are taken by protocol (torch, CuPy, device_array). A tensor map may be a plain array.

        Arguments may be given by name. A dataclass argument is an instance, or a mapping from its fields' names to values.
        """
        named, config = self._split(config)
        self.compile(**config)(grid, *args, stream=stream, pdl=pdl, **named)

    def _split(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Separate arguments given by name from compile-time parameters."""
        named = {name: given[name] for name in self._positional if name in given}
        return named, {name: value for name, value in given.items() if name not in named}

    def check(self, **config: Any) -> tuple[Finding, ...]:
        """The findings of the static rules, by line. See `ptxkit.check`."""
        from ..check import check

        return check(self.trace(**config))

    def simulate(self, grid: int | tuple[int, ...], *args: Any, schedule: str = "fifo", seed: int = 0, check: bool = True,
                 max_steps: int | None = None, card: Card | None = None, **config: Any) -> Report:
        """Run on the CPU device. Arguments are NumPy arrays, which are updated in place, also for tensor maps. See `ptxkit.sim.run`.

        `card` None is an H200.
        """
        from ..cards import H200
        from ..sim import run

        named, config = self._split(config)
        traced = self.trace(**config)
        args = values(traced.signature, args, named)
        return run(traced, grid=grid, args=args, schedule=schedule, seed=seed, check=check, max_steps=max_steps, card=card or H200)

    # ------------------------------------------------------------------ one trace

    def _trace(self, config: dict[str, Any]) -> Traced:
        part = self._part(config)
        module = part.module
        others = self._module.traced(self, module)
        builders = [module, *(other.module for other in others.values() if isinstance(other, _Part))]
        items: list[tree.Item] = [*module.file_directives(), *raw.declarations(self._module.declarations)]
        for builder in builders:
            items += builder.variables
            items += [memory] if (memory := builder.shared.variable()) is not None else []
        items += {f.name: f for builder in builders for f in builder.functions.values()}.values()
        for member in self._module.members:
            made = part if member is self else others[member]
            items.append(made.entry if isinstance(made, _Part) else made)
        version = max(self._module.version, *(builder.since for builder in builders))
        items += raw.declarations(self._module.debug)
        if "debug" in self._modes and not any(isinstance(item, tree.Section) for item in items):
            items += _NO_DWARF
        whole = tree.Module(version, (self.target, *self._modes), 64, tuple(items))
        return Traced(self.name, whole, part.signature, part.block, part.cluster, module.shared, module.copies, module.files, config,
                      bool(module.setmaxnreg))

    def part(self) -> _Part:
        """The entry in its default configuration, for a module with several entries."""
        return self._part(self.config({}))

    def _part(self, config: dict[str, Any]) -> _Part:
        block = None if self._block is None else _dims(self._block, config, "block")
        cluster = _dims(self._cluster, config, "cluster")
        threads = None if block is None else block[0] * block[1] * block[2]
        if threads is not None and not 1 <= threads <= 1024:
            raise TraceError(f"a block has 1 to 1024 threads, not {threads}")
        ctas = cluster[0] * cluster[1] * cluster[2]
        if not 1 <= ctas <= 16:
            raise TraceError(f"a cluster has 1 to 16 CTAs (8 unless the launch asks for a non-portable size), not {ctas}")
        shared = SharedPlan(f"{self.name}_smem", dynamic=self._dynamic)
        module = ModuleBuilder(self.name, self.target, block, cluster, shared, self._module.files)
        module.joined = self._module.joined
        code = self.function.__code__
        here = Position(code.co_filename, code.co_firstlineno)
        builder = Builder(module, self.name, here)
        parameters = self._parameters()
        with tracing(builder):
            arguments = [argument(builder, p, here) for p in parameters]
            returned = self._call(*arguments, **config)
            if returned is not None:
                raise TraceError(f"kernel `{self.name}` returned {returned!r}: a kernel returns nothing, it stores its results", here)
            body = builder.finish()
        check_barriers(shared.barriers)
        self._check_registers(module, threads)
        entry = tree.Function("entry", self.name, tuple(map(declared, flat(parameters))), directives=self._said(block, cluster, config),
                              body=body, linkage="visible")
        return _Part(module, entry, parameters, block, cluster)

    def _parameters(self) -> tuple[Parameter | Record, ...]:
        hints = get_type_hints(self.function, include_extras=True)
        here = Position(self.function.__code__.co_filename, self.function.__code__.co_firstlineno)
        return tuple(described(name, hints.get(name), self.name, here) for name in self._positional)

    def _said(self, block: tuple[int, int, int] | None, cluster: tuple[int, int, int],
              config: dict[str, Any]) -> tuple[tree.Directive, ...]:
        found = []
        if block is not None:
            found.append(tree.Directive("reqntid", block))
            if self._min_ctas:
                found.append(tree.Directive("minnctapersm", (self._min_ctas,)))
        if self._max_registers:
            found.append(tree.Directive("maxnreg", (self._max_registers,)))
        if cluster != (1, 1, 1):
            found += [tree.Directive("explicitcluster"), tree.Directive("reqnctapercluster", cluster)]
        more = self._directives
        return (*found, *(raw.directives(more(config)) if callable(more) else more))

    def _check_registers(self, module: ModuleBuilder, threads: int | None) -> None:
        if not module.setmaxnreg:
            return
        if not self._max_registers and (threads is None or not self._min_ctas):
            raise TraceError(
                "setmaxnreg would be ignored: ptxas honours it only with a register cap at entry; give @kernel(block=...) with min_ctas=1, "
                "or max_registers=", module.setmaxnreg[0][3])
        if threads is not None:
            largest = max(count for _, count, _, _ in module.setmaxnreg)
            registers = self._max_registers or min(entry_registers(threads * (self._min_ctas or 1), largest), 255)
            check_setmaxnreg(module.setmaxnreg, threads, registers)


def _key(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a configuration. 1, 1.0 and True give different keys."""
    for name, value in config.items():
        try:
            hash(value)
        except TypeError:
            raise TraceError(f"compile-time parameter `{name}` is {value!r}, which may change: pass a value that can be hashed, "
                             "as a tuple") from None
    return tuple((type(value), value) for value in config.values())


def _dims(given: Dim, config: Mapping[str, Any], what: str) -> tuple[int, int, int]:
    value = given(config) if callable(given) else given
    dims = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(dims) <= 3 or any(not isinstance(d, int) or d < 1 for d in dims):
        raise TraceError(f"{what} is one to three positive extents, not {value!r}")
    return (*dims, 1, 1)[:3]  # type: ignore[return-value]


def kernel(*, target: str = "sm_90a", block: Dim | None = None, cluster: Dim = 1, min_ctas: int | None = 1,
           max_registers: int | None = None, smem: str | None = None, name: str | None = None,
           module: raw.Module | None = None, directives: Directives = "") -> Callable[[Callable[P, None]], Kernel[P]]:
    """Make a function a kernel.

    `block` (threads) and `cluster` (CTAs) are an int, up to three extents, or a function of the configuration. The register cap that
    setmaxnreg needs is derived from `block` and `min_ctas` (CTAs per SM); `max_registers` sets it directly. `smem` forces "static" or
    "dynamic" shared memory; by default it is dynamic above 48 KiB. `module` has the declarations and functions around the kernel.
    `directives` are PTX directives without an option here, or a function from the configuration to them. `target` is the operand of PTX's
    `.target`, such as "sm_90a, texmode_independent". With "sm_90a, debug" ptxas does not optimise, and a debugger shows Python's lines.
    """

    def decorate(function: Callable[P, None]) -> Kernel[P]:
        return Kernel(function, target=target, block=block, cluster=cluster, min_ctas=min_ctas, max_registers=max_registers,
                      smem=smem, name=name, module=module, directives=directives)

    return decorate


__all__ = ["Dim", "Kernel", "kernel"]
