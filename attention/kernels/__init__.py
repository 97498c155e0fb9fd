"""Attention kernels, one a file, read from top to bottom."""
