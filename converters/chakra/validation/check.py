"""One file checked by itself: reads it, applies every rule, and keeps what comparisons with other ranks need."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, cast

from msgspec import Struct

from tracelink._io.sources import LARGEST_RANK
from tracelink._io.streams import GZIP_MAGIC, Inflated
from tracelink._model.errors import UsageError
from tracelink._model.ranges import Numbers
from tracelink.converters.chakra.chakra_pb2 import GlobalMetadata
from tracelink.converters.chakra.decode import BROKEN_OFF, Decoded, Fault, decode
from tracelink.converters.chakra.schema import MetadataName, Variant
from tracelink.converters.chakra.table import NodeTable
from tracelink.converters.chakra.validation import communication_rules, node_rules
from tracelink.converters.chakra.validation.files import Groups, TraceFile, groups_of
from tracelink.converters.chakra.validation.replay import RankSteps
from tracelink.converters.chakra.validation.rules import Broken, CheckedFile, Rule
from tracelink.converters.chakra.validation.trace import (
    WHOLE_FILE,
    Breach,
    Collectives,
    Messages,
    Trace,
    collectives_of,
    messages_of,
    steps_of,
)

_BUFFER = 1 << 20
_HEAD = 64

_FILE_RULES: tuple[Callable[[Trace], Breach | Iterator[Breach] | None], ...] = (
    node_rules.compressed,
    node_rules.bytes_of_file,
    node_rules.node_count,
    node_rules.no_root,
    node_rules.no_node_count,
    node_rules.no_version,
    node_rules.duplicate_id,
    node_rules.no_name,
    node_rules.node_type,
    node_rules.absurd_time,
    node_rules.no_duration,
    node_rules.no_host_mark,
    node_rules.comma_in_name,
    node_rules.host_nodes,
    node_rules.missing_dependency,
    node_rules.self_dependency,
    node_rules.duplicate_dependency,
    node_rules.cycle,
    node_rules.backward_time,
    node_rules.attribute_kind,
    node_rules.attribute_twice,
    node_rules.involved_dimensions,
    node_rules.incomplete_memory,
    node_rules.roofline,
    node_rules.tensor_lists,
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
    communication_rules.small_gather,
    communication_rules.no_bytes,
    communication_rules.negative_tag,
    communication_rules.own_message,
    communication_rules.ends_in_message,
)


class Task(Struct, frozen=True):
    """A file to check."""

    file: TraceFile
    default_rank: int
    """Its rank if neither its name nor its metadata contain one."""
    groups: Groups | None
    variant: Variant | None
    """The variant that it is checked as; None for the one that it records."""
    limit: int | None


class Checked(Struct, frozen=True):
    """The rules that a file breaks, and its communication."""

    file: CheckedFile
    broken: list[Broken]
    groups: Groups
    world_size: int
    """From the metadata; 0 if missing."""
    written: Numbers
    """The ranks that were written, from the metadata; empty if missing."""
    metadata_rank: int | None
    name_rank: int | None
    """The rank in the name; None if the name is not PREFIX.RANK.et."""
    collectives: Collectives
    messages: Messages
    steps: RankSteps
    """The communication as it is replayed with that of other ranks."""
    complete: bool
    """True if no part of the file is known to be missing."""
    lenient: bool
    """True if what only ASTRA-sim cannot run is a warning."""


def check(task: Task, known: Decoded | None = None) -> Checked:
    """Reads a file and applies every rule that needs no other file; `known` is what it contains, if it was read."""
    try:
        content = _content(task.file, known)
    except OSError as error:
        text = f"{task.file.source.path} cannot be read: {error.strerror or error}"
        unreadable = Breach(Rule.UNREADABLE, WHOLE_FILE, lambda _: text)
        return _checked(task, _Content(decode(io.BytesIO())), unreadable)
    return _checked(task, content)


def checked_nodes(
    path: str, rank: int, nodes: NodeTable, groups: Mapping[int, Sequence[int]], world_size: int
) -> Checked:
    """The communication of nodes that are known to break no rule of a single file; `path` is where they are written."""
    listed = Groups(groups)
    trace = Trace(path, rank, listed, Decoded(GlobalMetadata(), nodes, []))
    return Checked(
        CheckedFile(path, rank, len(nodes), Variant.FULL, 0),
        [],
        listed,
        world_size,
        Numbers(),
        rank,
        rank,
        collectives_of(trace),
        messages_of(trace),
        steps_of(trace),
        complete=True,
        lenient=False,
    )


class _Content(Struct, frozen=True):
    """A decoded file and its first bytes."""

    decoded: Decoded
    head: bytes = b""
    compressed: bool = False


def _content(file: TraceFile, known: Decoded | None) -> _Content:
    with file.source.opener() as raw:
        head = raw.read(_HEAD)
        raw.seek(0)
        if not head.startswith(GZIP_MAGIC):
            return _Content(known or decode(_buffered(raw)), head)
        inflated = Inflated(raw)
        decoded = decode(_buffered(inflated))
    if inflated.damage and not any(fault.reason == BROKEN_OFF for fault in decoded.faults):
        decoded.faults.append(Fault(BROKEN_OFF, f"the file is damaged: {inflated.damage}", 0))
    return _Content(decoded, head, compressed=True)


def _buffered(stream: object) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream), _BUFFER))


def _checked(task: Task, content: _Content, failure: Breach | None = None) -> Checked:
    decoded, path = content.decoded, task.file.source.path
    metadata_rank = _integer(decoded, MetadataName.RANK, LARGEST_RANK)
    ranks = (task.file.rank, metadata_rank, task.default_rank)
    rank = next(rank for rank in ranks if rank is not None)
    groups = task.groups or _groups_in_metadata(decoded, path)
    variant = task.variant or _variant_of(decoded)
    lenient = task.variant is Variant.FULL
    trace = Trace(path, rank, groups, decoded, content.head, content.compressed, lenient)
    breaches = [failure] if failure else [breach for rule in _FILE_RULES for breach in _listed(rule(trace))]
    broken = [rule for breach in breaches for rule in trace.violations(breach, task.limit)]
    return Checked(
        CheckedFile(path, rank, len(trace.nodes), variant, task.file.source.bytes),
        broken,
        groups,
        _integer(decoded, MetadataName.WORLD_SIZE, LARGEST_RANK + 1) or 0,
        _written_ranks(decoded),
        metadata_rank,
        task.file.rank,
        collectives_of(trace),
        messages_of(trace),
        steps_of(trace),
        complete=not any(rule.rule in node_rules.INCOMPLETE for rule in broken),
        lenient=lenient,
    )


def _listed(result: Breach | Iterator[Breach] | None) -> Iterable[Breach]:
    if result is None:
        return ()
    return (result,) if isinstance(result, Breach) else result


def _variant_of(decoded: Decoded) -> Variant:
    name = decoded.metadata_value(MetadataName.VARIANT)
    return Variant(name) if name in list(Variant) else Variant.ASTRA_SIM


def _groups_in_metadata(decoded: Decoded, path: str) -> Groups:
    text = decoded.metadata_value(MetadataName.GROUPS)
    return groups_of(text, path, with_names=True) if isinstance(text, str | bytes) else Groups()


def _integer(decoded: Decoded, name: str, largest: int) -> int | None:
    value = decoded.metadata_value(name)
    return value if type(value) is int and 0 <= value <= largest else None


def _written_ranks(decoded: Decoded) -> Numbers:
    text = decoded.metadata_value(MetadataName.WRITTEN)
    try:
        return Numbers.parse(text, MetadataName.WRITTEN) if isinstance(text, str) and text else Numbers()
    except UsageError:
        return Numbers()
