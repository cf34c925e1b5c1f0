"""What is true of a synthetic job: every link and every collective, in numbers that its files contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tracelink.samples.generate.job import Job
from tracelink.samples.generate.kept import Kept
from tracelink.samples.generate.recording import Recording
from tracelink.samples.generate.shared_truth import clock_truth, shared_truth


def truth(job: Job, recordings: Sequence[Recording]) -> dict[str, Any]:
    """The whole truth."""
    return {
        "job": asdict(job),
        "ranks": [rank_truth(job, recording) for recording in recordings],
        **shared_truth(job, recordings, Kept()),
    }


def rank_truth(job: Job, recording: Recording) -> dict[str, Any]:
    """The links of one rank."""
    return {
        **clock_truth(job, recording.rank),
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
