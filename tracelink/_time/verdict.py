"""What holds a job back, in up to three sentences: where the time goes, the largest cause, and the next one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tracelink._model.records import readable_name
from tracelink._model.text import fine_span, kernel_in_words, name_in_words, number, percent, size
from tracelink._time.model import results
from tracelink._time.model.results import Cause, Step, Summary, WorkIn

MOST_SENTENCES = 3
WELL_USED = 0.9
"""The share of compute from which on only faster kernels help."""
WORTH_MENTIONING = 0.03
"""Causes of a smaller share of the time are not mentioned."""
LARGE = 0.1
"""A second cause is mentioned from this share on."""
SLOWEST = 0.1
"""GB/s; slower transfers are dominated by their latency."""
UNEVEN = 1.5
"""The slowest tenth of steps is mentioned if it takes so many times as long as the median."""

Reason = tuple[str, Cause, str]
"""The part of a step, one of `NOT_COMPUTING`; a cause of it, and what the host did."""

IDLE, COMMUNICATION, COPIES = NOT_COMPUTING = "idle", "exposed_communication", "exposed_copies"
"""The fields of steps with the causes of their parts."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The time of all steps of all ranks, and what it went to."""

    total: int
    steps: int
    has_steps: bool
    compute: int
    communication: int
    copies: int
    idle: int
    reasons: dict[Reason, int]
    """Of idle and exposed time."""
    by_rank: dict[int, int]
    """How long others waited for each rank."""

    @classmethod
    def of(cls, summary: Summary) -> Shares:
        """The shares of a summary."""
        steps = [step for rank in summary.ranks for step in rank.steps]
        reasons: dict[Reason, int] = defaultdict(int)
        by_rank: dict[int, int] = defaultdict(int)
        for step in steps:
            for part in NOT_COMPUTING:
                for portion in getattr(step, part):
                    reasons[part, portion.cause, portion.during] += portion.ns
                    if portion.rank is not None:
                        by_rank[portion.rank] += portion.ns
        return cls(
            sum(step.duration_ns for step in steps),
            len(steps),
            any(step.step is not None for step in steps),
            sum(step.compute_ns for step in steps),
            sum(step.exposed_communication_ns for step in steps),
            sum(step.exposed_copy_ns for step in steps),
            sum(step.idle_ns for step in steps),
            reasons,
            by_rank,
        )

    def largest(self) -> list[tuple[int, Reason]]:
        """The time of each cause of each part, the longest first; what is unknown by why it is."""
        sums: dict[Reason, int] = defaultdict(int)
        for (part, cause, during), ns in self.reasons.items():
            sums[part, cause, during if cause is Cause.UNKNOWN else ""] += ns
        return sorted(((ns, reason) for reason, ns in sums.items()), reverse=True)

    def activities(self, part: str, cause: Cause) -> dict[str, int]:
        """The time of a cause of a part by what the host did, or by the kind of copies."""
        return {during: ns for (of, each, during), ns in self.reasons.items() if (of, each) == (part, cause)}

    def each(self, ns: int) -> str:
        """The time in a step, of recordings without steps in that of a rank: `1.5 ms a step`."""
        return f"{fine_span(ns // self.steps)}{self.of_each}"

    @property
    def of_each(self) -> str:
        """What a mean is of: ` a step`, of recordings without steps ` a rank`, of one of these nothing."""
        return " a step" if self.has_steps else " a rank" if self.steps > 1 else ""


def verdict_on(summary: Summary) -> list[str]:
    """The sentences; none if nothing has a time."""
    shares = Shares.of(summary)
    if not shares.total:
        return []
    kernel, uneven = list(_largest_kernel(summary)), list(_uneven_steps(summary))
    sentences = [
        (ns, _because(reason, ns, summary, shares))
        for ns, reason in shares.largest()
        if ns >= WORTH_MENTIONING * shares.total
    ]
    first, second = ([text for _, text in sentences[index : index + 1]] for index in (0, 1))
    if shares.compute >= WELL_USED * shares.total:
        return [_where(summary, shares), *kernel, *first, *uneven][:MOST_SENTENCES]
    if not (sentences[1:] and sentences[1][0] >= LARGE * shares.total):
        second, kernel = [], [*kernel, *second]
    return [_where(summary, shares), *first, *second, *uneven, *kernel][:MOST_SENTENCES]


def _where(summary: Summary, shares: Shares) -> str:
    time = summary.step_time
    if not shares.has_steps:
        steps = f"The recording lasts {fine_span(time.p50)}"
    elif _runs_ahead(summary) and shares.steps > 1:
        steps = f"A step takes {fine_span(shares.total // shares.steps)} (mean of {shares.steps}; the host runs ahead)"
    elif time.count == 1:
        steps = f"The step takes {fine_span(time.p50)}"
    else:
        steps = f"A step takes {fine_span(time.p50)} (median of {time.count})"
    parts = [
        (shares.compute, "compute"),
        (shares.communication, "exposed communication"),
        (shares.copies, "exposed copies"),
        (shares.idle, "idle"),
    ]
    listed = [f"{percent(ns, shares.total)} {name}" for ns, name in parts if ns >= shares.total / 200]
    return f"{steps}: {', '.join(listed)}."


def _runs_ahead(summary: Summary) -> bool:
    """Whether much work ran in a later step than its launch: then only the mean of steps says how long they take."""
    later = sum(rank.later_work_ns for rank in summary.ranks)
    return later > LARGE * sum(stream.busy_ns for rank in summary.ranks for stream in rank.streams)


