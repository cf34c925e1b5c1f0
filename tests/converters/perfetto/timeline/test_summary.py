"""What each rank does at a glance: steps and waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import perfetto, perfetto_native
from builders.job import START, JobBuilder
from builders.perfetto import nanoseconds
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.timeline.hangs import Hangs
from tracelink.converters.perfetto.timeline.schema import SUMMARY_CATEGORY
from tracelink.converters.perfetto.timeline.summary import ALL_RANKS, AllWaits, with_summary

Shown = list[tuple[str, int, int]]
"""Name, start and end."""


def job_of(
    *collectives: dict[int, tuple[int, int]], steps: tuple[tuple[str, int, int], ...] = ()
) -> JobBuilder:
    """Ranks that enter and leave collectives at these times; rank 0 also has steps."""
    built = JobBuilder()
    group = built.group(0, 1, description="dp")
    tracks = {rank: built.track(rank=rank) for rank in (0, 1)}
    for name, start, end in steps:
        length = UNKNOWN if end == UNKNOWN else end - start
        built.add(tracks[0], name, start, length, EventKind.ANNOTATION)
    rows = [
        (number, rank, built.add(tracks[rank], "nccl", start, end - start))
        for rank in tracks
        for number, times in enumerate(collectives)
        for start, end in (times[rank],)
    ]
    for number in range(len(collectives)):
        built.together(group, *(row for of, _, row in rows if of == number), as_what="operator")
    return built


def summary(graph: EventGraph, rank: int = 0) -> Shown:
    job = LinkedJob.of(graph)
    waits = AllWaits.of(job, Hangs.of(job))
    (part,) = (part for part in job.parts if part.rank == rank)
    before = part.load()
    after, hung = with_summary(before, waits)
    assert not hung
    events = after.events
    return [
        (after.name(row), int(events.start[row]) - START, int(events.end[row]) - START)
        for row in range(len(before), len(after))
    ]


def test_steps_and_the_waits_within_them() -> None:
    built = job_of(
        {0: (10, 60), 1: (40, 60)}, {0: (130, 160), 1: (110, 160)}, steps=(("ProfilerStep#7", 0, 100),)
    )
    assert summary(built.build()) == [("step 7", 0, 100), ("waits for rank 1: all_reduce", 10, 40)]
    assert summary(built.build(), 1) == [("waits for rank 0: all_reduce", 110, 130)]


def test_a_wait_that_goes_on_in_the_next_step_is_cut() -> None:
    steps = (("ProfilerStep#1", 0, 50), ("ProfilerStep#2", 60, 100))
    assert summary(job_of({0: (40, 90), 1: (80, 90)}, steps=steps).build())[2:] == [
        ("waits for rank 1: all_reduce", 40, 50),
        ("waits for rank 1: all_reduce", 50, 60),
        ("waits for rank 1: all_reduce", 60, 80),
    ]


def test_of_waits_at_the_same_time_the_first_is_shown() -> None:
    built = job_of({0: (10, 90), 1: (50, 90)}, {0: (20, 95), 1: (70, 95)}, {0: (50, 99), 1: (60, 99)})
    assert [(start, end) for _, start, end in summary(built.build())] == [(10, 50), (50, 60)]


def test_a_step_that_does_not_end_lasts_to_the_end_of_the_rank() -> None:
    built = job_of({0: (10, 90), 1: (10, 90)}, steps=(("step 3", 5, UNKNOWN),))
    assert summary(built.build()) == [("step 3", 5, 90)]


def test_equal_steps_of_two_threads_are_shown_once() -> None:
    built = job_of({0: (10, 90), 1: (10, 90)}, steps=(("step 3", 5, 95), ("step 3", 6, 96)))
    assert summary(built.build()) == [("step 3", 5, 95)]


@pytest.mark.parametrize(
    ("wait", "uncertainty", "shown"), [(9, 0, False), (11, 0, True), (50, 50, False), (51, 50, True)]
)
def test_waits_are_worth_a_pixel_and_longer_than_the_clocks_are_uncertain(
    wait: int, uncertainty: int, shown: bool
) -> None:
    graph = job_of({0: (0, 20_000), 1: (wait, 20_000)}).build()
    ranks = [replace(rank, clock_uncertainty_ns=uncertainty * rank.rank) for rank in graph.ranks]
    assert bool(summary(replace(graph, ranks=ranks))) == shown


def test_the_first_wait_of_each_collective_is_that_of_any_rank() -> None:
    graph = job_of({0: (10, 60), 1: (40, 60)}, {0: (130, 160), 1: (110, 160)}).build()
    job = LinkedJob.of(graph)
    waits = AllWaits.of(job, Hangs.of(job))
    mine = waits.of_rank(ALL_RANKS)
    assert [(start - START, end - START) for start, end in zip(mine.start, mine.end, strict=True)] == [
        (10, 40),
        (110, 130),
    ]


TIMES = st.integers(0, 200)
STEPS = st.lists(st.tuples(TIMES, st.integers(0, 80)), max_size=5)
WAITS = st.lists(st.tuples(TIMES, st.integers(0, 60)), max_size=8)


@given(STEPS, WAITS)
def test_slices_are_nested_or_disjoint(steps: list[tuple[int, int]], waits: list[tuple[int, int]]) -> None:
    collectives = [{0: (start, 300), 1: (start + wait, 300)} for start, wait in waits]
    named = tuple((f"step {number}", start, start + length) for number, (start, length) in enumerate(steps))
    shown = [(start, end) for _, start, end in summary(job_of(*collectives, steps=named).build())]
    for start, end in shown:
        for begin, until in shown:
            assert not start < begin < end < until


def test_a_timeline_of_one_rank_has_it_only_in_the_native_tree() -> None:
    """As JSON it is also a profile for other tools."""
    built = JobBuilder()
    built.add(built.track(), "ProfilerStep#1", 0, 100, EventKind.ANNOTATION)
    assert [event["cat"] for event in perfetto.write(built.build()).slices()] == ["user_annotation"]
    native = perfetto_native.write(built.build())
    assert [
        (native.tracks[one.track].name, one.name) for one in native.slices if one.category == SUMMARY_CATEGORY
    ] == [("rank 0", "step 1")]


def test_both_formats_have_the_same_summaries() -> None:
    steps = (("ProfilerStep#1", 0, 50), ("ProfilerStep#2", 60, 100))
    job = LinkedJob.of(job_of({0: (40, 90), 1: (80, 90)}, steps=steps).build())
    written, native = perfetto.write(job), perfetto_native.write(job)
    base = written.document["baseTimeNanoseconds"]
    in_json = [
        (event["name"], base + nanoseconds(event["ts"]), base + nanoseconds(event["ts"] + event["dur"]))
        for event in written.slices()
        if event["cat"] == SUMMARY_CATEGORY
    ]
    assert sorted(in_json) == sorted(
        (one.name, one.start, one.end) for one in native.slices if one.category == SUMMARY_CATEGORY
    )
    assert len(in_json) == 6


def test_events_of_the_summary_are_not_counted() -> None:
    job = LinkedJob.of(job_of({0: (40, 90), 1: (80, 90)}).build())
    (output,) = perfetto_output(job)
    assert output == 2


def perfetto_output(job: LinkedJob) -> list[int]:
    import io

    from tracelink._io.targets import StreamTarget
    from tracelink._run.processes import Processes
    from tracelink.converters.perfetto.native_writer import PerfettoWriter

    return [output.events for output in PerfettoWriter().write(job, StreamTarget(io.BytesIO()), Processes(1))]
