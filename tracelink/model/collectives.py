"""What ranks do together: collectives, the part of each rank in them, and messages between two ranks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Struct, field

from tracelink.model.columns import Codes, EventRow, Float64s, Int32s, Int64s, Table, Times
from tracelink.model.communications import Calls, Evidences, RoundTrips
from tracelink.model.trace import ProcessGroup


class Verdict(StrEnum):
    """Whether a collective or a message is as it should be."""

    COMPLETE = "complete"
    """Every member of the group takes part."""
    PARTIAL = "partial"
    """Some members have no source, or their sources do not cover the time."""
    MISSING = "missing"
    """Some members take no part although their sources cover the time."""
    MISMATCH = "mismatch"
    """Members call different operations with the same sequence number."""
    UNMATCHED = "unmatched"
    """A call that was not matched with any other."""


class RankCalls(Struct, frozen=True):
    """The calls of one rank with all that is needed to match them; small, and independent of the events."""

    rank: int
    strings: Sequence[str]
    calls: Calls
    groups: Sequence[ProcessGroup] = ()
    host: str = ""
    world_size: int | None = None
    broken_off: bool = False
    """Whether a source is truncated: the rank may have made more calls."""
    round_trips: RoundTrips = field(default_factory=RoundTrips.empty)
    """Times at which the rank asked rank 0 for its clock."""


class Collectives(Table, frozen=True):
    """One row for each collective of a group."""

    group: Int32s
    """Index of the group."""
    sequence: Int64s
    """The sequence number that the sources recorded, or UNKNOWN."""
    order: Int64s
    """The position among the collectives of the group, from 0."""
    operation: Codes
    type: Codes
    bytes: Int64s
    """Size as nccl-tests counts it for this operation, or UNKNOWN."""
    start: Times
    """When the first rank entered, or NO_TIME."""
    end: Times
    """When the last rank left, or NO_TIME."""
    last_rank: Int32s
    """The rank that entered last, or UNKNOWN."""
    skew: Int64s
    """From the first rank's entry to the last one's, in ns, or UNKNOWN."""
    duration: Int64s
    """From the last rank's entry to the last exit, in ns, or UNKNOWN."""
    algorithm_gb_s: Float64s
    bus_gb_s: Float64s
    """Bandwidths as nccl-tests defines them, in 10^9 bytes per second, or NaN."""
    verdict: Codes
    root: Int32s
    """The rank of the job that sends to or receives from all others, or UNKNOWN."""


RankRows = Annotated[Int64s, EventRow("rank")]
SourceRows = Annotated[Int64s, EventRow("source")]
TargetRows = Annotated[Int64s, EventRow("target")]
"""Rows of events of the rank in that column, or UNKNOWN."""


class Participations(Table, frozen=True):
    """One row for each rank's part in a collective, grouped by collective."""

    collective: Int64s
    rank: Int32s
    record: RankRows
    operator: RankRows
    annotation: RankRows
    node: RankRows
    kernel: RankRows
    enqueued: Times
    start: Times
    """When the rank entered, by the evidence that all participations of the collective have."""
    end: Times
    evidence: Evidences
    wait: Int64s
    """From its own entry to that of the last rank, in ns, or UNKNOWN."""
    state: Codes
    """The state that the flight recorder recorded: `completed`, `started`, `scheduled`."""
    bytes_in: Int64s
    bytes_out: Int64s
    """Bytes of all tensors that the rank sends and receives, or UNKNOWN."""


class Messages(Table, frozen=True):
    """One row for each message from one rank to another."""

    group: Int32s
    source: Int32s
    target: Int32s
    """Ranks of the job."""
    tag: Int64s
    order: Int64s
    """The position among the messages of this pair of ranks, group and tag, from 0."""
    bytes: Int64s
    send: SourceRows
    receive: TargetRows
    """The events that represent the two ends: kernel, annotation, operator or record."""
    send_node: SourceRows
    receive_node: TargetRows
    """The nodes of the execution traces that issue them."""
    sent: Times
    """When the send started, or NO_TIME."""
    received: Times
    """When the receive ended, or NO_TIME."""
    verdict: Codes
