"""Logs as rank traces (for merging) and as recordings (for the diagnosis)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int8s, Int32s, Int64s, StringTable, distinct
from tracelink._model.communications import Communications
from tracelink._model.events import EventKind, Events, Key, Track, TrackKind, known_keys
from tracelink._model.findings import Finding, NewerVersion, Severity, Truncated
from tracelink._model.operations import POINT_TO_POINT, ROOTED, Operation, operation_of
from tracelink._model.records import Entry, EntryPayloads, Recording, Records, Requests, State
from tracelink._model.text import counted, subject
from tracelink._model.trace import Payload, ProcessGroup, RankTrace, SourceInfo
from tracelink.converters.clog.log import (
    VERSION,
    Communicator,
    Found,
    Instances,
    Log,
    Signature,
    instances_of,
    read_log,
)

TYPES = {
    "f32": "Float", "f64": "Double", "f16": "Half", "bf16": "BFloat16", "i32": "Int", "i64": "Long",
    "i16": "Short", "i8": "Char", "u8": "Byte", "bool": "Bool", "fp8e4m3": "Float8_e4m3fn",
    "fp8e5m2": "Float8_e5m2",
}  # fmt: skip
"""torch's names of element types."""

BATCH = "batch_op_issue"
"""Sends and receives that are issued together: one call, whose messages are not in the log."""

INPUTS, OUTPUTS = ("in_count", "in_counts", "in_splits"), ("out_count", "out_counts", "out_splits")
STATE_NAMES = {State.SCHEDULED: "scheduled", State.STARTED: "started", State.COMPLETED: "completed"}
RUN = 4096
"""Payloads that are made at a time."""


