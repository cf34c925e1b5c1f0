"""Sources to tasks and rank traces: which reader, which rank; an unreadable file never affects other files."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

import tracelink.plugins as plugins
from tracelink._io.engine import Engine
from tracelink._io.names import resolve_rank
from tracelink._io.sources import Discovery, Source, archive_of
from tracelink._model.errors import NoInputError, RankConflictError, UnreadableError, UsageError, choices
from tracelink._model.findings import Finding, Severity, UnknownRank
from tracelink._model.trace import RankTrace, SourceInfo
from tracelink.plugins import (
    Content,
    CrashError,
    Inspected,
    PluginError,
    ReaderMethods,
    ReaderSpec,
    check_trace,
    isolated,
    recognised,
)

Result = TypeVar("Result")

SNIFFED = 4 << 20
"""Bytes that are examined if the first ones are not enough: headers can be long."""

RANK_MARK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,6})\b')
"""The rank in the first bytes of a profile, if present: a guess until the profile is read."""


_JAX = (
    "a profile of JAX (XPlane), which tracelink does not read. Use the trace.json.gz next to it, or the "
    "perfetto_trace.json.gz that jax.profiler.trace(DIR, create_perfetto_trace=True) writes."
)
_ROCPROF = (
    "of rocprof, which tracelink does not read: of its formats it reads .pftrace. Write that with "
    "rocprofv3 --output-format pftrace, or record the job with torch.profiler."
)

OTHER_PROFILERS = (
    (re.compile(rb"\n.{1,5}?(?:\x08.{1,10}?)?\x12.(?:/host:|/device:|Task Environment)", re.DOTALL), _JAX),
    (re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"'), f"a JSON file {_ROCPROF}"),
    (re.compile(rb"SQLite format 3\0.*rocpd_", re.DOTALL), f"a database (rocpd) {_ROCPROF}"),
    (
        re.compile(
            rb'[\w", -]{0,400}\b(?:Correlation_Id|Dispatch_Id|Logical_Node_Id|gpu-id|TotalDurationNs)\b'
        ),
        f"a table {_ROCPROF}",
    ),
)
"""How files of other profilers begin, and what they are."""
XPLANE_SUFFIX = ".xplane.pb"


class Task(Struct, frozen=True):
    """A source, its format, and its likely rank before it is read."""

    source: Source
    format: str
    likely_rank: int | None

    @property
    def spec(self) -> ReaderSpec:
        """How the format is read, which is known without the reader."""
        return plugins.reader_spec(self.format)

    @property
    def content(self) -> Content:
        """What the source contains."""
        return self.spec.content

    @property
    def reader(self) -> ReaderMethods:
        """The reader, which is imported now; raises `PluginError` if it cannot be."""
        return plugins.reader(self.format)


def tasks_of(discovery: Discovery, findings: list[Finding], first: str = "") -> list[Task]:
    """A task for each source of a known format, or a finding; the format `first` is tried before others."""
    tasks: list[Task] = []
    others: list[Finding] = []
    crashes: dict[str, Finding] = {}
    _check_requested({part for source in discovery.sources for part in source.include})
    for source in discovery.sources:
        if other := _other_format(source):
            others.append(other)
        elif task := _task(source, first, findings, crashes):
            tasks.append(task)
    findings += crashes.values()
    read = {task.source.path for task in tasks}
    findings += [other for other in others if other.source not in read]
    return tasks


def _check_requested(parts: set[str]) -> None:
    """Raises `UsageError` if no reader leaves out something of this name."""
    if not parts:
        return
    known = sorted(part for spec in plugins.readers().values() for part in spec.on_request)
    if unknown := sorted(parts - set(known)):
        raise UsageError(
            f"nothing is named {unknown[0]!r} that could be included", advice=choices(unknown[0], known)
        )


def by_rank(tasks: Sequence[Task], engine: Engine, findings: list[Finding]) -> list[Task]:
    """The same tasks, but one for each rank of the files that hold several."""
    found: list[Task] = []
    for task in tasks:
        if not task.spec.unpacks:
            found.append(task)
            continue
        unpacked = attempted(task, partial(_unpacked, task, engine), skip=not task.source.named)
        if isinstance(unpacked, Finding):
            findings.append(unpacked)
            continue
        sources, misfits = unpacked
        findings += misfits
        found += [Task(source, task.format, _likely_rank(source, source.head())) for source in sources]
    return found


def _unpacked(task: Task, engine: Engine) -> tuple[list[Source], list[Finding]]:
    return task.reader.unpacked(task.source, engine)


def to_inspect(tasks: Sequence[Task], engine: Engine, findings: list[Finding]) -> list[Task]:
    """The same tasks, but those of a file that has to be read for what it is for each of its ranks."""
    return [
        one for task in tasks for one in ([task] if task.spec.inspects else by_rank([task], engine, findings))
    ]


def inspected(task: Task, engine: Engine) -> list[Inspected] | Finding:
    """What one source is, or why it cannot be read."""
    if task.spec.inspects:
        skip = task.spec.unpacks and not task.source.named
        return attempted(task, lambda: task.reader.inspect(task.source, engine), skip=skip)
    trace = read(task, engine)
    if isinstance(trace, Finding):
        return trace
    return [Inspected(task.source, trace.source, trace.findings, trace.devices)]


def _not_read(source: Source, message: str, reason: str = "unreadable") -> Finding:
    """An error for a file that the user named; in a directory there may be files of other programs."""
    if source.named:
        return unreadable(source.path, message, reason)
    return _skipped(source.path, message)


def _skipped(path: str, message: str) -> Finding:
    return Finding(Severity.INFO, "skipped", f"skipped: {message}", source=path)


def read(task: Task, engine: Engine) -> RankTrace | Finding:
    """The trace of one source, or why it cannot be read."""

    def read_checked() -> RankTrace:
        trace = task.reader.read(task.source, engine)
        check_trace(trace, task.format, task.source.path)
        return trace

    return attempted(task, read_checked)


def read_each(
    tasks: Sequence[Task], engine: Engine, read: Callable[[Task, Engine], Result], *, skip: bool = False
) -> list[Result | Finding]:
    """What `read` makes of each source, several at once, or why it cannot be read.

    With `skip`, files that the user did not name are of other programs if they cannot be read.
    """
    import_readers(tasks)
    outer, inner = engine.split(len(tasks))
    return outer.map(
        lambda task: attempted(task, lambda: read(task, inner), skip=skip and not task.source.named),
        tasks,
        shared=[task.source for task in tasks],
    )


def import_readers(tasks: Sequence[Task]) -> None:
    """Imports the readers here, so that not each process that is forked does; errors are raised where they read."""
    for task in {task.format: task for task in tasks}.values():
        with suppress(PluginError, CrashError):
            task.reader  # noqa: B018  the import is what it is for


def attempted(task: Task, read: Callable[[], Result], *, skip: bool = False) -> Result | Finding:
    """What `read` makes of the source of a task, or why it cannot be read.

    With `skip`, a source that cannot be read is one of another program; a bug of the reader is always an error.
    """
    source = task.source
    try:
        return isolated(task.format, "reader", read)
    except (UnreadableError, PluginError) as error:
        error.source = error.source or source.path
        if skip and not isinstance(error, CrashError | PluginError):
            return _skipped(source.path, str(error))
        error.advice = _as_other_format(source) or error.advice
        return unreadable(source.path, str(error))
    except OSError as error:
        return unreadable(source.path, f"{source.path}: {error.strerror or error}.")


def _as_other_format(source: Source) -> str:
    """Advice on a file that was given as one format, but is recognised as another; empty for all other files."""
    if not source.format:
        return ""
    found = {known.name for known in recognised(source.head(), source.name)}
    if not found or source.format in found:
        return ""
    return f"It was given as {source.format}, but looks like {min(found)}: name it without its format."


def nothing_readable(findings: Sequence[Finding], paths: Sequence[str] = ()) -> UnreadableError:
    """The error if no source in these paths can be read."""
    errors = [finding for finding in findings if finding.severity == Severity.ERROR] or list(findings)
    if not errors:
        if paths:
            return NoInputError(
                f"{' and '.join(paths)}: there are no files in it",
                advice="Name a folder that contains traces.",
            )
        return NoInputError("no inputs", advice="Name at least one file or directory.")
    if len(errors) == 1:
        return UnreadableError(errors[0].message.rstrip("."))
    return UnreadableError(
        f"no input can be read ({len(errors)} files); the first: {errors[0].message.rstrip('.')}",
        advice="For each of them: tracelink inspect FILE",
    )


def _other_format(source: Source) -> Finding | None:
    """A finding for a file of another format in a directory or archive that was given as one format."""
    if not source.format or source.named:
        return None
    try:
        head = source.head()
    except (UnreadableError, OSError):
        return None
    found = {known.name for known in recognised(head, source.name)}
    if not found or source.format in found:
        return None
    message = f"{source.path}: skipped, its format is {min(found)}, not {source.format}."
    return Finding(Severity.INFO, "other_format", message, source=source.path)


def _task(source: Source, first: str, findings: list[Finding], crashes: dict[str, Finding]) -> Task | None:
    failed: list[CrashError] = []
    try:
        if source.format:
            plugins.check_reader(source.format)
            return Task(source, source.format, _likely_rank(source, source.head()))
        for size in (None, SNIFFED):
            head = source.head(size) if size else source.head()
            if other := _other_profiler(source, head):
                findings.append(_not_read(source, f"{source.path}: {other}", "unknown_format"))
                return None
            for known in recognised(head, source.name, first, failed):
                if reason := isolated(
                    known.name, "recognition", partial(plugins.reader_spec(known.name).refuses, head)
                ):
                    findings.append(_not_read(source, f"{source.path}: {reason}"))
                    return None
                return Task(source, known.name, _likely_rank(source, head))
    except (UnreadableError, PluginError) as error:
        error.source = error.source or source.path
        findings.append(unreadable(source.path, str(error)))
        return None
    except OSError as error:
        findings.append(unreadable(source.path, str(error)))
        return None
    finally:
        _count_crashes(failed, source, crashes)
    findings.append(_unknown(source, empty=not head))
    return None


def _count_crashes(failed: Sequence[CrashError], source: Source, crashes: dict[str, Finding]) -> None:
    """Adds a warning for each format that failed at the recognition of a file; one for all files."""
    for error in {error.problem: error for error in failed}.values():
        before = crashes.get(error.problem)
        count, error.source = (before.count + 1, before.source) if before else (1, source.path)
        crashes[error.problem] = Finding(Severity.WARNING, "plugin", str(error), count, error.source)


def _other_profiler(source: Source, head: bytes) -> str:
    """What a file of another profiler is, and what to do instead; empty for all other files."""
    if source.name.endswith(XPLANE_SUFFIX):
        return _JAX
    return next((text for start, text in OTHER_PROFILERS if start.match(head)), "")


def _likely_rank(source: Source, head: bytes) -> int | None:
    if source.rank is not None:
        return source.rank
    if match := RANK_MARK.search(head):
        return int(match[1])
    return source.rank_hint.rank if source.rank_hint else None


def _unknown(source: Source, *, empty: bool) -> Finding:
    path = source.path
    if empty:
        return unreadable(path, f"{path}: the file is empty. Record it again.")
    if source.named:
        message = f"{path}: no reader recognises it. Known formats: {', '.join(plugins.readers())}."
        if broken := plugins.installed().keys() - {known.name for known in plugins.formats()}:
            message += f" Not {', '.join(sorted(broken))}, which cannot be imported; see: tracelink formats."
        return unreadable(path, message, "unknown_format")
    if source.name.endswith(tuple(end for spec in plugins.readers().values() for end in spec.companions)):
        return Finding(Severity.INFO, "companion", f"{path}: comes with traces, and is none.", source=path)
    return Finding(Severity.INFO, "skipped", f"{path}: skipped, unknown format.", source=path)


def unreadable(path: str, message: str, reason: str = "unreadable") -> Finding:
    """The finding for a file that cannot be read."""
    return Finding(Severity.ERROR, reason, message, source=path)


# Ranks of sources: from the content, the name or the user, else from sources of the same process.

MOST_FOLDERS = 4
"""More are only counted."""


def declared_rank(info: SourceInfo, source: Source, findings: list[Finding]) -> int | None:
    """The rank from the user, the content or the name, with a finding if the user overrules one of these.

    Raises `RankConflictError` if the content and the name differ, and the user gives no rank.
    """
    name = source.rank_hint.rank if source.rank_hint and source.rank_hint.certain else None
    for severity, what, rank in ((Severity.WARNING, "content", info.rank), (Severity.INFO, "name", name)):
        if source.rank is not None and rank not in (None, source.rank):
            message = f"{info.path}: read as rank {source.rank}, as requested; its {what} says rank {rank}."
            findings.append(Finding(severity, "overruled_rank", message, source=info.path))
    return resolve_rank(info.path, content=info.rank, name=source.rank_hint, requested=source.rank)


def assigned_ranks(infos: Sequence[SourceInfo], findings: list[Finding]) -> list[int | None]:
    """A rank for each source: the declared one, else that of its process, else the number of its device, else the only
    rank present, else 0."""
    ranks = [info.rank for info in infos]
    unranked = [number for number, rank in enumerate(ranks) if rank is None]
    formats = [infos[number].format for number in unranked]
    alone = all(count == 1 or _many_per_rank(name) for name, count in Counter(formats).items())
    for number in unranked:
        ranks[number] = _assumed_rank(infos[number], infos, ranks, findings, alone=alone)
    return ranks


def with_ranks(
    infos: Sequence[SourceInfo], sources: Sequence[Source], findings: list[Finding]
) -> list[SourceInfo]:
    """The sources with their declared ranks; contradictions are findings."""
    found = []
    for info, source in zip(infos, sources, strict=True):
        try:
            rank = declared_rank(info, source, findings)
        except RankConflictError as conflict:
            findings.append(_conflict(conflict, info.path))
            rank = info.rank
        found.append(replace(info, rank=rank))
    try:
        check_duplicates([info for info in found if info.rank is not None])
    except RankConflictError as conflict:
        findings.append(_conflict(conflict, ""))
    return found


def check_duplicates(infos: Sequence[SourceInfo]) -> None:
    """One rank has one file of a format, except for the windows of one profiler, one after the other.

    Of some formats it can have several: compile logs of processes that it started, or that ran before a restart, and
    dumps of several recorders, each of its own groups or backend.
    """
    for (rank, format_name), count in Counter((info.rank, info.format) for info in infos).items():
        if count == 1 or rank is None or _many_per_rank(format_name):
            continue
        duplicates = [info for info in infos if (info.rank, info.format) == (rank, format_name)]
        if not _successive(duplicates) and not _of_several_recorders(duplicates):
            paths = " and ".join(info.path for info in duplicates[:2])
            raise RankConflictError(
                f"rank {rank} has two files of format {format_name}: {paths}", advice=_one_of(duplicates)
            )


def _of_several_recorders(infos: Sequence[SourceInfo]) -> bool:
    """Whether each is of another recorder of the process: no two have a group on the same backend in common."""
    groups = [group for info in infos for group in info.recorder]
    return all(info.recorder for info in infos) and len(set(groups)) == len(groups)


def _many_per_rank(format_name: str) -> bool:
    return plugins.reader_spec(format_name).many_per_rank


def _one_of(duplicates: Sequence[SourceInfo]) -> str:
    archives = {archive_of(info.path) for info in duplicates}
    in_one_archive = len(archives) == 1 and archives != {""}
    places = (info.path if in_one_archive else archive_of(info.path) or info.path for info in duplicates)
    folders = list(dict.fromkeys(os.path.dirname(place) or "." for place in places))
    if len(folders) == 1:
        return "Use one job at a time: leave one file out, or set the rank of each with --rank FILE=N."
    if in_one_archive:
        return "Use one job at a time: unpack the archive, and name one of its folders."
    more = f" or {len(folders) - MOST_FOLDERS} more" if len(folders) > MOST_FOLDERS else ""
    return (
        f"Use one job at a time and name one folder: {' or '.join(folders[:MOST_FOLDERS])}{more}. If they are one job, "
        "set the rank of each file with --rank FILE=N."
    )


def _assumed_rank(
    info: SourceInfo,
    infos: Sequence[SourceInfo],
    ranks: Sequence[int | None],
    findings: list[Finding],
    *,
    alone: bool,
) -> int | None:
    known = {rank for rank in ranks if rank is not None}
    of_process = {
        rank
        for other, rank in zip(infos, ranks, strict=True)
        if rank is not None and info.pid is not None and other.pid == info.pid
    }
    if len(of_process) == 1:
        rank, why = of_process.pop(), f"its process {info.pid} belongs to rank"
    elif info.device is not None and info.device not in known:
        rank, why = info.device, "its only device has this number, so it is used as rank"
    elif alone and len(known) <= 1:
        rank, why = next(iter(known), 0), "no other rank is present, so it is used as rank"
    else:
        findings.append(UnknownRank(info.path).finding(severity=Severity.ERROR))
        return None
    message = f"{info.path}: neither content nor name contains its rank; {why} {rank}."
    findings.append(Finding(Severity.INFO, "assumed_rank", message, source=info.path))
    return rank


def _conflict(conflict: RankConflictError, path: str) -> Finding:
    return Finding(Severity.ERROR, "rank_conflict", str(conflict), source=path)


def _successive(infos: Sequence[SourceInfo]) -> bool:
    windows = sorted((info.start_ns, info.end_ns or 0) for info in infos if info.start_ns is not None)
    apart = all(before[1] <= after[0] for before, after in pairwise(windows))
    processes = {info.pid for info in infos}
    return len(windows) == len(infos) and apart and len(processes) == 1 and None not in processes


# Ranks that were not recorded at the same time.


APART_NS = 60 * 10**9
"""More than clocks differ, less than between two jobs."""

Recording = tuple[int, int, int]
"""When the recording of a rank starts and ends, and the rank."""


def two_jobs_findings(recordings: Sequence[Recording], advice: str) -> list[Finding]:
    """A finding if more than a minute lies between the recordings of ranks: then they are of two jobs."""
    latest_end, latest_rank = 0, -1
    for start, end, rank in sorted(recordings):
        if latest_rank >= 0 and start - latest_end > APART_NS:
            seconds = (start - latest_end) / 1e9
            message = (
                f"Rank {rank} starts {seconds:.0f} s after rank {latest_rank} ended: "
                f"these seem to be recordings of two jobs. {advice}"
            )
            return [Finding(Severity.WARNING, "two_jobs", message)]
        if end > latest_end:
            latest_end, latest_rank = end, rank
    return []
