"""File to rank trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.converters.kineto.columns import Columns, join
from tracelink.converters.kineto.elements import Decoded, ElementDecoder
from tracelink.converters.kineto.schema import (
    DISTRIBUTED,
    EVENTS,
    FIRST_KEYS,
    HOST,
    INSTANTS,
    KEPT_HEADER,
    MEMORY_EVENT,
    ON_DEVICE,
    PRODUCER_VERSIONS,
    SCHEMA_VERSION,
    ArgumentsText,
    kind_of,
)
from tracelink.converters.kineto.tracks import (
    Arrows,
    Ends,
    Names,
    bind,
    counters_of,
    pair,
    sort_flows,
    tracks_of,
)
from tracelink.converters.pytorch.times import BASE_TIME, base_time
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity
from tracelink.io.json_array import ArrayDocument, ArrayFormat, Part, RereadPayloads, as_json, damage_findings
from tracelink.io.salvage import Damage
from tracelink.io.sources import LARGEST_RANK, Source
from tracelink.model.columns import Bools, Int32s, Int64s
from tracelink.model.events import EventKind, Events, Key, KeyColumn, Track, TrackKind
from tracelink.model.trace import Payload, ProcessGroup, RankTrace, SourceInfo

# What a Kineto file says of itself: rank, host, groups, devices.


def source_info(
    source: Source, header: Mapping[str, Any], events: Events, tracks: Sequence[Track], records: int
) -> SourceInfo:
    """What is known of the file now."""
    distributed = _mapping(header.get(DISTRIBUTED))
    timed = ~events.of_kind(EventKind.SPAN, EventKind.OVERHEAD)
    start, end = events.start[timed], events.end[timed]
    return SourceInfo(
        path=source.path,
        format="kineto",
        version=_version(header),
        rank=_up_to(LARGEST_RANK, distributed.get("rank")),
        host=str(header.get(HOST, "")),
        world_size=_up_to(LARGEST_RANK + 1, distributed.get("world_size")),
        pid=_process(events, tracks),
        events=len(events),
        records=records,
        bytes=source.bytes,
        start_ns=int(start.min()) if len(start) else None,
        end_ns=int(end.max()) if len(end) else None,
        zero_ns=base_time(header) or 0,
        header={key: header[key] for key in KEPT_HEADER if key in header},
    )


def process_groups(header: Mapping[str, Any]) -> list[ProcessGroup]:
    """The groups in the header; on-demand traces write the ranks of a group as text."""
    configured = _mapping(header.get(DISTRIBUTED)).get("pg_config")
    if not isinstance(configured, list):
        return []
    return [_group(group) for group in configured if isinstance(group, dict)]


def _group(group: Mapping[str, Any]) -> ProcessGroup:
    ranks = _ranks(group.get("ranks"))
    return ProcessGroup(
        name=str(group.get("pg_name", "")),
        description=str(group.get("pg_desc", "")),
        ranks=ranks,
        size=_whole(group.get("pg_size")) or len(ranks),
        backend=str(group.get("backend_config", "")),
    )


def _version(header: Mapping[str, Any]) -> str:
    schema = str(header.get(SCHEMA_VERSION, ""))
    producers = [
        f"{name.removesuffix('_version')} {header[name]}" for name in PRODUCER_VERSIONS if name in header
    ]
    return ", ".join([schema, *producers[:1]]) if schema else "".join(producers[:1])


def _process(events: Events, tracks: Sequence[Track]) -> int | None:
    """The process that most CPU events are of."""
    counts = np.bincount(events.track, minlength=len(tracks))
    threads = [
        (int(counts[row]), track.process)
        for row, track in enumerate(tracks)
        if track.kind == TrackKind.THREAD and track.process.isdecimal()
    ]
    totals: dict[str, int] = {}
    for count, process in threads:
        totals[process] = totals.get(process, 0) + count
    return int(max(totals, key=lambda process: totals[process])) if totals else None


def _ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    numbers = tuple(_integers(value)) if isinstance(value, list) else ()
    return numbers if all(0 <= number <= LARGEST_RANK for number in numbers) else ()


def _integers(values: Iterable[Any]) -> Iterable[int]:
    return (value for value in values if isinstance(value, int))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _up_to(largest: int, value: Any) -> int | None:
    number = _whole(value)
    return None if number is None or not 0 <= number <= largest else number


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# The arguments of Kineto events, found in a piece of the event array.


TEXTS = msgspec.json.Decoder(list[ArgumentsText])


def _texts(text: memoryview) -> list[Payload]:
    return [element.args for element in TEXTS.decode(bytes(text))]


def _converted(values: list[Any]) -> list[Payload]:
    arguments = [value.get("args") if isinstance(value, dict) else None for value in values]
    return [b"" if given is None else as_json(given) for given in arguments]


ARGUMENTS = ArrayFormat(EVENTS, FIRST_KEYS, _texts, _converted)


# The columns of a Kineto file, put together as a rank trace.


def assemble(
    source: Source,
    columns: Columns,
    header: Mapping[str, Any],
    damage: Sequence[Damage],
    truncated_at: tuple[int, str] | None,
) -> RankTrace:
    """A rank trace out of everything that was read from one file."""
    names = Names(columns.lanes.texts())
    names.learn(columns.named)
    table, ends_alone = _table(columns)
    base = base_time(header)
    kind = _kinds(columns, table)
    track, tracks = tracks_of(table["pid"], table["tid"], _on_device(kind), names)
    events = _events(table, kind, track, base or 0)
    arrows = sort_flows(columns.launch_ends, columns.flows, columns.shapes)
    keys = _keys(columns, table["place"])
    said = columns.communications
    keys |= _bound(arrows, keys, table)
    counters, counter_tracks = counters_of(columns, names, base or 0, len(tracks))
    bound = len(keys.get(Key.FLOW_OUT, ())) + len(keys.get(Key.FLOW_IN, ()))
    loose = len(arrows.other_out.identity) + len(arrows.other_in.identity) - bound
    trace = RankTrace(
        [source_info(source, header, events, tracks, columns.total)],
        columns.names,
        events,
        _with_process_names(tracks, names) + counter_tracks,
        keys,
        counters,
        process_groups(header),
        replace(said, row=np.searchsorted(table["place"], said.row)),
        launch_flows=arrows.launches,
        payloads=[RereadPayloads(source, ARGUMENTS, columns.offsets, columns.counts)],
    )
    if base is None:
        trace.findings.append(_unusable_base_time(source.path, header))
    trace.findings += _findings(source.path, columns, damage, truncated_at, len(events))
    trace.findings += _pairing_findings(source.path, ends_alone, loose)
    return trace


def _events(table: Mapping[str, Any], kind: npt.NDArray[np.uint8], track: Int32s, base: int) -> Events:
    """The events of a file, which is the one source."""
    source = np.zeros(len(kind), np.int32)
    return Events(
        kind, table["name"], track, table["start"] + base, table["duration"], source, table["place"]
    )


def _unusable_base_time(path: str, header: Mapping[str, Any]) -> Finding:
    text = f"{path}: {BASE_TIME} is no time, but {str(header[BASE_TIME])[:40]!r}; times are without it."
    return Finding(Severity.WARNING, "unusable_base_time", text, source=path)


def _table(columns: Columns) -> tuple[dict[str, Any], int]:
    """One row for each event, in the order of the file."""
    table: dict[str, Any] = dict(columns.table)
    paired = pair(columns.halves)
    if not paired.slices:
        return table, paired.ends_alone
    whole = paired.slices
    shape = [columns.shapes.table["X" + slice_.cat] for slice_ in whole]
    columns.shapes.learn()
    added = {
        "place": [slice_.place for slice_ in whole],
        "shape": shape,
        "name": [columns.names[slice_.name] for slice_ in whole],
        "pid": [slice_.pid for slice_ in whole],
        "tid": [slice_.tid for slice_ in whole],
        "start": [slice_.start for slice_ in whole],
        "duration": [slice_.duration for slice_ in whole],
    }
    joined = {name: np.concatenate([table[name], np.array(added[name], table[name].dtype)]) for name in table}
    order = np.argsort(joined["place"], kind="stable")
    return {name: column[order] for name, column in joined.items()}, paired.ends_alone


def _kinds(columns: Columns, table: Mapping[str, Any]) -> Any:
    shapes = columns.shapes
    kinds = np.array([int(kind_of(text[:1], text[1:])) for text in shapes.table.texts()] or [0], np.uint8)
    kind = kinds[table["shape"]]
    memory = columns.names.find(MEMORY_EVENT)
    if memory >= 0:
        instants = shapes.are(table["shape"], INSTANTS)
        kind[instants & (table["name"] == memory)] = EventKind.MEMORY
    return kind


def _on_device(kind: Any) -> Bools:
    marks = np.zeros(256, np.bool_)
    marks[[int(kind) for kind in ON_DEVICE]] = True
    chosen: Bools = marks[kind]
    return chosen


def _keys(columns: Columns, place: Int64s) -> dict[Key, KeyColumn]:
    keys = {}
    for key, chunks in columns.keys.items():
        places = np.concatenate([places for places, _ in chunks])
        values = np.concatenate([values for _, values in chunks])
        keys[key] = KeyColumn(np.searchsorted(place, places), values)
    return keys


def _bound(arrows: Arrows, keys: Mapping[Key, KeyColumn], table: Mapping[str, Any]) -> dict[Key, KeyColumn]:
    """The arrows that are not launches, at the events that they begin and end at."""
    lanes, start = (table["pid"], table["tid"]), table["start"]
    everything = np.arange(len(start))
    with_sequence = keys.get(Key.SEQUENCE)
    autograd = everything if with_sequence is None else np.sort(with_sequence.rows)
    bound: dict[Key, KeyColumn] = {}

    def bind_ends(key: Key, ends: Ends, rows: Int64s, *, last: bool) -> None:
        if len(ends.identity):
            bound[key] = bind(ends, lanes, start, rows, last=last)

    bind_ends(Key.BACKWARD_FLOW_OUT, arrows.backward_out, autograd, last=True)
    bind_ends(Key.BACKWARD_FLOW_IN, arrows.backward_in, autograd, last=False)
    bind_ends(Key.FLOW_OUT, arrows.other_out, everything, last=True)
    bind_ends(Key.FLOW_IN, arrows.other_in, everything, last=True)
    return bound


def _with_process_names(tracks: Sequence[Track], names: Names) -> list[Track]:
    process_names = {names.text(pid): name for pid, name in names.processes.items()}
    return [
        track if track.kind == TrackKind.STREAM else _named(track, process_names.get(track.process, ""))
        for track in tracks
    ]


def _named(track: Track, process_name: str) -> Track:
    return replace(track, process_label=process_name)


def _findings(
    path: str, columns: Columns, damage: Sequence[Damage], truncated_at: tuple[int, str] | None, kept: int
) -> Iterator[Finding]:
    yield from damage_findings(path, damage, truncated_at, kept, "events")
    if columns.not_events:
        text = f"{path}: {columns.not_events} elements are no events (null, or without a usable time)."
        yield Finding(Severity.WARNING, "not_an_event", text, columns.not_events, path)
    if columns.unusable_durations:
        text = (
            f"{path}: {columns.unusable_durations} events have a duration that is negative, endless or longer "
            "than 116 days; they are kept as unfinished."
        )
        yield Finding(Severity.WARNING, "unusable_duration", text, columns.unusable_durations, path)
    if not kept:
        yield Finding(Severity.WARNING, "no_events", f"{path}: it holds no events.", source=path)


def _pairing_findings(path: str, ends_alone: int, loose: int) -> Iterator[Finding]:
    if ends_alone:
        text = f"{path}: {ends_alone} ends of slices have no begin; they are left out."
        yield Finding(Severity.WARNING, "end_without_begin", text, ends_alone, path)
    if loose:
        text = f"{path}: {loose} ends of arrows stand at no event; they are left out."
        yield Finding(Severity.INFO, "loose_flow", text, loose, path)


# Kineto file to rank trace.


WORTH_SPLITTING = 16 << 20
"""Smaller files are read faster by one process."""


class KinetoReader:
    """Reads what `torch.profiler` wrote from 2020 to 2026, whatever the hardware."""

    name = "kineto"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """Reads a whole source, in as many processes as the engine gives."""
        parts = engine.map(lambda part: _read_part(source, part, engine), _parts(source, engine))
        header: dict[str, Any] = {}
        damage: list[Damage] = []
        for _, part_header, part_damage, _ in parts:
            header |= part_header
            damage += part_damage
        columns = join([columns for columns, *_ in parts])
        return assemble(source, columns, header, damage, parts[-1][3])


PartRead = tuple[Columns, Mapping[str, Any], Sequence[Damage], tuple[int, str] | None]


def _read_part(source: Source, part: Part, engine: Engine) -> PartRead:
    decoder = ElementDecoder()
    document: ArrayDocument[Decoded] = ArrayDocument(
        source, ArrayFormat(EVENTS, FIRST_KEYS, decoder.decode, decoder.convert), part
    )
    columns = Columns(decoder.shapes, decoder.names, decoder.lanes)
    for offset, piece in document.pieces(engine.meter.add):
        columns.add(offset, piece)
    columns.compact()
    truncated_at = (
        None if document.truncated_at is None else (document.truncated_at, document.truncated_reason)
    )
    return columns, document.header, document.damage, truncated_at


def _parts(source: Source, engine: Engine) -> list[Part]:
    """Byte ranges of about equal size that begin at an event; one range where the file cannot be split."""
    with source.open() as stream:
        plain = stream.plain
    if engine.jobs < 2 or not plain or source.local is None or source.bytes < WORTH_SPLITTING:
        return [Part()]
    document: ArrayDocument[Decoded] = ArrayDocument(source, ArrayFormat(EVENTS, FIRST_KEYS, _never, _never))
    wanted = np.linspace(0, source.bytes, engine.jobs + 1)[1:-1].astype(int).tolist()
    found = [document.boundary_near(offset) for offset in wanted]
    cuts = sorted({offset for offset in found if offset is not None})
    return [Part(start, stop) for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]


def _never(_: object) -> Decoded:
    raise NotImplementedError
