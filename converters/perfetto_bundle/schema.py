"""What Perfetto's manifest of an archive of traces says: the only place where its words stand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MANIFEST = "perfetto_manifest.json"
"""How the manifest is called in an archive."""

VERSION = 1

TAKEN = frozenset({"kineto"})
"""Formats, by their readers, whose files Perfetto loads and places as the manifest says."""

LARGEST = (8 << 30) - 1
"""Bytes of a member at most: the field of its length has eleven octal digits."""


def manifest(files: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The whole document; its first key is what it is known by."""
    return {"perfetto_manifest": {"version": VERSION, "files": list(files)}}


def file_entry(name: str, machine: str) -> dict[str, Any]:
    """A file, and the machine that everything in it is of: so equal process ids of two ranks stay apart."""
    return {"path": name, "machine": {"name": machine}}


def shifted(entry: dict[str, Any], reference: str, offset_ns: int) -> dict[str, Any]:
    """The same file, where what it calls T is T + offset on the timeline of another."""
    return entry | {"clocks": {"sync_to": {"file": reference}, "offset_ns": offset_ns}}
