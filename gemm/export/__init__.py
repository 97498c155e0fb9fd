"""Products for programs without Python: the kernels that `gemm.gemm` would launch, with a C file that launches them as it does."""
