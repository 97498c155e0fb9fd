"""@kernel: a Python function becomes an `.entry`, once for each configuration of its compile-time parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Unpack

from ..errors import LaunchError, TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..once import Once, ReenteredError
from ..smem import SharedPlan
from . import raw
from .ambient import tracing, tracing_now
from .author import by_name, hints_of, plain_function
from .computed import Dim, computed, dims
from .dropped import said
from .misused import run
from .module import ModuleBuilder
from .names import identifier, symbol
from .parameters import Parameter, Record, argument, declared, described, flat, values
from .rules import check_barriers, check_setmaxnreg, entry_registers
from .scopes import check_module, check_parameters, shared_functions
from .source import named
from .trace import Builder
from .traced import Traceable, Traced
from .uncalled import check_called

if TYPE_CHECKING:
    from os import PathLike

    from ..cards import Card
    from ..check.found import Findings
    from ..debugger import Session
    from ..export.exported import Exported
    from ..measure.asked import Check, Given, Grid
    from ..measure.benchmark import Benchmark
    from ..measure.benchmark import Options as BenchOptions
    from ..runtime.compiled import Compiled
    from ..runtime.toolchain import Assembly
    from ..sim import Limits, Report
    from ..timeline import Timeline
    from ..tuning.space import Given as Space
    from ..tuning.tuned import Options as TuneOptions
    from ..tuning.tuned import Tuned
    from .marks import Selection

P = ParamSpec("P")
_NO_DWARF = (tree.Section(".debug_abbrev", ()), tree.Section(".debug_info", ()))
"""ptxas refuses the debug target without these sections. It makes the line table itself."""
_TARGET = re.compile(r"sm_\d+[a-z]?\s*(,|$)")
OPTIONS = ("block", "cluster", "directives", "max_registers", "min_ctas", "smem", "target")
"""Options of @kernel that a call may give by mistake."""
TAKEN = {"card": "simulate", "check": "simulate", "events": "simulate", "force": "export", "grid": "launch", "limits": "simulate",
         "locs": "ptx", "marks": "simulate", "max_steps": "simulate", "name": "export", "pdl": "launch", "previous": "simulate",
         "rounds": "timeline", "seed": "simulate", "stream": "launch"}
"""Names that a configuration cannot have, each with a method that has such an option. `schedule` is none: a wrong one is refused."""
EVENTS = 4096
"""Events of marks that a warp has room for in each of its roles, unless the launch says otherwise."""
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

    decorated_as = "@kernel"

    def __init__(self, function: Callable[P, None], *, target: str, block: Dim | None, cluster: Dim, min_ctas: int | None,
                 max_registers: int | None, smem: str | None, name: str | None, module: raw.Module | None = None,
                 directives: Directives = "") -> None:
        if smem not in (None, "static", "dynamic"):
            raise TraceError(f"smem is 'static', 'dynamic' or None (by size), not {smem!r}")
        _check_options(target, min_ctas, max_registers, name, module)
        function = plain_function(function, "@kernel")
        self.function = function
        self._call: Callable[..., Any] = function
        self.name = symbol(name) if name is not None else identifier(function.__name__, "give @kernel(name=...)")
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
        self.__module__ = function.__module__ or "__main__"          # code that `exec` runs may have none
        signature = inspect.signature(function)
        if starred := [p.name for p in signature.parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]:
            raise TraceError(f"kernel `{self.name}` takes any number of `{starred[0]}`, and PTX declares each parameter of a kernel: "
                             "name them")
        if ignored := [p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY and p.default is not p.empty]:
            raise TraceError(f"`{ignored[0].name}` of kernel `{self.name}` has a default, and each launch gives its arguments: drop the "
                             f"default, or write it behind `*`, which makes it a compile-time parameter")
        self._defaults = {p.name: p.default for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
        self._positional = tuple(identifier(p.name, "rename it") for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)
        for taken in sorted(self._defaults.keys() & TAKEN):
            raise TraceError(f"a compile-time parameter cannot be called `{taken}`: it is an option of {self.name}.{TAKEN[taken]}")
        self._described: tuple[Parameter | Record, ...] | None = None
        self._traced = Once[Traced]()
        self._compiled = Once["Compiled"]()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        raise TraceError(
            f"a kernel is not called but launched: {self.name}.launch(grid, ...); code shared by kernels is a plain function or a @func"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name(self, self.function, f"kernel `{self.name}`")

    def __copy__(self) -> Kernel[P]:
        return self

    def __deepcopy__(self, memo: object) -> Kernel[P]:
        return self

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self._positional)})>"

    def _repr_html_(self) -> str:
        from ..html.kernels import kernel

        return kernel(self)

    def config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The full configuration. Raises TraceError for unknown names and for missing values."""
        for name in given:
            if name not in self._defaults:
                has = ", ".join(self._defaults) or "none"
                way = (f": `{name}=` stands in @kernel({name}=...), where it may be a function of the configuration, as "
                       f"`{name}=lambda config: config[\"THREADS\"]`" if name in OPTIONS else "")
                raise TraceError(f"kernel `{self.name}` has no compile-time parameter `{name}`; it has {has}{way}")
        full = {**self._defaults, **given}
        for name, value in full.items():
            if value is inspect.Parameter.empty:
                raise TraceError(f"kernel `{self.name}` needs a value for its compile-time parameter `{name}`")
        return full

    def trace(self, *, marks: Selection = False, **config: Any) -> Traced:
        """Run the function once for this configuration. With `marks` its marks emit: all, or those with these names."""
        full = self.config(config)
        chosen = _marks(marks)
        key = chosen, _key(full)
        if key in self._traced.results:
            return self._traced.results[key]
        if (outer := tracing_now()) is not None and outer.module.name == self.name:
            raise TraceError(f"kernel `{self.name}` is traced within its own trace, which would never end: code that kernels share is a "
                             "plain function or a @func")
        try:
            return self._traced.get(key, lambda: self._trace(full, chosen))
        except ReenteredError:
            raise TraceError(f"kernel `{self.name}` is traced within its own trace, by way of another kernel's") from None

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
        made = assemble(traced.ptx(locs=True), self.target, lines=traced.positions())
        traced.resources.update(made.resources)
        return made

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

    def compile(self, *, marks: Selection = False, **config: Any) -> Compiled:
        """The kernel, loaded on the current device and ready to launch. It is kept per configuration."""
        key = _marks(marks), _key(self.config(config))
        if key in self._compiled.results:
            return self._compiled.results[key]
        from ..runtime.compiled import Compiled

        return self._compiled.get(key, lambda: Compiled(said(self.trace(marks=marks, **config))))

    def launch(self, grid: int | tuple[int, ...], *args: Any, stream: Any = None, pdl: bool = False, **config: Any) -> None:
        """Launch on `grid` CTAs. Arrays are taken by protocol (torch, CuPy, device_array). A tensor map may be a plain array.

        Arguments may be given by name. A dataclass argument is an instance, or a mapping from its fields' names to values.
        """
        named, config = self._split(config)
        if config.get("marks"):
            raise LaunchError(f"a launch with marks is {self.name}.timeline(grid, ...): it has room for them, waits and reads them")
        self.compile(**config)(grid, *args, stream=stream, pdl=pdl, **named)

    def tune(self, space: Space, *, grid: Grid, args: Given, check: Check = None, **options: Unpack[TuneOptions]) -> Tuned:
        """The fastest right point of a space, found by measuring copies of the arguments and kept for the card. `grid` may be a function of
        the configuration, `args` one that makes a set of arguments. See docs/tune.md and `ptxkit.tuning.tuned.Options`."""
        from ..tuning.tune import tune

        return tune(self, space, grid, args, check, options)

    def bench(self, *, grid: Grid, args: Given, config: Mapping[str, Any] | None = None, **options: Unpack[BenchOptions]) -> Benchmark:
        """Time a configuration on copies of the arguments, beside others. See docs/tune.md and `ptxkit.measure.benchmark.Options`."""
        from ..measure.bench import bench

        return bench(self, grid, args, options, config or {})

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments of a launch."""
        return self._positional

    def _split(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Separate arguments given by name from compile-time parameters."""
        named = {name: given[name] for name in self._positional if name in given}
        return named, {name: value for name, value in given.items() if name not in named}

    def check(self, **config: Any) -> Findings:
        """The findings of the static rules, by line. See `ptxkit.check`."""
        from ..check import check

        return check(self.trace(**config))

    def simulate(self, grid: int | tuple[int, ...], *args: Any, schedule: str = "fifo", seed: int = 0, check: bool = True,
                 max_steps: int | None = None, limits: Limits | None = None, card: Card | None = None,
                 previous: Mapping[str, Iterable[Any]] | None = None, marks: Selection = False, events: int = EVENTS,
                 **config: Any) -> Report:
        """Run on the CPU device. Arguments are NumPy arrays, which are updated in place, also for tensor maps. See `ptxkit.sim.run`.

        `card` None is an H200. `previous` is what the grid before uses until `griddepcontrol.wait`: `{"writes": [...], "reads": [...]}`.
        With `marks`, the report has a `timeline`; a warp has room for that many `events` in each of its roles.
        """
        from ..cards import H200
        from ..sim import Limits, run

        named, config = self._split(config)
        traced = said(self.trace(marks=marks, **config))
        options: Any = {"grid": grid, "schedule": schedule, "seed": seed, "check": check, "max_steps": max_steps,
                        "limits": limits or Limits(), "card": card or H200, "previous": previous}
        if traced.marks is None:
            return run(traced, args=values(traced.signature, args, named), **options)
        from ..timeline.simulated import marked

        return marked(traced, args, named, events, options)

    def timeline(self, grid: int | tuple[int, ...], *args: Any, marks: Selection = True, events: int = EVENTS, rounds: int = 5,
                 stream: Any = None, **config: Any) -> Timeline:
        """Launch with marks, wait, and read what they say: see `ptxkit.timeline.Timeline`.

        `marks` are the names of those that emit, True for all. A warp has room for that many `events` in each of its roles. The kernel runs
        once more without marks and once with them in each of the `rounds`, which tell the overhead; 0 leaves that out.
        """
        from ..timeline.launched import launched

        named, config = self._split(config)
        return launched(self.compile(marks=marks, **config), self.compile(**config), grid, args, named, events, rounds, stream)

    def debug(self, grid: int | tuple[int, ...], *args: Any, schedule: str = "fifo", seed: int = 0, check: bool = True,
              max_steps: int | None = None, limits: Limits | None = None, card: Card | None = None,
              previous: Mapping[str, Iterable[Any]] | None = None, **config: Any) -> Session:
        """Step through a launch on the CPU device: a session, before the first instruction. It takes what `simulate` takes."""
        from ..cards import H200
        from ..debugger.live import LiveSession
        from ..proof.given import launch_of
        from ..sim import Limits
        from .named import names_of

        named, config = self._split(config)
        traced = said(self.trace(**config))
        before = None if previous is None else {way: tuple(each) for way, each in previous.items()}
        launch = replace(launch_of(traced, grid, values(traced.signature, args, named)), previous=before)
        return LiveSession(launch, schedule=schedule, seed=seed, check=check, max_steps=max_steps, limits=limits or Limits(),
                       card=card or H200, names=names_of(self, self.config(config)))

    def export(self, folder: str | PathLike[str], /, *, name: str | None = None, force: bool = False, **config: Any) -> Exported:
        """Write the kernel for programs without Python: NAME.cubin, NAME.h, and NAME.c with `NAME_launch`.

        The C file has the cubin in it and needs only a C compiler; it finds the driver when it is first called. `name` None is the
        kernel's. Files that exist are overwritten only with `force`. Raises ExportError for what C cannot launch, and writes nothing then.
        """
        from ..export.one import export

        return export(self.trace(**config), folder, name=name, force=force)

    # ------------------------------------------------------------------ one trace

    def retrace(self, config: Mapping[str, Any]) -> None:
        """Run the function once more for a full configuration, for somebody who looks at it; nothing is kept."""
        self._part(dict(config))

    def _trace(self, config: dict[str, Any], marks: tuple[str, ...] | bool = False) -> Traced:
        part = self._part(config, marks)
        module = part.module
        others = self._module.traced(self, module)
        both = {f.name for other in others.values() if isinstance(other, _Part) for f in other.module.functions.values()}
        if marks and (shared := both & {f.name for f in module.functions.values()}):
            raise TraceError(f"the entries of `{self.name}`'s module share the function `{min(shared)}`, which has marks in one of them: "
                             "give the kernel a module of its own")
        builders = [module, *(other.module for other in others.values() if isinstance(other, _Part))]
        items: list[tree.Item] = [*module.file_directives(), *raw.declarations(self._module.declarations)]
        for builder in builders:
            items += [variable for variable in builder.variables if variable not in items]
            items += [memory] if (memory := builder.shared.variable()) is not None else []
        here = self._here()
        items += shared_functions(builders, self.name, here).values()
        for member in self._module.members:
            made = part if member is self else others[member]
            items.append(made.entry if isinstance(made, _Part) else made)
        version = max(self._module.version, *(builder.since for builder in builders))
        items += raw.declarations(self._module.debug)
        if "debug" in self._modes and not any(isinstance(item, tree.Section) for item in items):
            items += _NO_DWARF
        whole = tree.Module(version, (self.target, *self._modes), 64, tuple(items))
        check_module(whole, {builder.shared.symbol: builder.name for builder in builders if builder.shared.allocations}, self.name, here)
        return Traced(self.name, whole, part.signature, part.block, part.cluster, module.shared, module.copies, module.files, config,
                      bool(module.setmaxnreg), None if module.marks is None else module.marks.named(self.name),
                      tuple(each for builder in builders for each in builder.dropped),
                      tuple(each for builder in builders for each in builder.guarded))

    def part(self) -> _Part:
        """The entry in its default configuration, for a module with several entries."""
        return self._part(self.config({}))

    def _part(self, config: dict[str, Any], marks: tuple[str, ...] | bool = False) -> _Part:
        here = self._here()
        block = None if self._block is None else dims(self._block, config, "block", here)
        cluster = dims(self._cluster, config, "cluster", here)
        of_block, of_cluster = (None if callable(each) else here for each in (self._block, self._cluster))
        threads = None if block is None else block[0] * block[1] * block[2]
        if threads is not None and not 1 <= threads <= 1024:
            raise TraceError(f"a block has 1 to 1024 threads, not {threads}: give `{self.name}` a smaller block= and more CTAs", of_block)
        if block is not None and block[2] > 64:
            raise TraceError(f"a block has at most 64 threads along z, not {block[2]}: give `{self.name}` those along x or y", of_block)
        ctas = cluster[0] * cluster[1] * cluster[2]
        if not 1 <= ctas <= 16:
            raise TraceError(f"a cluster has 1 to 16 CTAs (8 unless the launch asks for a non-portable size), not {ctas}: give "
                             f"`{self.name}` a smaller cluster=", of_cluster)
        shared = SharedPlan(f"{self.name}_smem", dynamic=self._dynamic)
        module = ModuleBuilder(self.name, self.target, block, cluster, shared, self._module.files)
        module.joined = self._module.joined
        builder = Builder(module, self.name, here)
        parameters = self._parameters()
        builder.parameters.update(parameter.name for parameter in flat(parameters))
        with tracing(builder):
            if marks:
                from .marks import begun

                parameters += tuple(Parameter(*each) for each in begun(builder, marks))
            arguments = [argument(builder, p, here) for p in parameters[:len(self._positional)]]
            check_called(self.function)
            returned = run(self._call, *arguments, **config)
            if returned is not None:
                raise TraceError(f"kernel `{self.name}` returned {returned!r}: a kernel returns nothing, it stores its results", here)
            body = builder.finish()
        check_barriers(shared.barriers)
        self._check_registers(module, threads)
        entry = tree.Function("entry", self.name, tuple(map(declared, flat(parameters))), directives=self._said(block, cluster, config),
                              body=body, linkage="visible")
        return _Part(module, entry, parameters, block, cluster)

    def _parameters(self) -> tuple[Parameter | Record, ...]:
        if self._described is None:
            hints, here = hints_of(self.function, f"kernel `{self.name}`"), self._here()
            parameters = tuple(described(name, hints.get(name), self.name, here) for name in self._positional)
            check_parameters(parameters, self._positional, self.name, here)
            self._described = parameters
        return self._described

    def _here(self) -> Position:
        code = self.function.__code__
        return Position(named(code.co_filename), code.co_firstlineno)

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
        return (*found, *(raw.directives(computed(more, config, "directives")) if callable(more) else more))

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


