"""Packets as columns: events on tracks, their links, stages on GPUs and samples of counters, a batch at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.framing import FIXED64, VARINT, Batch
from tracelink._io.protobuf import Fields, Octets, Read, leading, split_all
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable
from tracelink._model.communications import Statement, rank_in
from tracelink._model.errors import encodable
from tracelink._model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_KERNEL,
    COLLECTIVE_OPERATOR,
    SYNCHRONIZING,
    operation_of,
)
from tracelink.converters.perfetto.packets.reading import (
    Growing,
    Numbered,
    States,
    default_of,
    find_fields,
    read_bytes,
    read_numbers,
    read_words,
    split_messages,
    split_packets,
)
from tracelink.converters.perfetto.packets.schema import (
    BOOTTIME,
    Annotation,
    Event,
    Packet,
    Stage,
    TextTable,
    Type,
)
from tracelink.converters.perfetto.track_events import schema
from tracelink.converters.perfetto.track_events.arguments import Annotations
from tracelink.converters.perfetto.track_events.clocks import Clocks, PacketRows, are_timed
from tracelink.converters.pytorch.arguments import COLLECTIVE, PEER, statement_of

COMMUNICATION = (COLLECTIVE_OPERATOR, COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL)
"""Names of communication; which of them an event can have depends on its kind."""
GROUP_DESCRIPTION, DEFAULT_GROUP = "Process Group Description", "default_pg"


class EventRows(PacketRows, frozen=True):
    """Events on tracks; names and categories are codes."""

    type: Int64s
    track: Int64s
    name: Int64s
    category: Int64s


class StageRows(PacketRows, frozen=True):
    """Stages on GPUs; queues, stages and names are codes."""

    number: Int64s
    duration: Int64s
    gpu: Int64s
    queue: Int64s
    stage: Int64s
    name: Int64s


def _numbered() -> Growing[Numbered]:
    return Growing(Numbered)


class Packets(Struct):
    """Everything in a file but arguments."""

    strings: StringTable = field(default_factory=StringTable)
    states: States = field(default_factory=States)
    clocks: Clocks = field(default_factory=Clocks)
    events: Growing[EventRows] = field(default_factory=lambda: Growing(EventRows))
    values: list[npt.NDArray[np.float64]] = field(default_factory=list)
    """The value of each counter event, in their order."""
    links: dict[str, Growing[Numbered]] = field(default_factory=lambda: defaultdict(_numbered))
    """By the name of an annotation: the event and its value; UNKNOWN for a value that is not an integer."""
    flows: Growing[Numbered] = field(default_factory=_numbered)
    submitted: Growing[Numbered] = field(default_factory=_numbered)
    """The event, and the number of a stage that it submitted."""
    stages: Growing[StageRows] = field(default_factory=lambda: Growing(StageRows))
    stage_links: dict[str, Growing[Numbered]] = field(default_factory=lambda: defaultdict(_numbered))
    waits: Growing[Numbered] = field(default_factory=_numbered)
    """The stage, and the number of one that it waited for."""
    tracks: list[bytes] = field(default_factory=list)
    gpu_counters: Growing[PacketRows] = field(default_factory=lambda: Growing(PacketRows))
    gpu_messages: list[bytes] = field(default_factory=list)
    statements: dict[int, Statement] = field(default_factory=dict)
    """Statements of events about communication, by event."""
    stage_statements: dict[int, Statement] = field(default_factory=dict)
    """The same by stage."""
    ranks: set[int] = field(default_factory=set)
    """Ranks of the process in the group of all ranks, as operators declare them."""
    damaged: int = 0
    _communicating: list[bool] = field(default_factory=list)
    """For each string whether it is a name of communication."""
    without_state: int = 0
    without_time: int = 0
    arguments_of_ends: int = 0
    extra_values: int = 0
    unpacked_by_zstd: int = 0

    def add(self, batch: Batch, first: int) -> None:
        """Adds a batch of packets, the first of which has this number."""
        octets, whole = split_packets(batch)
        count = len(batch.begins)
        state, lost = self.states.of(whole, count)
        self.damaged += int(np.count_nonzero(whole.odd)) + self.states.learn(octets, whole, state)
        sequence, time = (
            read_numbers(whole, Packet.SEQUENCE, count),
            read_numbers(whole, Packet.TIME, count, UNKNOWN),
        )
        clock = read_numbers(whole, Packet.CLOCK, count)
        clock = np.where(clock == 0, default_of(self.states.clocks, state, BOOTTIME), clock)
        self.clocks.add(octets, whole, sequence, clock, time, first)
        common = _Common(first, sequence, state, clock, time, lost)
        self._add_events(octets, whole, common)
        self._add_stages(octets, whole, common)
        self._add_others(octets, whole, common)

    def _add_events(self, octets: Octets, whole: Fields, common: _Common) -> None:
        rows, read, inner = split_messages(octets, whole, Packet.TRACK_EVENT)
        self.damaged += int(np.count_nonzero(inner.odd))
        kind = read_numbers(inner, Event.TYPE, len(rows))
        kept = self._usable(rows, common) & (kind >= Type.BEGIN) & (kind <= Type.COUNTER)
        place = np.where(kept, self.events.rows + np.cumsum(kept) - 1, UNKNOWN)
        state = common.state[rows]
        track = read_numbers(inner, Event.TRACK, len(rows))
        if self.states.tracks:
            owner, _ = find_fields(inner, Event.TRACK, VARINT)
            given = np.zeros(len(rows), np.bool_)
            given[owner] = True
            track = np.where(given, track, default_of(self.states.tracks, state, 0))
        name = self._codes(octets, inner, state, TextTable.NAMES, Event.NAME, Event.NAME_TEXT)
        category = self._codes(
            octets, inner, state, TextTable.CATEGORIES, Event.CATEGORY, Event.CATEGORY_TEXT
        )
        columns = (column[kept] for column in (kind, track, name, category))
        self.events.add(EventRows(*common.of(rows[kept]), *columns))
        self._add_values(octets, inner, kind, kept)
        self._add_flows(octets, inner, place)
        states = self._collective(octets, inner, state, kind, place)
        chosen = np.flatnonzero((self._communicate(name) | states) & (place != UNKNOWN) & (kind != Type.END))
        self._add_statements(
            octets, self.statements, read.where(chosen), state[chosen], name[chosen], place[chosen]
        )

    def _communicate(self, name: Int64s) -> Bools:
        """True if a name is one of communication."""
        for text in self.strings.texts()[len(self._communicating) :]:
            self._communicating.append(any(form.search(text) for form in COMMUNICATION))
        found: Bools = np.array([*self._communicating, False], np.bool_)[name]
        return found

    def _add_statements(
        self,
        octets: Octets,
        found: dict[int, Statement],
        read: Read,
        state: Int32s,
        name: Int64s,
        place: Int64s,
    ) -> None:
        """Adds what messages with names or arguments of communication declare."""
        annotations = Annotations(octets.data, self.states.texts)
        texts = [*self.strings.texts(), ""]
        columns = (read.begin, read.end, read.number, state, name, place)
        for begin, end, number, of_state, code, row in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            arguments = annotations.arguments(number, begin, end, of_state)
            found[row] = statement = statement_of(texts[code], arguments)
            rank, of_all = rank_in(arguments.get(PEER)), arguments.get(GROUP_DESCRIPTION) == DEFAULT_GROUP
            if of_all and rank != UNKNOWN and operation_of(statement.operation) in SYNCHRONIZING:
                self.ranks.add(rank)

    def _usable(self, rows: Int64s, common: _Common) -> Bools:
        lost, timed = common.lost[rows], are_timed(common.time[rows])
        self.without_state += int(np.count_nonzero(lost))
        self.without_time += int(np.count_nonzero(~lost & ~timed))
        return ~lost & timed

    def _codes(
        self, octets: Octets, fields: Fields, state: Int32s, table: TextTable, number: int, text: int
    ) -> Int64s:
        """The code of a text that each message has by number or in itself, or UNKNOWN."""
        count = len(state)
        owner, read = find_fields(fields, number, VARINT)
        numbers = np.zeros(count, np.int64)
        numbers[owner[::-1]] = read.value[::-1]
        texts, index = self.states.resolve(table, state, numbers)
        codes = [UNKNOWN if each is None else self.strings[encodable(each)] for each in texts]
        found = np.array(codes, np.int64)[index]
        owner, inline = find_fields(fields, text)
        if len(owner):
            found[owner[::-1]] = self._inline(octets, inline)[::-1]
        return found

    def _inline(self, octets: Octets, read: Read) -> Int64s:
        known: dict[bytes, int] = {}
        data = octets.data
        codes = np.empty(len(read.begin), np.int64)
        for row, (begin, end) in enumerate(zip(read.begin.tolist(), read.end.tolist(), strict=True)):
            text = data[begin : min(end, begin + (1 << 16))]
            if (code := known.get(text)) is None:
                code = known[text] = self.strings[text.decode(errors="replace")]
            codes[row] = code
        return codes

    def _add_values(self, octets: Octets, inner: Fields, kind: Int64s, kept: Bools) -> None:
        values = read_numbers(inner, Event.VALUE, len(kind)).astype(np.float64)
        owner, words = read_words(octets, inner, Event.DOUBLE_VALUE)
        values[owner] = words.view(np.float64)
        self.values.append(values[kept & (kind == Type.COUNTER)])
        for number, wire in ((Event.EXTRA_VALUE, VARINT), (Event.EXTRA_DOUBLE_VALUE, FIXED64)):
            self.extra_values += len(find_fields(inner, number, wire)[0])

    def _add_flows(self, octets: Octets, inner: Fields, place: Int64s) -> None:
        for number in (Event.FLOW, Event.LAST_OF_FLOW):
            owner, words = read_words(octets, inner, number)
            self._add_known(self.flows, place[owner], words)
        for number in (Event.OLD_FLOW, Event.OLD_LAST_OF_FLOW):
            owner, read = find_fields(inner, number, VARINT)
            self._add_known(self.flows, place[owner], read.value)
        owner, _, numbers = split_messages(octets, inner, Event.GPU)
        of_message, stage = find_fields(numbers, 1, VARINT)
        self._add_known(self.submitted, place[owner[of_message]], stage.value)

    @staticmethod
    def _add_known(pairs: Growing[Numbered], rows: Int64s, numbers: Int64s) -> None:
        if len(rows):
            pairs.add(Numbered(rows, numbers).take(rows != UNKNOWN))

    def _collective(self, octets: Octets, inner: Fields, state: Int32s, kind: Int64s, place: Int64s) -> Bools:
        """Adds the links of events; whether each event names a collective."""
        collective = np.zeros(len(place), np.bool_)
        owner, read = find_fields(inner, Event.ANNOTATION)
        if not len(owner):
            return collective
        self.arguments_of_ends += len(np.unique(owner[kind[owner] == Type.END]))
        chosen = np.flatnonzero(
            (place[owner] != UNKNOWN) & ((kind[owner] == Type.BEGIN) | (kind[owner] == Type.INSTANT))
        )
        owner, read = owner[chosen], read.where(chosen)
        fields = split_all(octets, read.begin, read.end)
        self.damaged += int(np.count_nonzero(fields.odd))
        link = self._links_of(octets, fields, state[owner], len(owner), tuple(schema.LINKS))
        value = read_numbers(fields, Annotation.INTEGER, len(owner), UNKNOWN)
        of_message, unsigned = find_fields(fields, Annotation.UNSIGNED, VARINT)
        value[of_message] = unsigned.value
        for number, name in enumerate(schema.LINKS):
            rows = np.flatnonzero(link == number)
            if name == COLLECTIVE:
                collective[owner[rows]] = True
            else:
                self.links[name].add(Numbered(place[owner[rows]], value[rows]))
        return collective

    def _links_of(
        self, octets: Octets, fields: Fields, state: Int32s, count: int, names: tuple[str, ...]
    ) -> npt.NDArray[np.int8]:
        """For each annotation the position of its name in `names`, or UNKNOWN."""
        link = np.full(count, UNKNOWN, np.int8)
        texts, index = self.states.resolve(
            TextTable.ANNOTATION_NAMES, state, read_numbers(fields, Annotation.NAME, count)
        )
        positions = {name: number for number, name in enumerate(names)}
        known = np.array([positions.get(text or "", UNKNOWN) for text in texts], np.int8)
        link[:] = known[index]
        owner, inline = find_fields(fields, Annotation.NAME_TEXT)
        if len(owner):
            link[owner] = positions_of(octets, inline.begin, inline.end, names)
        return link

    def _add_stages(self, octets: Octets, whole: Fields, common: _Common) -> None:
        rows, read, inner = split_messages(octets, whole, Packet.GPU_STAGE)
        if not len(rows):
            return
        self.damaged += int(np.count_nonzero(inner.odd))
        kept = self._usable(rows, common)
        place = np.where(kept, self.stages.rows + np.cumsum(kept) - 1, UNKNOWN)
        state, count = common.state[rows], len(rows)
        number, duration = (
            read_numbers(inner, key, count, UNKNOWN) for key in (Stage.NUMBER, Stage.DURATION)
        )
        gpu = read_numbers(inner, Stage.GPU, count)
        name = self._codes(octets, inner, state, TextTable.NAMES, Stage.NAME, Stage.NAME_TEXT)
        kernel = self._codes(octets, inner, state, TextTable.KERNELS, Stage.KERNEL, 0)
        queue = self._codes(octets, inner, state, TextTable.STAGES, Stage.QUEUE, 0)
        stage = self._codes(octets, inner, state, TextTable.STAGES, Stage.STAGE, 0)
        name = np.where(name == UNKNOWN, np.where(kernel == UNKNOWN, stage, kernel), name)
        columns = (column[kept] for column in (number, duration, gpu, queue, stage, name))
        self.stages.add(StageRows(*common.of(rows[kept]), *columns))
        owner, waited = find_fields(inner, Stage.WAITS_FOR, VARINT)
        self._add_known(self.waits, place[owner], waited.value)
        collective = self._add_stage_links(octets, inner, place)
        chosen = np.flatnonzero((self._communicate(name) | collective) & (place != UNKNOWN))
        self._add_statements(
            octets, self.stage_statements, read.where(chosen), state[chosen], name[chosen], place[chosen]
        )

    def _add_stage_links(self, octets: Octets, inner: Fields, place: Int64s) -> Bools:
        """Adds the links of stages; whether each stage names a collective."""
        collective = np.zeros(len(place), np.bool_)
        owner, _, extra = split_messages(octets, inner, Stage.EXTRA)
        if not len(owner):
            return collective
        rows, names = find_fields(extra, 1)
        link = np.full(len(owner), UNKNOWN, np.int8)
        link[rows] = positions_of(octets, names.begin, names.end, tuple(schema.STAGE_LINKS))
        rows, values = find_fields(extra, 2)
        chosen = np.flatnonzero((link[rows] != UNKNOWN) & (place[owner[rows]] != UNKNOWN))
        value = np.array([_number(text) for text in read_bytes(octets, values.where(chosen))], np.int64)
        for position, name in enumerate(schema.STAGE_LINKS.values()):
            own = link[rows[chosen]] == position
            if name == COLLECTIVE:
                collective[owner[rows[chosen[own]]]] = True
            else:
                self.stage_links[name].add(Numbered(place[owner[rows[chosen[own]]]], value[own]))
        return collective

    def _add_others(self, octets: Octets, whole: Fields, common: _Common) -> None:
        self.tracks += read_bytes(octets, find_fields(whole, Packet.TRACK)[1])
        rows, read = find_fields(whole, Packet.GPU_COUNTERS)
        usable = self._usable(rows, common)
        self.gpu_counters.add(PacketRows(*common.of(rows[usable])))
        self.gpu_messages += read_bytes(octets, read.where(usable))
        self.unpacked_by_zstd += len(find_fields(whole, Packet.ZSTD_BUNDLE)[0])
        self.damaged += len(find_fields(whole, Packet.BUNDLE)[0])


class _Common(Struct, frozen=True):
    """Columns of all packets of a batch."""

    first: int
    sequence: Int64s
    state: Int32s
    clock: Int64s
    time: Int64s
    lost: Bools

    def of(self, rows: Int64s) -> Iterator[Any]:
        """Yields the columns of some packets, in the order of `PacketRows`."""
        yield self.first + rows
        yield from (self.sequence[rows], self.state[rows], self.clock[rows].astype(np.int16), self.time[rows])


# Names that are not interned: compared as words of eight bytes.


def positions_of(
    octets: Octets, begins: Int64s, ends: Int64s, names: tuple[str, ...]
) -> npt.NDArray[np.int8]:
    """For each range of bytes the position in `names` of the name that it is, or UNKNOWN."""
    found = np.full(len(begins), UNKNOWN, np.int8)
    lengths = ends - begins
    known = _words_of(names)
    for length in {length for length, _ in known}:
        rows = np.flatnonzero(lengths == length)
        if not len(rows):
            continue
        words = [
            octets.words(begins[rows] + 8 * place) & leading(np.full(len(rows), max(length - 8 * place, 1)))
            for place in range(-(-length // 8))
        ]
        for position, (own, values) in enumerate(known):
            if own == length:
                equal = np.logical_and.reduce(
                    [word == value for word, value in zip(words, values, strict=True)]
                )
                found[rows[equal]] = position
    return found


@cache
def _words_of(names: tuple[str, ...]) -> list[tuple[int, list[np.uint64]]]:
    """The length of each name, and its words."""
    encoded = [name.encode() for name in names]
    return [
        (
            len(name),
            [np.uint64(int.from_bytes(name[at : at + 8], "little")) for at in range(0, len(name), 8)],
        )
        for name in encoded
    ]


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= 18 else UNKNOWN
