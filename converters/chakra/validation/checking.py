"""One file: read, looked at by every rule, and forgotten but for what it does with others."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from tracelink.converters.chakra.decoding import Decoded, Fault, decode
from tracelink.converters.chakra.schema import Profile, Said
from tracelink.converters.chakra.validation import (
    attribute_rules,
    communication_rules,
    dependency_rules,
    file_rules,
    node_rules,
    simulator_rules,
)
from tracelink.converters.chakra.validation.files import Named
from tracelink.converters.chakra.validation.groups import Groups, groups_of
from tracelink.converters.chakra.validation.parts import Collectives, Messages, collectives_of, messages_of
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import FILE, Breach, Trace
from tracelink.converters.chakra.validation.verdict import CheckedFile, Found
from tracelink.errors import UsageError
from tracelink.ranges import Numbers
from tracelink.ranks import LARGEST_RANK
from tracelink.streams import GZIP_MAGIC, Inflated

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
    profile: Profile | None
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
    profile = task.profile or _profile(decoded)
    trace = Trace(path, rank, profile, groups, decoded, content.head, content.compressed)
    breaches = [failure] if failure else [one for rule in RULES_OF_ONE for one in _breaches(rule(trace))]
    found = [one for breach in breaches for one in trace.found(breach, task.limit)]
    return Checked(
        CheckedFile(path, rank, len(trace.nodes), profile, task.named.source.bytes),
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


def _profile(decoded: Decoded) -> Profile:
    said = decoded.said(Said.PROFILE)
    return Profile(said) if said in list(Profile) else Profile.ASTRA_SIM


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
