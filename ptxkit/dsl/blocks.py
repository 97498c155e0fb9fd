"""What stands after `with`. A block that is made and never entered would emit nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from ..errors import TraceError
from .ambient import current, tracing_now
from .source import user_position

if TYPE_CHECKING:
    from .trace import Builder


class Block:
    """What stands after `with`. Python's own `if`, `for` and `while` cannot use it."""

    _is: ClassVar[str] = "if_(p)"
    _as: ClassVar[str] = ""

    def __new__(cls, *args: Any, **given: Any) -> Self:
        block = super().__new__(cls)
        builder = tracing_now()
        if builder is not None:
            builder.unentered[id(block)] = block, user_position()
        return block

    def _entered(self) -> Builder:
        """The trace in progress, in which the block is no longer one that was never entered."""
        builder = current()
        builder.unentered.pop(id(self), None)
        return builder

    if not TYPE_CHECKING:

        def __bool__(self) -> NoReturn:
            raise TraceError(f"Python's `if`, `while` and `and` cannot look at `{self._is}`, which runs on the GPU: write "
                             f"`with {self._is}:`")

        def __iter__(self) -> NoReturn:
            raise TraceError(f"Python's `for` cannot run `{self._is}`, which runs on the GPU: write `with {self._is} as i:`; "
                             "`for i in range(4)` unrolls while tracing")


def check_entered(builder: Builder) -> None:
    """Raise for the first block that stands without `with`."""
    for block, position in builder.unentered.values():
        raise TraceError(f"`{block._is}` stands here without `with`, so that it emits nothing and what follows runs anyway: write "
                         f"`with {block._is}{block._as}:` and the body under it", position)


__all__ = ["Block", "check_entered"]