class ClogReader:
    """Reads logs of the clog hook of torchcomms; the first is shown."""

    name = "clog"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each communication, on the track of its communicator."""
        content = _Content.of(read_log(source, engine.meter), source)
        return content.trace(source)

    def read_records(self, source: Source, engine: Engine) -> Recording:
        """The communications as records."""
        content = _Content.of(read_log(source, engine.meter), source)
        return content.recording(source)


class _Content(Struct, frozen=True):
    """A log, its communications, and their signatures by row."""

    log: Log
    found: Found
    signatures: Sequence[Signature]
    row: Int64s
    """The row of the signature of each communication."""
    group: Int64s
    """The row of the group of each communication."""
    groups: Sequence[ProcessGroup]
    findings: Sequence[Finding]

    @classmethod
    def of(cls, log: Log, source: Source) -> _Content:
        """The communications of a log."""
        names = {name: row for row, name in enumerate(log.communicators)}
        for signature in log.signatures.values():
            names.setdefault(signature.communicator, len(names))
        collectives = {
            number: names[signature.communicator]
            for number, signature in log.signatures.items()
            if not _is_message(signature)
        }
        found = instances_of(log.steps, collectives)
        numbers = {number: row for row, number in enumerate(log.signatures)}
        row = np.array(
            [numbers.get(number, UNKNOWN) for number in found.instances.signature.tolist()], np.int64
        )
        unnamed = int(np.count_nonzero(row == UNKNOWN))
        found = replace(found, instances=found.instances.take(np.flatnonzero(row != UNKNOWN)))
        row = row[row != UNKNOWN]
        signatures = list(log.signatures.values())
        group, groups = _groups(log, names, signatures, row, found.instances.graph)
        findings = list(_findings(log, found, unnamed, source.path))
        return cls(log, found, signatures, row, group, groups, findings)

    @property
    def instances(self) -> Instances:
        return self.found.instances

    def trace(self, source: Source) -> RankTrace:
        """The events."""
        instances, strings = self.instances, StringTable()
        names = strings.encode([group.name for group in self.groups])
        states = strings.encode([STATE_NAMES[state] for state in STATE_NAMES])
        operations = strings.encode([signature.operation for signature in self.signatures])
        count = len(instances)
        start = np.where(instances.enqueued == NO_TIME, instances.started, instances.enqueued)
        unfinished = (instances.ended == NO_TIME) | (start == NO_TIME)
        duration = np.where(unfinished, UNKNOWN, np.maximum(instances.ended - start, 0))
        events = Events.of(
            kind=EventKind.RECORD,
            name=operations[self.row],
            track=self.group,
            start=start,
            duration=duration,
            source=0,
            payload=range(count),
        )
        state = self._states()
        keys: dict[Key, Any] = {
            Key.GROUP: names[self.group],
            Key.COLLECTIVE_SEQUENCE: instances.number,
            Key.STATE: np.where(state == State.UNKNOWN, UNKNOWN, states[state]),
        }
        return RankTrace(
            sources=[self._info(source, events)],
            strings=strings,
            events=events,
            tracks=[
                Track(TrackKind.COMMUNICATOR, process="", identity=group.name, label=group.name)
                for group in self.groups
            ],
            keys=known_keys(keys),
            groups=list(self.groups),
            communications=self._communications(strings, names),
            payloads=[ClogPayloads(self)],
            findings=list(self.findings),
            derived_from=frozenset({"flight-recorder"}),
        )

    def recording(self, source: Source) -> Recording:
        """The records."""
        instances, strings = self.instances, StringTable()
        names = strings.encode([group.name for group in self.groups])
        requests = self._requests(strings)
        records = Records.of(
            len(instances),
            group=names[self.group],
            request=self.row,
            sequence=instances.number,
            life=np.zeros(len(instances), np.int8),
            point_to_point=self._messages()[self.row],
            state=self._states(),
            retired=self._retired(),
            created=instances.enqueued,
            started=instances.started,
            completed=instances.ended,
            place=np.arange(len(instances)),
        )
        return Recording(
            self._info(source, None),
            strings.texts(),
            records,
            requests,
            self.groups,
            broken_off=bool(self.log.truncated),
            retires_early=True,
            payloads=ClogPayloads(self),
            findings=self.findings,
        )

    def _messages(self) -> Bools:
        return np.array([_is_message(signature) for signature in self.signatures], np.bool_)

    def _states(self) -> Int8s:
        """The state, if the log has any start or end of calls with the signature: else they were not logged."""
        instances = self.instances
        state = np.where(instances.started == NO_TIME, State.SCHEDULED, State.STARTED)
        state = np.where(instances.ended == NO_TIME, state, State.COMPLETED)
        return np.where(self._followed(), state, State.UNKNOWN).astype(np.int8)

    def _followed(self) -> Bools:
        """Calls whose starts and ends are logged, as far as they happened.

        Those of a signature without any are not, unless the log follows others and this one was called only once.
        """
        instances = self.instances
        seen = (instances.started != NO_TIME) | (instances.ended != NO_TIME)
        count = len(self.signatures)
        of_signature = np.bincount(self.row[seen], minlength=count) > 0
        once = np.bincount(self.row, minlength=count) == 1
        return (of_signature | (once & bool(seen.any())))[self.row] if count else seen

    def _retired(self) -> Int8s:
        """1 for calls of which only the enqueue is logged, and for work that a program that ended regularly left."""
        left = np.isin(self.instances.work, np.array(self.log.leaked, np.int64)) & (
            self.instances.work != UNKNOWN
        )
        finished = self.instances.ended != NO_TIME
        return (finished | ~self._followed() | left).astype(np.int8)

    def _requests(self, strings: StringTable) -> Requests:
        ends = [_ends(signature, self.log) for signature in self.signatures]
        inputs, outputs = ([_counts(own, keys) for own in self.signatures] for keys in (INPUTS, OUTPUTS))
        types = [_type(signature) for signature in self.signatures]
        codes = [strings[name] if name else UNKNOWN for name in types]
        return Requests.of(
            len(self.signatures),
            operation=strings.encode(
                [_named(own, end) for own, end in zip(self.signatures, ends, strict=True)]
            ),
            source=[source for source, _ in ends],
            target=[target for _, target in ends],
            elements_in=[_sum(counts) for counts in inputs],
            elements_out=[_sum(counts) for counts in outputs],
            shape_in=[_hash(counts) for counts in inputs],
            shape_out=[_hash(counts) for counts in outputs],
            type_in=codes,
            type_out=codes,
        )

    def _communications(self, strings: StringTable, names: Int32s) -> Communications:
        requests = self._requests(strings).take(self.row)
        roots = np.array([_root(signature) for signature in self.signatures], np.int32)
        sizes = np.array([group.size or UNKNOWN for group in self.groups], np.int32)
        return Communications.of(
            row=np.arange(len(self.row)),
            operation=requests.operation,
            group=names[self.group],
            sequence=self.instances.number,
            point_to_point=self._messages()[self.row],
            source=np.where(requests.source == UNKNOWN, roots[self.row], requests.source),
            target=requests.target,
            elements_in=requests.elements_in,
            elements_out=requests.elements_out,
            type=requests.type_in,
            size=sizes[self.group],
        )

    def _info(self, source: Source, events: Events | None) -> SourceInfo:
        instances, world = self.instances, self.log.world
        times = np.concatenate([instances.enqueued, instances.started, instances.ended])
        times = times[times != NO_TIME]
        return SourceInfo(
            path=source.path,
            format=ClogReader.name,
            version=str(self.log.version),
            rank=world.rank if world else None,
            world_size=world.size if world else None,
            events=len(instances),
            records=len(self.log.steps),
            bytes=source.bytes,
            start_ns=int(times.min()) if len(times) else None,
            end_ns=int(times.max()) if len(times) else None,
            zero_ns=self.log.base_ns,
            recorder=tuple(sorted(f":{group.name}" for group in self.groups)),
        )

    def arguments(self, place: int) -> dict[str, Any]:
        """The arguments that the log states of a communication; times are in seconds since the start of the log."""
        instances, signature = self.instances, self.signatures[int(self.row[place])]
        numbers = {
            "work_id": int(instances.work[place]),
            "graph_id": int(instances.graph[place]),
            "replay_id": int(instances.replay[place]),
        }
        times = {
            "started": int(instances.started[place]),
            "ended": int(instances.ended[place]),
            "waited": int(instances.waited[place]),
        }
        return {
            "communicator": signature.communicator,
            **signature.parameters,
            **{name: number for name, number in numbers.items() if number != UNKNOWN},
            **{
                name: round((time - self.log.base_ns) / 1e9, 3)
                for name, time in times.items()
                if time != NO_TIME
            },
        }

    def entry(self, place: int, state: State) -> Entry:
        """A communication for people."""
        instances, signature = self.instances, self.signatures[int(self.row[place])]
        group, number, created = (
            self.groups[int(self.group[place])],
            instances.number[place],
            instances.enqueued[place],
        )
        types = [_type(signature)] if _type(signature) else []
        return Entry(
            group=group.name,
            description=group.description,
            sequence=None if number == UNKNOWN else int(number),
            operation=_named(signature, _ends(signature, self.log)),
            input_sizes=[[count] for count in _counts(signature, INPUTS)],
            output_sizes=[[count] for count in _counts(signature, OUTPUTS)],
            input_types=types,
            output_types=types,
            state=STATE_NAMES.get(state, ""),
            retired=None,
            created_ns=None if created == NO_TIME else int(created),
            timeout_ms=None,
            frames=(),
        )


class ClogPayloads(Struct, EntryPayloads, frozen=True):
    """The arguments and entries of the communications of a log, which stays in memory as columns."""

    content: _Content

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of arguments."""
        places = range(*slice(first, last).indices(len(self.content.row)))
        for begin in range(places.start, places.stop, RUN):
            run = range(begin, min(begin + RUN, places.stop))
            yield begin, [orjson.dumps(self.content.arguments(place)) for place in run]

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """Entries at these places."""
        states = self.content._states()
        known = [place for place in places if 0 <= place < len(states)]
        return {place: self.content.entry(place, State(int(states[place]))) for place in known}


