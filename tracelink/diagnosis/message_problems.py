"""Problems of messages: payloads that differ, wrong peers, and messages that a rank skipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.clocks import Elapsed
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.messages import (
    Matching,
    MessageEnds,
    MessageState,
    Progress,
    match_messages,
    message_ends,
    message_waits,
    pending_ends,
)
from tracelink.diagnosis.mismatches import KIND_OF_ASPECT
from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.participation import (
    DumpTimes,
    Outcome,
    Parts,
    PartsByRank,
    Positions,
    dump_times_of,
    outcomes,
)
from tracelink.diagnosis.programs import Aspect, Counterparts, Habits, similar_groups, successors
from tracelink.diagnosis.waits import Wait
from tracelink.model.columns import UNKNOWN, Bools, Int64s, starts_of
from tracelink.model.text import collective_in_words, counted, ranks_in_words

MOST_SHIFTED = 16
"""By up to this many messages ends may be paired wrongly after a ring buffer wrapped."""
FURTHEST = 256
"""The next message of a channel is looked for within this many entries after the last one."""


# All messages of a job.


class MessageDiagnosis(Struct, frozen=True):
    """Messages of a job: their count, the waits in them, and their problems."""

    count: int
    """Messages with both ends."""
    waits: Sequence[Wait]
    """Including those in collectives."""
    mismatches: Sequence[Problem]
    times: DumpTimes
    """What is known about when dumps were taken."""


def diagnose_messages(
    journal: Journal, parts: Parts, positions: Positions, broken_off: Collection[int], waits: Sequence[Wait]
) -> MessageDiagnosis:
    """Pairs the messages between ranks, and finds the waits and the mismatches among them."""
    ends, parts_by_rank = message_ends(journal, outcomes(journal)), PartsByRank(parts)
    matching = match_messages(journal, parts, ends)
    times = dump_times_of(journal, parts, positions)
    times = replace(times, outdated=times.outdated | _received_from(ends, matching))
    members = {rank for group in journal.groups for rank in group.ranks}
    silent = frozenset({*(members - set(journal.ranks.tolist())), *broken_off})
    state = MessageState(Elapsed(journal), ends, matching, times, silent)
    misdirected, waits = MisdirectedMessages(
        state, Progress(parts_by_rank, [*waits, *message_waits(state)])
    ).problems()
    misdirected += _outside_of_groups(journal, ends)
    skipped, waits = SkippedMessages(
        state, Progress(parts_by_rank, waits), _disturbed_from(misdirected)
    ).problems()
    mismatches = message_mismatches(journal, ends, matching, _disturbed_from([*misdirected, *skipped]))
    return MessageDiagnosis(matching.messages, waits, [*mismatches, *misdirected, *skipped], times)


def _disturbed_from(problems: Sequence[Problem]) -> dict[int, int]:
    """The entries from which on messages of a rank are paired wrongly: it skipped one, or sent another instead."""
    return {rank: problem.rows[rank] for problem in problems for rank in problem.culprits}


def _received_from(ends: MessageEnds, matching: Matching) -> frozenset[int]:
    """Ranks whose dumps do not contain a message that was received from them."""
    lacking = (matching.partner == UNKNOWN) & (matching.expected >= 0) & (ends.peer != UNKNOWN)
    received = lacking & ~ends.sends & (ends.outcome == Outcome.FINISHED)
    return frozenset(np.unique(ends.peer[received]).tolist())


# Messages whose ends declare different sizes or types.


class DeclaredPayloads(Struct, frozen=True, dict=True):
    """Number of elements and type that both ends of each message declare."""

    journal: Journal
    ends: MessageEnds
    matching: Matching

    @cached_property
    def sizes(self) -> Int64s:
        """Number of elements for each end; UNKNOWN if not recorded."""
        return self._of("elements_in", "elements_out")

    @cached_property
    def types(self) -> Int64s:
        """String code of the type for each end."""
        return self._of("type_in", "type_out")

    def of(self, aspect: Aspect) -> Int64s:
        """The declared type or size of each end."""
        return self.types if aspect is Aspect.DTYPE else self.sizes

    def _of(self, sent_name: str, received_name: str) -> Int64s:
        requests = self.journal.requests
        first, second = (
            getattr(requests, name)[self.ends.request].astype(np.int64) for name in (sent_name, received_name)
        )
        sent = np.where(first != UNKNOWN, first, second)
        received = np.where(second != UNKNOWN, second, first)
        declared: Int64s = np.where(self.ends.sends, sent, received)
        return declared

    def differing(self, aspect: Aspect) -> Bools:
        """Whether the other end of the message declares something else; unknown values do not differ."""
        own = self.of(aspect)
        other = np.append(own, UNKNOWN)[self.matching.partner]
        differs: Bools = (own != UNKNOWN) & (other != UNKNOWN) & (own != other)
        return differs

    def expected(self, end: int, aspect: Aspect) -> int | None:
        """The value expected at both ends; None if unclear.

        Taken from earlier messages of the channel, else from the same channel of similar groups, else from any of
        their messages.
        """
        values = self.of(aspect)
        own, other = int(values[end]), int(values[self.matching.partner[end]])
        for votes in (
            self._earlier_on_channel(end, aspect),
            self._in_similar_groups(end, aspect),
            self._any_message(end, aspect),
        ):
            own_votes, other_votes = (
                int(np.count_nonzero(votes == own)),
                int(np.count_nonzero(votes == other)),
            )
            if own_votes != other_votes:
                return own if own_votes > other_votes else other
        return None

    def _earlier_on_channel(self, end: int, aspect: Aspect) -> Int64s:
        """The values that followed on this channel wherever the earlier values were the same."""
        index = self._index(end)
        first = int(self.matching.channels.sends[self.matching.channel[end]])
        rows = self.matching.order[first : first + index]
        values = self.of(aspect)[rows]
        return np.array(successors(values[self.matching.partner[rows] != UNKNOWN]), np.int64)

    def _index(self, end: int) -> int:
        """Index of the message among the sends of its channel."""
        send = end if self.ends.sends[end] else int(self.matching.partner[end])
        channels = self.matching.channels
        ends = self.matching.order[int(channels.sends[self.matching.channel[end]]) :]
        return int(np.flatnonzero(ends == send)[0])

    def _in_similar_groups(self, end: int, aspect: Aspect) -> Int64s:
        """The value of the same message in similar groups whose buffers did not wrap."""
        chosen = self._of_similar_groups(end) & (self.ends.group != self.ends.group[end])
        requests, request = self.journal.requests, self.ends.request
        for name in ("source", "target"):
            column = getattr(requests, name)
            chosen &= column[request] == column[request[end]]
        channel = np.unique(self.matching.channel[chosen])
        channels = self.matching.channels
        channel = channel[channels.certain[channel] & channels.certain[self.matching.channel[end]]]
        first = channels.sends[channel] + self._index(end)
        inside = first < channels.receives[channel]
        found: Int64s = self.of(aspect)[self.matching.order[first[inside]]]
        return found

    def _any_message(self, end: int, aspect: Aspect) -> Int64s:
        """The values of all other messages of similar groups."""
        chosen = self._of_similar_groups(end)
        chosen[[end, int(self.matching.partner[end])]] = False
        found: Int64s = np.unique(self.of(aspect)[chosen])
        return found

    def _of_similar_groups(self, end: int) -> Bools:
        chosen: Bools = np.isin(
            self.ends.group, similar_groups(self.journal.groups, int(self.ends.group[end]))
        ) & (self.matching.channel != UNKNOWN)
        return chosen


def message_mismatches(
    journal: Journal, ends: MessageEnds, matching: Matching, disturbed: Mapping[int, int]
) -> list[Problem]:
    """A problem for each group, aspect and set of culprits.

    `disturbed` maps ranks to the entry from which on their messages are paired wrongly.
    """
    payloads = DeclaredPayloads(journal, ends, matching)
    found: dict[tuple[int, Aspect, tuple[int, ...]], list[int]] = {}
    partner = matching.partner
    seen = np.zeros(len(ends), np.bool_)
    for aspect in (Aspect.DTYPE, Aspect.SIZE):
        differing = ends.sends & payloads.differing(aspect) & ~seen
        for rank, row in disturbed.items():
            later = (ends.rank == rank) & (ends.row > row)
            differing[later] = False
            differing[partner[later & (partner != UNKNOWN)]] = False
        seen |= differing
        sends = np.flatnonzero(differing)
        sends = sends[np.argsort(matching.channel[sends], kind="stable")]
        for own in np.split(sends, starts_of(matching.channel[sends])[1:]) if len(sends) else ():
            if not _certainly_paired(payloads, int(matching.channel[own[0]]), aspect):
                own = own[
                    (ends.outcome[own] < Outcome.RETIRED) & (ends.outcome[partner[own]] < Outcome.RETIRED)
                ]
            if len(own):
                culprits = _culprits(payloads, _clearest(ends, matching, own.tolist()), aspect)
                found.setdefault((int(ends.group[own[0]]), aspect, culprits), []).extend(own.tolist())
    return [
        _mismatch_problem(payloads, _Dispute(sends, aspect, culprits, _clearest(ends, matching, sends)))
        for (_, aspect, culprits), sends in found.items()
    ]


class _Dispute(Struct, frozen=True):
    """Messages of a group whose size or type is wrong at the same ranks."""

    sends: Sequence[int]
    aspect: Aspect
    culprits: tuple[int, ...]
    shown: int
    """The send that shows it best."""


def _clearest(ends: MessageEnds, matching: Matching, sends: Sequence[int]) -> int:
    """The message that shows it best: the first unfinished one, else the first one."""
    unfinished = [
        send
        for send in sends
        if min(ends.outcome[send], ends.outcome[matching.partner[send]]) < Outcome.RETIRED
    ]
    return min(unfinished or sends, key=lambda send: int(ends.row[send]) - _first_entry(ends, send))


def _first_entry(ends: MessageEnds, send: int) -> int:
    """The first entry of the rank."""
    return int(ends.row[np.searchsorted(ends.rank, ends.rank[send])])


def _certainly_paired(payloads: DeclaredPayloads, channel: int, aspect: Aspect) -> bool:
    """Whether the ends of a channel differ with every plausible shift."""
    channels, order, values = payloads.matching.channels, payloads.matching.order, payloads.of(aspect)
    if channels.certain[channel]:
        return True
    first, first_receive, end = (
        int(column[channel]) for column in (channels.sends, channels.receives, channels.end)
    )
    sends, receives = values[order[first:first_receive]], values[order[first_receive:end]]
    shift = int(channels.shift[channel])
    return not any(
        _agree(sends, receives, shift + other) for other in range(-MOST_SHIFTED, MOST_SHIFTED + 1) if other
    )


def _agree(sends: Int64s, receives: Int64s, shift: int) -> bool:
    """Whether all ends that a shift pairs agree, and it pairs most of them."""
    sent = sends[max(0, -shift) :]
    received = receives[max(0, shift) :]
    common = min(len(sent), len(received))
    return 2 * common > min(len(sends), len(receives)) and bool((sent[:common] == received[:common]).all())


def _culprits(payloads: DeclaredPayloads, send: int, aspect: Aspect) -> tuple[int, ...]:
    """The ranks that declare something unexpected; both if the expected value is unclear."""
    expected = payloads.expected(send, aspect)
    both = (send, int(payloads.matching.partner[send]))
    wrong = [end for end in both if int(payloads.of(aspect)[end]) != expected]
    return tuple(sorted(int(payloads.ends.rank[end]) for end in wrong))


def _mismatch_problem(payloads: DeclaredPayloads, dispute: _Dispute) -> Problem:
    ends, journal = payloads.ends, payloads.journal
    both = (dispute.shown, int(payloads.matching.partner[dispute.shown]))
    shown = next(end for end in both if int(ends.rank[end]) in dispute.culprits)
    row = int(ends.row[shown])
    group = journal.groups[ends.group[shown]]
    sequence, operation = int(journal.records.sequence[row]), journal.operation(row)
    waiting = [
        int(ends.rank[end])
        for end in both
        if ends.outcome[end] < Outcome.RETIRED and ends.rank[end] not in dispute.culprits
    ]
    message = _mismatch_message(payloads, dispute, both, collective_in_words(operation, sequence, group))
    return Problem.at(
        KIND_OF_ASPECT[dispute.aspect],
        group,
        sequence,
        operation,
        culprits=dispute.culprits,
        waiting=waiting,
        message=message,
        tie=len(dispute.culprits) > 1,
        count=len(dispute.sends),
        rows={int(ends.rank[end]): int(ends.closing[end]) for end in both},
    )


def _mismatch_message(payloads: DeclaredPayloads, dispute: _Dispute, both: tuple[int, int], what: str) -> str:
    """`Rank 2 has an unexpected size in recv 1<-0 #5 of group 3 (pp): rank 1 sends ...`, without the full stop."""
    send, receive = (_payload_in_words(payloads, dispute.aspect, end) for end in both)
    source, target = (int(payloads.ends.rank[end]) for end in both)
    shown = f" ({len(dispute.sends)} messages show it)" if len(dispute.sends) > 1 else ""
    declared = f"rank {source} sends {send}, rank {target} receives {receive}"
    if len(dispute.culprits) > 1:
        ranks = ranks_in_words((source, target))
        return f"{ranks} do not agree in {what}: {declared}. It is unknown which rank is wrong{shown}"
    aspect = "dtype" if dispute.aspect is Aspect.DTYPE else "size"
    return f"{ranks_in_words(dispute.culprits)} has an unexpected {aspect} in {what}: {declared}{shown}"


def _payload_in_words(payloads: DeclaredPayloads, aspect: Aspect, end: int) -> str:
    value = int(payloads.of(aspect)[end])
    if aspect is Aspect.SIZE:
        return counted(value, "element")
    return payloads.journal.strings[value] if value != UNKNOWN else "no type"


# Messages without an answer: sent to or expected from the wrong rank, or skipped by the other rank.


class MisdirectedMessages(Struct, frozen=True, dict=True):
    """Messages to or from the wrong rank: the peer has no such message, and another rank may wait for it."""

    state: MessageState
    progress: Progress

    def problems(self) -> tuple[list[Problem], list[Wait]]:
        """A problem for each rank that named a wrong peer; and all waits, of which these wait for no rank."""
        problems, waits = [], []
        for wait in self.progress.waits:
            problem = self._problem(wait) if wait.message and len(wait.absent) == 1 else None
            if problem:
                problems.append(problem)
            waits.append(replace(wait, absent=()) if problem else wait)
        return problems, waits

    def _problem(self, wait: Wait) -> Problem | None:
        """A problem if the peer never exchanged such a message with this rank, and will not."""
        rank, closing, unanswered = _unanswered_end(self.state, wait)
        if unanswered == UNKNOWN or not self._is_unprecedented(unanswered):
            return None
        expected = self._expected_ends(unanswered)
        if not self.progress.has_passed_or_waits(wait.absent[0], rank, closing, only_past=not expected):
            return None
        return self._problem_of(wait, unanswered, expected)

    def _is_unprecedented(self, end: int) -> bool:
        """Whether no message took this way, nor one between other ranks at this distance in similar groups."""
        ends, matching = self.state.ends, self.state.matching
        channel = int(matching.channel[end])
        own = matching.order[int(matching.channels.sends[channel]) : int(matching.channels.end[channel])]
        if (matching.partner[own] != UNKNOWN).any():
            return False
        similar = np.isin(ends.group, similar_groups(self.state.elapsed.journal.groups, int(ends.group[end])))
        same_distance = similar & (self._distance == self._distance[end])
        of_others = ends.rank[same_distance] != ends.rank[end]
        return not of_others.any() and not (matching.partner[same_distance] != UNKNOWN).any()

    @cached_property
    def _distance(self) -> Int64s:
        """From the sending to the receiving rank, within the group."""
        requests, request = self.state.elapsed.journal.requests, self.state.ends.request
        distance: Int64s = requests.target[request].astype(np.int64) - requests.source[request]
        return distance

    @cached_property
    def _pending(self) -> Bools:
        return pending_ends(self.state)

    def _expected_ends(self, end: int) -> list[int]:
        """Ends at other ranks that this rank should have answered instead."""
        ends, partner = self.state.ends, self.state.matching.partner
        expected = self._pending & (ends.group == ends.group[end]) & (ends.peer == ends.rank[end])
        expected &= (ends.sends != ends.sends[end]) & (ends.rank != ends.peer[end])
        # An answer later in the same queue belongs to the message after the one in question.
        answered_later = np.append(ends.row, np.iinfo(np.int64).min)[partner] > ends.row[end]
        return [
            int(candidate) for candidate in np.flatnonzero(expected & ((partner == UNKNOWN) | answered_later))
        ]

    def _problem_of(self, wait: Wait, end: int, expected: Sequence[int]) -> Problem:
        ends, journal = self.state.ends, self.state.elapsed.journal
        group = journal.groups[wait.group]
        rank, peer = int(ends.rank[end]), int(ends.peer[end])
        what = collective_in_words(wait.operation, wait.sequence, group)
        if ends.sends[end]:
            call = f"sends to rank {peer} in {what}, but rank {peer} does not receive from rank {rank}"
        else:
            call = f"receives from rank {peer} in {what}, but rank {peer} does not send to rank {rank}"
        waiting = f", and rank {int(ends.rank[expected[0]])} waits for rank {rank}" if expected else ""
        return Problem.at(
            Kind.PEER_MISMATCH,
            group,
            wait.sequence,
            wait.operation,
            culprits=(rank,),
            waiting={int(ends.rank[other]) for other in expected},
            message=f"Rank {rank} {call}{waiting}",
            rows={int(ends.rank[shown]): int(ends.closing[shown]) for shown in (*expected[:1], end)},
        )


def _outside_of_groups(journal: Journal, ends: MessageEnds) -> list[Problem]:
    """A problem for each rank and group with an unfinished message to or from a position outside of the group."""
    position = _peer_positions(journal, ends)
    described = {
        group.name for recording in journal.recordings.values() for group in recording.groups if group.ranks
    }
    sizes = [len(group.ranks) if group.name in described else 0 for group in journal.groups]
    size = np.array([*sizes, 0], np.int64)[ends.group]
    outside = (size > 0) & (position >= size) & (ends.outcome < Outcome.RETIRED)
    first: dict[tuple[int, int], list[int]] = {}
    for end in np.flatnonzero(outside).tolist():
        first.setdefault((int(ends.rank[end]), int(ends.group[end])), []).append(end)
    return [_outside_problem(journal, ends, own, int(position[own[0]])) for own in first.values()]


def _peer_positions(journal: Journal, ends: MessageEnds) -> Int64s:
    """The position of the other end in the group, as recorded; UNKNOWN if it may be any."""
    requests = journal.requests
    positions: Int64s = np.where(ends.sends, requests.target[ends.request], requests.source[ends.request])
    return positions


def _outside_problem(journal: Journal, ends: MessageEnds, own: Sequence[int], position: int) -> Problem:
    row = int(ends.row[own[0]])
    group, rank = journal.groups[ends.group[own[0]]], int(ends.rank[own[0]])
    sequence, operation = int(journal.records.sequence[row]), journal.operation(row)
    way = "sends to" if ends.sends[own[0]] else "receives from"
    return Problem.at(
        Kind.PEER_MISMATCH,
        group,
        sequence,
        operation,
        culprits=(rank,),
        waiting=(),
        message=f"Rank {rank} {way} position {position} in {collective_in_words(operation, sequence, group)}, "
        f"but this group has only positions 0 to {len(group.ranks) - 1}",
        count=len(own),
        rows={rank: int(ends.closing[own[0]])},
    )


class SkippedMessages(Struct, frozen=True, dict=True):
    """Messages that a rank skipped: its program had one at a position that it has passed."""

    state: MessageState
    progress: Progress
    explained: Collection[int]
    """Ranks that already have a problem because they did something else instead."""

    @property
    def journal(self) -> Journal:
        """All entries."""
        return self.state.elapsed.journal

    def problems(self) -> tuple[list[Problem], list[Wait]]:
        """A problem for each rank and group; and all waits, of which those for skipped messages wait for no rank."""
        problems: dict[tuple[int, int], Problem] = {}
        waits = []
        for wait in self.progress.waits:
            possible = wait.message and len(wait.absent) == 1 and wait.absent[0] not in self.explained
            problem = self._problem(wait) if possible else None
            if problem:
                key = wait.group, wait.absent[0]
                problems[key] = _merged(problems[key], problem) if key in problems else problem
            waits.append(replace(wait, absent=()) if problem else wait)
        return list(problems.values()), waits

    def _problem(self, wait: Wait) -> Problem | None:
        rank, closing, unanswered = _unanswered_end(self.state, wait)
        if unanswered == UNKNOWN or not self.progress.has_passed_or_waits(wait.absent[0], rank, closing):
            return None
        last = self._last_of(unanswered)
        skipped_at = UNKNOWN if last == UNKNOWN else self._skipped_at(last)
        return None if skipped_at == UNKNOWN else self._problem_of(wait, last, skipped_at)

    def _last_of(self, end: int) -> int:
        """The last entry of the channel at the other side; UNKNOWN if it has none."""
        matching = self.state.matching
        channels, channel = matching.channels, int(matching.channel[end])
        sent = bool(self.state.ends.sends[end])
        first = int((channels.receives if sent else channels.sends)[channel])
        last = int((channels.end if sent else channels.receives)[channel])
        return int(self.state.ends.row[matching.order[last - 1]]) if last > first else UNKNOWN

    @cached_property
    def _habits(self) -> Habits:
        return Habits(self.journal)

    @cached_property
    def _counterparts(self) -> Counterparts:
        return Counterparts(self.journal)

    def _skipped_at(self, last: int) -> int:
        """The entry at the position where the next such message was expected; UNKNOWN if none."""
        end = int(self.journal.bounds[np.searchsorted(self.journal.bounds, last, side="right")])
        rows = range(last + 1, min(end, last + FURTHEST))
        by_counterparts = self._skipped_by_counterparts(last)
        if by_counterparts != UNKNOWN:
            return by_counterparts
        usual = self._habits.code(last)
        return next((row for row in rows if self._habits.usual(row) == usual), UNKNOWN)

    def _skipped_by_counterparts(self, last: int) -> int:
        """What the rank did where all of its counterparts had the message."""
        records, counterparts = self.journal.records, self._counterparts
        group, rank = int(records.group[last]), int(self.journal.rank[last])
        (missing,) = counterparts.codes(np.array([last]))
        for number in range(int(records.sequence[last]) + 1, int(records.sequence[last]) + FURTHEST):
            own, expected = (
                counterparts.message_rows(group, rank, number),
                counterparts.expected(group, rank, number),
            )
            if counterparts.codes(own) == expected and expected:
                continue
            if missing not in expected or missing in counterparts.codes(own):
                return UNKNOWN
            return int(own[0]) if len(own) else self._has_passed(group, rank, number)
        return UNKNOWN

    def _has_passed(self, group: int, rank: int, number: int) -> int:
        """The first entry after the last message, if the rank joined what all counterparts joined after it."""
        counterparts = self._counterparts
        others = [
            (other, counterparts.message_rows(similar, other, number))
            for similar, other in counterparts.of(group, rank)
        ]
        past = [self.progress.has_passed(rank, other, int(rows[-1])) for other, rows in others if len(rows)]
        last = np.flatnonzero(
            np.isin(self.state.ends.row, counterparts.message_rows(group, rank, number - 1))
        )
        return int(self.state.ends.closing[last[-1]]) + 1 if past and all(past) and len(last) else UNKNOWN

    def _problem_of(self, wait: Wait, last: int, skipped_at: int) -> Problem:
        group, records = self.journal.groups[wait.group], self.journal.records
        culprit, ((rank, _),) = wait.absent[0], wait.rows.items()
        ends, operation = self.state.ends, self.journal.operation(last)
        earlier = (ends.rank == culprit) & (ends.group == wait.group) & (ends.row < skipped_at)
        sequence = int(records.sequence[ends.row[earlier]].max()) + 1
        skipped = collective_in_words(operation, sequence, group)
        continued = collective_in_words(
            self.journal.operation(skipped_at),
            int(records.sequence[skipped_at]),
            self.journal.groups[records.group[skipped_at]],
        )
        return Problem.at(
            Kind.SKIPPED,
            group,
            sequence,
            operation,
            culprits=(culprit,),
            waiting=(rank,),
            message=f"Rank {culprit} skipped {skipped} and continued with {continued}",
            rows={**wait.rows, culprit: skipped_at},
        )


def _unanswered_end(state: MessageState, wait: Wait) -> tuple[int, int, int]:
    """The waiting rank, the entry with its final state, and its end without a partner; UNKNOWN if all have one."""
    ends = state.ends
    ((rank, closing),) = wait.rows.items()
    of_call = (ends.closing == closing) & (ends.peer == wait.absent[0])
    unanswered = np.flatnonzero(of_call & (state.matching.partner == UNKNOWN))
    return rank, closing, int(unanswered[0]) if len(unanswered) else UNKNOWN


def _merged(first: Problem, second: Problem) -> Problem:
    """Two messages that a rank skipped at once."""
    waiting = tuple(sorted({*first.waiting, *second.waiting}))
    return replace(first, waiting=waiting, rows={**second.rows, **first.rows})
