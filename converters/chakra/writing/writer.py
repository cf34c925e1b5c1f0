"""The event graph of a job to one Chakra trace for each rank, and a file of process groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np
import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.targets import STDOUT, Target
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.errors import UsageError
from tracelink._model.events import EventKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import Excerpt, Rank
from tracelink._model.job import LinkedJob, Part
from tracelink._model.selection import Numbers
from tracelink._model.text import counted, subject
from tracelink._order.order import Order, tensor_order
from tracelink.converters.chakra.decode import Metadata, encoded
from tracelink.converters.chakra.schema import CollectiveType, Kind, MetadataName, Name, Variant
from tracelink.converters.chakra.table import (
    Gaps,
    NodeTable,
    add_gaps,
    add_work,
    contracted,
    gaps_of,
    one_idle_node,
)
from tracelink.converters.chakra.validation import Checked, Rule, check_nodes, check_replay
from tracelink.converters.chakra.writing.communications import (
    REPLACEMENTS,
    Communication,
    GroupNumbers,
    Simulated,
    all_ranks,
    collective_groups,
    communication_of,
    compared,
    group_numbers,
    participants_of,
    simulated,
    usable,
)
from tracelink.converters.chakra.writing.nodes import fields_by_row, fields_of_nodes, table_of
from tracelink.converters.chakra.writing.plan import (
    HOST_WAIT,
    STREAM_WAIT,
    TENSOR,
    Dependencies,
    Plan,
    event_orders,
    plan_of,
)
from tracelink.converters.chakra.writing.slots import have_nodes, positions_with_nodes
from tracelink.converters.pytorch.node_communication import StorageReader
from tracelink.plugins import Output

GROUPS_FILE = "groups.json"

_NOT_NODES = {
    EventKind.PYTHON: "Python functions",
    EventKind.RUNTIME: "runtime calls",
    EventKind.GPU_ANNOTATION: "device annotations",
    EventKind.SYNCHRONIZATION: "synchronization records",
    EventKind.OVERHEAD: "overhead events",
    EventKind.SPAN: "spans",
    EventKind.INSTANT: "instants",
    EventKind.MEMORY: "memory events",
    EventKind.RECORD: "flight-recorder entries",
    EventKind.OTHER: "other events",
}
"""Events whose time is in the operators that enclose them, or that have no duration."""

_UNUSABLE = {
    "operation": "their operation is unknown, or Chakra has no type for it",
    "size": "their size is unknown",
    "peer": "their peer is unknown",
}
"""The reason why communication is written as compute, by what is unknown."""


class Wanted(Struct, frozen=True):
    """The options of the writer."""

    variant: Variant = Variant.FULL
    dependencies: Dependencies = Dependencies.BOTH
    gaps: bool = False


class Shared(Struct, frozen=True):
    """All that the ranks of a job have in common."""

    communication: Communication
    groups: GroupNumbers
    strings: Sequence[str]
    """The strings of the job, for codes in `communication`."""
    world_size: int
    written: Numbers
    """The ranks that are written."""

    @classmethod
    def of(cls, job: LinkedJob) -> Shared:
        """The communication and the groups of a job."""
        communication = communication_of(job)
        groups = group_numbers(job, participants_of(communication))
        written = Numbers.of(part.rank for part in job.parts)
        return cls(communication, groups, job.strings, len(all_ranks(job)), written)


class ChakraWriter(Struct, frozen=True):
    """Writes operators, device work and communication as nodes, in the order in which they really ran."""

    wanted: Wanted = field(default_factory=Wanted)

    name = "chakra"

    def configured(self, **options: str) -> ChakraWriter:
        """A writer of another variant, with other dependencies, or with the gaps of threads as nodes."""
        wanted = Wanted(
            Variant(options.get("variant", self.wanted.variant)),
            Dependencies(options.get("deps", self.wanted.dependencies)),
            options["gaps"] == "yes" if "gaps" in options else self.wanted.gaps,
        )
        if wanted.gaps and wanted.variant != Variant.FULL:
            raise UsageError(
                f"the variant {wanted.variant} has no threads, and so no gaps of threads",
                advice=f"Leave out --gaps, or write the variant {Variant.FULL}.",
            )
        return ChakraWriter(wanted)

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes a file for each rank, then the groups."""
        shared = self._compared(Shared.of(job), job.parts, engine)
        to_stdout = target.path() == STDOUT
        if to_stdout and len(job.parts) > 1:
            raise UsageError(
                f"standard output takes one file, but the job has {len(job.parts)} ranks",
                advice="Name a prefix for the files: -o et/job",
            )
        written = engine.map(partial(self._write_part, shared, target), job.parts)
        outputs = [output for output, _ in written]
        if to_stdout:
            return outputs
        communication = [checked for _, checked in written if checked]
        groups = self._write_groups(shared.groups, target)
        return [*outputs, replace(groups, findings=tuple(_never_complete(communication)))]

    def _compared(self, shared: Shared, parts: Sequence[Part], engine: Engine) -> Shared:
        """For simulators, the communication with what ranks disagree about, and with groups numbered for it."""
        if self.wanted.variant != Variant.ASTRA_SIM:
            return shared
        communication = shared.communication
        groups = shared.groups.for_simulation(collective_groups(communication))
        if len(parts) >= 2:

            def positions(part: Part) -> Int64s:
                return positions_with_nodes(Excerpt(part.load()), communication.of_rank(part.rank))

            ranks = [part.rank for part in parts]
            communication = compared(communication, groups, ranks, engine.map(positions, parts))
        return replace(shared, groups=groups, communication=communication)

    def _write_groups(self, groups: GroupNumbers, target: Target) -> Output:
        members = {str(number): ranks for number, ranks in groups.members_by_number.items()}
        with target.file(GROUPS_FILE) as stream:
            stream.write(orjson.dumps(members))
        return Output(target.path(GROUPS_FILE), self.name, None, target.size(GROUPS_FILE), 0)

    def _write_part(self, shared: Shared, target: Target, part: Part) -> tuple[Output, Checked | None]:
        """Writes the file of a rank; returns its communication too, unless the variant orders it."""
        graph = part.load()
        communication = shared.communication.of_rank(part.rank)
        rank = rank_nodes(Excerpt(graph), communication, shared, self.wanted)
        name = f"{part.rank}.et"
        metadata = self._metadata(shared, graph.ranks[0], len(rank.nodes))
        with target.file(name) as stream:
            for block in encoded(metadata, rank.nodes, rank.tensors):
                stream.write(block)
        path = target.path(name)
        findings = tuple(findings_of(path, part.rank, rank))
        output = Output(path, self.name, part.rank, target.size(name), len(rank.nodes), findings)
        if self.wanted.variant != Variant.FULL:
            return output, None
        members = shared.groups.members_by_number
        return output, check_nodes(path, part.rank, rank.nodes, members, shared.world_size)

    def _metadata(self, shared: Shared, rank: Rank, nodes: int) -> Metadata:
        return {
            MetadataName.PRODUCER: (Kind.STRING, "tracelink"),
            MetadataName.VARIANT: (Kind.STRING, str(self.wanted.variant)),
            MetadataName.DEPENDENCIES: (Kind.STRING, str(self.wanted.dependencies)),
            MetadataName.RANK: (Kind.UINT64, rank.rank),
            MetadataName.WORLD_SIZE: (Kind.UINT64, shared.world_size),
            MetadataName.WRITTEN: (Kind.STRING, str(shared.written)),
            MetadataName.HOST: (Kind.STRING, rank.host),
            MetadataName.NODES: (Kind.UINT64, nodes),
            MetadataName.GROUPS: (
                Kind.STRING,
                orjson.dumps(shared.groups.described, option=orjson.OPT_NON_STR_KEYS).decode(),
            ),
        }


