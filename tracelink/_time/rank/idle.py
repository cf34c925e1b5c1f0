"""Why nothing ran: every gap between two stretches of device work is explained by the work that ended it.

A gap is divided by time. Before the work was launched the host was late, and what its thread did then says why; from
the start of the launch on it is the launch. Work that had been launched before the gap waited for something else.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._model.columns import (
    MICROSECOND,
    NO_TIME,
    UNKNOWN,
    Bools,
    Int64s,
    Rows,
    Table,
    Times,
    stable_order,
    starts_of,
)
from tracelink._model.selection import Spans
from tracelink._time.model.intervals import NOTHING, Label, difference, divided, union
from tracelink._time.model.results import BETWEEN, LAUNCHED, NO_LAUNCH, Cause
from tracelink._time.rank.host import HostActivity
from tracelink._time.rank.view import RankView, Work

SHORT_NS = 20 * MICROSECOND
"""What a device needs at most to start work that nothing holds back."""

Reason = tuple[Cause, int | None, str]
"""A cause, the rank that was waited for, and what the host did."""


class Gaps(Table, frozen=True):
    """One row for each stretch of time without device work, in the order of time."""

    start: Times
    end: Times
    following: Rows
    """Position in `RankView.work` of the work that ended it; UNKNOWN if there is no more work."""
    launched_at: Times
    """When its call began, within the gap; the end of the gap if it is not known, the start if it was earlier."""
    launch_end: Times
    lane: Int64s
    """The thread of the call, or UNKNOWN."""


class Explained(Struct, frozen=True):
    """Stretches of time and their reasons; they do not overlap."""

    parts: list[tuple[Reason, Spans]]
    gaps: Gaps
    late: Spans
    """When the next work was not launched yet."""


def gaps_of(view: RankView, idle: Spans) -> Gaps:
    """The gaps, each with the launch of the work that ended it."""
    work = view.work
    lasting = np.flatnonzero(work.end > work.start)
    following = np.append(lasting, UNKNOWN)[np.searchsorted(work.start[lasting], idle.ends)]
    call = np.append(work.call, UNKNOWN)[following]
    known = call != UNKNOWN
    lane = np.append(view.launching_lane, UNKNOWN)[following]
    begun = np.where(known, np.append(view.launched_at, NO_TIME)[following], idle.ends)
    returned = np.where(known, np.append(view.launch_end, NO_TIME)[following], idle.ends)
    begun, returned = (np.clip(times, idle.starts, idle.ends) for times in (begun, returned))
    return Gaps(idle.starts, idle.ends, following, begun, returned, lane)


def explained_idle(view: RankView, idle: Spans, activity: HostActivity) -> Explained:
    """The reasons of all idle time of a rank with device work."""
    gaps = gaps_of(view, idle)
    known = gaps.lane != UNKNOWN
    last = gaps.following == UNKNOWN
    parts: list[tuple[Reason, Spans]] = []
    lanes = np.unique(gaps.lane[known]).tolist()
    unclaimed = []
    for lane in lanes:
        mine = gaps.lane == lane
        late = Spans.of(gaps.start[mine], gaps.launched_at[mine])
        found, rest = divided(late, _reasons(activity, lane))
        parts += found
        unclaimed.append(rest)
    unclaimed.append(Spans.of(gaps.start[last], gaps.end[last]))
    found, rest = divided(
        union(*unclaimed), [claim for lane in activity.claims for claim in _reasons(activity, lane)]
    )
    parts += found
    outside = difference(rest, activity.recorded)
    parts.append(((Cause.NOT_RECORDED, None, ""), outside))
    parts.append(((Cause.HOST_BOUND, None, BETWEEN), difference(rest, outside)))
    parts += _launched(view.work, gaps, known)
    unlaunched = ~known & ~last
    parts.append(((Cause.UNKNOWN, None, NO_LAUNCH), Spans.of(gaps.start[unlaunched], gaps.end[unlaunched])))
    late = Spans.of(gaps.start[known | last], np.where(last, gaps.end, gaps.launched_at)[known | last])
    return Explained(merged(parts), gaps, late)


def _reasons(activity: HostActivity, lane: int) -> list[tuple[Reason, Spans]]:
    return [((cause, None, during), spans) for cause, during, spans in activity.of(lane)]


def _launched(work: Work, gaps: Gaps, known: Bools) -> list[tuple[Reason, Spans]]:
    """The rest of each gap after the start of the launch."""
    launching = known & (gaps.launch_end > gaps.start)
    prompt = np.where(launching, np.minimum(gaps.end, gaps.launch_end + SHORT_NS), gaps.start)
    waited = _waited_for_other_stream(work, gaps)
    prompt = np.where(waited, np.minimum(gaps.end, gaps.start + SHORT_NS), prompt)
    short = known & ~launching & ~waited & (gaps.end - prompt <= SHORT_NS)
    longer = known & ~short
    return [
        ((Cause.LAUNCH_BOUND, None, ""), Spans.of(gaps.launched_at[launching], prompt[launching])),
        ((Cause.STREAM_DEPENDENCY, None, ""), Spans.of(gaps.start[waited], prompt[waited])),
        ((Cause.KERNEL_GAP, None, ""), Spans.of(prompt[short], gaps.end[short])),
        ((Cause.UNKNOWN, None, LAUNCHED), Spans.of(prompt[longer], gaps.end[longer])),
    ]


def _waited_for_other_stream(work: Work, gaps: Gaps) -> Bools:
    """Whether the work was launched and its stream free before the gap began, when work of another stream ended."""
    known = gaps.following != UNKNOWN
    following = np.where(known, gaps.following, 0)
    if not len(work):
        return known
    own = previous_ends(work)[following]
    ended = np.sort(work.end)
    at_start = ended[np.maximum(np.searchsorted(ended, gaps.start, side="right") - 1, 0)] == gaps.start
    return known & at_start & (gaps.launch_end <= gaps.start) & (own < gaps.start) & (own != NO_TIME)


def previous_ends(work: Work) -> Int64s:
    """For each work when its stream had ended all earlier ones; NO_TIME for the first one."""
    if not len(work):
        return np.empty(0, np.int64)
    order = stable_order(work.lane)
    lane, end = work.lane[order], work.end[order]
    previous = np.full(len(work), NO_TIME, np.int64)
    first = starts_of(lane).tolist()
    for begin, stop in zip(first, [*first[1:], len(lane)], strict=True):
        previous[order[begin + 1 : stop]] = np.maximum.accumulate(end[begin : stop - 1])
    return previous


def explained_pauses(idle: Spans, activity: HostActivity) -> Explained:
    """The reasons of the time without operators on a rank without device work."""
    found, rest = divided(idle, [claim for lane in activity.claims for claim in _reasons(activity, lane)])
    outside = difference(rest, activity.recorded)
    parts = [
        *found,
        ((Cause.NOT_RECORDED, None, ""), outside),
        ((Cause.HOST_BOUND, None, BETWEEN), difference(rest, outside)),
    ]
    return Explained(merged(parts), Gaps.empty(), NOTHING)


def merged(parts: list[tuple[Label, Spans]]) -> list[tuple[Label, Spans]]:
    """One item for each reason."""
    by_reason: dict[Label, list[Spans]] = {}
    for reason, spans in parts:
        if len(spans):
            by_reason.setdefault(reason, []).append(spans)
    return [(reason, union(*spans)) for reason, spans in by_reason.items()]
