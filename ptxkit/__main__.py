"""`python -m ptxkit` is the command `ptxkit`."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
