"""Folders that are one input: datasets, which have a manifest, and those that lost it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tracelink.model import MANIFEST, MANIFEST_START
from tracelink.model.errors import Finding, Severity

EVENTS = "events"
PARTITION = "rank="


def is_dataset(folder: Path) -> bool:
    """True for a folder with the manifest of a dataset, which is one input."""
    with suppress(OSError), (folder / MANIFEST).open("rb") as manifest:
        return manifest.read(len(MANIFEST_START)) == MANIFEST_START
    return False


def is_incomplete(folders: Sequence[str], parent: str) -> bool:
    """True for a folder, of which these are the folders in it, that has tables of a dataset but no manifest."""
    if EVENTS not in folders:
        return False
    with suppress(OSError):
        return any(name.startswith(PARTITION) for name in os.listdir(os.path.join(parent, EVENTS)))
    return False


def incomplete(folder: Path) -> Finding:
    """The finding on such a folder."""
    name = folder.as_posix()
    message = (
        f"{name}: a dataset without {MANIFEST}, so it is incomplete. Write it again, or remove the folder."
    )
    return Finding(Severity.ERROR, "unreadable", message, source=name)
