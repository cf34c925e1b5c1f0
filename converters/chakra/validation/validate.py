"""The verdict on `.et` files: each file by itself, then the files of a job together; and its report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Unpack

from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.sources import Paths, Source, again
from tracelink._model.errors import TraceError, UnreadableError, UsageError
from tracelink._model.findings import Finding, Severity
from tracelink._model.selection import Numbers
from tracelink._model.text import counted, number
from tracelink._run.reading import ReadOptions, engine_of
from tracelink._show.document import Block, Medium, Only, Paragraph, Report, Section, Table, Tone
from tracelink._show.terminal import GAP, more
from tracelink.converters.chakra.census import Census, census
from tracelink.converters.chakra.decode import Decoded
from tracelink.converters.chakra.schema import Variant
from tracelink.converters.chakra.validation.file_rules import Checked, Task, check
from tracelink.converters.chakra.validation.files import JobFiles, job_files
from tracelink.converters.chakra.validation.job_rules import check_together, group_violations
from tracelink.converters.chakra.validation.rules import (
    BrokenRule,
    CheckedFile,
    Level,
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
    broken = group_violations(violations, limit, lenient=False)
    for job in found:
        checked = checked_files(job)
        files += [file.file for file in checked]
        broken += [rule for file in checked for rule in file.broken]
        broken += check_together(job, checked, limit)
    unreadable = [violation for rule in broken if rule.rule is Rule.UNREADABLE for violation in rule.listed]
    if {file.path for file in files} <= {violation.file for violation in unreadable}:
        raise UnreadableError(unreadable[0].message, advice=Rule.UNREADABLE.advice)
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
    rule = example.rule
    severity = Severity.INFO if rule.level is Level.WARNING else Severity.WARNING
    message = f"{rule.value}: {rule.breaks}; `tracelink validate` lists all violations."
    return Finding(severity, f"invalid.{rule.value}", message, count, example.file, example.message)


# The report of `tracelink validate`: the verdict, and each broken rule with examples and advice.

EXAMPLES = 5
"""Violations of each rule that a terminal shows without -v; the rest are counted."""
ON_A_PAGE = (Medium.HTML, Medium.MARKDOWN)


def report_of(validation: Validation, *, examples: int | None = EXAMPLES, verbose: bool = False) -> Report:
    """The document of a verdict.

    Args:
        validation: The verdict.
        examples: How many violations of each rule a terminal shows; None: all that are listed.
        verbose: Whether a terminal shows examples of warnings, and advice.
    """
    broken = [rule for rule in validation.rules if rule.severity == "violation"]
    warned = [rule for rule in validation.rules if rule.severity == "warning"]
    violated = [
        Section(rule.rule, list(_rule(rule, validation.violations, examples, Tone.PROBLEM)))
        for rule in broken
    ]
    warnings = [
        block
        for rule in warned
        for block in (
            _rule(rule, validation.warnings, examples, Tone.WARNING)
            if verbose
            else _warning(rule, validation.warnings)
        )
    ]
    files = Only(ON_A_PAGE, [Table(validation.files, thing="file")])
    return Report(
        "validate",
        _verdict(validation),
        Tone.GOOD if validation.valid else Tone.PROBLEM,
        sections=[*violated, Section("Warnings", warnings), Section("Files", [files])],
    )


def _verdict(validation: Validation) -> str:
    seen = f"{counted(len(validation.files), 'file')}, {counted(validation.nodes, 'node')}"
    if validation.valid:
        return f"valid: {seen}"
    return f"invalid: {counted(sum(validation.counts.values()), 'violation')} ({seen})"


def _rule(
    rule: BrokenRule, violations: Sequence[Violation], examples: int | None, tone: Tone
) -> Iterator[Block]:
    listed = [violation for violation in violations if violation.rule is rule.rule]
    yield Paragraph(f"{_head(rule, listed)} {rule.advice}", tone)
    lines = [_example(violation) for violation in listed[:examples]]
    if (rest := rule.count - len(lines)) > 0:
        lines.append(f"\N{HORIZONTAL ELLIPSIS} {more(rest, 'violation')}")
    yield Only((Medium.TERMINAL,), [Paragraph(line, indent=GAP) for line in lines])
    yield Only(ON_A_PAGE, [Table(listed, thing="violation")])


def _warning(rule: BrokenRule, violations: Sequence[Violation]) -> Iterator[Block]:
    listed = [violation for violation in violations if violation.rule is rule.rule]
    yield Paragraph(f"warning: {_head(rule, listed)} For example: {listed[0].message}", Tone.WARNING)


def _head(rule: BrokenRule, listed: Sequence[Violation]) -> str:
    times = "once" if rule.count == 1 else f"{number(rule.count)} times"
    ranks = Numbers.of({violation.rank for violation in listed if violation.rank is not None})
    where = f" on {ranks.called('rank')}" if ranks else ""
    return f"{rule.rule.value} ({', '.join(rule.invariants)}), {times}{where}: {rule.breaks}."


def _example(violation: Violation) -> str:
    rank = f"rank {violation.rank}"
    named = violation.rank is None or violation.message.startswith(f"{rank} ")
    return violation.message if named else f"{rank}: {violation.message}"
