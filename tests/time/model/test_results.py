"""`tracelink._time.model.results`: the tables of a summary."""

from __future__ import annotations

import pickle

import pytest
from msgspec.structs import replace

import tracelink
from tracelink import load, samples
from tracelink._model.errors import UsageError
from tracelink._time.model.results import PARTS, BreakdownRow, Cause, CauseRow, Summary


@pytest.fixture(scope="module")
def summary() -> Summary:
    return tracelink.summary(samples.path("gpu_pair"))


def test_every_table_is_a_frame_and_can_be_pickled(summary: Summary) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for name, table in summary.tables().items():
        assert pickle.loads(pickle.dumps(table)) == table == summary.table(name)
        assert len(summary.to_pandas(name)) == summary.to_arrow(name).num_rows == len(table)
        assert table._repr_html_()


def test_rows_of_ranks_have_the_rank(summary: Summary) -> None:
    table = summary.table("steps")
    assert [(row.rank, row.step) for row in table] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert sum(table[part] for part in PARTS).tolist() == table["duration_ns"].tolist()
    assert {row.rank for row in summary.table("memory_over_time")} == {0, 1}


def test_the_breakdown_is_the_sum_of_the_steps(summary: Summary) -> None:
    steps, (first, _) = summary.table("steps").where(rank=0), summary.table("breakdown")
    whole = int(steps["duration_ns"].sum())
    sums = {name: int(steps[name].sum()) for name in PARTS}
    assert first == BreakdownRow(
        0,
        2,
        whole,
        whole // 2,
        **sums,
        **{f"{name.removesuffix('_ns')}_share": sums[name] / whole for name in PARTS},
    )


def test_causes_add_up_to_their_part(summary: Summary) -> None:
    causes, breakdown = summary.table("causes"), summary.table("breakdown")
    for row in breakdown:
        of_rank = causes.where(rank=row.rank)
        for part, name in (("idle", "idle_ns"), ("exposed communication", "exposed_communication_ns")):
            assert of_rank.where(part=part)["total_ns"].sum() == getattr(row, name)
    waited = causes.where(rank=0, cause=Cause.WAITING_FOR_RANK)
    assert [(type(row), row.waited_for) for row in waited] == [(CauseRow, 1)]


def test_there_is_no_other_table(summary: Summary) -> None:
    with pytest.raises(UsageError, match=r"there is no table 'kernel'\. Did you mean kernels\?"):
        summary.table("kernel")


def test_the_critical_path_is_divided_three_times(summary: Summary) -> None:
    path, table = summary.critical_path, summary.table("critical_path")
    assert path is not None
    for by in ("kind", "rank", "module"):
        assert table.where(by=by)["total_ns"].sum() == path.length_ns
    assert sum(row.length_ns for row in summary.table("path_steps")) == path.length_ns


def test_a_summary_in_an_interpreter_is_a_few_lines(summary: Summary) -> None:
    headline, tables = repr(summary).splitlines()
    assert headline == f"<Summary: {summary.verdict[0]}"
    assert tables.startswith("  tables: steps 4, breakdown 2, ")
    assert "<th" in summary._repr_html_()
    assert pickle.loads(pickle.dumps(summary)) == summary


def test_a_graph_has_the_same_summary(summary: Summary) -> None:
    graph = load(samples.path("gpu_pair"))
    assert tracelink.summary(graph) == replace(summary, paths=())
    second = tracelink.summary(graph, steps="2", what_if=["communication free"])
    assert [row.step for row in second.table("steps")] == [2, 2]
    assert [row.question for row in second.table("what_if")] == ["communication free"]
    with pytest.raises(UsageError, match="there is no step 7"):
        tracelink.summary(graph, steps=[7])


def test_ranks_without_a_profile_have_no_steps() -> None:
    summary = tracelink.summary(samples.path("hung_job"))
    assert len(summary.table("breakdown")) == len(summary.table("causes")) == 0
    assert repr(summary).startswith("<Summary: No rank has a profile")
