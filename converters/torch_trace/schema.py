"""Records of a compile log: the only place with their field names, how they are found, and their clock."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from calendar import isleap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise

import msgspec
from msgspec import Struct, field

from tracelink._io.sources import Opened, Source
from tracelink._model.columns import MILLISECOND, SECOND
from tracelink._model.errors import UnreadableError

COMMON = frozenset(
    {
        *("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "has_payload", "stack"),
        *("subgraph_name", "severity", "timestamp", "pathname", "thread"),
    }
)
"""Keys that any record can have; the other one is its kind."""

STRING = "str"
CHROMIUM = "chromium_event"
START = "dynamo_start"
OUTPUT_CODE = "inductor_output_code"
METRICS = ("compilation_metrics", "bwd_compilation_metrics", "compilation_metrics_runtime")

# Artifacts whose payloads the tables need.

GRAPH_BREAK = "dynamo_graph_break_reason"
ERROR = "dynamo_error"
RECOMPILE = "recompile_reasons"
VERSION = "torch_version"
SCHEDULE = "inductor_collective_schedule"
KERNEL_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
"""For each kernel of a graph, as `name:number`, the stacks of the operations that it computes."""
ESTIMATES = "inductor_runtime_and_tensor_meta"
"""For each operation of a graph what inductor thinks that it takes, and the tensors that it makes."""
COLLECTIVE = "collective"
"""The type of its operations that communicate."""
EXECUTION = "graph_execution"
"""The compile ids of the graphs that ran, in order."""
CACHES = frozenset(
    f"{cache}_cache_{state}" for cache in ("fx_graph", "aotautograd") for state in ("hit", "miss", "bypass")
)
COMPARED = frozenset({"dynamo_output_graph", OUTPUT_CODE})
"""What is compared between ranks: both are recorded whether caches hit or not."""
KEPT = frozenset({GRAPH_BREAK, ERROR, RECOMPILE, VERSION, SCHEDULE})

EXPORT = {
    "guard_added": "A guard was added",
    "propagate_real_tensors_provenance": "The value of the example was used",
    "propagate_real_tensors": "The value of the example was used",
    "guard_on_data_dependent_error": "Export failed: the value depends on data",
    "missing_fake_kernel": "The operator has no fake kernel",
    "mismatched_fake_kernel": "The fake kernel of the operator differs from the operator",
}
"""Kinds of records of draft export, and what they say."""

BEGIN, END, INSTANT = "B", "E", "i"
GRAPH = "inductor_compile"
"""The phase that compiles one graph."""
NO_ID = "None"
"""The compile id of work outside of a compilation."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame of a Python stack; its file is the number of a `str` record."""

    line: int = 0
    name: str = ""
    filename: int = -1


class Start(msgspec.Struct, frozen=True):
    """What `dynamo_start` contains: where the function was called."""

    stack: list[Frame] = []


class Artifact(msgspec.Struct, frozen=True, gc=False):
    """Which artifact a payload is."""

    name: str = ""
    encoding: str = ""


class OutputCode(msgspec.Struct, frozen=True, gc=False):
    """The file with the generated code."""

    filename: str | None = None
    file_path: str | None = None


class Estimated(msgspec.Struct, frozen=True, gc=False):
    """One operation of a graph; `outputs` are tensors with shape, stride and type."""

    name: str | None = None
    type: str | None = None
    estimated_runtime_ns: float | None = None
    outputs: msgspec.Raw = msgspec.Raw()


class Estimates(msgspec.Struct, frozen=True):
    """The payload with the operations of a graph."""

    ops: list[Estimated] = []


class Executed(msgspec.Struct, frozen=True, gc=False):
    """One graph that ran."""

    compile_id: str | None = None


class Execution(msgspec.Struct, frozen=True):
    """The payload with the graphs that ran, in order."""

    graph_execution_order: list[Executed] = []


