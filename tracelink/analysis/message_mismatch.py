"""Messages whose two ends do not agree on size or type: one problem for each group and culprits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.channels import Matching
from tracelink.analysis.comparing import Aspect
from tracelink.analysis.ends import Ends
from tracelink.analysis.message_values import Sayings
from tracelink.analysis.mismatch import KINDS
from tracelink.analysis.mismatch_words import counted
from tracelink.analysis.parts import Outcome
from tracelink.analysis.wording import collective_in_words, ranks_in_words
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Problem
from tracelink.events import Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import starts_of

MOST_SHIFTED = 16
"""By so many messages ends may be paired wrongly where a ring buffer forgot the first of them."""


@dataclass(frozen=True, slots=True)
class _Dispute:
    """Messages of a group on whose size or type the same ranks differ from others."""

    sends: Sequence[int]
    aspect: Aspect
    culprits: tuple[int, ...]
    shown: int
    """The send that shows it best."""


def message_mismatches(
    journal: Journal, ends: Ends, matching: Matching, disturbed: Mapping[int, int]
) -> list[Problem]:
    """A problem for each group, aspect and culprits; `disturbed` is from which entry on ranks are paired wrongly."""
    sayings = Sayings(journal, ends, matching)
    found: dict[tuple[int, Aspect, tuple[int, ...]], list[int]] = {}
    partner = matching.partner
    seen = np.zeros(len(ends), np.bool_)
    for aspect in (Aspect.DTYPE, Aspect.SIZE):
        differing = ends.sends & sayings.differing(aspect) & ~seen
        for rank, row in disturbed.items():
            later = (ends.rank == rank) & (ends.row > row)
            differing[later] = False
            differing[partner[later & (partner != UNKNOWN)]] = False
        seen |= differing
        sends = np.flatnonzero(differing)
        sends = sends[np.argsort(matching.channel[sends], kind="stable")]
        for own in np.split(sends, starts_of(matching.channel[sends])[1:]) if len(sends) else ():
            if not _certainly_paired(sayings, int(matching.channel[own[0]]), aspect):
                own = own[
                    (ends.outcome[own] < Outcome.RETIRED) & (ends.outcome[partner[own]] < Outcome.RETIRED)
                ]
            if len(own):
                culprits = _culprits(sayings, _clearest(ends, matching, own.tolist()), aspect)
                found.setdefault((int(ends.group[own[0]]), aspect, culprits), []).extend(own.tolist())
    return [
        _problem(sayings, _Dispute(sends, aspect, culprits, _clearest(ends, matching, sends)))
        for (_, aspect, culprits), sends in found.items()
    ]


def _clearest(ends: Ends, matching: Matching, sends: Sequence[int]) -> int:
    """The message that shows it best: the first that is not over, else the first."""
    still_open = [
        send
        for send in sends
        if min(ends.outcome[send], ends.outcome[matching.partner[send]]) < Outcome.RETIRED
    ]
    return min(still_open or sends, key=lambda send: int(ends.row[send]) - _begin(ends, send))


def _begin(ends: Ends, send: int) -> int:
    """The first entry of the rank."""
    return int(ends.row[np.searchsorted(ends.rank, ends.rank[send])])


def _certainly_paired(sayings: Sayings, channel: int, aspect: Aspect) -> bool:
    """Whether ends of a channel differ however they are paired, as far as that is not certain."""
    channels, order, said = sayings.matching.channels, sayings.matching.order, sayings.of(aspect)
    if channels.certain[channel]:
        return True
    begin, middle, end = (
        int(column[channel]) for column in (channels.sends, channels.receives, channels.end)
    )
    sends, receives = said[order[begin:middle]], said[order[middle:end]]
    shift = int(channels.shift[channel])
    return not any(
        _agree(sends, receives, shift + other) for other in range(-MOST_SHIFTED, MOST_SHIFTED + 1) if other
    )


def _agree(sends: Int64s, receives: Int64s, shift: int) -> bool:
    """Whether all agree that are paired by a shift, and these are most."""
    ones = sends[max(0, -shift) :]
    others = receives[max(0, shift) :]
    common = min(len(ones), len(others))
    return 2 * common > min(len(sends), len(receives)) and bool((ones[:common] == others[:common]).all())


def _culprits(sayings: Sayings, send: int, aspect: Aspect) -> tuple[int, ...]:
    """Who says what was not to be expected; both where nothing tells."""
    expected = sayings.expected(send, aspect)
    both = (send, int(sayings.matching.partner[send]))
    wrong = [end for end in both if int(sayings.of(aspect)[end]) != expected]
    return tuple(sorted(int(sayings.ends.rank[end]) for end in wrong))


def _problem(sayings: Sayings, one: _Dispute) -> Problem:
    ends, journal = sayings.ends, sayings.journal
    both = (one.shown, int(sayings.matching.partner[one.shown]))
    shown = next(end for end in both if int(ends.rank[end]) in one.culprits)
    row = int(ends.row[shown])
    group = journal.groups[ends.group[shown]]
    sequence, operation = int(journal.records.sequence[row]), journal.operation(row)
    waiting = [
        end for end in both if ends.outcome[end] < Outcome.RETIRED and ends.rank[end] not in one.culprits
    ]
    return Problem(
        KINDS[one.aspect],
        group.name,
        group.description,
        sequence,
        operation,
        one.culprits,
        tuple(sorted(int(ends.rank[end]) for end in waiting)),
        _message(sayings, one, both, collective_in_words(operation, sequence, group)),
        tie=len(one.culprits) > 1,
        count=len(one.sends),
        rows={int(ends.rank[end]): int(ends.closing[end]) for end in both},
    )


def _message(sayings: Sayings, one: _Dispute, both: tuple[int, int], what: str) -> str:
    """`Rank 1 sends 2,048 elements in send 1->2 #5 of group 3 (pp), rank 2 receives 1,024`, without an end."""
    send, receive = (_told(sayings, one.aspect, end) for end in both)
    source, target = (int(sayings.ends.rank[end]) for end in both)
    more = f" ({len(one.sends)} messages show it)" if len(one.sends) > 1 else ""
    said = f"rank {source} sends {send}, rank {target} receives {receive}"
    if len(one.culprits) > 1:
        return f"{ranks_in_words((source, target))} do not agree in {what}: {said}. Nothing tells which is wrong{more}"
    return f"{ranks_in_words(one.culprits)} has another {one.aspect.name.lower()} in {what} than was due: {said}{more}"


def _told(sayings: Sayings, aspect: Aspect, end: int) -> str:
    said = int(sayings.of(aspect)[end])
    if aspect is Aspect.SIZE:
        return counted(said)
    return sayings.journal.texts[said] if said != UNKNOWN else "no type"
