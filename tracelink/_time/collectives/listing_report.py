"""The report of `tracelink collectives`: the ranks that are last, and tables of collectives and messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from msgspec.structs import asdict

from tracelink._model.communications import Verdict
from tracelink._model.fields import Count, Nanoseconds, RankNumber, Shown
from tracelink._model.selection import Numbers
from tracelink._model.text import (
    counted,
    group_label,
    lowered,
    moment,
    number,
    ranks_in_words,
    shortened,
    span,
)
from tracelink._show.document import Block, Paragraph, Report, Section, Table, Tone
from tracelink._time.collectives.listing import Collective, LastRank, Listing, Message, Order, Totals

NAME = 32
ABSENT = 16
"""Characters of a group's name, and of a list of ranks; longer ones are shortened."""
NO_COLLECTIVES = "No collectives: the sources record none, or none in the selected group."


class CollectiveRow(Collective, frozen=True):
    """A collective with what the table says of its group and its ranks."""

    label: Annotated[str, Shown("group", longest=NAME)] = ""
    parts: Annotated[Count, Shown("ranks", drop=3)] = 0
    present: Annotated[str, Shown("ranks")] = ""
    lowest_sm_clock_mhz: Annotated[float | None, Shown("lowest SM clock (MHz)")] = None
    slowest_rank: Annotated[RankNumber | None, Shown("of rank")] = None


class MessageRow(Message, frozen=True):
    """A message with what the table says of its group and its time."""

    label: Annotated[str, Shown("group", longest=NAME)] = ""
    duration_ns: Nanoseconds | None = None


MESSAGES = ("label", "source", "target", "tag", "bytes", "sent_ns", "duration_ns", "verdict")


def report_of(listing: Listing) -> Report:
    """The document of the collectives and messages that are listed, and what is said of all of them."""
    totals = listing.totals
    if not (totals.collectives or totals.verdicts):
        return Report("collectives", NO_COLLECTIVES, sections=[_messages(listing)], findings=listing.findings)
    return Report(
        "collectives",
        f"{counted(totals.collectives, 'collective')} in {counted(totals.groups, 'group')}"
        f" on {counted(totals.ranks, 'rank')}",
        summary=list(_summary(listing)),
        sections=[Section("Collectives", list(_collectives(listing))), _messages(listing)],
        findings=listing.findings,
    )


# What is said of all collectives.


def _summary(listing: Listing) -> Iterator[Block]:
    totals = listing.totals
    if slowest := totals.slowest:
        label = shortened(_labels(listing)(slowest), NAME)
        sequence = "" if slowest.sequence is None else f" #{slowest.sequence}"
        yield Paragraph(
            f"Slowest: {slowest.operation}{sequence} of group {label}, {span(slowest.duration_ns or 0)}."
        )
    yield from _skew(totals, listing.job_ranks)
    incomplete = [
        f"{number(count)} {verdict}"
        for verdict, count in totals.verdicts.items()
        if verdict != Verdict.COMPLETE
    ]
    if incomplete:
        advice = "" if listing.sorted_by is Order.VERDICT else " (--sort verdict lists them first)"
        yield Paragraph(f"Not complete: {', '.join(incomplete)}{advice}.", Tone.WARNING)
    if totals.without_start:
        yield Paragraph(
            f"{counted(totals.without_start, 'collective')} without start times: "
            "skew and wait are based on the times of the calls."
        )


def _skew(totals: Totals, job_ranks: int) -> Iterator[Block]:
    """The rank that is last most often in collectives whose skew exceeds the uncertainty of the clocks."""
    error, unbounded = totals.clock_uncertainty_ns, totals.unbounded
    if totals.largest_skew_ns is not None and (unbounded or error) and not totals.significant:
        clocks = (
            f"clock uncertainty is ±{span(error)}" if error else "the offsets of some clocks are unbounded"
        )
        yield Paragraph(f"No skew is significant: the largest is {span(totals.largest_skew_ns)}, {clocks}.")
        return
    which = " with a significant skew" if unbounded or error else ""
    yield Paragraph(_last(totals.last, totals.significant, which, job_ranks))
    if error:
        skews = counted(sum(totals.verdicts.values()), "skew")
        verb = "is" if totals.significant == 1 else "are"
        yield Paragraph(
            f"Clock uncertainty is ±{span(error)}: {number(totals.significant)} of {skews} {verb} significant.",
            Tone.ASIDE,
        )
    if unbounded:
        yield Paragraph(
            "Some skews may be wrong and are not counted: the offsets of some clocks are unbounded "
            "(see `tracelink clocks`).",
            Tone.WARNING,
        )


