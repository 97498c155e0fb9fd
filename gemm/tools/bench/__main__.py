"""The worker of `python -m ptxkit.gemm bench` and `python -m ptxkit.gemm tune`: `python -m ptxkit.gemm.tools.bench NOTE`."""

from __future__ import annotations

import sys

from .watch import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
