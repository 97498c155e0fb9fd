"""What objects look like in a notebook. Objects give their facts and are not imported here, so that every room may use it."""

from __future__ import annotations
