"""`tracelink._api`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import tracelink
from builders import execution_trace as et
from builders import recorder
from builders.data import foreign, traces
from builders.kineto import arrow, cpu_op, kernel, launch, trace, write
from builders.plugin import notes_installed
from tracelink import (
    EventKind,
    RankConflictError,
    Relation,
    Severity,
    UnreadableError,
    UsageError,
    plugins,
    samples,
)
from tracelink._api.functions import linked_job
from tracelink.plugins import registry

# What harnesses call: load, inspection, write, merge.


CALL = launch(12, 2, correlation=7)
WORK = kernel("add_kernel", 20, 4, correlation=7)


def profile(rank: int | None = None) -> bytes:
    """An operator that launches a kernel."""
    operator = cpu_op("aten::add", 10, 5, Record_function_id=9)
    return trace(operator, CALL, WORK, *arrow(CALL, WORK, 7), rank=rank, host_name=f"node{rank}")


def nodes() -> bytes:
    return et.trace(et.thread_root(2), et.node(3, "aten::add", handle=9), et.process_root())


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Profile and nodes of two ranks."""
    for rank in (0, 1):
        write(tmp_path / "job" / f"kineto_rank{rank}.json.gz", profile(rank))
        write(tmp_path / "job" / f"et_rank{rank}.json", nodes())
    return tmp_path / "job"


def edges(graph: tracelink.EventGraph) -> set[tuple[str, str, str, int]]:
    """Every edge as (from, relation, to, rank)."""
    rank = graph.rank_of_events()
    return {
        (graph.name(source), Relation(relation).name, graph.name(target), int(rank[source]))
        for source, target, relation in zip(
            graph.edges.source.tolist(),
            graph.edges.target.tolist(),
            graph.edges.relation.tolist(),
            strict=True,
        )
    }


@pytest.mark.parametrize("jobs", [None, 1, 2, 8])
def test_a_folder_becomes_one_graph(job: Path, jobs: int | None) -> None:
    graph = tracelink.load(job, jobs=jobs)
    assert [(rank.rank, rank.host, rank.world_size) for rank in graph.ranks] == [
        (0, "node0", 8),
        (1, "node1", 8),
    ]
    assert [source.format for source in graph.sources] == ["execution-trace", "kineto"] * 2 or [
        source.format for source in graph.sources
    ] == ["kineto", "execution-trace"] * 2
    assert sorted(graph.bounds) == list(graph.bounds)
    for rank in (0, 1):
        assert {
            ("aten::add", "CALLS", "cudaLaunchKernel", rank),
            ("cudaLaunchKernel", "LAUNCHES", "add_kernel", rank),
            ("aten::add", "SAME", "aten::add", rank),
        } <= edges(graph)
    assert [finding.reason for finding in graph.findings if finding.severity != Severity.INFO] == []


def test_no_edge_joins_two_ranks_by_accident(job: Path) -> None:
    graph = tracelink.load(job)
    rank = graph.rank_of_events()
    assert (rank[graph.edges.source] == rank[graph.edges.target]).all()


def test_paths_of_every_kind_and_number(job: Path) -> None:
    files = sorted(job.iterdir())
    alone = [tracelink.load(given) for given in (str(files[2]), files[2], [files[2]], job / "kineto_rank0*")]
    assert [len(graph) for graph in alone] == [3, 3, 3, 3]
    assert len(tracelink.load(files)) == len(tracelink.load(job))


def test_inputs_by_format(job: Path) -> None:
    graph = tracelink.load(kineto=job / "kineto_rank1.json.gz", et=[job / "et_rank1.json"])
    assert {source.format for source in graph.sources} == {"kineto", "execution-trace"}
    assert [rank.rank for rank in graph.ranks] == [1]
    with pytest.raises(UnreadableError, match="it has no 'traceEvents'") as caught:
        tracelink.load(kineto=job / "et_rank1.json")
    assert str(caught.value).endswith(
        "It was given as kineto, but looks like execution-trace: name it without its format."
    )


