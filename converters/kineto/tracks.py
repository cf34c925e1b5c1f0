"""Threads, streams and counters of a Kineto trace, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink.converters.kineto.columns import Named
from tracelink.converters.kineto.elements import TEXT_LANE
from tracelink.converters.kineto.schema import (
    LABELS,
    NAME,
    PROCESS_LABELS,
    PROCESS_NAME,
    PROCESS_SORT,
    SORT_INDEX,
    THREAD_NAME,
    THREAD_SORT,
)
from tracelink.events import Bools, Int32s, Int64s, Track, TrackKind
from tracelink.statements import text_in

SYNC_STREAM = 1_000_000
"""Since 2026 stream synchronisations stand on a lane of their own: the stream's number plus this."""


FARTHEST = 1 << 62
"""An order beyond this is none."""


@dataclass(slots=True)
class Names:
    """What the metadata records say; the last record of a thread wins, as in every viewer."""

    texts: Sequence[str]
    processes: dict[int, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    process_sort: dict[int, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    thread_sort: dict[tuple[int, int], int] = field(default_factory=dict)

    def learn(self, records: Sequence[Named]) -> int:
        """Takes in metadata records; returns how many are of a kind that is not known."""
        unknown = 0
        for record in records:
            match record.what:
                case k if k == PROCESS_NAME:
                    self.processes[record.pid] = text_in(record.arguments.get(NAME))
                case k if k == PROCESS_LABELS:
                    self.labels[record.pid] = text_in(record.arguments.get(LABELS))
                case k if k == PROCESS_SORT:
                    self.process_sort[record.pid] = _order(record.arguments.get(SORT_INDEX))
                case k if k == THREAD_NAME:
                    self.threads[record.pid, record.tid] = text_in(record.arguments.get(NAME))
                case k if k == THREAD_SORT:
                    self.thread_sort[record.pid, record.tid] = _order(record.arguments.get(SORT_INDEX))
                case _:
                    unknown += 1
        return unknown

    def text(self, identity: int) -> str:
        """A process or thread id as text."""
        place = TEXT_LANE - identity
        return self.texts[place] if 0 <= place < len(self.texts) else str(identity)


def tracks_of(pid: Int64s, tid: Int64s, on_device: Bools, names: Names) -> tuple[Int32s, list[Track]]:
    """The track of each event: one for each (process, thread), devices apart from processes of the same number."""
    changes = np.flatnonzero(
        (pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1]) | (on_device[1:] != on_device[:-1])
    )
    heads = np.concatenate([[0], changes + 1])[: len(pid)]
    runs = np.stack([pid[heads], tid[heads], on_device[heads].astype(np.int64)])
    lanes, of_run = _numbered(runs)
    track = np.repeat(of_run.astype(np.int32), np.diff(np.append(heads, len(pid))))
    return track, [_track(*lane, names) for lane in lanes]


def _numbered(rows: Int64s) -> tuple[list[tuple[int, int, int]], Int64s]:
    """The distinct columns of three rows, and for each column which one it is."""
    code = np.zeros(rows.shape[1], np.int64)
    for row in rows:
        values, place = np.unique(row, return_inverse=True)
        code = code * len(values) + place
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return [tuple(column) for column in rows[:, first].T.tolist()], number


def _track(pid: int, tid: int, on_device: int, names: Names) -> Track:
    process, identity = names.text(pid), names.text(tid)
    label = names.threads.get((pid, tid), "")
    sort = names.thread_sort.get((pid, tid), tid if tid > TEXT_LANE else 0)
    if on_device:
        stream = tid - SYNC_STREAM if tid >= SYNC_STREAM else tid
        number = identity.removeprefix("stream ")
        plain = f"stream {number}" if tid < SYNC_STREAM else f"stream {stream} synchronisation"
        return Track(TrackKind.STREAM, process, identity, label.strip() or plain, sort=sort)
    if pid <= TEXT_LANE or (tid <= TEXT_LANE and not identity.isdigit()) or pid < 0:
        return Track(TrackKind.PROCESS, process, identity, label or identity, sort=sort)
    return Track(TrackKind.THREAD, process, identity, label or f"thread {identity}", sort=sort)


def _order(value: Any) -> int:
    return value if type(value) is int and abs(value) < FARTHEST else 0
