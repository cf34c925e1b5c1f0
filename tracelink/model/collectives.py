"""Collectives, Participations, Messages, Verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from tracelink.model.columns import Codes, EventRow, Float64s, Int32s, Int64s, Table, Times
from tracelink.model.communications import Calls, Evidences
from tracelink.model.trace import ProcessGroup


class Verdict(StrEnum):
    """What is to be said of a collective or a message as a whole."""

    COMPLETE = "complete"
    """Every member of the group takes part."""
    PARTIAL = "partial"
    """Members take no part whose sources do not reach so far, or that have no source."""
    MISSING = "missing"
    """Members take no part although their sources cover the time."""
    MISMATCH = "mismatch"
    """Members do different things under one number."""
    UNMATCHED = "unmatched"
    """One call that no other could be matched with."""


@dataclass(frozen=True, slots=True)
class RankCalls:
    """The calls of one rank with everything that matching them needs; small, and independent of the events."""

    rank: int
    strings: Sequence[str]
    calls: Calls
    groups: Sequence[ProcessGroup] = ()
    host: str = ""
    world_size: int | None = None
    broken_off: bool = False
    """Whether a source breaks off: the rank may have done more than it tells."""


@dataclass(frozen=True, slots=True)
class Collectives(Table):
    """One row for each communication of a whole group. `operation`, `type` and `verdict` are texts' codes."""

    group: Int32s
    """Row of the groups."""
    sequence: Int64s
    """The number that the sources give it, or UNKNOWN where they give none."""
    order: Int64s
    """The place among the group's collectives."""
    operation: Codes
    type: Codes
    bytes: Int64s
    """As nccl-tests counts the size of this operation, or UNKNOWN."""
    start: Times
    """When the first rank entered; NO_TIME where nobody is known to have."""
    end: Times
    """When the last rank left."""
    last_rank: Int32s
    """Who entered last."""
    skew: Int64s
    """From the first to the last entering, in ns, or UNKNOWN."""
    duration: Int64s
    """From the last entering to the last leaving, in ns, or UNKNOWN."""
    algorithm_gb_s: Float64s
    bus_gb_s: Float64s
    """Bandwidths as nccl-tests defines them, in 10^9 bytes a second; NaN where unknown."""
    verdict: Codes
    root: Int32s
    """The rank of the job that gives to all others or gets from them; UNKNOWN where all do the same."""


RankRows = Annotated[Int64s, EventRow("rank")]
SourceRows = Annotated[Int64s, EventRow("source")]
TargetRows = Annotated[Int64s, EventRow("target")]
"""Rows of events of the rank in that column, or UNKNOWN."""


@dataclass(frozen=True, slots=True)
class Participations(Table):
    """One row for each rank's part in a collective, grouped by collective. Event columns hold rows or UNKNOWN."""

    collective: Int64s
    rank: Int32s
    record: RankRows
    operator: RankRows
    annotation: RankRows
    node: RankRows
    kernel: RankRows
    enqueued: Times
    start: Times
    """When it entered, by the evidence that all participations of the collective share."""
    end: Times
    evidence: Evidences
    wait: Int64s
    """From its own entering to that of the last, in ns, or UNKNOWN."""
    state: Codes
    """Code of the recorder's word, or UNKNOWN."""
    bytes_in: Int64s
    bytes_out: Int64s
    """What the rank gives and gets, over all tensors; UNKNOWN where its sources do not say."""


@dataclass(frozen=True, slots=True)
class Messages(Table):
    """One row for each message that was sent from one rank to another. Events are rows or UNKNOWN."""

    group: Int32s
    source: Int32s
    target: Int32s
    """Ranks of the job."""
    tag: Int64s
    order: Int64s
    """The place among the messages of this pair, group and tag."""
    bytes: Int64s
    send: SourceRows
    receive: TargetRows
    """The events that stand for both ends: kernel, annotation, operator or record."""
    send_node: SourceRows
    receive_node: TargetRows
    """The nodes of the execution traces that ask for them."""
    sent: Times
    """When the sending began."""
    received: Times
    """When the receiving ended, or NO_TIME where no source tells."""
    verdict: Codes
