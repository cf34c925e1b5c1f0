"""What is left of a job on disk: whose files, of which formats, and which communications are missing in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracelink.samples.generate.recording import Participation, Recording

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
    return replace(
        recording,
        operations=[one for one in recording.operations if one.external_id not in operations],
        calls=[one for one in recording.calls if one.correlation not in calls],
        gpu=[
            one
            for one in recording.gpu
            if one.args.get("correlation") not in calls
            and not (one.category == "gpu_user_annotation" and one.args["External id"] in operations)
        ],
        participations=[part for part in recording.participations if part.record not in records],
    )
