"""Collectives that hang, in timelines of recorded jobs and of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import tracelink
from builders import perfetto, perfetto_native
from builders.data import HANGS, HEALTHY, foreign, shared, traces
from builders.perfetto import Written, nanoseconds
from tracelink import samples
from tracelink._model.graph import EventGraph
from tracelink.converters.perfetto.packets.schema import RED

Named = dict[tuple[str, int], str]
"""For each collective that hangs, by its track and number, its name."""

CAUSE = " (cause)"
"""At the end of the name of the track of a collective because of which all others hang; several in a deadlock."""
WORLD = "group default_pg [0, 1, 2, 3, 4, 5, 6, 7] · HUNG"


def pairs(number: int, size: str, missing: Sequence[int]) -> Named:
    """Of each of these ranks, the other one of its pair waits for it."""
    firsts = {rank - rank % 2: rank for rank in missing}
    return {
        (
            f"group mesh_tp [{first}, {first + 1}] · HUNG",
            number,
        ): f"HUNG all_reduce {size}: rank {rank} missing"
        for first, rank in firsts.items()
    }


EVEN, ODD = "group mesh_dp [0, 2, 4, 6] · HUNG", "group mesh_dp [1, 3, 5, 7] · HUNG"
NEVER_JOINED = {
    (WORLD, 7): "HUNG all_reduce 2 B: rank 3 missing",
    (ODD, 21): "HUNG all_reduce 8 B: rank 3 missing",
    **pairs(15, "8 B", (1, 3, 7)),
}
FAULTY: Mapping[str, Named] = {
    "never_joined": {**NEVER_JOINED, **pairs(15, "8 B", (5,))},
    "skipped": {(ODD, 14): "HUNG all_reduce 8 B: rank 5 missing", **pairs(10, "8 B", (1, 3, 5, 7))},
    "operation_mismatch": {(EVEN, 8): "HUNG all_gather 16.4 kB", **pairs(6, "8.2 kB", (0, 2, 4, 6))},
    "dtype_mismatch": {},
    "deadlock": {(WORLD, 5): "HUNG all_reduce 4 B: rank 7 missing", **pairs(10, "8 B", (6,))},
}
GENERATED: Mapping[str, Named] = {
    **{case: {} for case in HEALTHY},
    **{case: FAULTY[case.split("/")[1]] for case in HANGS},
    "gloo/never_joined/missing_other": NEVER_JOINED,
}

SAMPLES: Mapping[str, Named] = {
    "compile_job": {},
    "cpu_job": {},
    "gpu_metrics": {},
    "gpu_pair": {},
    "hung_job": {
        ("group mesh_dp [1, 3, 5, 7] · HUNG", 21): "HUNG all_reduce 8 B: rank 3 missing",
        ("group mesh_tp [0, 1] · HUNG", 15): "HUNG all_reduce 8 B",
        ("group mesh_tp [2, 3] · HUNG", 15): "HUNG all_reduce 8 B: rank 3 missing",
        ("group mesh_tp [4, 5] · HUNG", 15): "HUNG all_reduce 8 B",
        ("group mesh_tp [6, 7] · HUNG", 15): "HUNG all_reduce 8 B",
        (WORLD, 8): "HUNG all_reduce 4 B: rank 3 missing",
    },
    "run_after": {},
    "run_before": {},
}
"""In `hung_job` rank 3 never joins mesh_dp 21; all others wait for it, or in what they asked for after that."""


@pytest.mark.parametrize(("case", "expected"), GENERATED.items())
def test_of_dumps(case: str, expected: Named) -> None:
    assert_hung(traces(case), expected)


@pytest.mark.parametrize("name", samples.names())
def test_of_samples(name: str) -> None:
    assert_hung(samples.path(name), SAMPLES[name])


@pytest.mark.foreign
def test_nothing_hangs_in_a_job_with_profiles() -> None:
    assert_hung(shared("matched8"), {})


PROFILES = ("nccl_data", "cuda_graphs", "mi300_resnet", "resnet50_2021")


@pytest.mark.parametrize(
    "path", ["gpu_pair/kineto_0.json.gz", *foreign(*(f"kineto/{name}.json.gz" for name in PROFILES))]
)
def test_nothing_hangs_in_a_profile_alone(path: str) -> None:
    assert_hung(traces(path), {})


def assert_hung(inputs: Path, expected: Named) -> None:
    """In both formats, to the end of the trace, with the entries of all who wait."""
    graph = tracelink.load(inputs)
    written = perfetto.write(graph)
    threads = written.threads()
    red = [event for event in written.slices() if event["name"].startswith("HUNG ")]
    assert red == [event for event in written.slices() if "cname" in event]
    collectives = {
        (threads[event["pid"], event["tid"]], event["args"]["sequence"]): event["name"]
        for event in red
        if event["cat"] == "collective"
    }
    assert {
        (track.removesuffix(CAUSE), number): name for (track, number), name in collectives.items()
    } == expected
    assert any(track.endswith(CAUSE) for track, _ in collectives) == bool(expected)
    summaries = sum(event["cat"] == "summary" for event in red)
    assert len(red) - summaries == len(expected) + waiting(graph, expected)
    assert {nanoseconds(event["ts"]) + nanoseconds(event["dur"]) for event in red} == (
        {end_of(written)} if expected else set()
    )
    native = perfetto_native.write(graph)
    base = written.document["baseTimeNanoseconds"]
    assert sorted(
        (one.name, one.start - base, (one.end or 0) - base) for one in native.slices if one.colour
    ) == sorted(
        (event["name"], nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"]))
        for event in red
    )
    assert {one.colour for one in native.slices} <= {0, RED}


def waiting(graph: EventGraph, hung: Named) -> int:
    """How many entries of recorders stand for ranks in these collectives."""
    whole = graph.collectives
    rows = [
        row
        for row, (group, number) in enumerate(zip(whole.group.tolist(), whole.sequence.tolist(), strict=True))
        if any(str(list(graph.groups[group].ranks)) in track and number == which for track, which in hung)
    ]
    return int(np.isin(graph.participations.collective, rows).sum())


def end_of(written: Written) -> int:
    return max(nanoseconds(event["ts"]) + nanoseconds(event.get("dur", 0)) for event in written.slices())
