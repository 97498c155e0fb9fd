"""Layer 4: one file for each kernel, readable from top to bottom."""