class Export(msgspec.Struct, frozen=True):
    """What draft export met in the program."""

    expr: str = ""
    result: str = ""
    op: str = ""
    reason: str = ""
    user_stack: list[Frame] = []
    stack: list[Frame] = []


class Metrics(msgspec.Struct, frozen=True):
    """What is known at the end of a compilation. Old versions record times in seconds only."""

    compile_id: str | None = None
    co_name: str | None = None
    co_filename: str | None = None
    co_firstlineno: int | None = None
    start_time: float | None = None
    start_time_us: int | None = None
    end_time_us: int | None = None
    duration_us: int | None = None
    entire_frame_compile_time_s: float | None = None
    dynamo_cumulative_compile_time_us: int | None = None
    aot_autograd_cumulative_compile_time_us: int | None = None
    inductor_cumulative_compile_time_us: int | None = None
    inductor_code_gen_cumulative_compile_time_us: int | None = None
    backward_cumulative_compile_time_us: int | None = None
    triton_compile_time_us: int | None = None
    gc_time_us: int | None = None
    structured_logging_overhead_us: int | None = None
    graph_op_count: int | None = None
    graph_node_count: int | None = None
    graph_input_count: int | None = None
    guard_count: int | None = None
    cache_size: int | None = None
    fail_type: str | None = None
    fail_reason: str | None = None
    fail_user_frame_filename: str | None = None
    fail_user_frame_lineno: int | None = None
    restart_reasons: str | list[str] | None = None
    dynamo_time_before_restart_s: float | None = None
    recompile_reason: str | None = None
    is_forward: bool | None = None
    is_runtime: bool | None = None


class Envelope(msgspec.Struct, frozen=True):
    """The JSON at the end of the first line of a record: ids, and one key of a kind that is read."""

    rank: int | None = None
    compiled_autograd_id: int | None = None
    frame_id: int | None = None
    frame_compile_id: int | None = None
    attempt: int | None = None
    has_payload: str | None = None
    string: tuple[str, int] | None = msgspec.field(name=STRING, default=None)
    artifact: Artifact | None = None
    dynamo_start: Start | None = None
    inductor_output_code: OutputCode | None = None
    compilation_metrics: Metrics | None = None
    bwd_compilation_metrics: Metrics | None = None
    compilation_metrics_runtime: Metrics | None = None

    @property
    def compile_id(self) -> str:
        """`1/5`, `!0/1/5`, or `!0`; empty outside of a compilation."""
        autograd = "" if self.compiled_autograd_id is None else f"!{self.compiled_autograd_id}"
        frame = "" if self.frame_id is None else f"{self.frame_id}/{self.frame_compile_id or 0}"
        return "/".join(filter(None, (autograd, frame)))


class ChromiumEvent(msgspec.Struct, frozen=True, gc=False):
    """The payload of `chromium_event`: the begin or the end of a phase, or an instant."""

    name: str = ""
    ts: msgspec.Raw = msgspec.Raw()
    ph: str = ""
    args: msgspec.Raw = msgspec.Raw()


class PhaseArguments(msgspec.Struct, frozen=True, gc=False):
    """The arguments of a phase that the tables need."""

    compile_id: str | None = None
    fn_name: str | None = None
    key: str | None = None
    """Of the cache that was asked for a graph, at the end of the phase."""


# The clock of a compile log: times of records are local and have no year; times of events show both.

QUARTER_HOUR = 900 * SECOND
"""Time zones differ by multiples of it."""
DAY = 86400 * SECOND
YEAR = 365 * DAY
"""Days are counted without the leap day: the last one of a year is always the 365th."""
_DAYS_BEFORE = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
"""Days of a year before each month, without the leap day."""
TOLERANCE = SECOND
"""How much earlier or later than the events around it a record can be."""


@lru_cache(maxsize=16)
def local_seconds(date_time: bytes) -> int:
    """`1118 06:08:23` since the last day before a year; a month that is none has no days before it."""
    month, day, hour, minute, second = (int(date_time[at : at + 2]) for at in (0, 2, 5, 8, 11))
    days = _DAYS_BEFORE[month] + day if 1 <= month <= 12 else 0
    return ((days * 24 + hour) * 60 + minute) * 60 + second


