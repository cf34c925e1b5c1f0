"""A whole native trace: its events, samples and arrows as columns; arguments are read when they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tracelink.converters.perfetto_native.reading.facts import Said
from tracelink.converters.perfetto_native.reading.framing import FramingError, batches
from tracelink.converters.perfetto_native.reading.packets import (
    NOTHING,
    FlowEnds,
    Packets,
    Told,
    told_by,
)
from tracelink.converters.perfetto_native.reading.pairs import pairs_of
from tracelink.converters.perfetto_native.reading.sequences import Anchors, Texts, anchored, named
from tracelink.converters.perfetto_native.reading.unbundling import Unbundled
from tracelink.converters.perfetto_native.recognition import is_own
from tracelink.converters.perfetto_native.schema import RED, Table, Type
from tracelink.engine import Engine
from tracelink.errors import UnreadableError
from tracelink.events import Bools, Int32s, Int64s
from tracelink.sources import Source
from tracelink.strings import StringTable


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
    cut_off: str = ""
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
    numbered: Texts
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
            file.troubles.cut_off, file.troubles.offset = str(error), error.offset
        if opened.damage:
            file.troubles.cut_off = opened.damage
    if not file.said.header:
        problem = file.troubles.cut_off or "what it says of itself cannot be read"
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
    homeless = ((slices | instant) & (seat == NOTHING)) | (sampled & (counter == NOTHING))
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


def _codes(texts: Texts, table: Table, sequence: Int32s, number: Int32s, strings: StringTable) -> Int32s:
    """The code in `strings` of each text that is named by number, `NOTHING` where there is none."""
    given = np.flatnonzero(number != NOTHING)
    names, which = named(texts, table, sequence[given], number[given])
    codes = np.full(len(number), NOTHING, np.int32)
    codes[given] = np.array([NOTHING if name is None else strings[name] for name in names], np.int32)[which]
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
    troubles.nameless = int(np.count_nonzero(name[rows] == NOTHING))
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
    """For each track the place of its number, `NOTHING` where it is none of them."""
    places: Mapping[int, int] = {number: place for place, number in enumerate(numbers)}
    distinct, which = np.unique(track, return_inverse=True)
    found = np.array([places.get(number, NOTHING) for number in distinct.tolist()], np.int32)
    return found[which]
