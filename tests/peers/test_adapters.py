"""A profiler of real torch with its own schedule, to which an execution trace is attached."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracelink
from tracelink.adapters import attach

pytest.importorskip("torch")
pytestmark = pytest.mark.peer


def test_a_profile_with_a_schedule_is_linked_with_its_execution_trace(tmp_path: Path) -> None:
    import torch

    layer = torch.nn.Linear(16, 16)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    with attach(torch.profiler.profile(schedule=schedule, record_shapes=True), tmp_path) as profiler:
        for _ in range(6):
            layer(torch.randn(4, 16)).sum().backward()
            profiler.step()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "capture_0.json",
        "et_0.json.gz",
        "kineto_0.json.gz",
    ]
    graph = tracelink.load([str(tmp_path)], jobs=1)
    (report,) = (report for report in graph.reports[0] if report.relation == "same.et_kineto")
    assert report.linked == report.candidates > 20
    assert not report.unlinked
