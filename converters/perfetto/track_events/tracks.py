"""Tracks: threads and streams from the descriptions in a file, and samples of counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.framing import DELIMITED, FIXED64, VARINT, Field, fields_of
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, ranges
from tracelink._model.errors import encodable
from tracelink._model.events import Counters, Track, TrackKind
from tracelink.converters.perfetto.packets import schema as packet_schema
from tracelink.converters.perfetto.packets.reading import pair_ends
from tracelink.converters.perfetto.packets.schema import TextTable, Type
from tracelink.converters.perfetto.track_events import schema
from tracelink.converters.perfetto.track_events.packets import EventRows, Packets

UNKNOWN_NUMBER = -(1 << 62)
"""Of a device or a stream: -1 is the stream of waits for a whole device."""
MOST_ANCESTORS = 16


class Described(Struct, frozen=True):
    """A track as the file describes it."""

    name: str = ""
    parent: int = 0
    process: int | None = None
    process_name: str = ""
    thread: int | None = None
    thread_name: str = ""
    is_counter: bool = False
    unit: str = ""
    factor: int = 1
    incremental: bool = False


class Descriptions(Struct, frozen=True):
    """All tracks by number."""

    tracks: Mapping[int, Described]

    @classmethod
    def of(cls, messages: Sequence[bytes]) -> Descriptions:
        """The tracks that these messages describe; of several descriptions of one track the last one counts."""
        return cls(dict(_described(message) for message in messages))

    def line(self, number: int) -> Iterator[Described]:
        """A track and its ancestors."""
        for _ in range(MOST_ANCESTORS):
            track = self.tracks.get(number)
            if track is None:
                return
            yield track
            number = track.parent

    def thread(self, number: int, thread: int) -> Track:
        """The track of events on a thread; `thread` is its number as the events state it, if they do."""
        line = [*self.line(number)] or [Described()]
        own = next((track for track in line if track.thread is not None), None)
        name = line[0].name or (own.thread_name if own else "")
        process = next((track.process for track in line if track.process is not None), None)
        process_name = next((track.process_name for track in line if track.process_name), "")
        pid = "" if process is None else str(process)
        if process_name == schema.OVERHEAD and process == schema.MASK:
            return Track(TrackKind.PROCESS, "-1", "0", schema.OVERHEAD)
        if thread == UNKNOWN_NUMBER and own is None:
            return Track(TrackKind.PROCESS, pid, name or str(number), name, process_label=process_name)
        identity = str(thread if thread != UNKNOWN_NUMBER or own is None else own.thread)
        return Track(
            TrackKind.THREAD, pid, identity, name or f"thread {identity}", process_label=process_name
        )

    def place_on_device(self, number: int) -> tuple[int, int]:
        """Device and stream of a track for work on a device, from its name or its process and thread."""
        line = [*self.line(number)] or [Described()]
        if found := schema.AGENT_TRACK.match(line[0].name):
            return int(found["device"]), int(found["number"])
        own = next((track for track in line if track.thread is not None), None)
        process = next((track.process for track in line if track.process is not None), None)
        return (
            0 if process is None else process,
            own.thread if own and own.thread is not None else number & schema.MASK,
        )

    def stream_label(self, number: int) -> str:
        """The name of such a track."""
        return next((track.name or track.thread_name for track in self.line(number)), "").strip()


def queue_number(name: str) -> int:
    """The number of the queue of this name, or UNKNOWN_NUMBER."""
    if found := schema.STREAM_NAME.match(name) or schema.QUEUE_NUMBER.search(name):
        return int(found[1]) if len(found[1]) < 18 else UNKNOWN_NUMBER
    return UNKNOWN_NUMBER


def _described(message: bytes) -> tuple[int, Described]:
    number, track = 0, Described()
    for field in fields_of(message, 0, len(message)):
        match field:
            case Field(packet_schema.Track.NUMBER, 0):
                number = field.value
            case Field(
                packet_schema.Track.NAME | packet_schema.Track.STATIC_NAME | packet_schema.Track.ATRACE_NAME,
                2,
            ):
                track = replace(track, name=_text(message, field))
            case Field(packet_schema.Track.PARENT, 0):
                track = replace(track, parent=field.value)
            case Field(packet_schema.Track.PROCESS, 2):
                numbers, texts = _members(message, field)
                name = texts.get(6) or texts.get(2, "")
                track = replace(track, process=_int32(numbers.get(1, 0)), process_name=name)
            case Field(packet_schema.Track.THREAD, 2):
                numbers, texts = _members(message, field)
                track = replace(
                    track,
                    process=_int32(numbers.get(1, 0)),
                    thread=_int32(numbers.get(2, 0)),
                    thread_name=texts.get(5, ""),
                )
            case Field(packet_schema.Track.COUNTER, 2):
                numbers, texts = _members(message, field)
                track = replace(
                    track,
                    is_counter=True,
                    unit=texts.get(6) or packet_schema.UNITS.get(numbers.get(3, 0), ""),
                    factor=numbers.get(4, 1) or 1,
                    incremental=bool(numbers.get(5, 0)),
                )
    return number, track


def _members(message: bytes, outer: Field) -> tuple[dict[int, int], dict[int, str]]:
    """The numbers and the texts of a message within one."""
    inner = [field for field in fields_of(message, outer.begin, outer.end) if field]
    numbers = {field.number: field.value for field in inner if field.wire == VARINT}
    return numbers, {field.number: _text(message, field) for field in inner if field.wire == DELIMITED}


def _text(message: bytes, field: Field) -> str:
    return str(
        encodable(message[field.begin : min(field.end, field.begin + (1 << 12))].decode(errors="replace"))
    )


def _int32(value: int) -> int:
    return (value & 0xFFFFFFFF) - ((value >> 31 & 1) << 32)


# Counters.


Samples = tuple[str, str, str, Int64s, npt.NDArray[np.float64]]
"""Process, name, unit, times and values of a counter."""


def counters_of(
    packets: Packets,
    descriptions: Descriptions,
    rows: EventRows,
    time: Int64s,
    first_track: int,
) -> tuple[Counters, list[Track]]:
    """All samples, and their tracks, which are numbered from `first_track`."""
    parts: list[Counters] = []
    tracks: list[Track] = []
    for process, name, unit, times, values in (
        *_of_tracks(packets, descriptions, rows, time),
        *_of_gpus(packets),
    ):
        kept = (times != NO_TIME) & np.isfinite(values)
        track = np.full(int(np.count_nonzero(kept)), first_track + len(tracks), np.int32)
        parts.append(Counters(track, times[kept], values[kept]))
        tracks.append(Track(TrackKind.COUNTER, process, name, name, unit=unit))
    return Counters.concatenate(parts), tracks


def _of_tracks(
    packets: Packets, descriptions: Descriptions, rows: EventRows, time: Int64s
) -> Iterator[Samples]:
    """Events on tracks of counters."""
    chosen = np.flatnonzero(rows.type == Type.COUNTER)
    tracks, states, times = rows.track[chosen], rows.state[chosen], time[chosen]
    values = np.concatenate([np.empty(0), *packets.values])
    numbers, bounds = np.unique(np.sort(tracks), return_index=True)
    parts = np.split(np.argsort(tracks, kind="stable"), bounds[1:])
    for number, part in zip(numbers.tolist(), parts, strict=False):
        line = [*descriptions.line(number)] or [Described()]
        own, sampled = line[0], values[part]
        if own.incremental:
            sampled = _summed(sampled, states[part])
        process = next((track.process for track in line if track.process is not None), None)
        yield (
            "" if process is None else str(process),
            own.name or f"counter {number & schema.MASK}",
            own.unit,
            times[part],
            sampled * own.factor,
        )


def _summed(values: npt.NDArray[np.float64], state: Int32s) -> npt.NDArray[np.float64]:
    """Values from differences; they count from 0 again in each state of the sequence."""
    total = np.cumsum(values)
    first = np.flatnonzero(np.append(True, state[1:] != state[:-1]))
    before = np.append(0.0, total)[first]
    return total - np.repeat(before, np.diff(np.append(first, len(values))))


def _of_gpus(packets: Packets) -> Iterator[Samples]:
    """Samples of the counters of GPUs, whose names are in a description."""
    inline: dict[int, str] = {}
    described: dict[tuple[int, int], tuple[dict[int, str], int]] = {}
    series: dict[tuple[int, str], tuple[list[int], list[float]]] = {}
    rows = packets.gpu_counters.join()
    times, _ = packets.clocks.unix_times(rows)
    for state, time, message in zip(rows.state.tolist(), times.tolist(), packets.gpu_messages, strict=True):
        fields = [field for field in fields_of(message, 0, len(message)) if field]
        numbers = {field.number: field.value for field in fields if field.wire == VARINT}
        names, gpu = inline, numbers.get(3, 0)
        if 4 in numbers:
            own_key = (state, numbers[4])
            if own_key not in described:
                interned = packets.states.messages.get((TextTable.COUNTERS, *own_key), b"")
                described[own_key] = _interned_names(interned)
            names, gpu = described[own_key]
        for field in fields:
            if (field.number, field.wire) == (1, DELIMITED):
                inline.update(_names(message, field))
            if (field.number, field.wire) == (2, DELIMITED):
                counter, value = _sample(message, field)
                line = series.setdefault((gpu, names.get(counter, f"counter {counter}")), ([], []))
                line[0].append(time)
                line[1].append(value)
    for (gpu, name), (at, values) in series.items():
        yield str(gpu), name, "", np.array(at, np.int64), np.array(values, np.float64)


def _interned_names(message: bytes) -> tuple[dict[int, str], int]:
    """The names of counters by number, and the GPU."""
    names: dict[int, str] = {}
    gpu = 0
    for field in fields_of(message, 0, len(message)):
        if field and (field.number, field.wire) == (2, DELIMITED):
            names = _names(message, field)
        if field and (field.number, field.wire) == (3, VARINT):
            gpu = _int32(field.value)
    return names, gpu


def _names(message: bytes, description: Field) -> dict[int, str]:
    names = {}
    for field in fields_of(message, description.begin, description.end):
        if field and (field.number, field.wire) == (1, DELIMITED):
            numbers, texts = _members(message, field)
            names[numbers.get(1, 0)] = texts.get(2, "")
    return names


def _sample(message: bytes, sample: Field) -> tuple[int, float]:
    counter, value = 0, float("nan")
    for field in fields_of(message, sample.begin, sample.end):
        match field:
            case Field(1, 0):
                counter = field.value
            case Field(2, 0):
                value = float(field.value)
            case Field(3, wire) if wire == FIXED64:
                value = float(np.frombuffer(message, "<f8", 1, field.begin)[0])
    return counter, value


# Slices: which start and which end belong together.


class Slices(Struct, frozen=True):
    """The rows of beginnings, and of their ends; UNKNOWN for a missing end. Ends without a beginning are counted."""

    begin: Int64s
    end: Int64s
    unmatched_ends: int


def find_slices(sequence: Int64s, track: Int64s, kind: Int64s, time: Int64s) -> Slices:
    """The slices among events in the order of the file.

    On a track the slice that began last ends first. PyTorch writes the beginnings of many slices, then their ends in
    the same order; there, times that are equal would pair the wrong ones.
    """
    rows = np.flatnonzero((kind == Type.BEGIN) | (kind == Type.END))
    rows = rows[np.argsort(sequence[rows], kind="stable")]
    partner = _of_blocks(sequence[rows], track[rows], kind[rows] == Type.BEGIN, time[rows])
    in_blocks = np.flatnonzero(partner != UNKNOWN)
    begins = in_blocks[kind[rows[in_blocks]] == Type.BEGIN]
    others = np.sort(rows[partner == UNKNOWN])
    _, tracks = np.unique(track, return_inverse=True)
    pairs = pair_ends(tracks.astype(np.int32), time, others, kind == Type.BEGIN)
    begin = np.concatenate([rows[begins], pairs.begin])
    end = np.concatenate([rows[partner[begins]], pairs.end])
    order = np.argsort(begin, kind="stable")
    return Slices(begin[order], end[order], pairs.unmatched_ends)


def _of_blocks(sequence: Int64s, track: Int64s, begins: Bools, time: Int64s) -> Int64s:
    """For each row the other end of its slice if both are in such a block, else UNKNOWN.

    A block is a run of beginnings and a run of as many ends on the same tracks, none before its beginning, that are not
    in the order of time. The ends of the last block may be cut off.
    """
    partner = np.full(len(begins), UNKNOWN, np.int64)
    if len(begins) < 2:
        return partner
    changes = (begins[1:] != begins[:-1]) | (sequence[1:] != sequence[:-1])
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    stops = np.append(starts[1:], len(begins))
    sizes = stops - starts
    first = np.flatnonzero(
        begins[starts[:-1]] & ~begins[starts[1:]] & (sequence[starts[:-1]] == sequence[starts[1:]])
    )
    is_last = first == len(starts) - 2
    fits = (sizes[first] == sizes[first + 1]) | (is_last & (sizes[first + 1] < sizes[first]))
    first = first[fits & (sizes[first] > 1)]
    if not len(first):
        return partner
    lengths = np.minimum(sizes[first], sizes[first + 1])
    own, other = ranges(starts[first], lengths), ranges(starts[first + 1], lengths)
    bounds = np.cumsum(lengths) - lengths
    matches = np.logical_and.reduceat((track[own] == track[other]) & (time[other] >= time[own]), bounds)
    block = starts[first]
    turns_back = np.concatenate([[0], np.cumsum((time[1:] < time[:-1]) & (sequence[1:] == sequence[:-1]))])
    unordered = turns_back[stops[first + 1] - 1] > turns_back[block]
    chosen = np.repeat(matches & unordered, lengths)
    partner[own[chosen]], partner[other[chosen]] = other[chosen], own[chosen]
    return partner
