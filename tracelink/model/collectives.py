"""Collectives, Participations, Messages, Verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tracelink.model.columns import Columns, Int32s, Int64s
from tracelink.model.communications import Calls, filled
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
class Collectives(Columns):
    """One row for each communication of a whole group. `operation`, `type` and `verdict` are texts' codes."""

    group: Int32s
    """Row of the groups."""
    sequence: Int64s
    """The number that the sources give it, or UNKNOWN where they give none."""
    order: Int64s
    """The place among the group's collectives."""
    operation: Int32s
    type: Int32s
    bytes: Int64s
    """As nccl-tests counts the size of this operation, or UNKNOWN."""
    start: Int64s
    """When the first rank entered; NO_TIME where nobody is known to have."""
    end: Int64s
    """When the last rank left."""
    last_rank: Int32s
    """Who entered last."""
    skew: Int64s
    """From the first to the last entering, in ns, or UNKNOWN."""
    duration: Int64s
    """From the last entering to the last leaving, in ns, or UNKNOWN."""
    algorithm_gb_s: np.ndarray[Any, np.dtype[np.float64]]
    bus_gb_s: np.ndarray[Any, np.dtype[np.float64]]
    """Bandwidths as nccl-tests defines them, in 10^9 bytes a second; NaN where unknown."""
    verdict: Int32s
    root: Int32s
    """The rank of the job that gives to all others or gets from them; UNKNOWN where all do the same."""

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, count: int, **columns: Any) -> Collectives:
        """`count` collectives; what is not given is unknown."""
        return cls(*filled(cls, count, columns))


@dataclass(frozen=True, slots=True)
class Participations(Columns):
    """One row for each rank's part in a collective, grouped by collective. Event columns hold rows or UNKNOWN."""

    collective: Int64s
    rank: Int32s
    record: Int64s
    operator: Int64s
    annotation: Int64s
    node: Int64s
    kernel: Int64s
    enqueued: Int64s
    start: Int64s
    """When it entered, by the evidence that all participations of the collective share."""
    end: Int64s
    evidence: Int32s
    wait: Int64s
    """From its own entering to that of the last, in ns, or UNKNOWN."""
    state: Int32s
    """Code of the recorder's word, or UNKNOWN."""
    bytes_in: Int64s
    bytes_out: Int64s
    """What the rank gives and gets, over all tensors; UNKNOWN where its sources do not say."""

    def __len__(self) -> int:
        return len(self.collective)

    @classmethod
    def of(cls, count: int, **columns: Any) -> Participations:
        """`count` participations; what is not given is unknown."""
        return cls(*filled(cls, count, columns))


@dataclass(frozen=True, slots=True)
class Messages(Columns):
    """One row for each message that was sent from one rank to another. Events are rows or UNKNOWN."""

    group: Int32s
    source: Int32s
    target: Int32s
    """Ranks of the job."""
    tag: Int64s
    order: Int64s
    """The place among the messages of this pair, group and tag."""
    bytes: Int64s
    send: Int64s
    receive: Int64s
    """The events that stand for both ends: kernel, annotation, operator or record."""
    send_node: Int64s
    receive_node: Int64s
    """The nodes of the execution traces that ask for them."""
    sent: Int64s
    """When the sending began."""
    received: Int64s
    """When the receiving ended, or NO_TIME where no source tells."""
    verdict: Int32s

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, count: int, **columns: Any) -> Messages:
        """`count` messages; what is not given is unknown."""
        return cls(*filled(cls, count, columns))


TEXTS = ("operation", "type", "verdict", "state")
"""Columns that are codes of texts."""
