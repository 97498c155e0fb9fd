"""What compilers read from the environment when they are imported."""

from __future__ import annotations

import os
import tempfile


def prepare() -> None:
    """Compile for Hopper and keep the PTX, in folders that are thrown away."""
    if "CUTE_DSL_DUMP_DIR" in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="ptxkit-foreign-")
    os.environ.update(CUTE_DSL_ARCH="sm_90a", CUTE_DSL_KEEP="ptx", CUTE_DSL_DUMP_DIR=folder, TRITON_CACHE_DIR=f"{folder}/triton",
                      TRITON_DEFAULT_FP_FUSION="1")
