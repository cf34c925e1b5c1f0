"""One rank's graph to the nodes that are written of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.ordering.order import Order
from tracelink.analysis.ordering.tensors import tensor_order
from tracelink.converters.chakra.communications import Communicating, usable
from tracelink.converters.chakra.contraction import contracted
from tracelink.converters.chakra.gaps import Gaps, gaps_of, one_idle_node, with_gaps
from tracelink.converters.chakra.group_numbers import GroupNumbers
from tracelink.converters.chakra.nodes import table_of
from tracelink.converters.chakra.orders import TENSOR, orders_of
from tracelink.converters.chakra.plan import Dependencies, Plan, plan_of
from tracelink.converters.chakra.schema import Name, Profile
from tracelink.converters.chakra.simulated import Simulated, simulated
from tracelink.converters.chakra.table import NodeTable
from tracelink.converters.chakra.tensors import fields_by_row, fields_of_nodes
from tracelink.converters.execution_trace.storages import StorageReader
from tracelink.excerpt import NONE, Excerpt


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a job is to be written."""

    profile: Profile = Profile.FULL
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
    limited = simulated(told, groups, world_size) if wanted.profile == Profile.ASTRA_SIM else None
    told = limited.communications if limited else told
    full = wanted.profile == Profile.FULL
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
    threads = np.append(plan.host.lane, NONE)[place]
    lanes = len(plan.part.graph.tracks)
    keep = (stream != NONE) | (plan.spots.communication[order] != NONE)
    return contracted(nodes, keep, np.where(stream != NONE, stream, lanes + threads))


def _gaps(plan: Plan, nodes: NodeTable) -> Gaps:
    """The pauses of the threads of a rank."""
    order = plan.turns.spot
    place = plan.spots.place[order]
    first = plan.spots.further[order] == order
    timed = np.append(plan.host.timed, False)[place] & first
    lane = np.where(timed, np.append(plan.host.lane, NONE)[place], NONE)
    above = np.append(plan.host.parent, NONE)[place]
    outermost = (above == NONE) | ~np.append(plan.host.timed, False)[above]
    start = np.append(plan.host.start, 0)[place]
    length = np.append(plan.host.inclusive, 0)[place]
    thread = nodes.attribute(Name.THREAD).whole_numbers(len(nodes), 0)
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
