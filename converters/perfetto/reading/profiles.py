"""Extracts from a native trace the profile of each rank, as JSON that the reader of profiles reads."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, cast

import numpy as np
from msgspec import Struct

from tracelink.converters.perfetto.json.events import unclosed
from tracelink.converters.perfetto.json.schema import END, EVENTS, LAST, NEXT
from tracelink.converters.perfetto.json_text import encoded, micros, numbers, unclosed_object
from tracelink.converters.perfetto.native.decode import BlockFacts, CounterFact, ThreadFact
from tracelink.converters.perfetto.native.trace import NativeTrace
from tracelink.converters.perfetto.reading.as_json import EventTexts, ThreadIds, events_by_group
from tracelink.converters.perfetto.timeline.counters import OUTSTANDING
from tracelink.converters.perfetto.timeline.layout import OVERHEAD, SUMMARY
from tracelink.converters.perfetto.timeline.schema import (
    CATEGORIES,
    CROSS_RANK_FLOW_NAMES,
    OWN_HEADER,
    SUMMARY_CATEGORY,
)
from tracelink.io.sources import Source, of_spool
from tracelink.model.columns import Bools, Int64s
from tracelink.model.events import EventKind

PROFILER = "kineto"
"""The reader of profiles."""


DISTRIBUTED = "distributedInfo"


RANK_BEFORE = re.compile(r"rank \d+ ")


ROLE_BEHIND = re.compile(r" · (compute|communication|copy)$")


THREAD = re.compile(r"(?:main )?(thread -?\d+)(?: (.*))?$")


DERIVED = re.compile(rf"(CPU|GPU|device type \d+)( \d+)? (allocated|reserved)$|.*{OUTSTANDING}")
"""Counters that tracelink derives from events."""


NOT_PROFILED = {
    CATEGORIES[EventKind.NODE],
    CATEGORIES[EventKind.RECORD],
    *CROSS_RANK_FLOW_NAMES.values(),
    SUMMARY_CATEGORY,
}


class Profiles(Struct, frozen=True):
    """The profiles in a file."""

    source: Source
    native: NativeTrace

    def of_ranks(self) -> list[Source]:
        """A source with the JSON of each rank that has a profile. The file is read once for all of them."""
        native, blocks = self.native, self.native.facts.blocks
        wanted = np.where(self._profiled(), self._block_of_event(), -1)
        chosen = np.unique(wanted[wanted >= 0]).tolist()
        spools = {block: _spool(self._opening(blocks[block])) for block in chosen}
        texts = EventTexts(self.source, native, self._thread_ids(), lambda _: None, recorded=True)
        for block, text in events_by_group(texts, 0, len(native.batch_starts), wanted):
            spools[block].write(text)
        for block, spool in spools.items():
            spool.writelines(self._closing(blocks[block]))
        return [
            of_spool(f"{self.source.path}:rank-{blocks[block].rank}", spool, self.source)
            for block, spool in spools.items()
        ]

    def unprofiled(self) -> int:
        """The number of events of ranks that no profiler recorded."""
        summary = np.array([*(text == SUMMARY_CATEGORY for text in self.native.texts), False], np.bool_)
        drawn = ~self._profiled() & ~summary[self.native.events.category]
        return int(np.count_nonzero(drawn & (self._block_of_event() >= 0)))

    def _opening(self, facts: BlockFacts) -> bytes:
        """Everything before the events of a rank."""
        return unclosed_object(self._header(facts)) + EVENTS + unclosed(iter(_names(facts)))

    def _closing(self, facts: BlockFacts) -> Iterator[bytes]:
        """The samples of its counters, and the end of its document."""
        yield from self._samples(facts)
        yield (LAST if any(True for _ in _names(facts)) else b"") + END

    def _header(self, facts: BlockFacts) -> dict[str, Any]:
        """The header of the rank's profile, and the time 0."""
        whole = self.native.facts.header or {}
        header: dict[str, Any] = {name: value for name, value in whole.items() if name != OWN_HEADER}
        world_size = None
        for rank in _dicts(_dict(whole.get(OWN_HEADER)).get("ranks")):
            if rank.get("rank") == facts.rank:
                world_size = rank.get("world_size")
                for source in _dicts(rank.get("sources")):
                    header |= source if source.get("format") == PROFILER else {}
        known = {} if world_size is None else {"world_size": world_size}
        header[DISTRIBUTED] = (
            {"rank": facts.rank} | known | _dict(header.get(DISTRIBUTED)) | {"rank": facts.rank}
        )
        return {DISTRIBUTED: header.pop(DISTRIBUTED)} | header | {"baseTimeNanoseconds": self.native.base}

    def _profiled(self) -> Bools:
        """A mask of the events that a profiler recorded."""
        texts = self.native.texts
        others = np.array([*(text in NOT_PROFILED for text in texts), False], np.bool_)
        return ~others[self.native.events.category]

    def _block_of_event(self) -> Int64s:
        """For each event the index of its rank's facts; -1 for those of process groups."""
        numbered = enumerate(self.native.facts.blocks)
        places = [-1 if block.rank is None else place for place, block in numbered for _ in block.threads]
        return np.array(places, np.int64)[self.native.events.thread]

    def _thread_ids(self) -> list[ThreadIds]:
        return [
            ThreadIds(encoded(pid), encoded(tid))
            for block in self.native.facts.blocks
            for pid, tid in _thread_places(block)
        ]

    def _samples(self, facts: BlockFacts) -> Iterator[bytes]:
        native, processes = self.native, _processes(facts)
        first = native.facts.counters.index(facts.counters[0]) if facts.counters else 0
        for place, counter in enumerate(facts.counters, first):
            if DERIVED.match(counter.name):
                continue
            some = np.flatnonzero(native.samples.counter == place)
            opening, value = _sample_texts(counter, processes)
            for time, number in zip(
                micros(native.samples.time[some]), numbers(native.samples.value[some]), strict=True
            ):
                yield b"%s%s%s%s}" % (opening, time, value, number)