def test_ranks_as_the_user_says(tmp_path: Path) -> None:
    for name in ("x.json", "y.json"):
        write(tmp_path / name, profile())
    graph = tracelink.load(tmp_path, rank_of={"x.json": 4, "y.json": 2})
    assert [rank.rank for rank in graph.ranks] == [2, 4]
    with pytest.raises(UsageError, match=r"a rank is given for z\.json, which is not among"):
        tracelink.load(tmp_path, rank_of={"z.json": 1})


@pytest.mark.parametrize("given", [{"paths": True}, {"kineto": True}])
def test_a_rank_of_the_user_overrules_the_content(tmp_path: Path, given: dict[str, bool]) -> None:
    path = tmp_path / "kineto_rank0.json"
    write(path, profile(0))
    graph = tracelink.load(**dict.fromkeys(given, path), rank_of={path.name: 7})
    assert ([rank.rank for rank in graph.ranks], {track.rank for track in graph.tracks}) == ([7], {7})
    found = [finding for finding in graph.findings if finding.reason == "overruled_rank"]
    assert [(finding.severity, finding.message) for finding in found] == [
        (Severity.WARNING, f"{path}: read as rank 7, as requested; its content says rank 0."),
        (Severity.INFO, f"{path}: read as rank 7, as requested; its name says rank 0."),
    ]
    (inspected,) = tracelink.inspect(path, rank_of={path.name: 7}).sources
    assert inspected.rank == 7


def test_the_watcher_is_told_the_bytes(job: Path) -> None:
    told: list[int] = []
    tracelink.load(job, jobs=1, watch=told.append)
    assert told == sorted(told)
    assert told[-1] >= len(profile(0)) + len(profile(1))


def test_ranks_without_a_source_are_told(job: Path) -> None:
    (finding,) = [one for one in tracelink.load(job).findings if one.reason == "missing_ranks"]
    assert finding.message == "6 of 8 ranks have no source: 2-7."


