"""The worker of a task that is watched: `python -m ptxkit.measure NOTE`."""

from __future__ import annotations

import sys

from .watch import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
