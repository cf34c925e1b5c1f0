"""Messages that differ, went elsewhere or were left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracelink.diagnosis.clocks import Elapsed
from tracelink.diagnosis.disagreements import KINDS, counted
from tracelink.diagnosis.journal import Journal, like_groups
from tracelink.diagnosis.messages import (
    Ends,
    Matching,
    Reach,
    Scene,
    dump_times_of,
    ends_of,
    match,
    message_waits,
    pending,
)
from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.participation import Attended, Outcome, Parts, Whereabouts, outcomes
from tracelink.diagnosis.programs import Aspect, Habits, Siblings, habits
from tracelink.diagnosis.waits import Wait
from tracelink.model.columns import UNKNOWN, Bools, Int64s, starts_of
from tracelink.text import collective_in_words, ranks_in_words

# What the two ends of a message say of it, and which of two different sayings was to be expected.


@dataclass(frozen=True)
class Sayings:
    """How much is sent and received, and of which type."""

    journal: Journal
    ends: Ends
    matching: Matching

    @cached_property
    def sizes(self) -> Int64s:
        """How many numbers, for each end; UNKNOWN where it does not say."""
        return self._of("elements_in", "elements_out")

    @cached_property
    def types(self) -> Int64s:
        """Codes of texts, for each end."""
        return self._of("type_in", "type_out")

    def of(self, aspect: Aspect) -> Int64s:
        """What each end says of the type, or of the size."""
        return self.types if aspect is Aspect.DTYPE else self.sizes

    def _of(self, given: str, gotten: str) -> Int64s:
        requests = self.journal.requests
        first, second = (
            getattr(requests, name)[self.ends.request].astype(np.int64) for name in (given, gotten)
        )
        sent = np.where(first != UNKNOWN, first, second)
        received = np.where(second != UNKNOWN, second, first)
        said: Int64s = np.where(self.ends.sends, sent, received)
        return said

    def differing(self, aspect: Aspect) -> Bools:
        """Whether the other end of each one's message says something else; what is unknown differs from nothing."""
        said = self.of(aspect)
        other = np.append(said, UNKNOWN)[self.matching.partner]
        differs: Bools = (said != UNKNOWN) & (other != UNKNOWN) & (said != other)
        return differs

    def expected(self, end: int, aspect: Aspect) -> int | None:
        """What an end and its counterpart were to say; None where nothing tells.

        As the channel did before, as the same channel of like groups does, or as at least somebody does.
        """
        said = self.of(aspect)
        own, other = int(said[end]), int(said[self.matching.partner[end]])
        for votes in (self._before(end, aspect), self._alike(end, aspect), self._anywhere(end, aspect)):
            ones, others = int(np.count_nonzero(votes == own)), int(np.count_nonzero(votes == other))
            if ones != others:
                return own if ones > others else other
        return None

    def _before(self, end: int, aspect: Aspect) -> Int64s:
        """What followed on the channel where the same went before."""
        place = self._place(end)
        begin = int(self.matching.channels.sends[self.matching.channel[end]])
        rows = self.matching.order[begin : begin + place]
        said = self.of(aspect)[rows]
        return np.array(habits(said[self.matching.partner[rows] != UNKNOWN]), np.int64)

    def _place(self, end: int) -> int:
        """Which of the sends of its channel the message is."""
        send = end if self.ends.sends[end] else int(self.matching.partner[end])
        channels = self.matching.channels
        own = self.matching.order[int(channels.sends[self.matching.channel[end]]) :]
        return int(np.flatnonzero(own == send)[0])

    def _alike(self, end: int, aspect: Aspect) -> Int64s:
        """What the same message is in groups like this one, as far as these have forgotten nothing."""
        chosen = self._of_like_groups(end) & (self.ends.group != self.ends.group[end])
        requests, request = self.journal.requests, self.ends.request
        for name in ("source", "target"):
            column = getattr(requests, name)
            chosen &= column[request] == column[request[end]]
        channel = np.unique(self.matching.channel[chosen])
        channels = self.matching.channels
        channel = channel[channels.certain[channel] & channels.certain[self.matching.channel[end]]]
        first = channels.sends[channel] + self._place(end)
        inside = first < channels.receives[channel]
        found: Int64s = self.of(aspect)[self.matching.order[first[inside]]]
        return found

    def _anywhere(self, end: int, aspect: Aspect) -> Int64s:
        """What all other messages of like groups are."""
        chosen = self._of_like_groups(end)
        chosen[[end, int(self.matching.partner[end])]] = False
        found: Int64s = np.unique(self.of(aspect)[chosen])
        return found

    def _of_like_groups(self, end: int) -> Bools:
        chosen: Bools = np.isin(
            self.ends.group, like_groups(self.journal.groups, int(self.ends.group[end]))
        ) & (self.matching.channel != UNKNOWN)
        return chosen