def _marks(marks: Selection) -> tuple[str, ...] | bool:
    """`marks=` as a key."""
    if isinstance(marks, bool):
        return marks
    from .marks import selected

    return selected(marks)


def _check_options(target: object, min_ctas: object, max_registers: object, name: object, module: object) -> None:
    if not isinstance(target, str) or not _TARGET.match(target):
        raise TraceError(f'target is the operand of .target, such as "sm_90a", not {target!r}')
    for option, value in (("min_ctas", min_ctas), ("max_registers", max_registers)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise TraceError(f"{option} is a positive number or None, not {value!r}")
    if name is not None and not isinstance(name, str):
        raise TraceError(f"name is a text, not {name!r}")
    if module is not None and not isinstance(module, raw.Module):
        raise TraceError(f"module is a ptxkit.Module, not {module!r}")


def kernel(function: None = None, /, *, target: str = "sm_90a", block: Dim | None = None, cluster: Dim = 1, min_ctas: int | None = 1,
           max_registers: int | None = None, smem: str | None = None, name: str | None = None,
           module: raw.Module | None = None, directives: Directives = "") -> Callable[[Callable[P, None]], Kernel[P]]:
    """Make a function a kernel: `@kernel(block=128)` stands above it. Raises TraceError for what is no plain function.

    `block` (threads) and `cluster` (CTAs) are an int, up to three extents, or a function of the configuration. The register cap that
    setmaxnreg needs is derived from `block` and `min_ctas` (CTAs per SM); `max_registers` sets it directly. `smem` forces "static" or
    "dynamic" shared memory; by default it is dynamic above 48 KiB. `module` has the declarations and functions around the kernel.
    `directives` are PTX directives without an option here, or a function from the configuration to them. `target` is the operand of PTX's
    `.target`, such as "sm_90a, texmode_independent". With "sm_90a, debug" ptxas does not optimise, and a debugger shows Python's lines.
    """

    if function is not None:
        raise TraceError("@kernel takes options: write @kernel(block=128), or @kernel() for a kernel whose launch says its block")

    def decorate(function: Callable[P, None]) -> Kernel[P]:
        return Kernel(function, target=target, block=block, cluster=cluster, min_ctas=min_ctas, max_registers=max_registers,
                      smem=smem, name=name, module=module, directives=directives)

    return decorate


__all__ = ["Dim", "Kernel", "kernel"]
