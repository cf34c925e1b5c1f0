"""Folders with several dumps of a rank: copies, generations, attempts, and two jobs."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tracelink
from builders.data import shared
from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import CREATED, as_source, collective, dump, pickled, process_group
from generators.recorded_jobs import Fault, Plan, RecordedJob, Snapshot, job
from tracelink._hang.facts.journal import journal_of
from tracelink._hang.facts.model import Movement
from tracelink._hang.facts.participation import parts_of, positions_of
from tracelink._hang.facts.recordings import Recordings, read_recordings
from tracelink._hang.facts.sets import Earlier, SeveralJobsError, earlier_of, is_continuation
from tracelink._hang.facts.waits import Wait, find_collective_waits
from tracelink._io.sources import Request, discover, only_with_prefix
from tracelink._model.errors import RankConflictError
from tracelink._model.findings import Finding, Severity
from tracelink._model.records import Recording
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

SECOND = 1_000_000_000


def write(
    folder: Path,
    ranks: Iterable[int],
    *,
    entries: int = 3,
    start: float = 0,
    first: int = 0,
    finished: int = 99,
    name: str = "comm_lib_trace_rank_{rank}",
) -> Path:
    """Dumps of all-reduces a second apart; the ring buffer starts at entry `first`."""
    began = CREATED + round(start * SECOND)
    rows = [
        collective(
            "nccl:all_reduce",
            number + 1,
            record_id=number,
            created=began + number * SECOND,
            completed=began if number < finished else None,
        )
        for number in range(first, entries)
    ]
    for rank in ranks:
        file = folder / name.format(rank=rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickled(dump(*rows, pg_config=process_group("0", [0, 1, 2, 3], "default_pg"))))
    return folder


def read(folder: Path, prefix: str = "") -> Recordings:
    return read_recordings(only_with_prefix(discover(Request([(str(folder), "")])), prefix), Processes(1))


def paths(recordings: dict[int, Recording], folder: Path) -> list[str]:
    return [str(Path(one.source.path).relative_to(folder)) for one in recordings.values()]


def chosen(found: Recordings, folder: Path) -> tuple[list[str], list[str]]:
    """The folders of the dumps that are diagnosed, and of the earlier ones."""
    newest, earlier = (
        sorted({str(Path(path).parent) for path in paths(dict(recordings), folder)})
        for recordings in (found.by_rank, found.earlier)
    )
    return newest, earlier


def finding(found: Recordings) -> Finding:
    (only,) = (one for one in found.findings if one.reason != "wrapped")
    return only


# A folder for each rank.


def test_folder_for_each_rank(tmp_path: Path) -> None:
    for host, ranks in (("node0", (0, 1)), ("node1", (2, 3))):
        write(tmp_path / host, ranks, name="rank_{rank}/fr_dump.pickle")
    found = read(tmp_path)
    assert paths(found.by_rank, tmp_path) == [
        f"node{rank // 2}/rank_{rank}/fr_dump.pickle" for rank in range(4)
    ]
    assert found.findings == []
    assert [one.source.host for one in found.by_rank.values()] == ["node0", "node0", "node1", "node1"]


def test_attempts_with_a_folder_for_each_rank(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path / f"attempt_{number}", range(2), start=20 * number, name="rank_{rank}/fr_dump.pickle")
    found = read(tmp_path)
    assert chosen(found, tmp_path) == (["attempt_1/rank_0", "attempt_1/rank_1"], [])
    assert finding(found).example == f"{tmp_path}/attempt_0"


@pytest.mark.foreign
def test_recorded_folder_for_each_rank() -> None:
    diagnosis = tracelink.diagnose(shared("fr2/weak_perrank"))
    assert [(one.kind.value, one.culprits) for one in diagnosis.problems] == [("in_flight", (2,))]
    assert list(diagnosis.present) == list(range(8))


# Copies.


def test_copies_count_once(tmp_path: Path) -> None:
    write(tmp_path, range(4))
    shutil.copytree(tmp_path, tmp_path / "backup")
    found = read(tmp_path)
    assert paths(found.by_rank, tmp_path) == [f"comm_lib_trace_rank_{rank}" for rank in range(4)]
    assert finding(found) == Finding(
        Severity.INFO,
        "copies",
        "4 dumps skipped, with the same entries as another dump of the same rank, such as "
        f"{tmp_path}/backup/comm_lib_trace_rank_0. If it was written later, and not copied, name the earlier one with "
        "--before.",
        4,
        source=f"{tmp_path}/backup/comm_lib_trace_rank_0",
    )


def test_copy_with_another_name(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    shutil.copy(tmp_path / "comm_lib_trace_rank_0", tmp_path / "old_rank_0")
    found = read(tmp_path)
    assert (list(found.by_rank), finding(found).reason, finding(found).count) == ([0, 1], "copies", 1)


# Generations.


def test_newest_generation_is_diagnosed(tmp_path: Path) -> None:
    write(tmp_path / "before", range(4), entries=3)
    write(tmp_path / "now", range(4), entries=5)
    found = read(tmp_path)
    assert chosen(found, tmp_path) == (["now"], ["before"])
    assert finding(found) == Finding(
        Severity.INFO,
        "generations",
        f"The same processes wrote dumps 2 times. The newest are diagnosed: {tmp_path}/now. They are compared with the "
        f"earlier ones: {tmp_path}/before (4 dumps).",
        1,
        example=f"{tmp_path}/before",
    )


def test_ranks_that_moved_since_tell_the_newest(tmp_path: Path) -> None:
    write(tmp_path / "a", range(4), entries=3)
    write(tmp_path / "b", range(3), entries=3)
    write(tmp_path / "b", [3], entries=4)
    assert chosen(read(tmp_path), tmp_path) == (["b"], ["a"])


def test_states_tell_the_newest(tmp_path: Path) -> None:
    write(tmp_path / "a", range(4), finished=2)
    write(tmp_path / "b", range(3), finished=2)
    write(tmp_path / "b", [3], finished=3)
    assert chosen(read(tmp_path), tmp_path) == (["b"], ["a"])


def test_three_generations(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path / f"t{number}", range(4), entries=2 + number)
    found = read(tmp_path)
    assert chosen(found, tmp_path) == (["t3"], ["t2"])
    assert finding(found).message.endswith(f"ones: {tmp_path}/t2 (4 dumps) and {tmp_path}/t1 (4 dumps).")


def test_ring_buffers_that_wrapped_between(tmp_path: Path) -> None:
    write(tmp_path / "before", range(2), entries=3)
    write(tmp_path / "now", range(2), first=10, entries=13)
    assert chosen(read(tmp_path), tmp_path) == (["now"], ["before"])


def test_rank_that_left_no_dump_the_last_time(tmp_path: Path) -> None:
    write(tmp_path / "t1", range(4), entries=3)
    write(tmp_path / "t2", range(3), entries=4)
    found = read(tmp_path)
    assert list(found.by_rank) == [0, 1, 2]
    assert finding(found).message.endswith(" Rank 3 left no dump the last time.")


def test_newest_dumps_of_few_ranks_complete_the_others(tmp_path: Path) -> None:
    write(tmp_path / "dumps", range(4), entries=3)
    write(tmp_path / "again", [2], entries=4)
    found = read(tmp_path)
    assert paths(found.by_rank, tmp_path) == [
        f"{'again' if rank == 2 else 'dumps'}/comm_lib_trace_rank_{rank}" for rank in range(4)
    ]
    assert paths(dict(found.earlier), tmp_path) == ["dumps/comm_lib_trace_rank_2"]


def test_generations_of_two_hosts(tmp_path: Path) -> None:
    for host, ranks in (("node0", (0, 1)), ("node1", (2, 3))):
        write(tmp_path / host / "t1", ranks, entries=3)
        write(tmp_path / host / "t2", ranks, entries=4)
    assert chosen(read(tmp_path), tmp_path) == (["node0/t2", "node1/t2"], ["node0/t1", "node1/t1"])


def test_older_dumps_of_one_host(tmp_path: Path) -> None:
    write(tmp_path / "node0", (0, 1), entries=4)
    write(tmp_path / "node0_old", (0, 1), entries=3)
    write(tmp_path / "node1", (2, 3), entries=4)
    assert chosen(read(tmp_path), tmp_path) == (["node0", "node1"], ["node0_old"])


def test_generations_in_names_of_files(tmp_path: Path) -> None:
    write(tmp_path, range(2), entries=3, name="rank_{rank}_dump1.pickle")
    write(tmp_path, range(2), entries=4, name="rank_{rank}_dump2.pickle")
    found = read(tmp_path)
    assert paths(found.by_rank, tmp_path) == ["rank_0_dump2.pickle", "rank_1_dump2.pickle"]
    assert finding(found).example == f"{tmp_path}/rank_*_dump1.pickle"


def test_times_in_names_of_files(tmp_path: Path) -> None:
    for rank in range(2):
        for number in (3, 4):
            write(tmp_path, [rank], entries=number, name=f"rank_{{rank}}_at_{number}{rank}99")
    found = read(tmp_path)
    assert paths(found.by_rank, tmp_path) == ["rank_0_at_4099", "rank_1_at_4199"]
    assert paths(dict(found.earlier), tmp_path) == ["rank_0_at_3099", "rank_1_at_3199"]


# Attempts.


def test_newest_attempt_is_diagnosed(tmp_path: Path) -> None:
    write(tmp_path / "attempt_0", range(4))
    write(tmp_path / "attempt_1", range(4), start=20)
    found = read(tmp_path)
    assert chosen(found, tmp_path) == (["attempt_1"], [])
    assert finding(found) == Finding(
        Severity.WARNING,
        "attempts",
        "The dumps are of 2 attempts to run the job, one after the other. The newest is diagnosed: "
        f"{tmp_path}/attempt_1, which started 18.0 s after the last entry of the one before. Not diagnosed: "
        f"{tmp_path}/attempt_0 (4 dumps). To diagnose an earlier attempt, name its folder: {tmp_path}/attempt_0.",
        1,
        example=f"{tmp_path}/attempt_0",
    )


def test_times_tell_the_newest_attempt_not_names(tmp_path: Path) -> None:
    write(tmp_path / "run-10", range(2), start=40)
    write(tmp_path / "run-9", range(2), start=20)
    write(tmp_path / "run-11", range(2))
    assert chosen(read(tmp_path), tmp_path) == (["run-10"], [])


def test_attempts_of_different_ranks(tmp_path: Path) -> None:
    write(tmp_path / "attempt_0", (0, 1))
    write(tmp_path / "attempt_1", (2, 3), start=20)
    found = read(tmp_path)
    assert (chosen(found, tmp_path), finding(found).reason) == ((["attempt_1"], []), "attempts")


def test_attempts_with_a_rank_in_common(tmp_path: Path) -> None:
    write(tmp_path / "attempt_0", (0, 1))
    write(tmp_path / "attempt_1", (1, 2, 3), start=20)
    assert list(read(tmp_path).by_rank) == [1, 2, 3]


def test_attempts_on_two_hosts(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path / "node0" / f"attempt_{number}", (0, 1), start=20 * number)
        write(tmp_path / "node1" / f"attempt_{number}", (2, 3), start=20 * number)
    found = read(tmp_path)
    assert chosen(found, tmp_path) == (["node0/attempt_1", "node1/attempt_1"], [])
    assert (
        f"name its folder: {tmp_path}/node0/attempt_0 {tmp_path}/node1/attempt_0." in finding(found).message
    )


def test_old_dumps_in_a_folder_below(tmp_path: Path) -> None:
    write(tmp_path / "dumps", range(2), start=20)
    write(tmp_path / "dumps" / "old", range(2))
    assert chosen(read(tmp_path), tmp_path) == (["dumps"], [])


def test_unreadable_dump_of_an_earlier_attempt(tmp_path: Path) -> None:
    write(tmp_path / "attempt_0", range(2))
    write(tmp_path / "attempt_1", [1], start=20)
    (tmp_path / "attempt_0" / "comm_lib_trace_rank_0").write_bytes(b"\x80\x02broken")
    found = read(tmp_path)
    assert (list(found.by_rank), found.unreadable) == ([1], {})
    diagnosis = tracelink.diagnose(tmp_path)
    assert (list(diagnosis.missing), dict(diagnosis.unreadable)) == ([0, 2, 3], {})
    assert "unreadable_before" in {one.reason for one in diagnosis.findings}


# Several jobs.


def jobs(folder: Path, *more: Path) -> dict[str, list[str]]:
    """The dumps of each job."""
    with pytest.raises(SeveralJobsError) as several:
        read_recordings(discover(Request([(str(path), "") for path in (folder, *more)])), Processes(1))
    return {job.name: sorted(job.files) for job in several.value.jobs}


def test_jobs_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path, range(2), name="a_rank_{rank}")
    write(tmp_path, range(2), start=20, name="b_rank_{rank}")
    assert jobs(tmp_path) == {
        "b_rank_*": [f"{tmp_path}/b_rank_0", f"{tmp_path}/b_rank_1"],
        "a_rank_*": [f"{tmp_path}/a_rank_0", f"{tmp_path}/a_rank_1"],
    }
    assert paths(read(tmp_path, "b_rank_").by_rank, tmp_path) == ["b_rank_0", "b_rank_1"]


def test_jobs_whose_names_start_alike(tmp_path: Path) -> None:
    write(tmp_path, range(2), name="rank_{rank}")
    write(tmp_path, range(2), start=0.5, name="rank_{rank}_b")
    assert jobs(tmp_path) == {
        "rank_*_b": [f"{tmp_path}/rank_0_b", f"{tmp_path}/rank_1_b"],
        "rank_*": [f"{tmp_path}/rank_0", f"{tmp_path}/rank_1"],
    }


def test_jobs_at_the_same_time(tmp_path: Path) -> None:
    one, two = write(tmp_path / "job1", range(2)), write(tmp_path / "job2", range(2), start=0.5)
    assert jobs(one, two).keys() == {"job1", "job2"}


def test_attempts_of_one_of_the_jobs(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path / f"a_{number}", range(2), start=20 * number)
    write(tmp_path / "b", range(2), entries=4, start=0.5)
    diagnosis = tracelink.diagnose(tmp_path)
    (other,) = diagnosis.other_jobs
    by_name = {one.job: one for one in (diagnosis, other)}
    assert by_name.keys() == {"a_1", "b"}
    assert {one.reason for one in by_name["a_1"].findings} == {"attempts"}


def test_each_job_is_diagnosed_with_its_own_files(tmp_path: Path) -> None:
    """The worst one comes first; it alone has a damaged dump."""
    write(tmp_path / "a", range(4))
    write(tmp_path / "b", range(3), start=0.5, finished=1)
    (tmp_path / "b" / "comm_lib_trace_rank_3").write_bytes(b"\x80\x02broken")
    (tmp_path / "log.txt").write_text("any text")
    diagnosis = tracelink.diagnose(tmp_path)
    (other,) = diagnosis.other_jobs
    assert [(one.job, one.verdict, [*one.unreadable]) for one in (diagnosis, other)] == [
        ("b", "in_flight", [3]),
        ("a", "ok", []),
    ]
    assert [one.example for one in diagnosis.findings if one.reason == "job_unknown"] == [
        f"{tmp_path}/log.txt"
    ]


def test_earlier_dumps_are_of_one_job(tmp_path: Path) -> None:
    write(tmp_path / "now", range(2), entries=5)
    for name in ("a", "b"):
        write(tmp_path / "before" / name, range(2), start=0.5 * (name == "b"))
    with pytest.raises(SeveralJobsError, match="dumps of 2 jobs"):
        tracelink.diagnose(tmp_path / "now", before=tmp_path / "before")


def test_time_of_each_file_in_its_name(tmp_path: Path) -> None:
    """The names make 140 sets."""
    for rank in range(70):
        for number in (3, 4):
            write(tmp_path, [rank], entries=number, name=f"rank_{{rank}}_at_{number}{rank:02}99")
    found = read(tmp_path)
    assert paths(found.by_rank, tmp_path) == [f"rank_{rank}_at_4{rank:02}99" for rank in range(70)]
    assert finding(found).reason == "generations"


def test_two_unrelated_dumps_of_a_rank(tmp_path: Path) -> None:
    write(tmp_path, [0], name="rank_0")
    write(tmp_path, [0], start=0.5, name="rank_00")
    with pytest.raises(
        RankConflictError, match=r"rank 0 has two dumps that are not of one process: .*rank_0 and .*00"
    ):
        read(tmp_path)


# Generated and recorded jobs.


@settings(max_examples=15)
@given(plans(), st.floats(0.1, 0.5), st.floats(0.55, 0.95))
def test_generations_of_a_running_job(
    tmp_path_factory: pytest.TempPathFactory, plan: Plan, first: float, second: float
) -> None:
    folder = tmp_path_factory.mktemp("dumps")
    job(plan, None, Snapshot("running", at=second)).write(folder / "a")
    job(plan, None, Snapshot("running", at=first)).write(folder / "b")
    found = read(folder)
    assert chosen(found, folder)[0] == ["a"]
    assert {one.reason for one in found.findings} & {"copies", "generations"}


@pytest.mark.foreign
def test_recorded_generations() -> None:
    diagnosis = tracelink.diagnose(shared("fr2/twice"))
    assert [(one.kind.value, one.culprits, one.sequence) for one in diagnosis.problems] == [
        ("in_flight", (0,), 46)
    ]


@pytest.mark.foreign
def test_recorded_attempts() -> None:
    both = tracelink.diagnose(folder := shared("fr2/weak_attempts"))
    newest = tracelink.diagnose(folder / "attempt_1")
    assert (both.problems, both.standings, both.checked) == (
        newest.problems,
        newest.standings,
        newest.checked,
    )
    assert "attempts" in {one.reason for one in both.findings}


@pytest.mark.foreign
def test_recorded_copies() -> None:
    diagnosis = tracelink.diagnose(shared("fr2/weak_dup"))
    assert [(one.kind.value, one.culprits) for one in diagnosis.problems] == [("in_flight", (2,))]


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("case", "first", "second"),
    [("fr2/weak_twojobs6", "a_rank_*", "b_rank_*"), ("fr3/jobs_two/dumps", "jobB", "jobA")],
)
def test_recorded_jobs(case: str, first: str, second: str) -> None:
    diagnosis = tracelink.diagnose(shared(case))
    (other,) = diagnosis.other_jobs
    assert [(one.job, [problem.culprits for problem in one.problems]) for one in (diagnosis, other)] == [
        (first, [(2,)]),
        (second, []),
    ]


MS = 1_000_000
Entry = dict[str, Any]


def entries(*numbers: int, finished: int = 0, start: int = CREATED) -> list[Entry]:
    """All-reduces a millisecond apart, those up to `finished` completed."""
    return [
        collective(
            "nccl:all_reduce",
            number,
            created=start + number * MS,
            completed=start + number * MS + MS // 2 if number <= finished else None,
        )
        for number in numbers
    ]


def recording(rows: Sequence[Entry]) -> Recording:
    return FlightRecorderReader().read_records(as_source(pickled(dump(*rows))), Processes(1))


def recordings(rows: Mapping[int, Sequence[Entry]]) -> dict[int, Recording]:
    return {rank: recording(entries) for rank, entries in rows.items()}


def earlier(before: Mapping[int, Sequence[Entry]], now: Mapping[int, Sequence[Entry]]) -> Earlier:
    found = earlier_of(recordings(now), recordings(before))
    assert found
    return found


# Two dumps of one rank.


def test_repeated_record_ids_of_a_damaged_dump() -> None:
    before, now = (
        [entry | {"record_id": 7} for entry in entries(*numbers)] for numbers in ((1, 2), (1, 2, 3))
    )
    assert is_continuation(recording(before), recording(now)) is True


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (entries(1, 2, finished=1), entries(1, 2, 3, finished=2), True),
        (entries(1, 2), entries(1, 2), True),
        (entries(1, 2, 3, 4), entries(3, 4, 5, 6), True),
        (entries(1, 2), entries(1, 2, start=CREATED + 1), False),
        (entries(1, 2, 3), entries(1, start=CREATED + 9 * MS), False),
        (entries(1, 2), entries(5, 6), None),
        (entries(5, 6), entries(1, 2), False),
        (entries(1, 2, finished=2), entries(1, 2, finished=1), False),
        (entries(1, 2), [], False),
        ([], entries(1, 2), None),
    ],
    ids=[
        "more",
        "equal",
        "wrapped",
        "other times",
        "restarted",
        "wrapped completely",
        "older",
        "older states",
        "later empty",
        "empty",
    ],
)
def test_continuation(before: list[Entry], now: list[Entry], expected: bool | None) -> None:
    assert is_continuation(recording(before), recording(now)) is expected


# Two dumps of each rank.


def test_ranks_that_moved() -> None:
    before = {0: entries(1, 2, finished=1), 1: entries(1, 2, finished=1), 2: entries(1), 3: entries(1)}
    now = {0: entries(1, 2, finished=1), 1: entries(1, 2, finished=2), 2: entries(1, 2), 4: entries(1)}
    assert earlier(before, now).movement == Movement((1, 2), (0,), (4,), CREATED + 2 * MS)


def test_unchanged_wait_is_stuck() -> None:
    rows = {0: entries(1, 2, finished=1), 1: entries(1, finished=1)}
    assert earlier(rows, rows).decides([1], [1]) is True


def test_wait_for_a_rank_that_moved_is_undecided() -> None:
    before = {0: entries(1, 2, finished=1), 1: entries(1)}
    now = {0: entries(1, 2, finished=1), 1: entries(1, finished=1)}
    assert earlier(before, now).decides([1], [1]) is None


def test_wait_that_began_since_then() -> None:
    before = {0: entries(1, 2, finished=1), 1: entries(1, 2, finished=1), 2: entries(1)}
    now = {0: entries(1, 2, finished=1), 1: entries(1, 2, 3, finished=2), 2: entries(1)}
    found = earlier(before, now)
    assert found.decides([1, 4], [2]) is False
    assert replace(found, chosen=False).decides([1, 4], [2]) is None


def test_rank_without_earlier_dump_does_not_count() -> None:
    now = {0: entries(1, 2), 1: entries(1, 2), 2: entries(1)}
    found = earlier({0: entries(1, 2)}, now)
    assert found.decides([1, 3], [2]) is True
    assert found.decides([3], [2]) is None


def test_wrapped_ring_buffer() -> None:
    found = earlier({0: entries(1, 2, 3, finished=2)}, {0: entries(2, 3, finished=2)})
    assert found.movement.unmoved == (0,)
    assert found.decides([1], []) is True


def test_dumps_of_another_job() -> None:
    now = recordings({0: entries(1, 2)})
    assert earlier_of(now, recordings({0: entries(1, 2, start=CREATED + 5)})) is None
    assert earlier_of(now, recordings({1: entries(1, 2)})) is None


def test_entries_that_cannot_be_used() -> None:
    """Entries after them keep their record ids."""
    before = [*entries(1), "unusable", *entries(3, 4, finished=3)]
    now = [*entries(1), "unusable", *entries(3, 4, 5, finished=3)]
    found = earlier_of({0: recording(now)}, {0: recording(before)})  # type: ignore[arg-type]
    assert found
    assert (found.movement.moved, found.unchanged.tolist()) == ((0,), [True, True, True, False])


# Generated jobs.


def decision(earlier: Earlier, wait: Wait) -> bool | None:
    return earlier.decides(wait.rows.values(), wait.awaited)


def waits_of(recorded: RecordedJob, before: RecordedJob) -> tuple[Earlier, list[Wait]]:
    now, earlier = (
        {rank: recording(content["entries"]) for rank, content in one.dumps.items()}
        for one in (recorded, before)
    )
    journal = journal_of(now)
    parts = parts_of(journal)
    found = earlier_of(now, earlier)
    assert found
    return found, find_collective_waits(journal, parts, positions_of(journal, parts, []))


@settings(max_examples=15)
@given(faulty_plans("never_joined", "died", "deadlock", "not_started", "skipped"))
def test_all_waits_of_a_job_that_hangs_are_stuck(case: tuple[Plan, Fault]) -> None:
    first, second = (job(*case, Snapshot(wait_ns=minutes * 60_000 * MS)) for minutes in (1, 2))
    earlier, waits = waits_of(second, first)
    assert (earlier.movement.moved, {decision(earlier, wait) for wait in waits}) == ((), {True})


@settings(max_examples=15)
@given(plans(backends=["nccl", "nccl2", "xccl"]).map(lambda plan: dataclasses.replace(plan, steps=4)))
def test_no_wait_of_a_running_job_is_stuck(plan: Plan) -> None:
    first, second = (job(plan, None, Snapshot("running", at=at)) for at in (0.2, 0.8))
    earlier, waits = waits_of(second, first)
    assert True not in [decision(earlier, wait) for wait in waits]
    assert set(earlier.movement.moved) == set(second.dumps)
