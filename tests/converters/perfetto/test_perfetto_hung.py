"""What hangs is drawn to the end of the trace, in one colour, under a name that says who is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from builders import perfetto, perfetto_native
from builders.graph import START, GraphBuilder
from builders.perfetto import Written, nanoseconds
from builders.told import job_told
from tracelink.converters.perfetto import PerfettoJsonWriter
from tracelink.converters.perfetto.native.schema import RED
from tracelink.converters.perfetto.timeline.blocks import Choices, Wanted
from tracelink.converters.perfetto.timeline.derived import Caught, Hangs, hung_rows
from tracelink.errors import Finding
from tracelink.model.columns import UNFINISHED
from tracelink.model.events import EventKind, Key, TrackKind
from tracelink.model.job import Job

SECOND = 10**9
NEVER = int(np.iinfo(np.int64).max)

RED_SLICES = [
    ("group a [0, 1, 2] · HUNG", "HUNG all_reduce 4.1 kB: rank 2 missing", 1000, 2200),
    ("group a [0, 1, 2] · HUNG (2)", "HUNG all_reduce 4.1 kB: ranks 1-2 missing", 2000, 2200),
    ("rank 0 group a", "HUNG nccl:all_reduce", 1000, 2200),
    ("rank 0 group a", "HUNG nccl:all_reduce", 2000, 2200),
    ("rank 1 group a", "HUNG nccl:all_reduce", 1000, 2200),
]
"""Thread, name, start and end, in µs after the first event."""


def missed(folder: Path) -> Job:
    """Rank 2 never comes to the second all-reduce, behind which rank 0 has asked for a third one; 2 ms in all."""
    return job_told(folder, {0: "a1 a2! a3!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])


def red(written: Written) -> list[tuple[str, str, int, int]]:
    threads, first = written.threads(), min(nanoseconds(event["ts"]) for event in written.slices())
    found = []
    for event in written.slices():
        if event.get("cname") == "terrible":
            start = nanoseconds(event["ts"]) - first
            end = start + nanoseconds(event["dur"])
            found.append((threads[event["tid"]], event["name"], start // 1000, end // 1000))
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
    written = perfetto.write(job_told(tmp_path, ranks, a=[0, 1], b=[0, 1, 2], c=[0, 1]))
    threads = written.threads()
    assert [
        (threads[event["tid"]], event["name"])
        for event in sorted(written.slices(), key=lambda event: event["tid"])
        if event["cat"] == "collective"
    ] == [
        ("group b [0, 1, 2] · HUNG", "HUNG all_reduce 4.1 kB: rank 2 missing"),
        ("group b [0, 1, 2]", "all_reduce 4.1 kB"),
        ("group a [0, 1]", "all_reduce 4.1 kB"),
        ("group c [0, 1]", "all_reduce 4.1 kB"),
    ]


def test_the_colour_does_not_need_arguments(tmp_path: Path) -> None:
    job = missed(tmp_path)
    for wanted in Wanted:
        assert red(perfetto.write(job, PerfettoJsonWriter(Choices(wanted)))) == RED_SLICES


def test_nobody_is_missing_where_ranks_do_different_things(tmp_path: Path) -> None:
    written = perfetto.write(job_told(tmp_path, {0: "a1 a2!", 1: "a1 a2=broadcast!"}, a=[0, 1]))
    assert [(thread, name) for thread, name, *_ in red(written)] == [
        ("group a [0, 1] · HUNG", "HUNG all_reduce 4.1 kB"),
        ("rank 0 group a", "HUNG nccl:all_reduce"),
        ("rank 1 group a", "HUNG nccl:broadcast"),
    ]


def test_a_rank_without_a_dump_is_only_named_where_nobody_else_is_missing(tmp_path: Path) -> None:
    """Of its part nobody knows."""
    known, unknown = tmp_path / "known", tmp_path / "unknown"
    for folder in (known, unknown):
        folder.mkdir()
    missing = [
        Hangs.of(job_told(folder, ranks, a=[0, 1, 2, 3])).missing
        for folder, ranks in (
            (known, {0: "a1 a2!", 1: "a1 a2!", 2: "a1"}),
            (unknown, {0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2!"}),
        )
    ]
    assert [{row: str(ranks) for row, ranks in one.items()} for one in missing] == [{1: "2"}, {1: "3"}]


def test_many_missing_ranks_are_counted(tmp_path: Path) -> None:
    ranks = {rank: "a1 a2!" if rank % 2 else "a1" for rank in range(30)}
    hangs = Hangs.of(job_told(tmp_path, ranks, a=list(range(30))))
    assert hangs.named("all_reduce", 1) == "HUNG all_reduce: 15 ranks missing"


def test_nothing_hangs_in_a_job_that_is_over_or_empty(tmp_path: Path) -> None:
    written = perfetto.write(job_told(tmp_path, {0: "a1 a2", 1: "a1 a2"}, a=[0, 1]))
    assert (red(written), reasons(written.findings)) == ([], [])
    nothing = Hangs.of(Job(parts=[], ranks=[], sources=[]))
    assert (len(nothing.collectives), nothing.missing, nothing.caught, nothing.end) == (0, {}, {}, 0)


def entries(*entries: tuple[str, str, int | None, int], progress: str = "completed") -> GraphBuilder:
    """Entries of a rank: group, state, start and length; in each group one before them is `progress`."""
    built = GraphBuilder()
    groups = {name: built.track(TrackKind.COMMUNICATOR, 0, "", name) for name, *_ in entries}
    for sequence, (name, state, start, length) in enumerate(
        [*((group, progress, 0, 1) for group in groups), *entries]
    ):
        keys: dict[Key, int | str] = {Key.STATE: state, Key.COLLECTIVE_SEQUENCE: sequence}
        built.add(groups[name], state, start, length, EventKind.RECORD, keys=keys)
    return built


def hung(built: GraphBuilder, *records: int, since: int = NEVER, end: int = 0) -> list[int]:
    """The rows that hang, of a rank that is caught in some; times are s."""
    since = since if since == NEVER else START + since * SECOND
    return hung_rows(built.build(), Caught(np.array(records, np.int64), since, START + end * SECOND)).tolist()


ALONE = [("a", "started", 5 * SECOND, UNFINISHED), ("a", "scheduled", 6 * SECOND, UNFINISHED)]
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
    silent = [("a", "scheduled", 5 * SECOND, UNFINISHED), ("a", "scheduled", 6 * SECOND, UNFINISHED)]
    assert hung(entries(*silent, progress="scheduled"), 1, since=5, end=99) == [1]


def test_of_a_batch_only_what_closes_it_tells_whether_it_is_finished() -> None:
    built = GraphBuilder()
    group = built.track(TrackKind.COMMUNICATOR, 0, "", "a")
    for batch, closing in ((1, 10), (2, UNFINISHED)):
        for state, length in (
            ("scheduled", UNFINISHED),
            ("completed" if closing > 0 else "scheduled", closing),
        ):
            keys: dict[Key, int | str] = {Key.STATE: state, Key.P2P_SEQUENCE: batch}
            built.add(group, state, batch * SECOND, length, EventKind.RECORD, keys=keys)
    assert hung(built, end=99) == [2, 3]


def test_a_rank_without_records_is_caught_in_nothing() -> None:
    built = GraphBuilder()
    built.add(built.track(), "step", 0, UNFINISHED)
    built.add(built.track(), "node", None)
    assert hung(built, since=0, end=99) == []
