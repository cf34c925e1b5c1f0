"""Watchdog lines in logs of any size: blocks of bytes are searched, and only the lines that match are decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.sources import LARGEST_RANK, Opened, Source
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.text import number, size
from tracelink._model.trace import RankTrace, SourceInfo
from tracelink._model.witnesses import Report, Sign, WatchdogLog

# The grammar of watchdog lines, of torch 1.8 to 2.13, whatever a launcher puts in front of them, in bytes.

TOKENS = (
    b"WorkNCCL(",
    b"collective operation timeout: Work",
    b"ast enqueued ",
    b"eartbeat monitor timed out!",
    b"gloo/transport/",
    b"monitoredBarrier",
)
"""Every line of a watchdog contains one of these."""
TOKEN = re.compile(b"|".join(map(re.escape, TOKENS)))
BLOCK = 4 << 20
BEFORE = 2048
AFTER = 8192
"""Bytes of a line around what marks it."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_RANK = re.compile(r"\[rank(\d{1,6})\]:")
_LABEL = re.compile(r"^\s*(?:\[[A-Za-z_][\w.-]{0,60}?(?P<elastic>\d{1,6})\]:|(?P<slurm>\d{1,6}): )")
"""`[default3]:` of torchelastic, `3: ` of srun --label."""
_STAMP = re.compile(
    r"\[[EWIF](?P<month>\d{1,2})(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)\.(?P<part>\d{1,9}) "
)
_GROUP = re.compile(
    r"\[PG (?:ID \d{1,9} PG GUID (?P<guid>[^\s()\[\]]{1,200})|(?P<local>[^\s()\[\]]{1,200})) ?"
    r"(?:\((?P<description>[^()\[\]]{0,200})\))? ?Rank (?P<member>\d{1,6})\]"
)
_TIMED_OUT = re.compile(
    r"collective operation timeout: Work\w{1,20}\((?:SeqNum=(?P<sequence>\d{1,15}), )?OpType=(?P<operation>\w{1,60})"
    r"(?:, NumelIn=(?P<elements_in>\d{1,18}), NumelOut=(?P<elements_out>\d{1,18}))?"
    r"(?:, TensorShape=\[[\d, ]{0,400}\])?, Timeout\(ms\)=(?P<timeout_ms>\d{1,15})\)"
    r"(?: ran for (?P<ran_ms>\d{1,15}) milliseconds)?"
)
_STATUS = re.compile(
    r"ast enqueued (?:\w{1,20} )?work: (?P<enqueued>-?\d{1,20}), "
    r"last completed (?:\w{1,20} )?work: (?P<completed>-?\d{1,20})"
)
_FAILED_AT = re.compile(
    r"(?:work sequence id|detected by watchdog at work|Timeout at \w{1,20} work): (\d{1,15})"
)
_HEARTBEAT = re.compile(r"eartbeat monitor timed out!")
_GAVE_UP = re.compile(
    r"gloo/transport/[^\]\s]{1,200}\] ?Timed out waiting (?P<timeout_ms>\d{1,15})ms for (?P<operation>send|recv)"
)
_LOST = re.compile(
    r"gloo/transport/[^\]\s]{1,200}\] ?(?:Connection closed by peer|(?:Read|Write) error|Socket closed|Broken pipe"
    r"|Connection reset|Application timeout caused pair closure)"
)
_BARRIER = re.compile(
    r"Ranks? (?P<members>\d{1,6}(?:, ?\d{1,6}){0,4096}) failed to pass monitoredBarrier in (?P<timeout_ms>\d{1,15}) ms"
)
_PASSED = re.compile(r"Rank (?P<member>\d{1,6}) successfully reached monitoredBarrier")
DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
"""Days of a leap year before each month."""
OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "allreduce_coalesced",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "_all_gather_base",
    "ALLGATHER_COALESCED": "all_gather_into_tensor_coalesced",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
}
"""Names in lines that are other words in dumps, not only in capitals."""
LATEST = 1 << 48
"""Larger sequence numbers are memory that torch 2.3 did not initialize."""
DEFAULT = "default_pg"


def marked_lines(stream: Opened, limit: int) -> Iterator[str]:
    """The lines with a mark among the next `limit` bytes; of a very long line the part around each mark."""
    tail = b""
    while True:
        block = stream.read(min(BLOCK, limit))
        limit -= len(block)
        last = not block or not limit
        text = tail + block
        end = len(text) if last else text.rfind(b"\n") + 1 or max(len(text) - AFTER, 0)
        if any(mark in text for mark in TOKENS):
            yield from _marked_in(text, end)
        if last:
            return
        tail = text[max(end, len(text) - BLOCK) :]


def _marked_in(text: bytes, end: int) -> Iterator[str]:
    done = 0
    for mark in TOKEN.finditer(text, 0, end):
        at = mark.start()
        if at < done:
            continue
        first = text.rfind(b"\n", max(done, at - BEFORE), at) + 1 or max(done, at - BEFORE)
        newline = text.find(b"\n", at, at + AFTER)
        done = at + AFTER if newline < 0 else newline
        yield text[first:done].decode("utf-8", "replace")


def report_of(line: str) -> Report | None:
    """The report in one line; None if it is not of a watchdog."""
    line = _COLOUR.sub("", line)
    for sign, fields in _facts(line):
        group = _group_of(line)
        rank = _number(_RANK.search(line))
        if rank is None and group.get("group") == "0" and sign in (Sign.STATUS, Sign.HEARTBEAT):
            rank = group["member"]
        return Report(sign, rank=rank, label=_label_of(line), at_ns=_time_of(line), **{**group, **fields})
    return None


