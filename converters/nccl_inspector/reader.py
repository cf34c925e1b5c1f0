"""Files of the Inspector as rank traces: verbose operations are kernels, and rates are counters."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Source, of_spool
from tracelink._io.system import temporary_file
from tracelink._model.columns import UNKNOWN, Bools, Float64s, Int64s, StringTable
from tracelink._model.communications import Communications
from tracelink._model.errors import UnreadableError
from tracelink._model.events import Counters, EventKind, Events, Key, Track, TrackKind, known_keys
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.operations import Operation, operation_of
from tracelink._model.text import counted, subject
from tracelink._model.trace import Payload, ProcessGroup, RankTrace
from tracelink.converters.nccl_inspector import schema
from tracelink.converters.nccl_inspector.schema import (
    Communicator,
    Operations,
    has_several_processes,
    lines_in,
    operations_in,
    process_of,
)
from tracelink.plugins.traces import TraceBuilder

FORMAT = "nccl-inspector"
BACKEND = "nccl"
BYTE = "Byte"
"""The type of the elements: files have sizes in bytes."""

GATHERING = frozenset({Operation.ALL_GATHER})
SCATTERING = frozenset({Operation.REDUCE_SCATTER})
"""Operations whose size is that of one rank: of its input, and of its output."""
EQUAL = frozenset(
    {Operation.ALL_REDUCE, Operation.BROADCAST, Operation.REDUCE, Operation.SEND, Operation.RECV}
)

RATES = (("bus_rate", "bus GB/s", "GB/s"), ("algorithm_rate", "algorithm GB/s", "GB/s"))
TIMES = (("microseconds", "execution time", "us"),)


class InspectorReader:
    """Reads what the Inspector of NCCL or RCCL wrote."""

    name = FORMAT

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A source for each process in a file."""
        if not has_several_processes(source):
            return [source], []
        spools: dict[tuple[str, int], BinaryIO] = {}
        current: tuple[str, int] | None = None
        lost, damage = 0, ""
        with source.open() as stream:
            for _, text, complete in lines_in(stream, lambda _: None):
                current = process_of(text) or current
                if current is None or not complete:
                    lost += 1
                    continue
                if current not in spools:
                    spools[current] = temporary_file()  # it lives as long as the source
                spools[current].write(text + b"\n")
            damage = stream.damage
        findings = [_not_assigned(source.path, lost, damage)] if lost or damage else []
        named = [
            of_spool(f"{source.path}:{host or 'process'}-pid{pid}", spool, source)
            for (host, pid), spool in spools.items()
        ]
        return [replace(one, format=FORMAT) for one in named], findings

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The operations of one process."""
        operations, damage = operations_in(source, engine.meter.add)
        if not operations.lines:
            raise UnreadableError(
                "no line of it is a record of the Inspector",
                source=source.path,
                advice="Record it again with NCCL_INSPECTOR_ENABLE=1.",
            )
        return _Assembly(source, operations).trace(damage)


def _not_assigned(path: str, lines: int, damage: str) -> Finding:
    cause = f" ({damage})" if damage else ""
    message = f"{path}: {subject(lines, 'line', 'are')} skipped: incomplete, or of an unknown process{cause}."
    return Finding(Severity.WARNING, "truncated", message, lines, path)


class _Assembly(Struct):
    """A trace of the operations of one process."""

    source: Source
    operations: Operations

    def trace(self, damage: str) -> RankTrace:
        """The whole trace."""
        found, strings = self.operations, StringTable()
        communicators = list(found.communicators)
        timed = found.column("start") > 0
        rows = np.flatnonzero(timed)
        events, communications, groups = self._events(strings, rows, communicators)
        tracks = [_stream(communicator) for communicator in communicators]
        counters, counter_tracks = self._counters(communicators, timed, len(tracks))
        rank, world = _rank_of(communicators)
        times = np.concatenate([events.start, events.end, counters.time])
        trace = TraceBuilder(
            self.source,
            FORMAT,
            version=_most(found.versions),
            rank=rank,
            host=_most(found.hosts),
            world_size=world,
            pid=found.pids.most_common(1)[0][0] if found.pids else None,
            records=found.lines,
            start_ns=int(times.min()) if len(times) else None,
            end_ns=int(times.max()) if len(times) else None,
            header={"rec_mechanism": found.mechanism} if found.mechanism else {},
        )
        return trace.build(
            strings=strings,
            events=events,
            tracks=[*tracks, *counter_tracks],
            keys=known_keys(
                {Key.GROUP: communications.group, Key.COLLECTIVE_SEQUENCE: communications.sequence}
            ),
            counters=counters,
            groups=groups,
            communications=communications,
            payloads=[_Arguments(self.source, found.places, rows)],
            findings=list(_findings(self.source, found, communicators, len(rows), damage)),
        )

    def _events(
        self, strings: StringTable, rows: Int64s, communicators: Sequence[Communicator]
    ) -> tuple[Events, Communications, list[ProcessGroup]]:
        """A kernel for each operation with times, and what it declares.

        The numbers of collectives count those of one name, so that each name has a group of its own.
        """
        found = self.operations
        name, communicator, start, stop = (
            found.column(one)[rows] for one in ("name", "communicator", "start", "stop")
        )
        texts = found.names.texts()
        labels = strings.encode(f"{BACKEND}:{text or 'unknown'}" for text in texts)
        names = labels[name] if len(texts) else np.empty(0, np.int32)
        events = Events.of(
            kind=EventKind.KERNEL,
            name=names,
            track=communicator,
            start=start,
            duration=stop - start,
            source=0,
            payload=range(len(rows)),
        )
        pairs, pair = np.unique(np.stack([communicator, name], axis=1), axis=0, return_inverse=True)
        used = [_group(communicators[one], texts[text]) for one, text in pairs.tolist()]
        group = strings.encode(group.name for group in used)[pair.ravel()] if used else np.empty(0, np.int32)
        communications = self._communications(strings, rows, names, group, communicators)
        return events, communications, list({one.name: one for one in used}.values())

    def _communications(
        self,
        strings: StringTable,
        rows: Int64s,
        names: Any,
        group: Any,
        communicators: Sequence[Communicator],
    ) -> Communications:
        found = self.operations
        operations = [operation_of(text) for text in found.names.texts()]
        size = np.array([one.size for one in communicators], np.int64)
        own = np.array([one.rank for one in communicators], np.int64)
        communicator, name, stored, peer = (
            found.column(one)[rows] for one in ("communicator", "name", "bytes", "peer")
        )
        ranks, mine = (column[communicator] if len(column) else column for column in (size, own))
        given, got = _elements(operations, name, stored, ranks)
        is_send = np.array([one == Operation.SEND for one in operations], np.bool_)[name]
        message = found.column("message")[rows] > 0
        return Communications.of(
            len(rows),
            row=np.arange(len(rows)),
            operation=names,
            group=group,
            sequence=found.column("number")[rows],
            point_to_point=message,
            source=np.where(message, np.where(is_send, mine, peer), UNKNOWN),
            target=np.where(message, np.where(is_send, peer, mine), UNKNOWN),
            elements_in=given,
            elements_out=got,
            type=np.full(len(rows), strings[BYTE]),
            size=ranks,
        )

    def _counters(
        self, communicators: Sequence[Communicator], timed: Bools, first_track: int
    ) -> tuple[Counters, list[Track]]:
        """Rates and times of operations when they ended, else when their lines were written."""
        found = self.operations
        communicator = found.column("communicator")
        time = np.where(timed, found.column("stop"), found.column("written"))
        parts: list[Counters] = []
        tracks: list[Track] = []
        for column, title, unit in (*RATES, *TIMES):
            values = np.array(getattr(found, column), np.float64)
            for index, one in enumerate(communicators):
                rows = np.flatnonzero((communicator == index) & (time > 0) & ~np.isnan(values))
                if not len(rows):
                    continue
                rows = rows[np.argsort(time[rows], kind="stable")]
                parts.append(_samples(first_track + len(tracks), time[rows], values[rows]))
                tracks.append(_counter(one, title, unit))
        return Counters.concatenate(parts), tracks


def _elements(
    operations: Sequence[str], name: Int64s, stored: Int64s, ranks: Int64s
) -> tuple[Int64s, Int64s]:
    """Bytes that each rank sends and receives: files have the size of one rank's part."""
    known, most = stored >= 0, np.iinfo(np.int64).max // np.maximum(ranks, 1)
    whole = np.where(known & (ranks > 0) & (stored <= most), stored * np.maximum(ranks, 1), UNKNOWN)

    def are(names: frozenset[Operation]) -> Bools:
        found: Bools = np.array([one in names for one in operations], np.bool_)[name]
        return found

    unknown = np.full(len(stored), UNKNOWN, np.int64)
    equal = np.where(are(EQUAL), stored, unknown)
    given = np.where(are(GATHERING), stored, np.where(are(SCATTERING), whole, equal))
    got = np.where(are(GATHERING), whole, np.where(are(SCATTERING), stored, equal))
    return given, got