# Signatures


def _is_message(signature: Signature) -> bool:
    return signature.operation == BATCH or operation_of(signature.operation) in POINT_TO_POINT


def _ends(signature: Signature, log: Log) -> tuple[int, int]:
    """The sending and the receiving rank of a message, within its communicator."""
    operation = operation_of(signature.operation)
    if operation not in POINT_TO_POINT:
        return UNKNOWN, UNKNOWN
    communicator = log.communicators.get(signature.communicator)
    own, peer = communicator.rank if communicator else UNKNOWN, _rank(signature, "peer")
    return (own, peer) if operation == Operation.SEND else (peer, own)


def _named(signature: Signature, ends: tuple[int, int]) -> str:
    """The operation, with the ranks of a message as other recorders write them."""
    source, target = ends
    if UNKNOWN in ends:
        return signature.operation
    return (
        f"{signature.operation} {source}->{target}"
        if operation_of(signature.operation) == Operation.SEND
        else f"{signature.operation} {target}<-{source}"
    )


def _root(signature: Signature) -> int:
    rooted = operation_of(signature.operation) in ROOTED
    return _rank(signature, "root") if rooted else UNKNOWN


def _rank(signature: Signature, parameter: str) -> int:
    """A rank within the communicator; UNKNOWN if it is invalid."""
    number = _number(signature.parameters.get(parameter, ""))
    return number if number <= LARGEST_RANK else UNKNOWN


