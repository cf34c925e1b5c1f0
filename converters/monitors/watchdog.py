"""Watchdog lines in logs of any size: blocks of bytes are searched, and only the lines that match are decoded."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.sources import Opened, Source
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.text import number, size
from tracelink._model.trace import RankTrace, SourceInfo
from tracelink._model.witnesses import Report, WatchdogLog
from tracelink.converters.monitors.lines import BLOCK, marked_lines, report_of

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
        """What its lines say, in their order; of equal lines the last one, and of very many the last ones."""
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