def _stream(communicator: Communicator) -> Track:
    return Track(TrackKind.STREAM, "", communicator.name, communicator.label)


def _counter(communicator: Communicator, title: str, unit: str) -> Track:
    label = f"{communicator.label} {title}"
    return Track(TrackKind.COUNTER, "", f"{communicator.name} {title}", label, unit=unit)


def _samples(track: int, time: Int64s, values: Float64s) -> Counters:
    return Counters(np.full(len(time), track, np.int32), time, values)


def _group(communicator: Communicator, operation: str) -> ProcessGroup:
    """The operations of one name in a communicator; all messages of a communicator are one group."""
    counted_as = "" if operation_of(operation) in (Operation.SEND, Operation.RECV) else operation
    name = f"{communicator.name} {counted_as}".strip()
    description = f"{communicator.description} {counted_as}".strip() if communicator.description else ""
    return ProcessGroup(name, description, (), max(communicator.size, 0), BACKEND)


def _rank_of(communicators: Sequence[Communicator]) -> tuple[int | None, int | None]:
    """The rank in the largest communicators, if it is the same in all of them, and the size of these."""
    world = max((one.size for one in communicators), default=UNKNOWN)
    ranks = {one.rank for one in communicators if one.size == world}
    if world <= 0 or len(ranks) != 1 or UNKNOWN in ranks:
        return None, None
    return ranks.pop(), world


