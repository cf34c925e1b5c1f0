"""Numbers of processes and threads in JSON. Viewers append them to names, so they are those that people know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from msgspec import Struct

from tracelink.converters.perfetto.json.schema import metadata_event
from tracelink.converters.perfetto.timeline.groups import GROUPS_PROCESS

ROW = " · row"
"""Ends the names of threads that have no number of their own: a viewer shows `PyTorch Profiler · row 3`."""

LARGEST = (1 << 31) - 1


class NamedThread(Struct, frozen=True):
    """A thread of the timeline: its name, and its number and process in the source if known."""

    name: str
    original: str | None
    original_pid: str | None = None


class ShownProcess(Struct, frozen=True):
    """A rank, or all process groups, as one process."""

    pid: int
    name: str
    order: int
    labels: str
    threads: Sequence[NamedThread]
    tids: Sequence[int]
    rows: frozenset[int]
    """Numbers of threads that have none of their own."""

    @classmethod
    def of_rank(
        cls, rank: int, title: str, labels: Sequence[str], threads: Sequence[NamedThread]
    ) -> ShownProcess:
        """The process of a rank: a viewer shows `node-1 · rank 3`."""
        host = title.partition(" · ")[2]
        name = f"{host} · rank" if host else "rank"
        return cls(rank, name, rank + 1, ", ".join(labels), threads, *_tids(threads, rank))

    @classmethod
    def of_groups(cls, ranks: int, threads: Sequence[NamedThread]) -> ShownProcess:
        """The process of all groups, before those of all ranks: a viewer shows `collectives · world size 8`."""
        name = f"{GROUPS_PROCESS} · world size"
        return cls(ranks, name, 0, GROUPS_PROCESS, threads, *_tids(threads, ranks))

    def metadata(self) -> Iterator[dict[str, Any]]:
        """The events that give the process and its threads their names and their order."""
        yield metadata_event("process_name", self.pid, 0, {"name": self.name})
        yield metadata_event("process_labels", self.pid, 0, {"labels": self.labels})
        yield metadata_event("process_sort_index", self.pid, 0, {"sort_index": self.order})
        for order, (tid, thread) in enumerate(zip(self.tids, self.threads, strict=True), 1):
            args: dict[str, Any] = {
                "name": thread.name.removesuffix(f" {tid}") + (ROW if tid in self.rows else "")
            }
            args |= {} if thread.original is None else {"original tid": thread.original}
            args |= {} if thread.original_pid is None else {"original pid": thread.original_pid}
            yield metadata_event("thread_name", self.pid, tid, args)
            yield metadata_event("thread_sort_index", self.pid, tid, {"sort_index": order})


def counter_names(names: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The names of the counters of a rank, unique: engines know counters of a process by their names."""
    return [
        f"{name} · {label}" if names.index(name) != index and label else name
        for index, (name, label) in enumerate(zip(names, labels, strict=True))
    ]


def _tids(threads: Sequence[NamedThread], pid: int) -> tuple[list[int], frozenset[int]]:
    """The id of a thread, the number of a stream, else a row; a thread is not numbered as its process."""
    chosen: dict[int, int] = {}
    for index, thread in enumerate(threads):
        number = _own_number(thread)
        if number is not None and number != pid:
            chosen.setdefault(number, index)
    own = {index: number for number, index in chosen.items()}
    rows = (row for row in count(1) if row not in chosen and row != pid)
    tids = [own[index] if index in own else next(rows) for index in range(len(threads))]
    return tids, frozenset(tids) - chosen.keys()


def _own_number(thread: NamedThread) -> int | None:
    text = thread.original or ""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= LARGEST:
        return None
    return int(text) if re.match(rf"rank \d+ (main thread|thread|stream) {text}(?!\d)", thread.name) else None
