"""Which files of a job are written, and how."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builders.recorder import pickled
from generators.execution_trace import execution_trace
from generators.flight_recorder import recorder_dump
from generators.job import BASE_NS, Job
from generators.kineto import KinetoText
from generators.recording import Event, Participation, Recording

# Which files exist, in which formats, and which communications are missing in them.


KINETO, EXECUTION_TRACE, RECORDER = "kineto", "execution_trace", "flight_recorder"
SOURCES = (KINETO, EXECUTION_TRACE, RECORDER)


@dataclass(frozen=True, slots=True)
class Missing:
    """Communications that files of a rank do not show: those at places `start:stop`, as a slice counts."""

    rank: int
    start: int | None = None
    stop: int | None = None
    group: str | None = None
    """The name of the group whose communications are counted; None counts those of all."""
    sources: Sequence[str] = SOURCES


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of a job."""

    sources: Sequence[str] = SOURCES
    absent_ranks: Sequence[int] = ()
    """Ranks without any file."""
    missing: Sequence[Missing] = ()
    recorder_entries: int | None = None
    """How many entries a recorder's ring buffer holds."""

    def of(self, recording: Recording, source: str) -> Recording:
        """The recording as far as files of one format show it."""
        shown = self.shown(recording, source)
        if len(shown) == len(recording.participations):
            return recording
        records = {part.record for part in shown}
        return _without([part for part in recording.participations if part.record not in records], recording)

    def shown(self, recording: Recording, source: str) -> list[Participation]:
        """The communications that a file of one format shows."""
        if source not in self.sources or recording.rank in self.absent_ranks:
            return []
        parts = recording.participations
        gone = {
            part.record
            for missing in self.missing
            if missing.rank == recording.rank and source in missing.sources
            for part in _of_group(parts, missing.group)[missing.start : missing.stop]
        }
        shown = [part for part in parts if part.record not in gone]
        if source == RECORDER and self.recorder_entries is not None:
            return shown[max(len(shown) - self.recorder_entries, 0) :]
        return shown


def _of_group(parts: Sequence[Participation], group: str | None) -> list[Participation]:
    return [part for part in parts if group is None or part.group.name == group]


def _without(gone: Sequence[Participation], recording: Recording) -> Recording:
    operations = {number for part in gone for number in part.footprint.operations}
    calls = {number for part in gone for number in part.footprint.calls}
    records = {part.record for part in gone}

    def leaves(event: Event) -> bool:
        noted = event.category == "gpu_user_annotation" and event.args["External id"] in operations
        return not noted and event.args.get("correlation") not in calls

    return replace(
        recording,
        operations=[one for one in recording.operations if one.external_id not in operations],
        calls=[one for one in recording.calls if one.correlation not in calls],
        gpu=[*filter(leaves, recording.gpu)],
        participations=[part for part in recording.participations if part.record not in records],
    )


# Writing the files, one rank at a time.


Padding = Callable[[int], bytes]
"""More events for the profile of a rank, as text; their times count from the base of that profile."""


def rank_files(
    job: Job, recording: Recording, kept: Kept, padding: Padding | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """The files of one rank, uncompressed and in pieces."""
    rank = recording.rank
    seen = {source: kept.of(recording, source) for source in kept.sources if rank not in kept.absent_ranks}
    if KINETO in seen:
        # Padding is the same text for all ranks, so that only its base tells of the rank's clock.
        more, base = (padding(rank), BASE_NS + job.clock(rank).offset_ns) if padding else (b"", BASE_NS)
        yield f"kineto_{rank}.json", KinetoText(job, seen[KINETO], base).pieces(more)
    if EXECUTION_TRACE in seen:
        yield f"et_{rank}.json", [execution_trace(job, seen[EXECUTION_TRACE])]
    if RECORDER in seen:
        yield f"dumps/comm_lib_trace_rank_{rank}", [pickled(recorder_dump(job, seen[RECORDER]))]


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
