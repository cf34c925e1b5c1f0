"""Messages that cannot arrive: their ends declare different payloads, or the group has no such peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracelink._hang.facts.messages import Messages
from tracelink._hang.facts.model import Kind
from tracelink._hang.facts.participation import Outcome
from tracelink._hang.facts.programs import Aspect, similar_groups, successors
from tracelink._hang.verdicts.base import Verdict
from tracelink._hang.verdicts.mismatches import KIND_OF_ASPECT, OtherPeer, OtherTensor
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.text import counted, ranks_in_words


class OtherPayload(OtherTensor, frozen=True, kw_only=True):
    """Ranks that send another number or type of elements than the receiver expects, or expect another one."""

    between: tuple[int, int]
    """The sender and the receiver of the first such message."""
    elements: tuple[int, int] | None
    """How many elements each of them declares; None if their types differ."""
    types: tuple[str, str]

    def claim(self) -> str:
        """Rank 2 has an unexpected size in a receive: rank 1 sends 8 elements, rank 2 receives 9 elements."""
        sent, received = (counted(one, "element") for one in self.elements) if self.elements else self.types
        (source, target), count = self.between, self.count
        shown = f" ({count} messages show it)" if count > 1 else ""
        declared = f"rank {source} sends {sent}, rank {target} receives {received}"
        if self.tie:
            ranks = ranks_in_words(self.between)
            return (
                f"{ranks} do not agree in {self.call}: {declared}. It is unknown which rank is wrong{shown}"
            )
        aspect = "size" if self.kind is Kind.SIZE_MISMATCH else "dtype"
        verb, example = ("have", "for example, ") if self.groups > 1 else ("has", "")
        return f"{self.ranks} {verb} an unexpected {aspect} in {self.call}: {example}{declared}{shown}"

    def facts(self) -> tuple[Any, ...]:
        """Without the ranks, which differ from group to group."""
        return self.elements, self.types


class PeerOutside(OtherPeer, frozen=True, kw_only=True):
    """A rank sends to, or receives from, a position that the group does not have."""

    sends: bool
    position: int
    positions: int
    """How many the group has."""

    def claim(self) -> str:
        """Rank 1 sends to position 9 in a group with positions 0 to 3."""
        way = "sends to" if self.sends else "receives from"
        return (
            f"{self.ranks} {way} position {self.position} in {self.call}, "
            f"but this group has only positions 0 to {self.positions - 1}"
        )


# Messages whose ends declare different sizes or types.


def find_differing_payloads(messages: Messages) -> list[Verdict]:
    """A problem for each group, aspect and set of culprits."""
    ends, matching = messages.ends, messages.matching
    verdicts = []
    seen = ~ends.sends | ~matching.is_certain(np.arange(len(ends)))
    for aspect in (Aspect.DTYPE, Aspect.SIZE):
        values = _declared(messages, aspect)
        other = np.append(values, UNKNOWN)[matching.partner]
        sends = np.flatnonzero((values != UNKNOWN) & (other != UNKNOWN) & (values != other) & ~seen)
        seen[sends] = True
        found: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for channel in np.unique(matching.channel[sends]).tolist():
            own = sends[matching.channel[sends] == channel]
            own = own[ends.row[own] < messages.paired_until(channel)].tolist()
            if not own:
                continue
            culprits = _culprits(messages, values, _clearest(messages, own))
            found.setdefault((int(ends.group[own[0]]), culprits), []).extend(own)
        verdicts += [
            _mismatch(messages, values, own, aspect, culprits) for (_, culprits), own in found.items()
        ]
    return verdicts


def _declared(messages: Messages, aspect: Aspect) -> Int64s:
    """For each end the number of elements, or the string code of the type; UNKNOWN if not recorded."""
    requests, ends = messages.journal.requests, messages.ends
    name = "type" if aspect is Aspect.DTYPE else "elements"
    received, sent = (
        getattr(requests, f"{name}_{way}")[ends.request].astype(np.int64) for way in ("out", "in")
    )
    own, other = np.where(ends.sends, (sent, received), (received, sent))
    declared: Int64s = np.where(own != UNKNOWN, own, other)
    return declared


def _culprits(messages: Messages, values: Int64s, send: int) -> tuple[int, ...]:
    """The ranks that declare something unexpected; both if nothing shows what is expected."""
    both = np.array([send, messages.matching.partner[send]])
    for votes in (_earlier_on_channel(messages, values, send), _of_others(messages, values, both)):
        count = [int(np.count_nonzero(votes == value)) for value in values[both]]
        if count[0] != count[1]:
            both = both[[int(np.argmin(count))]]
            break
    return tuple(sorted(messages.ends.rank[both].tolist()))


def _earlier_on_channel(messages: Messages, values: Int64s, send: int) -> Int64s:
    """The values that followed on this channel wherever the earlier values were the same."""
    matching = messages.matching
    channel = int(matching.channel[send])
    sends = matching.order[matching.channels.sends[channel] : matching.channels.receives[channel]]
    earlier = sends[: int(np.flatnonzero(sends == send)[0])]
    return np.array(successors(values[earlier[matching.partner[earlier] != UNKNOWN]]), np.int64)


def _of_others(messages: Messages, values: Int64s, both: Int64s) -> Int64s:
    """The values of all other messages of similar groups."""
    similar = similar_groups(messages.journal.groups, int(messages.ends.group[both[0]]))
    chosen = np.isin(messages.ends.group, similar) & (messages.matching.channel != UNKNOWN)
    chosen[both] = False
    found: Int64s = values[chosen]
    return found


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
    messages: Messages, values: Int64s, sends: Sequence[int], aspect: Aspect, culprits: tuple[int, ...]
) -> Verdict:
    ends, journal = messages.ends, messages.journal
    send = _clearest(messages, sends)
    both = send, int(messages.matching.partner[send])
    shown = next(end for end in both if int(ends.rank[end]) in culprits)
    declared = int(values[both[0]]), int(values[both[1]])
    by_size = aspect is Aspect.SIZE
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
        elements=declared if by_size else None,
        types=("", "") if by_size else (journal.strings[declared[0]], journal.strings[declared[1]]),
    )


# Messages to or from a position that the group does not have.


def find_peers_outside(messages: Messages) -> list[Verdict]:
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
