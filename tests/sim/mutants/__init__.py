"""Mutants of the bundled kernels and of compiled ones. The `.ptx` here are `nvcc -std=c++17 -arch=sm_90a -ptx` of the `.cu` beside them."""
