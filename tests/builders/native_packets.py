"""Native traces packet by packet, as tracelink writes them.

    head() + bytes(Sequence().begin(5000, "add").end(2000))

is a trace with one slice.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from builders.inputs import held
from builders.packets import (
    BEGIN,
    COUNTED,
    END,
    INSTANT,
    Fields,
    Fixed,
    interned,
    message,
    packet,
)
from tracelink._io.targets import StreamTarget
from tracelink._model.findings import Finding
from tracelink._model.job import LinkedJob
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.native_json import NativeAsJson
from tracelink.converters.perfetto.native_writer import PerfettoWriter
from tracelink.plugins import Output

source = held("job.pftrace")
BASE = 1_700_000_000_000_000_000
CATEGORIES, NAMES, ARGUMENT_NAMES = 1, 2, 3
THREAD, OTHER_THREAD, COUNTER = 11, 12, 13
HEADER = {"schemaVersion": 1, "baseTimeNanoseconds": BASE, "tracelink": {"ranks": [{"rank": 0}]}}
SHOWN_THREAD, OTHER_SHOWN_THREAD = 101, 102
"""Their numbers in JSON."""
FACTS = {
    "rank": 0,
    "title": "rank 0",
    "processes": [[1, "rank 0 (100)", "CPU", "100"]],
    "threads": [[1, THREAD, "rank 0 thread 101", "101"], [1, OTHER_THREAD, "rank 0 thread 102", "102"]],
    "counters": [[COUNTER, 1, "memory bytes"]],
    "first arrow": 1,
    "arrows": [["ac2g", 2, 1]],
}


def facts(said: dict[str, Any]) -> bytes:
    return packet({1999: json.dumps(said)})


def head(*more: dict[str, Any]) -> bytes:
    """What stands at the beginning of every trace of tracelink's."""
    return facts(HEADER) + b"".join(map(facts, more or (FACTS,)))


def bundle(*packets: bytes, at: int = 0, inside: bytes | None = None) -> bytes:
    """Packets of which the first event is so many nanoseconds after the base."""
    return packet({8: at, 50: zlib.compress(b"".join(packets)) if inside is None else inside})


def leaves(arrow: int) -> Fields:
    return {47: Fixed(arrow)}


def arrives(arrow: int) -> Fields:
    return {48: Fixed(arrow)}


COLOURED = {52: 262}
"""Of an event that hangs."""


@dataclass
class Sequence:
    """Packets of one sequence: the first has all texts; every event is some nanoseconds after the one before."""

    number: int = 1
    time: int = 0
    texts: dict[int, dict[str, int]] = field(
        default_factory=lambda: {CATEGORIES: {}, NAMES: {}, ARGUMENT_NAMES: {}}
    )
    behind: list[bytes] = field(default_factory=list)

    def begin(
        self, step: int, name: str, *more: Fields, category: str = "cpu_op", on: int = THREAD
    ) -> Sequence:
        return self.event(step, BEGIN, on, self._called(name, category), *more)

    def end(self, step: int, *, on: int = THREAD) -> Sequence:
        return self.event(step, END, on)

    def instant(
        self, step: int, name: str, *more: Fields, category: str = "cpu_op", on: int = THREAD
    ) -> Sequence:
        return self.event(step, INSTANT, on, self._called(name, category), *more)

    def sample(self, step: int, value: float) -> Sequence:
        return self.event(step, COUNTED, COUNTER, {44: float(value)})

    def event(self, step: int, kind: int, on: int, *more: Fields) -> Sequence:
        return self.add(step, {11: message({9: kind, 11: on}, *more)})

    def add(self, step: int, *fields: Fields) -> Sequence:
        self.time += step
        self.behind.append(packet({8: self.time, 10: self.number}, *fields))
        return self

    def arguments(self, said: Mapping[str, str]) -> Fields:
        """Fields of an event: for each name the text of an object."""
        return {4: [{1: self._number(ARGUMENT_NAMES, name), 9: value} for name, value in said.items()]}

    @property
    def packets(self) -> list[bytes]:
        tables = {table: interned(texts) for table, texts in self.texts.items()}
        return [packet({10: self.number, 13: 1, 12: tables}), *self.behind]

    def __bytes__(self) -> bytes:
        return b"".join(self.packets)

    def _called(self, name: str, category: str) -> Fields:
        return {3: self._number(CATEGORIES, category), 10: self._number(NAMES, name)}

    def _number(self, table: int, said: str) -> int:
        return self.texts[table].setdefault(said, len(self.texts[table]) + 1)


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


def written(job: LinkedJob) -> bytes:
    """What the writer makes of a job."""
    stream = io.BytesIO()
    PerfettoWriter().write(job, StreamTarget(stream), Processes(1))
    return stream.getvalue()


def as_json(data: bytes, jobs: int = 1) -> Read:
    stream = io.BytesIO()
    (output,) = NativeAsJson().convert(source(data), StreamTarget(stream), Processes(jobs))
    return Read(json.loads(stream.getvalue()), output.findings, output)
