"""Which sending and which receiving are one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.collectives import Messages, Verdict
from tracelink.communications import UNKNOWN, Calls, Evidence
from tracelink.events import NO_TIME, Bools, Int32s, Int64s
from tracelink.findings import Finding, Severity
from tracelink.linking.alignment import NONE
from tracelink.linking.channels import Ends, from_anybody, partners
from tracelink.linking.coding import distinct, stable_order, starts_of
from tracelink.linking.groups import Groups
from tracelink.linking.members import Members
from tracelink.linking.sizes import is_one_of, item_sizes
from tracelink.linking.stacking import Stack
from tracelink.operations import Operation


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
    rows = np.flatnonzero(ends.sends | (partner == NONE))
    chosen, paired = ends.take(rows), partner[rows] != NONE
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
