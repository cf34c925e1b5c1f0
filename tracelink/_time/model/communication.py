"""What is known of the communication of a job: classes of collectives, late ranks, pairs of ranks, bandwidths.

All times are nanoseconds. Times of ranks are sums over ranks: eight ranks that wait 1 ms each wait 8 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from tracelink._model.fields import (
    Bytes,
    Count,
    Doc,
    GigabytesPerSecond,
    Identifier,
    Nanoseconds,
    RankNumber,
    Ranks,
    Row,
    Share,
    Shown,
    SignedNanoseconds,
)

GROUP = Shown("group", 2, 24)


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


class RankWaits(Row, frozen=True):
    """One rank in one class of collectives."""

    rank: RankNumber
    wait_ns: Annotated[Nanoseconds, Doc("How long it waited for the last rank.")]
    last: Annotated[Count, Doc("How often it was the last one.")]


class CollectiveRow(Row, frozen=True):
    """All collectives of one operation, size and group."""

    group: Annotated[Identifier, Doc("The row of the group in the table of groups."), Shown(hidden=True)]
    group_name: Annotated[str, GROUP]
    operation: Annotated[str, Shown("collective", longest=44)]
    bytes: Annotated[
        Bytes | None,
        Doc("The size of each one; of operations with sizes that vary the power of two below it."),
        Shown("size"),
    ]
    ranks: Count
    scope: Scope
    count: Count
    measured: Annotated[Count, Doc("How many of them have times of all ranks.")]
    cost: Annotated[CostKind, Shown("mostly")]
    why: Annotated[str, Doc("Why it is inconclusive; else empty."), Shown("why inconclusive")]
    residence_ns: Annotated[
        Nanoseconds | None,
        Doc("The time that all ranks together spent in those that are measured; null if none is."),
    ]
    wait_ns: Annotated[
        Nanoseconds | None, Doc("The part of it in which they waited for the last rank."), Shown("waits")
    ]
    transfer_ns: Annotated[
        Nanoseconds | None, Doc("The median time from the arrival of the last rank to the end.")
    ]
    baseline_ns: Annotated[
        Nanoseconds | None,
        Doc(
            "The same of the quarter in which ranks came closest together; null if there are fewer than four."
        ),
    ]
    excess_ns: Annotated[
        Nanoseconds, Doc("The part of `residence_ns` in which transfers took longer than the baseline.")
    ]
    algorithm_gb_s: GigabytesPerSecond | None
    bus_gb_s: Annotated[
        GigabytesPerSecond | None,
        Doc("The median bandwidths, without the time that ranks waited, as nccl-tests counts them."),
        Shown("bandwidth", 1),
    ]
    by_rank: Annotated[Sequence[RankWaits], Doc("Of those that are measured; of all if none is.")] = ()
    wait_share: Annotated[Share | None, Doc("`wait_ns` as a part of `residence_ns`."), Shown("waits")] = None


class BandwidthRow(Row, frozen=True):
    """All collectives of one operation and size, of groups of one number of ranks."""

    operation: str
    ranks: Count
    scope: Scope
    bytes: Bytes
    count: Count
    transfer_ns: Annotated[Nanoseconds, Doc("The median.")]
    bus_gb_s: Annotated[GigabytesPerSecond, Doc("The median.")]
    best_bus_gb_s: GigabytesPerSecond


class LateRank(Row, frozen=True):
    """How long the others waited for one rank."""

    rank: Annotated[RankNumber, Shown("late rank")]
    last: Annotated[Count, Doc("How often it was the last to arrive.")]
    collectives: Annotated[
        Count,
        Doc("The number of collectives that it took part in, of those with known arrivals."),
        Shown("of"),
    ]
    own_ns: Annotated[
        SignedNanoseconds,
        Doc("The waits that it alone is the cause of, for itself and for others that it had delayed."),
        Shown("others waited"),
    ]
    caused_ns: Annotated[Nanoseconds, Doc("How long the others waited for it."), Shown("caused", 2)]
    passed_on_ns: Annotated[
        Nanoseconds,
        Doc("The part of that which other ranks caused, in earlier collectives of other groups."),
        Shown(drop=1),
    ]
    inherited_ns: Annotated[Nanoseconds, Doc("The waits for other ranks that this rank caused.")]
    waited_ns: Annotated[Nanoseconds, Doc("How long it waited for others."), Shown("waited itself")]


class Delay(Row, frozen=True):
    """How long one rank waited because of another one."""

    cause: Annotated[RankNumber, Shown("waits for rank")]
    waiting: Annotated[RankNumber, Shown("rank")]
    wait_ns: Nanoseconds
    collectives: Annotated[Count, Shown("in collectives")]


class PatternRow(Row, frozen=True):
    """Who is last in one group."""

    group: Annotated[Identifier, Shown(hidden=True)]
    group_name: Annotated[str, GROUP]
    pattern: Pattern
    rank: Annotated[RankNumber | None, Doc("The rank, if it is constant.")]
    share: Annotated[
        Share,
        Doc("Its part of the waits, or that of the rank with most of them."),
        Shown("share of waits"),
    ]
    collectives: Annotated[Count, Doc("Those in which ranks had to wait significantly.")]


class PairRow(Row, frozen=True):
    """All messages from one rank to another."""

    source: RankNumber
    target: RankNumber
    scope: Scope
    count: Count
    unmatched: Annotated[Count, Doc("Those without a second end.")]
    bytes: Annotated[Bytes | None, Doc("The sum.")]
    latency_ns: Annotated[
        Nanoseconds | None, Doc("The median time from the start of the send to the end of the receive.")
    ]
    shortest_ns: Nanoseconds | None
    gb_s: Annotated[
        GigabytesPerSecond | None,
        Doc(
            "The median of bytes by this time: a lower bound, because either end may have waited for the other."
        ),
        Shown("bandwidth"),
    ]


class Exchange(Row, frozen=True):
    """All all-to-all operations of one group: what each rank sends to each."""

    group: Annotated[Identifier, Shown(hidden=True)]
    group_name: Annotated[str, GROUP]
    ranks: Ranks
    count: Count
    sent_bytes: Annotated[
        Sequence[int] | None, Doc("What each rank sent to all together."), Shown(hidden=True)
    ]
    received_bytes: Annotated[Sequence[int] | None, Shown(hidden=True)]
    imbalance: Annotated[
        float | None, Doc("The most that a rank received, by the mean of all ranks: 1 is balanced.")
    ]
    matrix_bytes: Annotated[
        Sequence[Sequence[int]] | None,
        Doc(
            "`[i][j]` is what rank `ranks[i]` sent to `ranks[j]`; null if the sizes of parts were not recorded."
        ),
    ] = None


class Communication(Row, frozen=True):
    """Who delays whom, and who exchanges how much with whom."""

    bandwidths: Sequence[BandwidthRow]
    late: Annotated[Sequence[LateRank], Doc("The rank that causes most waits first.")]
    delays: Annotated[Sequence[Delay], Doc("The longest first, without what is passed on.")]
    patterns: Sequence[PatternRow]
    pairs: Sequence[PairRow]
    exchanges: Sequence[Exchange]
