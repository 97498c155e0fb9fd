"""Layers 1 to 3 of a GEMM: instruction atoms, tiled operations, and the collective mainloops and epilogues."""
