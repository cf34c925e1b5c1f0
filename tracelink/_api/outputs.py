"""A job to files: merged, rewritten in another form, or drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

import tracelink.plugins as plugins
from tracelink._io.engine import Engine
from tracelink._io.names import SEPARATORS
from tracelink._io.remote.addresses import is_remote, plain_path, shown
from tracelink._io.sources import Discovery
from tracelink._io.targets import (
    Place,
    Target,
    check_folder,
    check_not_read,
    folder_target,
    is_folder,
    target_of,
)
from tracelink._io.temporary import abandoned_files_removed
from tracelink._join.job_reader import Reading, read_job
from tracelink._join.reading import Task, nothing_readable, tasks_of
from tracelink._model.clock import ClockMode
from tracelink._model.errors import UsageError, similar_to
from tracelink._model.fields import Count, Doc, Nanoseconds, RankNumber, Row
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import LinkReport
from tracelink._model.job import LinkedJob
from tracelink._model.results import Result
from tracelink._model.selection import Selection, View
from tracelink.plugins import ConversionSpec, Files, Output, WriterMethods, isolated

if TYPE_CHECKING:
    from tracelink._join.forecast import OnForecast

DEFAULT_FORMAT = "perfetto-json"
WORTH_FORECASTING = 200_000
"""Events of a job: fewer are written in less than a second, before a forecast could be read."""
DEFAULT_NAME = "merged"
"""The default name of outputs, before the suffix."""
RELATIONS = ("launches", "calls", "backward_of", "same.et_kineto", "same.recorder_kineto")
"""Relations that are reported for every rank, even if it has nothing to link."""


class RankLinks(Row, frozen=True):
    """The events of one rank, and how they were linked."""

    rank: RankNumber
    events: Count
    links: Annotated[
        Mapping[str, LinkReport],
        Doc("By relation: launches, calls, backward_of, same.et_kineto, same.recorder_kineto, ..."),
    ]


class Merged(Result, frozen=True):
    """The files that were written, and how the events in them were linked."""

    outputs: Sequence[Output]
    ranks: Annotated[Sequence[RankLinks], Doc("Empty if files were rewritten without linking their events.")]
    findings: Annotated[
        Sequence[Finding], Doc("Those of reading and linking, those of the forecast, then those of writing.")
    ]
    collectives: Annotated[Count, Doc("Collectives that were matched across ranks.")] = 0
    messages: Annotated[Count, Doc("Messages that were matched across ranks.")] = 0
    clocks_corrected_ns: Annotated[Nanoseconds, Doc("The largest correction of the clock of a rank.")] = 0
    resumed: Annotated[Count, Doc("Ranks that an earlier run with --resume had read.")] = 0

    drawn_by = "tracelink._api.merge_report"

    @classmethod
    def of_job(
        cls, job: LinkedJob, outputs: Sequence[Output], forecast: Sequence[Finding] = (), resumed: int = 0
    ) -> Merged:
        """Returns what was linked in a job, and the files that it was written to."""
        return cls(
            outputs,
            _links(job),
            [*job.findings, *forecast, *findings_of(outputs)],
            len(job.collectives),
            len(job.messages),
            max((abs(rank.clock_offset_ns) for rank in job.ranks), default=0),
            resumed,
        )


def findings_of(outputs: Sequence[Output]) -> list[Finding]:
    """The findings on all files."""
    return [finding for output in outputs for finding in output.findings]


def _links(job: LinkedJob) -> list[RankLinks]:
    events: Counter[int | None] = Counter()
    for source in job.sources:
        events[source.rank] += source.events
    return [
        RankLinks(rank.rank, events[rank.rank], _by_relation(job.reports.get(rank.rank, ())))
        for rank in job.ranks
    ]


def _by_relation(reports: Iterable[LinkReport]) -> dict[str, LinkReport]:
    known = {relation: LinkReport(relation, 0, 0) for relation in RELATIONS}
    return known | {report.relation: report for report in reports}


def merge_inputs(
    inputs: Callable[[], Reading],
    output: str | None,
    to: str | None,
    options: Mapping[str, str] | None,
    on_forecast: OnForecast | None,
    *,
    depth: int | None = None,
    limit: int | None = None,
    resume: bool = False,
    job: LinkedJob | None = None,
) -> Merged:
    """Writes inputs in another form; `Job.merge` describes the arguments.

    Args:
        inputs: Finds what is read, after the output was checked.
        output: The file, prefix or directory.
        to: The format.
        options: Options of the writer by name.
        on_forecast: Is called with a forecast of the size before a large timeline is written.
        depth: The levels of nesting of a drawing.
        limit: The most nodes of a drawing.
        resume: Whether finished ranks are kept until the output is complete.
        job: What was read of the inputs, if they were.
    """
    name = to or (DEFAULT_FORMAT if output is None else _format_of(output))
    conversion = plugins.conversions().get(name)
    writer = plugins.writer(name, options) if name in plugins.writers() or not conversion else None
    path = _default_path(name) if output is None else output
    if not writer or plugins.writer_spec(name).files in (Files.ONE, Files.FOLDER):
        check_folder(path)
    reading = inputs()
    discovery, engine = reading.discovery, reading.engine
    view = View(depth=depth, limit=limit)
    changes = _Changes(options or {}, reading.selection, view, reading.clock != ClockMode.HOST)
    copying = writer is not None and plugins.writer_spec(name).copies
    if writer and copying and changes.selection.cuts:
        raise _uncuttable(writer, changes.selection)
    if conversion and conversion.draws:
        return _drawn(name, conversion, discovery, path, engine, changes.drawn())
    if changes.view != View():
        raise _no_drawing(path if output else name, changes.view)
    if conversion and (rewritten := _rewritten(name, conversion, discovery, path, engine, changes)):
        return rewritten
    assert writer
    kept = None
    if resume:
        from tracelink._io.spool import kept_for

        kept = kept_for(path)
    try:
        job = job or read_job(reading, with_events=not copying, kept=kept)
        merged = _merged(job, path, _of_files(writer, discovery), options or {}, engine, on_forecast)
        if kept:
            kept.remove()
            merged = replace(merged, resumed=kept.reused)
        return merged
    finally:
        if kept:
            kept.close()


def _default_path(name: str) -> str:
    spec = plugins.writers().get(name)
    if spec and spec.files == Files.WITH_PREFIX:
        return DEFAULT_NAME
    return DEFAULT_NAME + (spec or plugins.conversions()[name]).suffixes[0]


def _format_of(path: str) -> str:
    """The format with the longest suffix of the path; the default without a suffix, or if it is no regular file."""
    if is_remote(path):
        path = path.partition("?")[0]
    writers = plugins.writers()
    folders = {name for name, spec in writers.items() if spec.files == Files.FOLDER}
    folder = path.rstrip(SEPARATORS)
    known = [
        (suffix, name)
        for specs in (plugins.conversions(), writers)
        for name, spec in specs.items()
        for suffix in spec.suffixes
    ]
    fitting = [
        (len(suffix), name in writers, name)
        for suffix, name in known
        if (folder if name in folders else path).endswith(suffix)
    ]
    strange = PurePath(shown(path)).suffix
    if not fitting and strange and _names_file(path):
        suffixes = sorted({suffix for suffix, _ in known})
        similar = similar_to(strange, suffixes)
        question = f"Did you mean {shown(path).removesuffix(strange)}{similar}? " if similar else ""
        raise UsageError(
            f"no format has names that end in {strange}",
            advice=f"{question}Name the file {', '.join(suffixes)}, or name the format with --to",
        )
    return max(fitting)[2] if fitting else DEFAULT_FORMAT


def _names_file(path: str) -> bool:
    """True if a path is that of a regular file or of nothing."""
    if is_remote(path):
        return not is_folder(path)
    location = Path(plain_path(path))
    return location.is_file() or not location.exists()


def _uncuttable(writer: WriterMethods, selection: Selection) -> UsageError:
    used = [name for name in _names(selection) if name != "--ranks"]
    return UsageError(
        f"{writer.name} copies files as they are: {' and '.join(used)} cannot cut inside them",
        advice="Select whole ranks with --ranks, or write another format: --to",
    )


def _of_files(writer: WriterMethods, discovery: Discovery) -> WriterMethods:
    if not (plugins.writer_spec(writer.name).copies and discovery.sources):
        return writer
    return isolated(writer.name, "writer", lambda: writer.of_files(discovery.sources))


def _merged(
    job: LinkedJob,
    path: str,
    writer: WriterMethods,
    options: Mapping[str, str],
    engine: Engine,
    on_forecast: OnForecast | None,
) -> Merged:
    target = _target(writer, path, len(job.ranks))
    check_not_read(target.path(), [source.path for source in job.sources])
    forecast: Sequence[Finding] = ()
    if _with_arguments(writer, options):
        job = replace(job, findings=[*job.findings, *job.missing_arguments])
    if job.events >= WORTH_FORECASTING:
        from tracelink._join.forecast import forecast_output

        forecast = forecast_output(job, writer, target.path(), options, engine, on_forecast)
    with abandoned_files_removed(target.path()):
        return Merged.of_job(job, _write(writer, job, target, engine.for_events(job.events)), forecast)


def _write(writer: WriterMethods, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
    return isolated(writer.name, "writer", lambda: writer.write(job, target, engine))


def _with_arguments(writer: WriterMethods, options: Mapping[str, str]) -> bool:
    """True if a writer writes the arguments of all events."""
    choices = plugins.writer_spec(writer.name).options.get("args", ("all",))
    return options.get("args", choices[0]) == "all"


def _target(writer: WriterMethods, path: str, ranks: int) -> Target:
    """Where the files of a writer go."""
    target, spec = target_of(path), plugins.writer_spec(writer.name)
    if not isinstance(target, Place) or spec.files == Files.ONE:
        return target
    if spec.files == Files.FOLDER:
        return folder_target(path)
    if spec.files == Files.WITH_PREFIX:
        return target.with_prefix(spec.suffixes[0], ranks)
    return target.as_folder() if ranks > 1 else target


# Files that are made of other files, without a graph in between.


class _Changes(Struct, frozen=True):
    """Changes on the way: options of the writer, what is selected, what a drawing shows, the clock."""

    options: Mapping[str, str]
    selection: Selection
    view: View
    clock: bool

    @property
    def names(self) -> list[str]:
        """The options that change what is written."""
        clock = ["--clock"] if self.clock else []
        return [*(f"--{name}" for name in self.options), *_names(self.selection), *clock]

    def drawn(self) -> View:
        """Returns what a drawing shows; raises `UsageError` for what it cannot select."""
        window, ranks = self.selection.window, self.selection.ranks
        unusable = [name for name in self.names if name not in ("--window", "--ranks")]
        if unusable:
            raise UsageError(
                f"a drawing has no {' and '.join(unusable)}",
                advice="Draw less with --depth, --window, --ranks or --limit.",
            )
        return replace(self.view, window=window or self.view.window, ranks=ranks or self.view.ranks)


def _names(selection: Selection | View) -> list[str]:
    """The options that a selection, or a view, consists of."""
    return [f"--{name}" for name in type(selection).__annotations__ if getattr(selection, name) is not None]


def _rewritten(
    name: str,
    spec: ConversionSpec,
    discovery: Discovery,
    output: str,
    engine: Engine,
    changes: _Changes,
) -> Merged | None:
    """The only source rewritten as a format; None if that format is written of a graph."""
    written = name in plugins.writers()
    if written and (changes.names or len(discovery.sources) != 1):
        return None
    tasks = _tasks(discovery, list(discovery.findings))
    other = next((task for task in tasks if task.format not in spec.reads), None)
    if written and other:
        return None
    takes = " or ".join(spec.reads)
    if other:
        raise UsageError(
            f"{name} is made of {takes}, and {other.source.path} is {other.format}",
            advice="Name another format; see: tracelink formats",
        )
    if len(tasks) > 1:
        raise UsageError(
            f"{name} is made of one file of {takes}, and there are {len(tasks)}", advice="Name one of them."
        )
    (task,) = tasks
    if changes.names:
        raise UsageError(
            f"{name} keeps everything that is in {task.source.path}: "
            f"{' and '.join(changes.names)} cannot change it",
            advice="Leave it out, or choose another format: --to",
        )
    check_not_read(output, [task.source.path])
    conversion, target = plugins.conversion(name), target_of(output)
    with abandoned_files_removed(output):
        outputs = isolated(name, "conversion", lambda: conversion.convert(task.source, target, engine))
    return Merged(outputs, [], findings_of(outputs))


def _no_drawing(output: str, view: View) -> UsageError:
    drawings = (spec for spec in plugins.conversions().values() if spec.draws)
    known = ", ".join(f"x{suffix}" for spec in drawings for suffix in spec.suffixes)
    names = _names(view)
    applies, it = ("applies", "it") if len(names) == 1 else ("apply", "them")
    return UsageError(
        f"{output} is not a drawing: {' and '.join(names)} {applies} only to drawings",
        advice=f"Leave {it} out, or name the output {known}.",
    )


def _drawn(
    name: str, spec: ConversionSpec, discovery: Discovery, output: str, engine: Engine, view: View
) -> Merged:
    """One picture of all sources that can be drawn."""
    findings = list(discovery.findings)
    tasks = _tasks(discovery, findings)
    fitting = [task.source for task in tasks if task.format in spec.reads]
    others = [task for task in tasks if task.format not in spec.reads]
    if not fitting:
        takes = " or ".join(spec.reads)
        raise UsageError(
            f"{name} is drawn of {takes}, and {others[0].source.path} is {others[0].format}",
            advice="Make .et files of it first: tracelink merge INPUT --to chakra -o job",
        )
    findings += [
        Finding(
            Severity.WARNING,
            "other_format",
            f"{task.source.path} is not drawn: it is {task.format}.",
            source=task.source.path,
        )
        for task in others
    ]
    drawing, target = plugins.conversion(name), target_of(output)
    check_not_read(output, [source.path for source in fitting])
    with abandoned_files_removed(output):
        outputs = isolated(name, "drawing", lambda: drawing.draw(fitting, target, engine, view))
    return Merged(outputs, [], [*findings, *findings_of(outputs)])


def _tasks(discovery: Discovery, findings: list[Finding]) -> list[Task]:
    tasks = tasks_of(discovery, findings)
    if not tasks:
        raise nothing_readable(findings, discovery.paths)
    return tasks
