"""Collectives that hang, and last arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from builders import perfetto, perfetto_native
from builders.job import START, JobBuilder
from builders.perfetto import Written, nanoseconds
from builders.programs import job_of_programs
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Key, TrackKind
from tracelink._model.findings import Finding
from tracelink._model.job import Job
from tracelink.converters.perfetto.json_writer import PerfettoJsonWriter
from tracelink.converters.perfetto.packets.schema import RED
from tracelink.converters.perfetto.timeline.hangs import (
    Hangs,
    LastArrivals,
    RankHang,
    hung_rows,
    last_arrivals_of,
)
from tracelink.converters.perfetto.timeline.job import ArgumentChoice, TimelineOptions

# Who entered each collective last stands as an instant within it.


def entered(*times: int) -> JobBuilder:
    """A job with one collective that the ranks entered at these times."""
    built = JobBuilder()
    group = built.group(*range(len(times)), name="0", description="dp")
    built.collective(group, {rank: (time, 100) for rank, time in enumerate(times)})
    return built


def arrivals(job: Job, end: int = 100, *, awaited: bool = False) -> list[tuple[int, int, int, int]]:
    """Place, time, rank and skew."""
    whole = job.collectives
    found = last_arrivals_of(
        job,
        np.arange(len(whole)),
        whole.start,
        np.full(len(whole), START + end),
        np.full(len(whole), awaited),
    )
    return [
        (place, time - START, rank, skew)
        for place, time, rank, skew in zip(
            *(column.tolist() for column in (found.index, found.time, found.rank, found.skew)), strict=True
        )
    ]


def test_the_last_is_who_entered_last_and_when() -> None:
    assert arrivals(entered(10, 40, 20).job()) == [(0, 40, 1, 30)]


def test_of_ranks_that_enter_at_once_none_is_the_last() -> None:
    assert arrivals(entered(10, 10).job()) == []


def test_while_somebody_is_awaited_nobody_is_the_last() -> None:
    assert arrivals(entered(10, 40).job(), awaited=True) == []


@pytest.mark.parametrize("unknown", ["skew", "last_rank"])
def test_of_whom_nothing_is_known_nothing_is_said(unknown: str) -> None:
    built = entered(10, 40)
    built.collectives[0][unknown] = UNKNOWN
    assert arrivals(built.job()) == []


@pytest.mark.parametrize(("end", "found"), [(41, [(0, 40, 1, 30)]), (40, [(0, 39, 1, 30)]), (10, [])])
def test_an_arrival_lies_within_its_slice(end: int, found: list[tuple[int, int, int, int]]) -> None:
    assert arrivals(entered(10, 40).job(), end) == found


def test_those_of_some_collectives_are_found_by_their_places() -> None:
    places, others = np.array([0, 2, 3, 7]), np.arange(4)
    some = LastArrivals(places, others, others, others).within(2, 7)
    assert (some.index.tolist(), some.rank.tolist(), len(some)) == ([2, 3], [1, 2], 2)


def test_both_formats_have_the_same_instants_on_the_tracks_of_groups(tmp_path: Path) -> None:
    job = job_of_programs(tmp_path, {0: "a1 b1 a2", 1: "b1 a1 a2"}, a=[0, 1], b=[0, 1])
    written, native, first = perfetto.write(job), perfetto_native.write(job), job.first_ns or 0
    instants = [event for event in written.events("i") if event["cat"] == "arrival"]
    assert [
        (written.threads()[event["pid"], event["tid"]], event["name"], event["args"]) for event in instants
    ] == [
        ("group a [0, 1]", "rank 1 arrived last", {"rank": 1, "skew_us": Decimal(1000)}),
        ("group b [0, 1]", "rank 0 arrived last", {"rank": 0, "skew_us": Decimal(1000)}),
    ]
    base = written.document["baseTimeNanoseconds"]
    assert {base + nanoseconds(event["ts"]) - first for event in instants} == {1_000_000}
    assert [
        (native.tracks[one.track].name, one.name, one.args["collective"], one.start - first, one.parent)
        for one in native.slices
        if one.category == "arrival"
    ] == [
        (
            "group a [0, 1]",
            "rank 1 arrived last",
            {"rank": 1, "skew_us": 1000.0},
            1_000_000,
            "all_reduce 4.1 kB",
        ),
        (
            "group b [0, 1]",
            "rank 0 arrived last",
            {"rank": 0, "skew_us": 1000.0},
            1_000_000,
            "all_reduce 4.1 kB",
        ),
    ]


# What hangs is drawn to the end of the trace, in one colour, under a name that says who is missing.


SECOND = 10**9
NEVER = int(np.iinfo(np.int64).max)

RED_SLICES = [
    ("group a [0, 1, 2] · HUNG (2)", "HUNG all_reduce 4.1 kB: ranks 1-2 missing", 2000, 2200),
    ("group a [0, 1, 2] · HUNG (cause)", "HUNG all_reduce 4.1 kB: rank 2 missing", 1000, 2200),
    ("rank 0 group a", "HUNG nccl:all_reduce", 1000, 2200),
    ("rank 0 group a (2)", "HUNG nccl:all_reduce", 2000, 2200),
    ("rank 0 steps and waits", "HUNG all_reduce 4.1 kB: rank 2 missing", 1000, 2200),
    ("rank 1 group a", "HUNG nccl:all_reduce", 1000, 2200),
    ("rank 1 steps and waits", "HUNG all_reduce 4.1 kB: rank 2 missing", 1000, 2200),
    ("rank 2 steps and waits", "HUNG all_reduce 4.1 kB: rank 2 missing (this rank never joined)", 1000, 2200),
    ("waits of any rank", "HUNG all_reduce 4.1 kB: rank 2 missing", 1000, 2200),
]
"""Thread, name, start and end, in µs after the first event."""


def missed(folder: Path) -> Job:
    """Rank 2 never comes to the second all-reduce, behind which rank 0 has asked for a third one; 2 ms in all."""
    return job_of_programs(folder, {0: "a1 a2! a3!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])


def red(written: Written) -> list[tuple[str, str, int, int]]:
    threads, first = written.threads(), min(nanoseconds(event["ts"]) for event in written.slices())
    found = []
    for event in written.slices():
        if event.get("cname") == "terrible":
            start = nanoseconds(event["ts"]) - first
            end = start + nanoseconds(event["dur"])
            found.append((threads[event["pid"], event["tid"]], event["name"], start // 1000, end // 1000))
    return sorted(found)


def reasons(findings: Sequence[Finding]) -> list[tuple[str, int, str | None]]:
    return [(one.reason, one.count, one.example) for one in findings if one.reason.startswith("hung")]


def test_all_that_hangs_ends_with_the_trace_and_some_time_after_the_last_event(tmp_path: Path) -> None:
    written = perfetto.write(missed(tmp_path))
    assert red(written) == RED_SLICES
    assert {event["name"] for event in written.slices() if "cname" not in event} == {
        *("all_reduce 4.1 kB", "nccl:all_reduce"),
        "waited",
    }
    assert reasons(written.findings) == [
        ("hung", 3, "HUNG nccl:all_reduce"),
        ("hung_collectives", 2, "HUNG all_reduce 4.1 kB: rank 2 missing"),
    ]


def test_native_slices_that_hang_share_a_number_that_makes_their_colour(tmp_path: Path) -> None:
    job = missed(tmp_path)
    native = perfetto_native.write(job)
    first = job.first_ns or 0
    assert {one.colour for one in native.slices if not one.name.startswith("HUNG ")} == {0}
    assert sorted(
        (one.name, (one.start - first) // 1000, ((one.end or 0) - first) // 1000)
        for one in native.slices
        if one.colour == RED
    ) == sorted((name, start, end) for _, name, start, end in RED_SLICES)


def test_what_hangs_has_tracks_of_its_own_before_all_others(tmp_path: Path) -> None:
    ranks = {0: "a1 b1 b2! c1", 1: "a1 b1 b2! c1", 2: "b1"}
    written = perfetto.write(job_of_programs(tmp_path, ranks, a=[0, 1], b=[0, 1, 2], c=[0, 1]))
    threads = written.threads()
    assert [
        (threads[event["pid"], event["tid"]], event["name"])
        for event in sorted(written.slices(), key=lambda event: (event["pid"], event["tid"]))
        if event["cat"] == "collective"
    ] == [
        ("group b [0, 1, 2] · HUNG (cause)", "HUNG all_reduce 4.1 kB: rank 2 missing"),
        ("group b [0, 1, 2]", "all_reduce 4.1 kB"),
        ("group a [0, 1]", "all_reduce 4.1 kB"),
        ("group c [0, 1]", "all_reduce 4.1 kB"),
    ]


def test_the_colour_does_not_need_arguments(tmp_path: Path) -> None:
    job = missed(tmp_path)
    for wanted in ArgumentChoice:
        assert red(perfetto.write(job, PerfettoJsonWriter(TimelineOptions(wanted)))) == RED_SLICES


def test_nobody_is_missing_where_ranks_do_different_things(tmp_path: Path) -> None:
    written = perfetto.write(job_of_programs(tmp_path, {0: "a1 a2!", 1: "a1 a2=broadcast!"}, a=[0, 1]))
    assert [(thread, name) for thread, name, *_ in red(written)] == [
        ("group a [0, 1] · HUNG (cause)", "HUNG all_reduce 4.1 kB"),
        ("rank 0 group a", "HUNG nccl:all_reduce"),
        ("rank 0 steps and waits", "HUNG all_reduce 4.1 kB"),
        ("rank 1 group a", "HUNG nccl:broadcast"),
        ("rank 1 steps and waits", "HUNG all_reduce 4.1 kB"),
        ("waits of any rank", "HUNG all_reduce 4.1 kB"),
    ]


def test_a_rank_without_a_dump_is_only_named_where_nobody_else_is_missing(tmp_path: Path) -> None:
    """Of its part nobody knows."""
    known, unknown = tmp_path / "known", tmp_path / "unknown"
    for folder in (known, unknown):
        folder.mkdir()
    missing = [
        Hangs.of(job_of_programs(folder, ranks, a=[0, 1, 2, 3])).missing
        for folder, ranks in (
            (known, {0: "a1 a2!", 1: "a1 a2!", 2: "a1"}),
            (unknown, {0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2!"}),
        )
    ]
    assert [{row: str(ranks) for row, ranks in one.items()} for one in missing] == [{1: "2"}, {1: "3"}]


def test_many_missing_ranks_are_counted(tmp_path: Path) -> None:
    ranks = {rank: "a1 a2!" if rank % 2 else "a1" for rank in range(30)}
    hangs = Hangs.of(job_of_programs(tmp_path, ranks, a=list(range(30))))
    assert hangs.hung_name("all_reduce", 1) == "HUNG all_reduce: 15 ranks missing"


def test_nothing_hangs_in_a_job_that_is_over_or_empty(tmp_path: Path) -> None:
    written = perfetto.write(job_of_programs(tmp_path, {0: "a1 a2", 1: "a1 a2"}, a=[0, 1]))
    assert (red(written), reasons(written.findings)) == ([], [])
    nothing = Hangs.of(Job(parts=[], ranks=[], sources=[]))
    assert (len(nothing.collectives), nothing.missing, nothing.by_rank, nothing.end) == (0, {}, {}, 0)


def entries(*entries: tuple[str, str, int | None, int], progress: str = "completed") -> JobBuilder:
    """Entries of a rank: group, state, start and length; in each group one before them is `progress`."""
    built = JobBuilder()
    groups = {name: built.track(TrackKind.COMMUNICATOR, 0, "", name) for name, *_ in entries}
    for sequence, (name, state, start, length) in enumerate(
        [*((group, progress, 0, 1) for group in groups), *entries]
    ):
        keys: dict[Key, int | str] = {Key.STATE: state, Key.COLLECTIVE_SEQUENCE: sequence}
        built.add(groups[name], state, start, length, EventKind.RECORD, keys=keys)
    return built


def hung(built: JobBuilder, *records: int, since: int = NEVER, end: int = 0) -> list[int]:
    """The rows that hang, of a rank that is caught in some; times are s."""
    since = since if since == NEVER else START + since * SECOND
    return hung_rows(
        built.build(), RankHang(np.array(records, np.int64), since, START + end * SECOND)
    ).tolist()


ALONE = [("a", "started", 5 * SECOND, UNKNOWN), ("a", "scheduled", 6 * SECOND, UNKNOWN)]
"""Rows 1 and 2, where the group has finished something before."""


@pytest.mark.parametrize(("end", "rows"), [(24, []), (25, [1, 2])])
def test_a_rank_alone_hangs_in_what_is_not_finished_for_long(end: int, rows: list[int]) -> None:
    assert hung(entries(*ALONE), end=end) == rows


@pytest.mark.parametrize(("since", "rows"), [(5, [1, 2]), (6, [2]), (7, [])])
def test_what_a_rank_asks_for_once_it_is_caught_hangs_too(since: int, rows: list[int]) -> None:
    assert hung(entries(*ALONE), since=since, end=9) == rows


def test_what_is_finished_or_has_no_time_does_not_hang() -> None:
    built = entries(
        ("a", "completed", 5 * SECOND, 10), ("a", "completed", 6 * SECOND, -1), ("a", "started", None, -1)
    )
    assert hung(built, since=0, end=99) == []


def test_where_the_recorder_never_tells_what_is_finished_only_what_the_rank_is_caught_in_hangs() -> None:
    silent = [("a", "scheduled", 5 * SECOND, UNKNOWN), ("a", "scheduled", 6 * SECOND, UNKNOWN)]
    assert hung(entries(*silent, progress="scheduled"), 1, since=5, end=99) == [1]


def test_of_a_batch_only_what_closes_it_tells_whether_it_is_finished() -> None:
    built = JobBuilder()
    group = built.track(TrackKind.COMMUNICATOR, 0, "", "a")
    for batch, closing in ((1, 10), (2, UNKNOWN)):
        for state, length in (
            ("scheduled", UNKNOWN),
            ("completed" if closing > 0 else "scheduled", closing),
        ):
            keys: dict[Key, int | str] = {Key.STATE: state, Key.P2P_SEQUENCE: batch}
            built.add(group, state, batch * SECOND, length, EventKind.RECORD, keys=keys)
    assert hung(built, end=99) == [2, 3]


def test_a_rank_without_records_is_caught_in_nothing() -> None:
    built = JobBuilder()
    built.add(built.track(), "step", 0, UNKNOWN)
    built.add(built.track(), "node", None)
    assert hung(built, since=0, end=99) == []
