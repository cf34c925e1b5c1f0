"""Linking: one file for each relation; every linker works on columns and knows nothing of files."""
