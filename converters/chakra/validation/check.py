"""One file: read, checked, forgotten but for what others need."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import BinaryIO, cast

from tracelink.converters.chakra.decode import Decoded, Fault, decode
from tracelink.converters.chakra.schema import Said, Variant
from tracelink.converters.chakra.validation import communication_rules, node_rules
from tracelink.converters.chakra.validation import communication_rules as simulator_rules
from tracelink.converters.chakra.validation import node_rules as attribute_rules
from tracelink.converters.chakra.validation import node_rules as dependency_rules
from tracelink.converters.chakra.validation import node_rules as file_rules
from tracelink.converters.chakra.validation.rules import RULES, CheckedFile, Found, Rule, Violation
from tracelink.converters.chakra.validation.trace import (
    FILE,
    Breach,
    Collectives,
    Groups,
    Messages,
    Trace,
    collectives_of,
    groups_of,
    messages_of,
)
from tracelink.errors import Severity, TraceError, UnreadableError, UsageError
from tracelink.io.sources import LARGEST_RANK, Discovery, Paths, Request, Source, discover, discover_inputs
from tracelink.io.streams import GZIP_MAGIC, Inflated
from tracelink.ranges import Numbers

# The files of a job: which there are, whose each is, and where its groups stand.


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


# One file: read, looked at by every rule, and forgotten but for what it does with others.


BUFFER = 1 << 20
HEAD = 64

RULES_OF_ONE: tuple[Callable[[Trace], Breach | Iterator[Breach] | None], ...] = (
    file_rules.compressed,
    file_rules.bytes_of_file,
    file_rules.node_count,
    file_rules.no_root,
    file_rules.no_node_count,
    file_rules.no_version,
    node_rules.duplicate_id,
    node_rules.no_name,
    node_rules.node_type,
    node_rules.absurd_time,
    node_rules.no_duration,
    node_rules.no_host_mark,
    node_rules.comma_in_name,
    node_rules.host_nodes,
    dependency_rules.missing_dependency,
    dependency_rules.self_dependency,
    dependency_rules.duplicate_dependency,
    dependency_rules.cycle,
    dependency_rules.backward_time,
    attribute_rules.attribute_kind,
    attribute_rules.attribute_twice,
    attribute_rules.involved_dimensions,
    attribute_rules.incomplete_memory,
    attribute_rules.roofline,
    attribute_rules.tensor_lists,
    communication_rules.host_communication,
    communication_rules.incomplete_collective,
    communication_rules.unknown_collective,
    communication_rules.unsimulated_collective,
    communication_rules.negative_size,
    communication_rules.group_name,
    communication_rules.unknown_group,
    communication_rules.foreign_group,
    communication_rules.incomplete_message,
    communication_rules.foreign_message,
    simulator_rules.small_gather,
    simulator_rules.no_bytes,
    simulator_rules.negative_tag,
    simulator_rules.own_message,
)


@dataclass(frozen=True, slots=True)
class Task:
    """A file to look at."""

    named: Named
    rank: int
    """Its rank if neither its name nor its metadata say it."""
    groups: Groups | None
    variant: Variant | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of a file, and what it does with others."""

    file: CheckedFile
    found: list[Found]
    groups: Groups
    world: int
    """How many ranks the file says there are, or 0."""
    written: Numbers
    """Of which ranks it says that there are files; empty where it does not say."""
    told_rank: int | None
    """What the metadata say of the rank."""
    named_rank: int | None
    """What the name says of it, where it is one that ASTRA-sim asks for."""
    collectives: Collectives
    messages: Messages
    complete: bool
    """Whether nothing is known to be missing."""


def check(task: Task) -> Checked:
    """Reads a file and applies every rule that needs no other."""
    try:
        content = _content(task.named)
    except OSError as error:
        text = f"{task.named.source.path} cannot be read: {error.strerror or error}"
        return _checked(task, Content(decode(io.BytesIO())), Breach(Rule.UNREADABLE, FILE, lambda _: text))
    return _checked(task, content)


@dataclass(frozen=True, slots=True)
class Content:
    """The nodes of a file, its first bytes, and whether it is compressed."""

    decoded: Decoded
    head: bytes = b""
    compressed: bool = False


def _content(named: Named) -> Content:
    with named.source.opener() as raw:
        head = raw.read(HEAD)
        raw.seek(0)
        if not head.startswith(GZIP_MAGIC):
            return Content(decode(_buffered(raw)), head)
        inflated = Inflated(raw)
        decoded = decode(_buffered(inflated))
    if inflated.damage and not any(fault.reason == "broken_off" for fault in decoded.faults):
        decoded.faults.append(Fault("broken_off", f"the file is damaged: {inflated.damage}", 0))
    return Content(decoded, head, compressed=True)


def _buffered(stream: object) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream), BUFFER))


def _checked(task: Task, content: Content, failure: Breach | None = None) -> Checked:
    decoded, path = content.decoded, task.named.source.path
    told_rank = _whole(decoded, Said.RANK, LARGEST_RANK)
    rank = next(one for one in (task.named.rank, told_rank, task.rank) if one is not None)
    groups = task.groups or _own_groups(decoded, path)
    variant = task.variant or _variant(decoded)
    trace = Trace(path, rank, variant, groups, decoded, content.head, content.compressed)
    breaches = [failure] if failure else [one for rule in RULES_OF_ONE for one in _breaches(rule(trace))]
    found = [one for breach in breaches for one in trace.found(breach, task.limit)]
    return Checked(
        CheckedFile(path, rank, len(trace.nodes), variant, task.named.source.bytes),
        found,
        groups,
        _whole(decoded, Said.WORLD_SIZE, LARGEST_RANK + 1) or 0,
        _written(decoded),
        told_rank,
        task.named.rank,
        collectives_of(trace),
        messages_of(trace),
        complete=not any(one.rule in file_rules.INCOMPLETE for one in found),
    )


def _breaches(result: Breach | Iterator[Breach] | None) -> Iterable[Breach]:
    if result is None:
        return ()
    return (result,) if isinstance(result, Breach) else result


def _variant(decoded: Decoded) -> Variant:
    said = decoded.said(Said.VARIANT)
    return Variant(said) if said in list(Variant) else Variant.ASTRA_SIM


def _own_groups(decoded: Decoded, path: str) -> Groups:
    said = decoded.said(Said.GROUPS)
    return groups_of(said, path, described=True) if isinstance(said, str | bytes) else Groups()


def _whole(decoded: Decoded, name: str, largest: int) -> int | None:
    said = decoded.said(name)
    return said if type(said) is int and 0 <= said <= largest else None


def _written(decoded: Decoded) -> Numbers:
    said = decoded.said(Said.WRITTEN)
    try:
        return Numbers.parse(said, Said.WRITTEN) if isinstance(said, str) and said else Numbers()
    except UsageError:
        return Numbers()
