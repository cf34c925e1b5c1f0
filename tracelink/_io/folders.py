"""Local folders: the files in them, datasets among them, and names that are similar to one that does not exist."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tracelink._model import MANIFEST, MANIFEST_START
from tracelink._model.errors import similar_to
from tracelink._model.findings import Finding, Severity

BROKEN_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
SEPARATORS = os.sep + (os.altsep or "")


def files_in(folder: Path, findings: list[Finding]) -> list[Path]:
    """The files in a folder and in folders inside it, sorted, without hidden ones."""
    found: list[Path] = []
    links: list[str] = []

    def unreadable(error: OSError) -> None:
        message = f"{error.filename}: {error.strerror}. Files in this folder were not read."
        findings.append(Finding(Severity.ERROR, "unreadable", message, source=str(error.filename)))

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        if MANIFEST in names and is_dataset(Path(parent)):
            folders.clear()
            found.append(Path(parent, MANIFEST))
            continue
        if is_incomplete(folders, parent):
            findings.append(incomplete(Path(parent)))
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        links += [path.as_posix() for name in folders if (path := Path(parent, name)).is_symlink()]
        paths = [Path(parent, name) for name in names if not name.startswith(".")]
        found += [path for path in paths if path.is_file()]
        findings += [dangling(path) for path in paths if path.is_symlink() and not path.exists()]
    if links:
        message = f"{len(links)} symbolic links to folders were not followed. Name the folders to read them."
        findings.append(Finding(Severity.INFO, "skipped", message, len(links), example=min(links)))
    return sorted(found)


def dangling(path: Path) -> Finding:
    """The finding on a symbolic link to nothing."""
    name = path.as_posix()
    message = f"{name}: a symbolic link to a file that does not exist. Restore the file or remove the link."
    return Finding(Severity.ERROR, "unreadable", message, source=name)


def similar_path(path: str) -> str:
    """Advice on a path that does not exist: the similar name in the deepest folder of it that does."""
    if match := BROKEN_ADDRESS.match(path):
        return (
            f"An address has two slashes, {match[1]}://{path[match.end() :]}, of which pathlib removes one."
        )
    folder, name = os.path.split(path.rstrip(SEPARATORS))
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    try:
        names = os.listdir(folder or os.curdir)
    except OSError:
        names = []
    similar = similar_to(name, names)
    return f"Did you mean {os.path.join(folder, similar)}?" if similar else "Check the path."


# Folders that are one input: datasets, which have a manifest, and those that lost it.


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
