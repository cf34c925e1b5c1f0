"""Files that are no traces: logs, stacks, answers of NCCL's monitor, and what is not used; found by content.

Only the first bytes of a file are read to recognise it; logs are searched in blocks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

import tracelink.plugins as plugins
from tracelink._hang.dumps.recordings import compile_logs_among, profiles_among
from tracelink._hang.witnesses.log_ranks import of_last_hang, reports_by_rank
from tracelink._hang.witnesses.stacks import Stacks, stacks_among
from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._join.reading import Task
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink._model.witnesses import (
    MOST_REPORTS,
    Conflict,
    MonitorAnswer,
    RankReport,
    Sign,
    Use,
    WatchdogLog,
    Witnesses,
)
from tracelink.plugins import Content

WATCHDOG_LOG = "watchdog-log"
NCCL_RAS = "nccl-ras"
SHORTEST_TEXT = 4096
"""First bytes of a file that are looked at to tell text from anything else."""
CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
LOG_NAME = re.compile(
    r"(?:\.(?:log|out|err|txt)(?:\.\d+)?(?:\.gz)?|(?:^|[._-])(?:stdout|stderr|log)(?:[._-].*)?)$"
)
"""Names of texts that count as logs even without a watchdog line."""
BATCH_BYTES = 32 << 20
"""How much of logs one worker searches before it returns."""
MOST_SKIPPED = 3
"""More files of no known format are one finding."""
BINARY = "binary files"
OTHER_TEXT = "other texts"
EMPTY = "empty files"
_Read = TypeVar("_Read")


class Bundle(Struct):
    """What the files that are no traces contain."""

    reports: Sequence[RankReport] = ()
    ranks_with_logs: Sequence[int] = ()
    logs: Sequence[str] = ()
    """Paths of logs with watchdog lines."""
    quiet: Sequence[str] = ()
    """Paths of logs without any."""
    statuses: Sequence[MonitorAnswer] = ()
    stacks: Stacks = field(default_factory=lambda: Stacks({}, (), (), ()))
    unused: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    findings: list[Finding] = field(default_factory=list)

    @property
    def answers(self) -> list[str]:
        """Paths of answers of NCCL's monitor."""
        return list(dict.fromkeys(status.source for status in self.statuses))

    @property
    def recognised(self) -> set[str]:
        """The files that were used, and logs to which their rank wrote nothing."""
        empty_logs = [path for path in self.unused.get(EMPTY, ()) if LOG_NAME.search(path)]
        return {*self.logs, *self.quiet, *empty_logs, *self.stacks.recognised, *self.answers}

    def failed(self) -> frozenset[tuple[int, int | None]]:
        """Ranks whose logs show that a call of theirs failed, and its sequence number if the log names it."""
        signs = (Sign.TIMED_OUT, Sign.GAVE_UP, Sign.LOST)
        return frozenset(
            (one.rank, one.sequence) for one in self.reports if one.rank is not None and one.sign in signs
        )

    def witnesses(self, conflicts: Sequence[Conflict], uses: Sequence[Use]) -> Witnesses:
        """What the files show, where they contradict each other, and `uses` of others."""
        used = (
            *uses,
            *_uses("logs with watchdog lines", self.logs, "timeouts, last collectives"),
            *_uses("logs without watchdog lines", self.quiet, "searched"),
            *_uses("files with stacks", list(self.stacks.recognised), "what each rank does"),
            *_uses("answers of NCCL's monitor", self.answers, "counts of each communicator"),
            *(use for kind, paths in sorted(self.unused.items()) for use in _uses(kind, paths, "")),
        )
        return Witnesses(self.reports[:MOST_REPORTS], self.stacks.folded, self.statuses, conflicts, used)


def _uses(what: str, paths: Sequence[str], purpose: str) -> list[Use]:
    return [Use(what, len(paths), purpose, paths[0])] if paths else []


def uses_of(tasks: Sequence[Task], dumps: Sequence[str]) -> list[Use]:
    """What files that readers read were used for: without dumps, nothing shows which calls to look for in them."""

    def of(what: str, found: Sequence[Task], purpose: str) -> list[Use]:
        return _uses(what, [task.source.path for task in found], purpose if dumps else "")

    return [
        *_uses("dumps", dumps, "the diagnosis"),
        *of("profiles and execution traces", profiles_among(tasks), "calls of the ranks of a problem"),
        *of("compile logs", compile_logs_among(tasks), "compilations of culprits"),
        *of(
            "metrics",
            [task for task in tasks if task.content is Content.METRICS],
            "GPUs that run differently",
        ),
    ]


