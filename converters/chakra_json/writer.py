"""An event graph to one Chakra host and device trace (ET+ JSON) for each rank that has an execution trace."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from itertools import islice
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.targets import Target, spool_folder
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.errors import UsageError
from tracelink._model.events import EventKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph, Excerpt, execution_traces, recorded_payloads
from tracelink._model.job import LinkedJob, Part
from tracelink._model.text import counted
from tracelink._model.trace import Payloads, SourceInfo
from tracelink.converters.chakra_json import schema
from tracelink.converters.chakra_json.plan import DeviceWork, Plan, plan_of
from tracelink.converters.pytorch import node_schema as traced
from tracelink.converters.pytorch.arguments import BASE_TIME
from tracelink.plugins import Output

# Findings on a rank.


def without_trace(rank: int) -> Finding:
    """The finding on a rank that cannot be written."""
    text = f"rank {rank} has no execution trace and is not written. Add its execution trace."
    return Finding(Severity.ERROR, "no_execution_trace", text)


def findings_of(plan: Plan, others: Sequence[str]) -> Iterator[Finding]:
    """All that was left out of the file or changed, one finding for each reason."""
    path = plan.part.graph.sources[plan.source].path
    yield from _missing_work(path, plan.work)
    yield from _names(path, plan)
    if not plan.linked:
        text = (
            f"{path}: no node is linked to a profile, so the file has no times. Add the profile of this rank."
        )
        yield Finding(Severity.WARNING, "without_times", text, source=path)
    if plan.tree.moved:
        text = (
            f"{path}: {counted(plan.tree.moved, 'node')} with a parent that is missing or inside the node: the new"
            " parent is the operator that encloses it in the profile, else the root of its thread."
        )
        yield Finding(Severity.INFO, "parent_replaced", text, plan.tree.moved, path)
    if plan.hand_overs.circular:
        count = plan.hand_overs.circular
        text = (
            f"{path}: {counted(count, 'wait')} for nodes of other threads left out: they would form cycles."
        )
        yield Finding(Severity.INFO, "circular_wait", text, count, path)
    if others:
        text = f"{path}: only one execution trace of this rank is written; left out: {', '.join(others)}."
        yield Finding(Severity.WARNING, "other_execution_traces", text, len(others), path)


def _missing_work(path: str, work: DeviceWork) -> Iterator[Finding]:
    total = len(work.rows) + work.unlaunched + work.unlinked
    for reason, count, why in (
        ("without_launch", work.unlaunched, "their launch was not recorded"),
        ("without_node", work.unlinked, "no node of the execution trace encloses their launch"),
    ):
        if count:
            text = f"{path}: {count:,} of {total:,} kernels, copies and memsets were left out: {why}."
            yield Finding(Severity.WARNING, reason, text, count, path)


def _names(path: str, plan: Plan) -> Iterator[Finding]:
    codes, counts = np.unique(plan.part.events.name[plan.work.rows], return_counts=True)
    names = [plan.part.graph.strings[code] for code in codes.tolist()]
    renamed = [
        (name, int(count)) for name, count in zip(names, counts, strict=True) if schema.RENAMED[0] in name
    ]
    refused = [
        (name, int(count))
        for name, count in zip(names, counts, strict=True)
        if schema.is_refused(schema.current_name(name))
    ]
    if renamed:
        text = (
            f"{path}: {schema.RENAMED[0]} was written as {schema.RENAMED[1]}, the name in newer NCCL: "
            "chakra_converter knows only this name."
        )
        count = sum(count for _, count in renamed)
        yield Finding(Severity.INFO, "renamed_kernel", text, count, path, renamed[0][0])
    if refused:
        text = (
            f"{path}: chakra_converter will refuse the file, because it does not know the operation of kernels such as"
            f" {refused[0][0]}."
        )
        count = sum(count for _, count in refused)
        yield Finding(Severity.WARNING, "refused_kernel", text, count, path, refused[0][0])


# The JSON of every node, kept on disk: sources list nodes in the order of their ends, readers need that of starts.


class Spool(Struct, frozen=True):
    """Compact JSON by its number in the source."""

    file: BinaryIO
    offsets: Int64s

    def text(self, number: int) -> bytes:
        """The JSON of one number; empty if the source has no such number."""
        if not 0 <= number < len(self.offsets) - 1:
            return b""
        begin, end = self.offsets[number : number + 2].tolist()
        self.file.seek(begin)
        return self.file.read(end - begin)


@contextmanager
def spooled(payloads: Payloads, directory: str | None) -> Iterator[Spool]:
    """All payloads of a source in a temporary file."""
    with tempfile.TemporaryFile(dir=directory) as file:
        lengths: list[int] = []
        for first, texts in payloads.batches():
            lengths += [0] * (first - len(lengths))
            compact = [msgspec.json.format(text, indent=-1) if len(text) else b"" for text in texts]
            lengths += map(len, compact)
            file.writelines(compact)
        yield Spool(file, np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]))


# Process groups of device work in the profile.


def profiled_groups(graph: EventGraph, rows: Int64s) -> dict[int, bytes]:
    """The group name as JSON, by row, for rows that have one."""
    found = ((row, schema.PROFILED_GROUP.search(text)) for row, text in recorded_payloads(graph, rows))
    return {row: bytes(match[1]) for row, match in found if match}


# Nodes as recorded, in the layout since 1.0.2.


Fields = dict[str, bytes]
"""The keys of a JSON object, and the JSON of each value."""

FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
ATTRIBUTE_LIST = msgspec.json.Decoder(list[schema.Attribute])
NO_VALUES = msgspec.json.encode(traced.Tensors())
MARKS = [b'{"name":"%s","type":' % name.encode() for name in schema.REQUIRED_ATTRIBUTES]
IN_USUAL_ORDER = re.compile(rb"\[" + rb'"\w+","value":-?\d+\},'.join(map(re.escape, MARKS)))
"""Every torch so far lists these first, which is faster to check than that each is present."""


def fields_of(text: bytes) -> Fields:
    """The keys of a node, with inputs, outputs and attributes as `chakra_converter` needs them; `text` is compact."""
    fields: Fields = {key: bytes(value) for key, value in FIELDS.decode(text).items()} if text else {}
    if schema.ATTRIBUTES not in fields:
        fields = _upgraded(fields)
    elif not _is_complete(fields[schema.ATTRIBUTES]):
        fields[schema.ATTRIBUTES] = _completed(fields[schema.ATTRIBUTES])
    for key in (schema.INPUTS, schema.OUTPUTS):
        if not fields.get(key, b"").startswith(b"{"):
            fields[key] = NO_VALUES
    return fields


def _is_complete(attributes: bytes) -> bool:
    return bool(IN_USUAL_ORDER.match(attributes)) or all(mark in attributes for mark in MARKS)


def _upgraded(flat: Fields) -> Fields:
    """A node of 1.0.1, which has attributes and shapes as keys of its own."""
    fields = dict(flat)
    fields.pop(schema.FLAT_PARENT, None)
    for key, names in schema.FLAT_VALUES.items():
        values = [fields.pop(name, b"[]") for name in names]
        fields[key] = values[0] if values[0].startswith(b"{") else _values(*values)
    given = {name: fields.pop(name) for name in schema.REQUIRED_ATTRIBUTES if name in fields}
    fields[schema.ATTRIBUTES] = _attributes(given)
    return fields


def _values(values: bytes, shapes: bytes, types: bytes) -> bytes:
    return msgspec.json.encode(traced.Tensors(msgspec.Raw(values), msgspec.Raw(shapes), msgspec.Raw(types)))


def _attributes(given: Fields) -> bytes:
    attributes = [
        schema.Attribute(name, type_, msgspec.Raw(given.get(name, msgspec.json.encode(default))))
        for name, (type_, default) in schema.REQUIRED_ATTRIBUTES.items()
    ]
    return msgspec.json.encode(attributes)


def _completed(text: bytes) -> bytes:
    """The attributes, with those added that every node must have."""
    try:
        attributes = ATTRIBUTE_LIST.decode(text)
    except msgspec.ValidationError:
        attributes = []
    present = {attribute.name for attribute in attributes}
    added = [
        schema.Attribute(name, type_, msgspec.Raw(msgspec.json.encode(default)))
        for name, (type_, default) in schema.REQUIRED_ATTRIBUTES.items()
        if name not in present
    ]
    return msgspec.json.encode([*attributes, *added])


# The JSON of nodes.


_NULL = b"null"


class NodeTexts(Struct, frozen=True):
    """The JSON of the nodes of a plan."""

    plan: Plan
    spool: Spool
    """The nodes as recorded."""
    groups: Mapping[int, bytes]
    """The process group of device work, by row."""

    def all(self) -> Iterator[bytes]:
        """Each node, followed by the device work that it launched."""
        tree, work = self.plan.tree, self.plan.work
        bounds = np.searchsorted(work.node, np.arange(len(tree) + 1)).tolist()
        for place in range(len(tree)):
            fields = self._node(place)
            yield _object(fields)
            for number in range(bounds[place], bounds[place + 1]):
                row = int(work.rows[number])
                yield _object(self._work(row, place, number - bounds[place] + 1, fields))

    def _node(self, place: int) -> Fields:
        plan = self.plan
        recorded = fields_of(self._recorded(place))
        fields = {
            schema.ID: b"%d" % plan.ids[place],
            schema.NAME: recorded.pop(schema.NAME, b"") or self._name(place),
            schema.PARENT: b"%d" % plan.ids[plan.tree.parent[place]],
        }
        fields |= {
            key: value for key, value in recorded.items() if key not in fields and key not in schema.LINKED
        }
        operator = int(plan.operator[place])
        if operator == UNKNOWN:
            return fields
        waited = int(plan.hand_overs.awaited[place])
        other_thread = _NULL if waited == UNKNOWN else b"%d" % plan.ids[waited]
        fields |= self._times(operator, int(plan.exclusive[operator]), other_thread)
        if waits := plan.device_waits.of(place):
            fields[schema.SYNCHRONISED] = b"[%s]" % b",".join(
                b"%d" % plan.id_of_work(number) for number in waits
            )
        return fields

    def _work(self, row: int, place: int, number: int, node: Fields) -> Fields:
        """A copy of its node's values, with its own name, times and stream."""
        graph, events = self.plan.part.graph, self.plan.part.events
        inclusive = max(int(events.duration[row]), 0)
        name = graph.strings[events.name[row]]
        fields = {
            schema.ID: b"%d" % (self.plan.ids[place] + number),
            schema.NAME: _quoted(schema.current_name(name)),
            schema.PARENT: node[schema.ID],
            **{key: node[key] for key in (schema.INPUTS, schema.OUTPUTS, schema.ATTRIBUTES)},
            **self._times(row, inclusive, node.get(schema.OTHER_THREAD, _NULL)),
            schema.CATEGORY: _quoted(schema.CATEGORIES[EventKind(events.kind[row])]),
            schema.PHASE: _quoted(schema.COMPLETE),
            schema.STREAM: _whole(graph.tracks[events.track[row]].identity),
        }
        group = self.groups.get(row) or (
            schema.COLLECTIVE_KERNEL.search(name) and self._recorded_group(place)
        )
        return fields | {schema.GROUP: group} if group else fields

    def _times(self, row: int, exclusive: int, other_thread: bytes) -> Fields:
        return {
            schema.INCLUSIVE: microseconds(max(int(self.plan.part.events.duration[row]), 0)),
            schema.EXCLUSIVE: microseconds(exclusive),
            schema.STARTED: microseconds(int(self.plan.part.events.start[row]) - self.plan.base),
            schema.OTHER_THREAD: other_thread,
        }

    def _recorded(self, place: int) -> bytes:
        row = int(self.plan.tree.rows[place])
        return b"" if row == UNKNOWN else self.spool.text(int(self.plan.part.events.payload[row]))

    def _recorded_group(self, place: int) -> bytes:
        """The group of the node or of its parent: `nccl:*` is inside `record_param_comms`."""
        for candidate in (place, int(self.plan.tree.parent[place])):
            if match := schema.RECORDED_GROUP.search(self._recorded(candidate)):
                return match[1]
        return b""

    def _name(self, place: int) -> bytes:
        row = int(self.plan.tree.rows[place])
        part = self.plan.part
        return _quoted(
            traced.PROCESS_ROOTS[0] if row == UNKNOWN else part.graph.strings[part.events.name[row]]
        )


