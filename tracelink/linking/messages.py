"""Which send and which receive are one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tracelink.errors import Finding, Severity
from tracelink.linking.alignment import Track
from tracelink.linking.groups import Groups, Members
from tracelink.linking.sequences import LONELY, pair
from tracelink.linking.stack import Stack, is_one_of, item_sizes
from tracelink.model.collectives import Messages, Verdict
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, distinct, stable_order, starts_of
from tracelink.model.communications import Calls, Evidence
from tracelink.model.operations import Operation

# Which sends and receives of one channel are one message; a channel is a group, two of its ranks, and a tag.


@dataclass(frozen=True, slots=True)
class Ends:
    """Sends and receives, in the order of their channel and of their rank's asking for them."""

    row: Int64s
    """Of the stack."""
    group: Int32s
    source: Int64s
    target: Int64s
    tag: Int64s
    size: Int64s
    sends: Bools
    ended: Int64s
    began: Int64s
    asked: Int64s
    """By the clock of the rank whose end it is; NO_TIME where not known."""

    def take(self, rows: Int64s) -> Ends:
        """Some of the ends."""
        return Ends(*(getattr(self, field.name)[rows] for field in fields(self)))


def partners(ends: Ends, channel: Int64s) -> tuple[Int64s, Bools]:
    """For each end the other end of its message or UNKNOWN; and whether the two are of different sizes."""
    partner = np.full(len(ends.row), UNKNOWN, np.int64)
    mismatch = np.zeros(len(ends.row), np.bool_)
    if not len(channel):
        return partner, mismatch
    starts = starts_of(channel)
    length = np.diff(np.append(starts, len(channel)))
    known = (ends.source[starts] != UNKNOWN) & (ends.target[starts] != UNKNOWN)
    sent = np.add.reduceat(ends.sends, starts)
    even = known & (2 * sent == length)
    inside = np.repeat(even, length)
    sends, receives = np.flatnonzero(inside & ends.sends), np.flatnonzero(inside & ~ends.sends)
    simple = np.zeros(len(starts), np.bool_)
    simple[even] = _in_step(ends, sends, receives, starts_of(channel[sends]))
    good = simple[channel[sends]]
    partner[sends[good]], partner[receives[good]] = receives[good], sends[good]
    for number in np.flatnonzero(known & ~simple & (sent > 0) & (sent < length)).tolist():
        rows = np.arange(starts[number], starts[number] + length[number])
        _align(ends, rows[ends.sends[rows]], rows[~ends.sends[rows]], partner, mismatch)
    return partner, mismatch


def _in_step(ends: Ends, sends: Int64s, receives: Int64s, starts: Int64s) -> Bools:
    """For channels of as many sends as receives: whether each and its counterpart are of one size, and in time.

    What takes now much longer and now much shorter than the time between messages is rather two that are lost.
    """
    if not len(sends):
        return np.zeros(0, np.bool_)
    equal = np.logical_and.reduceat(ends.size[sends] == ends.size[receives], starts)
    sent, received = ends.ended[sends], ends.ended[receives]
    known = (sent != NO_TIME) & (received != NO_TIME)
    timed = np.logical_and.reduceat(known, starts)
    took = np.where(known, received - sent, 0)
    differ = np.maximum.reduceat(took, starts) - np.minimum.reduceat(took, starts)
    lasted = np.maximum.reduceat(sent, starts) - np.minimum.reduceat(sent, starts)
    count = np.diff(np.append(starts, len(sends)))
    in_time = ~timed | (2 * differ * np.maximum(count - 1, 1) <= lasted)
    in_step: Bools = equal & (in_time | (count == 1))
    return in_step


def _tracks(ends: Ends, sends: Int64s, receives: Int64s) -> tuple[Track, Track]:
    """Both sides of a channel, by when they ended, or by when they were asked for where not all ends are known.

    Nothing is received before the sending of it began.
    """
    _, label = np.unique(ends.size[np.append(sends, receives)], return_inverse=True)
    never = np.full(len(label), NO_TIME, np.int64)
    whole = np.append(sends, receives)
    time, began = ends.ended[whole], np.append(ends.began[sends], never[: len(receives)])
    if (time == NO_TIME).any():
        time, began = ends.asked[whole], never
    both = Track(label, time, np.full(len(label), UNKNOWN, np.int64), began)
    return both.take(slice(0, len(sends))), both.take(slice(len(sends), len(whole)))


