"""The reader of traces of PyTorch and of rocprofv3: packets in, a rank trace out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, distinct, lookup, values_at
from tracelink._model.communications import Communications, Statement, communications
from tracelink._model.errors import UnreadableError
from tracelink._model.events import GPU_WORK, EventKind, Key, KeyColumn, Track, TrackKind
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_KERNEL,
    COLLECTIVE_OPERATOR,
    DRIVER_CALL,
    RECORD_OPERATOR,
)
from tracelink._model.text import subject
from tracelink._model.trace import RankTrace
from tracelink.converters.perfetto.packets.reading import PacketFile
from tracelink.converters.perfetto.packets.schema import Type
from tracelink.converters.perfetto.track_events import schema
from tracelink.converters.perfetto.track_events.arguments import TrackEventPayloads
from tracelink.converters.perfetto.track_events.packets import EventRows, Packets, StageRows
from tracelink.converters.perfetto.track_events.tracks import (
    UNKNOWN_NUMBER,
    Descriptions,
    counters_of,
    find_slices,
    queue_number,
)
from tracelink.converters.pytorch.arguments import CATEGORY_OF_KIND, DRIVER_CATEGORY
from tracelink.plugins.traces import TraceBuilder

OPERATOR_NAME = re.compile(rf"::|Backward\d*$|^{RECORD_OPERATOR}$")
"""Names of operators, where no category tells them from annotations: the first traces of PyTorch have none."""

ON_DEVICE = frozenset({*GPU_WORK, EventKind.GPU_ANNOTATION, EventKind.SYNCHRONIZATION})
OF_THREAD = frozenset({EventKind.OPERATOR, EventKind.ANNOTATION})
KINDS_OF_KEY = {
    Key.CORRELATION: ON_DEVICE | {EventKind.RUNTIME},
    Key.EXTERNAL_ID: ON_DEVICE | OF_THREAD | {EventKind.RUNTIME},
    Key.RECORD_FUNCTION: OF_THREAD,
    Key.SEQUENCE: OF_THREAD,
    Key.FORWARD_THREAD: OF_THREAD,
    Key.PYTHON_ID: frozenset({EventKind.PYTHON}),
    Key.PYTHON_PARENT: frozenset({EventKind.PYTHON}),
    Key.EVENT_INDEX: OF_THREAD | {EventKind.PYTHON},
}
"""Which kinds of events have which keys."""
ROLES = {
    EventKind.OPERATOR: COLLECTIVE_OPERATOR,
    EventKind.ANNOTATION: COLLECTIVE_ANNOTATION,
    EventKind.GPU_ANNOTATION: COLLECTIVE_ANNOTATION,
    EventKind.KERNEL: COLLECTIVE_KERNEL,
}
"""Names by which events of a kind describe communication."""


class TrackEventReader:
    """Reads Perfetto traces that PyTorch or rocprofv3 wrote."""

    name = "track-events"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """Reads a whole file; everything before any damage is used."""
        file, packets = PacketFile(source), Packets()
        for batch in file.batches(engine.meter.add):
            packets.add(batch, file.packets)
        packets.damaged += file.damaged_bundles
        table = _table(packets)
        if not table.is_known:
            problem = file.truncated_at or f"none of its {len(table.kind):,} events is of PyTorch or rocprof"
            raise UnreadableError(
                f"a Perfetto trace of another program: {problem}",
                source=source.path,
                advice="Open it at ui.perfetto.dev, or use the file that torch.profiler wrote.",
            )
        return _assembled(file, packets, table)


# Events: slices and instants on tracks, and stages on GPUs


class _Table(Struct):
    """One row for each event, in the order of the file."""

    packet: Int64s
    state: Int32s
    start: Int64s
    duration: Int64s
    name: Int64s
    category: Int64s
    """Code of the category in the file, or UNKNOWN."""
    kind: npt.NDArray[np.uint8]
    track: Int64s
    """The track in the file; UNKNOWN for a stage."""
    row: Int64s
    """The row of the event among events on tracks, or UNKNOWN."""
    stage: Int64s
    """The row among stages, or UNKNOWN."""
    row_of_event: Int64s
    """For each event on a track its row here, or UNKNOWN."""
    row_of_stage: Int64s
    events: EventRows
    """All events on tracks."""
    time: Int64s
    stages: StageRows
    unmatched_ends: int
    from_1970: bool
    links: dict[str, tuple[Int64s, Int64s]] = field(default_factory=dict)
    """By the name of an annotation: rows and values."""

    @property
    def is_known(self) -> bool:
        """True if any event is of a kind that PyTorch or rocprof records."""
        return bool(np.isin(self.kind, (EventKind.OTHER, EventKind.INSTANT), invert=True).any())

    def values(self, name: str, otherwise: int = UNKNOWN_NUMBER) -> Int64s:
        """The value of an annotation of each event."""
        values = np.full(len(self.packet), otherwise, np.int64)
        rows, numbers = self.links[name]
        values[rows] = numbers
        return values

    def has(self, name: str) -> Bools:
        """True if each event has an annotation."""
        present = np.zeros(len(self.packet), np.bool_)
        present[self.links[name][0]] = True
        return present


def _table(packets: Packets) -> _Table:
    events, stages = packets.events.join(), packets.stages.join()
    time, from_1970 = packets.clocks.unix_times(events)
    stage_time, stages_from_1970 = packets.clocks.unix_times(stages)
    kind = np.where(time == NO_TIME, 0, events.type)
    slices = find_slices(events.sequence, events.track, kind, time)
    instants = np.flatnonzero(kind == Type.INSTANT)
    row = np.concatenate([slices.begin, instants])
    ended = values_at(time, slices.end, NO_TIME)
    duration = np.where(ended == NO_TIME, UNKNOWN, np.maximum(ended - time[slices.begin], 0))
    duration = np.concatenate([duration, np.zeros(len(instants), np.int64)])
    stage = np.flatnonzero(stage_time != NO_TIME)
    packet = np.concatenate([events.packet[row], stages.packet[stage]])
    order = np.argsort(packet, kind="stable")
    none, no_row = np.full(len(stage), UNKNOWN), np.full(len(row), UNKNOWN)

    def both(of_events: npt.NDArray[Any], of_stages: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([of_events, of_stages])[order]

    stage_duration = stages.duration[stage]
    table = _Table(
        packet[order],
        both(events.state[row], stages.state[stage]),
        both(time[row], stage_time[stage]),
        both(duration, np.where((stage_duration >= 0) & (stage_duration < 1 << 60), stage_duration, 0)),
        both(events.name[row], stages.name[stage]),
        both(events.category[row], none),
        np.empty(0, np.uint8),
        both(events.track[row], none),
        both(row, none),
        both(no_row, stage),
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        events,
        time,
        stages,
        slices.unmatched_ends,
        from_1970 and stages_from_1970,
    )
    packets.without_time += int(np.count_nonzero(time == NO_TIME) + np.count_nonzero(stage_time == NO_TIME))
    table.row_of_event = lookup(table.row, np.arange(len(time)))
    table.row_of_stage = lookup(table.stage, np.arange(len(stage_time)))
    table.links = _links(packets, table)
    table.name = np.where(table.name == UNKNOWN, packets.strings[""], table.name)
    table.kind = _kinds(packets, table)
    return table


def _links(packets: Packets, table: _Table) -> dict[str, tuple[Int64s, Int64s]]:
    """The annotations that link events, of events and of stages; of unknown names of one key the values are joined."""
    found = {}
    for name in schema.LINKS:
        links, stage_links = packets.links[name].join(), packets.stage_links[name].join()
        rows = np.concatenate(
            [values_at(table.row_of_event, links.row), values_at(table.row_of_stage, stage_links.row)]
        )
        values = np.concatenate([links.number, stage_links.number])
        kept = rows != UNKNOWN
        found[name] = rows[kept], values[kept]
    rows, values = found.pop("corr_id")
    own_rows, own_values = found[schema.CORRELATION]
    found[schema.CORRELATION] = np.concatenate([own_rows, rows]), np.concatenate([own_values, values])
    return found


def _kinds(packets: Packets, table: _Table) -> npt.NDArray[np.uint8]:
    """The kind of each event: by its category, else by its annotations and its name."""
    texts = packets.strings.texts()
    by_category = np.array(
        [*(schema.KINDS.get(text, EventKind.OTHER) for text in texts), EventKind.OTHER], np.uint8
    )
    kind = by_category[table.category]
    stage = values_at(table.stages.stage, table.stage)
    by_stage = np.array(
        [*(schema.STAGE_KINDS.get(text, EventKind.KERNEL) for text in texts), EventKind.KERNEL], np.uint8
    )
    kind[table.stage != UNKNOWN] = by_stage[stage[table.stage != UNKNOWN]]
    operator = np.array([*(bool(OPERATOR_NAME.search(text)) for text in texts), False], np.bool_)[table.name]
    memcpy, memset = (table.name == packets.strings.find(name) for name in ("Memcpy", "Memset"))
    bare = (table.category == UNKNOWN) & (table.stage == UNKNOWN)
    correlated, external = table.has(schema.CORRELATION), table.has(schema.EXTERNAL_ID)
    for chosen, found in (
        (external & operator, EventKind.OPERATOR),
        (external & ~operator, EventKind.ANNOTATION),
        (table.has(schema.PYTHON_ID), EventKind.PYTHON),
        (correlated & table.has(schema.DEVICE) & memcpy, EventKind.MEMCPY),
        (correlated & table.has(schema.DEVICE) & memset, EventKind.MEMSET),
        (correlated & table.has(schema.GRID), EventKind.KERNEL),
        (table.has(schema.CALLBACK), EventKind.RUNTIME),
        (table.has(schema.SYNCHRONIZATION), EventKind.SYNCHRONIZATION),
        (_on_overhead(packets, table), EventKind.OVERHEAD),
    ):
        kind[bare & chosen] = found
    types = values_at(table.events.type, table.row)
    kind[types == Type.INSTANT] = EventKind.INSTANT
    return kind


def _on_overhead(packets: Packets, table: _Table) -> Bools:
    descriptions = Descriptions.of(packets.tracks)
    numbers = [
        number
        for number in np.unique(table.track).tolist()
        if any(track.process_name == schema.OVERHEAD for track in descriptions.line(number))
    ]
    return np.isin(table.track, np.array(numbers, np.int64))


# The rank trace


def _assembled(file: PacketFile, packets: Packets, table: _Table) -> RankTrace:
    source = file.source
    descriptions = Descriptions.of(packets.tracks)
    track, tracks = _tracks(packets, table, descriptions)
    counters, counter_tracks = counters_of(packets, descriptions, table.events, table.time, len(tracks))
    keys = {**_keys(table), **_categories(packets, table)}
    _submitted(packets, table, keys)
    launches = _flows(packets, table, keys)
    statements = _communications(packets, table)
    rank = packets.ranks.pop() if len(packets.ranks) == 1 else None
    trace = TraceBuilder(
        source,
        TrackEventReader.name,
        rank=rank if rank is not None and rank <= LARGEST_RANK else None,
        pid=_process(tracks, track, table.kind),
        records=file.packets,
    )
    trace.events(
        table.name.astype(np.int32),
        table.start,
        table.duration,
        kind=table.kind,
        track=track,
        payload=table.packet,
    )
    return trace.build(
        strings=packets.strings,
        tracks=tracks + counter_tracks,
        keys={key: column for key, column in keys.items() if len(column)},
        counters=counters,
        communications=statements,
        launch_flows=launches,
        payloads=[TrackEventPayloads(source, file.starts, table.packet, table.state, packets.states.texts)],
        findings=list(_findings(source.path, packets, table, file.truncated_at)),
        derived_from=frozenset({"kineto"}),
    )


def _process(tracks: Sequence[Track], track: Int64s, kind: npt.NDArray[np.uint8]) -> int | None:
    """The process of most events on threads."""
    counts = np.bincount(track[np.isin(kind, (EventKind.OPERATOR, EventKind.RUNTIME))], minlength=len(tracks))
    numbers = [
        (int(count), own.process)
        for count, own in zip(counts.tolist(), tracks, strict=False)
        if own.kind is TrackKind.THREAD and count and own.process.isdigit()
    ]
    return int(max(numbers)[1]) if numbers else None


def _tracks(packets: Packets, table: _Table, descriptions: Descriptions) -> tuple[Int64s, list[Track]]:
    """The track of each event: one for each thread, and for each device and stream."""
    on_device = np.isin(table.kind, list(ON_DEVICE)) | (table.stage != UNKNOWN)
    device, stream = table.values(schema.DEVICE), table.values(schema.STREAM)
    thread = np.where(on_device, UNKNOWN_NUMBER, table.values(schema.THREAD))
    _fill_from_stages(packets, table, device, stream)
    numbers, index = np.unique(table.track, return_inverse=True)
    places = np.array(
        [descriptions.place_on_device(number) for number in numbers.tolist()], np.int64
    ).reshape(-1, 2)
    device = np.where(device == UNKNOWN_NUMBER, places[index, 0], device)
    stream = np.where(stream == UNKNOWN_NUMBER, places[index, 1], stream)
    code, first = distinct(
        on_device.astype(np.int64),
        np.where(on_device, device, 0),
        np.where(on_device, stream, index),
        np.where(on_device, 0, thread),
    )
    found: dict[tuple[str, ...], int] = {}
    tracks: list[Track] = []
    row_of = np.empty(len(first), np.int64)
    for number, row in enumerate(first.tolist()):
        if on_device[row]:
            label = f"stream {stream[row]}"
            own = Track(
                TrackKind.STREAM, str(device[row]), str(stream[row]), label, sort=max(int(stream[row]), 0)
            )
        else:
            own = descriptions.thread(int(table.track[row]), int(thread[row]))
        key = (own.kind, own.process, own.identity)
        if key not in found:
            found[key] = len(tracks)
            tracks.append(own)
        row_of[number] = found[key]
    return row_of[code], tracks


def _fill_from_stages(packets: Packets, table: _Table, device: Int64s, stream: Int64s) -> None:
    """Device and stream of stages whose data does not state them: those of their GPU and queue."""
    rows = np.flatnonzero(table.stage != UNKNOWN)
    stages = table.stage[rows]
    device[rows] = np.where(device[rows] == UNKNOWN_NUMBER, table.stages.gpu[stages], device[rows])
    texts = packets.strings.texts()
    queues, index = np.unique(table.stages.queue[stages], return_inverse=True)
    numbers = [queue_number(texts[code]) if code != UNKNOWN else 0 for code in queues.tolist()]
    numbers = [place if number == UNKNOWN_NUMBER else number for place, number in enumerate(numbers)]
    of_queue = np.array(numbers, np.int64)[index] if len(rows) else rows
    stream[rows] = np.where(stream[rows] == UNKNOWN_NUMBER, of_queue, stream[rows])


def _keys(table: _Table) -> dict[Key, KeyColumn]:
    keys = {}
    for name, key in schema.LINKS.items():
        if key is None or name not in table.links:
            continue
        rows, values = table.links[name]
        kept = np.isin(table.kind[rows], list(KINDS_OF_KEY[key])) & (
            values > schema.LARGEST_UNKNOWN.get(key, 0)
        )
        rows, values = rows[kept], values[kept]
        order = np.argsort(rows, kind="stable")
        rows, first = np.unique(rows[order], return_index=True)
        keys[key] = KeyColumn(rows, values[order][first])
    return keys


def _categories(packets: Packets, table: _Table) -> dict[Key, KeyColumn]:
    """The categories that do not follow from kind and name of an event."""
    texts = packets.strings.texts()
    category = table.category.copy()
    for name, own in schema.STAGE_CATEGORIES.items():
        stage = values_at(table.stages.stage, table.stage)
        if (code := packets.strings.find(name)) != UNKNOWN:
            category[(stage == code) & (table.stage != UNKNOWN)] = packets.strings[own]
    texts = packets.strings.texts()
    common = np.array(
        [
            packets.strings.find(CATEGORY_OF_KIND.get(EventKind(kind), ""))
            for kind in range(max(EventKind) + 1)
        ]
    )[table.kind]
    of_driver = np.array([*(bool(DRIVER_CALL.match(text)) for text in texts), False], np.bool_)[table.name]
    driver = packets.strings.find(DRIVER_CATEGORY)
    expected = np.where((table.kind == EventKind.RUNTIME) & of_driver & (driver != UNKNOWN), driver, common)
    rows = np.flatnonzero((category != UNKNOWN) & (category != expected))
    return {Key.CATEGORY: KeyColumn(rows, category[rows])}


def _submitted(packets: Packets, table: _Table, keys: dict[Key, KeyColumn]) -> None:
    """Adds correlations of stages without one: of the calls that say to have submitted them."""
    submitted = packets.submitted.join()
    caller = values_at(table.row_of_event, submitted.row)
    stage = values_at(table.row_of_stage, lookup(table.stages.number, submitted.number))
    correlation = keys[Key.CORRELATION].dense(len(table.kind), UNKNOWN)
    kept = (caller != UNKNOWN) & (stage != UNKNOWN)
    caller, stage = caller[kept], stage[kept]
    caller, stage = caller[correlation[stage] == UNKNOWN], stage[correlation[stage] == UNKNOWN]
    if not len(caller):
        return
    new = correlation[caller] == UNKNOWN
    _, code = np.unique(caller[new], return_inverse=True)
    correlation[caller[new]] = int(correlation.max(initial=0)) + 1 + code
    correlation[stage] = correlation[caller]
    rows = np.flatnonzero(correlation != UNKNOWN)
    keys[Key.CORRELATION] = KeyColumn(rows, correlation[rows])


def _flows(packets: Packets, table: _Table, keys: dict[Key, KeyColumn]) -> Int64s:
    """Adds flows between successive events with one number, and between stages; returns launches that flows declare."""
    flows = packets.flows.join()
    row = values_at(table.row_of_event, flows.row)
    row, numbers = row[row != UNKNOWN], flows.number[row != UNKNOWN]
    order = np.lexsort((row, table.start[row], numbers))
    row, numbers = row[order], numbers[order]
    follows = numbers[1:] == numbers[:-1]
    source, target = row[:-1][follows], row[1:][follows]
    correlation = keys[Key.CORRELATION].dense(len(table.kind), UNKNOWN)
    launch = (correlation[source] == correlation[target]) & (correlation[source] != UNKNOWN)
    declared = launch & (table.kind[source] == EventKind.RUNTIME) & np.isin(table.kind[target], GPU_WORK)
    waits = packets.waits.join()
    later = values_at(table.row_of_stage, waits.row)
    earlier = values_at(table.row_of_stage, lookup(table.stages.number, waits.number))
    kept = (earlier != UNKNOWN) & (later != UNKNOWN)
    source = np.concatenate([source[~launch], earlier[kept]])
    target = np.concatenate([target[~launch], later[kept]])
    if len(source):
        identity = np.arange(len(source))
        keys[Key.FLOW_OUT], keys[Key.FLOW_IN] = _sorted(source, identity), _sorted(target, identity)
    return np.unique(correlation[row[:-1][follows][declared]])


def _sorted(rows: Int64s, values: Int64s) -> KeyColumn:
    order = np.argsort(rows, kind="stable")
    return KeyColumn(rows[order], values[order])


def _communications(packets: Packets, table: _Table) -> Communications:
    """The statements of events, if events of their kind describe communication by such a name or by their arguments."""
    found: list[tuple[int, Statement]] = []
    texts = packets.strings.texts()
    for statements, row_of in (
        (packets.statements, table.row_of_event),
        (packets.stage_statements, table.row_of_stage),
    ):
        for own, statement in statements.items():
            row = int(row_of[own])
            role = ROLES.get(EventKind(int(table.kind[row]))) if row != UNKNOWN else None
            if role and (statement.group or role.search(texts[int(table.name[row])])):
                found.append((row, statement))
    found.sort(key=lambda pair: pair[0])
    return communications([row for row, _ in found], [statement for _, statement in found], packets.strings)


def _findings(path: str, packets: Packets, table: _Table, truncated: str) -> Iterator[Finding]:
    if truncated:
        yield Truncated(path, truncated, len(table.kind), "event").finding(severity=Severity.ERROR)
    if not table.from_1970:
        text = (
            f"{path}: no clock in it counts from 1970, so its times count from another moment. They cannot be compared "
            "with those of other files."
        )
        yield Finding(Severity.WARNING, "no_base_time", text, source=path)
    for reason, count, thing, verb, what in (
        (
            "damaged",
            packets.damaged,
            "packet",
            "are",
            "damaged: their readable parts are used",
        ),
        (
            "without_state",
            packets.without_state,
            "packet",
            "were",
            "written after some that are not in the file: skipped",
        ),
        (
            "without_time",
            packets.without_time,
            "event",
            "have",
            "no time, or one of an unknown clock: skipped",
        ),
        ("end_without_begin", table.unmatched_ends, "slice end", "have", "no begin: skipped"),
        ("compressed", packets.unpacked_by_zstd, "packet", "are", "compressed by zstd, and not read"),
    ):
        if count:
            yield Finding(
                Severity.WARNING, reason, f"{path}: {subject(count, thing, verb)} {what}.", count, path
            )
    for reason, count, thing, verb, what in (
        (
            "arguments_of_ends",
            packets.arguments_of_ends,
            "slice end",
            "have",
            "arguments, which are not read",
        ),
        ("extra_values", packets.extra_values, "value", "were", "sampled with events, and are not read"),
    ):
        if count:
            yield Finding(
                Severity.INFO, reason, f"{path}: {subject(count, thing, verb)} {what}.", count, path
            )
