"""The verdict on `.et` files: each file by itself, then the files of a job together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tracelink.converters.chakra.census import Census, census
from tracelink.converters.chakra.decode import buffered, decode
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
from tracelink.io.engine import Engine
from tracelink.io.sources import Paths, Source, Watch, engine_for
from tracelink.model.errors import Finding, Severity, TraceError, UnreadableError, UsageError

SHOWN = 100
"""The default limit of violations that are listed for each rule and rank."""


def validate(
    paths: Paths,
    *,
    groups: str | os.PathLike[str] | None = None,
    variant: str | None = None,
    limit: int | None = SHOWN,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Validation:
    """Checks whether simulators can load `.et` files, and whether the files of all ranks fit together.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input.
        groups: The file of communicator groups; by default the one next to the traces, else the groups that the
            traces contain.
        variant: "full" or "astra-sim"; by default what each file records, else "astra-sim". With "full", what only
            ASTRA-sim cannot run is a warning.
        limit: How many violations of each rule and rank are listed; None for all. All are counted.
        jobs: The number of processes that work at once; by default one for each core.
        watch: Is called with the total number of bytes processed so far, as work goes on.

    Returns:
        The files that were checked, violations and warnings.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No file can be read.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"at most {limit} violations", advice="Give at least 1, or None for all.")
    wanted = _variant(variant) if variant else None
    engine = engine_for(jobs, watch)
    files: list[CheckedFile] = []
    found, violations = job_files(paths, os.fspath(groups) if groups is not None else None)
    broken: list[Broken] = Broken.of(violations, limit)
    for job in found:
        checked = _checked(job, wanted, limit, engine)
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


class Censuses(Struct, frozen=True):
    """The census of each file by its path, and what is wrong with the files."""

    censuses: Mapping[str, Census]
    findings: Sequence[Finding] = ()


def inspect_traces(sources: Sequence[Source], engine: Engine) -> Censuses:
    """Counts the nodes of every `.et` file and validates the files together."""
    censuses = engine.map(_census_of, sources)
    by_path = dict(zip((source.path for source in sources), censuses, strict=True))
    return Censuses(by_path, _problems(sources, engine))


def _census_of(source: Source) -> Census:
    with buffered(source) as (stream, _):
        return census(decode(stream).nodes)


def _problems(sources: Sequence[Source], engine: Engine) -> list[Finding]:
    """The verdict of `tracelink validate` on the same files, as one finding for each rule."""
    paths = [source.path for source in sources if source.local]
    found = list[Finding]()
    if len(paths) < len(sources):
        message = (
            "traces in archives and on standard input are not validated; run tracelink validate on them."
        )
        found.append(Finding(Severity.INFO, "not_checked", message, len(sources) - len(paths)))
    if not paths:
        return found
    try:
        validation = validate(paths, limit=1, jobs=engine.jobs)
    except TraceError as error:
        return [*found, Finding(Severity.WARNING, "not_checked", f"the traces cannot be validated: {error}")]
    counts = {**validation.counts, **validation.warning_counts}
    listed = [*validation.violations, *validation.warnings]
    examples = {violation.rule: violation for violation in reversed(listed)}
    return found + [_problem(examples[rule], count) for rule, count in counts.items()]


def _problem(example: Violation, count: int) -> Finding:
    text = RULES[example.rule]
    severity = Severity.INFO if text.warns else Severity.WARNING
    message = f"{example.rule.value}: {text.breaks}; `tracelink validate` lists all violations."
    return Finding(severity, f"invalid.{example.rule.value}", message, count, example.file, example.message)
