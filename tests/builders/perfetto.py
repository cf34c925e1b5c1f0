"""What the writer makes of a graph, read back as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tracelink.converters.perfetto.json.writer import PerfettoJsonWriter
from tracelink.io.engine import Engine
from tracelink.io.targets import StreamTarget
from tracelink.model.errors import Finding
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job

Event = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A document that was written, and what the writer found."""

    text: bytes
    document: dict[str, Any]
    findings: tuple[Finding, ...]

    def events(self, *phases: str) -> list[Event]:
        return [event for event in self.document["traceEvents"] if event["ph"] in phases]

    def slices(self) -> list[Event]:
        return self.events("X", "i")

    def slice(self, name: str) -> Event:
        (found,) = (event for event in self.slices() if event["name"] == name)
        return found

    def samples(self) -> list[tuple[str, int, float]]:
        """The name of the counter, ns since the Unix epoch, and the value."""
        base = self.document["baseTimeNanoseconds"]
        return [
            (event["name"], base + nanoseconds(event["ts"]), float(event["args"]["value"]))
            for event in self.events("C")
        ]

    def processes(self) -> dict[int, str]:
        return {e["pid"]: e["args"]["name"] for e in self.events("M") if e["name"] == "process_name"}

    def threads(self) -> dict[int, str]:
        return {e["tid"]: e["args"]["name"] for e in self.events("M") if e["name"] == "thread_name"}

    def reasons(self) -> dict[str, int]:
        return {finding.reason: finding.count for finding in self.findings}


def write(written: EventGraph | Job, writer: PerfettoJsonWriter | None = None) -> Written:
    stream = io.BytesIO()
    job = written if isinstance(written, Job) else Job.of(written)
    (output,) = (writer or PerfettoJsonWriter()).write(job, StreamTarget(stream), Engine(1))
    text = stream.getvalue()
    assert output.bytes == len(text)
    return Written(text, json.loads(text, parse_float=Decimal), output.findings)


def nanoseconds(microseconds: Decimal | int) -> int:
    whole = int(Decimal(microseconds) * 1000)
    assert whole == Decimal(microseconds) * 1000
    return whole
