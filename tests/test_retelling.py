"""Sources that were made of others of the same rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders.trace import TraceBuilder
from tracelink import load, samples
from tracelink.api import write
from tracelink.model.events import EventKind
from tracelink.model.trace import RankTrace
from tracelink.pipeline.gathering import told_once


def trace(format_name: str, *retells: str) -> RankTrace:
    made = TraceBuilder().build()
    made.sources = [replace(made.source, path=f"{format_name}.json", format=format_name)]
    return replace(made, retells=frozenset(retells))


def test_what_was_made_of_another_source_is_passed_over_beside_it() -> None:
    profile, linked, other = trace("profile"), trace("linked", "profile"), trace("nodes")
    once, (finding,) = told_once([linked, profile, other])
    assert once == [profile, other]
    assert (finding.reason, finding.source) == ("told_twice", "linked.json")
    assert "made of the profile file of rank 0" in finding.message


def test_alone_it_is_used() -> None:
    linked, other = trace("linked", "profile"), trace("nodes")
    assert told_once([linked, other]) == ([linked, other], [])
    assert told_once([]) == ([], [])


def test_the_directory_of_a_linked_job_gives_each_event_once(tmp_path: Path) -> None:
    folder = samples.path("gpu_pair")
    for name in ("et_0.json.gz", "kineto_0.json.gz"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    merged = load(tmp_path, jobs=1)
    write(merged, tmp_path / "linked.rank0.json.gz", to="chakra-json", jobs=1)
    together = load(tmp_path, jobs=1)
    assert len(together) == len(merged)
    assert [
        finding.reason for finding in together.findings if finding.source.endswith("linked.rank0.json.gz")
    ] == ["told_twice"]


def test_beside_the_execution_trace_alone_its_operators_are_the_nodes(tmp_path: Path) -> None:
    folder = samples.path("gpu_pair")
    (tmp_path / "et_0.json.gz").write_bytes((folder / "et_0.json.gz").read_bytes())
    merged = load(et=folder / "et_0.json.gz", kineto=folder / "kineto_0.json.gz", jobs=1)
    write(merged, tmp_path / "linked.rank0.json.gz", to="chakra-json", jobs=1)
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
