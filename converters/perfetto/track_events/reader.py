"""The reader of traces of PyTorch and of rocprofv3: packets in, a rank trace out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.framing import FramingError
from tracelink._io.sources import LARGEST_RANK, Source, too_large
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, distinct, lookup, values_at
from tracelink._model.communications import Communications, Statement, communications
from tracelink._model.errors import UnreadableError
from tracelink._model.events import GPU_WORK, EventKind, Events, Key, KeyColumn, Track, TrackKind
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_KERNEL,
    COLLECTIVE_OPERATOR,
    DRIVER_CALL,
    RECORD_OPERATOR,
)
from tracelink._model.text import subject
from tracelink._model.trace import RankTrace, SourceInfo
from tracelink.converters.perfetto.native.decode import Unbundled, batches
from tracelink.converters.perfetto.track_events import schema
from tracelink.converters.perfetto.track_events.arguments import BatchStart, TrackEventPayloads
from tracelink.converters.perfetto.track_events.packets import Packets
from tracelink.converters.perfetto.track_events.slices import slices_of
from tracelink.converters.perfetto.track_events.tracks import (
    UNKNOWN_NUMBER,
    Descriptions,
    counters_of,
    queue_number,
)
from tracelink.converters.pytorch.arguments import CATEGORY_OF_KIND, DRIVER_CATEGORY

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
        packets, starts, truncated, bundles = _read(source, engine)
        table = _table(packets)
        packets.damaged += bundles
        if not table.is_known:
            problem = truncated or f"none of its {len(table.kind):,} events is of PyTorch or rocprof"
            raise UnreadableError(
                f"a Perfetto trace of another program: {problem}",
                source=source.path,
                advice="Open it at ui.perfetto.dev, or use the file that torch.profiler wrote.",
            )
        return _assembled(source, packets, table, starts, truncated)


def _read(source: Source, engine: Engine) -> tuple[Packets, list[BatchStart], str, int]:
    """All packets, the batches they were read in, where the file is truncated, and how many bundles are damaged."""
    packets, starts, unpacked, damaged, truncated = Packets(), [], 0, 0, ""
    with source.open() as opened:
        try:
            for batch in batches(opened, count=engine.meter.add):
                starts.append(BatchStart(batch.offset, packets.count))
                unbundled = Unbundled(batch)
                for plain in unbundled:
                    packets.add(plain)
                    if unpacked + unbundled.unpacked > source.limit:
                        raise too_large(source.path, source.limit)
                unpacked += unbundled.unpacked
                damaged += unbundled.damaged
        except FramingError as error:
            truncated = str(error)
        truncated = opened.damage or truncated
    return packets, starts, truncated, damaged


# Events: slices and instants on tracks, and stages on GPUs


class _Table(Struct):
    """One row for each event, in the order of the file."""

    packet: Int64s
    state: Int64s
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
    columns: Mapping[str, Int64s]
    """Of all events on tracks."""
    time: Int64s
    stages: Mapping[str, Int64s]
    unmatched_ends: int
    from_1970: bool
    links: dict[str, tuple[Int64s, Int64s]] = field(default_factory=dict)
    """By the name of an annotation: rows and values."""

    @property
    def is_known(self) -> bool:
        """Whether any event is of a kind that PyTorch or rocprof records."""
        return bool(np.isin(self.kind, (EventKind.OTHER, EventKind.INSTANT), invert=True).any())

    def values(self, name: str, otherwise: int = UNKNOWN_NUMBER) -> Int64s:
        """The value of an annotation of each event."""
        values = np.full(len(self.packet), otherwise, np.int64)
        rows, numbers = self.links[name]
        values[rows] = numbers
        return values

    def has(self, name: str) -> Bools:
        """Whether each event has an annotation."""
        present = np.zeros(len(self.packet), np.bool_)
        present[self.links[name][0]] = True
        return present


def _table(packets: Packets) -> _Table:
    names = ("packet", "sequence", "state", "clock", "time", "type", "track", "name", "category")
    columns = dict(zip(names, packets.events.joined(*names), strict=True))
    stage_names = (*names[:5], "duration", "number", "gpu", "queue", "stage", "name")
    stages = dict(zip(stage_names, packets.stages.joined(*stage_names), strict=True))
    time, from_1970 = _times(packets, columns)
    stage_time, stages_from_1970 = _times(packets, stages)
    kind = np.where(time == NO_TIME, 0, columns["type"])
    slices = slices_of(columns["sequence"], columns["track"], kind, time)
    instants = np.flatnonzero(kind == schema.INSTANT)
    row = np.concatenate([slices.begin, instants])
    ended = values_at(time, slices.end, NO_TIME)
    duration = np.where(ended == NO_TIME, UNKNOWN, np.maximum(ended - time[slices.begin], 0))
    duration = np.concatenate([duration, np.zeros(len(instants), np.int64)])
    stage = np.flatnonzero(stage_time != NO_TIME)
    packet = np.concatenate([columns["packet"][row], stages["packet"][stage]])
    order = np.argsort(packet, kind="stable")
    none, no_row = np.full(len(stage), UNKNOWN), np.full(len(row), UNKNOWN)

    def both(of_events: Int64s, of_stages: Int64s) -> Int64s:
        return np.concatenate([of_events, of_stages])[order]

    stage_duration = stages["duration"][stage]
    table = _Table(
        packet[order],
        both(columns["state"][row], stages["state"][stage]),
        both(time[row], stage_time[stage]),
        both(duration, np.where((stage_duration >= 0) & (stage_duration < 1 << 60), stage_duration, 0)),
        both(columns["name"][row], stages["name"][stage]),
        both(columns["category"][row], none),
        np.empty(0, np.uint8),
        both(columns["track"][row], none),
        both(row, none),
        both(no_row, stage),
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        columns,
        time,
        stages,
        slices.unmatched_ends,
        from_1970 and stages_from_1970,
    )
    packets.without_time += int(np.count_nonzero(time == NO_TIME) + np.count_nonzero(stage_time == NO_TIME))
    table.row_of_event, table.row_of_stage = (
        _inverse(table.row, len(time)),
        _inverse(table.stage, len(stage_time)),
    )
    table.links = _links(packets, table)
    table.name = np.where(table.name == UNKNOWN, packets.strings[""], table.name)
    table.kind = _kinds(packets, table)
    return table


def _times(packets: Packets, columns: Mapping[str, Int64s]) -> tuple[Int64s, bool]:
    return packets.clocks.unix_times(
        columns["packet"], columns["sequence"], columns["clock"], columns["time"]
    )


def _inverse(rows: Int64s, count: int) -> Int64s:
    inverse = np.full(count, UNKNOWN, np.int64)
    known = np.flatnonzero(rows != UNKNOWN)
    inverse[rows[known]] = known
    return inverse


def _links(packets: Packets, table: _Table) -> dict[str, tuple[Int64s, Int64s]]:
    """The annotations that link events, of events and of stages; of unknown names of one key the values are joined."""
    found = {}
    for name in schema.LINKS:
        rows, values = packets.links[name].joined()
        rows = values_at(table.row_of_event, rows)
        stage_rows, stage_values = packets.stage_links[name].joined()
        stage_rows = values_at(table.row_of_stage, stage_rows)
        rows, values = np.concatenate([rows, stage_rows]), np.concatenate([values, stage_values])
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
    stage = values_at(table.stages["stage"], table.stage)
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
    types = values_at(table.columns["type"], table.row)
    kind[types == schema.INSTANT] = EventKind.INSTANT
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


def _assembled(
    source: Source, packets: Packets, table: _Table, starts: Sequence[BatchStart], truncated: str
) -> RankTrace:
    descriptions = Descriptions.of(packets.tracks)
    track, tracks = _tracks(packets, table, descriptions)
    counters, counter_tracks = counters_of(packets, descriptions, table.columns, table.time, len(tracks))
    keys = {**_keys(table), **_categories(packets, table)}
    _submitted(packets, table, keys)
    launches = _flows(packets, table, keys)
    statements = _communications(packets, table)
    events = Events(
        table.kind,
        table.name.astype(np.int32),
        track.astype(np.int32),
        table.start,
        table.duration,
        np.zeros(len(table.kind), np.int32),
        table.packet,
    )
    rank = packets.ranks.pop() if len(packets.ranks) == 1 else None
    timed = ~events.of_kind(EventKind.SPAN, EventKind.OVERHEAD)
    start, end = events.start[timed], events.end[timed]
    info = SourceInfo(
        path=source.path,
        format=TrackEventReader.name,
        rank=rank if rank is not None and rank <= LARGEST_RANK else None,
        pid=_process(tracks, track, table.kind),
        events=len(events),
        records=packets.count,
        bytes=source.bytes,
        start_ns=int(start.min()) if len(start) else None,
        end_ns=int(end.max()) if len(end) else None,
    )
    return RankTrace(
        [info],
        packets.strings,
        events,
        tracks + counter_tracks,
        {key: column for key, column in keys.items() if len(column)},
        counters,
        communications=statements,
        launch_flows=launches,
        payloads=[
            TrackEventPayloads(
                source, starts, table.packet, table.state.astype(np.int32), packets.states.texts
            )
        ],
        findings=list(_findings(source.path, packets, table, truncated)),
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
    device[rows] = np.where(device[rows] == UNKNOWN_NUMBER, table.stages["gpu"][stages], device[rows])
    texts = packets.strings.texts()
    queues, index = np.unique(table.stages["queue"][stages], return_inverse=True)
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
        stage = values_at(table.stages["stage"], table.stage)
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
    callers, numbers = packets.submitted.joined()
    caller = values_at(table.row_of_event, callers)
    stage = values_at(table.row_of_stage, lookup(table.stages["number"], numbers))
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
    events, numbers = packets.flows.joined()
    row = values_at(table.row_of_event, events)
    row, numbers = row[row != UNKNOWN], numbers[row != UNKNOWN]
    order = np.lexsort((row, table.start[row], numbers))
    row, numbers = row[order], numbers[order]
    follows = numbers[1:] == numbers[:-1]
    source, target = row[:-1][follows], row[1:][follows]
    correlation = keys[Key.CORRELATION].dense(len(table.kind), UNKNOWN)
    launch = (correlation[source] == correlation[target]) & (correlation[source] != UNKNOWN)
    declared = launch & (table.kind[source] == EventKind.RUNTIME) & np.isin(table.kind[target], GPU_WORK)
    waiting, awaited = packets.waits.joined()
    later = values_at(table.row_of_stage, waiting)
    earlier = values_at(table.row_of_stage, lookup(table.stages["number"], awaited))
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
    """What events declare, if events of their kind describe communication by such a name or by their arguments."""
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
