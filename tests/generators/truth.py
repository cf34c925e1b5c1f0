"""What is true of a synthetic job: links, collectives, messages and clock offsets, by the ids in the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from generators.files import SOURCES, Kept
from generators.job import Cluster, Job
from generators.recording import Participation, Recording


def truth(job: Job, recordings: Sequence[Recording], kept: Kept) -> dict[str, Any]:
    """The whole truth; of a job on many hosts without the links within ranks, which are very many."""
    many = isinstance(job, Cluster)
    steps = range(1, job.steps + 1)
    shared = _Shared(job, recordings, kept)
    groups = {group.number: group for rank in range(job.ranks) for group in job.groups(rank)}
    return {
        "job": asdict(job),
        "ranks": [clock(job, one.rank) | ({} if many else links(one)) for one in recordings],
        **({"stragglers": [*map(job.straggler, steps)]} if isinstance(job, Cluster) else {}),
        "groups": [
            {"name": group.name, "description": group.description, "ranks": list(group.ranks)}
            for _, group in sorted(groups.items())
        ],
        "collectives": shared.collectives(),
        "messages": shared.messages(),
    }


def clock(job: Job, rank: int) -> dict[str, Any]:
    """Where the clock of a rank stands: at the true time `clock_reference_ns` it shows so much more."""
    own = {f"clock_{name}": value for name, value in asdict(job.clock(rank)).items()}
    return {"rank": rank, "host": job.host(rank), **own}


def links(recording: Recording) -> dict[str, Any]:
    """The links of one rank, and how many events with a duration there are, by category."""
    slices = Counter(operation.category for operation in recording.operations)
    slices.update(event.category for event in recording.gpu)
    slices.update(python_function=len(recording.frames), cuda_runtime=len(recording.calls))
    slices.update(overhead=1, Trace=1)
    return {
        "slices": dict(sorted(slices.items())),
        "launches": [
            {"correlation": one.correlation, "call": one.name, "external_id": one.external_id}
            | {"gpu_events": one.kernels}
            for one in recording.calls
            if one.kernels
        ],
        "backward_of": [
            {"forward": forward.external_id, "backward": backward.external_id}
            for forward, backward in recording.backward_of
        ],
        "same_et_kineto": [
            {"node": operation.node, "record_function": operation.record_function}
            for operation in recording.operations
        ],
        "same_recorder_kineto": [
            {"record": part.record, "external_id": part.external_id} for part in recording.participations
        ],
    }


class _Shared:
    """Collectives and messages with true times, and with what the clocks of the ranks showed."""

    def __init__(self, job: Job, recordings: Sequence[Recording], kept: Kept) -> None:
        self.job = job
        self.parts = [part for recording in recordings for part in recording.participations]
        self.shown = {
            source: {
                (part.rank, part.record) for recording in recordings for part in kept.shown(recording, source)
            }
            for source in SOURCES
        }

    def collectives(self) -> list[dict[str, Any]]:
        """Every collective with its members: the others wait for the last to start."""
        found: dict[tuple[int, int], list[Participation]] = {}
        for part in self.parts:
            if not part.point_to_point:
                found.setdefault((part.group.number, part.sequence), []).append(part)
        return [self.collective(members) for _, members in sorted(found.items())]

    def collective(self, members: Sequence[Participation]) -> dict[str, Any]:
        first, last = members[0], max(members, key=lambda part: part.started)
        start = min(part.started for part in members)
        return {
            "group": first.group.name,
            "ranks": list(first.group.ranks),
            "operation": first.operation,
            "sequence": first.sequence,
            "start_ns": start,
            "end_ns": max(part.finished for part in members),
            "last_rank": last.rank,
            "skew_ns": last.started - start,
            "members": [self.member(part) for part in members],
        }

    def messages(self) -> list[dict[str, Any]]:
        """Every message with both its ends."""
        found: dict[tuple[Any, ...], dict[str, Participation]] = {}
        for part in self.parts:
            if part.peers is not None:
                key = (part.group.number, part.peers, part.message)
                found.setdefault(key, {})[part.operation.split()[0]] = part
        return [self.message(found[key]["send"], found[key]["recv"]) for key in sorted(found)]

    def message(self, send: Participation, receive: Participation) -> dict[str, Any]:
        assert send.peers
        return {
            "group": send.group.name,
            "source": send.peers[0],
            "target": send.peers[1],
            "order": send.message,
            "shape": list(send.shapes[0]),
            "batched": send.batched,
            "sent_ns": send.started,
            "received_ns": receive.finished,
            "send": self.member(send),
            "receive": self.member(receive),
        }

    def member(self, part: Participation) -> dict[str, Any]:
        """One rank's part: true times, what its clock showed, and the names of its events."""
        clock = self.job.clock(part.rank)
        times = {name: getattr(part, name) for name in ("enqueued", "started", "finished")}
        names = ("kernel", "correlation", "record", "record_function", "external_id")
        return {
            "rank": part.rank,
            "sequence": part.sequence,
            **{f"{name}_ns": time for name, time in times.items()},
            "shown_ns": [clock.shown(time) for time in times.values()],
            **{name: getattr(part, name) for name in names},
            "sources": [source for source in SOURCES if (part.rank, part.record) in self.shown[source]],
        }