class _Stretch(Struct):
    """Records of a log between which the zone did not change."""

    before: int
    """The number of records at the last event of the stretch before; those between may be of either."""
    position: int
    """The number of records at its first event."""
    offset: int
    """What to add to local times."""
    first_ns: int
    """Since 1970, of its first event."""
    last_ns: int
    events: int = 1


class LogClock(Struct):
    """Collects local times and events in the order of the log."""

    stretches: list[_Stretch] = field(default_factory=list)
    years: int = 0
    """How often a year ended within the log."""
    latest: int = 0
    """The latest local time since the zone changed."""
    _last: int = 0
    _position: int = 0
    """The number of records at the last event."""

    def continued(self, local: int) -> int:
        """The local time of the next record, counted on over the end of a year."""
        local += self.years * YEAR
        if self._last - local > 300 * DAY:
            self.years += 1
            local += YEAR
        self._last = local
        self.latest = max(self.latest, local)
        return local

    def add_event(self, local: int, event_ns: int, position: int) -> None:
        """An event that was logged when it happened; `position` records with a time were before it."""
        offset = round((event_ns - local) / QUARTER_HOUR) * QUARTER_HOUR
        if self.stretches and self.stretches[-1].offset == offset:
            self.stretches[-1].events += 1
            self.stretches[-1].last_ns = event_ns
        else:
            self.stretches.append(_Stretch(self._position, position, offset, event_ns, event_ns))
            self.latest = local
        self._position = position

    def settle(self, source: Source) -> bool:
        """Decides what the stretches are; false if no event shows the time zone and the year."""
        self.stretches = _without_delays(self.stretches)
        if self.stretches:
            return True
        written = source.modified_ns // 10**9 if source.is_whole else 0
        start = _new_year(datetime.fromtimestamp(written, UTC).year - self.years)
        self.stretches = [_Stretch(0, 0, start, 0, 0)]
        return False

    def since_1970(self, local: int, position: int) -> int:
        """The time of the record with this number, after `settle`."""
        index = max(bisect_right(self.stretches, position, key=lambda one: one.position) - 1, 0)
        time = local + self.stretches[index].offset
        if index + 1 < len(self.stretches) and position >= self.stretches[index + 1].before:
            after = self.stretches[index + 1]
            begin, end = self.stretches[index].last_ns - TOLERANCE, after.first_ns + TOLERANCE
            changed = local + after.offset
            if begin <= changed <= end and not begin <= time <= end:
                return changed
        return time

    @property
    def behind_utc(self) -> int:
        """What to add to local times with their year for times since 1970, at the first event; after `settle`."""
        first = self.stretches[0]
        begun = datetime.fromtimestamp(first.first_ns / SECOND, UTC)
        leap_day = DAY if isleap(begun.year) and begun.month > 2 else 0
        starts = (_new_year(begun.year + years) for years in (-1, 0, 1))
        return min((first.offset - leap_day - start for start in starts), key=abs)

    @property
    def end_ns(self) -> int:
        """The time of the last record, after `settle`."""
        return self.latest + self.stretches[-1].offset


def _without_delays(stretches: list[_Stretch]) -> list[_Stretch]:
    """Without single events that were logged minutes late, and the stretches around them joined."""
    kept: list[_Stretch] = []
    for one in stretches:
        if one.events == 1 and len(stretches) > 1:
            continue
        if kept and kept[-1].offset == one.offset:
            kept[-1].last_ns = one.last_ns
            kept[-1].events += one.events
        else:
            kept.append(one)
    return kept or stretches[:1]


def _new_year(year: int) -> int:
    """The last day of the year before, from which days are counted."""
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * SECOND - DAY


# Records of a compile log: a prefix with time and process, an envelope of JSON, and indented lines of payload.

BLOCK = 1 << 17
LONGEST = 256 << 20
"""Bytes of a record that is held in memory."""