def _facts(line: str) -> Iterator[tuple[Sign, dict[str, Any]]]:
    """The facts by the first pattern that fits; a line that reports a status and more reports the status."""
    if found := _TIMED_OUT.search(line):
        numbers = {
            name: int(text) for name, text in found.groupdict().items() if text and name != "operation"
        }
        yield Sign.TIMED_OUT, {**numbers, "operation": f"nccl:{_operation(found['operation'])}"}
    if (found := _STATUS.search(line)) and (status := _status(found)):
        at = _FAILED_AT.search(line)
        yield Sign.STATUS, {**status, "sequence": int(at[1]) if at else None}
    if _HEARTBEAT.search(line):
        yield Sign.HEARTBEAT, {}
    if found := _BARRIER.search(line):
        members = tuple(sorted({int(text) for text in found["members"].split(",")}))
        yield (
            Sign.BARRIER,
            {"members": members, "timeout_ms": int(found["timeout_ms"]), "operation": "gloo:barrier"},
        )
    if found := _PASSED.search(line):
        yield Sign.PASSED, {"member": int(found["member"]), "operation": "gloo:barrier"}
    if found := _GAVE_UP.search(line):
        yield (
            Sign.GAVE_UP,
            {"timeout_ms": int(found["timeout_ms"]), "operation": f"gloo:{found['operation']}"},
        )
    if _LOST.search(line):
        yield Sign.LOST, {}


def _operation(name: str) -> str:
    """`_all_gather_base` of `_ALLGATHER_BASE`, as dumps name it."""
    return OPERATIONS.get(name, name.lower())


def _status(found: re.Match[str]) -> dict[str, Any]:
    """Both numbers; nothing if one of them cannot be true."""
    enqueued, completed = int(found["enqueued"]), int(found["completed"])
    return {"enqueued": enqueued, "completed": completed} if -1 <= completed <= enqueued < LATEST else {}


def _group_of(line: str) -> dict[str, Any]:
    """The group and the rank within it; other numbers than 0 of torch 2.4 and before are local to a process."""
    found = _GROUP.search(line)
    if not found:
        return {}
    description = found["description"] or ""
    name = found["guid"] or (found["local"] if found["local"] == "0" else "")
    if name == "0" and not description:
        description = DEFAULT
    return {"group": name, "description": description, "member": int(found["member"])}


def _label_of(line: str) -> int | None:
    found = _LABEL.match(line)
    return int(found["elastic"] or found["slurm"]) if found and not _RANK.match(line.lstrip()) else None


def _number(found: re.Match[str] | None) -> int | None:
    return int(found[1]) if found and int(found[1]) <= LARGEST_RANK else None


def _time_of(line: str) -> int | None:
    """Nanoseconds since the start of a leap year."""
    found = _STAMP.search(line)
    if not found:
        return None
    month, day, hour, minute, second = (
        int(found[name]) for name in ("month", "day", "hour", "minute", "second")
    )
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    days = DAYS_BEFORE[month - 1] + day - 1
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 10**9 + int(found["part"].ljust(9, "0"))


FROM_START = 64 << 20
FROM_END = 192 << 20
"""Bytes of a log that are searched: a hang is at its end, unless it ran on."""
MOST_REPORTS = 20_000


class WatchdogLogReader:
    """Finds the lines of watchdogs in a text."""

    name = "watchdog-log"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """Such a log is no trace: its lines have no year, no time zone, and only the end of a call."""
        raise UnreadableError(
            "a log is not a trace", source=source.path, advice="Diagnose it: tracelink diagnose LOGS"
        )

    def read_reports(self, source: Source, engine: Engine) -> WatchdogLog:
        """The reports in its lines, in their order; of equal lines the last one, and of very many the last ones."""
        scan = _Scan()
        reports: dict[Report, None] = {}
        with source.open() as stream:
            for line in scan.lines(stream, source):
                if report := report_of(line):
                    reports.pop(report, None)
                    reports[report] = None
                if len(reports) > MOST_REPORTS:
                    del reports[next(iter(reports))]
                    scan.surplus += 1
            damage = stream.damage
        engine.meter.add(source.bytes)
        info = SourceInfo(path=source.path, format=self.name, records=len(reports), bytes=source.bytes)
        return WatchdogLog(info, list(reports), scan.findings(source.path, damage))


class _Scan(Struct):
    """The lines with a mark, and how much of the log was not searched."""

    skipped: int = 0
    surplus: int = 0

    def lines(self, stream: Opened, source: Source) -> Iterator[str]:
        """The lines that may be of a watchdog."""
        if stream.plain and source.bytes > FROM_START + FROM_END:
            self.skipped = source.bytes - FROM_START - FROM_END
            yield from marked_lines(stream, FROM_START)
            stream.skip(self.skipped)
            yield from marked_lines(stream, FROM_END)
            return
        yield from marked_lines(stream, FROM_START + FROM_END)
        if not stream.plain:
            while rest := len(stream.read(BLOCK)):
                self.skipped += rest
                if self.skipped > FROM_START + FROM_END:
                    break

    def findings(self, path: str, damage: str) -> list[Finding]:
        found = []
        if self.skipped:
            message = (
                f"{path}: at least {size(self.skipped)} of this log were not searched for watchdog lines. "
                "Cut out the part around the hang to have it searched."
            )
            found.append(Finding(Severity.WARNING, "log_not_searched", message, 1, path))
        if self.surplus:
            message = f"{path}: the last watchdog lines are used; {number(self.surplus)} before them are not."
            found.append(Finding(Severity.WARNING, "too_many_reports", message, self.surplus, path))
        if damage:
            message = f"{path}: the log is damaged ({damage}); what precedes the damage was searched."
            found.append(Finding(Severity.WARNING, Truncated.reason, message, source=path))
        return found
