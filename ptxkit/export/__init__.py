"""Kernels for programs without Python: a cubin, a C header and one C file that launches it, with the driver found at run time."""
