"""Payloads of artifacts, which are read again from the logs in one pass, and written to a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tracelink._compile.divergences import payloads_of
from tracelink._compile.reading import Read
from tracelink._io.remote.addresses import plain_path
from tracelink._io.targets import check_local
from tracelink._io.temporary import abandoned_files_removed, temporary_folder_for
from tracelink._model.errors import UsageError
from tracelink._model.witnesses import Artifact

NAME = re.compile(r"[^A-Za-z0-9._+=-]+")
"""What is replaced in the name of a file."""
LONGEST_NAME = 120
RESERVED = re.compile(r"con|prn|aux|nul|com\d|lpt\d", re.IGNORECASE | re.ASCII)
"""Names of devices on Windows, whatever follows their first dot."""
NO_ID = "process"
"""The folder of artifacts outside of a compilation."""
PYTHON = ("inductor_output_code", "fx_graph_runnable", "runtime_wrapper_orchestration", "backward_prologue")
PYTHON_ENDS = ("_graph", "_forward", "_backward", "_wrapper", "_epilogue")


def language(artifact: Artifact) -> str:
    """`py`, `json` or `txt`: what the payload is, by its name."""
    name = artifact.name
    if name in PYTHON or name.endswith(PYTHON_ENDS):
        return "py"
    if "cache_" in name or "provenance" in name or "schedule" in name or name.endswith(("_meta", "_info")):
        return "json"
    return "txt"


def write_artifacts(logs: Read, folder: str) -> tuple[int, int]:
    """Writes each payload to `folder/rank_0/1_5/name.txt`, all or nothing; returns their number and bytes."""
    check_local(folder)
    final = Path(os.path.realpath(plain_path(folder)))
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise UsageError(f"{folder} exists and is not empty", advice="Name a new folder.")
    with abandoned_files_removed(folder), temporary_folder_for(final) as temporary:
        return _write_all(logs, temporary)


def _write_all(logs: Read, folder: Path) -> tuple[int, int]:
    used: set[str] = set()
    count = size = 0
    for rank, of_rank in logs.logs.items():
        for log in of_rank:
            for artifact, payload in payloads_of(logs.sources[log.source.path], log.artifacts):
                path = folder / _unused(file_name(rank, artifact), used)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(payload)
                count, size = count + 1, size + len(payload)
    return count, size


def file_name(rank: int, artifact: Artifact) -> str:
    """`rank_0/1_5/inductor_output_code.py`; no name from a log leads out of the folder."""
    place = _safe(artifact.compile_id) or NO_ID
    return f"rank_{rank}/{place}/{_safe(artifact.name) or 'artifact'}.{language(artifact)}"


def _safe(name: str) -> str:
    safe = NAME.sub("_", name)[:LONGEST_NAME].strip(".")
    return f"_{safe}" if RESERVED.fullmatch(safe.partition(".")[0]) else safe


def _unused(name: str, used: set[str]) -> str:
    """The name, or that with the next number: `name_2.txt`; names differ in more than their case."""
    stem, _, suffix = name.rpartition(".")
    candidate, number = name, 1
    while candidate.lower() in used:
        number += 1
        candidate = f"{stem}_{number}.{suffix}"
    used.add(candidate.lower())
    return candidate
