"""The 22 defects of tlparse 0.4.3 on logs of torch 2.13, which `tracelink compile` does not have.

Each test says in its first line which ones it is about: `Defect 3: it names all ranks.`
"""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tracelink
from builders.compile_log import START_US, artifact, begin, end, instant, log, metrics, record
from builders.compile_reading import read
from builders.data import traces
from builders.html_page import read_html
from builders.recorder import as_source
from tracelink._compile.model import CompileReport, Status
from tracelink._compile.payloads import write_artifacts
from tracelink._compile.reading import Read
from tracelink._compile.report import report_of
from tracelink._model.columns import SECOND
from tracelink._show.html import draw
from tracelink.converters.torch_trace.schema import Damage, records_in

SCHEDULE = "inductor_collective_schedule"


def report(folder: Path, *ranks: bytes) -> CompileReport:
    for rank, content in enumerate(ranks):
        write(folder, rank, content)
    return tracelink.compile(folder)


def write(folder: Path, rank: int, content: bytes) -> None:
    (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)


def _page(found: Read) -> str:
    return draw(report_of(found.report, found))


# Differences between ranks.


@pytest.mark.parametrize("first", ["aaa", "inductor_collective_schedules_note", "zzz"])
def test_harmless_artifacts_are_no_divergence(first: str, tmp_path: Path) -> None:
    """Defect 1: it takes the first file whose name begins with that of the artifact, and invents differences."""
    same = [artifact(SCHEDULE, '["all_reduce"]', "0/0"), metrics("0/0", co_name="step")]
    extra = log(artifact(first, '["broadcast"]', "0/0"), *same)
    assert report(tmp_path, extra, log(*same), extra, log(*same)).divergences == []


def test_the_schedules_of_forward_and_backward_are_both_kept() -> None:
    """Defect 2: they have the same compile id; it reads one of them."""
    text = _page(read([traces("three_compilers")]))
    rows = read_html(text).rows("In the order of each graph")
    assert [row[:3] for row in rows] == [
        ["[0/0]", "1", "0-2"],
        ["[0/0]", "2", "0-2"],
        ["[0/1]", "1", "0-2"],
        ["[0/1]", "2", "0-2"],
    ]


def test_the_outlier_is_named() -> None:
    """Defect 3: it names all ranks."""
    found = tracelink.compile(traces("three_compilers")).divergences
    assert {one.outliers for one in found} == {(1,)}


# Records that it does not know, or refuses.


def test_records_without_a_rank_are_accepted(tmp_path: Path) -> None:
    """Defect 4: the version and the strings have none; its strict mode refuses every log of a rank."""
    version = artifact("torch_version", '{"pytorch_version": "2.13.0"}')
    ranked = record("dynamo_start", {"stack": []}, compile_id="0/0", rank=1)
    found = report(tmp_path, log(metrics("0/0")), log(version, record("str", ["a.py", 0]), ranked))
    assert (list(found.ranks), found.sources[1].version) == ([0, 1], "2.13.0")
    assert {finding.reason for finding in found.findings} == {"no_time_zone"}


def test_new_kinds_of_records_are_counted(tmp_path: Path) -> None:
    """Defects 9, 10: `create_symbol` and `compilation_metrics_runtime` are errors for it."""
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
    """Defects 6, 7: it writes local times as UTC, in the year in which it runs."""
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
    """Defects 13, 17: it finds no file of a rank, and needs an option for a folder."""
    (tmp_path / "dedicated_log_torch_trace_abc.log").write_bytes(log(metrics("0/0", co_name="step")))
    assert [one.function for one in tracelink.compile(tmp_path).compiles] == ["step"]


def test_several_logs_of_a_rank_are_all_read(tmp_path: Path) -> None:
    """Defect 14: they overwrite each other; with tracelink also their anchors and files differ."""
    for name in ("a", "b"):
        content = log(metrics("0/0", co_name=name), artifact("after_joint_graph", name, "0/0"))
        (tmp_path / f"dedicated_log_torch_trace_rank_0_{name}.log").write_bytes(content)
    found = read([tmp_path])
    assert sorted(one.function for one in found.report.compiles) == ["a", "b"]
    anchors = re.findall(r'<details id="([^"]*)"', _page(found))
    assert anchors == ["c-0-0/0", "c-0-0/0~2"]
    write_artifacts(found, str(tmp_path / "out"))
    assert sorted(path.read_text() for path in (tmp_path / "out").rglob("*.py")) == ["a", "b"]


