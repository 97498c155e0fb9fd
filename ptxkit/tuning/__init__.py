"""How the fastest point of a space is found by measuring, and kept: halving, parallel assembly, files with locks."""
