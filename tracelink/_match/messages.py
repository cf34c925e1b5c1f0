"""Messages: which send and which receive are one message.

Sends and receives are paired within a channel: a group, two of its ranks, and a tag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._match.groups import Groups, Members
from tracelink._match.outlines import NOTHING, Stack, Tally, corrected_times, is_one_of, item_sizes
from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    Table,
    distinct,
    stable_order,
    starts_of,
)
from tracelink._model.communications import Calls, Evidence, Messages, Verdict
from tracelink._model.findings import Finding
from tracelink._model.operations import Operation

if TYPE_CHECKING:
    from tracelink._match.timing import CallSequence
    from tracelink._model.clock import Clocks


class MatchedMessages(Struct, frozen=True):
    """The messages on the clocks of their ranks, and how many ends have no counterpart."""

    messages: Messages
    unmatched: Tally
    unmatched_sends: int

    def clocked(self, clocks: Clocks) -> Messages:
        """The messages with times on the reference clock."""
        table = self.messages
        (sent,) = corrected_times([table.sent], np.maximum(table.source, 0), clocks)
        (received,) = corrected_times([table.received], np.maximum(table.target, 0), clocks)
        return replace(table, sent=sent, received=received)


def match_messages(stack: Stack, groups: Groups) -> MatchedMessages:
    """Pairs the sends and receives of each channel, in order."""
    ends = _ends(stack, groups)
    channel, _ = distinct(ends.group, ends.source, ends.target, ends.tag)
    order = stable_order(channel)
    ends, channel = ends.take(order), channel[order]
    partner, mismatch = _partners(ends, channel)
    partner = _pair_any_source(ends, partner)
    return _messages(stack, ends, partner, mismatch)


class _ChannelEnds(Table, frozen=True):
    """Sends and receives, by channel and then in the order in which their rank requested them."""

    row: Int64s
    """Of the stack."""
    group: Int32s
    source: Int64s
    target: Int64s
    tag: Int64s
    size: Int64s
    sends: Bools
    end: Int64s
    start: Int64s
    requested: Int64s
    """On the clock of the rank that sends or receives; NO_TIME if unknown."""


def _ends(stack: Stack, groups: Groups) -> _ChannelEnds:
    calls = stack.calls
    sends = is_one_of(calls.operation, stack.strings, (Operation.SEND,))
    rows = np.flatnonzero(sends | is_one_of(calls.operation, stack.strings, (Operation.RECV,)))
    sends = sends[rows]
    group = group_of_ends(stack.group[rows], groups)
    source, target = peers_of_ends(calls.take(rows), stack.rank[rows], group, sends, groups)
    size = np.maximum(calls.elements_in[rows], calls.elements_out[rows])
    tag = np.maximum(calls.tag[rows], 0)
    trusted = calls.evidence[rows] >= Evidence.ANNOTATION
    end, start = (np.where(trusted, column[rows], NO_TIME) for column in (calls.end, calls.start))
    return _ChannelEnds(rows, group, source, target, tag, size, sends, end, start, calls.enqueued[rows])


def group_of_ends(group: Int32s, groups: Groups) -> Int32s:
    """The groups in which ranks of messages count: without a group it is that of all ranks."""
    return np.where(group == UNKNOWN, np.int32(groups.default), group)


def peers_of_ends(
    ends: Calls, rank: Int32s, group: Int32s, sends: Bools, groups: Groups
) -> tuple[Int64s, Int64s]:
    """The ranks of the job that send and receive each message; UNKNOWN for a receive from any source."""
    members = Members.of(groups)
    of_job = ends.global_ranks | (group == UNKNOWN)
    source, target = (members.rank_of(group, peer, of_job) for peer in (ends.source, ends.target))
    return np.where(sends, rank, source), np.where(sends, target, rank)


# Pairing the ends of each channel.


def _partners(ends: _ChannelEnds, channel: Int64s) -> tuple[Int64s, Bools]:
    """For each end the other end of its message or UNKNOWN; and whether the two sizes differ."""
    partner = np.full(len(ends.row), UNKNOWN, np.int64)
    mismatch = np.zeros(len(ends.row), np.bool_)
    if not len(channel):
        return partner, mismatch
    starts = starts_of(channel)
    length = np.diff(np.append(starts, len(channel)))
    known = (ends.source[starts] != UNKNOWN) & (ends.target[starts] != UNKNOWN)
    sent = np.add.reduceat(ends.sends, starts)
    balanced = known & (2 * sent == length)
    inside = np.repeat(balanced, length)
    sends, receives = np.flatnonzero(inside & ends.sends), np.flatnonzero(inside & ~ends.sends)
    simple = np.zeros(len(starts), np.bool_)
    simple[balanced] = _in_step(ends, sends, receives, starts_of(channel[sends]))
    in_step = simple[channel[sends]]
    partner[sends[in_step]], partner[receives[in_step]] = receives[in_step], sends[in_step]
    for number in np.flatnonzero(known & ~simple & (sent > 0) & (sent < length)).tolist():
        rows = np.arange(starts[number], starts[number] + length[number])
        _align(ends, rows[ends.sends[rows]], rows[~ends.sends[rows]], partner, mismatch)
    return partner, mismatch


def _in_step(ends: _ChannelEnds, sends: Int64s, receives: Int64s, starts: Int64s) -> Bools:
    """For channels with as many sends as receives: whether the n-th send fits the n-th receive by size and time.

    If the time from send to receive varies by more than the time between messages, it is more likely that a send
    and a receive were lost.
    """
    if not len(sends):
        return np.zeros(0, np.bool_)
    equal = np.logical_and.reduceat(ends.size[sends] == ends.size[receives], starts)
    sent, received = ends.end[sends], ends.end[receives]
    known = (sent != NO_TIME) & (received != NO_TIME)
    timed = np.logical_and.reduceat(known, starts)
    took = np.where(known, received - sent, 0)
    differ = np.maximum.reduceat(took, starts) - np.minimum.reduceat(took, starts)
    lasted = np.maximum.reduceat(sent, starts) - np.minimum.reduceat(sent, starts)
    count = np.diff(np.append(starts, len(sends)))
    in_time = ~timed | (2 * differ * np.maximum(count - 1, 1) <= lasted)
    in_step: Bools = equal & (in_time | (count == 1))
    return in_step


def _sequences(ends: _ChannelEnds, sends: Int64s, receives: Int64s) -> tuple[CallSequence, CallSequence]:
    """Both sides of a channel, by end, or by request if some ends are unknown.

    No message is received before its send has started.
    """
    from tracelink._match.timing import CallSequence

    _, label = np.unique(ends.size[np.append(sends, receives)], return_inverse=True)
    unknown = np.full(len(label), NO_TIME, np.int64)
    rows = np.append(sends, receives)
    time, start = ends.end[rows], np.append(ends.start[sends], unknown[: len(receives)])
    if (time == NO_TIME).any():
        time, start = ends.requested[rows], unknown
    both = CallSequence(label, time, np.full(len(label), UNKNOWN, np.int64), start)
    return both.take(slice(0, len(sends))), both.take(slice(len(sends), len(rows)))


def _align(ends: _ChannelEnds, sends: Int64s, receives: Int64s, partner: Int64s, mismatch: Bools) -> None:
    """Pairs by size and time; equally many left over between the same neighbours are paired as mismatches."""
    from tracelink._match.sequences import (
        AMBIGUOUS,
        pair,
    )  # only if order does not tell: costs start-up time

    index = pair(*_sequences(ends, sends, receives)).index
    found = np.flatnonzero(index >= 0)
    partner[sends[found]], partner[receives[index[found]]] = receives[index[found]], sends[found]
    left = np.concatenate([[-1], found, [len(sends)]])
    right = np.concatenate([[-1], index[found], [len(receives)]])
    gap = (np.diff(left) > 1) & (np.diff(left) == np.diff(right))
    for begin, first_receive, count in zip(
        (left[:-1] + 1)[gap].tolist(),
        (right[:-1] + 1)[gap].tolist(),
        (np.diff(left) - 1)[gap].tolist(),
        strict=True,
    ):
        gap_sends, gap_receives = (
            sends[begin : begin + count],
            receives[first_receive : first_receive + count],
        )
        differs = ends.size[gap_sends] != ends.size[gap_receives]
        if differs.all() and (index[begin : begin + count] != AMBIGUOUS).all():
            partner[gap_sends], partner[gap_receives] = gap_receives, gap_sends
            mismatch[gap_sends] = True


def _pair_any_source(ends: _ChannelEnds, partner: Int64s) -> Int64s:
    """Pairs receives from any source, if exactly as many unpaired sends of one rank fit."""
    any_source = np.flatnonzero((ends.source == UNKNOWN) & (partner == UNKNOWN) & ~ends.sends)
    if not len(any_source):
        return partner
    partner = partner.copy()
    number_of, first = distinct(ends.group[any_source], ends.target[any_source], ends.tag[any_source])
    free = np.flatnonzero(ends.sends & (partner == UNKNOWN))
    for number in range(len(first)):
        receives = any_source[number_of == number]
        first_receive = receives[0]
        sends = free[
            (ends.group[free] == ends.group[first_receive])
            & (ends.target[free] == ends.target[first_receive])
            & (ends.tag[free] == ends.tag[first_receive])
        ]
        same_source = len(np.unique(ends.source[sends])) == 1
        if len(sends) == len(receives) and same_source and (ends.size[sends] == ends.size[receives]).all():
            partner[receives], partner[sends] = sends, receives
    return partner


# The table of messages.


def _messages(stack: Stack, ends: _ChannelEnds, partner: Int64s, mismatch: Bools) -> MatchedMessages:
    """One row for each pair, and for each end without a partner."""
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
    unmatched = verdict == stack.strings[Verdict.UNMATCHED.value]
    return MatchedMessages(
        _with_times(table, calls, send, receive),
        _tally(table, unmatched),
        int(np.count_nonzero(unmatched & (table.send != UNKNOWN))),
    )


def _verdicts(stack: Stack, chosen: _ChannelEnds, paired: Bools, mismatch: Bools) -> Int32s:
    """Complete, mismatched or unmatched; partial if the rank of the other end has no source."""
    counterpart = np.where(chosen.sends, chosen.target, chosen.source)
    verdict = np.full(len(paired), stack.strings[Verdict.UNMATCHED.value], np.int32)
    verdict[~paired & (counterpart != UNKNOWN) & ~np.isin(counterpart, stack.coverage.rank)] = stack.strings[
        Verdict.PARTIAL.value
    ]
    verdict[paired] = stack.strings[Verdict.COMPLETE.value]
    verdict[paired & mismatch] = stack.strings[Verdict.MISMATCH.value]
    return verdict


def _with_times(messages: Messages, calls: Calls, send: Int64s, receive: Int64s) -> Messages:
    """The messages with times by the clocks of their ends; recorders and gloo annotations have the start too late."""
    seen = (calls.evidence == Evidence.KERNEL) & (calls.start != NO_TIME)
    sent = np.append(np.where(seen, calls.start, calls.enqueued), NO_TIME)[send]
    return replace(messages, sent=sent, received=np.append(calls.end, NO_TIME)[receive])


def _events(calls: Calls, rows: Int64s, *columns: Int64s) -> Int64s:
    """The event of each call: from the last of these columns that has one, else its record."""
    event = calls.record
    for better in columns:
        event = np.where(better != UNKNOWN, better, event)
    return np.append(event, UNKNOWN)[rows]


def _tally(messages: Messages, unmatched: Bools) -> Tally:
    if not unmatched.any():
        return NOTHING
    first = int(np.flatnonzero(unmatched)[0])
    example = f"rank {messages.source[first]} to {messages.target[first]}"
    return Tally(int(np.count_nonzero(unmatched)), example)


def unmatched_finding(unmatched: Tally, sends: int) -> list[Finding]:
    """Ends of messages without the other end."""
    message = f"{sends} sends and {unmatched.count - sends} receives have no counterpart on the other rank."
    return unmatched.finding("messages_unmatched", message)