def node_texts(plan: Plan, spool: Spool) -> NodeTexts:
    """The JSON of a plan, with the groups that its profile names."""
    part = plan.part
    return NodeTexts(plan, spool, profiled_groups(part.graph, plan.work.rows))


def microseconds(nanoseconds: int) -> bytes:
    """An exact decimal."""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return b"%s%d.%03d" % (b"-" if nanoseconds < 0 else b"", whole, rest)


def _object(fields: Fields) -> bytes:
    return b"{" + b",".join([_key(key) + value for key, value in fields.items()]) + b"}"


@lru_cache(maxsize=256)
def _key(text: str) -> bytes:
    return _quoted(text) + b":"


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)


def _whole(text: str) -> bytes:
    return text.encode() if text.isdecimal() and text.isascii() else b"0"


# The writer.


_BATCH = 1024
"""Nodes written at once."""


class ChakraJsonWriter:
    """Execution traces with the times and the device work of the profile, as `chakra_converter` reads them."""

    name = "chakra-json"

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes a file for each rank that has an execution trace."""
        parts = job.parts
        if len({target.path(file_name(part.rank)) for part in parts}) < len(parts):
            parts = self._only_part_with_trace(parts, target, engine)
        written = engine.map(partial(self._write_part, target), parts)
        outputs = [output for output in written if output]
        if not outputs:
            raise UsageError(
                f"no rank has an execution trace, so there is nothing to write as {self.name}",
                advice="Add the files of torch's ExecutionTraceObserver.",
            )
        names = {output.rank for output in outputs}
        findings = tuple(without_trace(part.rank) for part in job.parts if part.rank not in names)
        return [replace(outputs[0], findings=findings + outputs[0].findings), *outputs[1:]]

    def _only_part_with_trace(self, parts: Sequence[Part], target: Target, engine: Engine) -> list[Part]:
        """For a target that takes one file: the rank with an execution trace, which must be the only one."""
        fit = engine.map(lambda part: bool(execution_traces(part.load())), parts)
        chosen = [part for part, fits in zip(parts, fit, strict=True) if fits]
        if len(chosen) > 1:
            raise UsageError(
                f"{target.path()} takes one file, but {len(chosen)} ranks have an execution trace",
                advice="Name a directory: -o DIRECTORY/",
            )
        return chosen

    def _write_part(self, target: Target, part: Part) -> Output | None:
        """Writes a rank, unless it has no execution trace."""
        graph = part.load()
        sources = execution_traces(graph)
        return self._write(graph, part.rank, sources, target) if sources else None

    def _write(self, graph: EventGraph, rank: int, sources: list[int], target: Target) -> Output:
        name = file_name(rank)
        path = target.path(name)
        plan = plan_of(Excerpt(graph), sources[0])
        with ExitStack() as stack:
            stream = stack.enter_context(target.file(name))
            spool = stack.enter_context(spooled(graph.payloads[sources[0]], spool_folder(path)))
            stream.write(_opening(graph.sources[sources[0]], plan.base))
            for text in _together(node_texts(plan, spool).all()):
                stream.write(text)
            stream.write(b"]}\n")
        others = [graph.sources[source].path for source in sources[1:]]
        findings: tuple[Finding, ...] = tuple(findings_of(plan, others))
        written = len(plan.tree) + len(plan.work.rows)
        return Output(path, self.name, rank, target.size(name), written, findings)


def file_name(rank: int) -> str:
    """The name of a rank's file in a directory."""
    return f"et_{rank}.json"


def _opening(source: SourceInfo, base: int) -> bytes:
    """Everything up to the first node; `chakra_converter` needs all of these keys except the last, which it ignores."""
    recorded = source.header
    start = _count(recorded, traced.START, 0)
    header = {
        traced.SCHEMA: schema.accepted_version(source.version),
        traced.PID: _count(recorded, traced.PID, source.pid or 0),
        traced.TIME: str(recorded.get(traced.TIME, "")),
        traced.START: start,
        traced.FINISH: _count(recorded, traced.FINISH, start),
        BASE_TIME: base,
    }
    return msgspec.json.encode(header)[:-1] + b',"%s":[' % traced.NODES.encode()


def _count(header: Mapping[str, Any], key: str, default: int) -> int:
    value = header.get(key)
    return value if isinstance(value, int) and value >= 0 else default


def _together(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The nodes with commas between them, many at once."""
    yield from islice(texts, 1)
    while some := list(islice(texts, _BATCH)):
        yield b"," + b",".join(some)
