"""Packets of native traces in a line each, and in which order a file has them."""

from __future__ import annotations

from typing import Any

from builders.perfetto_native import unpacked
from builders.perfetto_pb2 import Trace

STATE: bytes = Trace(packet=[{"track_descriptor": {"uuid": 1}}]).SerializeToString()


def event(time: int) -> bytes:
    """An instant at a time."""
    made: bytes = Trace(packet=[{"timestamp": time, "track_event": {"type": 3}}]).SerializeToString()
    return made


def kinds(data: bytes) -> list[str]:
    """What each packet of a file is."""
    return [_kind(packet) for packet in Trace.FromString(data).packet]


def bundles(data: bytes) -> list[list[int]]:
    """The times of the events of each bundle."""
    return [_times(packet) for packet in Trace.FromString(data).packet if _kind(packet) == "bundle"]


def before_marks(data: bytes) -> list[tuple[int, int]]:
    """For each reading of a file the last time that is drawn at it, and the first that stands behind it."""
    parts: list[list[int]] = [[]]
    for packet in Trace.FromString(data).packet:
        if packet.service_event.read_tracing_buffers_completed:
            parts.append([])
        parts[-1] += _times(packet) if _kind(packet) == "bundle" else []
    found = []
    waiting: list[int] = []
    for place in range(len(parts) - 1):
        recent = parts[place]
        behind = [time for part in parts[place + 1 :] for time in part]
        reached = [time for time in waiting if not recent or time <= min(recent)]
        if reached and behind:
            found.append((max(reached), min(behind)))
        waiting = [time for time in waiting if time not in reached] + recent
    return found


def _kind(packet: Any) -> str:
    if packet.HasField("compressed_packets"):
        return "bundle"
    if packet.HasField("service_event"):
        return "mark"
    return "event" if packet.HasField("track_event") else "state"


def _times(packet: Any) -> list[int]:
    return [inner.timestamp for inner in unpacked(Trace(packet=[packet]).SerializeToString())]
