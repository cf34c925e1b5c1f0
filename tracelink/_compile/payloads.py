"""Payloads of artifacts: read again from the logs in one pass, written to a folder, or embedded in the page."""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from isal import isal_zlib
from msgspec import Struct, field

from tracelink._compile.divergences import Logs, payloads_of
from tracelink._compile.reading import Read
from tracelink._io.remote.addresses import plain_path
from tracelink._io.targets import check_local
from tracelink._io.temporary import abandoned_files_removed, temporary_folder_for
from tracelink._model.errors import UsageError
from tracelink._model.witnesses import Artifact
from tracelink._show.markup import Markup

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


MOST_OF_ONE = 256 << 10
"""Bytes of a payload that the page contains."""
MOST_OF_ALL = 48 << 20
"""Bytes of all payloads, before compression."""
LAST = ("fx_graph_cache_", "aotautograd_cache_", "torch._functorch.config")
"""Long payloads that few people read: they are left out first."""
MAPPINGS = "inductor_provenance_tracking_node_mappings"
"""For the nodes of a graph those that its passes made of them, and the kernels that compute these."""
FIRST = (MAPPINGS, "inductor_output_code", "recompile_reasons", "dynamo_graph_break_reason", "dynamo_error")
GZIP = 16 + zlib.MAX_WBITS

Key = tuple[str, int]
"""What is equal in equal payloads: their digest; the log and the offset of a damaged one."""


class Embedding(Struct):
    """The number of each payload that the page contains."""

    numbers: dict[Key, int] = field(default_factory=dict)
    left_out: int = 0
    """Artifacts that are not in the page."""
    left_out_bytes: int = 0

    def number(self, path: str, artifact: Artifact) -> int | None:
        """The number of a payload; None if the page does not contain it."""
        return self.numbers.get(_key(path, artifact))


def embedding_of(logs: Logs, most: int = MOST_OF_ALL) -> Embedding:
    """The most useful payloads of all ranks that fit."""
    every = [
        (log.source.path, artifact)
        for of_rank in logs.values()
        for log in of_rank
        for artifact in log.artifacts
    ]
    found, used = Embedding(), 0
    for path, artifact in sorted(every, key=lambda one: _priority(one[1])):
        key, size = _key(path, artifact), min(artifact.bytes, MOST_OF_ONE)
        if key in found.numbers:
            continue
        if used + size > most:
            found.left_out += 1
            found.left_out_bytes += artifact.bytes
            continue
        used += size
        found.numbers[key] = len(found.numbers)
    return found


def _key(path: str, artifact: Artifact) -> Key:
    return (artifact.digest, artifact.bytes) if artifact.digest else (path, artifact.offset)


def _priority(artifact: Artifact) -> int:
    if artifact.name in FIRST:
        return 0
    return 2 if artifact.name.startswith(LAST) else 1


def embedded(logs: Read, chosen: Embedding) -> Iterator[Markup]:
    """An element for each payload: gzip in base64, which cannot end the element."""
    written: set[int] = set()
    for log in (log for of_rank in logs.logs.values() for log in of_rank):
        path = log.source.path
        wanted = list(_first_of_each(path, log.artifacts, chosen, written))
        if not wanted:
            continue
        for artifact, payload in payloads_of(logs.sources[path], wanted, MOST_OF_ONE):
            packer = isal_zlib.compressobj(1, wbits=GZIP)
            text = base64.b64encode(packer.compress(payload) + packer.flush()).decode("ascii")
            number = chosen.number(path, artifact)
            yield Markup(f'<script type="text/plain" id="p{number}">{text}</script>\n')


def _first_of_each(
    path: str, artifacts: Iterable[Artifact], chosen: Embedding, written: set[int]
) -> Iterator[Artifact]:
    for artifact in artifacts:
        number = chosen.number(path, artifact)
        if number is not None and number not in written:
            written.add(number)
            yield artifact
