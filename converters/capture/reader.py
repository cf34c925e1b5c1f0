"""Capture file to rank trace: no events, but rank, host, groups and clock readings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.columns import MILLISECOND
from tracelink._model.communications import RoundTrips
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import ProcessGroup, RankTrace, shared_ranks
from tracelink.converters.capture import schema
from tracelink.plugins.traces import TraceBuilder

FORMAT = "capture"
STEADY_NS, STEADIER = MILLISECOND, 2000
"""How much a wall clock may differ from a monotonic one: 1 ms, and one part in so many of the time between."""


class CaptureReader:
    """Reads what `tracelink.capture` writes about a rank."""

    name = FORMAT

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """A trace without events."""
        document = decoded(source)
        trace = TraceBuilder(
            source,
            FORMAT,
            version=str(document.tracelink_capture),
            rank=document.rank,
            host=document.host,
            world_size=document.world_size or None,
            pid=document.pid,
            records=1,
            header={"outcome": document.outcome, "steps": document.steps, **document.versions},
        )
        return trace.build(
            groups=[
                ProcessGroup(
                    group.name, group.description, shared_ranks(group.ranks), group.size, group.backend
                )
                for group in document.groups
            ],
            round_trips=_round_trips(document),
            findings=_findings(source.path, document),
        )


def decoded(source: Source) -> schema.Capture:
    """The content of a capture file."""
    with source.open() as stream:
        text = stream.read_all(schema.LARGEST)
    try:
        document = msgspec.json.decode(text, type=schema.Capture)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"is not a capture file: {error}", source=source.path, advice="Leave it out, or record it again."
        ) from error
    if document.world_size and document.rank >= document.world_size:
        raise UnreadableError(
            f"is not a capture file: there is no rank {document.rank} of {document.world_size}",
            source=source.path,
            advice="Leave it out, or record it again.",
        )
    return document


def _round_trips(document: schema.Capture) -> RoundTrips:
    """Those in which the answer can lie between question and receipt."""
    trips = [trip for trip in document.round_trips if trip.sent_ns <= trip.received_ns]
    return RoundTrips.of(
        sent=[trip.sent_ns for trip in trips],
        answered=[trip.rank0_ns for trip in trips],
        received=[trip.received_ns for trip in trips],
    )


def _moved_ns(readings: Sequence[schema.Reading]) -> int:
    """The largest change of the wall clock against the monotonic one that is no drift; 0 if there is none."""
    changes = [
        (later.wall_ns - first.wall_ns) - (later.monotonic_ns - first.monotonic_ns)
        for first, later in pairwise(readings)
        if abs(later.wall_ns - first.wall_ns - later.monotonic_ns + first.monotonic_ns)
        > STEADY_NS + (later.monotonic_ns - first.monotonic_ns) // STEADIER
    ]
    return max(changes, key=abs, default=0)


def _findings(path: str, document: schema.Capture) -> list[Finding]:
    found = [
        Finding(
            Severity.INFO,
            "not_recorded",
            f"{path}: {trouble.subject}: {trouble.message.rstrip('.')}. {trouble.advice}".rstrip(),
            source=path,
        )
        for trouble in document.troubles
    ]
    if moved := _moved_ns(document.readings):
        message = (
            f"{path}: the wall clock of rank {document.rank} was moved by {moved / MILLISECOND:+.3f} ms while it "
            "recorded: times before and after are not comparable."
        )
        found.append(Finding(Severity.WARNING, "clock_set", message, source=path))
    if document.tracelink_capture > schema.VERSION:
        message = f"{path}: written by tracelink {document.tracelink}, a newer version; its new fields are not read."
        found.append(Finding(Severity.WARNING, "newer_schema", message, source=path))
    return found
