"""The driver itself, on traces small enough to know by heart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peers.perfetto_process import EngineError, PerfettoEngine

pytestmark = pytest.mark.peer


def piece(name: str, start: float, duration: float, thread: int = 2) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": thread, "ts": start, "dur": duration}


def written(folder: Path, *events: dict[str, Any]) -> Path:
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"traceEvents": list(events)}))
    return trace


def test_the_engine_is_of_the_version_it_is_called_by(engine: PerfettoEngine, tmp_path: Path) -> None:
    assert (engine.folder / "trace_processor.wasm").is_file()
    with engine.load(written(tmp_path, piece("a", 1, 1))) as trace:
        assert trace.value("select count(*) from slice") == 1


def test_nested_slices_are_no_problem(engine: PerfettoEngine, tmp_path: Path) -> None:
    with engine.load(written(tmp_path, piece("outer", 1.001, 10), piece("inner", 2, 3.5))) as trace:
        rows = trace.query("select name, ts, dur, depth from slice order by ts")
        assert rows == [
            {"name": "outer", "ts": 1001, "dur": 10_000, "depth": 0},
            {"name": "inner", "ts": 2000, "dur": 3500, "depth": 1},
        ]
        assert trace.problems() == []


def test_overlapping_slices_are_a_problem(engine: PerfettoEngine, tmp_path: Path) -> None:
    with engine.load(written(tmp_path, piece("first", 1, 10), piece("second", 5, 10))) as trace:
        names = [problem["name"] for problem in trace.problems()]
        assert names == ["slice_drop_overlapping_complete_event"]
        assert trace.value("select count(*) from slice") == 1


def test_a_flow_that_begins_nowhere_is_a_problem(engine: PerfettoEngine, tmp_path: Path) -> None:
    end = {"ph": "f", "bp": "e", "id": 7, "cat": "c", "name": "n", "pid": 1, "tid": 2, "ts": 1}
    with engine.load(written(tmp_path, piece("a", 1, 1), end)) as trace:
        assert [problem["name"] for problem in trace.problems()] == ["flow_end_without_start"]


def test_integers_come_in_full(engine: PerfettoEngine, tmp_path: Path) -> None:
    with engine.load(written(tmp_path, piece("a", 1, 1))) as trace:
        assert trace.query("select 9223372036854775807 as big, -3 as low, 1.5 as real, null as none") == [
            {"big": 9223372036854775807, "low": -3, "real": 1.5, "none": None}
        ]


def test_the_engine_says_what_it_refuses(engine: PerfettoEngine, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"traceEvents":[{"ph":"X"')
    with pytest.raises(EngineError):
        engine.load(broken)
    with (
        engine.load(written(tmp_path, piece("a", 1, 1))) as trace,
        pytest.raises(EngineError, match="no such table"),
    ):
        trace.query("select * from nowhere")
