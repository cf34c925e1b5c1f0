"""The Kineto reader: a profile in, a rank trace out.

The event array is read in pieces (`elements`), collected as columns (`columns`) and assembled with tracks, counters
and flows (`tracks`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.json_array import (
    ArrayDocument,
    ArrayFormat,
    Part,
    RereadPayloads,
    as_json,
    damage_findings,
)
from tracelink._io.salvage import Damage
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, for_each_text
from tracelink._model.events import EventKind, Events, Key, KeyColumn, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import DRIVER_CALL
from tracelink._model.text import subject
from tracelink._model.trace import Payload, ProcessGroup, RankTrace
from tracelink.converters.kineto import schema
from tracelink.converters.kineto.columns import ElementColumns, FlowEnds, join
from tracelink.converters.kineto.elements import Decoded, ElementDecoder
from tracelink.converters.kineto.tracks import (
    Flows,
    Names,
    Placed,
    bind_drawn,
    bind_to_times,
    counters_of,
    flows_by_category,
    pair,
    tracks_of,
)
from tracelink.converters.pytorch.arguments import BASE_TIME, CATEGORY_OF_KIND, DRIVER_CATEGORY, base_time
from tracelink.plugins.traces import TraceBuilder

WORTH_SPLITTING = 16 << 20
"""Smaller files are read faster by one process."""
COMPRESSED_PARTS = 2
"""Every process decompresses what is before its part, which takes a tenth of the time of reading it."""
GZIP_SIZE = 4
"""Bytes at the end of a gzip member that have its size."""


class KinetoReader:
    """Reads what `torch.profiler` wrote from 2020 to 2026, whatever the hardware."""

    name = "kineto"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """Reads a source, in as many processes as the engine has."""
        parts = engine.map(lambda part: _read_part(source, part, engine), _parts(source, engine))
        header: dict[str, Any] = {}
        damage: list[Damage] = []
        for _, part_header, part_damage, _ in parts:
            header |= part_header
            damage += part_damage
        columns = join([columns for columns, *_ in parts])
        return _assemble(source, columns, header, damage, parts[-1][3])


PartRead = tuple[ElementColumns, Mapping[str, Any], Sequence[Damage], tuple[int, str] | None]


def _read_part(source: Source, part: Part, engine: Engine) -> PartRead:
    decoder = ElementDecoder()
    document: ArrayDocument[Decoded] = ArrayDocument(
        source,
        ArrayFormat(schema.EVENTS, schema.FIRST_KEYS, decoder.decode, decoder.convert),
        part,
    )
    statements = decoder.communication.statements
    columns = ElementColumns(decoder.shapes, decoder.names, decoder.lanes, statements=statements)
    for offset, piece in document.pieces(engine.meter.add):
        columns.add(offset, piece)
    columns.compact()
    truncated_at = (
        None if document.truncated_at is None else (document.truncated_at, document.truncated_reason)
    )
    return columns, document.header, document.damage, truncated_at


def _parts(source: Source, engine: Engine) -> list[Part]:
    """Byte ranges of similar size that start at an event; one range if the file cannot be split."""
    with source.open() as stream:
        plain = stream.plain
    if engine.jobs < 2 or not source.in_ranges or (source.local is None and not plain):
        return [Part()]
    size = source.bytes if plain else _inflated_bytes(source)
    if size < WORTH_SPLITTING:
        return [Part()]
    document: ArrayDocument[Decoded] = ArrayDocument(
        source, ArrayFormat(schema.EVENTS, schema.FIRST_KEYS, _never, _never)
    )
    count = engine.jobs if plain else min(engine.jobs, COMPRESSED_PARTS)
    wanted = np.linspace(0, size, count + 1)[1:-1].astype(int).tolist()
    found = [document.boundary_near(offset) for offset in wanted]
    cuts = sorted({offset for offset in found if offset is not None})
    return [Part(start, stop) for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]


def _inflated_bytes(source: Source) -> int:
    """The size at the end of a gzip member: a guess, because others may come before it."""
    if source.bytes < GZIP_SIZE:
        return 0
    with source.opener() as stored:
        stored.seek(-GZIP_SIZE, io.SEEK_END)
        return int.from_bytes(stored.read(GZIP_SIZE), "little")


def _never(_: object) -> Decoded:
    raise NotImplementedError


# From columns to a rank trace.


def _assemble(
    source: Source,
    columns: ElementColumns,
    header: Mapping[str, Any],
    damage: Sequence[Damage],
    truncated_at: tuple[int, str] | None,
) -> RankTrace:
    """The rank trace of one file."""
    names = Names(columns.lanes.texts())
    names.learn(columns.metadata)
    table, unmatched_ends = _table(columns)
    base = base_time(header)
    kind = _kinds(columns, table)
    track, tracks = tracks_of(table["pid"], table["tid"], _on_device(kind), names)
    events = _events(table, kind, track, base or 0)
    flows = flows_by_category(columns.launch_ends, columns.flows, columns.shapes)
    keys = _keys(columns, table["index"])
    communications = columns.communications
    keys |= _bound(flows, keys, table) | _uncommon_categories(columns, table, kind)
    counters, counter_tracks = counters_of(columns, names, base or 0, len(tracks))
    bound = len(keys.get(Key.FLOW_OUT, ())) + len(keys.get(Key.FLOW_IN, ()))
    loose = len(flows.other_out) + len(flows.other_in) - bound
    distributed = _mapping(header.get(schema.DISTRIBUTED))
    builder = TraceBuilder(
        source,
        KinetoReader.name,
        version=_version(header),
        rank=_up_to(LARGEST_RANK, distributed.get("rank")),
        host=str(header.get(schema.HOST, "")),
        world_size=_up_to(LARGEST_RANK + 1, distributed.get("world_size")),
        pid=_process(events, tracks),
        records=columns.total,
        zero_ns=base or 0,
        header={key: value for key in schema.KEPT_HEADER if (value := _kept(header, key)) is not None},
    )
    trace = builder.build(
        strings=columns.names,
        events=events,
        tracks=_with_process_names(tracks, names) + counter_tracks,
        keys=keys,
        counters=counters,
        groups=_process_groups(header),
        communications=replace(communications, row=np.searchsorted(table["index"], communications.row)),
        launch_flows=flows.launches,
        payloads=[RereadPayloads(source, ARGUMENTS, columns.offsets, columns.counts)],
    )
    if base is None:
        trace.findings.append(_unusable_base_time(source.path, header))
    if not isinstance(header.get(schema.DISTRIBUTED, {}), dict):
        trace.findings.append(_unusable_rank(source.path))
    trace.findings += _findings(source.path, columns, damage, truncated_at, len(events))
    trace.findings += _pairing_findings(source.path, unmatched_ends, loose)
    return trace


def _events(table: Mapping[str, Any], kind: npt.NDArray[np.uint8], track: Int32s, base: int) -> Events:
    """The events of the only source."""
    source = np.zeros(len(kind), np.int32)
    return Events(
        kind, table["name"], track, table["start"] + base, table["duration"], source, table["index"]
    )


def _unusable_base_time(path: str, header: Mapping[str, Any]) -> Finding:
    text = (
        f"{path}: {BASE_TIME} is not a valid time: {str(header[BASE_TIME])[:40]!r}; it is not added to times."
    )
    return Finding(Severity.WARNING, "unusable_base_time", text, source=path)


def _unusable_rank(path: str) -> Finding:
    text = (
        f"{path}: {schema.DISTRIBUTED} is not an object; rank, world size and process groups in it are not used. "
        f"Set the rank with --rank {path}=N."
    )
    return Finding(Severity.WARNING, "unusable_rank", text, source=path)


def _table(columns: ElementColumns) -> tuple[dict[str, Any], int]:
    """One row for each event, in the order of the file."""
    table: dict[str, Any] = dict(columns.table)
    paired = pair(columns.halves)
    if not paired.slices:
        return table, paired.unmatched_ends
    slices = paired.slices
    shape = [columns.shapes.table["X" + slice_.cat] for slice_ in slices]
    columns.shapes.learn()
    added = {
        "index": [slice_.index for slice_ in slices],
        "shape": shape,
        "name": [columns.names[slice_.name] for slice_ in slices],
        "pid": [slice_.pid for slice_ in slices],
        "tid": [slice_.tid for slice_ in slices],
        "start": [slice_.start for slice_ in slices],
        "duration": [slice_.duration for slice_ in slices],
    }
    joined = {name: np.concatenate([table[name], np.array(added[name], table[name].dtype)]) for name in table}
    order = np.argsort(joined["index"], kind="stable")
    return {name: column[order] for name, column in joined.items()}, paired.unmatched_ends


def _kinds(columns: ElementColumns, table: Mapping[str, Any]) -> Any:
    shapes = columns.shapes
    kinds = np.array(
        [int(schema.kind_of(text[:1], text[1:])) for text in shapes.table.texts()] or [0], np.uint8
    )
    kind = kinds[table["shape"]]
    memory = columns.names.find(schema.MEMORY_EVENT)
    if memory >= 0:
        instants = shapes.are(table["shape"], schema.INSTANTS)
        kind[instants & (table["name"] == memory)] = EventKind.MEMORY
    return kind


def _on_device(kind: Any) -> Bools:
    marks = np.zeros(256, np.bool_)
    marks[[int(kind) for kind in schema.ON_DEVICE]] = True
    chosen: Bools = marks[kind]
    return chosen


def _keys(columns: ElementColumns, index: Int64s) -> dict[Key, KeyColumn]:
    row = np.zeros(columns.total, np.int64)
    row[index] = np.arange(len(index))
    keys = {}
    for key, chunks in columns.keys.items():
        indexes = np.concatenate([indexes for indexes, _ in chunks])
        values = np.concatenate([values for _, values in chunks])
        keys[key] = KeyColumn(row[indexes], values)
    return keys


def _uncommon_categories(
    columns: ElementColumns, table: Mapping[str, Any], kind: npt.NDArray[np.uint8]
) -> dict[Key, KeyColumn]:
    """The categories that do not follow from kind and name of an event; those of 2021 have other names today."""
    categories = [text[1:] for text in columns.shapes.table.texts()]
    common = ("", *schema.OLD_CATEGORIES)
    known = [
        CATEGORY_OF_KIND.get(schema.kind_of(text[:1], text[1:]), "") for text in columns.shapes.table.texts()
    ]
    uncommon = [name not in (*common, known[code], DRIVER_CATEGORY) for code, name in enumerate(categories)]
    shape = table["shape"]
    chosen = np.array([*uncommon, False], np.bool_)[shape] & (kind != EventKind.MEMORY)
    of_driver = np.array([*(name == DRIVER_CATEGORY for name in categories), False], np.bool_)
    of_runtime = np.array([*(name == CATEGORY_OF_KIND[EventKind.RUNTIME] for name in categories), False])
    calls = np.flatnonzero((of_driver | of_runtime)[shape])
    named = for_each_text(columns.names.texts(), table["name"][calls], DRIVER_CALL.match, np.bool_, False)
    chosen[calls[named != of_driver[shape[calls]]]] = True
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return {}
    codes = np.array([columns.names[name] if name else UNKNOWN for name in categories], np.int64)
    return {Key.CATEGORY: KeyColumn(rows, codes[shape[rows]])}


def _bound(flows: Flows, keys: Mapping[Key, KeyColumn], table: Mapping[str, Any]) -> dict[Key, KeyColumn]:
    """Flows that are not launches, at the events of their starts and ends."""
    events = Placed(table["pid"], table["tid"], table["start"], table["duration"])
    with_sequence = keys.get(Key.SEQUENCE)
    autograd = np.arange(len(events.start)) if with_sequence is None else np.sort(with_sequence.rows)
    bound: dict[Key, KeyColumn] = {}

    def bind(key: Key, ends: FlowEnds, rows: Int64s) -> None:
        bound[key] = KeyColumn(rows[rows != UNKNOWN], ends.identity[rows != UNKNOWN])

    for key, ends, last in (
        (Key.BACKWARD_FLOW_OUT, flows.backward_out, True),
        (Key.BACKWARD_FLOW_IN, flows.backward_in, False),
    ):
        if len(ends):
            bind(key, ends, bind_to_times(ends, events, events.start, autograd, last=last))
    for key, ends in ((Key.FLOW_OUT, flows.other_out), (Key.FLOW_IN, flows.other_in)):
        if len(ends):
            bind(key, ends, bind_drawn(ends, events, starting=key == Key.FLOW_OUT))
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
    path: str,
    columns: ElementColumns,
    damage: Sequence[Damage],
    truncated_at: tuple[int, str] | None,
    kept: int,
) -> Iterator[Finding]:
    yield from damage_findings(path, damage, truncated_at, kept, "event")
    if columns.not_events:
        skipped = subject(columns.not_events, "element", "are")
        text = f"{path}: {skipped} skipped: null, or without a valid time."
        yield Finding(Severity.WARNING, "not_an_event", text, columns.not_events, path)
    if columns.unusable_durations:
        text = (
            f"{path}: {subject(columns.unusable_durations, 'event', 'have')} a duration that is negative, infinite or "
            "longer than 116 days; kept as unfinished."
        )
        yield Finding(Severity.WARNING, "unusable_duration", text, columns.unusable_durations, path)
    if columns.unusable_samples:
        skipped = subject(columns.unusable_samples, "counter sample", "are")
        text = f"{path}: {skipped} skipped: not a finite number."
        yield Finding(Severity.WARNING, "unusable_sample", text, columns.unusable_samples, path)
    if old := int(
        np.count_nonzero(columns.shapes.in_category(columns.table["shape"], schema.OLD_CATEGORIES))
    ):
        events = subject(old, "event", "have")
        text = f"{path}: {events} categories of 2021; outputs have those of today (cpu_op for Operator)."
        yield Finding(Severity.INFO, "old_categories", text, old, path)
    if not kept:
        yield Finding(Severity.WARNING, "no_events", f"{path}: the file has no events.", source=path)


def _pairing_findings(path: str, unmatched_ends: int, loose: int) -> Iterator[Finding]:
    if unmatched_ends:
        text = f"{path}: {subject(unmatched_ends, 'slice end', 'have')} no begin: skipped."
        yield Finding(Severity.WARNING, "end_without_begin", text, unmatched_ends, path)
    if loose:
        text = f"{path}: {subject(loose, 'flow end', 'are')} at no event: skipped."
        yield Finding(Severity.INFO, "loose_flow", text, loose, path)


# Arguments of events, for payloads: a piece of the event array is read again.


TEXTS = msgspec.json.Decoder(list[schema.ArgumentsText])


def _texts(text: memoryview) -> list[Payload]:
    return [element.args for element in TEXTS.decode(bytes(text))]


def _converted(values: list[Any]) -> list[Payload]:
    arguments = [value.get("args") if isinstance(value, dict) else None for value in values]
    return [b"" if value is None else as_json(value) for value in arguments]


ARGUMENTS = ArrayFormat(schema.EVENTS, schema.FIRST_KEYS, _texts, _converted)


# The header: rank, host, groups, devices.


def _kept(header: Mapping[str, Any], key: str) -> Any:
    """A value of the header; None for one that others would not understand."""
    value = header.get(key)
    return value if key != schema.DISTRIBUTED or isinstance(value, dict) else None


def _process_groups(header: Mapping[str, Any]) -> list[ProcessGroup]:
    """The groups in the header; in on-demand traces the ranks of a group are a string."""
    configured = _mapping(header.get(schema.DISTRIBUTED)).get("pg_config")
    if not isinstance(configured, list):
        return []
    return list(dict.fromkeys(_group(group) for group in configured if isinstance(group, dict)))


def _group(group: Mapping[str, Any]) -> ProcessGroup:
    ranks = _ranks(group.get("ranks"))
    return ProcessGroup(
        name=str(group.get("pg_name", "")),
        description=str(group.get("pg_desc", "")),
        ranks=ranks,
        size=_integer_in(group.get("pg_size")) or len(ranks),
        backend=str(group.get("backend_config", "")),
    )


def _version(header: Mapping[str, Any]) -> str:
    version = str(header.get(schema.SCHEMA_VERSION, ""))
    producers = [
        f"{name.removesuffix('_version')} {header[name]}"
        for name in schema.PRODUCER_VERSIONS
        if name in header
    ]
    return ", ".join([version, *producers[:1]]) if version else "".join(producers[:1])


def _process(events: Events, tracks: Sequence[Track]) -> int | None:
    """The process with the most CPU events."""
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
    number = _integer_in(value)
    return None if number is None or not 0 <= number <= largest else number


def _integer_in(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