def _most(values: Any) -> str:
    """The most frequent text; empty if there is none."""
    named = [(count, text) for text, count in values.items() if text]
    return max(named)[1] if named else ""


PROBLEMS: dict[str, tuple[Severity, str, str, str]] = {
    "damaged_line": (Severity.WARNING, "line", "are", "damaged, and skipped."),
    "other_line": (Severity.WARNING, "line", "are", "no operation, and skipped."),
    "no_communicator": (
        Severity.WARNING,
        "operation",
        "are",
        "skipped: no line before names the communicator.",
    ),
    "missing_lines": (
        Severity.WARNING,
        "line",
        "are",
        "missing: the dump_stats lines of the file count more.",
    ),
    "overwritten": (
        Severity.WARNING,
        "operation",
        "were",
        "overwritten before the Inspector wrote them. Record with a larger NCCL_INSPECTOR_DUMP_COLL_RING_SIZE.",
    ),
    "proxy_record": (Severity.INFO, "record", "are", "of the network proxy, and not used."),
}
"""What each problem means, after the number of things with it."""


def _findings(
    source: Source, found: Operations, communicators: Sequence[Communicator], timed: int, damage: str
) -> Iterator[Finding]:
    path = source.path
    problems = found.problems.copy()
    if damage:
        del problems[Truncated.reason]
        yield Truncated(path, f"it is damaged ({damage})", found.lines, "line").finding()
    if count := problems[Truncated.reason]:
        message = (
            f"{path}: the last line is incomplete: the process still runs, or was killed. It is skipped."
        )
        yield Finding(Severity.WARNING, Truncated.reason, message, count, path)
    for reason, (severity, thing, verb, rest) in PROBLEMS.items():
        if count := problems[reason]:
            message = f"{path}: {subject(count, thing, verb)} {rest}"
            yield Finding(severity, reason, message, count, path)
    untimed = len(found) - timed
    if untimed:
        message = (
            f"{path}: {subject(untimed, 'operation', 'have')} no times: only counters are made of them. "
            "Record with NCCL_INSPECTOR_DUMP_VERBOSE=1 to match collectives across ranks."
        )
        yield Finding(Severity.INFO, "no_times", message, untimed, path)
    unwritten = sum(not (start or written) for start, written in zip(found.start, found.written, strict=True))
    if unwritten:
        message = f"{path}: {subject(unwritten, 'operation', 'have')} no time at all, and are skipped."
        yield Finding(Severity.WARNING, "without_time", message, unwritten, path)
    if source.rank is None and _rank_of(communicators)[0] is None:
        message = (
            f"{path}: the rank of the file is unknown: it differs between "
            f"{counted(len(communicators), 'communicator')}, or none names it. Set it with --rank {path}=N."
        )
        yield Finding(Severity.WARNING, "unknown_communicator_rank", message, source=path)
    if len(found.hosts) > 1 or len(found.pids) > 1:
        message = (
            f"{path}: its lines are of several processes, and all are read as the most frequent one. "
            "Keep a file for each process."
        )
        yield Finding(Severity.WARNING, "several_processes", message, source=path)


class _Arguments(Struct, frozen=True):
    """The arguments of operations, which are read again from the file."""

    source: Source
    places: array[int]
    rows: Int64s
    """The operation of each event."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields one run."""
        chosen = range(len(self.rows))[first:last]
        texts: list[Payload] = []
        with self.source.open() as stream:
            position = 0
            for row in self.rows[chosen.start : chosen.stop].tolist():
                offset, size = self.places[2 * row : 2 * row + 2]
                stream.skip(offset - position)
                texts.append(_arguments_of(stream.read(size)))
                position = offset + size
        if texts:
            yield chosen.start, texts

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields the payloads of these numbers."""
        for number in numbers.tolist():
            yield from self.batches(number, number + 1)


def _arguments_of(text: bytes) -> bytes:
    try:
        body = schema.decode_body(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return b"{}"
    return bytes(body.coll_perf) or bytes(body.p2p_perf) or b"{}"