# The nodes of one rank.


class RankNodes(Struct, frozen=True):
    """The nodes of a rank, and what its findings need."""

    nodes: NodeTable
    tensors: Sequence[bytes] | None
    """The fields of inputs and outputs of each node."""
    plan: Plan
    orders: Mapping[str, Order]
    unusable: Mapping[str, int]
    """The number of communication ops that are written as compute, by what is unknown."""
    simulated: Simulated | None = None
    gaps: Gaps | None = None
    lost: tuple[int, int] = (0, 0)
    """The number and the microseconds of operators that are left out although the rank has no device work."""
    empty: bool = False
    """True if the only node is a placeholder."""


def rank_nodes(part: Excerpt, communication: Communication, shared: Shared, wanted: Wanted) -> RankNodes:
    """The nodes of a rank, from its events and its communication."""
    written, unusable = usable(communication.with_events(part.events))
    full = wanted.variant == Variant.FULL
    limited = None if full else _simulated_communication(part, written, shared)
    written = limited.communication if limited else written
    by_data = wanted.dependencies != Dependencies.TIME
    storages = StorageReader()
    fields = fields_by_row(part, storages.add if by_data else _ignore) if full or by_data else {}
    orders = event_orders(part, written, by_time=wanted.dependencies != Dependencies.DATA)
    if by_data:
        orders = {**orders, TENSOR: tensor_order(part, storages.uses())}
    plan = plan_of(part, written, orders, wanted.dependencies, one_at_a_time=not full)
    nodes = table_of(plan, shared.groups, shared.strings)
    lost = (0, 0) if full else _lost_computation(plan, nodes)
    nodes = nodes if full else _without_host(plan, nodes)
    empty = not len(nodes)
    nodes = one_idle_node() if empty else nodes
    if not full:
        nodes = add_work(nodes)
    if not full or empty:
        return RankNodes(nodes, None, plan, orders, unusable, limited, lost=lost, empty=empty)
    tensors = fields_of_nodes(plan, fields)
    if not wanted.gaps:
        return RankNodes(nodes, tensors, plan, orders, unusable)
    gaps = _gaps(plan, nodes)
    return RankNodes(add_gaps(nodes, gaps), _with_gaps(tensors, gaps), plan, orders, unusable, None, gaps)


