"""Tests of tracelink.Job: questions share what was read, and a part of a job is what reading only that part gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest

import tracelink
from tracelink import Job, samples
from tracelink._api import job as job_module

GPU_PAIR = samples.path("gpu_pair")


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ranks that were read, each time that ranks are read."""
    found: list[str] = []
    record = job_module.record

    def recorded(reading: Any, **options: Any) -> Any:
        found.append(str(reading.wanted))
        return record(reading, **options)

    monkeypatch.setattr(job_module, "record", recorded)
    return found


QUESTIONS: dict[str, Callable[[Job, Path], object]] = {
    "summary": lambda job, folder: job.summary(),
    "collectives": lambda job, folder: job.collectives.to_polars(),
    "clocks": lambda job, folder: job.clocks,
    "query": lambda job, folder: job.query("SELECT count(*) FROM events").rows(),
    "merge": lambda job, folder: job.merge(folder / "out.json"),
    "graph": lambda job, folder: job.graph,
    "what_if": lambda job, folder: job.what_if("communication free"),
    "diff": lambda job, folder: job.diff(job),
}


def test_many_questions_read_once(readings: list[str], tmp_path: Path) -> None:
    with Job(GPU_PAIR, jobs=1) as job:
        assert readings == []
        for ask in QUESTIONS.values():
            ask(job, tmp_path)
            ask(job, tmp_path)
        job.select(ranks="1", steps="2").summary()
        job.select(only="kernels").graph.find("gemm")
    assert readings == [""]


def test_a_selected_rank_is_read_alone(readings: list[str]) -> None:
    job = Job(GPU_PAIR, jobs=1)
    part = job.select(ranks=[1])
    assert [rank.rank for rank in part.ranks] == [1]
    assert len(part.summary().ranks) == 1
    assert [rank.rank for rank in job.ranks] == [0, 1]
    assert readings == ["1", ""]


def test_a_closed_job_reads_again(readings: list[str]) -> None:
    job = Job(GPU_PAIR, jobs=1)
    first = job.summary()
    job.close()
    assert job.summary() == first
    assert readings == ["", ""]


@pytest.mark.parametrize(
    "part",
    [
        {"ranks": "1"},
        {"ranks": [0], "steps": "2"},
        {"window": "500us..1ms"},
        {"ranks": "0-1", "steps": "1", "window": "..2ms"},
        {"only": "kernels,collectives"},
    ],
)
def test_a_part_of_what_was_read_is_what_reading_that_part_gives(
    part: dict[str, Any], tmp_path: Path
) -> None:
    whole = Job(GPU_PAIR, jobs=1)
    assert len(whole.graph)
    chosen, alone = whole.select(**part), Job(GPU_PAIR, jobs=1, **part)
    for table in ("ranks", "collectives", "participations", "messages", "findings"):
        assert chosen.table(table).to_arrow() == alone.table(table).to_arrow()
    outputs = [tmp_path / "one.json", tmp_path / "two.json"]
    for job, output in zip((chosen, alone), outputs, strict=True):
        job.merge(output)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    if "only" not in part:
        assert chosen.summary() == alone.summary() == tracelink.summary(GPU_PAIR, jobs=1, **part)
    count = "SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY kind"
    assert chosen.query(count).rows() == tracelink.query(GPU_PAIR, count, **part).rows()


def test_time_is_divided_among_all_kinds_of_events() -> None:
    job = Job(GPU_PAIR, only="kernels")
    for ask in (job.summary, lambda: job.what_if("communication free"), lambda: job.diff(GPU_PAIR)):
        with pytest.raises(tracelink.UsageError, match="there is no only here"):
            ask()


def test_a_rank_that_is_not_there(readings: list[str]) -> None:
    job = Job(GPU_PAIR, jobs=1)
    assert len(job.ranks) == 2
    with pytest.raises(tracelink.UsageError, match=r"there is no rank 7"):
        job.select(ranks="7").summary()


def test_a_job_of_a_graph(tmp_path: Path) -> None:
    graph = tracelink.load(GPU_PAIR)
    job = Job(graph, steps="2")
    assert job.summary().step_time == tracelink.summary(GPU_PAIR, steps="2").step_time
    assert Job(graph).graph is graph
    assert len(job.graph) < len(graph)
    assert job.merge(tmp_path / "part.json").ranks
    with pytest.raises(tracelink.UsageError, match="a graph in memory has no files"):
        job.diagnose()


WHOLE: dict[str, Callable[[Job], object]] = {
    "diagnose": lambda job: job.diagnose(),
    "compile": lambda job: job.compile(),
    "inspect": lambda job: job.inspect(),
    "validate": lambda job: job.validate(),
}


@pytest.mark.parametrize("ask", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("option", [{"ranks": "0"}, {"steps": "1"}, {"clock": "none"}])
def test_what_is_read_as_a_whole_refuses_a_part(ask: Callable[[Job], object], option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(tracelink.UsageError, match=rf"there is no {name} here: .*\. Leave out {name}\."):
        ask(Job(GPU_PAIR, **option))


def test_rows_are_taken_by_other_libraries() -> None:
    with Job(GPU_PAIR) as job:
        tables = [
            job.collectives,
            job.summary().table("kernels"),
            job.query("SELECT name FROM events LIMIT 3"),
            job.graph.table("events"),
        ]
        for table in tables:
            frame = polars.DataFrame(table)
            assert frame.equals(table.to_polars())
            assert (frame.height, frame.width) == table.to_pandas().shape == (len(table), frame.width)


def test_a_job_before_and_after_it_is_read() -> None:
    job = Job(GPU_PAIR)
    assert repr(job) == "<Job: 6 sources, not read yet>"
    assert job.ranks
    assert repr(job).startswith("<Job: 1,410 events of ranks 0-1")
    assert job._repr_html_().startswith("<div>")
