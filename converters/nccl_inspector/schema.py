"""Lines of the Inspector: the only place with their field names, and how lines become operations."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from msgspec import Struct, field

from tracelink._io.sources import Opened, Source
from tracelink._model.columns import MICROSECOND, UNKNOWN, Int64s, StringTable
from tracelink._model.communications import number_in, rank_in, text_in
from tracelink._model.errors import UnreadableError

FIRST_US, LAST_US = 10**15, 4 * 10**15
"""Valid times in microseconds: 2001 to 2096."""

UNNAMED = frozenset({"", "unknown"})
"""Names of communicators that the program did not name."""

SEND = "Send"
PROCESS = (rb'"pid"\s*:\s*(\d+)', rb'"hostname"\s*:\s*("(?:[^"\\]|\\.)*")')
"""Patterns of what names the process of a line."""


class Header(msgspec.Struct):
    """The communicator of a line; some writers have these keys in the line itself: `FLAT`."""

    id: str | int | None = None
    rank: int | None = None
    """Within the communicator."""
    n_ranks: int | None = None
    comm_name: str | None = None


class Metadata(msgspec.Struct):
    """The process of a line, and when it was written."""

    inspector_output_format_version: str | None = None
    rec_mechanism: str | None = None
    dump_timestamp_us: int | None = None
    hostname: str | None = None
    pid: int | None = None


class Kernel(msgspec.Struct):
    """One channel of a kernel, as the host saw it."""

    kernel_start_ts: int | float = 0
    kernel_stop_ts: int | float = 0


class Times(msgspec.Struct):
    """The events of an operation, if the Inspector is verbose."""

    kernel_events: list[Kernel] = []


class Collective(msgspec.Struct):
    """One collective that completed."""

    coll: str = ""
    coll_sn: int | None = None
    """Counts the collectives of this name in the communicator, from 0."""
    coll_msg_size_bytes: int | None = None
    coll_exec_time_us: float | None = None
    coll_algobw_gbs: float | None = None
    coll_busbw_gbs: float | None = None
    event_trace_ts: Times | None = None


class Message(msgspec.Struct):
    """One end of a message; its number counts both directions on its own rank, so that the other end has another."""

    p2p: str = ""
    p2p_peer: int | None = None
    p2p_msg_size_bytes: int | None = None
    p2p_exec_time_us: float | None = None
    p2p_algobw_gbs: float | None = None
    p2p_busbw_gbs: float | None = None
    event_trace_ts: Times | None = None


class Statistics(msgspec.Struct):
    """A marker before the lines of a communicator in one dump. Since v4.3 only it names communicator and process."""

    coll_records: int = 0
    p2p_records: int = 0
    proxy_records: int = 0
    coll_dropped_since_last_dump: int = 0
    p2p_dropped_since_last_dump: int = 0

    @property
    def announced(self) -> int:
        """The number of lines that follow."""
        return self.coll_records + self.p2p_records + self.proxy_records


class Unused(msgspec.Struct):
    """An object of which nothing is read."""


class Line(msgspec.Struct):
    """One line."""

    header: Header | None = None
    metadata: Metadata | None = None
    coll_perf: Collective | None = None
    p2p_perf: Message | None = None
    dump_stats: Statistics | None = None
    proxy_trace: Unused | None = None


class Body(msgspec.Struct):
    """A line decoded for its arguments, as raw JSON."""

    coll_perf: msgspec.Raw = msgspec.Raw(b"")
    p2p_perf: msgspec.Raw = msgspec.Raw(b"")


FLAT = re.compile(rb'^\s*\{(?:(?!"header"\s*:).)*"n_ranks"\s*:', re.DOTALL)

decode_line = msgspec.json.Decoder(Line, strict=False).decode
decode_header = msgspec.json.Decoder(Header, strict=False).decode
decode_metadata = msgspec.json.Decoder(Metadata, strict=False).decode
decode_body = msgspec.json.Decoder(Body).decode


class Communicator(Struct, frozen=True):
    """A communicator as one process knows it."""

    name: str
    """Equal on all its ranks."""
    description: str
    rank: int
    """Within the communicator; UNKNOWN if the file does not say."""
    size: int

    @property
    def label(self) -> str:
        """The name to show."""
        return f"{self.description} ({self.name})" if self.description else self.name


def communicator_of(header: Header) -> Communicator:
    """The communicator that a line or a header names."""
    size, identity = rank_in(header.n_ranks), text_in(str(header.id or ""))
    name = f"{identity}/{size}" if identity else f"{size} ranks"
    description = text_in(header.comm_name)
    return Communicator(name, "" if description in UNNAMED else description, rank_in(header.rank), size)


def span_ns(times: Times | None) -> tuple[int, int] | None:
    """Start of the first and end of the last channel in ns since 1970; None without valid times."""
    channels = times.kernel_events if times else ()
    starts = [int(one.kernel_start_ts) for one in channels if FIRST_US <= one.kernel_start_ts <= LAST_US]
    stops = [int(one.kernel_stop_ts) for one in channels if FIRST_US <= one.kernel_stop_ts <= LAST_US]
    if not starts or not stops or max(stops) < min(starts):
        return None
    return min(starts) * 1000, max(stops) * 1000


# Lines of the Inspector as operations: which communicator and process each is of, and what is damaged or missing.

BLOCK = 1 << 20
LONGEST = 64 << 20
"""Bytes of a line that is held in memory."""


def lines_in(stream: Opened, advanced: Callable[[int], None]) -> Iterator[tuple[int, bytes, bool]]:
    """Offset and text of each line, and whether it ends."""
    held, offset = b"", 0
    while block := stream.read(BLOCK):
        advanced(len(block))
        *lines, held = (held + block).split(b"\n")
        for line in lines:
            yield offset, line, True
            offset += len(line) + 1
        if len(held) > LONGEST:
            raise UnreadableError(
                f"a line is longer than {LONGEST >> 20} MB", advice="Is it a file of the Inspector?"
            )
    if held:
        yield offset, held, False


def _integers() -> array[int]:
    return array("q")


def _numbers() -> array[float]:
    return array("d")


class Operations(Struct):
    """The operations of one process as columns with a row for each, and what did not fit."""

    communicator: array[int] = field(default_factory=_integers)
    """Index of `communicators`."""
    name: array[int] = field(default_factory=_integers)
    """Code of `names`."""
    number: array[int] = field(default_factory=_integers)
    """Of a collective among those of its name and communicator; UNKNOWN for messages."""
    peer: array[int] = field(default_factory=_integers)
    """Of a message, within the communicator; UNKNOWN for collectives."""
    message: array[int] = field(default_factory=_integers)
    """1 for messages, 0 for collectives."""
    bytes: array[int] = field(default_factory=_integers)
    start: array[int] = field(default_factory=_integers)
    """In ns since 1970, by the clock of the host; 0 without times."""
    stop: array[int] = field(default_factory=_integers)
    written: array[int] = field(default_factory=_integers)
    """When the line was written, in ns since 1970; 0 if unknown."""
    microseconds: array[float] = field(default_factory=_numbers)
    algorithm_rate: array[float] = field(default_factory=_numbers)
    bus_rate: array[float] = field(default_factory=_numbers)
    """In GB/s; these three are NaN if unknown."""
    places: array[int] = field(default_factory=_integers)
    """Offset and size of the line of each."""
    names: StringTable = field(default_factory=StringTable)
    communicators: dict[Communicator, int] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    pids: Counter[int] = field(default_factory=Counter)
    mechanism: str = ""
    lines: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.name)

    def column(self, name: str) -> Int64s:
        """A column of integers."""
        return np.array(getattr(self, name), np.int64)

    def add(self, communicator: int, operation: Collective | Message, written_us: int) -> None:
        """One more operation."""
        span = span_ns(operation.event_trace_ts)
        if isinstance(operation, Message):
            name, number, peer = operation.p2p, UNKNOWN, rank_in(operation.p2p_peer)
            size, spent = operation.p2p_msg_size_bytes, operation.p2p_exec_time_us
            algorithm, bus = operation.p2p_algobw_gbs, operation.p2p_busbw_gbs
        else:
            name, number, peer = operation.coll, number_in(operation.coll_sn), UNKNOWN
            size, spent = operation.coll_msg_size_bytes, operation.coll_exec_time_us
            algorithm, bus = operation.coll_algobw_gbs, operation.coll_busbw_gbs
        self.communicator.append(communicator)
        self.name.append(self.names[text_in(name)])
        self.number.append(number)
        self.peer.append(peer)
        self.message.append(int(isinstance(operation, Message)))
        self.bytes.append(number_in(size))
        self.start.append(span[0] if span else 0)
        self.stop.append(span[1] if span else 0)
        self.written.append(written_us * MICROSECOND)
        self.microseconds.append(_number(spent))
        self.algorithm_rate.append(_number(algorithm))
        self.bus_rate.append(_number(bus))


def _number(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else value


def operations_in(source: Source, advanced: Callable[[int], None]) -> tuple[Operations, str]:
    """The operations of a file, and how its compression is damaged, if it is."""
    reading = _Reading()
    with source.open() as stream:
        for offset, text, complete in lines_in(stream, advanced):
            if text.strip():
                reading.add(offset, text, complete=complete)
        damage = stream.damage
    reading.close()
    return reading.found, damage


class _Reading(Struct):
    """The lines until now, and the marker that the next ones belong to."""

    found: Operations = field(default_factory=Operations)
    header: Communicator | None = None
    metadata: Metadata | None = None
    awaited: int = 0
    """Lines that the marker announced and that are still to come."""
    known: dict[tuple[object, ...], Communicator] = field(default_factory=dict)

    def add(self, offset: int, text: bytes, *, complete: bool) -> None:
        """One more line."""
        found = self.found
        try:
            line = decode_line(text)
            header, metadata = self._context(line, text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found.problems["truncated" if not complete else "damaged_line"] += 1
            self.awaited = max(self.awaited - 1, 0)
            return
        found.lines += 1
        if line.dump_stats:
            self._mark(line.dump_stats, header, metadata)
            return
        self.awaited = max(self.awaited - 1, 0)
        body = line.coll_perf or line.p2p_perf
        if body is None:
            found.problems["proxy_record" if line.proxy_trace else "other_line"] += 1
        elif header is None or metadata is None:
            found.problems["no_communicator"] += 1
        else:
            self._learn(header, metadata)
            found.add(found.communicators[header], body, _valid_time(metadata.dump_timestamp_us))
            found.places.extend((offset, len(text)))

    def close(self) -> None:
        """The file ends."""
        if self.awaited:
            self.found.problems["missing_lines"] += self.awaited
        self.awaited = 0

    def _mark(
        self,
        statistics: Statistics,
        header: Communicator | None,
        metadata: Metadata | None,
    ) -> None:
        self.close()
        self.header, self.metadata, self.awaited = header, metadata, statistics.announced
        if header and metadata:
            self._learn(header, metadata)
        lost = statistics.coll_dropped_since_last_dump + statistics.p2p_dropped_since_last_dump
        if lost > 0:
            self.found.problems["overwritten"] += lost

    def _context(self, line: Line, text: bytes) -> tuple[Communicator | None, Metadata | None]:
        """The communicator and the process of a line: its own, else those of the marker before it."""
        if line.header:
            return self._communicator(line.header), line.metadata or decode_metadata(text)
        if FLAT.match(text):
            return (
                self._communicator(decode_header(text)),
                line.metadata or decode_metadata(text),
            )
        return self.header, line.metadata or self.metadata

    def _communicator(self, header: Header) -> Communicator:
        key = (header.id, header.comm_name, header.rank, header.n_ranks)
        if key not in self.known:
            self.known[key] = communicator_of(header)
        return self.known[key]

    def _learn(self, header: Communicator, metadata: Metadata) -> None:
        found = self.found
        found.communicators.setdefault(header, len(found.communicators))
        found.versions[metadata.inspector_output_format_version or ""] += 1
        found.hosts[metadata.hostname or ""] += 1
        found.mechanism = found.mechanism or metadata.rec_mechanism or ""
        if metadata.pid is not None:
            found.pids[metadata.pid] += 1


def _valid_time(time_us: int | None) -> int:
    return time_us if time_us is not None and FIRST_US <= time_us <= LAST_US else 0


# Processes: a file that was joined of those of several processes.

_PROCESS = tuple(re.compile(pattern) for pattern in PROCESS)


def has_several_processes(source: Source) -> bool:
    """True if lines name different processes."""
    seen: tuple[set[bytes], ...] = tuple(set() for _ in _PROCESS)
    with source.open() as stream:
        for _, text, _ in lines_in(stream, _ignore):
            for pattern, values in zip(_PROCESS, seen, strict=True):
                if match := pattern.search(text):
                    values.add(match[1])
            if any(len(values) > 1 for values in seen):
                return True
    return False


def process_of(text: bytes) -> tuple[str, int] | None:
    """Host and process that a line names; None if it names none."""
    try:
        line = decode_line(text)
        metadata = line.metadata or decode_metadata(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if metadata.pid is None:
        return None
    return metadata.hostname or "", metadata.pid


def _ignore(_: int) -> None:
    pass
