"""Matching: the communication calls of all ranks in; groups, collectives, messages and clocks out (`job`).

Works on columns of calls; knows no events and no file format.
"""

__all__ = ["clock", "groups", "job", "observations", "outlines", "report"]
