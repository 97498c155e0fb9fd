"""Layer 4: the kernels, one file each, to be read from top to bottom."""
