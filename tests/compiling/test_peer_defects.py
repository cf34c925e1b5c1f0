"""Defects of tlparse 0.4.3 on logs of torch 2.13, which `tracelink compile` does not have."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tracelink
from builders.compile_log import START_US, artifact, begin, end, instant, log, metrics, record
from builders.data import shared
from tracelink.compiling.html.page import html_page
from tracelink.compiling.model import CompileReport, Status
from tracelink.compiling.payloads import write_artifacts
from tracelink.compiling.report import read
from tracelink.model.columns import SECOND

SCHEDULE = "inductor_collective_schedule"


def report(folder: Path, *ranks: bytes) -> CompileReport:
    for rank, content in enumerate(ranks):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)
    return tracelink.compile(folder)


# Differences between ranks.


@pytest.mark.parametrize("first", ["aaa", "inductor_collective_schedules_note", "zzz"])
def test_harmless_artifacts_are_no_divergence(first: str, tmp_path: Path) -> None:
    """It takes the first file whose name begins with that of the artifact."""
    same = [artifact(SCHEDULE, '["all_reduce"]', "0/0"), metrics("0/0", co_name="step")]
    extra = log(artifact(first, '["broadcast"]', "0/0"), *same)
    assert report(tmp_path, extra, log(*same), extra, log(*same)).divergences == []


def test_the_schedules_of_forward_and_backward_are_both_kept() -> None:
    """They have the same compile id; it reads one of them."""
    text = "".join(html_page(read([shared("torch_trace/multirank_matched")])))
    table = text[text.index('id="schedules"') :].partition("</table>")[0]
    rows = re.findall(r">\[([\d/]+)\]</a></th><td>(\d)</td><td>([^<]*)<", table)
    assert rows == [
        ("0/0", "1", "0-1, 3"),
        ("0/0", "1", "2"),
        ("0/0", "2", "0-1, 3"),
        ("0/0", "2", "2"),
        ("1/0", "1", "0-3"),
    ]


def test_the_outlier_is_named() -> None:
    """It names all ranks."""
    found = tracelink.compile(shared("torch_trace/multirank_matched")).divergences
    assert {one.outliers for one in found} == {(2,)}


# Records that it does not know, or refuses.


def test_records_without_a_rank_are_accepted(tmp_path: Path) -> None:
    """The version and the strings have none; its strict mode refuses every log of a rank."""
    version = artifact("torch_version", '{"pytorch_version": "2.13.0"}')
    ranked = record("dynamo_start", {"stack": []}, compile_id="0/0", rank=1)
    found = report(tmp_path, log(metrics("0/0")), log(version, record("str", ["a.py", 0]), ranked))
    assert (list(found.ranks), found.sources[1].version) == ([0, 1], "2.13.0")
    assert {finding.reason for finding in found.findings} == {"no_time_zone"}


def test_new_kinds_of_records_are_counted(tmp_path: Path) -> None:
    """Locals of a failed export are lists now: it loses the failure."""
    records = [
        record("create_symbol", {"symbol": "s0", "val": "4"}, compile_id="0/0"),
        record("compilation_metrics_runtime", {"compile_id": "0/0"}, compile_id="0/0"),
        record("guard_on_data_dependent_error", {"frame_locals": {"locals": [["x", "1"]]}}),
        record("kind_of_next_year", [1, 2], "payload"),
    ]
    failed = metrics("0/0", co_name="step", fail_type="UserError", fail_reason="data-dependent")
    found = report(tmp_path, log(*records, failed))
    assert found.kinds == {
        "create_symbol": 1,
        "compilation_metrics_runtime": 1,
        "guard_on_data_dependent_error": 1,
        "kind_of_next_year": 1,
        "compilation_metrics": 1,
    }
    assert [one.type for one in found.failures] == ["UserError"]
    assert {finding.reason for finding in found.findings} == {"no_time_zone"}


# Times and files.


@pytest.mark.parametrize("hours", [-7, 0, 9])
def test_times_have_the_zone_and_the_year_of_the_log(hours: int, tmp_path: Path) -> None:
    """It writes local times as UTC, in the year in which it runs."""
    content = log(begin("dynamo", "0/0", at=0), end("dynamo", "0/0", at=1), artifact("a", "b", "0/0"))
    local = datetime.fromtimestamp(START_US / 1_000_000, UTC)
    shifted = re.sub(
        rb"^V(\d{4} \d\d)",
        lambda _: f"V{local + timedelta(hours=hours):%m%d %H}".encode(),
        content,
        flags=re.MULTILINE,
    )
    path = tmp_path / "dedicated_log_torch_trace_rank_0_x.log"
    path.write_bytes(shifted)
    (found,) = read([path]).logs[0]
    assert found.artifacts[0].time_ns == START_US * 1000
    assert [phase.start_ns for phase in found.phases] == [START_US * 1000]


def test_a_folder_of_logs_without_ranks_is_read(tmp_path: Path) -> None:
    """It finds no file of a rank, and needs an option for a folder."""
    (tmp_path / "dedicated_log_torch_trace_abc.log").write_bytes(log(metrics("0/0", co_name="step")))
    assert [one.function for one in tracelink.compile(tmp_path).compiles] == ["step"]


def test_several_logs_of_a_rank_are_all_read(tmp_path: Path) -> None:
    """They overwrite each other; with tracelink also their anchors and files differ."""
    for name in ("a", "b"):
        content = log(metrics("0/0", co_name=name), artifact("after_joint_graph", name, "0/0"))
        (tmp_path / f"dedicated_log_torch_trace_rank_0_{name}.log").write_bytes(content)
    found = read([tmp_path])
    assert sorted(one.function for one in found.report.compiles) == ["a", "b"]
    anchors = re.findall(r'<details id="([^"]*)"', "".join(html_page(found)))
    assert anchors == ["c-0-0/0", "c-0-0/0~2"]
    write_artifacts(found, str(tmp_path / "out"))
    assert sorted(path.read_text() for path in (tmp_path / "out").rglob("*.py")) == ["a", "b"]


def test_strings_of_one_rank_are_not_those_of_another(tmp_path: Path) -> None:
    """Its table of strings is shared by all ranks."""

    def rank(name: str) -> bytes:
        stack = [
            {"line": line, "name": function, "filename": 0} for line, function in ((5, "main"), (9, "step"))
        ]
        return log(
            record("str", [name, 0]), record("dynamo_start", {"stack": stack}, compile_id="0/0", rank=0)
        )

    first, second = (rank(name) for name in ("one.py", "two.py"))
    found = report(tmp_path, first, second.replace(b'"rank": 0', b'"rank": 1'))
    assert [one.called_at for one in found.compiles] == ["one.py:5 (main)", "two.py:5 (main)"]


def test_the_page_has_no_links_to_what_is_not_there(tmp_path: Path) -> None:
    """It links to a file of collectives that it did not write."""
    (tmp_path / "dedicated_log_torch_trace_rank_0_x.log").write_bytes(log(metrics("0/0")))
    text = "".join(html_page(read([tmp_path])))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(re.findall(r' id="([^"]*)"', text))
    assert set(re.findall(r'(?:href|src)="([^#"][^"]*)"', text)) == set()


def test_compressed_logs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "dedicated_log_torch_trace_rank_0_x.log.gz"
    path.write_bytes(gzip.compress(log(metrics("0/0", co_name="step"))))
    assert [one.function for one in tracelink.compile(path).compiles] == ["step"]


# What it does not have.


def test_work_that_is_open_at_the_end_of_a_log_is_reported(tmp_path: Path) -> None:
    found = report(tmp_path, log(begin("async_compile.wait", "0/0", at=1), instant("x", at=9)))
    assert [(one.name, one.id, one.for_ns) for one in found.open] == [
        ("async_compile.wait", "0/0", 8 * SECOND)
    ]
    assert found.compiles[0].status is Status.OPEN
    assert not found.is_clean


def test_recompilations_have_their_guard_and_graph_breaks_their_line() -> None:
    found = tracelink.compile(shared("torch_trace/single"))
    recompiled = [one for one in found.compiles if one.recompile_of]
    assert len(recompiled) == 15
    assert all(one.reason for one in recompiled)
    assert all(one.file.endswith("single.py") and one.line for one in found.graph_breaks)
