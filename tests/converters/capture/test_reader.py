"""Capture files as rank traces without events."""

from __future__ import annotations

from typing import Any

import pytest

from builders import captures
from builders.recorder import as_source
from tracelink._model.errors import UnreadableError
from tracelink._model.trace import ProcessGroup, RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.capture import is_capture
from tracelink.converters.capture.reader import CaptureReader


def read(**fields: Any) -> RankTrace:
    text = captures.written(captures.document(**{"rank": 1} | fields))
    assert is_capture(text, "any name")
    return CaptureReader().read(as_source(text, "capture_1.json"), Processes(1))


def test_a_capture_file_says_what_the_rank_is() -> None:
    trace = read()
    info = trace.source
    assert (info.rank, info.world_size, info.host, info.pid) == (1, 2, "node0", 1001)
    assert trace.groups == [ProcessGroup("0", "default_pg", (0, 1), 2, "gloo")]
    assert len(trace.events) == 0
    assert trace.findings == []


def test_what_was_not_recorded_is_a_finding() -> None:
    trace = read(
        troubles=[{"subject": "profile", "message": "RuntimeError: busy", "advice": "Stop the other one."}]
    )
    assert [(finding.reason, finding.message) for finding in trace.findings] == [
        ("not_recorded", "capture_1.json: profile: RuntimeError: busy. Stop the other one.")
    ]


def test_a_newer_file_is_read_with_a_finding() -> None:
    trace = read(tracelink_capture=2, something_new=[1])
    assert [finding.reason for finding in trace.findings] == ["newer_schema"]


@pytest.mark.parametrize(
    "fields",
    [
        {"rank": -1},
        {"rank": 2},
        {"pid": "x"},
        {"groups": [{"ranks": [10**9]}]},
        {"groups": [{"name": "0", "size": 10**9}]},
        {"world_size": 1_000_001, "groups": []},
        {"host": "x" * 5000},
    ],
)
def test_a_value_that_cannot_be_is_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(UnreadableError, match="is not a capture file"):
        read(**fields)


def test_deeply_nested_values_are_an_error() -> None:
    text = captures.written(captures.document())
    nested = text[: text.rindex(b"}")] + b', "x": ' + b"[" * 500_000
    with pytest.raises(UnreadableError, match="is not a capture file"):
        CaptureReader().read(as_source(nested, "capture_0.json"), Processes(1))