@pytest.mark.parametrize(
    ("request_", "problem"),
    [({}, "no inputs"), ({"paths": "nowhere"}, "nowhere"), ({"paths": ".", "jobs": 0}, "0 jobs")],
)
def test_requests_that_make_no_sense(request_: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        tracelink.load(**request_)  # type: ignore[arg-type]


TABLES = (
    "events",
    "edges",
    "counters",
    "tracks",
    "ranks",
    "sources",
    "groups",
    "collectives",
    "participations",
    "messages",
    "findings",
)
NO_TIME = -(2**63)


@pytest.mark.parametrize("sample", samples.names())
def test_no_frame_of_a_sample_holds_a_sentinel(sample: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    graph = tracelink.load(samples.path(sample))
    found = []
    for table in TABLES:
        frame, arrow = graph.to_pandas(table), graph.to_arrow(table)
        for name in frame.columns:
            values = [*frame[name].dropna(), *arrow.column(name).drop_null().to_pylist()]
            found += [(table, name) for value in values if value in (-1, NO_TIME, "")]
    # the profiler numbers the stream of waits for all streams -1, and sorts it first
    assert set(found) <= {("tracks", "sort")}
    frame = graph.to_pandas("events")
    assert frame["duration"].sum() == sum(value for value in graph.events.duration.tolist() if value >= 0)
    if len(frame):
        assert frame["start"].min() == graph.span[0]


@pytest.mark.parametrize(
    ("made", "begin"),
    [
        (lambda job: tracelink.load(job), "<EventGraph: "),
        (lambda job: linked_job(job), "<Job: "),
        (lambda job: tracelink.inspect(job), "<Inspection: 4 sources"),
        (lambda job: tracelink.clocks(job), "<Clocks: The clocks of 2 ranks have no offsets."),
        (lambda job: tracelink.merge(job, output=job / "m.json"), "<Merged"),
        (
            lambda job: tracelink.merge(job / "et_rank0.json", output=job / "o.json", to="chakra-json"),
            "<Merged",
        ),
    ],
)
def test_results_are_a_few_lines_in_an_interpreter(
    job: Path, made: Callable[[Path], object], begin: str
) -> None:
    shown = repr(made(job))
    assert shown.startswith(begin)
    assert shown.count("\n") < 4
    assert len(shown) < 1_000


@pytest.mark.parametrize(("wanted", "ranks"), [("1", [1]), ([0, 1], [0, 1])])
def test_a_selection_of_ranks(job: Path, wanted: str | list[int], ranks: list[int]) -> None:
    assert [rank.rank for rank in tracelink.load(job, ranks=wanted).ranks] == ranks


def test_an_unknown_option_is_refused_at_once(job: Path) -> None:
    with pytest.raises(TypeError, match=r"there is no option 'rank'\. Did you mean ranks"):
        tracelink.load(job, rank="0-1")  # type: ignore[call-arg]


def test_an_inspection_reports_what_load_refuses(job: Path) -> None:
    write(job / "again_rank1.json", profile(1))
    write(job / "kineto_rank5.json", profile(3))
    with pytest.raises(RankConflictError):
        tracelink.load(job)
    inspection = tracelink.inspect(job)
    assert len(inspection.sources) == 6
    assert {finding.reason for finding in inspection.findings} >= {"rank_conflict"}


def test_an_inspection_of_a_good_job_has_no_warnings(job: Path) -> None:
    inspection = tracelink.inspect(job)
    assert sorted((source.format, source.rank) for source in inspection.sources) == [
        ("execution-trace", 0),
        ("execution-trace", 1),
        ("kineto", 0),
        ("kineto", 1),
    ]
    assert [finding for finding in inspection.findings if finding.severity != Severity.INFO] == []


def test_clocks_are_those_of_the_job_and_can_be_given_to_load(job: Path) -> None:
    clocks = tracelink.clocks(job, clock="collectives")
    loaded = tracelink.load(job, clock="collectives")
    assert list(clocks.ranks) == [rank.clock for rank in loaded.ranks]
    assert list(clocks.findings) == list(loaded.findings)
    again = tracelink.load(job, clock=clocks)
    assert again.ranks == loaded.ranks
    assert len(again.findings) <= len(loaded.findings)


def test_a_merge_is_a_load_and_a_write(job: Path, tmp_path: Path) -> None:
    merged = tracelink.merge(job, output=tmp_path / "one.json")
    tracelink.merge(tracelink.load(job), tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    (output,) = merged.outputs
    assert (output.path, output.format, output.rank) == (str(tmp_path / "one.json"), "perfetto-json", None)
    assert output.bytes == (tmp_path / "one.json").stat().st_size
    assert set(linked_job(job).findings) <= set(merged.findings)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("to", ["perfetto", "perfetto-json", "chakra", "chakra-json"])
def test_an_input_that_changes_between_reading_and_writing_is_an_error_and_nothing_is_written(
    tmp_path: Path, to: str, compressed: bool
) -> None:
    changed = tmp_path / ("k_0.json.gz" if compressed else "k_0.json")
    write(changed, profile(0))
    write(tmp_path / "et_0.json", nodes())
    graph = tracelink.load([changed, tmp_path / "et_0.json"])
    write(changed, profile(1))
    write(tmp_path / "et_0.json", b" " + nodes())
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(UnreadableError, match="was changed since it was first read") as caught:
        tracelink.merge(graph, folder / "out", to=to)
    assert caught.value.source in (str(changed), str(tmp_path / "et_0.json"))
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_a_dump_that_changes_after_it_was_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "comm_lib_trace_rank_0"
    path.write_bytes(recorder.pickled(recorder.dump(recorder.collective())))
    graph = tracelink.load(path)
    path.write_bytes(recorder.pickled(recorder.dump(recorder.collective(), recorder.collective(sequence=2))))
    with pytest.raises(UnreadableError, match="was changed since it was first read"):
        tracelink.merge(graph, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_a_bundle_of_files_that_changed_is_not_written(tmp_path: Path) -> None:
    changed = tmp_path / "k_0.json"
    write(changed, profile(0))

    def change(_: int) -> None:
        if changed.stat().st_mtime_ns:
            os.utime(changed, ns=(0, 0))

    with pytest.raises(UnreadableError, match="was changed since it was first read"):
        tracelink.merge(tmp_path, output=tmp_path / "out.tar", to="perfetto-bundle", watch=change, jobs=1)
    assert not (tmp_path / "out.tar").exists()


def test_an_input_that_unpacks_to_more_than_allowed_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "k_0.json.gz", profile(0))
    assert tracelink.load(tmp_path, max_unpacked=10_000).ranks
    for read in (tracelink.load, tracelink.inspect, tracelink.collectives, tracelink.clocks):
        with pytest.raises(UnreadableError, match=r"it has more than 300 B uncompressed\. .* --max-unpacked"):
            read(tmp_path, max_unpacked=300)
    with pytest.raises(UnreadableError, match="it has more than 300 B uncompressed"):
        tracelink.merge(tmp_path / "k_0.json.gz", output=tmp_path / "x.json", max_unpacked=300)


def test_what_was_written_can_be_read_again(job: Path, tmp_path: Path) -> None:
    tracelink.merge(job / "kineto_rank1.json.gz", output=tmp_path / "rank1.json.gz")
    again = tracelink.load(tmp_path / "rank1.json.gz")
    kinds = {(again.name(row), EventKind(kind)) for row, kind in enumerate(again.events.kind.tolist())}
    assert kinds >= {
        ("aten::add", EventKind.OPERATOR),
        ("cudaLaunchKernel", EventKind.RUNTIME),
        ("add_kernel", EventKind.KERNEL),
    }


def test_no_input_is_overwritten(job: Path, tmp_path: Path) -> None:
    profile = job / "kineto_rank0.json.gz"
    before = profile.read_bytes()
    for run in (
        lambda: tracelink.merge(job, output=profile),
        lambda: tracelink.merge([profile], output=os.path.relpath(profile)),
    ):
        with pytest.raises(tracelink.UsageError, match="is one of the inputs"):
            run()
    native = tmp_path / "job.pftrace"
    tracelink.merge(job, output=native)
    with pytest.raises(tracelink.UsageError, match="is one of the inputs"):
        tracelink.merge(native, output=native)
    assert profile.read_bytes() == before


def test_what_was_merged_in_a_folder_is_passed_over_and_merged_again(job: Path) -> None:
    outputs = [job / "merged.json", job / "merged.pftrace"]
    for output in outputs:
        tracelink.merge(job, output=output)
    before = [output.read_bytes() for output in outputs]
    again = [tracelink.merge(job, output=output) for output in outputs]
    assert [output.read_bytes() for output in outputs] == before
    assert {"skipped", "duplicate_source"} <= {
        finding.reason for merged in again for finding in merged.findings
    }


def test_a_timeline_of_several_ranks_cannot_be_taken_apart(job: Path, tmp_path: Path) -> None:
    tracelink.merge(job, output=tmp_path / "merged.json")
    with pytest.raises(tracelink.TraceError, match="that tracelink wrote; its ranks cannot be separated"):
        tracelink.load(tmp_path / "merged.json")


def test_a_folder_that_is_missing_is_told_before_anything_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    with pytest.raises(tracelink.TraceError) as raised:
        tracelink.merge(tmp_path / "nothing", output=folder / "merged.json")
    assert str(raised.value) == (
        f"{folder / 'merged.json'}: cannot be written: there is no folder {folder}. Make it: mkdir -p '{folder}'"
    )


def test_a_suffix_that_no_format_has_is_not_taken_for_one(tmp_path: Path) -> None:
    with pytest.raises(tracelink.UsageError, match=r"no format has names that end in \.pftrce"):
        tracelink.merge(tmp_path / "nothing", output=tmp_path / "job.pftrce")


def test_a_file_of_another_kind_is_not_overwritten(job: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(tracelink.UsageError, match=r"no format has names that end in \.txt"):
        tracelink.merge(job, output=notes)
    assert notes.read_text() == "mine"


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no writer 'telepathy'"):
        tracelink.merge(tmp_path / "nowhere", output=tmp_path / "out.json", to="telepathy")


def test_nothing_is_written_where_nothing_can_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", b'{"traceEvents": 5}')
    with pytest.raises(UnreadableError):
        tracelink.merge(path, output=tmp_path / "out.json")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_every_public_name_is_there_and_importing_costs_nothing() -> None:
    assert all(getattr(tracelink, name) for name in tracelink.__all__)
    assert dir(tracelink) == sorted(tracelink.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = tracelink.nonsense
    text = "import sys, tracelink; print('numpy' in sys.modules, 'click' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.split() == ["False", "False"]


def test_arguments_of_a_merged_job_are_those_of_the_files(job: Path) -> None:
    graph = tracelink.load(job)
    (row,) = [
        row for row in range(len(graph)) if graph.name(row) == "add_kernel" and graph.rank_of_events()[row]
    ]
    assert graph.arguments(row) == WORK["args"]


@pytest.mark.parametrize("path", ["data_parallel", *foreign("kineto/four_ranks_derived")])
def test_a_job_of_four_ranks(path: str) -> None:
    graph = tracelink.load(traces(path))
    assert [rank.rank for rank in graph.ranks] == [0, 1, 2, 3]
    assert len(graph) == sum(source.events for source in graph.sources)
    assert (
        json.dumps([finding.message for finding in graph.findings if finding.severity == Severity.ERROR])
        == "[]"
    )


# Files that are rewritten as they are, without a graph: when that happens, and when not.


WOKEN = b"#notes 0\n1000 0 wake\n5000 7 think"
LISTED = b"- 1000 0 wake\n- 5000 7 think\n"


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of somebody's format, from which a conversion leads to lists."""
    monkeypatch.syspath_prepend(str(notes_installed(tmp_path / "site")))
    monkeypatch.setattr(registry, "installed", cache(plugins.installed.__wrapped__))
    return write(tmp_path / "a.notes", WOKEN)


@pytest.mark.parametrize("name", ["a.md", "a.list.json"])
def test_the_name_of_the_output_says_it(notes: Path, tmp_path: Path, name: str) -> None:
    result = tracelink.merge(notes, output=tmp_path / name)
    assert not result.ranks
    assert [(output.path, output.format) for output in result.outputs] == [
        (str(tmp_path / name), "notes-markdown")
    ]
    assert (tmp_path / name).read_bytes() == LISTED


def test_the_format_that_is_asked_for_says_it(notes: Path, tmp_path: Path) -> None:
    tracelink.merge(notes, output=tmp_path / "out", to="notes-markdown")
    assert (tmp_path / "out").read_bytes() == LISTED


def test_a_writer_that_is_asked_for_gets_a_graph(notes: Path, tmp_path: Path) -> None:
    result = tracelink.merge(notes, output=tmp_path / "a.list.json", to="perfetto-json")
    assert [rank.events for rank in result.ranks] == [2]
    assert json.loads((tmp_path / "a.list.json").read_bytes())["traceEvents"]


@pytest.mark.parametrize(("name", "to"), [("out", "notes-markdown"), ("out.list.json", None)])
def test_inputs_of_other_formats_are_refused_in_words(
    notes: Path, tmp_path: Path, name: str, to: str | None
) -> None:
    profile = write(tmp_path / "k.json", trace(cpu_op("aten::add", 2), rank=0))
    with pytest.raises(UsageError, match=r"notes-markdown is made of notes, and .*k\.json is kineto"):
        tracelink.merge(profile, output=tmp_path / name, to=to)


def test_an_unknown_format_is_refused_in_words(notes: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no writer 'telepathy'"):
        tracelink.merge(notes, output=tmp_path / "out", to="telepathy")


def test_what_no_reader_recognises_cannot_be_rewritten(notes: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no reader recognises it"):
        tracelink.merge(write(tmp_path / "odd", b"odd"), output=tmp_path / "out.md")


def test_several_files_become_one_graph(notes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "both"
    write(folder / "0", WOKEN)
    write(folder / "1", WOKEN.replace(b"#notes 0", b"#notes 1"))
    result = tracelink.merge(folder, output=tmp_path / "out.json")
    assert [rank.events for rank in result.ranks] == [2, 2]
    with pytest.raises(UsageError, match="notes-markdown is made of one file of notes, and there are 2"):
        tracelink.merge(folder, output=tmp_path / "out.list.json")


def test_standard_input_is_read_once(notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for to in ("notes-markdown", "notes"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WOKEN)))
        tracelink.merge("-", output=tmp_path / to, to=to)
    assert (tmp_path / "notes-markdown").read_bytes() == LISTED
    assert (tmp_path / "notes").read_bytes() == WOKEN
