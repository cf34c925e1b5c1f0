"""Mutated inputs of every reader, run through the command line with limits: `python -m fuzz --help`."""
