"""Who entered each collective last stands as an instant within it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from builders import perfetto, perfetto_native
from builders.graph import START
from builders.job import JobBuilder
from builders.perfetto import nanoseconds
from builders.told import job_told
from tracelink.converters.perfetto.timeline.derived import Arrivals, arrivals_of
from tracelink.model.columns import UNKNOWN
from tracelink.model.job import Job


def entered(*times: int) -> JobBuilder:
    """A job with one collective that the ranks entered at these times."""
    built = JobBuilder()
    group = built.group("0", range(len(times)), "dp")
    built.collective(group, {rank: (time, 100) for rank, time in enumerate(times)})
    return built


def arrivals(job: Job, end: int = 100, *, awaited: bool = False) -> list[tuple[int, int, int, int]]:
    """Place, time, rank and skew."""
    whole = job.collectives
    found = arrivals_of(
        job,
        np.arange(len(whole)),
        whole.start,
        np.full(len(whole), START + end),
        np.full(len(whole), awaited),
    )
    return [
        (place, time - START, rank, skew)
        for place, time, rank, skew in zip(
            *(column.tolist() for column in (found.place, found.time, found.rank, found.skew)), strict=True
        )
    ]


def test_the_last_is_who_entered_last_and_when() -> None:
    assert arrivals(entered(10, 40, 20).build()) == [(0, 40, 1, 30)]


def test_of_ranks_that_enter_at_once_none_is_the_last() -> None:
    assert arrivals(entered(10, 10).build()) == []


def test_while_somebody_is_awaited_nobody_is_the_last() -> None:
    assert arrivals(entered(10, 40).build(), awaited=True) == []


@pytest.mark.parametrize("unknown", ["skew", "last_rank"])
def test_of_whom_nothing_is_known_nothing_is_said(unknown: str) -> None:
    built = entered(10, 40)
    built.collectives[0][unknown] = UNKNOWN
    assert arrivals(built.build()) == []


@pytest.mark.parametrize(("end", "found"), [(41, [(0, 40, 1, 30)]), (40, [(0, 39, 1, 30)]), (10, [])])
def test_an_arrival_lies_within_its_slice(end: int, found: list[tuple[int, int, int, int]]) -> None:
    assert arrivals(entered(10, 40).build(), end) == found


def test_those_of_some_collectives_are_found_by_their_places() -> None:
    places, others = np.array([0, 2, 3, 7]), np.arange(4)
    some = Arrivals(places, others, others, others).within(2, 7)
    assert (some.place.tolist(), some.rank.tolist(), len(some)) == ([2, 3], [1, 2], 2)


def test_both_formats_have_the_same_instants_on_the_tracks_of_groups(tmp_path: Path) -> None:
    job = job_told(tmp_path, {0: "a1 b1 a2", 1: "b1 a1 a2"}, a=[0, 1], b=[0, 1])
    written, native, first = perfetto.write(job), perfetto_native.write(job), job.first_ns or 0
    instants = [event for event in written.events("i") if event["cat"] == "arrival"]
    assert [(written.threads()[event["tid"]], event["name"], event["args"]) for event in instants] == [
        ("group a [0, 1]", "rank 1 last", {"rank": 1, "skew_us": Decimal(1000)}),
        ("group b [0, 1]", "rank 0 last", {"rank": 0, "skew_us": Decimal(1000)}),
    ]
    base = written.document["baseTimeNanoseconds"]
    assert {base + nanoseconds(event["ts"]) - first for event in instants} == {1_000_000}
    assert [
        (native.tracks[one.track].name, one.name, one.args["collective"], one.start - first, one.parent)
        for one in native.slices
        if one.category == "arrival"
    ] == [
        ("group a [0, 1]", "rank 1 last", {"rank": 1, "skew_us": 1000.0}, 1_000_000, "all_reduce 4.1 kB"),
        ("group b [0, 1]", "rank 0 last", {"rank": 0, "skew_us": 1000.0}, 1_000_000, "all_reduce 4.1 kB"),
    ]
