"""Files of metrics in a few lines, and what the reader makes of them."""

from __future__ import annotations

import io
from typing import Any

from tracelink.converters.metrics.reader import MetricsFileReader
from tracelink.io.engine import Engine
from tracelink.io.sources import Source
from tracelink.model.metrics import Readings

Samples = dict[tuple[str, str, str], list[tuple[int, float]]]


def as_source(data: str | bytes, name: str = "metrics.csv") -> Source:
    """An input that holds `data`."""
    content = data.encode() if isinstance(data, str) else data
    return Source(name, lambda: io.BytesIO(content), len(content))


def read(data: str | bytes, name: str = "metrics.csv") -> Readings:
    """What the reader makes of a file that holds `data`."""
    return MetricsFileReader().read_metrics(as_source(data, name), Engine(1))


def samples(readings: Readings) -> Samples:
    """The samples by host and device, name and unit."""
    found: Samples = {}
    counters = readings.counters
    for track, time, value in zip(
        counters.track.tolist(), counters.time.tolist(), counters.value.tolist(), strict=True
    ):
        gauge = readings.gauges[track]
        device = ":".join(part for part in (gauge.host, gauge.device or gauge.uuid) if part)
        found.setdefault((device, gauge.name, gauge.unit), []).append((time, value))
    return found


def reasons(readings: Readings) -> dict[str, int]:
    """The findings by reason, with their counts."""
    return {finding.reason: finding.count for finding in readings.findings}


def query_range(*series: tuple[dict[str, str], list[Any]]) -> str:
    """An answer of Prometheus with these labels and values."""
    import json

    result = [{"metric": labels, "values": values} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