def _align(ends: Ends, sends: Int64s, receives: Int64s, partner: Int64s, mismatch: Bools) -> None:
    """Pairs by size and time; as many left over between the same neighbours are of different sizes."""
    place = pair(*_tracks(ends, sends, receives)).place
    found = np.flatnonzero(place >= 0)
    partner[sends[found]], partner[receives[place[found]]] = receives[place[found]], sends[found]
    left = np.concatenate([[-1], found, [len(sends)]])
    right = np.concatenate([[-1], place[found], [len(receives)]])
    gap = (np.diff(left) > 1) & (np.diff(left) == np.diff(right))
    for begin, other, count in zip(
        (left[:-1] + 1)[gap].tolist(),
        (right[:-1] + 1)[gap].tolist(),
        (np.diff(left) - 1)[gap].tolist(),
        strict=True,
    ):
        ours, theirs = sends[begin : begin + count], receives[other : other + count]
        differs = ends.size[ours] != ends.size[theirs]
        if differs.all() and (place[begin : begin + count] != LONELY).all():
            partner[ours], partner[theirs] = theirs, ours
            mismatch[ours] = True


def from_anybody(ends: Ends, partner: Int64s) -> Int64s:
    """Receives from any source, where only as many unpaired sends from one rank can be meant."""
    anybody = np.flatnonzero((ends.source == UNKNOWN) & (partner == UNKNOWN) & ~ends.sends)
    if not len(anybody):
        return partner
    partner = partner.copy()
    place, first = distinct(ends.group[anybody], ends.target[anybody], ends.tag[anybody])
    free = np.flatnonzero(ends.sends & (partner == UNKNOWN))
    for number in range(len(first)):
        receives = anybody[place == number]
        one = receives[0]
        sends = free[
            (ends.group[free] == ends.group[one])
            & (ends.target[free] == ends.target[one])
            & (ends.tag[free] == ends.tag[one])
        ]
        same_source = len(np.unique(ends.source[sends])) == 1
        if len(sends) == len(receives) and same_source and (ends.size[sends] == ends.size[receives]).all():
            partner[receives], partner[sends] = sends, receives
    return partner


# Which sending and which receiving are one message.


@dataclass(frozen=True, slots=True)
class MatchedMessages:
    """The messages, by the clocks of their ranks, with the rows of the calls that are their ends."""

    messages: Messages
    send: Int64s
    receive: Int64s
    """Rows of the stack, or UNKNOWN."""
    findings: Sequence[Finding]

    def clocked(self, calls: Calls) -> Messages:
        """The messages with the times of these calls."""
        return _with_times(self.messages, calls, self.send, self.receive)


def match_messages(stack: Stack, groups: Groups) -> MatchedMessages:
    """Pairs sends and receives of one group, pair of ranks and tag in their order."""
    ends = _ends(stack, groups)
    channel, _ = distinct(ends.group, ends.source, ends.target, ends.tag)
    order = stable_order(channel)
    ends, channel = ends.take(order), channel[order]
    partner, mismatch = partners(ends, channel)
    partner = from_anybody(ends, partner)
    return _messages(stack, groups, ends, partner, mismatch)


def _ends(stack: Stack, groups: Groups) -> Ends:
    calls = stack.calls
    sends = is_one_of(calls.operation, stack.strings, (Operation.SEND,))
    rows = np.flatnonzero(sends | is_one_of(calls.operation, stack.strings, (Operation.RECV,)))
    sends = sends[rows]
    group = groups.of_call[rows]
    group = np.where(group == UNKNOWN, np.int32(groups.default), group)
    members = Members.of(groups)
    of_job = calls.global_ranks[rows] | (group == UNKNOWN)
    own = stack.rank[rows]
    source = np.where(sends, own, members.rank_of(group, calls.source[rows], of_job))
    target = np.where(sends, members.rank_of(group, calls.target[rows], of_job), own)
    size = np.maximum(calls.elements_in[rows], calls.elements_out[rows])
    tag = np.maximum(calls.tag[rows], 0)
    trusted = calls.evidence[rows] >= Evidence.ANNOTATION
    ended, began = (np.where(trusted, column[rows], NO_TIME) for column in (calls.end, calls.start))
    return Ends(rows, group, source, target, tag, size, sends, ended, began, calls.enqueued[rows])


