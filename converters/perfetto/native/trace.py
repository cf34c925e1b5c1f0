"""A file's tracks, events and arrows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tracelink.converters.perfetto.native.decode import (
    Anchors,
    Facts,
    FlowEnds,
    InternedTexts,
    Packets,
    Said,
    Told,
    Unbundled,
    anchored,
    batches,
    interned_texts,
    pairs_of,
    told_by,
)
from tracelink.converters.perfetto.native.schema import RED, Table, Type
from tracelink.converters.perfetto.recognition import is_own
from tracelink.converters.perfetto.timeline.drawing import Drawing, Openings, openings_of
from tracelink.converters.perfetto.timeline.flows import Arrows, Flows, bound
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.schema import FLOW_NAMES, TIE_NAMES
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, UnreadableError
from tracelink.io.framing import FramingError
from tracelink.io.sources import Source
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable

# A whole native trace: its events, samples and arrows as columns; arguments are read when they are written.


@dataclass(frozen=True, slots=True)
class Events:
    """Slices and instants in the order of the file; times are nanoseconds after the base."""

    packet: Int64s
    sequence: Int32s
    start: Int64s
    duration: Int64s
    instant: Bools
    seat: Int32s
    """The place of its thread among all that the facts list."""
    category: Int32s
    name: Int32s
    hung: Bools

    def __len__(self) -> int:
        return len(self.packet)


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of counters, which are places among those that the facts list."""

    counter: Int32s
    time: Int64s
    value: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A batch, to be read again: where it begins, and its first packet."""

    offset: int
    first: int


@dataclass(slots=True)
class Troubles:
    """What is wrong with a file."""

    damaged: int = 0
    bundles: int = 0
    """Bundles that cannot be read to their end."""
    truncated_at: str = ""
    offset: int = 0
    unended: int = 0
    unbegun: int = 0
    homeless: int = 0
    """Events on tracks of which the facts say nothing."""
    nameless: int = 0


@dataclass(frozen=True, slots=True)
class Native:
    """All that a file says but for arguments."""

    said: Said
    events: Events
    samples: Samples
    leaving: FlowEnds
    arriving: FlowEnds
    """Ends of arrows by packet."""
    texts: Sequence[str]
    numbered: InternedTexts
    """Those that events name by number."""
    stretches: Sequence[Stretch]
    troubles: Troubles

    @property
    def base(self) -> int:
        """What time 0 of JSON is."""
        return self.said.base


@dataclass(slots=True)
class _File:
    """What was read of a file so far."""

    parts: list[Packets] = field(default_factory=list)
    leaving: list[FlowEnds] = field(default_factory=list)
    arriving: list[FlowEnds] = field(default_factory=list)
    numbered: dict[tuple[int, Table, int], str] = field(default_factory=dict)
    said: Said = field(default_factory=Said)
    stretches: list[Stretch] = field(default_factory=list)
    anchors: list[Anchors] = field(default_factory=list)
    troubles: Troubles = field(default_factory=Troubles)
    rows: int = 0

    def add(self, told: Told) -> None:
        """What further packets say."""
        rows = self.rows
        self.parts.append(told.packets)
        self.leaving.append(told.leaving.behind(rows))
        self.arriving.append(told.arriving.behind(rows))
        self.numbered |= told.texts
        self.said.add(told.facts)
        self.anchors.append(told.anchors.behind(rows))
        self.troubles.damaged += told.damaged
        self.rows += len(told.packets)


def native_of(source: Source, engine: Engine) -> Native:
    """Reads a whole file; what it says before any damage is used."""
    if not is_own(source.head()):
        raise UnreadableError(
            "a Perfetto trace that tracelink did not write: it reads only its own",
            source=source.path,
            advice="Open it at ui.perfetto.dev, or give tracelink what torch.profiler wrote.",
        )
    file = _File()
    with source.open() as opened:
        try:
            for batch in batches(opened, count=engine.meter.add):
                file.stretches.append(Stretch(batch.offset, file.rows))
                unbundled = Unbundled(batch)
                for plain in unbundled:
                    file.add(told_by(plain))
                file.troubles.bundles += unbundled.damaged
        except FramingError as error:
            file.troubles.truncated_at, file.troubles.offset = str(error), error.offset
        if opened.damage:
            file.troubles.truncated_at = opened.damage
    if not file.said.header:
        problem = file.troubles.truncated_at or "what it says of itself cannot be read"
        raise UnreadableError(problem, source=source.path, advice="Copy or write it again.")
    return _resolved(file)


def _resolved(file: _File) -> Native:
    troubles = file.troubles
    packets, strings = Packets.concatenate(file.parts), StringTable()
    category = _codes(file.numbered, Table.CATEGORIES, packets.sequence, packets.category, strings)
    name = _codes(file.numbered, Table.NAMES, packets.sequence, packets.name, strings)
    time = anchored(packets.sequence, packets.step, Anchors.concatenate(file.anchors)) - file.said.base
    seat = _places([thread.tid for thread in file.said.threads], packets.track)
    counter = _places([counter.number for counter in file.said.counters], packets.track)
    slices = (packets.type == Type.BEGIN) | (packets.type == Type.END)
    instant = packets.type == Type.INSTANT
    sampled = packets.type == Type.COUNTER
    homeless = ((slices | instant) & (seat == UNKNOWN)) | (sampled & (counter == UNKNOWN))
    troubles.homeless = int(np.count_nonzero(homeless))
    drawn = np.flatnonzero(sampled & ~homeless & np.isfinite(packets.value))
    packets.type[homeless] = 0
    return Native(
        file.said,
        _events(packets, seat, time, category, name, troubles),
        Samples(counter[drawn], time[drawn], packets.value[drawn]),
        FlowEnds.concatenate(file.leaving),
        FlowEnds.concatenate(file.arriving),
        strings.texts(),
        file.numbered,
        file.stretches,
        troubles,
    )


def _codes(
    texts: InternedTexts, table: Table, sequence: Int32s, number: Int32s, strings: StringTable
) -> Int32s:
    """The code in `strings` of each text that is named by number, `UNKNOWN` where there is none."""
    given = np.flatnonzero(number != UNKNOWN)
    names, which = interned_texts(texts, table, sequence[given], number[given])
    codes = np.full(len(number), UNKNOWN, np.int32)
    codes[given] = np.array([UNKNOWN if name is None else strings[name] for name in names], np.int32)[which]
    return codes


def _events(
    packets: Packets, seat: Int32s, time: Int64s, category: Int32s, name: Int32s, troubles: Troubles
) -> Events:
    """Slices, each with its end, and instants."""
    begins, instant = packets.type == Type.BEGIN, packets.type == Type.INSTANT
    drawn = np.flatnonzero(packets.type)
    pairs = pairs_of(seat, time, np.flatnonzero(begins | (packets.type == Type.END)), begins)
    end = np.where(pairs.end < 0, time[drawn].max(initial=0), time[pairs.end])
    duration = np.zeros(len(packets), np.int64)
    duration[pairs.begin] = np.maximum(end - time[pairs.begin], 0)
    troubles.unended, troubles.unbegun = int(np.count_nonzero(pairs.end < 0)), pairs.unmatched_ends
    rows = np.flatnonzero(begins | instant)
    troubles.nameless = int(np.count_nonzero(name[rows] == UNKNOWN))
    return Events(
        rows,
        packets.sequence[rows],
        time[rows],
        duration[rows],
        instant[rows],
        seat[rows],
        category[rows],
        name[rows],
        packets.colour[rows] == RED,
    )


def _places(numbers: Sequence[int], track: Int32s) -> Int32s:
    """For each track the place of its number, `UNKNOWN` where it is none of them."""
    places: Mapping[int, int] = {number: place for place, number in enumerate(numbers)}
    distinct, which = np.unique(track, return_inverse=True)
    found = np.array([places.get(number, UNKNOWN) for number in distinct.tolist()], np.int32)
    return found[which]


# Arrows of a native trace, by the means that JSON has for them.


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
        findings.append(Finding(Severity.WARNING, "flow_crowded", message, len(ties.crowded)))
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


# What did not fit in a native trace.


def findings_of(path: str, native: Native) -> Iterator[Finding]:
    """All that is wrong with a file."""
    troubles, kept = native.troubles, len(native.events)
    if troubles.truncated_at:
        text = f"{path}: {troubles.truncated_at}; the {kept:,} events before that are used. Copy or write it again."
        yield _warning(path, "truncated", text, 1, f"byte {troubles.offset}")
    counted = {
        "damaged": (troubles.damaged, "packets are damaged; what stands in them before the damage is used"),
        "damaged_bundles": (troubles.bundles, "bundles are damaged; the packets before the damage are used"),
        "unfinished": (troubles.unended, "events have no end: they last to the last one of the file"),
        "without_begin": (troubles.unbegun, "ends of events have no beginning and are left out"),
        "unknown_track": (
            troubles.homeless,
            "packets are on tracks that the file does not describe; left out",
        ),
        "without_name": (troubles.nameless, "events have names that are not in the file"),
        "unreadable_facts": (native.said.unusable, "descriptions of ranks cannot be read; left out"),
    }
    for reason, (count, text) in counted.items():
        if count:
            yield _warning(path, reason, f"{path}: {count:,} {text}.", count)


def _warning(path: str, reason: str, text: str, count: int, example: str = "") -> Finding:
    return Finding(Severity.WARNING, reason, text, count, path, example)


def left_out(path: str, count: int) -> Iterator[Finding]:
    """What to say of events that profilers did not record."""
    if count:
        text = (
            f"{path}: {count:,} entries of recorders, nodes of execution traces and ends of arrows are in the picture "
            "only; merge the files that it was made of to use them."
        )
        yield Finding(Severity.INFO, "drawn_only", text, count, path)
