"""Arrows of a native trace, by the means that JSON has for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tracelink.converters.perfetto.drawing import Drawing
from tracelink.converters.perfetto.flows import Arrows, Flows, bound
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.openings import Openings, openings_of
from tracelink.converters.perfetto.schema import FLOW_NAMES, TIE_NAMES
from tracelink.converters.perfetto_native.reading.facts import Facts
from tracelink.converters.perfetto_native.reading.packets import FlowEnds
from tracelink.converters.perfetto_native.reading.trace import Native
from tracelink.events import Bools, Int64s
from tracelink.findings import Finding, Severity

RELATIONS = {name: relation for relation, name in FLOW_NAMES.items()}
TIES = {name: relation for relation, name in TIE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Ties:
    """Arrows between ranks that can be drawn: events, relation, and one number for all of a relation from one event."""

    arrows: Arrows
    number: Int64s
    crowded: Int64s
    """Events at which others would end: they are not drawn either."""


@dataclass(slots=True)
class Bound:
    """All arrows."""

    drawing: Drawing
    flows: list[Flows]
    ties: Ties
    findings: list[Finding] = field(default_factory=list)


def bound_arrows(native: Native) -> Bound:
    """The arrows of all ranks, then those between ranks."""
    drawing = _drawing(native)
    events = native.events
    openings = openings_of(drawing, events.seat.astype(np.int64), np.argsort(events.seat, kind="stable"))
    number, source, target = _joined(native)
    flows: list[Flows] = []
    within = np.zeros(len(number), np.bool_)
    findings: list[Finding] = []
    blocks = native.said.blocks
    for place, facts in enumerate(blocks):
        mine, arrows = _of_block(facts, number, source, target)
        within |= mine
        if len(arrows):
            numbering = Numbering(place, len(blocks))
            flows.append(bound(arrows, drawing, openings, numbering, _namer(native), findings))
    ties = _ties(native, openings, source[~within], target[~within], Numbering(len(blocks), len(blocks) + 1))
    if len(ties.crowded):
        message = "arrows between ranks from slices that open together with others are not drawn"
        findings.append(Finding(Severity.WARNING, "arrow_crowded", message, len(ties.crowded)))
    return Bound(drawing, flows, ties, findings)


def _drawing(native: Native) -> Drawing:
    events = native.events
    shown = np.ones(len(events), np.bool_)
    none = np.empty(0, np.int64)
    return Drawing(native.base, shown, events.instant, events.start, events.duration, none, {})


def _joined(native: Native) -> tuple[Int64s, Int64s, Int64s]:
    """Number, source and target of each arrow of which both ends are there, by number."""
    leaving, arriving = (_of_events(native, ends) for ends in (native.leaving, native.arriving))
    order = np.argsort(arriving.number, kind="stable")
    targets, numbers = arriving.row[order], arriving.number[order]
    turn = np.argsort(leaving.number, kind="stable")
    sources, given = leaving.row[turn], leaving.number[turn]
    place = np.searchsorted(given, numbers)
    known = np.append(given, -1)[place] == numbers
    return numbers[known], sources[place[known]], targets[known]


def _of_events(native: Native, ends: FlowEnds) -> FlowEnds:
    """The same by event; ends at what is no event are left out."""
    packets = native.events.packet
    place = np.searchsorted(packets, ends.row)
    known = np.append(packets, -1)[place] == ends.row
    return FlowEnds(place[known], ends.number[known])


def _of_block(facts: Facts, number: Int64s, source: Int64s, target: Int64s) -> tuple[Bools, Arrows]:
    """Which arrows are of one rank, and what they are, as a writer of JSON has them."""
    within = np.zeros(len(number), np.bool_)
    parts: list[tuple[Int64s, Int64s, Int64s]] = []
    first = facts.first_arrow
    for fact in facts.arrows:
        low, turned, high = np.searchsorted(
            number, [first, first + fact.count - fact.turned, first + fact.count]
        ).tolist()
        first += fact.count
        within[low:high] = True
        if fact.name not in RELATIONS:
            continue
        one, other = source[low:high].copy(), target[low:high].copy()
        one[turned - low :], other[turned - low :] = target[turned:high], source[turned:high]
        parts.append((one, other, np.full(high - low, int(RELATIONS[fact.name]))))
    columns = [np.concatenate([np.empty(0, np.int64), *column]) for column in zip(*parts, strict=True)]
    arrows = Arrows(*columns) if parts else Arrows(*np.empty((3, 0), np.int64))
    return within, arrows.where(np.lexsort((arrows.target, arrows.source, arrows.relation)))


def _ties(native: Native, openings: Openings, source: Int64s, target: Int64s, numbering: Numbering) -> Ties:
    events = native.events
    codes = np.array([int(TIES.get(text, -1)) for text in native.texts] + [-1])
    relation = codes[events.category[target]]
    known = relation >= 0
    arrows = Arrows(source, target, relation).where(known)
    alone = openings.last[arrows.source]
    drawn = arrows.where(alone)
    group = drawn.relation * (len(events) + 1) + drawn.source
    _, number = np.unique(group, return_inverse=True)
    return Ties(drawn, number + numbering.first_arrow, arrows.target[~alone])


def _namer(native: Native) -> Callable[[int], str]:
    return lambda row: native.texts[native.events.name[row]]
