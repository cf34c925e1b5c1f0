"""Snapshots as rank traces: counters of each device, its largest blocks as slices, failed allocations as instants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.errors import UnreadableError, printable
from tracelink._model.events import BYTES, Counters, EventKind, Track, TrackKind
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.records import Frame, frame_of, line_in_words, of_program
from tracelink._model.text import counted, moment, size, subject
from tracelink._model.trace import RankTrace
from tracelink.converters.memory_snapshot import schema
from tracelink.converters.memory_snapshot.history import (
    Device,
    History,
    Lives,
    actions_among,
    history_of,
    largest_at,
    lives_of,
    usage_at,
)
from tracelink.converters.memory_snapshot.pickles import Decoded, decode
from tracelink.plugins.traces import TraceBuilder

FORMAT = "memory-snapshot"
MOST_BLOCKS = 20
"""The largest blocks at the peak, and as many at the end, become slices."""
NAMED_ORIGINS = 5
"""Lines of the program that a finding names."""
MOST_FRAMES = 64
NO_FILE = "none"
"""The file of frames whose names hold it: snapshots that torch makes of a profile have them."""
MOST_FAILURES = 10_000
OPERATOR = re.compile(r"^at::_ops::(\w+)::(?:call|redispatch)\b")
"""C++ functions that are operators of torch, in stacks with frames of C++."""


class SnapshotReader:
    """Reads what `torch.cuda.memory._dump_snapshot` wrote."""

    name = FORMAT

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The memory of all devices of one process."""
        damage = ""
        try:
            with source.open() as stream:
                try:
                    decoded = decode(stream, engine.meter.add)
                finally:
                    damage = stream.damage
        except UnreadableError as error:
            error.source = error.source or source.path
            error.problem += f" ({damage})" if damage else ""
            raise
        history = history_of(decoded)
        if history is None:
            raise UnreadableError(
                "it is not a snapshot: expected segments or device_traces",
                source=source.path,
                advice="Is it a file of torch.cuda.memory._dump_snapshot?",
            )
        assembly = _Assembly(source, decoded)
        for device in history.devices:
            assembly.add(device)
        return assembly.trace(history, damage)


class _Event(Struct, frozen=True):
    """An event before it is a row."""

    kind: EventKind
    name: str
    track: int
    start: int
    duration: int
    arguments: dict[str, Any]


