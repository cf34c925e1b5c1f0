"""Linking: which events of one rank belong together (`rank`).

One module for each relation; linkers work on columns and know no file format.
"""

__all__ = ["alignment", "compilation", "nesting", "rank"]
