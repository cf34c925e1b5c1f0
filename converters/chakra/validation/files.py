"""The files of a job: which there are, whose each is, and where its groups stand."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from tracelink.converters.chakra.validation.groups import Groups, groups_of
from tracelink.converters.chakra.validation.rules import RULES, Rule
from tracelink.converters.chakra.validation.verdict import Violation
from tracelink.errors import TraceError, UnreadableError, UsageError
from tracelink.findings import Severity
from tracelink.inputs import Paths, discover_inputs
from tracelink.ranks import LARGEST_RANK
from tracelink.sources import Discovery, Request, Source, discover

NPU = re.compile(r"(?P<prefix>.+)\.(?P<rank>\d{1,6})\.et$", re.IGNORECASE)
TRACES = (".et", ".et.gz")
SHARED_GROUPS = ("comm_group.json", "comm_groups.json")
LARGEST_GROUPS = 64 << 20


@dataclass(frozen=True, slots=True)
class Named:
    """A trace and what its name says."""

    source: Source
    rank: int | None
    """None where the name is not the one that ASTRA-sim asks for."""


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The traces of one job: those of one prefix in one folder."""

    prefix: str
    traces: Sequence[Named]
    groups: Groups | None = None
    """None where no file says who is in which group."""
    beside: frozenset[int] = field(default_factory=frozenset)
    """Ranks whose files lie there, whether they are to be read or not."""


def job_files(paths: Paths, groups: str | None) -> tuple[list[JobFiles], list[Violation]]:
    """The jobs behind what the user named, in order of their names, and what could not even be opened."""
    discovery = discover_inputs(paths)
    unreadable = [
        Violation(Rule.UNREADABLE, _told_by_name(PurePath(one.source).name)[1], None, one.message, one.source)
        for one in discovery.findings
        if one.severity is Severity.ERROR
    ]
    asked = {os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)}
    traces = [
        one
        for one in discovery.sources
        if one.named or one.path in asked or one.name.lower().endswith(TRACES)
    ]
    if not traces:
        raise _nothing(discovery, unreadable)
    stated = _read_groups(_only(groups)) if groups else None
    others = [one for one in discovery.sources if one not in traces]
    jobs: dict[tuple[str, str], list[Named]] = {}
    for trace in traces:
        prefix, rank = _told_by_name(trace.name)
        jobs.setdefault((_folder(trace.path), prefix), []).append(Named(trace, rank))
    found = [
        JobFiles(
            prefix,
            named,
            stated or _groups_beside(folder, prefix, named, others),
            frozenset(_ranks_beside(prefix, named)),
        )
        for (folder, prefix), named in jobs.items()
    ]
    return found, unreadable


def _told_by_name(name: str) -> tuple[str, int | None]:
    match = NPU.fullmatch(name.removesuffix(".gz"))
    if not match or int(match["rank"]) > LARGEST_RANK:
        return "", None
    return match["prefix"], int(match["rank"])


def _folder(path: str) -> str:
    folder, _, _ = path.replace(":", "/").rpartition("/")
    return folder


def _ranks_beside(prefix: str, named: Sequence[Named]) -> list[int]:
    folders = {one.source.local.parent for one in named if one.source.local}
    found = [_told_by_name(file.name) for folder in folders for file in folder.iterdir()]
    return [rank for other, rank in found if other == prefix and rank is not None]


def _groups_beside(
    folder: str, prefix: str, named: Sequence[Named], others: Sequence[Source]
) -> Groups | None:
    """The groups of a job, out of a file of its prefix, else one for the folder."""
    wanted = [*([f"{prefix}.groups.json"] if prefix else []), *SHARED_GROUPS]
    inside = {one.name: one for one in others if _folder(one.path) == folder}
    folders = sorted({one.source.local.parent for one in named if one.source.local})
    for name in wanted:
        if name in inside:
            return _read_groups(inside[name])
        for parent in folders:
            if (parent / name).is_file():
                return _read_groups(_only(str(parent / name)))
    if not prefix and len(found := [one for one in others if one.name.endswith(".groups.json")]) == 1:
        return _read_groups(found[0])
    return None


def _only(path: str) -> Source:
    sources = discover(Request([(path, "")])).sources
    if len(sources) != 1:
        raise UsageError(f"--groups: {path} is not one file", advice="Name a JSON file of groups.")
    return sources[0]


def _read_groups(source: Source) -> Groups:
    try:
        with source.open() as stream:
            return groups_of(stream.read_all(LARGEST_GROUPS), source.path)
    except (OSError, TraceError) as error:
        return Groups(source=source.path, problems=[f"{source.path} cannot be read: {error}"])


def _nothing(discovery: Discovery, unreadable: Sequence[Violation]) -> UnreadableError:
    if unreadable:
        return UnreadableError(unreadable[0].message, advice=RULES[Rule.UNREADABLE].advice)
    seen = [PurePath(source.path).name for source in discovery.sources[:3]]
    looked = f"there are {', '.join(seen)}" if seen else "there is no file at all"
    more = ", …" if len(discovery.sources) > len(seen) else ""
    return UnreadableError(
        f"there is no Chakra trace: no name ends in .et; {looked}{more}",
        advice="Name the .et files, or write them: tracelink merge traces/ --to chakra",
    )
