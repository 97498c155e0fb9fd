"""How the language works: kernels, traces, registers, operands and their rules."""
