"""Commands: run, verify, tune and measure."""
