"""`gemm.choose_experts` and `gemm.sort_choices`: what comes before a mixture of experts; on the device and on the CPU device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.parameters import values
from ptxkit.errors import LaunchError
from ptxkit.newest import Newest
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.launch import (
    check_contiguous,
    check_dtype,
    check_shape,
    empty_like_owner,
    raw_stream,
    refuse_gradients,
    same_device,
    view,
)

from ..kernels.route import LANES, MOST_EXPERTS, UNROLLED, WARPS
from ..kernels.route import choose_experts as choose_kernel
from ..kernels.route import sort_choices as sort_kernel
from ..problem.dense import short
from ..problem.options import flag, whole
from .combine import Sums, views_of

if TYPE_CHECKING:
    import numpy as np

    from ptxkit.sim import Report

    Array = np.ndarray[Any, Any]

MOST_CHOICES = 1 << 31
FEW = 1024                  # choices that four warps look at
_launches: Newest[Any, Sums] = Newest()


class Sorted(NamedTuple):
    """Choices by expert, int32. A slot is a row of what the experts are given: expert after expert, then the choices of no expert."""

    offs: Any
    """[experts + 1]: the first slot of each expert, and the end of the last."""
    choice: Any
    """[tokens * top]: the choice of each slot, by its number token after token."""
    slot: Any
    """[tokens, top]: the slot of each choice, and -1 where it is that of no expert."""
    token: Any
    """[tokens * top]: the token of each slot."""


class ChoiceProblem:
    """One choice of experts, checked: everything of it but the pointers."""

    kernel: Kernel[...] = choose_kernel
    written: tuple[str, ...] = ("weights", "experts")

    def __init__(self, logits: ArrayView, weights: ArrayView, experts: ArrayView, over_all: bool) -> None:
        self.tokens, self.count, self.top = chosen(logits, weights.shape[-1] if weights.shape else 0)
        for name, array, words in (("weights", weights, ("f32",)), ("experts", experts, ("s32", "u32"))):
            check_dtype(name, array, words)
            check_shape(name, array, (self.tokens, self.top))
            check_contiguous(name, array)
        self.over_all, self.empty = over_all, not self.tokens
        self.grid = -(-self.tokens // WARPS), 1, 1
        each = next(each for each in (1, 2, 4, 8, 16, 32) if each * LANES >= self.count)
        self.parameters: dict[str, Any] = {"each": each, "over_all": over_all}

    def arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The kernel's arguments by name. `pointer` maps the name of an array to its address."""
        return {**{name: pointer(name) for name in ("logits", "weights", "experts")}, "tokens": self.tokens, "count": self.count,
                "top": self.top}