def _type(signature: Signature) -> str:
    return TYPES.get(signature.parameters.get("dtype", ""), "")


def _counts(signature: Signature, keys: Sequence[str]) -> list[int]:
    """The number of elements of each tensor; that of a message is given and got, as other recorders write it."""
    if operation_of(signature.operation) in POINT_TO_POINT:
        keys = INPUTS if operation_of(signature.operation) == Operation.SEND else OUTPUTS
    given = next((signature.parameters[key] for key in keys if key in signature.parameters), "")
    return [max(_number(text), 0) for text in given.split(",")] if given else []


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 * 2 else UNKNOWN


def _sum(counts: Sequence[int]) -> int:
    total = sum(counts)
    return total if counts and total < 1 << 62 else UNKNOWN


def _hash(counts: Sequence[int]) -> int:
    """Equal for equal counts, in every process."""
    return hash(tuple(counts)) >> 1 if counts else UNKNOWN


# Groups: communicators, and for each graph that was replayed those parts of them that it contains


def _groups(
    log: Log, names: Mapping[str, int], signatures: Sequence[Signature], row: Int64s, graph: Int64s
) -> tuple[Int64s, list[ProcessGroup]]:
    """The group of each communication, and all groups.

    The replays of a graph are counted on their own. Its number differs on each rank, so it is named by its turn.
    """
    groups = [_group(log, name) for name in names]
    of_signature = np.array([names[signature.communicator] for signature in signatures], np.int64)
    communicator = of_signature[row] if len(row) else row
    turns = {number: turn for turn, number in enumerate(dict.fromkeys(_graphs(log)), 1)}
    replayed = np.flatnonzero(graph != UNKNOWN)
    code, first = distinct(communicator[replayed], graph[replayed])
    parts = [
        replace(groups[whole], name=f"{groups[whole].name} (graph {turns[number]})")
        for whole, number in zip(
            communicator[replayed[first]].tolist(), graph[replayed[first]].tolist(), strict=True
        )
    ]
    group = communicator.copy()
    group[replayed] = len(groups) + code
    return group, groups + parts


def _graphs(log: Log) -> list[int]:
    """The graphs in the order in which they were captured."""
    captured = (log.steps.graph != UNKNOWN) & (log.steps.replay == UNKNOWN)
    found: list[int] = log.steps.graph[captured].tolist()
    return found


def _group(log: Log, name: str) -> ProcessGroup:
    communicator = log.communicators.get(name)
    if communicator is None:
        return ProcessGroup(name)
    return ProcessGroup(name, ranks=_members(communicator, log), size=communicator.size)


def _members(communicator: Communicator, log: Log) -> tuple[int, ...]:
    """Ranks of the job; of the largest communicator all ranks."""
    return tuple(range(communicator.size)) if communicator == log.world else communicator.ranks


# Findings


def _findings(log: Log, found: Found, unnamed: int, path: str) -> Iterator[Finding]:
    if log.version > VERSION:
        yield NewerVersion(path, str(log.version), str(VERSION)).finding()
    if log.truncated:
        yield Truncated(path, log.truncated, len(log.steps), "step").finding(severity=Severity.ERROR)
    if log.damaged:
        text = f"{path}: {subject(log.damaged, 'line', 'are')} invalid: skipped."
        yield Finding(Severity.WARNING, "damaged", text, log.damaged, path, log.example)
    if log.warnings:
        text = (
            f"{path}: the log has {counted(len(log.warnings), 'warning')} of torchcomms; the first is shown."
        )
        yield Finding(Severity.INFO, "warnings", text, len(log.warnings), path, log.warnings[0])
    if unnamed:
        text = f"{path}: {subject(unnamed, 'call', 'have')} no signature: skipped."
        yield Finding(Severity.WARNING, "without_signature", text, unnamed, path)
    if found.lost:
        text = (
            f"{path}: {subject(found.lost, 'step', 'are')} of no call in the log, or of a graph whose capture is not "
            "in it: skipped."
        )
        yield Finding(Severity.WARNING, "without_call", text, found.lost, path)
    if found.captured:
        text = (
            f"{path}: {subject(found.captured, 'call', 'were')} recorded into CUDA graphs. They are no events: they "
            "run when a graph is replayed."
        )
        yield Finding(Severity.INFO, "captured", text, found.captured, path)
    if not len(found.instances):
        yield Finding(Severity.INFO, "empty", f"{path}: the log has no communication.", source=path)
