"""`debug`: a session of a launch that `ptxkit.prove` would take. What steps it is in `live`."""

from __future__ import annotations

from typing import Any

from ..cards import H200, Card
from ..sim.asked import Dim, PolicyBase
from .session import Session


def debug(kernel: Any, grid: Any = None, *args: Any, entry: str | None = None, block: Dim | None = None,
          cluster: Dim | None = None, dynamic_smem: int | None = None, schedule: str | PolicyBase = "fifo", seed: int = 0,
          check: bool = True, max_steps: int | None = None, card: Card = H200, **config: Any) -> Session:
    """A session of a launch that `ptxkit.prove` would take: PTX text, the path of a PTX file, another compiler's kernel. A kernel of ptxkit
    has `.debug`, which knows the author's names, too.
    """
    from ..proof.given import given
    from .live import LiveSession

    if hasattr(kernel, "debug"):
        return kernel.debug(grid, *args, schedule=schedule, seed=seed, check=check, max_steps=max_steps, card=card,  # type: ignore[no-any-return]
                            **config)
    shape = {"entry": entry, "block": block, "cluster": cluster, "dynamic_smem": dynamic_smem}
    return LiveSession(given(kernel, grid, args, shape, config), schedule=schedule, seed=seed, check=check, max_steps=max_steps, card=card)