def _simulated_communication(part: Excerpt, communication: Communication, shared: Shared) -> Simulated:
    with_node = have_nodes(part, communication)
    return simulated(communication, shared.groups, shared.world_size, with_node)


def _lost_computation(plan: Plan, nodes: NodeTable) -> tuple[int, int]:
    """The host nodes of a rank without device work that are not communication, and their microseconds."""
    if len(plan.device):
        return 0, 0
    computes = plan.slots.communication[plan.order.slot] == UNKNOWN
    return int(np.count_nonzero(computes)), int(nodes.duration[computes].sum())


def _ignore(row: int, text: bytes) -> None:
    """For dependencies that need no tensors."""


def _without_host(plan: Plan, nodes: NodeTable) -> NodeTable:
    """Device work and communication only; the lanes of the contraction are streams and threads."""
    order = plan.order.slot
    stream, thread = plan.stream[order], np.append(plan.host.lane, UNKNOWN)[plan.host_index]
    keep = (stream != UNKNOWN) | (plan.slots.communication[order] != UNKNOWN)
    lane = np.where(stream != UNKNOWN, stream, len(plan.part.graph.tracks) + thread)
    return contracted(nodes, keep, lane)


def _gaps(plan: Plan, nodes: NodeTable) -> Gaps:
    """The pauses of the threads of a rank."""
    host, index = plan.host, plan.host_index
    timed = np.append(host.timed, False)[index] & plan.slots.is_first[plan.order.slot]
    lane = np.where(timed, np.append(host.lane, UNKNOWN)[index], UNKNOWN)
    parent = np.append(host.parent, UNKNOWN)[index]
    outermost = (parent == UNKNOWN) | ~np.append(host.timed, False)[parent]
    start = np.append(host.start, 0)[index]
    length = np.append(host.inclusive, 0)[index]
    thread = nodes.attribute(Name.THREAD).integers(len(nodes), 0)
    return gaps_of(lane, thread, outermost, start, start + length)


def _with_gaps(tensors: Sequence[bytes], gaps: Gaps) -> list[bytes]:
    """The fields of the nodes, empty for pauses."""
    fields: list[bytes] = []
    begin = 0
    for end in np.sort(gaps.after).tolist():
        fields += tensors[begin:end]
        fields.append(b"")
        begin = end
    return [*fields, *tensors[begin:]]


# Findings on a written job and on a written rank.

_REPLAYED = {
    Rule.DEADLOCK: "ranks deadlock in simulators that run one communication op of a rank at a time, such as ASTRA-sim",
    Rule.RACE: "ranks deadlock in simulators such as ASTRA-sim if durations change the order of two communication ops",
}
"""The meaning of a rule that a replay breaks."""


def _never_complete(communication: Sequence[Checked]) -> Iterator[Finding]:
    """Deadlocks and races in a replay of all ranks: overlapping groups do not communicate in one order."""
    if len(communication) < 2:
        return
    for broken in check_replay(communication, limit=1):
        example = broken.listed[0]
        text = (
            f"{_REPLAYED[broken.rule]}: {example.message}. For simulators write --variant astra-sim, in which all ranks"
            " communicate in one order."
        )
        yield Finding(Severity.WARNING, broken.rule.value, text, broken.count, example.file)


_Note = tuple[Severity, str, int | None, str]
"""Severity, reason, count and words of a finding on a rank."""


def findings_of(path: str, number: int, rank: RankNodes) -> Iterator[Finding]:
    """All that was left out of a rank or changed, one finding for each reason."""
    for severity, reason, count, words in chain(
        _left_out(rank), _simulated(rank), _of_dependencies(rank), _device_order(rank), _inferred_waits(rank)
    ):
        if count != 0:
            yield Finding(severity, reason, f"rank {number}: {words}", count or 1, path)


def _ops(count: int) -> str:
    return subject(count, "communication op", "were")


