"""Problems of messages: ends that declare different sizes or types, and peers outside of the group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.messages import Matching, MessageEnds, Messages
from tracelink.diagnosis.mismatches import KIND_OF_ASPECT
from tracelink.diagnosis.participation import Outcome
from tracelink.diagnosis.programs import Aspect, similar_groups, successors
from tracelink.diagnosis.verdicts.base import Verdict
from tracelink.diagnosis.verdicts.messages import OtherPayload, PeerOutside
from tracelink.model.columns import UNKNOWN, Bools, Int64s


def message_problems(messages: Messages) -> list[Verdict]:
    """All problems of messages that are none of waiting."""
    return [*_mismatches(messages), *_outside_of_groups(messages)]


# Messages whose ends declare different sizes or types.


class DeclaredPayloads(Struct, frozen=True, dict=True):
    """Number of elements and type that both ends of each message declare."""

    journal: Journal
    ends: MessageEnds
    matching: Matching

    def of(self, aspect: Aspect) -> Int64s:
        """For each end the number of elements, or the string code of the type; UNKNOWN if not recorded."""
        return self._types if aspect is Aspect.DTYPE else self._sizes

    @cached_property
    def _sizes(self) -> Int64s:
        return self._of("elements_in", "elements_out")

    @cached_property
    def _types(self) -> Int64s:
        return self._of("type_in", "type_out")

    def _of(self, sent_name: str, received_name: str) -> Int64s:
        requests = self.journal.requests
        sent, received = (
            getattr(requests, name)[self.ends.request].astype(np.int64) for name in (sent_name, received_name)
        )
        own, other = np.where(self.ends.sends, (sent, received), (received, sent))
        declared: Int64s = np.where(own != UNKNOWN, own, other)
        return declared

    def differing(self, aspect: Aspect) -> Bools:
        """Whether the other end of the message declares something else; unknown values do not differ."""
        own = self.of(aspect)
        other = np.append(own, UNKNOWN)[self.matching.partner]
        differs: Bools = (own != UNKNOWN) & (other != UNKNOWN) & (own != other)
        return differs

    def culprits(self, send: int, aspect: Aspect) -> tuple[int, ...]:
        """The ranks that declare something unexpected; both if nothing shows what is expected."""
        both = np.array([send, self.matching.partner[send]])
        values = self.of(aspect)[both]
        for votes in (self._earlier_on_channel(send, aspect), self._of_others(both, aspect)):
            count = [int(np.count_nonzero(votes == value)) for value in values]
            if count[0] != count[1]:
                both = both[[int(np.argmin(count))]]
                break
        return tuple(sorted(self.ends.rank[both].tolist()))

    def _earlier_on_channel(self, send: int, aspect: Aspect) -> Int64s:
        """The values that followed on this channel wherever the earlier values were the same."""
        channel, matching = int(self.matching.channel[send]), self.matching
        sends = matching.order[matching.channels.sends[channel] : matching.channels.receives[channel]]
        earlier = sends[: int(np.flatnonzero(sends == send)[0])]
        return np.array(successors(self.of(aspect)[earlier[matching.partner[earlier] != UNKNOWN]]), np.int64)

    def _of_others(self, both: Int64s, aspect: Aspect) -> Int64s:
        """The values of all other messages of similar groups."""
        similar = similar_groups(self.journal.groups, int(self.ends.group[both[0]]))
        chosen = np.isin(self.ends.group, similar) & (self.matching.channel != UNKNOWN)
        chosen[both] = False
        found: Int64s = self.of(aspect)[chosen]
        return found


def _mismatches(messages: Messages) -> list[Verdict]:
    """A problem for each group, aspect and set of culprits."""
    ends, matching = messages.ends, messages.matching
    payloads = DeclaredPayloads(messages.journal, ends, matching)
    found: dict[tuple[int, Aspect, tuple[int, ...]], list[int]] = {}
    seen = ~matching.is_certain(np.arange(len(ends)))
    for aspect in (Aspect.DTYPE, Aspect.SIZE):
        sends = np.flatnonzero(ends.sends & payloads.differing(aspect) & ~seen)
        seen[sends] = True
        for channel in np.unique(matching.channel[sends]).tolist():
            own = sends[matching.channel[sends] == channel].tolist()
            culprits = payloads.culprits(_clearest(messages, own), aspect)
            found.setdefault((int(ends.group[own[0]]), aspect, culprits), []).extend(own)
    return [
        _mismatch(messages, payloads, sends, aspect, culprits)
        for (_, aspect, culprits), sends in found.items()
    ]


def _clearest(messages: Messages, sends: Sequence[int]) -> int:
    """The message that shows it best: the first unfinished one, else the first one."""
    ends, partner = messages.ends, messages.matching.partner
    unfinished = [
        send for send in sends if min(ends.outcome[send], ends.outcome[partner[send]]) < Outcome.RETIRED
    ]
    return min(
        unfinished or sends, key=lambda send: int(ends.row[send] - ends.row[ends.rank == ends.rank[send]][0])
    )


def _mismatch(
    messages: Messages,
    payloads: DeclaredPayloads,
    sends: Sequence[int],
    aspect: Aspect,
    culprits: tuple[int, ...],
) -> Verdict:
    ends, journal = messages.ends, messages.journal
    send = _clearest(messages, sends)
    both = send, int(messages.matching.partner[send])
    shown = next(end for end in both if int(ends.rank[end]) in culprits)
    values = [int(payloads.of(aspect)[end]) for end in both]
    return OtherPayload.of_call(
        journal.groups[ends.group[shown]],
        int(journal.records.sequence[ends.row[shown]]),
        journal.operation(int(ends.row[shown])),
        culprits=culprits,
        waiting=[
            int(ends.rank[end])
            for end in both
            if ends.outcome[end] < Outcome.RETIRED and ends.rank[end] not in culprits
        ],
        kind=KIND_OF_ASPECT[aspect],
        tie=len(culprits) > 1,
        count=len(sends),
        rows={int(ends.rank[end]): int(ends.closing[end]) for end in both},
        between=(int(ends.rank[both[0]]), int(ends.rank[both[1]])),
        elements=(values[0], values[1]) if aspect is Aspect.SIZE else None,
        types=("", "") if aspect is Aspect.SIZE else (journal.strings[values[0]], journal.strings[values[1]]),
    )


# Messages to or from a position that the group does not have.


def _outside_of_groups(messages: Messages) -> list[Verdict]:
    """A problem for each rank and group with an unfinished message to or from a position outside of the group."""
    ends, journal = messages.ends, messages.journal
    described = {
        group.name for recording in journal.recordings.values() for group in recording.groups if group.ranks
    }
    sizes = [len(group.ranks) if group.name in described else 0 for group in journal.groups]
    size = np.array([*sizes, 0], np.int64)[ends.group]
    outside = (size > 0) & (ends.position >= size) & (ends.outcome < Outcome.RETIRED)
    found: dict[tuple[int, int], list[int]] = {}
    for end in np.flatnonzero(outside).tolist():
        found.setdefault((int(ends.rank[end]), int(ends.group[end])), []).append(end)
    return [
        PeerOutside.of_call(
            journal.groups[group],
            int(journal.records.sequence[ends.row[own[0]]]),
            journal.operation(int(ends.row[own[0]])),
            culprits=(rank,),
            count=len(own),
            rows={rank: int(ends.closing[own[0]])},
            sends=bool(ends.sends[own[0]]),
            position=int(ends.position[own[0]]),
            positions=len(journal.groups[group].ranks),
        )
        for (rank, group), own in found.items()
    ]
