"""The critical path as a track of each rank, in both formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracelink
from builders.job import JobBuilder
from tracelink._model.graph import EventGraph

US = 1000
DAY_US = 86_400_000_000


def late_pair() -> EventGraph:
    """Rank 1 comes late to a collective, after which rank 0 works on."""
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 4)
    first = job.work("ncclAllReduce", 3, 120, launched=2)
    job.work("relu", 121, 140, launched=3)
    job.op("aten::slow", 0, 104, rank=1)
    second = job.work("ncclAllReduce", 104, 120, rank=1, launched=102)
    job.together(job.group(0, 1), first, second)
    return job.build()


SEGMENTS = [
    (1, "host: aten::slow", 0, 102),
    (1, "launch: ncclAllReduce", 102, 2),
    (0, "communication: ncclAllReduce", 104, 16),
    (0, "queue: relu", 120, 1),
    (0, "compute: relu", 121, 19),
]


def written(graph: EventGraph, output: Path) -> Path:
    tracelink.merge(graph, output, options={"critical_path": "yes"})
    return output


def elements(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def tracks(events: list[dict[str, Any]]) -> set[tuple[int, str]]:
    """Process and name of each thread, without what tells lanes apart."""
    named = [event for event in events if event.get("name") == "thread_name"]
    return {(event["pid"], event["args"]["name"].partition(" · row")[0]) for event in named}


def test_json_has_a_track_of_each_rank_and_arrows_between_ranks(tmp_path: Path) -> None:
    events = elements(written(late_pair(), tmp_path / "job.json"))
    slices = [event for event in events if event.get("cat") == "critical path"]
    first = min(event["ts"] for event in slices)
    drawn = [(event["pid"], event["name"], round(event["ts"] - first), event["dur"]) for event in slices]
    assert sorted(drawn, key=lambda one: one[2]) == SEGMENTS
    names = {(pid, name) for pid, name in tracks(events) if "critical path" in name}
    assert names == {(0, "rank 0 critical path"), (1, "rank 1 critical path")}
    waits = [event for event in events if event.get("cat") == "waits" and event["ph"] == "f"]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    between = {(starts[event["id"]]["pid"], event["pid"]) for event in waits}
    assert between == {(1, 0)}


def test_native_traces_have_it_too(tmp_path: Path) -> None:
    graph = tracelink.load(written(late_pair(), tmp_path / "job.pftrace"))
    mine = np.array([track.identity.startswith("critical path") for track in graph.tracks])
    rows = np.flatnonzero(mine[graph.events.track])
    rows = rows[np.argsort(graph.events.start[rows])]
    first = int(graph.events.start[rows[0]])
    assert [
        (
            graph.tracks[graph.events.track[row]].rank,
            graph.name(row),
            (int(graph.events.start[row]) - first) // US,
            int(graph.events.duration[row]) // US,
        )
        for row in rows.tolist()
    ] == SEGMENTS


@pytest.mark.parametrize("output", ["job.json", "job.pftrace"])
def test_a_job_without_profiles_has_none_and_a_finding(tmp_path: Path, output: str) -> None:
    merged = tracelink.merge("samples/hung_job", output=tmp_path / output, options={"critical_path": "yes"})
    assert [found.message for found in merged.outputs[0].findings if found.reason == "no_critical_path"] == [
        "No critical path is drawn. No rank has a profile with times."
    ]


def test_ranks_of_two_jobs_have_none_and_a_finding(tmp_path: Path) -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 4)
    job.op("aten::mm", 100 * DAY_US, 100 * DAY_US + 4, rank=1)
    (output,) = tracelink.merge(job.build(), tmp_path / "job.json", options={"critical_path": "yes"}).outputs
    found = output.findings
    (message,) = [each.message for each in found if each.reason == "no_critical_path"]
    assert message.startswith("No critical path is drawn. Rank 0 and rank 1 were recorded 100 days apart (")


def test_it_is_as_long_as_the_steps_of_a_sample(tmp_path: Path) -> None:
    path = tracelink.summary("samples/gpu_pair").critical_path
    tracelink.merge("samples/gpu_pair", output=tmp_path / "job.json", options={"critical_path": "yes"})
    slices = [event for event in elements(tmp_path / "job.json") if event.get("cat") == "critical path"]
    assert path is not None
    assert round(sum(event["dur"] for event in slices) * US) == path.length_ns


def test_a_timeline_with_a_path_is_drawn_again_with_another_one(tmp_path: Path) -> None:
    options = {"critical_path": "yes"}
    tracelink.merge("samples/gpu_pair", output=tmp_path / "first.pftrace", options=options)
    tracelink.merge(tmp_path / "first.pftrace", output=tmp_path / "second.json", options=options)
    names = {name for _, name in tracks(elements(tmp_path / "second.json")) if "critical path" in name}
    assert {"rank 0 critical path", "rank 1 critical path", "rank 1 critical path 2"} <= names
