"""Kernels in Triton, Gluon, CuTe DSL and TileLang, written for the scoreboard, and what is known of each."""
