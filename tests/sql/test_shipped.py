"""Queries that come with tracelink: their numbers are those of `summary`, `collectives` and the graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


import tracelink
from builders.data import foreign, traces
from tracelink import samples
from tracelink._api.functions import linked_job
from tracelink._model.errors import UsageError
from tracelink._sql.shipped import ShippedQuery, shipped_queries, value_of

GPU_PAIR = samples.path("gpu_pair")


def rows(source: Path, name: str, **parameters: Any) -> list[dict[str, Any]]:
    found = tracelink.query(source, name=name, parameters={"limit": 1000, **parameters})
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows()]


def only(row: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


@pytest.fixture(scope="module")
def summary() -> tracelink.Summary:
    return tracelink.summary(GPU_PAIR)


def test_each_query_says_what_it_answers() -> None:
    known = shipped_queries()
    assert len(known) == 12
    for query in known.values():
        assert query.title.endswith("?")
        assert query.text
        assert "limit" in [parameter.name for parameter in query.parameters]


def test_top_kernels(source: Path, summary: tracelink.Summary) -> None:
    expected = [(row.name, row.count, row.total_ns, row.communication) for row in summary.kernels]
    found = [only(row, "name", "count", "total_ns", "communication") for row in rows(source, "top-kernels")]
    assert sorted(found) == sorted(expected)
    assert found[0] == expected[0]
    assert len(rows(source, "top-kernels", limit=3)) == 3
    assert all(row["ranks"] == 1 for row in rows(source, "top-kernels", rank=1))


def test_exposed_communication(source: Path, summary: tracelink.Summary) -> None:
    names = ("rank", "step", "duration_ns", "communication_ns", "exposed_ns")
    assert sorted(only(row, *names) for row in rows(source, "exposed-communication")) == [
        (rank.rank, step.step, step.duration_ns, step.communication_ns, step.exposed_communication_ns)
        for rank in summary.ranks
        for step in rank.steps
    ]


def check_breakdown(traces: Path) -> None:
    names = (
        *("rank", "step", "start_ns", "duration_ns", "compute_ns", "exposed_communication_ns"),
        *("exposed_copy_ns", "idle_ns", "communication_ns", "copy_ns"),
    )
    summary = tracelink.summary(traces)
    columns = summary.table("steps").columns
    work = {rank.rank: rank.work.value for rank in summary.ranks}
    expected = [(*row, work[row[0]]) for row in zip(*(columns[name].tolist() for name in names), strict=True)]
    statement = f"SELECT {', '.join(names)}, work FROM breakdown ORDER BY rank, start_ns"
    assert tracelink.query(traces, statement).rows() == expected


SHARED = (
    *("kineto/h100_qwen.json.gz", "kineto/mi300_resnet.json.gz", "kineto/resnet50_2021.json.gz"),
    *("kineto/cuda_graphs.json.gz", "kineto/four_ranks_derived", "pairs/dlrm8", "pairs/torch213_gloo2"),
)


@pytest.mark.parametrize(
    "path", ["gpu_pair", "cpu_job", "gpu_2021", "gpu_rocm", "data_parallel", *foreign(*SHARED)]
)
def test_the_breakdown_is_that_of_the_summary(path: str) -> None:
    check_breakdown(traces(path))


def test_step_times(source: Path, summary: tracelink.Summary) -> None:
    steps = {step.step: [] for rank in summary.ranks for step in rank.steps}
    for rank in summary.ranks:
        for step in rank.steps:
            steps[step.step].append((step.duration_ns, rank.rank))
    assert [
        only(row, "step", "slowest_ns", "fastest_ns", "slowest_rank") for row in rows(source, "step-times")
    ] == [(number, max(times)[0], min(times)[0], max(times)[1]) for number, times in steps.items()]


def test_idle_gaps(source: Path, summary: tracelink.Summary) -> None:
    found = rows(source, "idle-gaps")
    assert all(row["gap_ns"] >= row["late_ns"] >= 0 for row in found)
    for rank in summary.ranks:
        assert rank.recording is not None
        assert sum(row["gap_ns"] for row in found if row["rank"] == rank.rank) == rank.recording.idle_ns
    assert {row["caller"] for row in found[:2]} == {"aten::copy_"}


def test_launch_delays(source: Path) -> None:
    graph = tracelink.load(GPU_PAIR)
    edges = graph.edges.where("launches")
    work = graph.events.of_kind("kernel", "memcpy", "memset")[edges.target]
    delays = (graph.events.start[edges.target] - graph.events.start[edges.source])[work]
    found = rows(source, "launch-delays")
    assert sum(row["launches"] for row in found) == len(delays)
    assert sum(row["total_ns"] for row in found) == int(delays.sum())
    assert max(row["longest_ns"] for row in found) == int(delays.max())


def test_operators_by_self_time(source: Path) -> None:
    graph = tracelink.load(GPU_PAIR)
    calls = graph.edges.where("calls")
    own = graph.events.duration.copy()
    np.subtract.at(own, calls.source, graph.events.duration[calls.target])
    expected: dict[str, tuple[int, int, int]] = {}
    for row in graph.find(kind="operator").tolist():
        count, self_ns, total = expected.get(graph.name(row), (0, 0, 0))
        expected[graph.name(row)] = (
            count + 1,
            self_ns + int(own[row]),
            total + int(graph.events.duration[row]),
        )
    found = rows(source, "operators-by-self-time")
    assert {row["name"]: only(row, "count", "self_ns", "total_ns") for row in found} == expected
    assert [row["self_ns"] for row in found] == sorted((row["self_ns"] for row in found), reverse=True)


def test_slowest_collectives(source: Path) -> None:
    job = linked_job(GPU_PAIR).table("collectives")
    order = np.argsort(-job["duration"], kind="stable")
    found = [
        only(row, "sequence", "operation", "duration_ns", "skew_ns", "last_rank")
        for row in rows(source, "slowest-collectives")
    ]
    names = ("sequence", "operation", "duration", "skew", "last_rank")
    assert found == [tuple(job[name].tolist()[row] for name in names) for row in order.tolist()]


def test_late_ranks(source: Path, summary: tracelink.Summary) -> None:
    found = {
        row["rank"]: only(row, "last", "others_waited_ns", "waited_ns") for row in rows(source, "late-ranks")
    }
    assert summary.communication is not None
    assert found == {row.rank: (row.last, row.caused_ns, row.waited_ns) for row in summary.communication.late}


def test_communication_by_group(source: Path, summary: tracelink.Summary) -> None:
    names = ("group_name", "operation", "bytes", "count", "residence_ns", "wait_ns")
    expected = {only({name: getattr(row, name) for name in names}, *names) for row in summary.collectives}
    assert {only(row, *names) for row in rows(source, "communication-by-group")} == expected


def test_memory_peaks(source: Path) -> None:
    graph = tracelink.load(GPU_PAIR)
    found = rows(source, "memory-peaks")
    operators = graph.find(kind="operator")
    for row in found:
        (track,) = (
            index
            for index, track in enumerate(graph.tracks)
            if (track.rank, track.identity) == (row["rank"], row["counter"])
        )
        samples_of = graph.counters.track == track
        assert row["peak_bytes"] == graph.counters.value[samples_of].max()
        assert row["peak_ns"] in graph.counters.time[samples_of]
        own = operators[graph.rank_of_events()[operators] == row["rank"]]
        before = own[graph.events.start[own] <= row["peak_ns"]]
        last = before[graph.events.start[before].argmax()] if len(before) else None
        assert row["after_operator"] == (None if last is None else graph.name(int(last)))
    assert len(found) == 4


def test_compile_costs(tmp_path: Path) -> None:
    tracelink.merge(samples.path("compile_job"), output=tmp_path / "job.parquet")
    found = rows(tmp_path / "job.parquet", "compile-costs")
    graph = tracelink.load(samples.path("compile_job"))
    phases = graph.key("compile_id")
    of_compiler = graph.events.of_kind("compilation")[phases.rows]
    assert sum(row["phases"] for row in found) == int(np.count_nonzero(of_compiler))
    assert sum(row["ran"] for row in found) == len(graph.edges.where("compiles"))
    assert only(found[0], "rank", "compile_id", "phases", "duration_ns") == (1, "0/0", 94, 62741317600)


def test_link_coverage(source: Path) -> None:
    graph = tracelink.load(GPU_PAIR)
    expected: dict[str, list[int]] = {}
    for reports in graph.reports.values():
        for report in reports:
            sums = expected.setdefault(report.relation, [0, 0])
            sums[0] += report.linked
            sums[1] += report.candidates
    found = {row["relation"]: [row["linked"], row["candidates"]] for row in rows(source, "link-coverage")}
    assert found == expected


# Names and parameters.


def test_an_unknown_name_or_parameter_is_an_error(source: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no query 'top-kernel'. Did you mean top-kernels\?"):
        tracelink.query(source, name="top-kernel")
    with pytest.raises(UsageError, match=r"top-kernels has no parameter 'limits'. Did you mean limit\?"):
        tracelink.query(source, name="top-kernels", parameters={"limits": 3})


def test_comments_of_a_query_are_its_description() -> None:
    sql = "-- Which?\n--\n-- One\n-- two.\n-- $limit = 20: rows\n-- $share = 0.5: part\n-- $rank = null: only\nSELECT 1"
    query = ShippedQuery.parsed("which", sql)
    assert (query.title, query.text, query.sql) == ("Which?", "One two.", sql)
    assert [(each.name, each.default, each.text) for each in query.parameters] == [
        ("limit", 20, "rows"),
        ("share", 0.5, "part"),
        ("rank", None, "only"),
    ]


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("-0.5", -0.5), ("null", None), ("x1", "x1"), ("1e3", "1e3")]
)
def test_values_of_parameters(text: str, value: Any) -> None:
    assert value_of(text) == value