PREFIX = re.compile(rb"\n[VIWEC](\d{4} \d\d:\d\d:\d\d)\.(\d{6}) (\d{1,10}) ([^:\n]{0,1000}):(\d{1,8})\] ")
INDENT = b"\t"


class Record(Struct, frozen=True):
    """One record; its time is local, and has no year."""

    offset: int
    """Of its first byte in the uncompressed file."""
    time_ns: int
    """Since the last day before a year, without its leap day."""
    pid: int
    where: bytes
    """The file that wrote it."""
    line: int
    envelope: bytes
    payload: bytes
    """Without the indent of its lines."""
    payload_offset: int
    payload_bytes: int
    """As stored, with the indent."""
    noise: int
    """Lines that are no part of it."""

    def has_digest(self, digest: str) -> bool:
        """True if the payload is complete."""
        return hashlib.md5(self.payload, usedforsecurity=False).hexdigest() == digest


class Damage(Struct):
    """What of a log is no record."""

    before: int = 0
    """Bytes before the first record."""
    cut: bool = False
    """True if the last line does not end."""


def records_in(stream: Opened, damage: Damage, advanced: Callable[[int], None]) -> Iterator[Record]:
    """The records of a log, in order; `held` begins with the newline before the first one that may continue."""
    held, offset, searched = bytearray(b"\n"), -1, 0
    begun = False
    while block := stream.read(BLOCK):
        advanced(len(block))
        held += block
        complete = held.rfind(b"\n")
        starts = [match.start() for match in PREFIX.finditer(held, searched, complete + 1)]
        if starts and not begun:
            damage.before, begun = starts[0], True
        elif begun:
            starts.insert(0, 0)
        if len(starts) > 1:
            text = bytes(held)
            for start, stop in pairwise(starts):
                yield _record(text, start, stop, offset)
        if starts:
            del held[: starts[-1]]
            offset += starts[-1]
            complete -= starts[-1]
        if len(held) > LONGEST:
            raise UnreadableError(
                f"a record is longer than {LONGEST >> 20} MB", advice="Is it a compile log?"
            )
        searched = max(complete, 1 if begun else 0)
    damage.cut = len(held) > 1 and held[-1:] != b"\n"
    if begun:
        yield _record(bytes(held), 0, _end_of_last(held, cut=damage.cut), offset)
    else:
        damage.before = len(held) - 1


def _end_of_last(held: bytearray, *, cut: bool) -> int:
    """Where the last record ends: before the newline, and before the beginning of another one."""
    last = held.rfind(b"\n")
    continues = held[last + 1 : last + 2] == INDENT
    return len(held) if cut and (last == 0 or continues) else last


def _record(text: bytes, start: int, stop: int, offset: int) -> Record:
    """The record after the newline at `start`; that before the next one is at `stop`."""
    match = PREFIX.match(text, start)
    assert match
    date_time, micros, pid, where, line = match.groups()
    begin = match.end()
    line_end = text.find(b"\n", begin, stop)
    line_end = stop if line_end < 0 else line_end
    stored = text[line_end + 1 : stop]
    payload, noise = _payload(stored)
    return Record(
        offset + start + 1,
        local_seconds(date_time) * SECOND + int(micros) * MILLISECOND // 1000,
        int(pid),
        where,
        int(line),
        text[begin:line_end],
        payload,
        offset + line_end + 1,
        len(stored),
        noise,
    )


def _payload(stored: bytes) -> tuple[bytes, int]:
    """The payload without its indent, and how many lines between belong to something else."""
    if not stored:
        return b"", 0
    if stored.startswith(INDENT):
        payload = stored[1:].replace(b"\n\t", b"\n")
        if payload.count(b"\n") == len(stored) - 1 - len(payload):
            return payload, 0
    lines = stored.split(b"\n")
    indented = [line[1:] for line in lines if line.startswith(INDENT)]
    return b"\n".join(indented), len(lines) - len(indented)
