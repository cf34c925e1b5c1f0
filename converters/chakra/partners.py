"""What of a communication those who are written have of it: a simulator waits for all of them, for the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracelink.converters.chakra.communications import Communicating, usable
from tracelink.converters.chakra.group_numbers import GroupNumbers
from tracelink.converters.chakra.host import nodes_of_host
from tracelink.converters.chakra.schema import NodeType
from tracelink.events import GPU_WORK, Int64s
from tracelink.excerpt import Excerpt


def turns_with_nodes(part: Excerpt, told: Communicating) -> Int64s:
    """The turns of those communications of a rank that become nodes."""
    usable_ones, _ = usable(told.settled(part.events))
    written = nodes_of_host(part) | (part.events.of_kind(*GPU_WORK) & part.events.timed)
    turns: Int64s = usable_ones.turn[np.append(written, False)[usable_ones.row]]
    return turns


def compared(
    told: Communicating, groups: GroupNumbers, ranks: Sequence[int], taking_part: Sequence[Int64s]
) -> Communicating:
    """The communications with how many of `ranks` they lack, and the largest size that any of these tells.

    `taking_part` are the turns of each of these ranks.
    """
    count = int(told.turn.max(initial=-1)) + 1
    seen = np.bincount(np.concatenate([np.empty(0, np.int64), *taking_part]), minlength=count)
    written = np.array(sorted(ranks), np.int64)
    members = [len(np.intersect1d(written, np.array(group, np.int64))) for group in groups.members]
    expected = np.array([*members, len(written)], np.int64)[told.group]
    ends = np.isin(told.source, written).astype(np.int64) + np.isin(told.target, written)
    expected = np.where(told.type == NodeType.COMM_COLL, expected, ends)
    most = np.full(count, told.size.min(initial=0), np.int64)
    np.maximum.at(most, told.turn, told.size)
    return replace(told, most=most[told.turn], lacking=np.maximum(expected - seen[told.turn], 0))
