"""Traces as PyTorch and rocprofv3 write them in Perfetto's own engine: the same slices as the reader finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.track_events import Slice, Torch, source, step_of_rocprof, step_of_torch
from peers.perfetto_process import PerfettoEngine
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.track_events.reader import TrackEventReader

pytestmark = pytest.mark.peer

NAMES_OF_OLD_ENGINES = {"Kernel": "gemm_kernel"}
"""Engines before v55 show the stage of a kernel, not its name."""
SLICES = "select s.name, s.ts, s.dur from slice s where s.dur >= 0"


@pytest.mark.parametrize(
    "data",
    [
        bytes(step_of_torch()),
        bytes(step_of_rocprof()),
        bytes(Torch([[Slice("aten::a", 0, 9), Slice("aten::b", 20, 5), Slice("aten::c", 1, 3)]])),
    ],
    ids=["PyTorch", "rocprof", "siblings"],
)
def test_the_engine_and_the_reader_find_the_same_slices(
    engine: PerfettoEngine, tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "trace.pftrace"
    path.write_bytes(data)
    trace = TrackEventReader().read(source(data), Processes())
    texts, events = trace.strings.texts(), trace.events
    with engine.load(path) as loaded:
        shown = sorted(
            (NAMES_OF_OLD_ENGINES.get(row["name"], row["name"]), row["dur"]) for row in loaded.query(SLICES)
        )
    assert shown == sorted(
        (texts[name], duration)
        for name, duration in zip(events.name.tolist(), events.duration.tolist(), strict=True)
    )
