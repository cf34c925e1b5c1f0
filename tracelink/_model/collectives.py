"""What ranks do together: collectives, the part of each rank in them, and messages between two ranks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Struct, field

from tracelink._model.columns import Codes, Durations, EventRow, Float64s, Int32s, Int64s, Table, Times
from tracelink._model.communications import Calls, Evidences, RoundTrips
from tracelink._model.fields import Doc
from tracelink._model.trace import ProcessGroup

LONG_NS = 10_000_000_000
"""Unfinished for less than this is no hang: checkpoints and evaluation take seconds."""
LONG_FOR_A_FIRST_NS = 20_000_000_000
"""For the first work of a group, which also sets up connections: no duration to compare with is known."""
TIMES_LONGER = 20
"""A call hangs if it takes longer than the longest finished one of its group by this factor."""


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

    group: Annotated[Int32s, Doc("The group: a row of `groups`.")]
    sequence: Annotated[Int64s, Doc("The sequence number that the sources recorded.")]
    order: Annotated[Int64s, Doc("The position among the collectives of the group, from 0.")]
    operation: Annotated[Codes, Doc("`all_reduce`, ...")]
    type: Annotated[Codes, Doc("The type of the elements.")]
    bytes: Annotated[Int64s, Doc("Size as nccl-tests counts it for this operation.")]
    start: Annotated[Times, Doc("When the first rank entered.")]
    end: Annotated[Times, Doc("When the last rank left.")]
    last_rank: Annotated[Int32s, Doc("The rank that entered last.")]
    skew: Annotated[Durations, Doc("From the first rank's entry to the last one's.")]
    duration: Annotated[Durations, Doc("From the last rank's entry to the last exit.")]
    algorithm_gb_s: Annotated[Float64s, Doc("Algorithm bandwidth as nccl-tests defines it.")]
    bus_gb_s: Annotated[Float64s, Doc("Bus bandwidth as nccl-tests defines it.")]
    verdict: Annotated[Codes, Doc("`complete`, `partial`, `missing`, `mismatch` or `unmatched`.")]
    root: Annotated[Int32s, Doc("The rank that sends to or receives from all others.")]


RankRows = Annotated[Int64s, EventRow("rank")]
SourceRows = Annotated[Int64s, EventRow("source")]
TargetRows = Annotated[Int64s, EventRow("target")]
"""Rows of events of the rank in that column, or UNKNOWN."""


class Participations(Table, frozen=True):
    """One row for each rank's part in a collective, grouped by collective."""

    collective: Annotated[Int64s, Doc("The row of `collectives`.")]
    rank: Annotated[Int32s, Doc("The rank.")]
    record: Annotated[RankRows, Doc("The entry of the flight recorder: a row of `events` of the rank.")]
    operator: Annotated[RankRows, Doc("The operator.")]
    annotation: Annotated[RankRows, Doc("The annotation.")]
    node: Annotated[RankRows, Doc("The node of the execution trace.")]
    kernel: Annotated[RankRows, Doc("The kernel.")]
    enqueued: Annotated[Times, Doc("When the rank enqueued it.")]
    start: Annotated[Times, Doc("When the rank entered, by `evidence`.")]
    end: Annotated[Times, Doc("When the rank left.")]
    evidence: Annotated[Evidences, Doc("What its times are based on.")]
    wait: Annotated[Durations, Doc("From its own entry to that of the last rank.")]
    state: Annotated[Codes, Doc("The state that the flight recorder recorded.")]
    bytes_in: Annotated[Int64s, Doc("Bytes of all tensors that the rank sends.")]
    bytes_out: Annotated[Int64s, Doc("Bytes of all tensors that the rank receives.")]


class Messages(Table, frozen=True):
    """One row for each message from one rank to another."""

    group: Annotated[Int32s, Doc("The group: a row of `groups`.")]
    source: Annotated[Int32s, Doc("The rank that sends.")]
    target: Annotated[Int32s, Doc("The rank that receives.")]
    tag: Annotated[Int64s, Doc("The tag.")]
    order: Annotated[Int64s, Doc("The position among the messages of this pair, group and tag, from 0.")]
    bytes: Annotated[Int64s, Doc("Its size.")]
    send: Annotated[SourceRows, Doc("The event of the send: a row of `events` of `source`.")]
    receive: Annotated[TargetRows, Doc("The event of the receive: a row of `events` of `target`.")]
    send_node: Annotated[SourceRows, Doc("The node of the execution trace that sends.")]
    receive_node: Annotated[TargetRows, Doc("The node of the execution trace that receives.")]
    sent: Annotated[Times, Doc("When the send started.")]
    received: Annotated[Times, Doc("When the receive ended.")]
    verdict: Annotated[Codes, Doc("`complete`, `partial`, `missing`, `mismatch` or `unmatched`.")]
