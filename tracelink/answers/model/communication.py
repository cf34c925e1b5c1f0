"""What is known of the communication of a job: classes of collectives, late ranks, pairs of ranks, bandwidths.

All times are nanoseconds. Times of ranks are sums over ranks: eight ranks that wait 1 ms each wait 8 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class CostKind(StrEnum):
    """What most of the time of a class of collectives is."""

    TRANSFER = "transfer"
    """At least two thirds of the time, data were on their way."""
    ARRIVAL = "arrival"
    """At least two thirds of the time, ranks waited for one that came later."""
    MIXED = "mixed"
    INCONCLUSIVE = "inconclusive"
    """Ranks or times are missing, or clocks are too uncertain."""


class Scope(StrEnum):
    """Whether communication stays on one host."""

    INTRA_HOST = "intra-host"
    INTER_HOST = "inter-host"
    UNKNOWN = "unknown"


class Pattern(StrEnum):
    """Whether it is always the same rank that delays others."""

    CONSTANT = "constant"
    ROTATING = "rotating"
    TOO_FEW = "too few"
    """Too few collectives with a rank that others waited for."""


class RankWaits(Struct, frozen=True):
    """One rank in one class of collectives."""

    rank: int
    wait_ns: int
    """How long it waited for the last rank."""
    last: int
    """How often it was the last one."""


class CollectiveRow(Struct, frozen=True):
    """All collectives of one operation, size and group."""

    group: int
    """The row of the group in the table of groups."""
    group_name: str
    operation: str
    bytes: int | None
    """The size of each one; of operations with sizes that vary the power of two below it."""
    ranks: int
    scope: Scope
    count: int
    measured: int
    """How many of them have times of all ranks."""
    cost: CostKind
    why: str
    """Why it is inconclusive; else empty."""
    residence_ns: int
    """The time that all ranks together spent in those that are measured."""
    wait_ns: int
    """The part of it in which they waited for the last rank."""
    transfer_ns: int | None
    """The median time from the arrival of the last rank to the end."""
    baseline_ns: int | None
    """The same of the quarter in which ranks came closest together; None if there are fewer than four."""
    excess_ns: int
    """The part of `residence_ns` in which transfers took longer than the baseline."""
    algorithm_gb_s: float | None
    bus_gb_s: float | None
    """The median bandwidths, without the time that ranks waited, as nccl-tests counts them."""
    by_rank: Sequence[RankWaits]
    """Of those that are measured; of all if none is."""


class BandwidthRow(Struct, frozen=True):
    """All collectives of one operation and size, of groups of one number of ranks."""

    operation: str
    ranks: int
    scope: Scope
    bytes: int
    count: int
    transfer_ns: int
    """The median."""
    bus_gb_s: float
    """The median."""
    best_bus_gb_s: float


class LateRank(Struct, frozen=True):
    """How long the others waited for one rank."""

    rank: int
    last: int
    """How often it was the last to arrive."""
    collectives: int
    """The number of collectives that it took part in, of those with known arrivals."""
    caused_ns: int
    """How long the others waited for it."""
    passed_on_ns: int
    """The part of that which other ranks caused, in earlier collectives of other groups."""
    inherited_ns: int
    """The waits for other ranks that this rank caused."""
    waited_ns: int
    """How long it waited for others."""

    @property
    def own_ns(self) -> int:
        """The waits that it alone is the cause of, for itself and for others that it had delayed."""
        return self.caused_ns - self.passed_on_ns + self.inherited_ns


class Delay(Struct, frozen=True):
    """How long one rank waited because of another one."""

    cause: int
    waiting: int
    wait_ns: int
    collectives: int


class PatternRow(Struct, frozen=True):
    """Who is last in one group."""

    group: int
    group_name: str
    pattern: Pattern
    rank: int | None
    """The rank, if it is constant."""
    share: float
    """Its part of the waits, or that of the rank with most of them."""
    collectives: int
    """Those in which ranks had to wait significantly."""


class PairRow(Struct, frozen=True):
    """All messages from one rank to another."""

    source: int
    target: int
    scope: Scope
    count: int
    unmatched: int
    """Those without a second end."""
    bytes: int | None
    """The sum."""
    latency_ns: int | None
    """The median time from the start of the send to the end of the receive."""
    shortest_ns: int | None
    gb_s: float | None
    """The median of bytes by this time: a lower bound, because either end may have waited for the other."""


class Exchange(Struct, frozen=True):
    """All all-to-all operations of one group: what each rank sends to each."""

    group: int
    group_name: str
    ranks: Sequence[int]
    count: int
    sent_bytes: Sequence[int] | None
    """What each rank sent to all together."""
    received_bytes: Sequence[int] | None
    imbalance: float | None
    """The most that a rank received, by the mean of all ranks: 1 is balanced."""
    matrix_bytes: Sequence[Sequence[int]] | None
    """`[i][j]` is what rank `ranks[i]` sent to `ranks[j]`; None if the sizes of parts were not recorded."""


class Communication(Struct, frozen=True):
    """Who delays whom, and who exchanges how much with whom."""

    bandwidths: Sequence[BandwidthRow]
    late: Sequence[LateRank]
    """The rank that causes most waits first."""
    delays: Sequence[Delay]
    """The longest first, without what is passed on."""
    patterns: Sequence[PatternRow]
    pairs: Sequence[PairRow]
    exchanges: Sequence[Exchange]
