"""The files of a job: which `.et` files belong together, the rank of each, and their process groups."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from msgspec import Struct, field

import tracelink.plugins as plugins
from tracelink._io.remote.addresses import shown
from tracelink._io.sources import (
    LARGEST_RANK,
    Discovery,
    Paths,
    Request,
    Source,
    discover,
    siblings_of,
)
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.errors import TraceError, UnreadableError, UsageError
from tracelink._model.findings import Severity
from tracelink._model.selection import Numbers
from tracelink._run.reading import ReadOptions, inputs_of
from tracelink.converters.chakra.table import Attribute
from tracelink.converters.chakra.validation.rules import Rule, Violation

ALL_RANKS = 0
"""The number of the group of all ranks."""

_NPU_FILE = re.compile(r"(?P<prefix>.+)\.(?P<rank>\d{1,6})\.et$", re.IGNORECASE)
_TRACE_SUFFIXES = (".et", ".et.gz")
_WRITE_TRACES = "Name the .et files, or write them: tracelink merge traces/ --to chakra"
_GROUPS_SUFFIX = ".groups.json"
_SHARED_GROUPS = ("comm_group.json", "comm_groups.json")
_LARGEST_GROUPS_FILE = 64 << 20
_LARGEST_GROUP_NUMBER = (1 << 31) - 1


class Groups(Struct, frozen=True):
    """The ranks of each process group, by its number."""

    members: Mapping[int, Sequence[int]] = field(default_factory=dict)
    source: str = ""
    """The file that lists them; empty if no file does."""
    problems: Sequence[str] = ()

    def numbers(self, names: Attribute, length: int) -> Int64s:
        """The group of each of `length` nodes; a node without a name is in the group of all ranks."""
        column = np.full(length, ALL_RANKS, np.int64)
        known: dict[str, int] = {}
        for row, name in zip(names.rows.tolist(), names.values, strict=True):
            if not isinstance(name, str):
                column[row] = UNKNOWN
                continue
            if name not in known:
                known[name] = self.number(name)
            column[row] = known[name]
        return column

    def number(self, name: str) -> int:
        """The number of the group that a node names; UNKNOWN if no file lists this group."""
        number = group_number(name)
        return number if number == ALL_RANKS or number in self.members else UNKNOWN

    def of(self, number: int, world_size: int) -> Sequence[int]:
        """The ranks of a group in a job of `world_size` ranks."""
        return range(world_size) if number == ALL_RANKS else self.members.get(number, ())

    @property
    def largest_rank(self) -> int:
        """The largest rank of any group, or UNKNOWN."""
        return max((rank for ranks in self.members.values() for rank in ranks), default=UNKNOWN)


class TraceFile(Struct, frozen=True):
    """An `.et` file and the rank in its name."""

    source: Source
    rank: int | None
    """None if the name is not PREFIX.RANK.et, which ASTRA-sim needs."""


class JobFiles(Struct, frozen=True):
    """The traces of one job: the files with one prefix in one folder."""

    prefix: str
    traces: Sequence[TraceFile]
    groups: Groups | None = None
    """None if no file lists the process groups."""
    ranks_in_folder: frozenset[int] = field(default_factory=frozenset)
    """Ranks that have a file in the folder, selected or not."""


def job_files(
    paths: Paths, groups: str | None, options: ReadOptions
) -> tuple[list[JobFiles], list[Violation]]:
    """The jobs in `paths`, sorted by name, and a violation for each file that cannot be opened.

    `groups` is the path of the file of process groups; None looks for one next to the traces.
    """
    discovery = inputs_of(paths, options)
    unreadable = [
        Violation(
            Rule.UNREADABLE,
            _prefix_and_rank(PurePath(finding.source).name)[1],
            None,
            finding.message,
            finding.source,
        )
        for finding in discovery.findings
        if finding.severity is Severity.ERROR
    ]
    requested = {
        shown(os.fspath(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)
    }
    traces = [
        source
        for source in discovery.sources
        if source.named or source.path in requested or source.name.lower().endswith(_TRACE_SUFFIXES)
    ]
    if not traces:
        raise _no_traces(discovery, unreadable)
    for source in traces:
        _check_format(source)
    named_groups = _read_groups(_single_source(groups)) if groups else None
    other_sources = [source for source in discovery.sources if source not in traces]
    jobs: dict[tuple[str, str], list[TraceFile]] = {}
    for source in traces:
        prefix, rank = _prefix_and_rank(source.name)
        jobs.setdefault((_folder(source.path), prefix), []).append(TraceFile(source, rank))
    found = [
        JobFiles(
            prefix,
            files,
            named_groups or _groups_in_folder(folder, prefix, files, other_sources),
            frozenset(_ranks_in_folder(prefix, files)),
        )
        for (folder, prefix), files in jobs.items()
    ]
    return found, unreadable


def _prefix_and_rank(name: str) -> tuple[str, int | None]:
    match = _NPU_FILE.fullmatch(name.removesuffix(".gz"))
    if not match or int(match["rank"]) > LARGEST_RANK:
        return "", None
    return match["prefix"], int(match["rank"])


def _folder(path: str) -> str:
    folder, _, _ = path.replace(":", "/").rpartition("/")
    return folder


def _ranks_in_folder(prefix: str, files: Sequence[TraceFile]) -> list[int]:
    found = [_prefix_and_rank(name) for names in _folders(files) for name in names]
    return [rank for found_prefix, rank in found if found_prefix == prefix and rank is not None]


def _folders(files: Sequence[TraceFile]) -> list[Mapping[str, str]]:
    """The files next to these, by their names, for each folder."""
    firsts = {_folder(file.source.path): file.source for file in reversed(files) if file.source.is_whole}
    return [siblings_of(firsts[folder]) for folder in sorted(firsts)]


def _groups_in_folder(
    folder: str, prefix: str, files: Sequence[TraceFile], other_sources: Sequence[Source]
) -> Groups | None:
    """The groups of a job: those of its prefix, else those of the folder."""
    names = [*([f"{prefix}{_GROUPS_SUFFIX}"] if prefix else []), *_SHARED_GROUPS]
    by_name = {source.name: source for source in other_sources if _folder(source.path) == folder}
    folders = _folders(files)
    for name in names:
        if name in by_name:
            return _read_groups(by_name[name])
        for paths in folders:
            if name in paths:
                return _read_groups(_single_source(paths[name]))
    if prefix:
        return None
    candidates = [source for source in other_sources if source.name.endswith(_GROUPS_SUFFIX)]
    return _read_groups(candidates[0]) if len(candidates) == 1 else None


def _single_source(path: str) -> Source:
    sources = discover(Request([(path, "")])).sources
    if len(sources) != 1:
        raise UsageError(f"--groups: {path} is not one file", advice="Name a JSON file of groups.")
    return sources[0]


def _read_groups(source: Source) -> Groups:
    try:
        with source.open() as stream:
            return groups_of(stream.read_all(_LARGEST_GROUPS_FILE), source.path)
    except (OSError, TraceError) as error:
        return Groups(source=source.path, problems=[f"{source.path} cannot be read: {error}"])


def _check_format(source: Source) -> None:
    """Raises UnreadableError if a file that the user names without .et is of another format."""
    if source.name.lower().endswith(_TRACE_SUFFIXES):
        return
    try:
        formats = sorted(known.name for known in plugins.recognised(source.head(), source.name))
    except (OSError, TraceError):
        return  # its damage is a violation
    if formats and "chakra" not in formats:
        raise UnreadableError(
            f"it is not a Chakra trace, but of format {formats[0]}", source=source.path, advice=_WRITE_TRACES
        )


def _no_traces(discovery: Discovery, unreadable: Sequence[Violation]) -> UnreadableError:
    if unreadable:
        return UnreadableError(unreadable[0].message, advice=Rule.UNREADABLE.advice)
    names = [PurePath(source.path).name for source in discovery.sources[:3]]
    more = ", …" if len(discovery.sources) > len(names) else ""
    found = f"found {', '.join(names)}{more}" if names else "found no files at all"
    return UnreadableError(
        f"no Chakra trace found: no file name ends in .et; {found}",
        advice=_WRITE_TRACES,
    )


# Process groups in JSON: a file next to the traces, or the metadata of traces that tracelink wrote.


def group_number(name: str) -> int:
    """A group's name as its number; UNKNOWN if it is not a number."""
    if not name:
        return ALL_RANKS
    fits = name.isascii() and name.isdecimal() and len(name) <= len(str(_LARGEST_GROUP_NUMBER))
    return int(name) if fits and int(name) <= _LARGEST_GROUP_NUMBER else UNKNOWN


