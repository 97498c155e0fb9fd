"""Fingerprints of the machine code that the library loads, so that two trees can be compared kernel by kernel without a GPU."""
