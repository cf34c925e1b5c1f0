"""The columns of a Kineto file, put together as a rank trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.kineto.columns import Columns
from tracelink.converters.kineto.counters import counters_of
from tracelink.converters.kineto.flows import Arrows, Ends, bind, sort_flows
from tracelink.converters.kineto.halves import pair
from tracelink.converters.kineto.header import base_time, process_groups, source_info
from tracelink.converters.kineto.payloads import ARGUMENTS
from tracelink.converters.kineto.schema import BASE_TIME, INSTANTS, MEMORY_EVENT, ON_DEVICE, kind_of
from tracelink.converters.kineto.tracks import Names, tracks_of
from tracelink.damage import damage_findings
from tracelink.events import Bools, EventKind, Events, Int32s, Int64s, Key, KeyColumn, Track, TrackKind
from tracelink.findings import Finding, Severity
from tracelink.rereading import RereadPayloads
from tracelink.salvage import Damage
from tracelink.sources import Source
from tracelink.trace import RankTrace


def assemble(
    source: Source,
    columns: Columns,
    header: Mapping[str, Any],
    damage: Sequence[Damage],
    cut_off: tuple[int, str] | None,
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
    trace.findings += _findings(source.path, columns, damage, cut_off, len(events))
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
    path: str, columns: Columns, damage: Sequence[Damage], cut_off: tuple[int, str] | None, kept: int
) -> Iterator[Finding]:
    yield from damage_findings(path, damage, cut_off, kept, "events")
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
        yield Finding(Severity.INFO, "loose_arrow", text, loose, path)
