"""The implementation of the language: kernels, traces, registers, operands and their rules."""
