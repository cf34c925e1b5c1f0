"""Native traces packet by packet, in every way in which packets can say the same."""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tracelink.converters.perfetto_native.reading.as_json import NativeAsJson
from tracelink.converters.perfetto_native.writer import PerfettoWriter
from tracelink.engine import Engine
from tracelink.findings import Finding
from tracelink.job import Job
from tracelink.plugins import Output
from tracelink.sources import Source
from tracelink.targets import StreamTarget
from tracelink.wire import FIXED64, VARINT, delimited, key, varint

BASE = 1_700_000_000_000_000_000
BOOT, OWN = 6, 64
THREAD, OTHER_THREAD, COUNTER = 11, 12, 13
HEADER = {"schemaVersion": 1, "baseTimeNanoseconds": BASE, "tracelink": {"ranks": [{"rank": 0}]}}
FACTS = {
    "rank": 0,
    "processes": [[1, "rank 0 (100)", "CPU", "100"]],
    "threads": [[1, THREAD, "rank 0 thread 101", "101"], [1, OTHER_THREAD, "rank 0 thread 102", "102"]],
    "counters": [[COUNTER, 1, "memory bytes"]],
    "first arrow": 1,
    "arrows": [["ac2g", 2, 1]],
}


def number(place: int, value: int) -> bytes:
    return key(place, VARINT) + varint(value & (1 << 64) - 1)


def text(place: int, value: str) -> bytes:
    return delimited(place, value.encode())


def double(place: int, value: float) -> bytes:
    return key(place, FIXED64) + struct.pack("<d", value)


def flow(place: int, value: int) -> bytes:
    return key(place, FIXED64) + struct.pack("<Q", value)


def packet(*fields: bytes) -> bytes:
    return delimited(1, b"".join(fields))


def facts(said: dict[str, Any]) -> bytes:
    return packet(text(1999, json.dumps(said)))


def head(*more: dict[str, Any]) -> bytes:
    """What stands at the beginning of every trace of tracelink's."""
    return facts(HEADER) + b"".join(map(facts, more or (FACTS,)))


def bundle(*packets: bytes, compressed: bytes | None = None) -> bytes:
    inside = zlib.compress(b"".join(packets)) if compressed is None else compressed
    return packet(number(8, BASE), delimited(50, inside))


def argument(*value: bytes, name: str) -> bytes:
    return b"".join((text(10, name), *value))


def event(kind: int, *fields: bytes) -> bytes:
    return delimited(11, number(9, kind) + b"".join(fields))


@dataclass
class Sequence:
    """Packets of one sequence, which says once what its clock and its texts are."""

    number: int = 1
    packets: list[bytes] = field(default_factory=list)

    def begins(
        self,
        texts: dict[int, dict[int, str]] | None = None,
        *,
        incremental: bool = True,
        track: int | None = None,
    ) -> Sequence:
        clocks = [
            number(1, BOOT) + number(2, BASE),
            number(1, OWN) + number(2, BASE) + number(3, incremental),
        ]
        tables = b"".join(
            delimited(table, number(1, place) + text(2, said))
            for table, entries in (texts or {}).items()
            for place, said in entries.items()
        )
        defaults = number(58, OWN) + (b"" if track is None else delimited(11, number(11, track)))
        self._add(
            number(8, BASE),
            number(58, BOOT),
            number(13, 1),
            delimited(6, b"".join(delimited(1, clock) for clock in clocks)),
            delimited(12, tables),
            delimited(59, defaults),
        )
        return self

    def add(self, time: int, told: bytes, *more: bytes) -> Sequence:
        self._add(number(8, time), told, *more)
        return self

    def _add(self, *fields: bytes) -> None:
        self.packets.append(packet(number(10, self.number), *fields))

    def __bytes__(self) -> bytes:
        return b"".join(self.packets)


def source(data: bytes, name: str = "job.pftrace") -> Source:
    return Source(name, partial(io.BytesIO, data), len(data))


@dataclass(frozen=True)
class Read:
    """What was made of a trace."""

    document: dict[str, Any]
    findings: tuple[Finding, ...]
    output: Output

    @property
    def events(self) -> list[dict[str, Any]]:
        """All but names and orders; times are microseconds after the base."""
        return [one for one in self.document["traceEvents"] if one["ph"] != "M"]

    @property
    def reasons(self) -> dict[str, int]:
        return {finding.reason: finding.count for finding in self.findings}


def written(job: Job) -> bytes:
    """What the writer makes of a job."""
    stream = io.BytesIO()
    PerfettoWriter().write(job, StreamTarget(stream), Engine(1))
    return stream.getvalue()


def as_json(data: bytes, jobs: int = 1) -> Read:
    stream = io.BytesIO()
    (output,) = NativeAsJson().convert(source(data), StreamTarget(stream), Engine(jobs))
    return Read(json.loads(stream.getvalue()), output.findings, output)
