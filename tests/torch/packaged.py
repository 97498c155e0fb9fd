"""A package of AOTInductor is made, loaded and run: `python -m tests.torch.packaged LAYERS DEVICE FOLDER`, LAYERS ptxkit or torch.

It is a process of its own, since a package is machine code: what is wrong with it ends the process that loads it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def alone(layers: str, device: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """This module in a process of its own. A negative status is the signal that ended it, whose stack is on stderr then."""
    return subprocess.run([sys.executable, "-X", "faulthandler", "-m", __name__, layers, device, str(folder)], cwd=ROOT,
                          capture_output=True, text=True, check=False)


def model(torch: Any, layers: str, device: str) -> Any:
    """Layers of ptxkit, or as many of torch, with a kernel of inductor's own between them."""
    from ptxkit.torch import GatedMLP, Linear

    torch.manual_seed(1)
    made = {"device": device, "dtype": torch.bfloat16}
    kind, last = (Linear, GatedMLP) if layers == "ptxkit" else (torch.nn.Linear, torch.nn.Linear)
    return torch.nn.Sequential(kind(64, 96, **made), torch.nn.GELU(), kind(96, 64, **made), last(64, 96, **made))


def main(layers: str, device: str, folder: str) -> None:
    """Make the package, load it, and compare what it computes with the model, for two numbers of rows."""
    import torch

    from ptxkit.torch import cpu_device

    with cpu_device() if device == "cpu" else contextlib.nullcontext(), torch.no_grad():
        kept, x = model(torch, layers, device), torch.randn(16, 64, dtype=torch.bfloat16, device=device)
        program = torch.export.export(kept, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=1024)},))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(Path(folder) / f"{layers}.pt2"))
        print("made", flush=True)
        loaded = torch._inductor.aoti_load_package(package)
        print("loaded", flush=True)
        for rows in (16, 40):
            x = torch.randn(rows, 64, dtype=torch.bfloat16, device=device)
            found, expected = loaded(x).double(), kept(x).double()
            assert (found - expected).norm() <= 2.0 ** -7 * expected.norm()         # inductor's gelu rounds otherwise
        print("as eager", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
