"""What the native writer makes of a job, read back with protobuf."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from builders.perfetto_pb2 import Trace
from tracelink._io.targets import StreamTarget
from tracelink._model.findings import Finding
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.native_writer import PerfettoWriter
from tracelink.converters.perfetto.packets.schema import FIRST_VIEW_TRACK

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
TABLES = ("event_categories", "event_names", "debug_annotation_names")


@dataclass
class Slice:
    """A slice or an instant; times are ns since the Unix epoch."""

    track: int
    start: int
    end: int | None = None
    name: str = ""
    category: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    leaves: list[int] = field(default_factory=list)
    arrives: list[int] = field(default_factory=list)
    parent: str = ""
    colour: int = 0
    """Slices with the same number have the same colour; 0: the viewer takes one for the name."""


@dataclass
class Sequence:
    """What the packets of a sequence share."""

    texts: dict[str, dict[int, str]] = field(default_factory=lambda: {table: {} for table in TABLES})


def recorded(value: Any) -> Any:
    """What was recorded, where viewers get a text of it: a blank at its end tells."""
    if isinstance(value, dict):
        return {name: recorded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [recorded(member) for member in value]
    return json.loads(value) if isinstance(value, str) and value.endswith(("] ", "null ", "{} ")) else value


@dataclass
class Native:
    """A trace that was written, and what the writer found."""

    data: bytes
    findings: tuple[Finding, ...]
    packets: list[Any] = field(default_factory=list)
    tracks: dict[int, Any] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    samples: list[tuple[str, int, float]] = field(default_factory=list)
    """The name of the counter's track, ns since the Unix epoch, and the value."""
    marks: int = 0
    """How often an engine may draw what it has read."""
    facts: list[dict[str, Any]] = field(default_factory=list)
    """What stands there for readers of tracelink's own."""
    view: dict[str, list[Slice]] = field(default_factory=dict)
    """By the names of their tracks, the slices that only viewers are to show: real time, and the overview."""

    def slice(self, name: str) -> Slice:
        (found,) = (one for one in self.slices if one.name == name)
        return found

    def outline(self) -> list[str]:
        """The names of all tracks as a person sees them: each below its parent, indented."""
        below: dict[int, list[Any]] = {}
        for track in self.tracks.values():
            below.setdefault(track.parent_uuid, []).append(track)

        def lines(parent: int, indent: str) -> list[str]:
            tracks = sorted(below.get(parent, ()), key=lambda track: (track.sibling_order_rank, track.name))
            return [line for t in tracks for line in (indent + t.name, *lines(t.uuid, indent + "  "))]

        return lines(0, "")

    def arrows(self) -> list[tuple[str, str]]:
        source = {number: one.name for one in self.slices for number in one.leaves}
        return [(source[number], one.name) for one in self.slices for number in one.arrives]


def write(written: EventGraph | LinkedJob, writer: PerfettoWriter | None = None) -> Native:
    stream = io.BytesIO()
    job = written if isinstance(written, LinkedJob) else LinkedJob.of(written)
    (output,) = (writer or PerfettoWriter()).write(job, StreamTarget(stream), Processes(1))
    assert output.bytes == len(stream.getvalue())
    return read(stream.getvalue(), output.findings)


def unpacked(data: bytes) -> Iterator[Any]:
    """All packets, those of bundles too."""
    for packet in Trace.FromString(data).packet:
        if packet.HasField("compressed_packets"):
            yield from Trace.FromString(zlib.decompress(packet.compressed_packets)).packet
        else:
            yield packet


def read(data: bytes, findings: tuple[Finding, ...] = ()) -> Native:
    """Plays the packets as the engine does: in order of time, and ends close what opened last on their track."""
    native = Native(data, findings, list(unpacked(data)))
    base, views = 0, dict[int, Any]()
    sequences: dict[int, Sequence] = {}
    events: list[tuple[int, Any, Sequence]] = []
    for packet in native.packets:
        if packet.HasField("tracelink"):
            native.facts.append(json.loads(packet.tracelink))
            base = native.facts[0]["baseTimeNanoseconds"]
        elif packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            (native.tracks if track.uuid < FIRST_VIEW_TRACK else views)[track.uuid] = track
        elif packet.HasField("service_event"):
            native.marks += 1
        elif packet.sequence_flags == 1:
            sequences[packet.trusted_packet_sequence_id] = _cleared(packet)
        else:
            sequence = sequences[packet.trusted_packet_sequence_id]
            events.append((base + packet.timestamp, packet.track_event, sequence))
    open_slices: dict[int, list[Slice]] = {}
    for time, event, sequence in sorted(events, key=lambda found: found[0]):
        stack = open_slices.setdefault(event.track_uuid, [])
        if event.type == END:
            stack.pop().end = time
            continue
        if event.type == COUNTER:
            native.samples.append((native.tracks[event.track_uuid].name, time, event.double_counter_value))
            continue
        one = _begun(sequence, event, time)
        one.parent = stack[-1].name if stack else ""
        if view := views.get(event.track_uuid):
            native.view.setdefault(view.name or f"rank {view.thread.tid}", []).append(one)
        else:
            native.slices.append(one)
        if event.type == BEGIN:
            stack.append(one)
    assert not any(open_slices.values())
    return native


def _cleared(packet: Any) -> Sequence:
    sequence = Sequence()
    for table, texts in sequence.texts.items():
        entries = getattr(packet.interned_data, table)
        texts |= {entry.iid: entry.text for entry in entries}
        assert len(texts) == len(entries)
    return sequence


def _begun(sequence: Sequence, event: Any, time: int) -> Slice:
    one = Slice(event.track_uuid, time)
    one.name = sequence.texts["event_names"][event.name_iid]
    (category,) = event.category_iids
    one.category = sequence.texts["event_categories"][category]
    one.args = {
        sequence.texts["debug_annotation_names"][argument.name_iid]: recorded(
            json.loads(argument.legacy_json_value)
        )
        for argument in event.debug_annotations
    }
    one.leaves, one.arrives = list(event.flow_ids), list(event.terminating_flow_ids)
    one.colour = event.correlation_id
    if event.type == INSTANT:
        one.end = one.start
    return one
