"""`tracelink._join.reading`."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from builders import execution_trace as et
from builders import recorder
from builders.inputs import found, tar, zipped
from builders.kineto import cpu_op, trace, write
from tracelink._io.sources import Discovery, Request, discover
from tracelink._join.ranks import StoredRanks, read_ranks
from tracelink._model.errors import RankConflictError, UnreadableError, UsageError
from tracelink._model.findings import Severity
from tracelink._model.graph import EventGraph
from tracelink._model.trace import SourceInfo
from tracelink._run.processes import Processes

JOBS = pytest.mark.parametrize("jobs", [1, 3])


def profile(rank: int | None = None, ts: int = 0, pid: int = 4200, **header: Any) -> bytes:
    """A window of one operator."""
    return trace(cpu_op("aten::add", ts, 5, pid=pid), rank=rank, **header)


def nodes() -> bytes:
    """An execution trace, which never says its rank; its process is 4200."""
    return et.trace(et.thread_root(2), et.node(3, handle=1), et.process_root())


def readings(discovery: Discovery, jobs: int = 1) -> StoredRanks:
    """The ranks of these sources."""
    return read_ranks(discovery, Processes(jobs))


def sources(result: StoredRanks) -> list[SourceInfo]:
    return [source for rank in result.ranks for source in rank.sources]


def graphs(result: StoredRanks) -> list[EventGraph]:
    """The ranks as they are kept."""
    return [result.store.get(rank.graph) for rank in result.ranks if rank.graph]


def ranks(result: StoredRanks) -> list[tuple[str, int | None]]:
    return [(Path(source.path).name, source.rank) for source in sources(result)]


def findings(result: StoredRanks) -> list[tuple[Severity, str, str]]:
    """What did not fit, apart from links."""
    found = [*result.findings, *(finding for rank in result.ranks for finding in rank.findings)]
    of_reading = [finding for finding in found if not finding.reason.startswith("unlinked")]
    return [(finding.severity, finding.reason, Path(finding.source).name) for finding in of_reading]


@JOBS
def test_formats_are_found_by_content(tmp_path: Path, jobs: int) -> None:
    write(tmp_path / "a0.txt", profile(0))
    write(tmp_path / "rank0.bin", nodes())
    result = readings(found(tmp_path), jobs)
    assert {(Path(s.path).name, s.format, s.rank) for s in sources(result)} == {
        ("a0.txt", "kineto", 0),
        ("rank0.bin", "execution-trace", 0),
    }
    assert findings(result) == []


@JOBS
def test_one_bad_file_never_costs_the_others(tmp_path: Path, jobs: int) -> None:
    write(tmp_path / "a.json", profile(0))
    write(tmp_path / "b.json", b'{"schemaVersion": 1, "deviceProperties": [')
    write(tmp_path / "c.json", b"")
    write(tmp_path / "d.json", profile(1)[:-30])
    write(tmp_path / "e.json", profile(2))
    write(tmp_path / "notes.txt", b"learning rate 0.1")
    result = readings(found(tmp_path), jobs)
    assert ranks(result) == [("a.json", 0), ("d.json", 1), ("e.json", 2)]
    assert findings(result) == [
        (Severity.ERROR, "unreadable", "c.json"),
        (Severity.INFO, "skipped", "notes.txt"),
        (Severity.ERROR, "unreadable", "b.json"),
        (Severity.WARNING, "truncated", "d.json"),
        (Severity.WARNING, "no_events", "d.json"),
    ]


@JOBS
def test_a_broken_member_of_an_archive_costs_only_itself(tmp_path: Path, jobs: int) -> None:
    members = {f"rank{rank}.json": profile(rank) for rank in range(4)}
    path = zipped(tmp_path / "a.zip", members, zipfile.ZIP_STORED)
    archive = bytearray(path.read_bytes())
    archive[archive.index(members["rank2.json"]) + 20] ^= 0xFF
    path.write_bytes(archive)
    result = readings(found(path), jobs)
    assert [source.rank for source in sources(result)] == [0, 1, 2, 3]
    assert {reason for _, reason, _ in findings(result)} <= {"truncated", "damaged"}
    assert {name for *_, name in findings(result)} == {"a.zip:rank2.json"}


@pytest.mark.parametrize("pack", [tar, zipped])
def test_members_of_an_archive_are_read_by_many_processes(tmp_path: Path, pack: Any) -> None:
    members = {
        f"{rank}.json": trace(*(cpu_op(f"rank {rank}", ts) for ts in range(5000)), rank=rank)
        for rank in range(6)
    }
    result = readings(found(pack(tmp_path / "archive", members)), jobs=3)
    assert [(g.ranks[0].rank, len(g), g.strings) for g in graphs(result)] == [
        (rank, 5000, [f"rank {rank}"]) for rank in range(6)
    ]
    assert result.findings == []


def test_nothing_readable_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", b'{"traceEvents": 5}')
    with pytest.raises(UnreadableError, match=r"a\.json: it has no 'traceEvents'"):
        read_ranks(found(path), Processes())


def test_nothing_readable_among_many_names_the_first_and_says_how_to_go_on(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write(tmp_path / name, b'{"traceEvents": 5}')
    with pytest.raises(
        UnreadableError, match=r"no input can be read \(2 files\); the first: .*a\.json"
    ) as caught:
        read_ranks(found(tmp_path), Processes())
    assert "tracelink inspect" in caught.value.advice


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=f"{tmp_path}: there are no files in it"):
        read_ranks(found(tmp_path), Processes())


def test_an_unknown_format_matters_where_the_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.json", profile(0))
    notes = write(tmp_path / "notes.txt", b"learning rate 0.1")
    named = readings(found(tmp_path / "a.json", notes))
    assert findings(named) == [(Severity.ERROR, "unknown_format", "notes.txt")]
    assert "Known formats: " in named.findings[0].message
    assert findings(readings(found(tmp_path))) == [(Severity.INFO, "skipped", "notes.txt")]


def test_files_that_come_with_traces_are_none(tmp_path: Path) -> None:
    write(tmp_path / "a.json", profile(0))
    for name in ("job.groups.json", "comm_group.json", "groups.json"):
        write(tmp_path / name, b'{"0": [0, 1]}')
    assert findings(readings(found(tmp_path))) == [
        (Severity.INFO, "companion", "comm_group.json"),
        (Severity.INFO, "skipped", "groups.json"),
        (Severity.INFO, "companion", "job.groups.json"),
    ]


XPLANE = b"\x0a\xa1\xf0\x08\x12\x0e/host:metadata" + bytes(3000)
ROCPD = b"SQLite format 3\0" + bytes(500) + b"CREATE TABLE rocpd_kernel_dispatch" + bytes(500)
KERNELS = (
    b'"Kind","Agent_Id","Queue_Id","Dispatch_Id","Kernel_Name"\n"KERNEL_DISPATCH","Agent 4",1,1,"gemm"\n'
)
API = b'"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp"\n"HIP","hipFree",1,1,1,5\n'


@pytest.mark.parametrize(
    ("name", "content", "what", "advice"),
    [
        ("host.xplane.pb", XPLANE, "a profile of JAX (XPlane)", "trace.json.gz"),
        ("renamed", XPLANE, "a profile of JAX (XPlane)", "trace.json.gz"),
        ("empty.xplane.pb", b"\x0a\x00", "a profile of JAX (XPlane)", "trace.json.gz"),
        ("1_results.json", b'{"rocprofiler-sdk-tool": [{}]}', "a JSON file of rocprof", "torch.profiler"),
        ("1_results.db", ROCPD, "a database (rocpd) of rocprof", "torch.profiler"),
        ("1_kernel_trace.csv", KERNELS, "a table of rocprof", "torch.profiler"),
        ("1_hip_api_trace.csv", API, "a table of rocprof", "torch.profiler"),
        (
            "results.csv",
            b'"Index","KernelName","gpu-id"\n0,"k.kd",0\n',
            "a table of rocprof",
            "torch.profiler",
        ),
    ],
)
def test_files_of_other_profilers_are_named_with_the_next_step(
    tmp_path: Path, name: str, content: bytes, what: str, advice: str
) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    path = write(folder / name, content)
    named = readings(found(write(tmp_path / "a.json", profile(0)), path))
    assert findings(named) == [(Severity.ERROR, "unknown_format", name)]
    message = named.findings[0].message
    assert message.startswith(f"{path}: {what}, which tracelink does not read")
    assert advice in message
    with pytest.raises(UnreadableError, match=re.escape(what)):
        read_ranks(found(folder), Processes())


def test_a_format_that_the_user_names_is_not_doubted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", nodes())
    with pytest.raises(UnreadableError, match="it has no 'traceEvents'"):
        read_ranks(discover(Request([(str(path), "kineto")])), Processes())
    with pytest.raises(UsageError, match="there is no reader 'telepathy'"):
        read_ranks(discover(Request([(str(path), "telepathy")])), Processes())


def test_a_single_file_that_says_no_rank_counts_as_rank_0(tmp_path: Path) -> None:
    result = readings(found(write(tmp_path / "trace.json", profile())))
    assert ranks(result) == [("trace.json", 0)]
    assert findings(result) == [(Severity.INFO, "assumed_rank", "trace.json")]


def test_a_file_without_a_rank_is_of_the_rank_of_its_process(tmp_path: Path) -> None:
    write(tmp_path / "a.json", profile(0, pid=4100))
    write(tmp_path / "b.json", profile(1, pid=4200))
    write(tmp_path / "nodes.json", nodes())
    result = readings(found(tmp_path))
    assert ranks(result) == [("a.json", 0), ("nodes.json", 1), ("b.json", 1)] or ranks(result) == [
        ("a.json", 0),
        ("b.json", 1),
        ("nodes.json", 1),
    ]
    assert findings(result) == [(Severity.INFO, "assumed_rank", "nodes.json")]
    assert "its process 4200 belongs to rank 1" in result.findings[0].message


def test_a_rank_that_nobody_knows_is_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path / "a.json", profile(0, pid=1))
    write(tmp_path / "b.json", profile(1, pid=2))
    write(tmp_path / "other.json", profile(pid=3))
    result = readings(found(tmp_path))
    assert ranks(result) == [("a.json", 0), ("b.json", 1)]
    assert findings(result) == [(Severity.ERROR, "unknown_rank", "other.json")]
    assert "--rank" in result.findings[0].message


def test_what_the_user_says_counts_where_nobody_else_says(tmp_path: Path) -> None:
    write(tmp_path / "a.json", profile())
    write(tmp_path / "b.json", profile())
    said = {"a.json": 7, "b.json": 2}
    result = readings(found(tmp_path, **said))
    assert ranks(result) == [("b.json", 2), ("a.json", 7)]
    assert {track.rank for track in graphs(result)[1].tracks} == {7}


def test_a_rank_that_content_and_name_contradict(tmp_path: Path) -> None:
    path = write(tmp_path / "rank3.json", profile(2))
    with pytest.raises(RankConflictError, match=r"rank3\.json: .*the content says 2, the name says 3"):
        readings(found(path))


def test_two_files_of_one_rank_and_format_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.json", profile(1, ts=0))
    write(tmp_path / "b.json", profile(1, ts=3))
    with pytest.raises(
        RankConflictError, match=r"rank 1 has two files of format kineto: .*a\.json and .*b\.json"
    ):
        readings(found(tmp_path))


def test_windows_of_one_profiler_one_after_the_other_are_one_rank(tmp_path: Path) -> None:
    write(tmp_path / "second.json", profile(1, ts=100))
    write(tmp_path / "first.json", profile(1, ts=0))
    result = readings(found(tmp_path))
    assert ranks(result) == [("first.json", 1), ("second.json", 1)]
    assert [rank.rank for rank in result.ranks] == [1]
    assert findings(result) == []


def test_windows_of_different_processes_are_no_windows(tmp_path: Path) -> None:
    write(tmp_path / "a.json", profile(1, ts=0, pid=1))
    write(tmp_path / "b.json", profile(1, ts=100, pid=2))
    with pytest.raises(RankConflictError, match="rank 1 has two files"):
        readings(found(tmp_path))


def test_dumps_of_two_attempts_are_no_windows(tmp_path: Path) -> None:
    """Dumps do not contain their process."""
    for number in (0, 1):
        entry = recorder.collective(created=recorder.CREATED + number * 10**10)
        write(tmp_path / f"attempt_{number}_rank_1", recorder.pickled(recorder.dump(entry)))
    with pytest.raises(RankConflictError, match="rank 1 has two files of format flight-recorder"):
        readings(found(tmp_path))


@JOBS
def test_one_directory_of_profiles_and_execution_traces_can_be_named_as_both(
    tmp_path: Path, jobs: int
) -> None:
    write(tmp_path / "k_0.json", profile(0))
    write(tmp_path / "et_0.json", nodes())
    found_twice = discover(Request([(str(tmp_path), "kineto"), (str(tmp_path), "execution-trace")]))
    result = readings(found_twice, jobs)
    assert (ranks(result), findings(result)) == ([("k_0.json", 0), ("et_0.json", 0)], [])


@JOBS
def test_what_a_directory_holds_beside_the_format_that_it_is_said_to_be_of(tmp_path: Path, jobs: int) -> None:
    write(tmp_path / "k_0.json", profile(0))
    write(tmp_path / "et_0.json", nodes())
    result = readings(discover(Request([(str(tmp_path), "kineto")])), jobs)
    assert ranks(result) == [("k_0.json", 0)]
    assert findings(result) == [(Severity.INFO, "other_format", "et_0.json")]


def test_a_file_that_is_named_is_of_the_format_that_it_is_said_to_be_of(tmp_path: Path) -> None:
    write(tmp_path / "et_0.json", nodes())
    with pytest.raises(UnreadableError, match="it has no 'traceEvents'"):
        readings(discover(Request([(str(tmp_path / "et_0.json"), "kineto")])))
