"""Attention kernels for Hopper written with ptxkit: `ptxkit.attention(q, k, v)`, or `attention.attention(q, k, v)`, is the function; the
package can be called because that is what it is for. `ptxkit.attention_decode` is decode over a paged cache."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if __name__ == "attention":
    raise ImportError("the package `attention` is called `ptxkit.attention`: write `from ptxkit import attention`")

if TYPE_CHECKING:
    from .launch.decode import attention_decode
    from .launch.forward import attention

_LAZY = {"attention": "launch.forward", "attention_decode": "launch.decode"}


class _Callable(ModuleType):
    """The package, as a function."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from .launch.forward import attention

        return attention(*arguments, **named)


sys.modules[__name__].__class__ = _Callable


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["attention", "attention_decode"]
