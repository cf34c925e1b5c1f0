"""Graphs that were written as tables and read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from typing import Any

import numpy as np

import tracelink
from builders.data import foreign, traces
from builders.job import JobBuilder
from tracelink import samples
from tracelink._api.functions import linked_job
from tracelink._model.events import EventKind, Key, Relation, TrackKind
from tracelink._model.graph import EventGraph
from tracelink._model.trace import TEXT_KEYS


def assert_same_graph(graph: EventGraph, expected: EventGraph, *, arguments: bool = True) -> None:
    """Every table, key, edge, sample and report is equal; and so are the arguments of all events."""
    for name in EventGraph.tables:
        columns, of = graph.table(name).columns, expected.table(name).columns
        assert list(columns) == list(of)
        for column in of:
            assert (name, column, listed(columns[column])) == (name, column, listed(of[column]))
    assert keys_of(graph) == keys_of(expected)
    assert graph.bounds == expected.bounds
    assert list(graph.sources) == list(expected.sources)
    assert list(graph.tracks) == list(expected.tracks)
    assert reports_of(graph) == reports_of(expected)
    if arguments:
        rows = np.arange(len(expected))
        assert graph.arguments(rows) == expected.arguments(rows)


def listed(column: Any) -> list[Any]:
    """The values of a column, in which unknown ones are None."""
    values = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return [None if isinstance(value, float) and np.isnan(value) else value for value in values]


def keys_of(graph: EventGraph) -> dict[Key, list[tuple[int, Any]]]:
    """The rows and values of all link keys that events have, with text in place of codes."""
    found = {}
    for key, column in graph.keys.items():
        values = column.values.tolist()
        if key in TEXT_KEYS:
            values = [graph.strings[code] for code in values]
        if len(column):
            found[key] = list(zip(column.rows.tolist(), values, strict=True))
    return found


def reports_of(graph: EventGraph) -> dict[int, list[tuple[Any, ...]]]:
    """The link reports of each rank as plain values."""
    return {
        rank: [
            (each.relation, each.linked, each.candidates, dict(each.unlinked), dict(each.notes))
            for each in reports
        ]
        for rank, reports in graph.reports.items()
        if reports
    }


NAMES = ["job.parquet", "job.duckdb"]
SHARED = [
    "matched8",
    "kineto/nccl_data.json.gz",
    "kineto/four_ranks_derived",
    "pairs/dlrm8",
    "fr/straggler/dumps_hang",
    "fr/truncated/dumps",
    "torch_trace",
    "nsys/public",
    "nsys/v2023",
]
JOBS = [name for name in samples.names() if name != "gpu_metrics"]


@pytest.mark.parametrize(
    ("job", "name"),
    [*((job, "job.parquet") for job in JOBS), *((job, "job.duckdb") for job in ("gpu_pair", "hung_job"))],
)
def test_samples(tmp_path: Path, job: str, name: str) -> None:
    tracelink.merge(samples.path(job), output=tmp_path / name, options={"args": "all"})
    assert_same_graph(tracelink.load(tmp_path / name), tracelink.load(samples.path(job)))


@pytest.mark.parametrize("name", NAMES)
def test_metrics_of_a_job(tmp_path: Path, name: str) -> None:
    paths = [samples.path("gpu_pair"), samples.path("gpu_metrics")]
    metrics = tracelink.Metrics("UTC")
    tracelink.merge(paths, output=tmp_path / name, metrics=metrics, options={"args": "all"})
    assert_same_graph(tracelink.load(tmp_path / name), tracelink.load(paths, metrics=metrics))
    job, expected = linked_job(tmp_path / name), linked_job(paths, metrics=metrics)
    assert job.metric_tracks == expected.metric_tracks
    assert job.metrics.value.tolist() == expected.metrics.value.tolist()


@pytest.mark.parametrize("path", ["cluster", "gpu_2021", "gpu_rocm", "gloo/truncated", *foreign(*SHARED)])
def test_jobs(tmp_path: Path, path: str) -> None:
    tracelink.merge(traces(path), output=tmp_path / "job.parquet", options={"args": "all"})
    assert_same_graph(tracelink.load(tmp_path / "job.parquet"), tracelink.load(traces(path)))


@pytest.mark.parametrize("name", NAMES)
def test_a_timeline_of_tables_is_that_of_the_traces(tmp_path: Path, name: str) -> None:
    tracelink.merge(samples.path("gpu_pair"), output=tmp_path / name, options={"args": "all"})
    for source, output in ((tmp_path / name, "tables.json"), (samples.path("gpu_pair"), "traces.json")):
        tracelink.merge(source, output=tmp_path / output)
    assert (tmp_path / "tables.json").read_bytes() == (tmp_path / "traces.json").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_answers_of_tables_are_those_of_the_traces(tmp_path: Path, name: str) -> None:
    tracelink.merge(samples.path("gpu_pair"), output=tmp_path / name)
    found, expected = (tracelink.summary(path) for path in (tmp_path / name, samples.path("gpu_pair")))
    assert found.critical_path == expected.critical_path
    for table in ("steps", "kernels", "breakdown"):
        assert found.table(table) == expected.table(table)
    assert tracelink.clocks(tmp_path / name).ranks == tracelink.clocks(samples.path("gpu_pair")).ranks


def test_missing_arguments_are_reported_where_they_are_shown(tmp_path: Path) -> None:
    dataset = tmp_path / "job.parquet"
    tracelink.merge(samples.path("gpu_pair"), output=dataset)
    without = tmp_path / "none.parquet"
    tracelink.merge(samples.path("gpu_pair"), output=without, options={"args": "none"})
    assert any("critical path can be wrong" in note.message for note in tracelink.summary(without).findings)
    (missing,) = linked_job(dataset).missing_arguments
    assert missing in tracelink.merge(dataset, output=tmp_path / "job.json").findings
    assert missing.message in [note.message for note in tracelink.summary(dataset, shapes=True).findings]
    assert missing.message not in [note.message for note in tracelink.summary(dataset).findings]


# Graphs by hand.

texts = st.text(max_size=8)
events = st.lists(
    st.tuples(
        texts,
        st.one_of(st.none(), st.integers(0, 10**6)),
        st.integers(-1, 1000),
        st.sampled_from(EventKind),
        st.one_of(
            st.none(), st.dictionaries(texts, st.one_of(st.integers(-(2**53), 2**53), texts), max_size=2)
        ),
        st.dictionaries(
            st.sampled_from([Key.CORRELATION, Key.NODE_ID, Key.FLOW_OUT]), st.integers(-(2**62), 2**62)
        ),
        st.dictionaries(st.sampled_from([Key.GROUP, Key.STATE]), texts),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=10)
@given(ranks=st.lists(events, min_size=1, max_size=3), links=st.data())
def test_any_graph(
    tmp_path_factory: pytest.TempPathFactory, ranks: list[list[tuple]], links: st.DataObject
) -> None:
    builder = JobBuilder()
    for rank, rows in enumerate(ranks):
        track = builder.track(rank=rank, label=links.draw(texts))
        builder.track(TrackKind.COUNTER, rank, identity=links.draw(texts))
        first = len(builder.rows)
        for name, start, duration, kind, arguments, numbers, codes in rows:
            keys = {**numbers, **codes}
            builder.add(track, name, start, duration if start is not None else -1, kind, arguments, keys)
        for _ in rows[1:]:
            ends = st.integers(first, len(builder.rows) - 1)
            builder.edge(links.draw(ends), links.draw(st.sampled_from(Relation)), links.draw(ends))
    graph = builder.build()
    folder = tmp_path_factory.mktemp("any") / "job.parquet"
    tracelink.merge(graph, folder, options={"args": "all"}, jobs=1)
    assert_same_graph(tracelink.load(folder, jobs=1), graph)
