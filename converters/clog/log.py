"""Lines of a log: signatures, communicators, and the steps of communications as columns.

A step is `C7|Q|work_id=3|+1.250`: the signature 7, and the seconds since the start of the log. `G42|` before it means
while a CUDA graph was captured, `G42|R2|` the second replay of that graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from tracelink._io.engine import Meter
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import MILLISECOND, UNKNOWN, Int64s, Table, UInt8s
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
    log.steps = Steps(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Steps.__struct_fields__)
    )
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
    none = np.empty(0, np.int64)
    return Log(int(header[1]), base, Steps(none, none, none, none.astype(np.uint8), none, none))


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
