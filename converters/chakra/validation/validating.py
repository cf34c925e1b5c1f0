"""Files to a verdict: each file by itself, and all of them together."""

from __future__ import annotations

import os

from tracelink.converters.chakra.schema import Profile
from tracelink.converters.chakra.validation.checking import Checked, Task, check
from tracelink.converters.chakra.validation.files import JobFiles, job_files
from tracelink.converters.chakra.validation.rules import RULES, Rule
from tracelink.converters.chakra.validation.together import found_together
from tracelink.converters.chakra.validation.verdict import CheckedFile, Found, Validation
from tracelink.engine import Engine
from tracelink.errors import UnreadableError, UsageError
from tracelink.inputs import Paths, Watch, engine_for

SHOWN = 100
"""Violations of one rule by one rank that are kept, unless the user says how many."""


def validate(
    paths: Paths,
    *,
    groups: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    limit: int | None = SHOWN,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Validation:
    """Says whether every consumer takes these `.et` files, and what is wrong with them otherwise.

    `groups` is the file of communicator groups; without it the one beside the traces, or what they say, is used.
    `profile` is what they are checked as, unless they say it themselves. Of each rule and rank at most `limit`
    violations are listed, all with None; all are counted.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"at most {limit} violations", advice="Give at least 1, or None for all.")
    wanted = _profile(profile) if profile else None
    engine = engine_for(jobs, watch)
    files: list[CheckedFile] = []
    jobs_found, unreadable = job_files(paths, os.fspath(groups) if groups is not None else None)
    found: list[Found] = Found.of(unreadable, limit)
    for job in jobs_found:
        checked = _checked(job, wanted, limit, engine)
        files += [one.file for one in checked]
        found += [one for part in checked for one in part.found]
        found += found_together(job, checked, limit)
    unread = {one.file: one.message for part in found if part.rule is Rule.UNREADABLE for one in part.listed}
    if all(file.path in unread for file in files):
        raise UnreadableError(next(iter(unread.values())), advice=RULES[Rule.UNREADABLE].advice)
    return Validation.of(files, found)


def _checked(job: JobFiles, profile: Profile | None, limit: int | None, engine: Engine) -> list[Checked]:
    """The files of a job, in the order of ranks."""
    tasks = [Task(named, order, job.groups, profile, limit) for order, named in enumerate(job.traces)]

    def checked(task: Task) -> Checked:
        result = check(task)
        engine.meter.add(task.named.source.bytes)
        return result

    return sorted(engine.map(checked, tasks), key=lambda one: one.file.rank)


def _profile(name: str) -> Profile:
    if name not in list(Profile):
        raise UsageError(f"there is no profile {name!r}", advice=f"There are: {', '.join(Profile)}.")
    return Profile(name)
