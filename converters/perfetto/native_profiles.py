"""Reads native traces of tracelink: the profile of each rank, as JSON that the reader of profiles reads."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Source, of_spool
from tracelink._model.columns import Bools, Int64s, distinct
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.findings import Finding
from tracelink._model.trace import RankTrace, SourceInfo
from tracelink.converters.perfetto import is_own
from tracelink.converters.perfetto.facts import encoded, micros, numbers, unclosed_object
from tracelink.converters.perfetto.json_events import END, EVENTS, LAST, NEXT, unclosed
from tracelink.converters.perfetto.native_json import (
    EventTexts,
    ThreadIds,
    events_by_group,
    without_arguments,
)
from tracelink.converters.perfetto.native_trace import (
    BlockFacts,
    CounterFact,
    NativeTrace,
    ThreadFact,
    findings_of,
    read_native,
    unprofiled_finding,
)
from tracelink.converters.perfetto.timeline import schema
from tracelink.converters.perfetto.timeline.groups import OUTSTANDING
from tracelink.converters.perfetto.timeline.layout import OVERHEAD, SUMMARY
from tracelink.plugins import Inspected, reader

PROFILER = "kineto"
"""The reader of profiles."""


DISTRIBUTED = "distributedInfo"


RANK_BEFORE = re.compile(r"rank \d+ ")


ROLE_BEHIND = re.compile(r" · (compute|communication|copy)$")


THREAD = re.compile(r"(?:main )?(thread -?\d+)(?: (.*))?$")


DERIVED = re.compile(rf"(CPU|GPU|device type \d+)( \d+)? (allocated|reserved)$|.*{OUTSTANDING}")
"""Counters that tracelink derives from events."""


NOT_PROFILED = {
    schema.CATEGORIES[EventKind.NODE],
    schema.CATEGORIES[EventKind.RECORD],
    *schema.CROSS_RANK_FLOW_NAMES.values(),
    schema.SUMMARY_CATEGORY,
}


class Profiles(Struct, frozen=True):
    """The profiles in a file."""

    source: Source
    native: NativeTrace

    @property
    def ranks(self) -> list[int]:
        """The indexes of the facts of ranks that have a profile."""
        found: list[int] = np.unique(self._wanted()).tolist()
        return [block for block in found if block >= 0]

    def _wanted(self) -> Int64s:
        """For each event of a profile the index of its rank's facts; -1 for other events."""
        return np.where(self._profiled(), self._block_of_event(), -1)

    def of_ranks(self) -> list[Source]:
        """A source with the JSON of each rank that has a profile. The file is read once for all of them."""
        native, blocks, wanted = self.native, self.native.facts.blocks, self._wanted()
        spools = {block: _spool(self._opening(blocks[block])) for block in self.ranks}
        texts = EventTexts.of(self.source, native, self._thread_ids(), recorded=True)
        for block, text in events_by_group(texts, 0, len(native.batch_starts), wanted):
            spools[block].write(text)
        for block, spool in spools.items():
            spool.writelines(self._closing(blocks[block]))
        return [
            of_spool(f"{self.source.path}:rank-{blocks[block].rank}", spool, self.source)
            for block, spool in spools.items()
        ]

    def inspected(self, engine: Engine) -> list[Inspected]:
        """The source of the profile of each rank. The reader of profiles reads a few of its events only."""
        wanted = self._wanted()
        texts = EventTexts.of(self.source, self.native, self._thread_ids(), recorded=True)
        found = []
        for block in self.ranks:
            facts = self.native.facts.blocks[block]
            some = _SomeEvents.of(self.native, np.flatnonzero(wanted == block))
            spool = _spool(self._opening(facts))
            spool.write(without_arguments(texts, some.rows))
            spool.writelines(_end(facts))
            path = f"{self.source.path}:rank-{facts.rank}"
            trace = reader(PROFILER).read(of_spool(path, spool, self.source), engine)
            samples = sum(1 for _ in self._samples(facts))
            stored = self.source.bytes * some.count // np.count_nonzero(wanted >= 0)
            info = replace(some.info(trace), bytes=int(stored))
            info = replace(info, records=info.records + samples)
            rank = replace(self.source, path=path, local=None, format="")
            found.append(Inspected(rank, info, trace.findings, trace.devices))
        return found

    def unprofiled(self) -> int:
        """The number of events of ranks that no profiler recorded."""
        summary = np.array(
            [*(text == schema.SUMMARY_CATEGORY for text in self.native.texts), False], np.bool_
        )
        drawn = ~self._profiled() & ~summary[self.native.events.category]
        return int(np.count_nonzero(drawn & (self._block_of_event() >= 0)))

    def _opening(self, facts: BlockFacts) -> bytes:
        """Everything before the events of a rank."""
        return unclosed_object(self._header(facts)) + EVENTS + unclosed(iter(_names(facts)))

    def _closing(self, facts: BlockFacts) -> Iterator[bytes]:
        """The samples of its counters, and the end of its document."""
        yield from self._samples(facts)
        yield from _end(facts)

    def _header(self, facts: BlockFacts) -> dict[str, Any]:
        """The header of the rank's profile, and the time 0."""
        whole = self.native.facts.header or {}
        header: dict[str, Any] = {name: value for name, value in whole.items() if name != schema.OWN_HEADER}
        world_size = None
        for rank in _dicts(_dict(whole.get(schema.OWN_HEADER)).get("ranks")):
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
            (encoded(pid), encoded(tid))
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