def groups_of(text: bytes | str, source: str, *, with_names: bool = False) -> Groups:
    """Groups from JSON, with a problem for each entry that cannot be used.

    `with_names` is for metadata, where the value of a group is an object with a name and ranks.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Groups(source=source, problems=[f"{source} is not JSON: {error}"])
    if not isinstance(document, dict):
        return Groups(source=source, problems=[f"{source} is not a JSON object of groups"])
    members: dict[int, Sequence[int]] = {}
    problems = []
    for name, value in document.items():
        ranks = value.get("ranks") if with_names and isinstance(value, dict) else value
        number = group_number(name) if name else UNKNOWN
        if problem := _group_problem(number, ranks, with_names=with_names):
            problems.append(f"{source}: group {name!r} {problem}")
        elif ranks and number != ALL_RANKS:
            members[number] = tuple(ranks)
    return Groups(members, source, problems)


def _group_problem(number: int, ranks: Any, *, with_names: bool) -> str:
    if number == UNKNOWN:
        return "is not an integer"
    if number == ALL_RANKS and not with_names:
        return "cannot be listed: 0 means all ranks"
    if not isinstance(ranks, list) or not ranks:
        return "has no list of ranks"
    if not all(type(rank) is int and 0 <= rank <= LARGEST_RANK for rank in ranks):
        return "has members that are not ranks"
    return "has a duplicate rank" if len(set(ranks)) < len(ranks) else ""


def united_groups(parts: Sequence[Groups]) -> Groups:
    """The groups of several files together, with a problem for each contradiction."""
    members: dict[int, Sequence[int]] = {}
    problems = []
    for part in parts:
        for number, ranks in part.members.items():
            if members.setdefault(number, ranks) != ranks:
                problems.append(
                    f"{part.source} lists group {number} as [{Numbers.of(ranks)}], and another file"
                    f" lists it as [{Numbers.of(members[number])}]"
                )
    return Groups(members, parts[0].source if parts else "", problems)
