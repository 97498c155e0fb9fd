"""The worker of `python -m gemm bench` and `python -m gemm tune`: `python -m gemm.bench NOTE`."""

from __future__ import annotations

import sys

from .watch import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
