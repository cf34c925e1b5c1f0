"""Event graph to one .et for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import orjson

from tracelink.converters.chakra.communications import (
    INSTEAD,
    Communicating,
    GroupNumbers,
    Simulated,
    collective_groups,
    communicating,
    everybody,
    group_numbers,
    participants_of,
    simulated,
    usable,
)
from tracelink.converters.chakra.encode import Metadata, encoded
from tracelink.converters.chakra.host import compared, turns_with_nodes
from tracelink.converters.chakra.nodes import (
    Gaps,
    contracted,
    fields_by_row,
    fields_of_nodes,
    gaps_of,
    one_idle_node,
    table_of,
    with_gaps,
)
from tracelink.converters.chakra.plan import (
    HOST_WAIT,
    STREAM_WAIT,
    TENSOR,
    Dependencies,
    Plan,
    orders_of,
    plan_of,
)
from tracelink.converters.chakra.schema import CollectiveType, Kind, MetadataName, Name, Variant
from tracelink.converters.chakra.table import NodeTable
from tracelink.converters.pytorch.storages import StorageReader
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, UsageError
from tracelink.io.targets import STDOUT, Target
from tracelink.model.columns import UNKNOWN, Int64s
from tracelink.model.events import EventKind
from tracelink.model.graph import Excerpt, Rank
from tracelink.model.job import Job, Part
from tracelink.model.ranges import Numbers
from tracelink.ordering.order import Order
from tracelink.ordering.tensors import tensor_order
from tracelink.plugins import Output

# One rank's graph to the nodes that are written of it.


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a job is to be written."""

    variant: Variant = Variant.FULL
    dependencies: Dependencies = Dependencies.BOTH
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class RankNodes:
    """What is written of a rank, and what a user should know of it."""

    nodes: NodeTable
    tensors: Sequence[bytes] | None
    plan: Plan
    orders: Mapping[str, Order]
    unusable: Mapping[str, int]
    """Communication that cannot be written as such, by what is not known of it."""
    simulated: Simulated | None = None
    gaps: Gaps | None = None
    empty: bool = False
    """Whether nothing of the rank is a node, but what stands for it."""


def rank_nodes(
    part: Excerpt,
    told: Communicating,
    groups: GroupNumbers,
    strings: Sequence[str],
    world_size: int,
    wanted: Wanted,
) -> RankNodes:
    """The nodes of a rank; `told` is what it communicated, `strings` are the texts of the job."""
    told, unusable = usable(told.settled(part.events))
    limited = simulated(told, groups, world_size) if wanted.variant == Variant.ASTRA_SIM else None
    told = limited.communications if limited else told
    full = wanted.variant == Variant.FULL
    by_data = wanted.dependencies != Dependencies.TIME
    storages = StorageReader()
    texts = fields_by_row(part, storages.add if by_data else _unobserved) if full or by_data else {}
    orders = orders_of(part, told, by_time=wanted.dependencies != Dependencies.DATA)
    if by_data:
        orders = {**orders, TENSOR: tensor_order(part, storages.uses())}
    plan = plan_of(part, told, orders, wanted.dependencies, one_at_a_time=not full)
    nodes = table_of(plan, groups, strings)
    nodes = nodes if full else _without_host(plan, nodes)
    if not len(nodes):
        return RankNodes(one_idle_node(), None, plan, orders, unusable, limited, empty=True)
    if not full:
        return RankNodes(nodes, None, plan, orders, unusable, limited)
    tensors = fields_of_nodes(plan, texts)
    if not wanted.gaps:
        return RankNodes(nodes, tensors, plan, orders, unusable)
    gaps = _gaps(plan, nodes)
    return RankNodes(with_gaps(nodes, gaps), _spaced(tensors, gaps), plan, orders, unusable, None, gaps)


def _unobserved(row: int, text: bytes) -> None:
    """Nobody asks for tensors."""


def _without_host(plan: Plan, nodes: NodeTable) -> NodeTable:
    """Device work and communication; streams and threads are the lanes that run in order."""
    order = plan.turns.spot
    stream, place = plan.stream[order], plan.spots.place[order]
    threads = np.append(plan.host.lane, UNKNOWN)[place]
    lanes = len(plan.part.graph.tracks)
    keep = (stream != UNKNOWN) | (plan.spots.communication[order] != UNKNOWN)
    return contracted(nodes, keep, np.where(stream != UNKNOWN, stream, lanes + threads))


def _gaps(plan: Plan, nodes: NodeTable) -> Gaps:
    """The pauses of the threads of a rank."""
    order = plan.turns.spot
    place = plan.spots.place[order]
    first = plan.spots.further[order] == order
    timed = np.append(plan.host.timed, False)[place] & first
    lane = np.where(timed, np.append(plan.host.lane, UNKNOWN)[place], UNKNOWN)
    above = np.append(plan.host.parent, UNKNOWN)[place]
    outermost = (above == UNKNOWN) | ~np.append(plan.host.timed, False)[above]
    start = np.append(plan.host.start, 0)[place]
    length = np.append(plan.host.inclusive, 0)[place]
    thread = nodes.attribute(Name.THREAD).integers(len(nodes), 0)
    return gaps_of(lane, thread, outermost, start, start + length)


