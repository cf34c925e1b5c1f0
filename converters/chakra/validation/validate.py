"""The verdict on `.et` files: each file by itself, then the files of a job together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.sources import Paths, Source, again
from tracelink._model.errors import TraceError, UnreadableError, UsageError
from tracelink._model.findings import Finding, Severity
from tracelink._run.reading import ReadOptions, engine_of
from tracelink.converters.chakra.census import Census, census
from tracelink.converters.chakra.decode import Decoded
from tracelink.converters.chakra.schema import Variant
from tracelink.converters.chakra.validation.check import Checked, Task, check
from tracelink.converters.chakra.validation.files import JobFiles, job_files
from tracelink.converters.chakra.validation.job_rules import broken_together
from tracelink.converters.chakra.validation.rules import (
    RULES,
    Broken,
    CheckedFile,
    Rule,
    Validation,
    Violation,
)

SHOWN = 100
"""The default limit of violations that are listed for each rule and rank."""
SHOWN_BY_INSPECT = 1


def validate(
    paths: Paths,
    *,
    groups: str | os.PathLike[str] | None = None,
    variant: str | None = None,
    limit: int | None = SHOWN,
    **reading: Unpack[ReadOptions],
) -> Validation:
    """Checks whether simulators can load `.et` files, and whether the files of all ranks fit together.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input.
        groups: The file of communicator groups; by default the one next to the traces, else the groups that the
            traces contain.
        variant: "full" or "astra-sim"; by default what each file records, else "astra-sim". With "full", what only
            ASTRA-sim cannot run is a warning.
        limit: How many violations of each rule and rank are listed; None for all. All are counted.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

    Returns:
        The files that were checked, violations and warnings.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No file can be read.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"at most {limit} violations", advice="Give at least 1, or None for all.")
    wanted = _variant(variant) if variant else None
    chosen = engine_of(reading)
    groups_path = os.fspath(groups) if groups is not None else None
    return _validated(
        *job_files(paths, groups_path, reading),
        lambda job: _checked(job, wanted, limit, chosen),
        limit,
    )


def _validated(
    found: Sequence[JobFiles],
    violations: Sequence[Violation],
    checked_files: Callable[[JobFiles], list[Checked]],
    limit: int | None,
) -> Validation:
    """The verdict on the files of all jobs."""
    files: list[CheckedFile] = []
    broken: list[Broken] = Broken.of(violations, limit)
    for job in found:
        checked = checked_files(job)
        files += [file.file for file in checked]
        broken += [rule for file in checked for rule in file.broken]
        broken += broken_together(job, checked, limit)
    unreadable = [violation for rule in broken if rule.rule is Rule.UNREADABLE for violation in rule.listed]
    if {file.path for file in files} <= {violation.file for violation in unreadable}:
        raise UnreadableError(unreadable[0].message, advice=RULES[Rule.UNREADABLE].advice)
    return Validation.of(files, broken)


def _checked(job: JobFiles, variant: Variant | None, limit: int | None, engine: Engine) -> list[Checked]:
    """The files of a job, sorted by rank."""
    tasks = [Task(file, number, job.groups, variant, limit) for number, file in enumerate(job.traces)]

    def checked(task: Task) -> Checked:
        result = check(task)
        engine.meter.add(task.file.source.bytes)
        return result

    return sorted(engine.map(checked, tasks), key=lambda file: file.file.rank)


def _variant(name: str) -> Variant:
    if name not in list(Variant):
        raise UsageError(f"unknown variant {name!r}", advice=f"Choose one of: {', '.join(Variant)}.")
    return Variant(name)


# The census and the violations that `tracelink inspect` prints.


class Content(Struct, frozen=True):
    """The census of a file, and what is wrong with it alone."""

    census: Census
    task: Task | None = None
    checked: Checked | None = None


def content_of(source: Source, decoded: Decoded) -> Content:
    """The census and the check of a decoded file, as one of a job of its own."""
    counted = census(decoded.nodes)
    try:
        jobs = job_files([again(source)], None, {})[0] if source.is_whole else []
    except TraceError:
        jobs = []
    for job in jobs:
        task = Task(job.traces[0], 0, job.groups, None, SHOWN_BY_INSPECT)
        return Content(counted, task, check(task, decoded))
    return Content(counted)


def inspect_traces(
    sources: Sequence[Source], contents: Mapping[str, object], engine: Engine
) -> tuple[Mapping[str, Census], Sequence[Finding]]:
    """The censuses of `.et` files by path, and the verdict on all of them together."""
    known = {path: content for path, content in contents.items() if isinstance(content, Content)}
    censuses = {source.path: known[source.path].census for source in sources if source.path in known}
    return censuses, _problems(sources, known, engine)


def _problems(sources: Sequence[Source], known: Mapping[str, Content], engine: Engine) -> list[Finding]:
    """The verdict of `tracelink validate` on the same files, as one finding for each rule."""
    paths = [again(source) for source in sources if source.is_whole]
    found = list[Finding]()
    if len(paths) < len(sources):
        message = (
            "traces in archives and on standard input are not validated; run tracelink validate on them."
        )
        found.append(Finding(Severity.INFO, "not_checked", message, len(sources) - len(paths)))
    if not paths:
        return found
    try:
        jobs = job_files(paths, None, {})
        validation = _validated(*jobs, lambda job: _known_or_checked(job, known, engine), SHOWN_BY_INSPECT)
    except TraceError as error:
        return [*found, Finding(Severity.WARNING, "not_checked", f"the traces cannot be validated: {error}")]
    counts = {**validation.counts, **validation.warning_counts}
    listed = [*validation.violations, *validation.warnings]
    examples = {violation.rule: violation for violation in reversed(listed)}
    return found + [_problem(examples[rule], count) for rule, count in counts.items()]


def _known_or_checked(job: JobFiles, known: Mapping[str, Content], engine: Engine) -> list[Checked]:
    """The files of a job, sorted by rank; those that were checked otherwise are checked again."""
    tasks = [Task(file, number, job.groups, None, SHOWN_BY_INSPECT) for number, file in enumerate(job.traces)]
    checked = [_same_check(task, known.get(task.file.source.path)) for task in tasks]
    again = iter(engine.map(check, [task for task, done in zip(tasks, checked, strict=True) if done is None]))
    return sorted((done or next(again) for done in checked), key=lambda file: file.file.rank)


def _same_check(task: Task, content: Content | None) -> Checked | None:
    """The check of a file, if it was for the same rank and the same groups."""
    if content is None or content.task is None or content.checked is None:
        return None
    has_rank = task.file.rank is not None or content.checked.metadata_rank is not None
    same_rank = has_rank or task.default_rank == content.task.default_rank
    same_file = (
        task.file.rank == content.task.file.rank and task.file.source.path == content.task.file.source.path
    )
    return content.checked if same_rank and same_file and task.groups == content.task.groups else None


def _problem(example: Violation, count: int) -> Finding:
    text = RULES[example.rule]
    severity = Severity.INFO if text.warns else Severity.WARNING
    message = f"{example.rule.value}: {text.breaks}; `tracelink validate` lists all violations."
    return Finding(severity, f"invalid.{example.rule.value}", message, count, example.file, example.message)
