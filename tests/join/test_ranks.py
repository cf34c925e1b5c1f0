"""`tracelink._join.ranks`."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import execution_trace as et
from builders.compile_log import artifact, begin, end, log
from builders.inputs import found
from builders.kineto import cpu_op, write
from builders.kineto import trace as rank_trace
from builders.trace import TraceBuilder
from tracelink import load, samples
from tracelink._api.functions import merge as write_files
from tracelink._join.ranks import StoredRanks, read_ranks, without_derived
from tracelink._join.reading import two_jobs_findings
from tracelink._model.errors import RankConflictError, UsageError
from tracelink._model.events import EventKind
from tracelink._model.selection import Numbers
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes

# Sources of one rank meet, wherever they lie and whoever read them first.


JOBS = pytest.mark.parametrize("jobs", [1, 3])


def profile(rank: int | None, pid: int = 4200) -> bytes:
    return rank_trace(cpu_op("aten::add", 5, 5, pid=pid), rank=rank)


def nodes() -> bytes:
    """Of process 4200."""
    return et.trace(et.thread_root(2), et.node(3, handle=1), et.process_root())


def formats(gathered: StoredRanks) -> dict[int, list[str]]:
    return {rank.rank: sorted(source.format for source in rank.sources) for rank in gathered.ranks}


@JOBS
def test_files_whose_names_say_their_rank(tmp_path: Path, jobs: int) -> None:
    for rank in (0, 1, 2):
        write(tmp_path / f"kineto_rank{rank}.json", profile(rank))
        write(tmp_path / f"et_rank{rank}.json", nodes())
    gathered = read_ranks(found(tmp_path), Processes(jobs))
    assert formats(gathered) == {rank: ["execution-trace", "kineto"] for rank in (0, 1, 2)}
    assert gathered.findings == []


@JOBS
def test_a_rank_that_only_the_content_says_and_a_rank_that_only_the_name_says(
    tmp_path: Path, jobs: int
) -> None:
    """The profile of rank 1 says so behind its events, where nobody looks before it is read."""
    said_last = profile(None).rstrip().removesuffix(b"}") + b', "distributedInfo": {"rank": 1}}'
    write(tmp_path / "first.json", said_last)
    write(tmp_path / "rank1.et.json", nodes())
    write(tmp_path / "rank0.json", profile(0))
    assert formats(read_ranks(found(tmp_path), Processes(jobs)))[1] == ["execution-trace", "kineto"]


@JOBS
def test_a_trace_of_which_only_the_process_is_known_joins_the_rank_of_its_process(
    tmp_path: Path, jobs: int
) -> None:
    write(tmp_path / "a.json", profile(0, pid=17))
    write(tmp_path / "b.json", profile(1, pid=4200))
    write(tmp_path / "nodes.json", nodes())
    gathered = read_ranks(found(tmp_path), Processes(jobs))
    assert formats(gathered) == {0: ["kineto"], 1: ["execution-trace", "kineto"]}
    assert [finding.reason for finding in gathered.findings] == ["assumed_rank"]
    graph = gathered.store.get(gathered.ranks[1].graph) if gathered.ranks[1].graph else None
    assert graph is not None
    assert {track.rank for track in graph.tracks} == {1}


@JOBS
def test_only_the_wanted_ranks_are_read(tmp_path: Path, jobs: int) -> None:
    for rank in range(5):
        write(tmp_path / f"rank{rank}.json", profile(rank))
    write(tmp_path / "rank9.json", b'{"schemaVersion": 1, "traceEvents": [{]')
    gathered = read_ranks(found(tmp_path), Processes(jobs), wanted=Numbers.parse("1,3-4", "--ranks"))
    assert formats(gathered) == {1: ["kineto"], 3: ["kineto"], 4: ["kineto"]}
    assert gathered.findings == []


def test_a_wanted_rank_that_is_not_there(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / f"rank{rank}.json", profile(rank))
    with pytest.raises(UsageError, match=r"there is no rank 3-99999999\. The inputs are of ranks 0-2\."):
        read_ranks(found(tmp_path), Processes(1), wanted=Numbers.parse("2-99999999", "--ranks"))


def test_a_rank_twice_among_ranks_that_are_not_wanted_does_not_matter(tmp_path: Path) -> None:
    write(tmp_path / "a" / "rank0.json", profile(0))
    write(tmp_path / "b" / "rank0.json", profile(0))
    write(tmp_path / "rank1.json", profile(1))
    assert formats(read_ranks(found(tmp_path), Processes(1), wanted=Numbers.of([1]))) == {1: ["kineto"]}
    with pytest.raises(RankConflictError, match=r"rank 0 has two files of format kineto: .*rank0\.json and"):
        read_ranks(found(tmp_path), Processes(1))


def compile_log(pid: int, at: float, rank: int | None = None) -> bytes:
    content = log(begin("dynamo", "0/0", at=at), artifact("x", "y", "0/0"), end("dynamo", "0/0", at=at + 1))
    content = (
        content.replace(b'"frame_id"', f'"rank": {rank}, "frame_id"'.encode())
        if rank is not None
        else content
    )
    return content.replace(b" 4711 ", f" {pid} ".encode())


@JOBS
def test_a_rank_has_a_compile_log_of_each_of_its_processes(tmp_path: Path, jobs: int) -> None:
    """One was forked, one ran before the job was started again, one began before the rank was known."""
    names = ("rank_0_a", "rank_0_b", "rank_0_c", "d")
    for name, pid, at in zip(names, (4200, 4201, 4100, 4200), (5, 5.5, 1, 3), strict=True):
        rank = 0 if name == "d" else None
        (tmp_path / f"dedicated_log_torch_trace_{name}.log").write_bytes(compile_log(pid, at, rank))
    write(tmp_path / "kineto_rank1.json", profile(1))
    gathered = read_ranks(found(tmp_path), Processes(jobs))
    assert formats(gathered) == {0: ["torch-trace"] * 4, 1: ["kineto"]}
    assert gathered.findings == []


@JOBS
def test_compile_logs_without_a_rank_are_of_the_only_rank(tmp_path: Path, jobs: int) -> None:
    for name, pid in (("a", 4200), ("b", 4201)):
        (tmp_path / f"dedicated_log_torch_trace_{name}.log").write_bytes(compile_log(pid, 1))
    gathered = read_ranks(found(tmp_path), Processes(jobs))
    assert formats(gathered) == {0: ["torch-trace"] * 2}
    assert [finding.reason for finding in gathered.findings] == ["assumed_rank"] * 2
    for rank in (1, 2):
        write(tmp_path / f"kineto_rank{rank}.json", profile(rank))
    again = read_ranks(found(tmp_path), Processes(jobs))
    assert formats(again) == {1: ["kineto"], 2: ["kineto"]}
    assert [finding.reason for finding in again.findings] == ["unknown_rank"] * 2


@JOBS
def test_events_that_nobody_asks_for_are_not_kept(tmp_path: Path, jobs: int) -> None:
    for rank in range(3):
        write(tmp_path / f"rank{rank}.json", profile(rank))
    gathered = read_ranks(found(tmp_path), Processes(jobs), with_events=False)
    assert [(rank.rank, rank.events, rank.graph) for rank in gathered.ranks] == [
        (r, 1, None) for r in range(3)
    ]


@JOBS
def test_many_small_sources_are_read_by_few_workers(tmp_path: Path, jobs: int) -> None:
    for rank in range(100):
        write(tmp_path / f"rank{rank}.json", profile(rank))
    gathered = read_ranks(found(tmp_path), Processes(jobs))
    assert [(rank.rank, rank.events) for rank in gathered.ranks] == [(rank, 1) for rank in range(100)]


# Sources that were made of others of the same rank.


def trace(format_name: str, *derived_from: str) -> RankTrace:
    made = TraceBuilder().trace()
    made.sources = [replace(made.source, path=f"{format_name}.json", format=format_name)]
    return replace(made, derived_from=frozenset(derived_from))


def test_what_was_made_of_another_source_is_passed_over_beside_it() -> None:
    profile, linked, other = trace("profile"), trace("linked", "profile"), trace("nodes")
    once, (finding,) = without_derived([linked, profile, other])
    assert once == [profile, other]
    assert (finding.reason, finding.source) == ("duplicate_source", "linked.json")
    assert "the profile file of rank 0 has the same events" in finding.message


def test_alone_it_is_used() -> None:
    linked, other = trace("linked", "profile"), trace("nodes")
    assert without_derived([linked, other]) == ([linked, other], [])
    assert without_derived([]) == ([], [])


def test_the_directory_of_a_linked_job_gives_each_event_once(tmp_path: Path) -> None:
    folder = samples.path("gpu_pair")
    for name in ("et_0.json.gz", "kineto_0.json.gz"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    merged = load(tmp_path, jobs=1)
    write_files(merged, tmp_path / "linked.rank0.json.gz", to="chakra-json", jobs=1)
    together = load(tmp_path, jobs=1)
    assert len(together) == len(merged)
    assert [
        finding.reason for finding in together.findings if finding.source.endswith("linked.rank0.json.gz")
    ] == ["duplicate_source"]


def test_beside_the_execution_trace_alone_its_operators_are_the_nodes(tmp_path: Path) -> None:
    folder = samples.path("gpu_pair")
    (tmp_path / "et_0.json.gz").write_bytes((folder / "et_0.json.gz").read_bytes())
    merged = load(et=folder / "et_0.json.gz", kineto=folder / "kineto_0.json.gz", jobs=1)
    write_files(merged, tmp_path / "linked.rank0.json.gz", to="chakra-json", jobs=1)
    together = load(tmp_path, jobs=1)
    (before, after) = (
        next(report for report in graph.reports[0] if report.relation == "same.et_kineto")
        for graph in (merged, together)
    )
    assert after.linked == before.linked
    assert len(together.collectives) == len(merged.collectives)
    assert int((together.events.kind == EventKind.KERNEL).sum()) == int(
        (merged.events.kind == EventKind.KERNEL).sum()
    )


# Recordings of one job lie at one time.


SECOND = 10**9


def test_ranks_that_overlap_or_follow_each_other_within_a_minute_are_of_one_job() -> None:
    assert (
        two_jobs_findings(
            [(0, 100 * SECOND, 0), (50 * SECOND, 90 * SECOND, 1), (159 * SECOND, 200 * SECOND, 2)], ""
        )
        == []
    )


def test_more_than_a_minute_between_them_is_between_two_jobs() -> None:
    (finding,) = two_jobs_findings([(400 * SECOND, 500 * SECOND, 1), (0, 100 * SECOND, 0)], "Take one.")
    assert finding.message == (
        "Rank 1 starts 300 s after rank 0 ended: these seem to be recordings of two jobs. Take one."
    )
