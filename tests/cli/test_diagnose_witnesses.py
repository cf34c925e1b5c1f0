"""`tracelink diagnose` with compile logs and stacks next to dumps."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from builders.busy_compiling import alive, compile_log, compiling, near
from builders.command_line import Run
from builders.dumps import SECOND, dumps, hang
from tracelink import schemas


def test_page_and_document_of_a_rank_that_compiles(tracelink: Run) -> None:
    compile_log(Path("traces"), 2, *compiling("3/2", 2.6), alive(12.6))
    folder = dumps(Path("dumps"), hang(4))
    page = tracelink("diagnose", str(folder), "traces", "--html", "report.html").stdout
    assert "Class: busy compiling (torch.compile, on the host).\n" in page
    assert (
        "In the compile log of rank 2:\n"
        "  compiling  train_step [3/2] (async_compile.wait)\n"
        "  since      06:29:22.203435 UTC, for at least 10.0 s: the log ends within it\n"
        "  for the    second time or later (warm)\n"
        "  within     entire_frame_compile > async_compile.wait\n"
    ) in page
    html = Path("report.html").read_text()
    assert "In the compile log of rank 2" in html
    assert "second time or later (warm)" in html
    document = json.loads(tracelink("diagnose", str(folder), "traces", "--json").stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    (shown,) = document["problems"]
    assert shown["class"] == "busy_compiling"
    (one,) = shown["compiling"]
    since = one.pop("since_ns")
    assert near(since, 2.6)
    assert one.pop("duration_ns") == pytest.approx(10 * SECOND, abs=SECOND / 100)
    assert one == {
        "rank": 2,
        "id": "3/2",
        "function": "train_step",
        "phases": ["entire_frame_compile", "async_compile.wait"],
        "open": True,
        "cold": False,
        "sources": [str(Path("traces/dedicated_log_torch_trace_rank_2_abc.log"))],
    }