# Messages whose two ends do not agree on size or type: one problem for each group and culprits.


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


# Messages to or from the wrong rank: nobody is at the other end, and somebody else waits for the same.


@dataclass(frozen=True)
class Misdirected:
    """Finds them among what ranks wait for."""

    scene: Scene
    reach: Reach

    def problems(self) -> tuple[list[Problem], list[Wait]]:
        """A problem for each rank that has to do with the wrong one; and the waits, in which it waits for nobody."""
        problems, waits = [], []
        for wait in self.reach.waits:
            problem = self._problem(wait) if wait.message and len(wait.absent) == 1 else None
            if problem:
                problems.append(problem)
            waits.append(replace(wait, absent=()) if problem else wait)
        return problems, waits

    def _problem(self, wait: Wait) -> Problem | None:
        """One, if the peer has never had to do with this rank in this way, and will not."""
        ends = self.scene.ends
        ((rank, closing),) = wait.rows.items()
        of_call = (ends.closing == closing) & (ends.peer == wait.absent[0])
        alone = np.flatnonzero(of_call & (self.scene.matching.partner == UNKNOWN))
        if not len(alone) or not self._strange(end := int(alone[0])):
            return None
        due = self._due(end)
        if not self.reach.comes_no_more(wait.absent[0], rank, closing, only_past=not due):
            return None
        return self._told(wait, end, due)

    def _strange(self, end: int) -> bool:
        """Whether no message ever went this way, nor between any other ranks as far apart in groups like this one."""
        ends, matching = self.scene.ends, self.scene.matching
        channel = int(matching.channel[end])
        own = matching.order[int(matching.channels.sends[channel]) : int(matching.channels.end[channel])]
        if (matching.partner[own] != UNKNOWN).any():
            return False
        alike = np.isin(ends.group, like_groups(self.scene.elapsed.journal.groups, int(ends.group[end])))
        same_distance = alike & (self._distance == self._distance[end])
        of_others = ends.rank[same_distance] != ends.rank[end]
        return not of_others.any() and not (matching.partner[same_distance] != UNKNOWN).any()

    @cached_property
    def _distance(self) -> Int64s:
        """From the sending to the receiving rank, within the group."""
        requests, request = self.scene.elapsed.journal.requests, self.scene.ends.request
        distance: Int64s = requests.target[request].astype(np.int64) - requests.source[request]
        return distance

    @cached_property
    def _pending(self) -> Bools:
        return pending(self.scene)

    def _due(self, end: int) -> list[int]:
        """What others have asked of this rank that it has not come to, while it was to do the same with them."""
        ends, partner = self.scene.ends, self.scene.matching.partner
        asked = self._pending & (ends.group == ends.group[end]) & (ends.peer == ends.rank[end])
        asked &= (ends.sends != ends.sends[end]) & (ends.rank != ends.peer[end])
        # A counterpart that comes later in the same queue was meant for the message after the one in question.
        held_up = np.append(ends.row, np.iinfo(np.int64).min)[partner] > ends.row[end]
        return [int(one) for one in np.flatnonzero(asked & ((partner == UNKNOWN) | held_up))]

    def _told(self, wait: Wait, end: int, due: Sequence[int]) -> Problem:
        ends, journal = self.scene.ends, self.scene.elapsed.journal
        group = journal.groups[wait.group]
        rank, peer = int(ends.rank[end]), int(ends.peer[end])
        what = collective_in_words(wait.operation, wait.sequence, group)
        doing, asked = ("sends to", "receives") if ends.sends[end] else ("receives from", "sends")
        waiting = f", while rank {int(ends.rank[due[0]])} waits for it" if due else ""
        answer = f"which {asked} nothing {'from' if ends.sends[end] else 'to'} it"
        rows = {int(ends.rank[one]): int(ends.closing[one]) for one in (*due[:1], end)}
        return Problem(
            Kind.PEER_MISMATCH,
            group.name,
            group.description,
            wait.sequence,
            wait.operation,
            (rank,),
            tuple(sorted({int(ends.rank[one]) for one in due})),
            f"Rank {rank} {doing} rank {peer} in {what}, {answer}{waiting}",
            rows=rows,
        )