def bundle_of(sources: Sequence[Source], engine: Engine, also: Sequence[Source] = ()) -> Bundle:
    """What these files contain, which no reader of traces reads; `also` are texts that another reader uses."""
    bundle = Bundle()
    by_kind: dict[str, list[Source]] = defaultdict(list)
    for source in sources:
        by_kind[_kind(source)].append(source)
    texts = by_kind.pop(WATCHDOG_LOG, [])
    for source in by_kind.pop(NCCL_RAS, []):
        read = _read_by(NCCL_RAS, "read_answers", source, engine)
        if isinstance(read, Finding):
            bundle.findings.append(read)
        else:
            bundle.statuses = [*bundle.statuses, *read]
    for kind, others in by_kind.items():
        bundle.unused[kind] = [source.path for source in others]
    bundle.stacks = stacks_among(texts)
    bundle.findings += bundle.stacks.findings
    _add_logs([*texts, *also], engine, bundle, {source.path for source in also})
    return bundle


def _kind(source: Source) -> str:
    """The format of a file, or what it is; each text may be a log."""
    if source.format:
        return BINARY
    try:
        head = source.head()
    except (UnreadableError, OSError):
        return BINARY
    if not head:
        return EMPTY
    formats = (known.name for known in plugins.recognised(head, source.name, NCCL_RAS))
    binary = CONTROL.search(head[:SHORTEST_TEXT])
    known = (name for name in formats if name in (NCCL_RAS, WATCHDOG_LOG))
    return next(known, BINARY if binary else WATCHDOG_LOG)


def _add_logs(texts: Sequence[Source], engine: Engine, bundle: Bundle, also: Collection[str]) -> None:
    """Searches all texts, also those with stacks: faulthandler writes into logs."""
    logs: list[tuple[Source, WatchdogLog]] = []
    for source, log in zip(texts, _searched(texts, engine), strict=True):
        if isinstance(log, Finding):
            bundle.findings.append(log)
            continue
        bundle.findings += log.findings
        other = {*also, *bundle.stacks.recognised}
        if log.reports or (source.path not in other and LOG_NAME.search(source.name)):
            logs.append((source, log))
        elif source.path not in other:
            bundle.unused[OTHER_TEXT].append(source.path)
    bundle.logs = sorted({source.path for source, log in logs if log.reports})
    bundle.quiet = [source.path for source, log in logs if not log.reports]
    if bundle.logs:
        reports, bundle.ranks_with_logs = reports_by_rank(logs, bundle.findings)
        bundle.reports = of_last_hang(reports, bundle.findings)


def _searched(texts: Sequence[Source], engine: Engine) -> list[WatchdogLog | Finding]:
    """What each text contains, or why it cannot be read."""
    if not texts:
        return []
    batches = _batches(texts)
    outer, inner = engine.split(len(batches))

    def work(batch: Sequence[Source]) -> list[WatchdogLog | Finding]:
        return [_read_by(WATCHDOG_LOG, "read_reports", source, inner) for source in batch]

    return [log for logs in outer.map(work, batches, shared=texts) for log in logs]


def _read_by(name: str, method: str, source: Source, engine: Engine) -> Any | Finding:
    try:
        return plugins.isolated(name, "reader", lambda: getattr(plugins.reader(name), method)(source, engine))
    except (UnreadableError, OSError) as error:
        message = str(error) if source.path in str(error) else f"{source.path}: {error}"
        return Finding(Severity.WARNING, "unreadable", message, source=source.path)


def _batches(texts: Sequence[Source]) -> list[list[Source]]:
    batches: list[list[Source]] = []
    size = BATCH_BYTES
    for source in texts:
        if size >= BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(source)
        size += source.bytes
    return batches


def with_folded_skips(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, where those on many files of no known format are one."""
    skipped = [finding for finding in findings if finding.reason == "skipped" and finding.source]
    if len(skipped) <= MOST_SKIPPED:
        return list(findings)
    message = f"{len(skipped)} files were skipped: no reader recognises them."
    one = Finding(Severity.INFO, "skipped", message, len(skipped), example=skipped[0].source)
    return [*(finding for finding in findings if finding not in skipped), one]
