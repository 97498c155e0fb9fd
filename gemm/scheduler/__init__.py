"""Tile schedulers: which output tile, and which part of its depth, a CTA works on next."""
