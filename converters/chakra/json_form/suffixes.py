"""How files of both forms are called."""

from __future__ import annotations

from tracelink.targets import GZIP_SUFFIX

JSON_SUFFIXES = (".json", ".json.gz")
ET_SUFFIXES = (".et", ".et.gz")


def renamed(name: str, suffix: str) -> str:
    """The name of a file in the other form."""
    stem = name.removesuffix(GZIP_SUFFIX)
    for known in (*JSON_SUFFIXES, *ET_SUFFIXES):
        stem = stem.removesuffix(known)
    return stem + suffix
