"""Commands of `python -m ptxkit.attention`."""
