"""What lines of the Inspector contain: the only place with their field names."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from tracelink._model.communications import rank_in, text_in

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
