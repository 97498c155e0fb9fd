"""From PTX to a run: the assembler, the driver, arguments and launches."""