# Messages that a rank left out: it was to ask for them at a place of its program that it has gone past.


FURTHEST = 256
"""So many entries after the last message between two ranks the next one is looked for."""


@dataclass(frozen=True)
class LeftOut:
    """Finds them among what ranks wait for."""

    scene: Scene
    reach: Reach
    explained: Collection[int]
    """Ranks that did something else instead, of which there is a problem already."""

    @property
    def journal(self) -> Journal:
        """All entries."""
        return self.scene.elapsed.journal

    def problems(self) -> tuple[list[Problem], list[Wait]]:
        """A problem for each rank and group; and the waits, in which nobody waits for what was left out any more."""
        problems: dict[tuple[int, int], Problem] = {}
        waits = []
        for wait in self.reach.waits:
            possible = wait.message and len(wait.absent) == 1 and wait.absent[0] not in self.explained
            problem = self._problem(wait) if possible else None
            if problem:
                key = wait.group, wait.absent[0]
                problems[key] = _together(problems[key], problem) if key in problems else problem
            waits.append(replace(wait, absent=()) if problem else wait)
        return list(problems.values()), waits

    def _problem(self, wait: Wait) -> Problem | None:
        ends = self.scene.ends
        ((rank, closing),) = wait.rows.items()
        of_call = (ends.closing == closing) & (ends.peer == wait.absent[0])
        alone = np.flatnonzero(of_call & (self.scene.matching.partner == UNKNOWN))
        if not len(alone) or not self.reach.comes_no_more(wait.absent[0], rank, closing):
            return None
        before = self._last_of(int(alone[0]))
        place = UNKNOWN if before == UNKNOWN else self._left_out_at(before)
        return None if place == UNKNOWN else self._told(wait, before, place)

    def _last_of(self, end: int) -> int:
        """The entry of the last end of the channel at the other side."""
        channels, channel = self.scene.matching.channels, int(self.scene.matching.channel[end])
        begin, middle, last = (
            int(column[channel]) for column in (channels.sends, channels.receives, channels.end)
        )
        begin, last = (middle, last) if self.scene.ends.sends[end] else (begin, middle)
        return int(self.scene.ends.row[self.scene.matching.order[last - 1]]) if last > begin else UNKNOWN

    @cached_property
    def _habits(self) -> Habits:
        return Habits(self.journal)

    @cached_property
    def _siblings(self) -> Siblings:
        return Siblings(self.journal)

    def _left_out_at(self, before: int) -> int:
        """Which entry stands where the next message like this one was due; UNKNOWN where none does."""
        end = int(self.journal.bounds[np.searchsorted(self.journal.bounds, before, side="right")])
        later = range(before + 1, min(end, before + FURTHEST))
        by_siblings = self._where_siblings_had_it(before)
        if by_siblings != UNKNOWN:
            return by_siblings
        usual = self._habits.code(before)
        return next((row for row in later if self._habits.usual(row) == usual), UNKNOWN)

    def _where_siblings_had_it(self, before: int) -> int:
        """What the rank did where all siblings asked for it."""
        records, siblings = self.journal.records, self._siblings
        group, rank = int(records.group[before]), int(self.journal.rank[before])
        (missing,) = siblings.codes(np.array([before]))
        for number in range(int(records.sequence[before]) + 1, int(records.sequence[before]) + FURTHEST):
            own, due = siblings.call(group, rank, number), siblings.due(group, rank, number)
            if siblings.codes(own) == due and due:
                continue
            if missing not in due or missing in siblings.codes(own):
                return UNKNOWN
            return int(own[0]) if len(own) else self._went_past(group, rank, number)
        return UNKNOWN

    def _went_past(self, group: int, rank: int, number: int) -> int:
        """The first entry after the last message, if the rank joined what all siblings did after this one."""
        siblings = self._siblings
        others = [(other, siblings.call(where, other, number)) for where, other in siblings.of(group, rank)]
        past = [self.reach.went_past(rank, other, int(rows[-1])) for other, rows in others if len(rows)]
        last = np.flatnonzero(np.isin(self.scene.ends.row, siblings.call(group, rank, number - 1)))
        return int(self.scene.ends.closing[last[-1]]) + 1 if past and all(past) and len(last) else UNKNOWN

    def _told(self, wait: Wait, before: int, place: int) -> Problem:
        group, records = self.journal.groups[wait.group], self.journal.records
        culprit, ((rank, _),) = wait.absent[0], wait.rows.items()
        ends, operation = self.scene.ends, self.journal.operation(before)
        earlier = (ends.rank == culprit) & (ends.group == wait.group) & (ends.row < place)
        sequence = int(records.sequence[ends.row[earlier]].max()) + 1
        instead = self.journal.groups[records.group[place]]
        went_on = collective_in_words(self.journal.operation(place), int(records.sequence[place]), instead)
        return Problem(
            Kind.SKIPPED,
            group.name,
            group.description,
            sequence,
            operation,
            (culprit,),
            (rank,),
            f"Rank {culprit} skipped {collective_in_words(operation, sequence, group)}, and went on with {went_on}",
            rows={**wait.rows, culprit: place},
        )