def _end(facts: BlockFacts) -> Iterator[bytes]:
    yield (LAST if any(True for _ in _names(facts)) else b"") + END


class _SomeEvents(Struct, frozen=True):
    """Of the events of each category on each thread, those that start first and end last."""

    rows: Int64s
    kind: Int64s
    """For each row a number of its category and thread."""
    counts: Int64s
    """The number of all events by this number."""

    @classmethod
    def of(cls, native: NativeTrace, rows: Int64s) -> _SomeEvents:
        """Some of the events in these rows."""
        events = native.events
        start, end = events.start[rows], events.start[rows] + events.duration[rows]
        instant = events.instant[rows].astype(np.int64)
        kind, first = distinct(events.thread[rows], events.category[rows] + 1, instant)
        chosen = [first]
        for order in (np.lexsort((-start, kind)), np.lexsort((end, kind))):
            last = np.searchsorted(kind[order], np.arange(len(first)), side="right") - 1
            chosen.append(order[last])
        some = np.unique(np.concatenate(chosen))
        return cls(rows[some], kind[some], np.bincount(kind))

    @property
    def count(self) -> int:
        """The number of all events."""
        return int(self.counts.sum())

    def info(self, trace: RankTrace) -> SourceInfo:
        """The source of the profile of all events; `trace` has the events in `rows`."""
        info, events = trace.source, trace.events
        first = int(events.payload.min()) if len(events) else 0
        kind, which = np.unique(self.kind[events.payload - first], return_index=True)
        processes = Counter[str]()
        for track, count in zip(events.track[which].tolist(), self.counts[kind].tolist(), strict=True):
            if trace.tracks[track].kind == TrackKind.THREAD and trace.tracks[track].process.isdecimal():
                processes[trace.tracks[track].process] += count
        return replace(
            info,
            pid=int(processes.most_common(1)[0][0]) if processes else None,
            events=int(self.counts[kind].sum()),
            records=info.records + self.count - len(self.rows),
        )


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


# The reader.


class PerfettoReader:
    """Reads native traces that tracelink wrote, as far as profilers recorded their content."""

    name = "perfetto"

    def inspect(self, source: Source, engine: Engine) -> list[Inspected]:
        """The source of the profile of each rank; the first rank also has the findings on the file."""
        profiles, findings = self._profiles(source, engine)
        ranks = profiles.inspected(engine)
        if any(rank.findings for rank in ranks):
            # They may be about other events, too.
            traces = [(rank, self.read(rank, engine)) for rank in profiles.of_ranks()]
            ranks = [
                Inspected(
                    rank,
                    replace(trace.source, bytes=known.info.bytes),
                    trace.findings,
                    trace.devices,
                )
                for known, (rank, trace) in zip(ranks, traces, strict=True)
            ]
        return [
            Inspected(
                rank.source,
                replace(rank.info, format=self.name),
                [*(() if number else findings), *rank.findings],
                rank.devices,
            )
            for number, rank in enumerate(ranks)
        ]

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A profile of each rank."""
        profiles, findings = self._profiles(source, engine)
        return profiles.of_ranks(), findings

    def _profiles(self, source: Source, engine: Engine) -> tuple[Profiles, list[Finding]]:
        """The profiles in a file, and findings on it."""
        profiles = Profiles(source, read_native(source, engine))
        if not profiles.ranks:
            broken = profiles.native.damage.truncated_at
            raise UnreadableError(
                f"{broken}; no profile was found before that" if broken else "this trace contains no profile",
                source=source.path,
                advice="Use the files from which it was made; `tracelink merge -o FILE.json` writes it as JSON.",
            )
        findings = [
            *findings_of(source.path, profiles.native),
            *unprofiled_finding(source.path, profiles.unprofiled()),
        ]
        return profiles, findings

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The events of one rank: `source` is its profile, or a file with only one rank."""
        if not is_own(source.head()):
            return _renamed(reader(PROFILER).read(source, engine))
        ranks, findings = self.unpacked(source, engine)
        if len(ranks) != 1:
            raise UnreadableError(
                f"this trace contains {len(ranks)} ranks; one rank was requested",
                source=source.path,
                advice="tracelink.load reads all of them.",
            )
        trace = self.read(ranks[0], engine)
        trace.findings += findings
        return trace


def _renamed(trace: RankTrace) -> RankTrace:
    """The same trace under the name of this format; if the profile itself is among the inputs, this one is not used."""
    sources = [replace(source, format=PerfettoReader.name) for source in trace.sources]
    return replace(trace, sources=sources, derived_from=trace.derived_from | {PROFILER})
