"""Kernels, operators, modules, lines, gaps and waits of one rank, added up by name.

Every table is a dictionary: the texts of a row, and its numbers in the order of the columns of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Int64s,
    distinct,
    lexical_order,
    lookup,
    stable_order,
)
from tracelink._model.events import ON_THREAD, EventKind, Key
from tracelink._model.graph import recorded_payloads
from tracelink._model.selection import Spans
from tracelink._model.tables import arguments_of
from tracelink._model.text import shortened
from tracelink._model.trace import Payload
from tracelink._time.model.intervals import covered
from tracelink._time.model.results import KernelTotal
from tracelink._time.rank.call_sites import (
    MODULE,
    CallSites,
    Marks,
    backward_time,
    call_sites_of,
    device_time,
)
from tracelink._time.rank.idle import Explained, previous_ends
from tracelink._time.rank.steps import Windows
from tracelink._time.rank.view import COMMUNICATION, RankView, Work
from tracelink.converters.pytorch.arguments import INPUT_DIMS, INPUT_TYPES

MOST_STACKS = 40
"""Kernels with a stack: those with most time."""
DEEPEST_STACK = 64
LONGEST_SHAPES = 240

Texts = tuple[str, ...]
Rows = dict[Texts, list[int]]


class Tables(Struct, frozen=True):
    """The tables of one rank."""

    kernels: Sequence[KernelTotal]
    operators: Rows
    """Name: count, total, self, device time."""
    modules: Rows
    """Name: count, total, self, device time, backward device time."""
    lines: Rows
    """Name: count, total, self, device time."""
    gaps: Rows
    """Operator, what is around it, line: count, idle time."""
    waits: Rows
    """Call, operator, line: count, host time, idle time."""
    shapes: Rows
    """Operator, shapes: count, total, self, device time."""


def tables_of(
    view: RankView, windows: Windows, explained: Explained, waits: Int64s, *, with_shapes: bool = False
) -> Tables:
    """The tables of a rank, of what starts in the windows; `waits` are calls that wait for the device."""
    marks = Marks.of(view)
    sites = call_sites_of(view, marks, np.append(view.work.call, waits))
    inside = starts_inside(windows, view.work.start)
    calls = _Calls.of(view, windows, device_time(view, inside), backward_time(view, sites, inside))
    python = view.events.kind[calls.rows] == EventKind.PYTHON
    module = marks.module[calls.rows]
    operator = view.events.kind[calls.rows] == EventKind.OPERATOR
    return Tables(
        _kernels(view, sites, inside),
        calls.by_name(view, operator),
        calls.by_name(view, module, with_backward=True),
        calls.by_name(view, python & ~module),
        _gaps(view, sites, explained),
        _waits(view, windows, sites, explained, waits),
        calls.by_shape(view, operator & np.isin(calls.rows, sites.operator)) if with_shapes else {},
    )


def starts_inside(windows: Windows, start: Int64s) -> Bools:
    """Which of these times are in a window."""
    window = np.searchsorted(windows.start, start, side="right") - 1
    return (window >= 0) & (start < np.append(windows.end, 0)[window])


# Kernels


def _kernels(view: RankView, sites: CallSites, inside: Bools) -> list[KernelTotal]:
    queue, launch = launch_delays(view)
    chosen = np.flatnonzero(inside & (view.events.kind[view.work.row] == EventKind.KERNEL))
    work, queue, launch = view.work.take(chosen), queue[chosen], launch[chosen]
    time = work.end - work.start
    group, first = distinct(view.events.name[work.row])
    count = len(first)
    low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(low, group, time)
    np.maximum.at(high, group, time)
    site = lookup(sites.call, work.call)
    lines = view.graph.key(Key.SOURCE_LINES).dense(len(view.events), UNKNOWN)[work.row[first]]
    operator, module, line = (
        _names(view, np.append(rows, UNKNOWN)[site]) for rows in (sites.operator, sites.module, sites.line)
    )
    columns = [
        view.texts(view.events.name[work.row[first]]),
        (work.part[first] == COMMUNICATION).tolist(),
        np.bincount(group, minlength=count).tolist(),
        *(column.tolist() for column in (_sums(group, time, count), low, high)),
        *(_sums(group, np.maximum(delay, 0), count).tolist() for delay in (queue, launch)),
        view.texts(_most(operator, group, time, count)),
        _module_classes(view, module, group, time, count),
        view.texts(_most(line, group, time, count)),
        view.texts(lines),
        _stacks(view, work, group, time, count),
    ]
    return [KernelTotal(*values) for values in zip(*columns, strict=True)]


def _stacks(view: RankView, work: Work, group: Int64s, time: Int64s, count: int) -> list[list[str]]:
    """The calls around the launch of the longest kernel of each group; none for all but the longest groups."""
    order = np.lexsort((time, group))
    longest = order[np.searchsorted(group[order], np.arange(count), side="right") - 1]
    shown = np.argsort(-_sums(group, time, count), kind="stable")[:MOST_STACKS]
    stacks: list[list[str]] = [[] for _ in range(count)]
    for number in shown.tolist():
        row = int(work.call[longest[number]])
        while row != UNKNOWN and len(stacks[number]) < DEEPEST_STACK:
            stacks[number].append(view.graph.strings[view.events.name[row]])
            row = int(view.caller[row])
    return stacks


def launch_delays(view: RankView) -> tuple[Int64s, Int64s]:
    """From the end of each launch until its stream was free, and from then until the start; UNKNOWN without launch.

    Work of a graph that follows other work of the same launch waits for its stream only.
    """
    work, returned = view.work, view.launch_end
    known = work.call != UNKNOWN
    free = np.minimum(np.maximum(previous_ends(work), returned), np.maximum(work.start, returned))
    queue = np.where(known, np.maximum(free - returned, 0), UNKNOWN)
    return queue, np.where(known, np.maximum(work.start - free, 0), UNKNOWN)


def _sums(group: Int64s, values: Int64s, count: int) -> Int64s:
    total = np.zeros(count, np.int64)
    np.add.at(total, group, values)
    return total


def _most(names: Int64s, group: Int64s, weight: Int64s, count: int) -> Int64s:
    """For each group the name with most weight; UNKNOWN if none is known."""
    found = np.full(count, UNKNOWN, np.int64)
    known = np.flatnonzero(names != UNKNOWN)
    pair, first = distinct(group[known], names[known])
    if len(first):
        weights = _sums(pair, weight[known], len(first))
        owner = group[known[first]]
        order = np.lexsort((weights, owner))
        found[owner[order]] = names[known[first]][order]  # of each group the last one stays
    return found


def _names(view: RankView, rows: Int64s) -> Int64s:
    """The code of the name of each event, or UNKNOWN."""
    return np.where(rows == UNKNOWN, UNKNOWN, view.events.name[rows]).astype(np.int64)


def _module_classes(view: RankView, names: Int64s, group: Int64s, weight: Int64s, count: int) -> list[str]:
    """For each group the class of modules with most weight: `Linear` for `nn.Module: Linear_3`."""
    codes, at = np.unique(names, return_inverse=True)
    texts = [text.removeprefix(MODULE).rpartition("_")[0] for text in view.texts(codes)]
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    classes = np.array([known[text] if text else UNKNOWN for text in texts], np.int64)
    listed = [*known, ""]
    return [listed[number] for number in _most(classes[at], group, weight, count).tolist()]


# Calls on threads: operators, modules and functions


class _Calls(Struct, frozen=True):
    """The operators and Python functions that run in the windows, with their time in these."""

    rows: Int64s
    time: Int64s
    own: Int64s
    """Time without what they call."""
    device: Int64s
    backward: Int64s
    """Device time of backward work whose forward operators it encloses."""
    outer: Bools
    """Whether it is not within a call of the same name on its thread."""

    @classmethod
    def of(cls, view: RankView, windows: Windows, on_device: Int64s, backward: Int64s) -> _Calls:
        events = view.events
        every = view.rows(*ON_THREAD)
        start = events.start[every]
        end = start + events.duration[every]
        spans = Spans.of(windows.start, windows.end)
        time = _time_inside(spans, start, end)
        caller = view.caller[every]
        nested = np.flatnonzero(caller != UNKNOWN)
        around = caller[nested]
        inner = np.zeros(len(events), np.int64)
        np.add.at(
            inner,
            around,
            _time_inside(
                spans,
                np.maximum(start[nested], events.start[around]),
                np.minimum(end[nested], events.end_of(around)),
            ),
        )
        kind = events.kind[every]
        mine = (kind == EventKind.OPERATOR) | (kind == EventKind.PYTHON)
        mine &= (time > 0) | starts_inside(windows, start)
        rows, time = every[mine], time[mine]
        own = np.maximum(time - inner[rows], 0)
        return cls(rows, time, own, on_device[rows], backward[rows], _outer(view, rows))

    def by_name(self, view: RankView, chosen: Bools, *, with_backward: bool = False) -> Rows:
        """The calls that are chosen, added up by name."""
        rows = self.rows[chosen]
        group, first = distinct(view.events.name[rows])
        outer = self.outer[chosen]
        values = (
            np.ones(len(rows), np.int64),
            np.where(outer, self.time[chosen], 0),
            self.own[chosen],
            np.where(outer, self.device[chosen], 0),
            *([np.where(outer, self.backward[chosen], 0)] if with_backward else []),
        )
        columns = [_sums(group, value, len(first)).tolist() for value in values]
        names = view.texts(view.events.name[rows[first]])
        return {(name,): list(numbers) for name, *numbers in zip(names, *columns, strict=True)}

    def by_shape(self, view: RankView, chosen: Bools) -> Rows:
        """The calls that are chosen, added up by name and the shapes of their inputs."""
        found: Rows = {}
        index = {row: number for number, row in enumerate(self.rows.tolist())}
        texts = view.graph.strings
        for row, payload in recorded_payloads(view.graph, self.rows[chosen]):
            number = index[row]
            key = texts[view.events.name[row]], _inputs(payload)
            sums = found.setdefault(key, [0, 0, 0, 0])
            outer = bool(self.outer[number])
            sums[0] += 1
            sums[1] += int(self.time[number]) * outer
            sums[2] += int(self.own[number])
            sums[3] += int(self.device[number]) * outer
        return found


def _inputs(payload: Payload) -> str:
    """`[64, 16] float, [16] float` for the inputs of an operator; empty if they were not recorded."""
    arguments = arguments_of(payload)
    shapes, types = arguments.get(INPUT_DIMS), arguments.get(INPUT_TYPES)
    if not isinstance(shapes, list):
        return ""
    kinds = types if isinstance(types, list) else []
    parts = [
        f"{shape} {kinds[index] if index < len(kinds) else ''}".strip()
        for index, shape in enumerate(shapes)
        if shape
    ]
    return shortened(", ".join(parts), LONGEST_SHAPES)


def _outer(view: RankView, rows: Int64s) -> Bools:
    """Whether each call begins after all earlier ones of its name on its thread have ended."""
    events = view.events
    start, duration = events.start[rows], events.duration[rows]
    outer = np.ones(len(rows), np.bool_)
    if len(rows) < 2:
        return outer
    order = lexical_order(start, -duration)
    group, _ = distinct(events.name[rows[order]], view.lane[events.track[rows[order]]])
    by_group = stable_order(group)
    order, group = order[by_group], group[by_group]
    begin = start[order] - int(start.min())
    end = begin + duration[order]
    span = int(end.max()) + 1
    reached = np.maximum.accumulate(group * span + end)
    outer[order[1:]] = group[1:] * span + begin[1:] >= reached[:-1]
    return outer


def _time_inside(spans: Spans, start: Int64s, end: Int64s) -> Int64s:
    """How much of each call is within these stretches."""
    if len(spans) == 1:
        start, end = (np.clip(times, spans.starts[0], spans.ends[0]) for times in (start, end))
        return np.maximum(end - start, 0)
    return np.maximum(covered(spans, start, end), 0)


# Gaps and waits


def _gaps(view: RankView, sites: CallSites, explained: Explained) -> Rows:
    """Gaps before work that was launched late, by what launched it."""
    gaps = explained.gaps
    late = gaps.take((gaps.lane != UNKNOWN) & (gaps.launched_at > gaps.start))
    site = sites.take(lookup(sites.call, view.work.call[late.following]))
    texts = [site.operator, site.outermost, site.line]
    return _added(view, texts, [np.ones(len(late), np.int64), late.launched_at - late.start])


def _waits(view: RankView, windows: Windows, sites: CallSites, explained: Explained, waits: Int64s) -> Rows:
    """Calls that wait for the device, by where they were made, with the idle time that began during them."""
    events, gaps = view.events, explained.gaps
    waits = waits[starts_inside(windows, events.start[waits])]
    waits = waits[np.argsort(events.start[waits], kind="stable")]
    idle = np.zeros(len(waits) + 1, np.int64)
    late = gaps.take(gaps.launched_at > gaps.start)
    last = np.searchsorted(events.start[waits], late.start, side="right") - 1
    during = (last != UNKNOWN) & (late.start <= np.append(events.end_of(waits), NO_TIME)[last])
    np.add.at(idle, last[during], (late.launched_at - late.start)[during])
    site = sites.take(lookup(sites.call, waits))
    numbers = [np.ones(len(waits), np.int64), events.duration[waits], idle[:-1]]
    return _added(view, [waits, site.operator, site.line], numbers)


def _added(view: RankView, rows: Sequence[Int64s], numbers: Sequence[Int64s]) -> Rows:
    """The numbers, added up by the names of events."""
    if not len(rows[0]):
        return {}
    names = [_names(view, each) for each in rows]
    group, first = distinct(*names)
    columns = [_sums(group, values, len(first)).tolist() for values in numbers]
    texts = zip(*(view.texts(codes[first]) for codes in names), strict=True)
    return dict(zip(texts, map(list, zip(*columns, strict=True)), strict=True))
