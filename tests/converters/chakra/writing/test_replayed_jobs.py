"""Jobs whose groups overlap: what the writer reports of the variant `full` is what `validate` finds in the files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.job import JobBuilder
from generators.jobs import write_cluster
from tracelink._api.functions import merge
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.findings import Finding
from tracelink._model.graph import EventGraph
from tracelink.converters.chakra.validation import Validation, validate
from tracelink.plugins import Output

US = 1000
REPLAYED = ("deadlock", "race")

Program = Sequence[tuple[int, int, int]]
"""Group, start and duration (both in µs) of each collective of a rank, in the order of its streams' numbers."""


def overlapping(*programs: Program, computation: Sequence[Sequence[int]] = ()) -> EventGraph:
    """Ranks whose groups have a stream each; `computation` are the starts of kernels before collectives of a stream."""
    builder = JobBuilder()
    rows: dict[int, list[int]] = {}
    for rank, program in enumerate(programs):
        streams = {
            group: builder.track(TrackKind.STREAM, rank, "0", str(20 + group))
            for group in sorted({group for group, *_ in program})
        }
        for number, (group, start, duration) in enumerate(program):
            for before in computation[rank] if rank < len(computation) and not number else ():
                builder.add(streams[group], "gemm", before * US, 5 * US, EventKind.KERNEL)
            row = builder.add(streams[group], f"nccl {number}", start * US, duration * US, EventKind.KERNEL)
            rows.setdefault(number, []).append(row)
    everyone = tuple(range(len(programs)))
    groups = {group: builder.group(*everyone, name=str(1 + group)) for group in (0, 1)}
    for number, members in rows.items():
        builder.together(groups[programs[0][number][0]], *members)
    for part in builder.participations:
        part |= {"bytes_in": 4096, "bytes_out": 4096}
    return builder.build()


def written(graph: EventGraph, folder: Path, variant: str = "full") -> tuple[list[Finding], Validation]:
    outputs = merge(graph, folder / "job", to="chakra", options={"variant": variant}).outputs
    return replayed(outputs), validate(folder, variant="full")


def replayed(outputs: Sequence[Output]) -> list[Finding]:
    return [finding for output in outputs for finding in output.findings if finding.reason in REPLAYED]


def rules(validation: Validation) -> dict[str, int]:
    counts = {**validation.counts, **validation.warning_counts}
    return {rule.value: count for rule, count in counts.items() if rule.value in REPLAYED}


CROSSED = overlapping([(0, 100, 50), (1, 101, 50)], [(0, 101, 50), (1, 100, 50)])
"""Two groups start at almost the same time, in another order on each rank."""


def test_groups_that_start_at_once_deadlock_one_at_a_time(tmp_path: Path) -> None:
    (finding,), validation = written(CROSSED, tmp_path)
    assert (finding.reason, finding.count, finding.source) == ("deadlock", 1, str(tmp_path / "job.0.et"))
    assert finding.message == (
        "ranks deadlock in simulators that run one communication op of a rank at a time, such as ASTRA-sim: "
        "ranks 0 and 1 wait for each other: "
        "rank 0 is in node 1 (ALL_REDUCE of 4,096 bytes in group 1), which needs node 2 of rank 1; "
        "rank 1 is in node 1 (ALL_REDUCE of 4,096 bytes in group 2), which needs node 2 of rank 0; "
        "4 communication ops of ranks 0-1 never complete. "
        "For simulators write --variant astra-sim, in which all ranks communicate in one order."
    )
    assert rules(validation) == {"deadlock": 1}


def test_for_astra_sim_they_are_in_one_order(tmp_path: Path) -> None:
    findings, validation = written(CROSSED, tmp_path, "astra-sim")
    assert (findings, validation.valid, rules(validation)) == ([], True, {})


def test_an_order_that_depends_on_computation_is_a_race(tmp_path: Path) -> None:
    graph = overlapping([(0, 100, 50), (1, 101, 50)], [(0, 100, 50), (1, 101, 50)], computation=[[], [10]])
    (finding,), validation = written(graph, tmp_path)
    assert (finding.reason, finding.count) == ("race", 1)
    assert finding.message.startswith(
        "ranks deadlock in simulators such as ASTRA-sim if durations change the order of two communication ops: node "
    )
    assert rules(validation) == {"race": 1}


def test_tensor_data_and_pipeline_parallel_ranks(tmp_path: Path) -> None:
    write_cluster(
        tmp_path / "in", ranks=8, steps=1, layers=2, tensor_parallel=2, stages=2, stream_per_group=True
    )
    merged = merge(tmp_path / "in", output=tmp_path / "et" / "job", to="chakra")
    validation = validate(tmp_path / "et", variant="full")
    assert (replayed(merged.outputs), validation.valid, rules(validation)) == ([], True, {})


def starts(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 40), min_size=count, max_size=count)


@given(st.data(), st.integers(2, 3), st.lists(st.sampled_from([0, 1]), min_size=2, max_size=4))
@settings(max_examples=30, deadline=None)
def test_the_writer_and_validate_agree(data: st.DataObject, ranks: int, groups: list[int]) -> None:
    programs = [
        [(group, start, 5) for group, start in zip(groups, data.draw(starts(len(groups))), strict=True)]
        for _ in range(ranks)
    ]
    computation = [data.draw(st.lists(st.integers(0, 20), max_size=2)) for _ in range(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        findings, validation = written(overlapping(*programs, computation=computation), Path(folder))
    assert {finding.reason: finding.count for finding in findings} == rules(validation)
