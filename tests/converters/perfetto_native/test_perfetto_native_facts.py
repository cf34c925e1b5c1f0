"""What a native trace says to readers of tracelink's own, in packets that viewers pass over."""

from __future__ import annotations

import json

from builders import perfetto
from builders.graph import START, GraphBuilder
from builders.perfetto_native import write
from tracelink.model.events import EventKind, Relation, TrackKind
from tracelink.model.job import Job


def launched() -> GraphBuilder:
    built = GraphBuilder()
    built.group(0, 1, description="dp")
    for rank in (0, 1):
        thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank, "0", "7")
        launch = built.add(thread, "launch", 0, 5, EventKind.RUNTIME)
        outer = built.add(thread, "outer", 0, 9)
        kernel = built.add(stream, "kernel", 10, 8, EventKind.KERNEL)
        built.edge(launch, Relation.LAUNCHES, kernel)
        built.edge(launch, Relation.SAME, outer)
        built.sample(built.track(TrackKind.COUNTER, rank, "0", "memory"), 5, 2.0)
    return built


def test_the_header_of_the_json_stands_before_everything() -> None:
    job = Job.of(launched().build())
    native, document = write(job), perfetto.write(job).document
    del document["traceEvents"]
    assert native.packets[0].HasField("tracelink")
    assert native.facts[0] == json.loads(json.dumps(document))
    assert native.facts[0]["baseTimeNanoseconds"] == START


def test_a_rank_says_what_its_tracks_and_arrows_are() -> None:
    """An arrow that leads from the event that is met second is told apart from the others of its relation."""
    assert write(launched().build()).facts[1] == {
        "rank": 0,
        "processes": [[1, "rank 0 (100)", "CPU", "100"], [2, "rank 0 · GPU 0", "GPU 0", "0"]],
        "threads": [[1, 3, "rank 0 thread 101", "101"], [2, 4, "rank 0 stream 7 · compute", "7"]],
        "counters": [[5, 2, "memory"], [6, 2, "rank 0 outstanding kernels, stream 7"]],
        "first arrow": 1,
        "arrows": [["ac2g", 1, 0], ["same", 1, 1]],
    }
