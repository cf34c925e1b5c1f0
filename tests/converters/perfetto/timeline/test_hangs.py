"""Collectives that hang, and last arrivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from builders import perfetto, perfetto_native
from builders.job import START, JobBuilder
from builders.perfetto import Written, nanoseconds
from builders.programs import job_of_programs
from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import CREATED, collective, dump, pickled, process_group
from generators.recorded_jobs import Fault, Plan, RecordedJob
from generators.recorded_jobs import job as recorded_job
from tracelink import load
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Key, TrackKind
from tracelink._model.findings import Finding
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.json_writer import PerfettoJsonWriter
from tracelink.converters.perfetto.packets.schema import RED
from tracelink.converters.perfetto.timeline.hangs import (
    NEVER,
    Hangs,
    LastArrivals,
    RankHang,
    hung_of,
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


def arrivals(job: LinkedJob, end: int = 100, *, awaited: bool = False) -> list[tuple[int, int, int, int]]:
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


def missed(folder: Path) -> LinkedJob:
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
    nothing = Hangs.of(LinkedJob(parts=[], ranks=[], sources=[]))
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


# Which collectives hang.


Place = tuple[str, int]
"""A group, and the number of a collective in it."""

TELLING = ["nccl", "nccl2", "nccl-lazy", "xccl", "own"]
"""Backends whose recorders tell what is finished."""
FAULTS = ("never_joined", "skipped", "extra", "operation_mismatch", "dtype_mismatch", "straggler")

few = settings(max_examples=15, deadline=None)
"""Each example is a whole job."""


def hangs(job: LinkedJob) -> dict[Place, list[int]]:
    """Each collective that hangs, and who is caught in it."""
    hung, whole, parts = hung_of(job), job.collectives, job.participations
    assert not (hung.parts & ~hung.collectives[parts.collective]).any()
    return {
        (job.groups[whole.group[row]].name, int(whole.sequence[row])): parts.rank[
            hung.parts & (parts.collective == row)
        ].tolist()
        for row in np.flatnonzero(hung.collectives).tolist()
    }


def told(folder: Path, ranks: Mapping[int, str], **groups: list[int]) -> list[str]:
    """The same in words: `a2 at 0 1`."""
    found = hangs(job_of_programs(folder, ranks, **groups))
    return [f"{group}{number} at {' '.join(map(str, ranks))}" for (group, number), ranks in found.items()]


@pytest.mark.parametrize(
    ("ranks", "hung"),
    [
        ({0: "a1 a2", 1: "a1 a2", 2: "a1 a2"}, []),
        ({0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2!"}, []),
        ({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, ["a2 at 0 1"]),
        ({0: "a1 a2^", 1: "a1 a2^", 2: "a1"}, ["a2 at 0 1"]),
        ({0: "a1 a2! a3!", 1: "a1 a2!", 2: "a1"}, ["a2 at 0 1", "a3 at 0"]),
        ({0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}, ["a2 at 0 1 2"]),
        ({0: "a1 a2", 1: "a1 a2!", 2: "a1 a2=broadcast!"}, []),
    ],
    ids=["over", "under way", "missed", "missed once started", "queued", "different", "one has left"],
)
def test_hangs_in_one_group(tmp_path: Path, ranks: dict[int, str], hung: list[str]) -> None:
    assert told(tmp_path, ranks, a=[0, 1, 2]) == hung


@pytest.mark.parametrize(
    ("ranks", "hung"),
    [
        ({0: "a1~ a2!", 1: "a1~ a2!", 2: "a1~ a2!"}, []),
        ({0: "a1~ a2!", 1: "a1~ a2!", 2: "a1~"}, ["a2 at 0 1"]),
        ({0: "a1~ a2!", 1: "a1~ a2!", 2: "a1~ a2=broadcast!"}, ["a2 at 0 1 2"]),
        ({0: "a1~ a2~ b1!", 1: "a1~ a2~", 2: "a1~ a2.Int~"}, []),
        ({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~ a2.Int~"}, ["a2 at 0 1 2"]),
    ],
    ids=["over or under way", "missed", "different", "one went on", "different, as far as anything is told"],
)
def test_hangs_without_states(tmp_path: Path, ranks: dict[int, str], hung: list[str]) -> None:
    assert told(tmp_path, ranks, a=[0, 1, 2], b=[0]) == hung


def test_later_calls_hang_as_well(tmp_path: Path) -> None:
    """Rank 0 waits in a2 for rank 1; b2 is queued behind it, so rank 2 waits in vain, and c1 behind that."""
    ranks = {0: "b1 a1 a2! b2!", 1: "a1", 2: "b1 b2! c1!", 3: "c1!"}
    assert told(tmp_path, ranks, a=[0, 1], b=[0, 2], c=[2, 3]) == ["a2 at 0", "b2 at 0 2", "c1 at 2 3"]


def test_earlier_calls_do_not_hang(tmp_path: Path) -> None:
    ranks = {0: "a1 b1! a2!", 1: "a1", 2: "b1!"}
    assert told(tmp_path, ranks, a=[0, 1], b=[0, 2]) == ["a2 at 0"]


def test_older_dump(tmp_path: Path) -> None:
    """All have left a2, so rank 2 had entered it."""
    ranks = {0: "a1 a2 a3!", 1: "a1 a2 a3!", 2: "a1"}
    assert told(tmp_path, ranks, a=[0, 1, 2]) == []


@pytest.mark.parametrize(("members", "hung"), [([0, 1, 2], ["a2 at 0 1"]), ([0, 1, 2, 3], [])])
def test_missing_dumps_of_a_few(tmp_path: Path, members: list[int], hung: list[str]) -> None:
    assert told(tmp_path, {0: "a1 a2!", 1: "a1 a2!"}, a=members) == hung


@pytest.mark.parametrize(("first", "hung"), [(True, {}), (False, {("0", 2): [0, 1]})])
def test_hang_after_a_long_time(tmp_path: Path, first: bool, hung: dict[Place, list[int]]) -> None:
    """15 s are long where a collective took half a second, but not for the first one of a group."""
    usual = [] if first else [collective("nccl:all_reduce", 1, completed=CREATED + SECOND // 2)]
    waits = collective("nccl:all_reduce", len(usual) + 1, created=CREATED + SECOND)
    later = CREATED + 16 * SECOND
    beside = collective("nccl:all_reduce", 1, group=("1", "dp"), created=later, completed=later + 1)
    for rank in (0, 1):
        groups = process_group("0", [0, 1]) | process_group("1", [0, 1])
        content = dump(*usual, waits, beside, pg_config=groups)
        (tmp_path / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(content))
    assert hangs(LinkedJob.of(load(tmp_path))) == hung


def test_stuck_since_the_first_hanging_collective(tmp_path: Path) -> None:
    told = job_of_programs(tmp_path, {0: "a1 a2! b1!", 1: "a1", 2: "b1!"}, a=[0, 1], b=[0, 2])
    asked = {
        (int(rank), int(collective)): int(time)
        for rank, collective, time in zip(
            told.participations.rank,
            told.participations.collective,
            told.participations.enqueued,
            strict=True,
        )
    }
    assert hung_of(told).since.tolist() == [asked[0, 1], NEVER, asked[2, 2]]


def test_job_without_collectives() -> None:
    hung = hung_of(LinkedJob(parts=[], ranks=[], sources=[]))
    assert [len(column) for column in (hung.collectives, hung.parts, hung.since)] == [0, 0, 0]


def loaded(recorded: RecordedJob) -> LinkedJob:
    with TemporaryDirectory() as folder:
        recorded.write(Path(folder))
        return LinkedJob.of(load(folder))


def finished(recorded: RecordedJob) -> set[Place]:
    """What any recorder tells is over."""
    entries: list[dict[str, Any]] = [entry for one in recorded.dumps.values() for entry in one["entries"]]
    return {
        (entry["process_group"][0], entry["collective_seq_id"])
        for entry in entries
        if entry["state"] == "completed"
    }


@given(plans())
@few
def test_any_finished_job(plan: Plan) -> None:
    assert hangs(loaded(recorded_job(plan))) == {}


@given(faulty_plans(*FAULTS))
@few
def test_any_faulty_job(faulty: tuple[Plan, Fault]) -> None:
    plan, fault = faulty
    recorded = recorded_job(plan, fault)
    truth = recorded.truth
    assert truth is not None
    assume(plan.backend in TELLING and not truth.point_to_point and truth.evident)
    found = hangs(loaded(recorded))
    assert not found.keys() & finished(recorded)
    if truth.hangs:
        assert found.keys() & {(truth.group, truth.sequence), *truth.places}
    else:
        assert found == {}
