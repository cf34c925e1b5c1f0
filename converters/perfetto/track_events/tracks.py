"""Tracks: threads and streams from the descriptions in a file, and samples of counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.framing import DELIMITED, FIXED64, VARINT, Field, fields_of
from tracelink._model.columns import NO_TIME, Int64s
from tracelink._model.errors import encodable
from tracelink._model.events import COUNT, Counters, Track, TrackKind
from tracelink.converters.perfetto.track_events import schema
from tracelink.converters.perfetto.track_events.packets import Packets

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
            case Field(schema.Track.NUMBER, 0):
                number = field.value
            case Field(schema.Track.NAME | schema.Track.STATIC_NAME | schema.Track.ATRACE_NAME, 2):
                track = replace(track, name=_text(message, field))
            case Field(schema.Track.PARENT, 0):
                track = replace(track, parent=field.value)
            case Field(schema.Track.PROCESS, 2):
                numbers, texts = _members(message, field)
                name = texts.get(6) or texts.get(2, "")
                track = replace(track, process=_int32(numbers.get(1, 0)), process_name=name)
            case Field(schema.Track.THREAD, 2):
                numbers, texts = _members(message, field)
                track = replace(
                    track,
                    process=_int32(numbers.get(1, 0)),
                    thread=_int32(numbers.get(2, 0)),
                    thread_name=texts.get(5, ""),
                )
            case Field(schema.Track.COUNTER, 2):
                numbers, texts = _members(message, field)
                track = replace(
                    track,
                    is_counter=True,
                    unit=texts.get(6) or schema.UNITS.get(numbers.get(3, 0), ""),
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
    columns: Mapping[str, Int64s],
    time: Int64s,
    first_track: int,
) -> tuple[Counters, list[Track]]:
    """All samples, and their tracks, which are numbered from `first_track`."""
    parts: list[Counters] = []
    tracks: list[Track] = []
    for process, name, unit, times, values in (
        *_of_tracks(packets, descriptions, columns, time),
        *_of_gpus(packets),
    ):
        kept = (times != NO_TIME) & np.isfinite(values)
        track = np.full(int(np.count_nonzero(kept)), first_track + len(tracks), np.int32)
        parts.append(Counters(track, times[kept], values[kept]))
        tracks.append(Track(TrackKind.COUNTER, process, name, name, unit=unit))
    return Counters.concatenate(parts), tracks


def _of_tracks(
    packets: Packets, descriptions: Descriptions, columns: Mapping[str, Int64s], time: Int64s
) -> Iterator[Samples]:
    """Events on tracks of counters."""
    rows = np.flatnonzero(columns["type"] == schema.COUNTER)
    values = np.concatenate([np.empty(0), *packets.values])
    order = np.argsort(columns["track"][rows], kind="stable")
    ordered = columns["track"][rows][order]
    bounds = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for part in np.split(order, bounds) if len(ordered) else ():
        number = int(columns["track"][rows[part[0]]])
        line = [*descriptions.line(number)] or [Described()]
        own, numbers = line[0], values[part]
        if own.incremental:
            numbers = _summed(numbers, columns["state"][rows[part]])
        process = next((track.process for track in line if track.process is not None), None)
        unit = COUNT if own.unit == "count" else own.unit
        yield (
            "" if process is None else str(process),
            own.name or f"counter {number & schema.MASK}",
            unit,
            time[rows[part]],
            numbers * own.factor,
        )


def _summed(values: npt.NDArray[np.float64], state: Int64s) -> npt.NDArray[np.float64]:
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
    own = np.array([each[:4] for each in packets.gpu_counters], np.int64).reshape(-1, 4)
    times, _ = packets.clocks.unix_times(
        own[:, 0], own[:, 1], own[:, 3], np.array(packets.gpu_times, np.int64)
    )
    for (_, _, state, _, message), time in zip(packets.gpu_counters, times.tolist(), strict=True):
        fields = [field for field in fields_of(message, 0, len(message)) if field]
        numbers = {field.number: field.value for field in fields if field.wire == VARINT}
        names, gpu = inline, numbers.get(3, 0)
        if 4 in numbers:
            own_key = (state, numbers[4])
            if own_key not in described:
                interned = packets.states.messages.get((schema.Table.COUNTERS, *own_key), b"")
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
