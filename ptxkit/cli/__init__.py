"""The command line. `main` has the parser; each other module is one command or a part that commands share."""