def test_strings_of_one_rank_are_not_those_of_another(tmp_path: Path) -> None:
    """Defect 15: its table of strings is shared by all ranks."""

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
    """Defect 12: it links to a file of collectives that it did not write."""
    (tmp_path / "dedicated_log_torch_trace_rank_0_x.log").write_bytes(log(metrics("0/0")))
    text = _page(read([tmp_path]))
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
    """Defects 19, 20: it has no table of either."""
    found = tracelink.compile(traces("compile_faults"))
    recompiled = [one for one in found.compiles if one.recompile_of]
    assert [one.id for one in recompiled] == ["4/1", "4/2", "4/3", "5/1", "1/1"]
    assert all(one.reason for one in recompiled)
    assert all(one.file.endswith("record_compile_faults.py") and one.line for one in found.graph_breaks)
    text = _page(read([traces("compile_faults")]))
    assert {'id="recompilations"', 'id="breaks"'} <= set(re.findall(r'id="\w+"', text))


def test_ranks_without_a_log_are_named(tmp_path: Path) -> None:
    """Defect 18: nobody sees that a rank is missing."""
    for rank in (0, 1, 3):
        write(tmp_path, rank, log(metrics("0/0", co_name="step")))
    missing = [one.message for one in tracelink.compile(tmp_path).findings if one.reason == "missing_ranks"]
    assert missing == [
        "Rank 2 has no log, other than ranks 0-1, 3: it compiled nothing, or the log is missing."
    ]


def test_times_of_ranks_are_compared() -> None:
    """Defect 21: it compares what ranks compiled, and not when: these collectives waited for one of them."""
    found = tracelink.compile(traces("compile_job"))
    assert [(one.rank, one.ids) for one in found.delays][:2] == [(1, ("2/0",)), (1, ("0/0",))]


def test_compiled_code_is_linked_to_what_ran() -> None:
    """Defect 22: it reads no profiles, so nobody knows whether compiling has paid off."""
    found = tracelink.compile(traces("compile_job"))
    assert all(one.runtime_ns and one.runs for one in found.compiles if one.status is Status.OK)
    assert {one.runs for one in found.schedules} == {2, 4}


def test_a_failed_export_is_shown(tmp_path: Path) -> None:
    """Defect 5: locals are lists now, which it cannot read: it loses the failure."""
    note = {"expr": "Eq(u0, 1)", "stack": [], "frame_locals": {"locals": {"x": ["u0"]}}}
    found = report(tmp_path, log(record("guard_on_data_dependent_error", note)))
    assert [(one.what, one.about) for one in found.exports] == [
        ("Export failed: the value depends on data", "Eq(u0, 1)")
    ]


def test_paths_have_no_blank_before_them() -> None:
    """Defect 8: it writes `" torch/_dynamo/utils.py"`."""
    opened = as_source(log(metrics("0/0"))).open()
    with opened as stream:
        (found,) = records_in(stream, Damage(), lambda _: None)
    assert (found.where, found.line) == (b"torch/_dynamo/utils.py", 2350)


def test_names_of_subgraphs_are_accepted(tmp_path: Path) -> None:
    """Defect 11: it does not know the key."""
    first = artifact("a", "b", "0/0").replace('"frame_id"', '"subgraph_name": "g", "frame_id"')
    assert report(tmp_path, log(first)).kinds == {"artifact": 1}


def test_files_of_forked_processes_have_names(tmp_path: Path) -> None:
    """Defect 16: it shows `(unknown):19`; the strings are in the log of the parent."""
    stack = [{"line": line, "name": name, "filename": 0} for line, name in ((19, "main"), (3, "step"))]
    start = record("dynamo_start", {"stack": stack}, compile_id="1/0", at=5)
    parent = record("str", ["train.py", 0]) + begin("dynamo", "0/0", at=0) + end("dynamo", "0/0", at=1)
    child = start + begin("dynamo", "1/0", at=5) + end("dynamo", "1/0", at=6)
    for name, content in (("a", parent), ("b", child)):
        (tmp_path / f"dedicated_log_torch_trace_{name}.log").write_bytes(log(content))
    assert [one.called_at for one in tracelink.compile(tmp_path).compiles if one.called_at] == [
        "train.py:19 (main)"
    ]


def test_all_22_defects_have_a_test() -> None:
    found = {
        int(number)
        for name, test in globals().items()
        if name.startswith("test_") and (words := re.match(r"Defects? ([\d, ]+):", test.__doc__ or ""))
        for number in words[1].split(",")
    }
    assert found == set(range(1, 23))
