"""What is true of a synthetic job: every link and every collective, in numbers that its files contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tracelink.samples.generate.job import Job
from tracelink.samples.generate.recording import Participation, Recording


def truth(job: Job, recordings: Sequence[Recording]) -> dict[str, Any]:
    """The whole truth."""
    return {
        "job": asdict(job),
        "ranks": [rank_truth(job, recording) for recording in recordings],
        "collectives": collectives(recordings),
    }


def rank_truth(job: Job, recording: Recording) -> dict[str, Any]:
    """The links of one rank."""
    return {
        "rank": recording.rank,
        "clock_offset_ns": job.clock(recording.rank).offset_ns,
        "slices": slices(recording),
        "launches": [
            {
                "correlation": call.correlation,
                "call": call.name,
                "external_id": call.external_id,
                "gpu_events": call.kernels,
            }
            for call in recording.calls
            if call.kernels
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


def slices(recording: Recording) -> dict[str, int]:
    """How many events with a duration there are, by category."""
    counts = Counter(operation.category for operation in recording.operations)
    counts.update(event.category for event in recording.gpu)
    counts.update(python_function=len(recording.frames), cuda_runtime=len(recording.calls))
    counts.update(overhead=1, Trace=1)
    return dict(sorted(counts.items()))


def collectives(recordings: Sequence[Recording]) -> list[dict[str, Any]]:
    """Every communication with its members, in true time: the others wait for the last to start."""
    found: dict[tuple[str, bool, str, int], list[Participation]] = {}
    for recording in recordings:
        for part in recording.participations:
            # Both ends of a send name the same two ranks: "send 0->1" and "recv 1<-0".
            ends = " ".join(sorted(part.operation.replace("->", " ").replace("<-", " ").split()[1:]))
            key = (part.group.name, part.point_to_point, ends, part.sequence)
            found.setdefault(key, []).append(part)
    return [collective(members) for _, members in sorted(found.items())]


def collective(members: Sequence[Participation]) -> dict[str, Any]:
    """One communication."""
    first = members[0]
    return {
        "group": first.group.name,
        "ranks": list(first.group.ranks),
        "operation": "send_recv" if first.point_to_point else first.operation,
        "sequence": first.sequence,
        "point_to_point": first.point_to_point,
        "last_rank": max(members, key=lambda part: part.started).rank,
        "members": [
            {
                "rank": part.rank,
                "enqueued_ns": part.enqueued,
                "started_ns": part.started,
                "finished_ns": part.finished,
                "correlation": part.correlation,
                "record": part.record,
                "record_function": part.record_function,
            }
            for part in members
        ],
    }
