"""Files that are no traces: logs, stacks, answers of NCCL's monitor, and what is not used; found by content.

Only the first bytes of a file are read to recognise it; logs are searched in blocks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Protocol, cast

from msgspec import Struct, field

import tracelink.plugins as plugins
from tracelink.diagnosis.dumps.recordings import compile_logs_among, profiles_among
from tracelink.diagnosis.witnesses.log_ranks import of_last_hang, reports_by_rank
from tracelink.diagnosis.witnesses.stacks import Stacks, stacks_among
from tracelink.io.engine import Engine
from tracelink.io.sources import Source
from tracelink.model.errors import UnreadableError
from tracelink.model.findings import Finding, Severity
from tracelink.model.witnesses import (
    MOST_REPORTS,
    Conflict,
    MonitorAnswer,
    RankReport,
    Use,
    WatchdogLog,
    Witnesses,
)
from tracelink.pipeline.reading import Task
from tracelink.plugins import MetricsReader

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
KINDS = (
    (re.compile(rb"\x7fELF"), "core files and programs"),
    (re.compile(rb"\x80[\x02-\x05]"), "pickles"),
    (re.compile(rb".{6}\0\0\{\"", re.DOTALL), "safetensors"),
    (re.compile(rb"PK\x03\x04"), "checkpoints"),
    (re.compile(rb"\x89HDF"), "HDF5"),
    (re.compile(rb"SQLite format 3\0"), "databases"),
    (re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8"), "pictures"),
    (re.compile(rb"PAR1"), "Parquet"),
    (re.compile(rb"\x93NUMPY"), "arrays"),
    (re.compile(rb"\x28\xb5\x2f\xfd|\xfd7zXZ|BZh|7z\xbc\xaf"), "archives of other kinds"),
)
"""How files that are not used begin, and what they are."""
OTHER_BINARY = "other binary files"
OTHER_TEXT = "other texts"
EMPTY = "empty files"


class _LogReader(Protocol):
    def read_reports(self, source: Source, engine: Engine) -> WatchdogLog: ...


class _StatusReader(Protocol):
    def read_answers(self, source: Source, engine: Engine) -> list[MonitorAnswer]: ...


class Bundle(Struct):
    """What the files that are no traces contain."""

    reports: Sequence[RankReport] = ()
    ranks_with_logs: Sequence[int] = ()
    logs: Sequence[str] = ()
    """Paths of logs with watchdog lines."""
    quiet: Sequence[str] = ()
    """Paths of logs without any."""
    empty_logs: list[str] = field(default_factory=list)
    """Many ranks write nothing to one of their streams."""
    statuses: Sequence[MonitorAnswer] = ()
    stacks: Stacks = field(default_factory=lambda: Stacks({}, (), (), ()))
    unused: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    findings: list[Finding] = field(default_factory=list)

    @property
    def recognised(self) -> set[str]:
        """The files that were used."""
        answers = [status.source for status in self.statuses]
        return {*self.logs, *self.quiet, *self.empty_logs, *self.stacks.recognised, *answers}

    def witnesses(self, conflicts: Sequence[Conflict], uses: Sequence[Use]) -> Witnesses:
        """What the files show, where they contradict each other, and `uses` of others."""
        used = [*uses, *self.uses()]
        return Witnesses(self.reports[:MOST_REPORTS], self.stacks.folded, self.statuses, conflicts, used)

    def uses(self) -> list[Use]:
        """What was used for what, and what was not used."""
        stacks = list(self.stacks.recognised)
        answers = list(dict.fromkeys(status.source for status in self.statuses))
        used = [
            ("logs with watchdog lines", list(self.logs), "timeouts, last collectives"),
            ("logs without watchdog lines", list(self.quiet), "searched"),
            ("files with stacks", stacks, "what each rank does"),
            ("answers of NCCL's monitor", answers, "counts of each communicator"),
        ]
        found = [Use(what, len(paths), purpose, paths[0]) for what, paths, purpose in used if paths]
        return [*found, *(Use(kind, len(paths), "", paths[0]) for kind, paths in sorted(self.unused.items()))]


def bundle_of(sources: Sequence[Source], engine: Engine, also: Sequence[Source] = ()) -> Bundle:
    """What these files contain, which no reader of traces reads; `also` are texts that another reader uses."""
    bundle = Bundle()
    texts: list[Source] = []
    statuses: list[Source] = []
    for source in sources:
        match _kind(source):
            case "text":
                texts.append(source)
            case "status":
                statuses.append(source)
            case kind:
                bundle.unused[kind].append(source.path)
                if kind == EMPTY and LOG_NAME.search(source.name):
                    bundle.empty_logs.append(source.path)
    bundle.statuses = _statuses(statuses, engine, bundle)
    bundle.stacks = stacks_among(texts)
    _add_logs([*texts, *also], engine, bundle, {source.path for source in also})
    bundle.findings += bundle.stacks.findings
    return bundle


def _kind(source: Source) -> str:
    """`text`, `status`, or a kind of files that are not used."""
    if source.format:
        return OTHER_BINARY
    try:
        head = source.head()
    except (UnreadableError, OSError):
        return OTHER_BINARY
    if not head:
        return EMPTY
    for known in plugins.recognised(head, source.name, NCCL_RAS):
        if known.name in (NCCL_RAS, WATCHDOG_LOG):
            return "status" if known.name == NCCL_RAS else "text"
    if found := next((kind for start, kind in KINDS if start.match(head)), ""):
        return found
    return OTHER_BINARY if CONTROL.search(head[:SHORTEST_TEXT]) else "text"


def _statuses(sources: Sequence[Source], engine: Engine, bundle: Bundle) -> list[MonitorAnswer]:
    found: list[MonitorAnswer] = []
    reader = cast(_StatusReader, plugins.reader(NCCL_RAS)) if sources else None
    for source in sources:
        assert reader
        try:
            found += reader.read_answers(source, engine)
        except (UnreadableError, OSError) as error:
            bundle.findings.append(_unreadable(source, error))
    return found


def _unreadable(source: Source, error: Exception) -> Finding:
    message = str(error) if source.path in str(error) else f"{source.path}: {error}"
    return Finding(Severity.WARNING, "unreadable", message, source=source.path)


def _add_logs(texts: Sequence[Source], engine: Engine, bundle: Bundle, also: Collection[str]) -> None:
    """Searches all texts, also those with stacks: faulthandler writes into logs."""
    searched = list(zip(texts, _searched(texts, engine), strict=True))
    for _, result in searched:
        bundle.findings += result.findings if isinstance(result, WatchdogLog) else [result]
    logs = [
        (source, log)
        for source, log in searched
        if isinstance(log, WatchdogLog)
        and (log.reports or (source.path not in also and _is_log(source, bundle)))
    ]
    with_reports = {source.path for source, log in logs if log.reports}
    bundle.logs = sorted(with_reports)
    bundle.quiet = [source.path for source, log in logs if not log.reports]
    others = {*with_reports, *bundle.quiet, *bundle.stacks.recognised, *also}
    for source in texts:
        if source.path not in others:
            bundle.unused[OTHER_TEXT].append(source.path)
    if with_reports:
        reports, bundle.ranks_with_logs = reports_by_rank(logs, bundle.findings)
        bundle.reports = of_last_hang(reports, bundle.findings)


def _is_log(source: Source, bundle: Bundle) -> bool:
    return source.path not in bundle.stacks.recognised and LOG_NAME.search(source.name) is not None


def _searched(texts: Sequence[Source], engine: Engine) -> list[WatchdogLog | Finding]:
    if not texts:
        return []
    reader = cast(_LogReader, plugins.reader(WATCHDOG_LOG))
    batches = _batches(texts)
    outer, inner = engine.split(len(batches))

    def work(batch: Sequence[Source]) -> list[WatchdogLog | Finding]:
        return [_searched_one(source, reader, inner) for source in batch]

    return [log for logs in outer.map(work, batches, shared=[*texts, reader]) for log in logs]


def _searched_one(source: Source, reader: _LogReader, engine: Engine) -> WatchdogLog | Finding:
    try:
        return reader.read_reports(source, engine)
    except (UnreadableError, OSError) as error:
        return _unreadable(source, error)


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


def uses_of(tasks: Sequence[Task], dumps: Sequence[str]) -> list[Use]:
    """What files that readers read were used for: without dumps, nothing shows which calls to look for in them."""
    metrics = [task for task in tasks if isinstance(task.reader, MetricsReader)]
    listed = (
        ("dumps", list(dumps), "the diagnosis"),
        ("profiles and execution traces", _paths(profiles_among(tasks)), "calls of the ranks of a problem"),
        ("compile logs", _paths(compile_logs_among(tasks)), "compilations of culprits"),
        ("metrics", _paths(metrics), "GPUs that run differently"),
    )
    return [
        Use(what, len(paths), purpose if dumps else "", paths[0]) for what, paths, purpose in listed if paths
    ]


def _paths(tasks: Sequence[Task]) -> list[str]:
    return [task.source.path for task in tasks]


def with_folded_skips(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, where those on many files of no known format are one."""
    skipped = [finding for finding in findings if finding.reason == "skipped" and finding.source]
    if len(skipped) <= MOST_SKIPPED:
        return list(findings)
    message = f"{len(skipped)} files were skipped: no reader recognises them."
    one = Finding(Severity.INFO, "skipped", message, len(skipped), example=skipped[0].source)
    return [*(finding for finding in findings if finding not in skipped), one]