def _messages(stack: Stack, groups: Groups, ends: Ends, partner: Int64s, mismatch: Bools) -> MatchedMessages:
    """One row for each pair and for each end without a partner."""
    calls = stack.calls
    rows = np.flatnonzero(ends.sends | (partner == UNKNOWN))
    chosen, paired = ends.take(rows), partner[rows] != UNKNOWN
    send = np.where(chosen.sends, chosen.row, UNKNOWN)
    receive = np.where(chosen.sends, np.append(ends.row, UNKNOWN)[partner[rows]], chosen.row)
    verdict = _verdicts(stack, chosen, paired, mismatch[rows])
    channel, _ = distinct(chosen.group, chosen.source, chosen.target, chosen.tag)
    starts = starts_of(channel)
    item = item_sizes(calls.type[chosen.row], stack.strings)
    known = (item >= 0) & (chosen.size >= 0)
    table = Messages.of(
        len(rows),
        group=chosen.group,
        source=chosen.source,
        target=chosen.target,
        tag=calls.tag[chosen.row],
        order=np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows)))),
        bytes=np.where(known, item * chosen.size, UNKNOWN),
        send=_events(calls, send, calls.annotation, calls.operator, calls.kernel),
        receive=_events(calls, receive, calls.operator, calls.annotation, calls.kernel),
        send_node=np.append(calls.node, UNKNOWN)[send],
        receive_node=np.append(calls.node, UNKNOWN)[receive],
        verdict=verdict,
    )
    findings = _unpaired(table, verdict == stack.strings[Verdict.UNMATCHED.value])
    return MatchedMessages(_with_times(table, calls, send, receive), send, receive, findings)


def _verdicts(stack: Stack, chosen: Ends, paired: Bools, mismatch: Bools) -> Int32s:
    """Paired or not; one whose other end is on a rank that has no source is partial."""
    here = np.array([rank.rank for rank in stack.ranks], np.int64)
    other = np.where(chosen.sends, chosen.target, chosen.source)
    verdict = np.full(len(paired), stack.strings[Verdict.UNMATCHED.value], np.int32)
    verdict[~paired & (other != UNKNOWN) & ~np.isin(other, here)] = stack.strings[Verdict.PARTIAL.value]
    verdict[paired] = stack.strings[Verdict.COMPLETE.value]
    verdict[paired & mismatch] = stack.strings[Verdict.MISMATCH.value]
    return verdict


def _with_times(messages: Messages, calls: Calls, send: Int64s, receive: Int64s) -> Messages:
    """The messages with the times of their ends; recorder and gloo's annotation see the beginning too late."""
    seen = (calls.evidence == Evidence.KERNEL) & (calls.start != NO_TIME)
    sent = np.append(np.where(seen, calls.start, calls.enqueued), NO_TIME)[send]
    return replace(messages, sent=sent, received=np.append(calls.end, NO_TIME)[receive])


def _events(calls: Calls, rows: Int64s, *columns: Int64s) -> Int64s:
    """The event that stands for each call: the last of these columns that has one."""
    event = calls.record
    for better in columns:
        event = np.where(better != UNKNOWN, better, event)
    return np.append(event, UNKNOWN)[rows]


def _unpaired(messages: Messages, unmatched: Bools) -> list[Finding]:
    if not unmatched.any():
        return []
    count = int(np.count_nonzero(unmatched))
    sends = int(np.count_nonzero(unmatched & (messages.send != UNKNOWN)))
    first = int(np.flatnonzero(unmatched)[0])
    example = f"rank {messages.source[first]} to {messages.target[first]}"
    message = f"{sends} sends and {count - sends} receives have no counterpart on the other rank."
    return [Finding(Severity.WARNING, "messages_unmatched", message, count, example=example)]
