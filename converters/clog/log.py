"""Lines of a log: signatures, communicators, and the steps of communications as columns.

A step is `C7|Q|work_id=3|+1.250`: the signature 7, and the seconds since the start of the log. `G42|` before it means
while a CUDA graph was captured, `G42|R2|` the second replay of that graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Meter
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import (
    MILLISECOND,
    NO_TIME,
    UNKNOWN,
    Int64s,
    Table,
    Times,
    UInt8s,
    distinct,
    lookup,
    values_at,
)
from tracelink._model.errors import UnreadableError, encodable
from tracelink._model.trace import shared_ranks

VERSION = 1
"""The newest known version."""

ENQUEUED, STARTED, ENDED, WAITED = STEPS = b"QSEW"
"""Called by the program; began on the device; ended there; the host began to wait for it."""

_HEADER = re.compile(rb"V\|(\d{1,9})\|base_timestamp=(\d{1,9}|[1-3]\d{9})\.(\d{3})\r?$")
_STEP = re.compile(
    rb"^(?:G(\d{1,18})\|)?(?:R(\d{1,18})\|)?C(\d{1,18})\|([QSEW])(?:\|work_id=(\d{1,18}))?\|\+(-?\d{1,9}\.\d{3})\r?$",
    re.MULTILINE,
)
_OTHER = re.compile(
    rb"^(?!(?:G\d{1,18}\|)?(?:R\d{1,18}\|)?C\d{1,18}\|[QSEW](?:\|work_id=\d{1,18})?\|\+-?\d{1,9}\.\d{3}\r?$).+$",
    re.MULTILINE,
)
_SIGNATURE = re.compile(rb"C(\d{1,18})\|sig\|([^|]*)\|(.*)")
_COMMUNICATOR = re.compile(rb"new_comm\|comm=(.*)\|rank=(-?\d{1,9})\|world_size=(\d{1,9})\r?$")
_SPLIT = re.compile(rb"split\|parent=(.*)\|child=(.*)\|ranks=((?:\d{1,9}(?:,\d{1,9})*)?)\r?$")
_LEAKED = re.compile(rb"WARN\|comm=.*\|leaked work_id=(\d{1,18})\|corr_id=")
_WARNING = b"WARN|"
_NAME_MARK = b"|comm="

CHUNK = 4 << 20
LONGEST_LINE = 1 << 20
"""A signature can list sizes for each rank of a large job; a longer line is damaged."""


class Signature(Struct, frozen=True):
    """What calls with one number have in common."""

    operation: str
    communicator: str
    parameters: Mapping[str, str]


class Communicator(Struct, frozen=True):
    """A communicator of the process."""

    name: str
    rank: int
    """The rank of the process within it, or UNKNOWN."""
    size: int
    ranks: tuple[int, ...] = ()
    """Ranks of the job, if they are known."""


class Steps(Table, frozen=True):
    """The steps in the order of the log; UNKNOWN for what a step does not name."""

    graph: Int64s
    replay: Int64s
    signature: Int64s
    step: UInt8s
    work: Int64s
    time: Int64s
    """In ns since 1970; whole milliseconds, rounded down."""


class Log(Struct):
    """Everything in a log."""

    version: int
    base_ns: int
    steps: Steps
    signatures: dict[int, Signature] = field(default_factory=dict)
    communicators: dict[str, Communicator] = field(default_factory=dict)
    leaked: list[int] = field(default_factory=list)
    """Work that the program left without its steps when it ended regularly."""
    warnings: list[str] = field(default_factory=list)
    damaged: int = 0
    example: str = ""
    """The first damaged line."""
    truncated: str = ""
    """Where and why the log ends early; empty if it does not."""

    @property
    def world(self) -> Communicator | None:
        """The largest communicator that was not split from another, the first of several."""
        own = [communicator for communicator in self.communicators.values() if communicator.rank != UNKNOWN]
        return max(own, key=lambda communicator: communicator.size, default=None)


def read_log(source: Source, meter: Meter) -> Log:
    """Reads a whole log; a damaged line is only counted."""
    parts: list[Steps] = []
    log: Log | None = None
    with source.open() as opened:

        def read(size: int) -> bytes:
            data = opened.read(size)
            meter.add(len(data))
            return data

        for text, is_last in _whole_lines(read):
            if log is None:
                log = _opened(text, source)
            found = _STEP.findall(text)
            parts.append(_steps(found, log.base_ns))
            for line in _OTHER.findall(text) if len(found) < text.count(b"\n") + is_last else ():
                _add_line(log, line)
            if is_last:
                log.truncated = f"the last line has no end: {_shown(text)}"
        damage = opened.damage
    if log is None:
        raise UnreadableError("the file is empty", source=source.path, advice="Record it again.")
    log.truncated = damage or log.truncated
    log.steps = Steps.concatenate(parts)
    return log


def _whole_lines(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bool]]:
    """Runs of whole lines; as the last one, whether it is a line without an end."""
    rest = b""
    while part := read(CHUNK):
        text = rest + part
        end = text.rfind(b"\n") + 1
        if end:
            yield text[:end], False
        rest = text[end:]
        if len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE] + b"\n", False
            rest = b""
    if rest:
        yield rest, True


def _opened(text: bytes, source: Source) -> Log:
    line = text.split(b"\n", 1)[0]
    header = _HEADER.match(line)
    if not header:
        raise UnreadableError(
            f"the first line is invalid: {_shown(line)}",
            source=source.path,
            position="line 1",
            advice="It is V|1|base_timestamp=SECONDS in a log of torchcomms; copy the log again.",
        )
    base = (int(header[2]) * 1000 + int(header[3])) * MILLISECOND
    return Log(int(header[1]), base, Steps.empty())


def _add_line(log: Log, line: bytes) -> None:
    """Adds a line that is not a step."""
    if line.startswith(_WARNING):
        if leaked := _LEAKED.match(line):
            log.leaked.append(int(leaked[1]))
        log.warnings.append(_shown(line))
    elif (signature := _SIGNATURE.match(line)) and _NAME_MARK in line:
        log.signatures.setdefault(int(signature[1]), _signature(signature))
    elif made := _COMMUNICATOR.match(line):
        name, rank, size = _text(made[1]), int(made[2]), int(made[3])
        if 0 <= rank < size <= LARGEST_RANK + 1:
            log.communicators.setdefault(name, Communicator(name, rank, size))
    elif split := _SPLIT.match(line):
        _add_split(
            log, _text(split[1]), _text(split[2]), [int(rank) for rank in split[3].split(b",") if rank]
        )
    elif not _HEADER.match(line) and line.strip():
        log.damaged += 1
        log.example = log.example or _shown(line)


def _signature(found: re.Match[bytes]) -> Signature:
    fields, _, communicator = (b"|" + found[3]).partition(_NAME_MARK)
    pairs = (_text(field).partition("=") for field in fields.split(b"|") if b"=" in field)
    return Signature(_text(found[2]), _text(communicator), {name: value for name, _, value in pairs})


def _add_split(log: Log, parent_name: str, name: str, ranks: Sequence[int]) -> None:
    """A part of a communicator; its ranks are ranks within the parent."""
    parent = log.communicators.get(parent_name)
    if parent is None or not ranks or max(ranks) >= parent.size or parent.rank not in ranks:
        return
    world = parent.ranks or (range(parent.size) if parent == log.world else ())
    members = shared_ranks([world[rank] for rank in ranks]) if world else ()
    log.communicators.setdefault(name, Communicator(name, ranks.index(parent.rank), len(ranks), members))


def _steps(found: Sequence[tuple[bytes, ...]], base_ns: int) -> Steps:
    """The steps as columns."""
    graph, replay, signature, step, work, time = zip(*found, strict=True) if found else [()] * 6
    milliseconds = b" ".join(time).replace(b".", b"").split()
    return Steps(
        _numbers(graph),
        _numbers(replay),
        _numbers(signature),
        np.frombuffer(b"".join(step), np.uint8),
        _numbers(work),
        base_ns + _numbers(milliseconds) * MILLISECOND,
    )


def _numbers(texts: Sequence[bytes]) -> Int64s:
    """Integers; UNKNOWN for an empty text."""
    if not any(texts):
        return np.full(len(texts), UNKNOWN, np.int64)
    return np.array([text or b"-1" for text in texts]).astype(np.int64)


def _text(data: bytes) -> str:
    return encodable(data.decode("utf-8", "replace").rstrip("\r"))


def _shown(line: bytes) -> str:
    return ascii(line[:80].decode("utf-8", "replace"))[1:-1]


# Instances: which steps are of one communication.


class Instances(Table, frozen=True):
    """One row for each communication, in the order of the log."""

    signature: Int64s
    graph: Int64s
    """The graph that was replayed, or UNKNOWN."""
    replay: Int64s
    work: Int64s
    number: Int64s
    """Of a collective within its communicator, or within the replays of a graph, from 1; UNKNOWN for a message."""
    enqueued: Times
    started: Times
    ended: Times
    """The end of the millisecond in which the end was logged: it happened before."""
    waited: Times


class Found(Struct, frozen=True):
    """All instances, and what is left."""

    instances: Instances
    captured: int
    """Calls that graphs recorded: they run only when the graph is replayed."""
    lost: int
    """Steps without an enqueue, and those of a graph whose capture is not in the log."""


def instances_of(steps: Steps, communicator_of: Mapping[int, int]) -> Found:
    """The communications in a log; `communicator_of` numbers the communicators of signatures of collectives."""
    capturing = (steps.graph != UNKNOWN) & (steps.replay == UNKNOWN)
    direct, lost = _enqueued(steps.take(steps.graph == UNKNOWN))
    captured, lost_in_captures = _enqueued(steps.take(capturing))
    replayed, lost_in_replays = _replayed(
        steps.take(steps.replay != UNKNOWN), captured, _communicators(captured, communicator_of)
    )
    number = 1 + _turns_of_known(_communicators(direct, communicator_of))
    together = Instances.concatenate(
        [replace(direct, number=np.where(number > 0, number, UNKNOWN)), replayed]
    )
    first = np.where(together.enqueued == NO_TIME, together.started, together.enqueued)
    first = np.where(first == NO_TIME, together.ended, first)
    return Found(
        together.take(np.argsort(first, kind="stable")),
        len(captured),
        lost + lost_in_captures + lost_in_replays,
    )


def _communicators(instances: Instances, communicator_of: Mapping[int, int]) -> Int64s:
    """The communicator of each collective; UNKNOWN for messages, and for calls without a signature."""
    return np.array(
        [communicator_of.get(number, UNKNOWN) for number in instances.signature.tolist()], np.int64
    )


def _turns(*keys: Int64s) -> Int64s:
    """For each row how many rows with equal keys come before it."""
    code, _ = distinct(*keys)
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    turn = np.empty(len(code), np.int64)
    turn[order] = np.arange(len(code)) - np.searchsorted(ordered, ordered)
    return turn


def _turns_of_known(*keys: Int64s) -> Int64s:
    """The same; UNKNOWN where the first key is."""
    return np.where(keys[0] == UNKNOWN, UNKNOWN, _turns(*keys))


def _enqueued(steps: Steps) -> tuple[Instances, int]:
    """An instance for each enqueue, and how many steps have none.

    The k-th enqueue of a signature has the k-th start and the k-th end.
    """
    turn = _turns(steps.graph, steps.signature, steps.step.astype(np.int64))
    call, _ = distinct(steps.graph, steps.signature, turn)
    enqueues = np.flatnonzero(steps.step == ENQUEUED)
    columns, lost = {}, 0
    for name, step in (("started", STARTED), ("ended", ENDED), ("waited", WAITED)):
        rows = np.flatnonzero(steps.step == step)
        lost += int(np.count_nonzero(lookup(call[enqueues], call[rows]) == UNKNOWN))
        if step == WAITED:
            rows = _of_all(steps, rows, enqueues)
        columns[name] = values_at(steps.time, values_at(rows, lookup(call[rows], call[enqueues])), NO_TIME)
    columns["ended"][columns["ended"] != NO_TIME] += MILLISECOND
    found = Instances.of(
        len(enqueues),
        signature=steps.signature[enqueues],
        graph=steps.graph[enqueues],
        work=steps.work[enqueues],
        enqueued=steps.time[enqueues],
        **columns,
    )
    return found, lost


def _of_all(steps: Steps, waits: Int64s, enqueues: Int64s) -> Int64s:
    """The waits of signatures whose calls were all waited for; of others it is unknown which call a wait is of."""
    code, _ = distinct(steps.graph, steps.signature)
    size = int(code.max(initial=-1)) + 1
    as_many = np.bincount(code[waits], minlength=size) == np.bincount(code[enqueues], minlength=size)
    return waits[as_many[code[waits]]]


def _replayed(steps: Steps, captured: Instances, communicator: Int64s) -> tuple[Instances, int]:
    """An instance for each call of each replay, and the number of steps whose call was not captured in this log."""
    turn = _turns(steps.graph, steps.replay, steps.signature, steps.step.astype(np.int64))
    call, first = distinct(steps.graph, steps.replay, steps.signature, turn)
    columns = {}
    for name, step in (("started", STARTED), ("ended", ENDED)):
        columns[name] = np.full(len(first), NO_TIME)
        rows = np.flatnonzero(steps.step == step)
        columns[name][call[rows]] = steps.time[rows] + (MILLISECOND if step == ENDED else 0)
    graph, replay, signature = steps.graph[first], steps.replay[first], steps.signature[first]
    known = _rows_with(
        (captured.graph, captured.signature, _turns(captured.graph, captured.signature)),
        (graph, signature, turn[first]),
    )
    place = values_at(_turns_of_known(communicator, captured.graph), known)
    length = values_at(_lengths(communicator, captured.graph), known, 0)
    number = (replay - 1) * length + place + 1
    found = Instances.of(
        len(first),
        signature=signature,
        graph=graph,
        replay=replay,
        number=np.where((place == UNKNOWN) | (number < 1), UNKNOWN, number),
        **columns,
    )
    return found.take(np.flatnonzero(known != UNKNOWN)), int(np.count_nonzero(known[call] == UNKNOWN))


def _lengths(*keys: Int64s) -> Int64s:
    """For each row the number of rows with equal keys."""
    code, _ = distinct(*keys)
    counts: Int64s = np.bincount(code)[code] if len(code) else code
    return counts


def _rows_with(keys: tuple[Int64s, ...], wanted: tuple[Int64s, ...]) -> Int64s:
    """For each wanted combination the row with these keys, or UNKNOWN."""
    code, _ = distinct(*(np.concatenate(pair) for pair in zip(keys, wanted, strict=True)))
    count = len(keys[0])
    return lookup(code[:count], code[count:])