def _together(one: Problem, other: Problem) -> Problem:
    """Two messages that a rank left out at once."""
    waiting = tuple(sorted({*one.waiting, *other.waiting}))
    return replace(one, waiting=waiting, rows={**other.rows, **one.rows})


# What ranks send to each other: who waits for whose message.


@dataclass(frozen=True, slots=True)
class Messages:
    """All messages of a job."""

    count: int
    """How many have two ends."""
    waits: Sequence[Wait]
    """Those in collectives, too."""
    mismatches: Sequence[Problem]


def messages_of(
    journal: Journal, parts: Parts, where: Whereabouts, broken_off: Collection[int], waits: Sequence[Wait]
) -> Messages:
    """The messages between ranks, who waits in them, and which ends of them do not agree."""
    ends, attended = ends_of(journal, outcomes(journal)), Attended(parts)
    matching = match(journal, parts, ends)
    times = dump_times_of(journal, parts, where)
    times = replace(times, older=times.older | _received_from(ends, matching))
    members = {rank for group in journal.groups for rank in group.ranks}
    silent = frozenset({*(members - set(journal.ranks.tolist())), *broken_off})
    scene = Scene(Elapsed(journal), ends, matching, times, silent)
    misdirected, waits = Misdirected(scene, Reach(attended, [*waits, *message_waits(scene)])).problems()
    left_out, waits = LeftOut(scene, Reach(attended, waits), _begins_of(misdirected)).problems()
    unlike = message_mismatches(journal, ends, matching, _begins_of([*misdirected, *left_out]))
    return Messages(matching.messages, waits, [*unlike, *misdirected, *left_out])


def _begins_of(problems: Sequence[Problem]) -> dict[int, int]:
    """From where on the messages of a rank are paired wrongly, for it left one out or did another instead."""
    return {rank: one.rows[rank] for one in problems for rank in one.culprits}


def _received_from(ends: Ends, matching: Matching) -> frozenset[int]:
    """Ranks whose dumps lack a message that has been received from them."""
    lacking = (matching.partner == UNKNOWN) & (matching.expected >= 0) & (ends.peer != UNKNOWN)
    received = lacking & ~ends.sends & (ends.outcome == Outcome.FINISHED)
    return frozenset(np.unique(ends.peer[received]).tolist())
