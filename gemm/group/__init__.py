"""Group GEMM: in one launch the products of many groups of rows, each with weights of its own."""