def _spool(opening: bytes) -> BinaryIO:
    """An anonymous file that starts with this text."""
    spool = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  lives as long as the source
    spool.write(opening)
    return spool


def _sample_texts(counter: CounterFact, processes: Mapping[int, int | str]) -> tuple[bytes, bytes]:
    """The text before the time of a sample, and the text between time and value."""
    name, _, series = counter.name.rpartition(" ")
    event = {"ph": "C", "name": name, "pid": processes.get(counter.pid, 0)}
    opening = NEXT + encoded(event).removesuffix(b"}") + b',"ts":'
    return opening, b',"args":{%s:' % encoded(series)


def _names(facts: BlockFacts) -> Iterator[dict[str, Any]]:
    """The names of processes and threads in the profile."""
    processes = _processes(facts)
    for process in facts.processes:
        yield _named("process_labels", processes[process.pid], 0, {"labels": process.label})
    known: set[tuple[int | str, int | str]] = set()
    for thread, (pid, tid) in zip(facts.threads, _thread_places(facts), strict=True):
        if (pid, tid) not in known and thread.original != SUMMARY:
            known.add((pid, tid))
            yield _named("thread_name", pid, tid, {"name": _own_name(thread)})


def _named(name: str, pid: int | str, tid: int | str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _own_name(thread: ThreadFact) -> str:
    """The name as profilers write it."""
    name = ROLE_BEHIND.sub("", RANK_BEFORE.sub("", thread.name, count=1))
    if not (found := THREAD.match(name)):
        return name
    return f"{found[1]} ({found[2]})" if found[2] else found[1]


def _processes(facts: BlockFacts) -> dict[int, int | str]:
    """The number of each process in the source."""
    return {process.pid: _number(process.original) for process in facts.processes}


def _thread_places(facts: BlockFacts) -> Iterator[tuple[int | str, int | str]]:
    """Process and number of each thread in the source."""
    processes = _processes(facts)
    for thread in facts.threads:
        overhead = thread.name.endswith("profiler overhead")
        yield int(OVERHEAD) if overhead else processes.get(thread.pid, 0), _number(thread.original)


def _number(text: str | None) -> int | str:
    text = text or ""
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
