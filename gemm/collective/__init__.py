"""Layers 1 to 3 of a GEMM: instruction atoms, tiled operations, and the collectives of a mainloop and an epilogue."""
