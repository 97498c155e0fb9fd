"""The constants of the cost model of each card, as `python -m ptxkit.gemm fit` writes them."""
