"""Writes what ranks recorded into files, one at a time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tracelink.samples.generate.execution_trace_text import execution_trace
from tracelink.samples.generate.flight_recorder import pickled
from tracelink.samples.generate.job import BASE_NS, Job
from tracelink.samples.generate.kept import EXECUTION_TRACE, KINETO, RECORDER, Kept
from tracelink.samples.generate.kineto_text import KinetoText
from tracelink.samples.generate.recorder_dump import recorder_dump
from tracelink.samples.generate.recording import Recording

Padding = Callable[[int], bytes]
"""More events for the profile of a rank, as text; their times count from the base of that profile."""


def rank_files(
    job: Job, recording: Recording, kept: Kept, padding: Padding | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """The files of one rank, uncompressed and in pieces."""
    rank = recording.rank
    if rank in kept.absent_ranks:
        return
    if KINETO in kept.sources:
        more = padding(rank) if padding else b""
        # Padding is the same text for all ranks, so that only its base tells of the rank's clock.
        base = BASE_NS + (job.clock(rank).offset_ns if padding else 0)
        yield f"kineto_{rank}.json", KinetoText(job, kept.of(recording, KINETO), base).pieces(more)
    if EXECUTION_TRACE in kept.sources:
        trace = execution_trace(job, kept.of(recording, EXECUTION_TRACE))
        yield f"et_{rank}.json", [json.dumps(trace).encode()]
    if RECORDER in kept.sources:
        dump = recorder_dump(job, kept.of(recording, RECORDER))
        yield f"dumps/comm_lib_trace_rank_{rank}", [pickled(dump)]


def write_files(
    job: Job,
    recordings: Sequence[Recording],
    folder: Path,
    kept: Kept,
    *,
    compressed: bool = False,
    padding: Padding | None = None,
) -> None:
    """Writes the files of all ranks; dumps are never compressed."""
    for recording in recordings:
        for name, pieces in rank_files(job, recording, kept, padding):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if compressed and file.parent == folder:
                packed = gzip.compress(b"".join(pieces), 9, mtime=0)
                file.with_name(f"{file.name}.gz").write_bytes(packed)
                continue
            with file.open("wb") as stream:
                stream.writelines(pieces)


def write_truth(folder: Path, facts: dict[str, Any], indent: int | None = 1) -> None:
    """Writes `truth.json` beside the files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "truth.json").write_text(json.dumps(facts, indent=indent) + "\n")