class _Assembly(Struct):
    """A trace, device by device."""

    source: Source
    decoded: Decoded
    events: list[_Event] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    counters: list[Counters] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    stacks: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.frames, self.stacks = list(self.decoded.entries.frames), list(self.decoded.entries.stacks)

    def add(self, device: Device) -> None:
        """One more device."""
        track = len(self.tracks)
        label = "largest memory blocks"
        self.tracks.append(Track(TrackKind.STREAM, str(device.number), label, label))
        if device.timed:
            for title, level in (("allocated", device.allocated), ("reserved", device.reserved)):
                self._count(device, title, level)
        lives = lives_of(self.decoded, device)
        end = len(device.trace) - 1
        last = largest_at(lives, end, MOST_BLOCKS)
        summary: dict[str, Any] = {"device": device.number, "in_use": device.in_use, "reserved": device.held}
        if len(device.trace):
            row = int(device.allocated.argmax())
            summary["peak"] = int(device.allocated[row])
            summary["in_use_at_peak"] = self._usage(lives, row)
        if device.timed:
            summary["peak_time_ns"] = int(device.trace.time[row])
            self._draw(device, lives, largest_at(lives, row, MOST_BLOCKS), last, track)
            self._failures(device, lives, track)
        summary["in_use_at_end"] = self._usage(lives, end)
        self.devices.append(summary)
        self._summarize(device, summary)

    def _count(self, device: Device, title: str, level: Int64s) -> None:
        """A counter: the last sample of each time, without repetitions."""
        time = device.trace.time
        last = np.append(time[1:] != time[:-1], True)
        time, level = time[last], level[last]
        changed = np.append(True, level[1:] != level[:-1])
        changed[-1] = True
        time, level = time[changed], level[changed]
        name = f"GPU {device.number} {title}, memory snapshot"
        numbers = np.full(len(time), len(self.tracks), np.int32)
        self.tracks.append(Track(TrackKind.COUNTER, "", name, name, unit=BYTES))
        self.counters.append(Counters(numbers, time, level.astype(np.float64)))

    # Blocks: where they come from, as text and as slices.

    def _stack(self, stack: int) -> list[Frame]:
        if stack == UNKNOWN:
            return []
        frames = [self.frames[one] for one in self.stacks[stack]]
        return [
            (frame_of(one.name) or replace(one, filename="")) if one.filename == NO_FILE else one
            for one in frames
        ]

    def _origin(self, stack: int) -> str:
        """`aten::mm, model.py:41 forward`."""
        frames = self._stack(stack)
        if not frames:
            return "an unknown stack"
        operators = [match[1] for one in frames if (match := OPERATOR.match(one.name))]
        own = of_program(frames)[0]
        line = f"{line_in_words(own)} {own.name}".strip()
        return f"aten::{operators[-1]}, {line}" if operators else line

    def _usage(self, lives: Lives, row: int) -> list[dict[str, Any]]:
        """Where the blocks in use after an entry come from, with their bytes, the most first."""
        found: dict[str, dict[str, Any]] = {}
        for stack, total, count in usage_at(lives, row):
            origin = self._origin(stack)
            one = found.setdefault(origin, {"origin": origin, "bytes": 0, "blocks": 0})
            one["bytes"] += total
            one["blocks"] += count
        return sorted(found.values(), key=lambda one: -one["bytes"])[:MOST_BLOCKS]

    def _draw(self, device: Device, lives: Lives, peak: Int64s, last: Int64s, track: int) -> None:
        """A slice for each of the largest blocks, from its allocation to its release, as far as recorded."""
        time = device.trace.time
        at_peak, at_end = set(peak.tolist()), set(last.tolist())
        for row in sorted(at_peak | at_end):
            born, died = int(lives.born[row]), int(lives.died[row])
            start = int(time[max(born, 0)])
            end = int(time[died]) if died < len(time) else int(time[-1])
            origin = self._origin(int(lives.stack[row]))
            arguments = {
                "bytes": int(lives.size[row]),
                "address": hex(int(lives.address[row]) & (1 << 64) - 1),
                "allocated": "in the recording" if born != UNKNOWN else "before the recording",
                "released": "in the recording" if died < len(time) else "not yet",
                "in use at the peak": row in at_peak,
                "in use at the end": row in at_end,
                "stack": self._lines(int(lives.stack[row])),
            }
            name = f"{size(int(lives.size[row]))} {origin}"
            self.events.append(_Event(EventKind.MEMORY, name, track, start, max(end - start, 1), arguments))

    def _lines(self, stack: int) -> list[str]:
        return [f"{one.filename}:{one.line} {one.name}" for one in self._stack(stack)[:MOST_FRAMES]]

    def _failures(self, device: Device, lives: Lives, track: int) -> None:
        """An instant for each allocation that failed, and for each earlier snapshot."""
        trace = device.trace
        failed = np.flatnonzero(np.isin(trace.action, actions_among(self.decoded, {schema.OUT_OF_MEMORY})))
        taken = np.flatnonzero(np.isin(trace.action, actions_among(self.decoded, {schema.SNAPSHOT})))
        for row in failed[:MOST_FAILURES].tolist():
            wanted, left = int(trace.size[row]), int(trace.address[row])
            arguments = {
                "bytes": wanted,
                "free on the device": left,
                "allocated": int(device.allocated[row]),
                "reserved": int(device.reserved[row]),
                "stack": self._lines(int(trace.stack[row])),
            }
            name = f"out of memory: {size(wanted)} requested"
            self.events.append(_Event(EventKind.INSTANT, name, track, int(trace.time[row]), 0, arguments))
        for row in taken[:MOST_FAILURES].tolist():
            self.events.append(
                _Event(EventKind.INSTANT, "memory snapshot", track, int(trace.time[row]), 0, {})
            )
        if len(failed):
            self._report_failure(device, lives, failed)

    # Findings.

    def _named(self, usage: Sequence[dict[str, Any]]) -> str:
        """`6.0 GB in 20 blocks from model.py:52 forward; 2.1 GB in 1 block from model.py:41 __init__`."""
        parts = [
            f"{size(one['bytes'])} in {counted(one['blocks'], 'block')} from {printable(one['origin'])}"
            for one in usage[:NAMED_ORIGINS]
        ]
        return "; ".join(parts) or "unknown"

    def _report_failure(self, device: Device, lives: Lives, failed: Int64s) -> None:
        row = int(failed[0])
        usage = self._named(self._usage(lives, row))
        wanted, left = int(device.trace.size[row]), max(int(device.trace.address[row]), 0)
        message = (
            f"{self.source.path}: GPU {device.number} was out of memory {counted(len(failed), 'time')}, first at "
            f"{moment(int(device.trace.time[row]))}: {size(wanted)} requested, {size(left)} free on the device, "
            f"{size(int(device.allocated[row]))} allocated: {usage}."
        )
        self.findings.append(
            Finding(Severity.WARNING, "out_of_memory", message, len(failed), self.source.path)
        )

    def _summarize(self, device: Device, summary: dict[str, Any]) -> None:
        """Where the memory in use comes from, in one sentence."""
        where = f"{self.source.path}: GPU {device.number}"
        if usage := summary.get("in_use_at_peak"):
            time = summary.get("peak_time_ns")
            when = "at the peak" if time is None else f"at the peak, at {moment(time)}"
            message = f"{where} had {size(summary['peak'])} allocated {when}: {self._named(usage)}."
        elif usage := summary["in_use_at_end"]:
            message = f"{where} has {size(device.in_use)} allocated: {self._named(usage)}."
        else:
            return
        self.findings.append(Finding(Severity.INFO, "memory_in_use", message, source=self.source.path))

    # The whole.

    def trace(self, history: History, damage: str) -> RankTrace:
        """The trace of all devices."""
        times = np.concatenate(
            [_NO_TIMES, *(device.trace.time for device in history.devices if device.timed)]
        )
        trace = TraceBuilder(
            self.source,
            FORMAT,
            records=history.entries,
            start_ns=int(times.min()) if len(times) else None,
            end_ns=int(times.max()) if len(times) else None,
            header={"devices": self.devices} | self._settings(),
        )
        for event in sorted(self.events, key=lambda event: (event.track, event.start)):
            trace.event(
                event.name,
                event.start,
                event.duration,
                kind=event.kind,
                track=event.track,
                args=event.arguments,
            )
        self.findings += self._problems(history, damage)
        return trace.build(
            tracks=self.tracks, counters=Counters.concatenate(self.counters), findings=self.findings
        )

    def _settings(self) -> dict[str, Any]:
        root = self.decoded.root
        settings = root.get(schema.SETTINGS) if isinstance(root, dict) else None
        if not isinstance(settings, dict):
            return {}
        plain = {
            key: value
            for key, value in settings.items()
            if type(key) is str and type(value) in (str, int, bool) and len(str(value)) < 1000
        }
        return {schema.SETTINGS: plain} if plain else {}

    def _problems(self, history: History, damage: str) -> Iterator[Finding]:
        path = self.source.path
        if self.decoded.truncated or damage:
            cause = f" ({damage})" if damage else ""
            why = f"{self.decoded.truncated or 'its compression is damaged'}{cause}"
            aside = ", and levels may be too low by a constant"
            truncated = Truncated(path, why, history.entries, "entry", aside=aside)
            yield truncated.finding(severity=Severity.ERROR)
        if history.untimed:
            skipped = subject(history.untimed, "entry", "have")
            message = f"{path}: {skipped} no valid time or size: skipped."
            yield Finding(Severity.WARNING, "unusable", message, history.untimed, path)
        if history.unplaced:
            skipped = subject(history.unplaced, "entry", "are")
            message = f"{path}: {skipped} of no device: skipped."
            yield Finding(Severity.WARNING, "no_device", message, history.unplaced, path)
        without = sum(len(device.trace) for device in history.devices if not device.timed)
        if without:
            entries = subject(without, "entry", "have")
            message = (
                f"{path}: {entries} no times, and are not on the timeline: old versions of torch record none."
            )
            yield Finding(Severity.WARNING, "no_times", message, without, path)
        if not any(len(device.trace) for device in history.devices):
            message = (
                f"{path}: it has no trace, only the blocks of one moment. Call "
                "torch.cuda.memory._record_memory_history() before the program runs."
            )
            yield Finding(Severity.WARNING, "no_trace", message, source=path)


_NO_TIMES = np.empty(0, np.int64)