def _spaced(tensors: Sequence[bytes], gaps: Gaps) -> list[bytes]:
    """The fields of the nodes with nothing where there are pauses."""
    spaced: list[bytes] = []
    begin = 0
    for end in np.sort(gaps.after).tolist():
        spaced += tensors[begin:end]
        spaced.append(b"")
        begin = end
    return [*spaced, *tensors[begin:]]


# What a user should know of a rank that was written: what is left out, and what the order rests on.


NOT_NODES = {
    EventKind.PYTHON: "Python functions",
    EventKind.RUNTIME: "calls of the runtime",
    EventKind.GPU_ANNOTATION: "annotations on devices",
    EventKind.SYNCHRONIZATION: "records of waits",
    EventKind.OVERHEAD: "overheads",
    EventKind.SPAN: "spans",
    EventKind.INSTANT: "instants",
    EventKind.MEMORY: "changes of memory",
    EventKind.RECORD: "entries of the recorder",
    EventKind.OTHER: "others",
}
"""Their time is in the operators around them, or they take none."""

UNUSABLE = {
    "operation": "which operation they are is not recorded, or Chakra has no word for it",
    "size": "how many bytes they have is not recorded",
    "peer": "with which rank is not known",
}


def findings_of(path: str, number: int, rank: RankNodes) -> Iterator[Finding]:
    """One finding for each kind of thing."""
    of = f"rank {number}"
    yield from _nothing(path, of, rank)
    yield from _not_nodes(path, of, rank)
    for reason, count in rank.unusable.items():
        text = f"{of}: {count:,} communications are written as computation: {UNUSABLE[reason]}."
        yield Finding(Severity.WARNING, "not_communication", text, count, path)
    yield from _unseen(path, of, rank)
    yield from _simulated(path, of, rank)
    yield from _without_times(path, of, rank)
    for name, count in rank.plan.waiting.against_order.items():
        text = f"{of}: {count:,} dependencies ({name}) contradict the order of starts and are left out."
        yield Finding(Severity.INFO, "against_order", text, count, path)
    yield from _device_order(path, of, rank)
    yield from _waits(path, of, rank)


