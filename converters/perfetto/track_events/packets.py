"""Packets as columns: events on tracks, their links, stages on GPUs and samples of counters, a batch at a time."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

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
from tracelink.converters.perfetto.native.decode import numbers_of, of_wire
from tracelink.converters.perfetto.track_events import schema
from tracelink.converters.perfetto.track_events.arguments import Annotations
from tracelink.converters.perfetto.track_events.clocks import Clocks, are_timed
from tracelink.converters.perfetto.track_events.interning import States, default_of
from tracelink.converters.pytorch.arguments import COLLECTIVE, PEER, statement_of

COMMUNICATION = (COLLECTIVE_OPERATOR, COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL)
"""Names of communication; which of them an event can have depends on its kind."""
GROUP_DESCRIPTION, DEFAULT_GROUP = "Process Group Description", "default_pg"

Column = npt.NDArray[np.integer]


class Rows(Struct):
    """Columns that grow by batches."""

    parts: dict[str, list[Column]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0

    def add(self, **columns: Column) -> None:
        """Adds rows."""
        for name, column in columns.items():
            self.parts[name].append(column)
        self.count += len(next(iter(columns.values())))

    def joined(self, *names: str) -> list[Int64s]:
        """Whole columns, each freed as it is joined."""
        return [
            np.concatenate([np.empty(0, np.int64), *self.parts.pop(name, [])]).astype(np.int64)
            for name in names
        ]


class Pairs(Struct):
    """Pairs of a row and a number, that grow by batches."""

    rows: list[Int64s] = field(default_factory=list)
    numbers: list[Int64s] = field(default_factory=list)

    def add(self, rows: Int64s, numbers: Int64s) -> None:
        """Adds pairs."""
        if len(rows):
            self.rows.append(rows)
            self.numbers.append(numbers)

    def joined(self) -> tuple[Int64s, Int64s]:
        """All pairs."""
        none = np.empty(0, np.int64)
        return np.concatenate([none, *self.rows]), np.concatenate([none, *self.numbers])


class Packets(Struct):
    """Everything in a file but arguments."""

    strings: StringTable = field(default_factory=StringTable)
    states: States = field(default_factory=States)
    clocks: Clocks = field(default_factory=Clocks)
    count: int = 0
    """Number of packets."""
    events: Rows = field(default_factory=Rows)
    """`packet`, `sequence`, `state`, `clock`, `time`, `type`, `track`, `name`, `category` (codes)."""
    values: list[npt.NDArray[np.float64]] = field(default_factory=list)
    """The value of each counter event, in their order."""
    links: dict[str, Pairs] = field(default_factory=lambda: defaultdict(Pairs))
    """By the name of an annotation: the event and its value; UNKNOWN for a value that is not an integer."""
    flows: Pairs = field(default_factory=Pairs)
    submitted: Pairs = field(default_factory=Pairs)
    """The event, and the number of a stage that it submitted."""
    stages: Rows = field(default_factory=Rows)
    """`packet`, `sequence`, `state`, `clock`, `time`, `duration`, `number`, `gpu`, `queue`, `stage`, `name` (codes)."""
    stage_links: dict[str, Pairs] = field(default_factory=lambda: defaultdict(Pairs))
    waits: Pairs = field(default_factory=Pairs)
    """The stage, and the number of one that it waited for."""
    tracks: list[bytes] = field(default_factory=list)
    gpu_counters: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    """Packet, sequence, state, clock and the message; the time is that of the packet."""
    gpu_times: list[int] = field(default_factory=list)
    statements: dict[int, Statement] = field(default_factory=dict)
    """What events declare about communication, by event."""
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

    def add(self, batch: Batch) -> None:
        """Adds a batch of packets."""
        octets = Octets(batch.data)
        whole = split_all(octets, np.array(batch.begins, np.int64), np.array(batch.ends, np.int64))
        count = len(batch.begins)
        state, lost = self.states.of(whole, count)
        self.damaged += int(np.count_nonzero(whole.odd)) + self.states.learn(octets, whole, state)
        sequence, time = (
            numbers_of(whole, schema.Packet.SEQUENCE, count),
            numbers_of(whole, schema.Packet.TIME, count, UNKNOWN),
        )
        clock = numbers_of(whole, schema.Packet.CLOCK, count)
        clock = np.where(clock == 0, default_of(self.states.clocks, state, schema.BOOTTIME), clock)
        self.clocks.add(octets, whole, sequence, clock, time, self.count)
        common = _Common(self.count, sequence, state, clock, time, lost)
        self._add_events(octets, whole, common)
        self._add_stages(octets, whole, common)
        self._add_others(octets, whole, common)
        self.count += count

    def _add_events(self, octets: Octets, whole: Fields, common: _Common) -> None:
        rows, read = of_wire(whole, schema.Packet.TRACK_EVENT)
        inner = split_all(octets, read.begin, read.end)
        self.damaged += int(np.count_nonzero(inner.odd))
        kind = numbers_of(inner, schema.Event.TYPE, len(rows))
        kept = self._usable(rows, common) & (kind >= schema.BEGIN) & (kind <= schema.COUNTER)
        place = np.where(kept, self.events.count + np.cumsum(kept) - 1, UNKNOWN)
        state = common.state[rows]
        track = numbers_of(inner, schema.Event.TRACK, len(rows))
        if self.states.tracks:
            owner, _ = of_wire(inner, schema.Event.TRACK, VARINT)
            given = np.zeros(len(rows), np.bool_)
            given[owner] = True
            track = np.where(given, track, default_of(self.states.tracks, state, 0))
        name = self._codes(
            octets, inner, state, schema.Table.NAMES, schema.Event.NAME, schema.Event.NAME_TEXT
        )
        category = self._codes(
            octets, inner, state, schema.Table.CATEGORIES, schema.Event.CATEGORY, schema.Event.CATEGORY_TEXT
        )
        self.events.add(
            **common.of(rows[kept]),
            type=kind[kept],
            track=track[kept],
            name=name[kept],
            category=category[kept],
        )
        self._add_values(octets, inner, kind, kept)
        self._add_flows(octets, inner, place)
        states = self._collective(octets, inner, state, kind, place)
        chosen = np.flatnonzero(
            (self._communicate(name) | states) & (place != UNKNOWN) & (kind != schema.END)
        )
        self._add_statements(
            octets, self.statements, read.where(chosen), state[chosen], name[chosen], place[chosen]
        )

    def _communicate(self, name: Int64s) -> Bools:
        """Whether a name is one of communication."""
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
        self, octets: Octets, fields: Fields, state: Int32s, table: schema.Table, number: int, text: int
    ) -> Int64s:
        """The code of a text that each message has by number or in itself, or UNKNOWN."""
        count = len(state)
        owner, read = of_wire(fields, number, VARINT)
        numbers = np.zeros(count, np.int64)
        numbers[owner[::-1]] = read.value[::-1]
        texts, index = self.states.resolved(table, state, numbers)
        codes = np.array(
            [UNKNOWN if each is None else self.strings[encodable(each)] for each in texts], np.int64
        )
        found = np.append(codes, UNKNOWN)[index]
        owner, inline = of_wire(fields, text)
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
        values = numbers_of(inner, schema.Event.VALUE, len(kind)).astype(np.float64)
        owner, read = of_wire(inner, schema.Event.DOUBLE_VALUE, FIXED64)
        values[owner] = octets.words(read.begin).view(np.float64)
        self.values.append(values[kept & (kind == schema.COUNTER)])
        for number, wire in ((schema.Event.EXTRA_VALUE, VARINT), (schema.Event.EXTRA_DOUBLE_VALUE, FIXED64)):
            self.extra_values += len(of_wire(inner, number, wire)[0])

    def _add_flows(self, octets: Octets, inner: Fields, place: Int64s) -> None:
        for number in (schema.Event.FLOW, schema.Event.LAST_OF_FLOW):
            owner, read = of_wire(inner, number, FIXED64)
            self._add_pairs(self.flows, place[owner], octets.words(read.begin).view(np.int64))
        for number in (schema.Event.OLD_FLOW, schema.Event.OLD_LAST_OF_FLOW):
            owner, read = of_wire(inner, number, VARINT)
            self._add_pairs(self.flows, place[owner], read.value)
        owner, read = of_wire(inner, schema.Event.GPU)
        if len(owner):
            numbers = split_all(octets, read.begin, read.end)
            of_message, stage = of_wire(numbers, 1, VARINT)
            self._add_pairs(self.submitted, place[owner[of_message]], stage.value)

    @staticmethod
    def _add_pairs(pairs: Pairs, rows: Int64s, numbers: Int64s) -> None:
        kept = rows != UNKNOWN
        pairs.add(rows[kept], numbers[kept])

    def _collective(self, octets: Octets, inner: Fields, state: Int32s, kind: Int64s, place: Int64s) -> Bools:
        """Adds the links of events; whether each event names a collective."""
        collective = np.zeros(len(place), np.bool_)
        owner, read = of_wire(inner, schema.Event.ANNOTATION)
        if not len(owner):
            return collective
        self.arguments_of_ends += len(np.unique(owner[kind[owner] == schema.END]))
        chosen = np.flatnonzero(
            (place[owner] != UNKNOWN) & ((kind[owner] == schema.BEGIN) | (kind[owner] == schema.INSTANT))
        )
        owner, read = owner[chosen], read.where(chosen)
        fields = split_all(octets, read.begin, read.end)
        self.damaged += int(np.count_nonzero(fields.odd))
        link = self._links_of(octets, fields, state[owner], len(owner), tuple(schema.LINKS))
        value = numbers_of(fields, schema.Annotation.INTEGER, len(owner), UNKNOWN)
        of_message, unsigned = of_wire(fields, schema.Annotation.UNSIGNED, VARINT)
        value[of_message] = unsigned.value
        for number, name in enumerate(schema.LINKS):
            rows = np.flatnonzero(link == number)
            if name == COLLECTIVE:
                collective[owner[rows]] = True
            else:
                self.links[name].add(place[owner[rows]], value[rows])
        return collective

    def _links_of(
        self, octets: Octets, fields: Fields, state: Int32s, count: int, names: tuple[str, ...]
    ) -> npt.NDArray[np.int8]:
        """For each annotation the position of its name in `names`, or UNKNOWN."""
        link = np.full(count, UNKNOWN, np.int8)
        texts, index = self.states.resolved(
            schema.Table.ANNOTATIONS, state, numbers_of(fields, schema.Annotation.NAME, count)
        )
        positions = {name: number for number, name in enumerate(names)}
        known = np.array([*(positions.get(text or "", UNKNOWN) for text in texts), UNKNOWN], np.int8)
        link[:] = known[index]
        owner, inline = of_wire(fields, schema.Annotation.NAME_TEXT)
        if len(owner):
            link[owner] = positions_of(octets, inline.begin, inline.end, names)
        return link

    def _add_stages(self, octets: Octets, whole: Fields, common: _Common) -> None:
        rows, read = of_wire(whole, schema.Packet.GPU_STAGE)
        if not len(rows):
            return
        inner = split_all(octets, read.begin, read.end)
        self.damaged += int(np.count_nonzero(inner.odd))
        kept = self._usable(rows, common)
        place = np.where(kept, self.stages.count + np.cumsum(kept) - 1, UNKNOWN)
        state, count = common.state[rows], len(rows)
        number, duration = (
            numbers_of(inner, key, count, UNKNOWN) for key in (schema.Stage.NUMBER, schema.Stage.DURATION)
        )
        gpu = numbers_of(inner, schema.Stage.GPU, count)
        name = self._codes(
            octets, inner, state, schema.Table.NAMES, schema.Stage.NAME, schema.Stage.NAME_TEXT
        )
        kernel = self._codes(octets, inner, state, schema.Table.KERNELS, schema.Stage.KERNEL, 0)
        queue = self._codes(octets, inner, state, schema.Table.STAGES, schema.Stage.QUEUE, 0)
        stage = self._codes(octets, inner, state, schema.Table.STAGES, schema.Stage.STAGE, 0)
        name = np.where(name == UNKNOWN, np.where(kernel == UNKNOWN, stage, kernel), name)
        self.stages.add(
            **common.of(rows[kept]),
            number=number[kept],
            duration=duration[kept],
            gpu=gpu[kept],
            queue=queue[kept],
            stage=stage[kept],
            name=name[kept],
        )
        owner, waited = of_wire(inner, schema.Stage.WAITS_FOR, VARINT)
        self._add_pairs(self.waits, place[owner], waited.value)
        collective = self._add_stage_links(octets, inner, place)
        chosen = np.flatnonzero((self._communicate(name) | collective) & (place != UNKNOWN))
        self._add_statements(
            octets, self.stage_statements, read.where(chosen), state[chosen], name[chosen], place[chosen]
        )

    def _add_stage_links(self, octets: Octets, inner: Fields, place: Int64s) -> Bools:
        """Adds the links of stages; whether each stage names a collective."""
        collective = np.zeros(len(place), np.bool_)
        owner, read = of_wire(inner, schema.Stage.EXTRA)
        if not len(owner):
            return collective
        extra = split_all(octets, read.begin, read.end)
        rows, names = of_wire(extra, 1)
        link = np.full(len(owner), UNKNOWN, np.int8)
        link[rows] = positions_of(octets, names.begin, names.end, tuple(schema.STAGE_LINKS))
        rows, values = of_wire(extra, 2)
        chosen = np.flatnonzero((link[rows] != UNKNOWN) & (place[owner[rows]] != UNKNOWN))
        data = octets.data
        numbers = [
            _number(data[begin:end])
            for begin, end in zip(values.begin[chosen].tolist(), values.end[chosen].tolist(), strict=True)
        ]
        value = np.array(numbers, np.int64)
        for position, name in enumerate(schema.STAGE_LINKS.values()):
            own = link[rows[chosen]] == position
            if name == COLLECTIVE:
                collective[owner[rows[chosen[own]]]] = True
            else:
                self.stage_links[name].add(place[owner[rows[chosen[own]]]], value[own])
        return collective

    def _add_others(self, octets: Octets, whole: Fields, common: _Common) -> None:
        _, read = of_wire(whole, schema.Packet.TRACK)
        data = octets.data
        self.tracks += [
            data[begin:end] for begin, end in zip(read.begin.tolist(), read.end.tolist(), strict=True)
        ]
        rows, read = of_wire(whole, schema.Packet.GPU_COUNTERS)
        usable = self._usable(rows, common)
        for row, begin, end in zip(
            rows[usable].tolist(), read.begin[usable].tolist(), read.end[usable].tolist(), strict=True
        ):
            own = (
                common.first + row,
                int(common.sequence[row]),
                int(common.state[row]),
                int(common.clock[row]),
            )
            self.gpu_counters.append((*own, data[begin:end]))
            self.gpu_times.append(int(common.time[row]))
        self.unpacked_by_zstd += len(of_wire(whole, schema.Packet.COMPRESSED_BY_ZSTD)[0])
        self.damaged += len(of_wire(whole, schema.Packet.COMPRESSED)[0])


class _Common(Struct, frozen=True):
    """What all packets of a batch have."""

    first: int
    sequence: Int64s
    state: Int32s
    clock: Int64s
    time: Int64s
    lost: Bools

    def of(self, rows: Int64s) -> dict[str, Column]:
        """The columns of some packets."""
        return {
            "packet": self.first + rows,
            "sequence": self.sequence[rows],
            "state": self.state[rows],
            "clock": self.clock[rows].astype(np.int16),
            "time": self.time[rows],
        }


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
