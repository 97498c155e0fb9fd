"""The bench: products beside those of other libraries and beside what the card can do, interleaved in one run."""
