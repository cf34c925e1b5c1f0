"""What the writer makes of a graph, read back as JSON."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tracelink._io.targets import StreamTarget
from tracelink._model.findings import Finding
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.json_events import ROW
from tracelink.converters.perfetto.json_writer import PerfettoJsonWriter

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
        """As viewers show them: the name, then the number."""
        return {
            e["pid"]: f"{e['args']['name']} {e['pid']}"
            for e in self.events("M")
            if e["name"] == "process_name"
        }

    def threads(self) -> dict[tuple[int, int], str]:
        """Their names in the timeline, without what numbers tell."""
        return {
            (e["pid"], e["tid"]): full_name(e["args"]["name"], e["tid"])
            for e in self.events("M")
            if e["name"] == "thread_name"
        }

    def thread_of(self, event: Event) -> str:
        return self.threads()[event["pid"], event["tid"]]

    def reasons(self) -> dict[str, int]:
        return {finding.reason: finding.count for finding in self.findings}


def write(written: EventGraph | LinkedJob, writer: PerfettoJsonWriter | None = None) -> Written:
    stream = io.BytesIO()
    job = written if isinstance(written, LinkedJob) else LinkedJob.of(written)
    (output,) = (writer or PerfettoJsonWriter()).write(job, StreamTarget(stream), Processes(1))
    text = stream.getvalue()
    assert output.bytes == len(text)
    return Written(text, json.loads(text, parse_float=Decimal), output.findings)


def full_name(name: str, tid: int) -> str:
    """The name that the thread has in a native trace, of the name to which viewers append its number."""
    if name.endswith(ROW):
        return name.removesuffix(ROW)
    return name if re.match(rf"rank \d+ (thread|stream) {tid}\b", name) else f"{name} {tid}"


def nanoseconds(microseconds: Decimal | int) -> int:
    whole = int(Decimal(microseconds) * 1000)
    assert whole == Decimal(microseconds) * 1000
    return whole