class SortProblem:
    """One sort of choices, checked."""

    kernel: Kernel[...] = sort_kernel
    written: tuple[str, ...] = Sorted._fields

    def __init__(self, experts: ArrayView, offs: ArrayView, choice: ArrayView, slot: ArrayView, token: ArrayView) -> None:
        tokens, self.top = choices(experts)
        self.count = tokens * self.top
        for name, array, shape in (("offs", offs, (None,)), ("choice", choice, (self.count,)), ("slot", slot, experts.shape),
                                   ("token", token, (self.count,))):
            check_dtype(name, array, ("s32", "u32"))
            check_shape(name, array, shape)
            check_contiguous(name, array)
        self.groups = offs.shape[0] - 1
        if self.groups < 0:
            raise LaunchError("offs has no elements: it is int32 [experts + 1]")
        self.empty = False                                          # offs are written where there is no choice as well
        threads = 128 if self.count <= FEW else 1024
        steps = -(-self.count // threads)
        self.held = steps <= LANES
        unit = UNROLLED if self.held else LANES
        self.steps = -(-steps // unit) * unit if steps > UNROLLED else steps
        self.grid = self.groups + 1, 1, 1
        self.parameters: dict[str, Any] = {"threads": threads, "held": self.held, "dense": self.groups < LANES}

    def arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The kernel's arguments by name."""
        return {**{name: pointer(name) for name in ("experts", *Sorted._fields)}, "count": self.count, "groups": self.groups,
                "top": max(1, self.top), "steps": self.steps}


def chosen(logits: ArrayView, top: int) -> tuple[int, int, int]:
    """The tokens, their logits and how many are chosen. Raises LaunchError for logits or a number that the kernel does not take."""
    check_dtype("logits", logits, ("f32",))
    if len(logits.shape) != 2:
        raise LaunchError(f"logits has shape {logits.shape}: it is float32 [tokens, experts]")
    check_contiguous("logits", logits)
    tokens, count = logits.shape
    if count > MOST_EXPERTS:
        raise LaunchError(f"logits has shape {logits.shape}: a kernel chooses of at most {MOST_EXPERTS} experts")
    refuse_top(top, count)
    return tokens, count, top


def refuse_top(top: int, count: int) -> None:
    """Raise LaunchError for a number of experts that cannot be chosen of `count`."""
    if not 1 <= top <= min(count, LANES):
        raise LaunchError(f"top is {top}: of {count} experts a kernel chooses 1 to {min(count, LANES)}" if count else
                          "logits has no experts: there is none to choose")


def refuse_count(count: int) -> None:
    """Raise LaunchError for a number of experts that cannot be."""
    if count < 0:
        raise LaunchError(f"count is {count}: it is how many experts there are")


def choices(experts: ArrayView) -> tuple[int, int]:
    """The tokens and their choices. Raises LaunchError for numbers of experts that the kernel does not take."""
    check_dtype("experts", experts, ("s32", "u32"))
    if len(experts.shape) != 2:
        raise LaunchError(f"experts has shape {experts.shape}: it is int32 [tokens, choices of a token]")
    check_contiguous("experts", experts)
    if math.prod(experts.shape) >= MOST_CHOICES:
        raise LaunchError(f"experts has shape {experts.shape}: there are less than 2^31 choices; sort parts of them")
    return experts.shape[0], experts.shape[1]


def choose_experts(logits: Any, top: int, *, over_all: bool = False, out: tuple[Any, Any] | None = None,
                   stream: Any = None) -> tuple[Any, Any]:
    """The weights, float32, and numbers, int32, of the `top` experts that each token's logits choose: both [tokens, top].

    logits is float32 [tokens, experts] without gaps, of at most 1,024 experts; top is at most 32. The largest logit is first, and of
    equal ones that of the lowest expert. Weights are the softmax over those that were chosen, or with `over_all` over all of a token.

    A torch tensor that requires grad is refused while gradients are recorded: torch.ops.ptxkit.choose_experts has them.
    """
    top, over_all = whole("top", top), flag("over_all", over_all)
    if not (out is None or (isinstance(out, tuple | list) and len(out) == 2)):
        raise LaunchError(f"out={short(out)}: it is (weights, experts), the arrays that are written, or None")
    refuse_gradients(("logits", logits), ("weights", out[0] if out else None))
    seen = view(logits, "logits")
    shape = chosen(seen, top)[::2]
    weights, experts = out or (empty_like_owner(seen, shape, "f32"), empty_like_owner(seen, shape, "s32"))
    given = {"logits": logits, "weights": weights, "experts": experts}

    def problem(seen: dict[str, ArrayView]) -> ChoiceProblem:
        check_shape("weights", seen["weights"], (None, top))
        return ChoiceProblem(**seen, over_all=over_all)

    _run("choose", given, stream, problem, top, over_all)
    return weights, experts


def sort_choices(experts: Any, count: int, *, out: Sorted | None = None, stream: Any = None) -> Sorted:
    """The choices [tokens, top], int32, of `count` experts, expert after expert, and those of one expert in the order of the tokens.
    Choices of no expert, below 0 or not below `count`, come after those of all experts. Nothing waits for the device."""
    refuse_count(whole("count", count))
    if not (out is None or isinstance(out, Sorted)):
        raise LaunchError(f"out={short(out)}: it is a Sorted, as this function returns, or None")
    if out is None:
        seen = view(experts, "experts")
        tokens, top = choices(seen)
        out = Sorted(*(empty_like_owner(seen, shape, "s32") for shape in ((count + 1,), (tokens * top,), (tokens, top), (tokens * top,))))

    def problem(seen: dict[str, ArrayView]) -> SortProblem:
        check_shape("offs", seen["offs"], (count + 1,))
        return SortProblem(**seen)

    _run("sort", {"experts": experts, **out._asdict()}, stream, problem, count)
    return out


def _run(what: str, given: dict[str, Any], stream: Any, problem: Callable[[dict[str, ArrayView]], Any], *more: Any) -> None:
    key: Any = marks(*given.values())
    key = None if key is None else (what, key, *more)
    found = _launches.get(key) if key is not None else None
    if found is None:
        seen = {name: view(array, name) for name, array in given.items()}
        found = Sums(problem(seen), seen, same_device(list(seen.items())), next(iter(seen.values())))
        if key is not None:
            _launches[key] = found
    found.run(raw_stream(stream, found.like))


def simulate_choice(logits: Array, weights: Array, experts: Array, *, over_all: bool = False, check: bool = True) -> Report:
    """`gemm.choose_experts` into NumPy arrays, executed on the CPU."""
    given = {"logits": logits, "weights": weights, "experts": experts}
    return _simulate(ChoiceProblem(**views_of(given), over_all=over_all), given, check)


def simulate_sort(experts: Array, out: Sorted, *, check: bool = True) -> Report:
    """`gemm.sort_choices` into NumPy arrays, executed on the CPU."""
    given = {"experts": experts, **out._asdict()}
    return _simulate(SortProblem(**views_of(given)), given, check)


def _simulate(problem: ChoiceProblem | SortProblem, given: dict[str, Any], check: bool) -> Report:
    import numpy as np

    from ptxkit.sim import Report, run

    from .on_cpu import bytes_of, check_overlap

    check_overlap(given, problem.written)
    if problem.empty:
        return Report(checked=False)

    def pointer(name: str) -> Any:
        array, kind = given[name], np.float32 if name in ("logits", "weights") else np.uint32
        return bytes_of(array).view(kind) if array.size else np.zeros(4, kind)

    traced = problem.kernel.trace(**problem.parameters)
    return run(traced, grid=problem.grid, args=values(traced.signature, (), problem.arguments(pointer)), check=check)


__all__ = ["ChoiceProblem", "SortProblem", "Sorted", "choices", "choose_experts", "chosen", "refuse_count", "refuse_top",
           "simulate_choice", "simulate_sort", "sort_choices"]