def _because(reason: Reason, ns: int, summary: Summary, shares: Shares) -> str:
    """One sentence on a cause of one part."""
    part, cause, during = reason
    cost = f"{percent(ns, shares.total)} of the time ({shares.each(ns)})"
    match cause:
        case Cause.HOST_BOUND:
            return _host_bound(part, cost, summary, shares)
        case Cause.DATA_LOADING:
            return f"Data loading holds the job back for {cost}."
        case Cause.SYNCHRONIZATION:
            return f"The host is in calls that wait for the device for {cost}{_most_waits(summary)}."
        case Cause.LAUNCH_BOUND:
            return f"Launching work takes {cost}{_launches(summary, shares)}."
        case Cause.WAITING_FOR_RANK:
            rank = max(shares.by_rank, key=lambda number: shares.by_rank[number])
            share, whole = shares.by_rank[rank], sum(shares.by_rank.values())
            most = f"{percent(share, whole)} of that is for rank {rank}"
            if len(shares.by_rank) > 2 and share < whole / 2:
                most = f"no rank causes more than {percent(share, whole)} of it"
            return f"Ranks wait for others for {cost}; {most}."
        case Cause.TRANSFER:
            return f"Nothing computes while data are transferred for {cost}{_most_transfer(summary)}."
        case Cause.STREAM_DEPENDENCY | Cause.KERNEL_GAP:
            return f"Short gaps between kernels take {cost}."
        case Cause.COPY:
            return f"Copies without computation take {cost}{_most_copies(shares)}."
        case Cause.NOT_RECORDED:
            return f"No thread of the process has recorded events for {cost}."
        case Cause.UNKNOWN:
            return _unknown(part, during, cost)


def _host_bound(part: str, cost: str, summary: Summary, shares: Shares) -> str:
    if part == COMMUNICATION:
        return f"Only communication runs for {cost}, while the host has nothing launched that computes."
    during = shares.activities(part, Cause.HOST_BOUND)
    name = max(during, key=lambda name: during[name])
    if name == results.COMPILATION:
        much = f"{percent(during[name], shares.total)} of the time ({shares.each(during[name])})"
        return f"torch.compile compiles for {much}; `tracelink compile` shows what a compile log says of it."
    did = "between recorded events" if name == results.BETWEEN else f"in {name}"
    if all(rank.work is not WorkIn.KERNELS for rank in summary.ranks):
        return f"Neither computation nor communication runs for {cost}; the host is mostly {did}."
    before = ""
    if summary.gaps and (where := summary.gaps[0].within or summary.gaps[0].operator):
        line = f" ({readable_name(summary.gaps[0].line)})" if summary.gaps[0].line else ""
        before = f"; the longest gaps are before {name_in_words(where)}{name_in_words(line)}"
    return f"The host launches work too late for {cost}, mostly {did}{before}."


def _launches(summary: Summary, shares: Shares) -> str:
    launches = [rank.launches for rank in summary.ranks if rank.launches]
    calls = sum(each.calls for each in launches) // shares.steps
    longer = sum(each.shorter_than_launch for each in launches), sum(each.calls for each in launches)
    return (
        f": {number(calls)} launches{shares.of_each}, {percent(*longer)} of them longer than their kernel"
        if calls
        else ""
    )


def _most_waits(summary: Summary) -> str:
    if not summary.waits:
        return ""
    wait = max(summary.waits, key=lambda row: row.idle_ns)
    where = wait.operator or (readable_name(wait.line) if wait.line else "")
    return f", most of it after {name_in_words(wait.call)}" + (f" in {name_in_words(where)}" if where else "")


def _most_transfer(summary: Summary) -> str:
    for row in summary.collectives:
        if row.transfer_ns:
            amount = f" of {size(row.bytes)}" if row.bytes else ""
            speed = f" at {row.bus_gb_s:.3g} GB/s" if row.bus_gb_s and row.bus_gb_s >= SLOWEST else ""
            return f", most of it in {name_in_words(row.operation)}{amount}{speed}"
    return ""


def _most_copies(shares: Shares) -> str:
    copies = shares.activities(COPIES, Cause.COPY)
    return f", most of it {name_in_words(max(copies, key=lambda name: copies[name]))}" if copies else ""


def _unknown(part: str, why: str, cost: str) -> str:
    match why:
        case results.NOT_MATCHED:
            return (
                f"Only communication runs for {cost}; whether it waits for other ranks or transfers data is unknown, "
                "because it was not matched with them."
            )
        case results.LAUNCHED:
            return f"Nothing runs for {cost} although work had been launched; what held it back was not recorded."
        case results.NO_LAUNCH:
            return (
                f"Nothing runs for {cost} before work whose launch was not recorded, so the cause is unknown."
            )
    return f"The recording does not explain {part.replace('_', ' ')} for {cost}."


def _largest_kernel(summary: Summary) -> Iterator[str]:
    computing = [kernel for kernel in summary.kernels if not kernel.communication]
    whole = sum(kernel.total_ns for kernel in computing)
    if whole:
        kernel = computing[0]
        by = f", launched by {name_in_words(kernel.operator)}" if kernel.operator else ""
        yield (
            f"The kernel with most compute time is {kernel_in_words(kernel.name)}: "
            f"{percent(kernel.total_ns, whole)} of it{by}."
        )


def _uneven_steps(summary: Summary) -> Iterator[str]:
    time = summary.step_time
    if time.count >= 3 and time.high > UNEVEN * time.p50 and not _runs_ahead(summary):
        slowest = max((step for rank in summary.ranks for step in rank.steps), key=_duration)
        yield f"Step {slowest.step} takes {fine_span(time.high)}, {time.high / time.p50:.1f} times the median."


def _duration(step: Step) -> int:
    return step.duration_ns