def _nothing(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    if rank.empty:
        text = (
            f"{of}: nothing of it is a node, so its file has one that is idle: simulators need a first one."
        )
        yield Finding(Severity.WARNING, "nothing_to_write", text, source=path)


def _not_nodes(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    events = rank.plan.part.events
    written = np.zeros(len(events), np.bool_)
    written[rank.plan.spots.row] = True
    counts = np.bincount(events.kind[~written], minlength=len(EventKind)).tolist()
    parts = [f"{counts[kind]:,} {words}" for kind, words in NOT_NODES.items() if counts[kind]]
    if parts:
        total = sum(counts[kind] for kind in NOT_NODES)
        text = f"{of}: what is no operator and no work on a device has no node: {', '.join(parts)}."
        yield Finding(Severity.INFO, "not_nodes", text, total, path)


def _unseen(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    missing = len(rank.plan.communications) - int(np.count_nonzero(rank.plan.spots.communication >= 0))
    if missing:
        text = (
            f"{of}: {missing:,} communications have no node: only the recorder tells of them, "
            "outside what was profiled."
        )
        yield Finding(Severity.INFO, "outside_profile", text, missing, path)


def _simulated(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    limited = rank.simulated
    if limited is None:
        return
    for kind, count in limited.replaced.items():
        instead = INSTEAD[CollectiveType[kind]].name
        text = f"{of}: {count:,} {kind} are written as {instead}, for ASTRA-sim cannot run them."
        yield Finding(Severity.WARNING, "replaced_collective", text, count, path)
    if limited.alone:
        text = (
            f"{of}: {limited.alone:,} communications of a rank with itself are written as computation: "
            "ASTRA-sim would wait for them for ever."
        )
        yield Finding(Severity.INFO, "alone", text, limited.alone, path)
    if limited.incomplete:
        text = (
            f"{of}: {limited.incomplete:,} communications are written as computation, for files of other ranks do not "
            "have them: ASTRA-sim would wait for ever. Record all ranks for the same time, or cut it: --steps"
        )
        yield Finding(Severity.WARNING, "incomplete_communication", text, limited.incomplete, path)
    if limited.equalized:
        text = (
            f"{of}: {limited.equalized:,} communications have another size on other ranks, and are written with the "
            "largest: ASTRA-sim would wait for ever."
        )
        yield Finding(Severity.WARNING, "size_differs", text, limited.equalized, path)
    if limited.enlarged:
        text = (
            f"{of}: {limited.enlarged:,} communications of hardly any bytes are written with more: "
            "ASTRA-sim cannot split them."
        )
        yield Finding(Severity.INFO, "enlarged", text, limited.enlarged, path)


def _without_times(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    host = rank.plan.host
    if len(host) and not host.timed.any():
        text = f"{of}: no operator has a time, so nodes have no durations. Add the profile of this rank: --kineto"
        yield Finding(Severity.WARNING, "without_times", text, len(host), path)


def _device_order(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    nodes = rank.nodes
    device = rank.plan.spots.work[rank.plan.turns.spot] >= 0
    if rank.simulated is not None or rank.gaps is not None:
        return
    total = int(np.count_nonzero(device))
    if not total:
        return
    owner, place = nodes.data.owners, nodes.rows_of(nodes.data)
    following = np.unique(owner[device[owner] & device[place]])
    streams = len(np.unique(rank.plan.stream[rank.plan.stream >= 0]))
    text = (
        f"{of}: {len(following):,} of {total:,} kernels, copies and memsets wait for another one, "
        f"on {streams:,} streams."
    )
    yield Finding(Severity.INFO, "device_order", text, len(following), path)


def _waits(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    for name, words in ((STREAM_WAIT, "streams for streams"), (HOST_WAIT, "the host for devices")):
        order: Order | None = rank.orders.get(name)
        inferred = order.counts.get("inferred", 0) if order else 0
        if inferred:
            text = (
                f"{of}: {inferred:,} waits of {words} are inferred from calls and times, "
                "for the profiler did not record which stream was meant."
            )
            yield Finding(Severity.INFO, "inferred_waits", text, inferred, path)


# Event graph to one Chakra trace for each rank, and the process groups.


GROUPS_FILE = "groups.json"


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all ranks are written with."""

    communications: Communicating
    groups: GroupNumbers
    strings: Sequence[str]
    world_size: int
    written: Numbers
    """The ranks of which there are files."""

    @classmethod
    def of(cls, job: Job) -> _Shared:
        """What the ranks of a job do together."""
        told = communicating(job)
        groups = group_numbers(job, participants_of(told))
        written = Numbers.of(part.rank for part in job.parts)
        return cls(told, groups, job.strings, len(everybody(job)), written)


@dataclass(frozen=True, slots=True)
class ChakraWriter:
    """Nodes for operators, device work and communication, with the order that they really had."""

    wanted: Wanted = field(default_factory=Wanted)

    name = "chakra"

    def configured(self, **options: str) -> ChakraWriter:
        """A writer of another variant, of other dependencies, or with the gaps of threads as nodes."""
        wanted = Wanted(
            Variant(options.get("variant", self.wanted.variant)),
            Dependencies(options.get("deps", self.wanted.dependencies)),
            options["gaps"] == "yes" if "gaps" in options else self.wanted.gaps,
        )
        if wanted.gaps and wanted.variant != Variant.FULL:
            raise UsageError(
                f"the variant {wanted.variant} has no threads, so it has no gaps of theirs",
                advice=f"Leave out --gaps, or write the variant {Variant.FULL}.",
            )
        return ChakraWriter(wanted)

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes a file for each rank, then the groups."""
        shared = self._compared(_Shared.of(job), job.parts, engine)
        aside = target.path() == STDOUT
        if aside and len(job.parts) > 1:
            raise UsageError(
                f"standard output takes one file, and these are {len(job.parts)} ranks",
                advice="Name the beginning of the files' names: -o et/job",
            )
        outputs = engine.map(partial(self._write_part, shared, target), job.parts)
        return outputs if aside else [*outputs, self._write_groups(shared.groups, target)]

    def _compared(self, shared: _Shared, parts: Sequence[Part], engine: Engine) -> _Shared:
        """What the ranks do together, compared where a simulator would wait for whoever takes no part."""
        if self.wanted.variant != Variant.ASTRA_SIM:
            return shared
        shared = replace(shared, groups=shared.groups.among(collective_groups(shared.communications)))
        if len(parts) < 2:
            return shared
        told, ranks = shared.communications, [part.rank for part in parts]

        def turns(part: Part) -> Int64s:
            return turns_with_nodes(Excerpt(part.load()), told.of_rank(part.rank))

        return replace(shared, communications=compared(told, shared.groups, ranks, engine.map(turns, parts)))

    def _write_groups(self, groups: GroupNumbers, target: Target) -> Output:
        members = {str(number): ranks for number, ranks in groups.members_by_number.items()}
        with target.file(GROUPS_FILE) as stream:
            stream.write(orjson.dumps(members))
        return Output(target.path(GROUPS_FILE), self.name, None, target.size(GROUPS_FILE), 0)

    def _write_part(self, shared: _Shared, target: Target, part: Part) -> Output:
        graph = part.load()
        told = shared.communications.of_rank(part.rank)
        rank = rank_nodes(Excerpt(graph), told, shared.groups, shared.strings, shared.world_size, self.wanted)
        name = f"{part.rank}.et"
        metadata = self._metadata(shared, graph.ranks[0], len(rank.nodes))
        with target.file(name) as stream:
            for piece in encoded(metadata, rank.nodes, rank.tensors):
                stream.write(piece)
        findings = tuple(findings_of(target.path(name), part.rank, rank))
        return Output(target.path(name), self.name, part.rank, target.size(name), len(rank.nodes), findings)

    def _metadata(self, shared: _Shared, rank: Rank, nodes: int) -> Metadata:
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