def _last(last: Sequence[LastRank], significant: int, which: str, job_ranks: int) -> str:
    if not last:
        reason = (
            "only one rank was read. Name the traces of all ranks."
            if job_ranks == 1
            else "the sources do not record when ranks enter collectives."
        )
        return f"The last ranks are unknown: {reason}"
    first = last[0]
    if len(last) > 1:
        return (
            f"No rank is last most often: {lowered(ranks_in_words([one.rank for one in last]))} are each last in "
            f"{number(first.count)} of {counted(significant, 'collective')}{which}."
        )
    return (
        f"Most often last: rank {first.rank}, in {number(first.count)} of its "
        f"{counted(first.collectives, 'collective')}{which}; "
        f"the other ranks waited {span(first.waited_for_ns)} for it in total."
    )


# Tables.


def _labels(listing: Listing) -> Callable[[Collective | Message], str]:
    """What names the group of a row: with its ranks where several groups have the same name and description."""
    ranks_of: defaultdict[tuple[str | None, str | None], set[tuple[int, ...]]] = defaultdict(set)
    for row in listing.collectives:
        if row.verdict == Verdict.COMPLETE:  # of others, a group whose ranks no source lists seems smaller
            ranks_of[row.group, row.description].add(tuple(row.ranks))

    def label(row: Collective | Message) -> str:
        text = group_label(row.group or "", row.description or "")
        if isinstance(row, Message) or len(ranks_of[row.group, row.description]) < 2:
            return text
        return f"{text} [{Numbers.of(row.ranks)}]".strip()

    return label


def _collectives(listing: Listing) -> Iterator[Block]:
    rows = listing.rows
    complete = all(row.verdict == Verdict.COMPLETE for row in rows)
    numbering = "sequence" if any(row.sequence is not None for row in rows) else "order"
    label = _labels(listing)
    yield Table(
        [_row(row, label(row)) for row in rows],
        columns=(
            *("label", numbering, "operation", "parts" if complete else "present", "bytes", "start_ns"),
            *("duration_ns", "skew_ns", "wait_ns", "last_rank", "bus_gb_s"),
            *(() if complete else ("verdict",)),
            *("lowest_sm_clock_mhz", "slowest_rank"),
        ),
        together=("duration_ns", "skew_ns"),
        zero_ns=listing.first_ns,
    )
    yield from _rest(sum(listing.totals.verdicts.values()) - len(rows))
    if listing.first_ns is not None and any(row.start_ns is not None for row in rows):
        yield Paragraph(f"Starts count from the first event, at {moment(listing.first_ns)}.", Tone.ASIDE)


def _row(row: Collective, label: str) -> CollectiveRow:
    values = {name: getattr(row, name) for name in Collective.__struct_fields__}
    present = [part.rank for part in row.participations]
    clocks = [(part.sm_clock_mhz, part.rank) for part in row.participations if part.sm_clock_mhz]
    lowest, rank = min(clocks, default=(None, None))
    return CollectiveRow(
        **values,
        label=label,
        parts=len(present),
        present=_present(present, row.ranks),
        lowest_sm_clock_mhz=lowest,
        slowest_rank=rank,
    )


def _present(parts: Sequence[int], members: Sequence[int]) -> str:
    """`8`, or `7 of 8, not 3`."""
    absent = Numbers.of(set(members) - set(parts))
    if not absent:
        return number(len(parts))
    return f"{number(len(parts))} of {number(len(members))}, not {shortened(str(absent), ABSENT)}"


def _messages(listing: Listing) -> Section:
    count = listing.totals.messages
    blocks: list[Block] = []
    if listing.messages:
        label = _labels(listing)
        rows = [
            MessageRow(**asdict(row), label=label(row), duration_ns=_time(row)) for row in listing.messages
        ]
        blocks = [Table(rows, columns=MESSAGES, zero_ns=listing.first_ns), *_rest(count - len(rows))]
    elif count:
        blocks = [
            Paragraph(f"{counted(count, 'point-to-point message')} (--messages shows them).", Tone.ASIDE)
        ]
    return Section("Messages", blocks)


def _time(row: Message) -> int | None:
    return None if row.sent_ns is None or row.received_ns is None else row.received_ns - row.sent_ns


def _rest(count: int) -> Iterator[Block]:
    if count > 0:
        it = "it" if count == 1 else "them"
        yield Paragraph(f"{counted(count, 'more row')} (--limit 0 shows {it}).", Tone.ASIDE)
