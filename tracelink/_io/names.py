"""Names of files and folders: the ranks and hosts in them, the files in a folder, and similar names."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tracelink._io.remote.addresses import within_store
from tracelink._model import MANIFEST, MANIFEST_START
from tracelink._model.errors import RankConflictError, similar_to
from tracelink._model.findings import Finding, Severity

# The rank of a source: from its content, else from the user, else from its name; a contradiction is an error


RANK_WORD = re.compile(
    r"(?<!lora)(?<!lora[._-])(?<!low)(?<!low[._-])rank[\[\]=._-]*(\d{1,6})(?!\d)", re.IGNORECASE
)
"""The word `rank` and a number: certain, except for the rank of a matrix."""

RANK_AFTER_HOST = re.compile(r"rank[._-](?P<host>.*)[._-](?P<rank>\d{1,6})$", re.IGNORECASE)
"""`nccl_trace_rank_<host>_<rank>`: dumps with the host in the name."""

_MARKERS = (
    r"(?:capture|kineto|et|fr|host(?=[._-])|device|worker|gpu|trace|traces|profile|prof|eg|dump|nccl_trace)"
    r"(?:[._-]?trace)?"
)

LIKELY_RANK = re.compile(rf"(?:^|[._-]){_MARKERS}[._-]?(\d{{1,5}})(?=$|[._-])", re.IGNORECASE)
"""A number after a word that is common in names of files per rank: a guess, used if the content has no rank."""

LIKELY_LETTER = re.compile(
    rf"(?:^(?:{_MARKERS}[._-])*(?:r|pt)|^k|(?:^|(?<!top)[._-])(?:k|r|pt)[._-])(\d{{1,5}})(?:[._-]\d{{9,}})?$",
    re.IGNORECASE,
)
"""The same after a letter, at the end or before a timestamp: `k400` and `r50` within a name belong to models."""

NUMBERED = re.compile(r"\.(\d{1,6})\.et(?:\.gz)?$", re.IGNORECASE)
"""`<prefix>.<rank>.et`: the names by which simulators find the file of a rank."""

RANK_FOLDER = re.compile(
    r"(?:(?:global|world|node\d*|host\d*|worker|trainer|dumps?|traces?|profiles?|logs?|fr|nccl|comm|lib|kineto)[._-]?)*"
    r"rank[=._-]*(\d{1,6})",
    re.IGNORECASE,
)
"""The whole name of a folder that contains the files of one rank; `local_rank_0` and `lora_rank_8` do not."""

HOST_FOLDER = re.compile(
    r"(?:[\w-]+[._-])?(?:node|host|machine|server)[._-]?\d[\w.-]*|(?:node|host)[._-][\w.-]+|ip-\d+(?:-\d+){3}[\w.-]*",
    re.IGNORECASE,
)
"""The whole name of a folder that contains the files of one host: `node0`, `gpu-node-17`, `host-a.example.org`."""

SUFFIXES = re.compile(r"(?:\.(?:json|gz|pt|trace|pkl|pickle|bin|zip|tar|tgz|et|txt))+$", re.IGNORECASE)


class RankHint(Struct, frozen=True):
    """The rank in a file name, and whether it is certain or a guess."""

    rank: int
    certain: bool


def rank_in_name(name: str) -> RankHint | None:
    """The rank in a file name, or None."""
    stem = SUFFIXES.sub("", name)
    if match := RANK_WORD.search(stem):
        return RankHint(int(match[1]), certain=True)
    if match := RANK_AFTER_HOST.search(stem):
        return RankHint(int(match["rank"]), certain=True)
    if match := NUMBERED.search(name) or LIKELY_RANK.search(stem) or LIKELY_LETTER.search(stem):
        return RankHint(int(match[1]), certain=False)
    return None


def rank_in_path(path: str) -> RankHint | None:
    """The rank in a file name, else in the nearest folder that is named after a rank; a guess in a name comes last."""
    *folders, name = within_store(path).replace(":", "/").split("/")
    hint = rank_in_name(name)
    if hint and (hint.certain or NUMBERED.search(name)):
        return hint
    matches = (RANK_FOLDER.fullmatch(folder) for folder in reversed(folders))
    return next((RankHint(int(match[1]), certain=False) for match in matches if match), hint)


def host_in_path(path: str) -> str:
    """The host in a file name (`nccl_trace_rank_<host>_<rank>`), else in the name of the nearest folder; or empty."""
    *folders, name = within_store(path).replace(":", "/").split("/")
    stem = SUFFIXES.sub("", name)
    if not RANK_WORD.search(stem) and (match := RANK_AFTER_HOST.search(stem)):
        return match["host"]
    return next((folder for folder in reversed(folders) if HOST_FOLDER.fullmatch(folder)), "")


def resolve_rank(
    path: str, *, content: int | None, name: RankHint | None, requested: int | None
) -> int | None:
    """The rank by the user, else by the content and the name; None if unknown.

    Raises RankConflictError if the user gives none, and content and name differ.
    """
    if requested is not None:
        return requested
    if content is None:
        return name.rank if name else None
    if name and name.certain and name.rank != content:
        raise RankConflictError(
            f"the rank is contradictory: the content says {content}, the name says {name.rank}",
            source=path,
            advice=f"Rename the file, or set its rank: --rank {path}=N",
        )
    return content


# Local folders.

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