def _left_out(rank: RankNodes) -> Iterator[_Note]:
    """Events that do not become nodes, or become other ones."""
    if rank.empty:
        words = "the rank has no nodes, so its file has one idle node: simulators need a node to start with."
        yield Severity.WARNING, "nothing_to_write", None, words
    events = rank.plan.part.events
    written = np.zeros(len(events), np.bool_)
    written[rank.plan.slots.row] = True
    counts = np.bincount(events.kind[~written], minlength=len(EventKind)).tolist()
    listed = ", ".join(f"{counts[kind]:,} {words}" for kind, words in _NOT_NODES.items() if counts[kind])
    words = f"only operators and device work become nodes; left out: {listed}."
    yield Severity.INFO, "not_nodes", sum(counts[kind] for kind in _NOT_NODES), words
    for reason, count in rank.unusable.items():
        words = f"{_ops(count)} written as compute: {_UNUSABLE[reason]}."
        yield Severity.WARNING, "not_communication", count, words
    count = len(rank.plan.communication) - int(np.count_nonzero(rank.plan.slots.communication != UNKNOWN))
    words = f"{_ops(count)} left out: only the flight recorder recorded them, outside the profiled time."
    yield Severity.INFO, "outside_profile", count, words
    count, microseconds = rank.lost
    words = (
        f"all computation is left out: {counted(count, 'operator')} ({microseconds / 1000:,.1f} ms). "
        "The variant astra-sim keeps device work and communication, and the rank has no device work. "
        "Operators are in the variant full."
    )
    yield Severity.WARNING, "no_computation", count, words


def _simulated(rank: RankNodes) -> Iterator[_Note]:
    limited = rank.simulated
    if limited is None:
        return
    for kind, count in limited.replaced.items():
        verb, replacement = "was" if count == 1 else "were", REPLACEMENTS[CollectiveType[kind]].name
        words = f"{count:,} {kind} {verb} written as {replacement}: ASTRA-sim cannot run {kind}."
        yield Severity.WARNING, "replaced_collective", count, words
    for severity, reason, count, words in (
        (
            Severity.INFO,
            "alone",
            limited.alone,
            "written as compute: a rank communicates with itself, and ASTRA-sim would deadlock.",
        ),
        (
            Severity.WARNING,
            "incomplete_communication",
            limited.incomplete,
            "written as compute: other ranks did not record them, and ASTRA-sim would deadlock. "
            "Record all ranks for the same time, or select steps that all of them recorded: --steps",
        ),
        (
            Severity.WARNING,
            "size_differs",
            limited.equalized,
            "written with the largest size of any rank: with different sizes ASTRA-sim would deadlock.",
        ),
        (
            Severity.INFO,
            "enlarged",
            limited.enlarged,
            "written with more bytes: ASTRA-sim cannot split so few.",
        ),
    ):
        yield severity, reason, count, f"{_ops(count)} {words}"


def _of_dependencies(rank: RankNodes) -> Iterator[_Note]:
    host = rank.plan.host
    words = "no operator has a time, so nodes have no durations. Add the profile of this rank."
    yield Severity.WARNING, "without_times", 0 if host.timed.any() else len(host), words
    for origin, count in rank.plan.data.against_order.items():
        words = (
            f"{counted(count, 'dependency')} ({origin}) left out: the recorded start times contradict them."
        )
        yield Severity.INFO, "against_order", count, words


def _device_order(rank: RankNodes) -> Iterator[_Note]:
    nodes = rank.nodes
    on_device = rank.plan.slots.work[rank.plan.order.slot] != UNKNOWN
    total = int(np.count_nonzero(on_device))
    if rank.simulated is not None or rank.gaps is not None or not total:
        return
    after, before = nodes.data.owners, nodes.rows_of(nodes.data)
    following = len(np.unique(after[on_device[after] & on_device[before]]))
    streams = len(np.unique(rank.plan.stream[rank.plan.stream != UNKNOWN]))
    words = (
        f"{following:,} of {total:,} kernels, copies and memsets depend on another one, "
        f"on {counted(streams, 'stream')}."
    )
    yield Severity.INFO, "device_order", following or None, words


def _inferred_waits(rank: RankNodes) -> Iterator[_Note]:
    for origin, which in ((STREAM_WAIT, "of streams for streams"), (HOST_WAIT, "of the host for devices")):
        order = rank.orders.get(origin)
        count = order.counts.get("inferred", 0) if order else 0
        verb = "was" if count == 1 else "were"
        words = (
            f"{counted(count, 'wait')} {which} {verb} inferred from calls and times:"
            " the profiler did not record the stream."
        )
        yield Severity.INFO, "inferred_waits", count, words
