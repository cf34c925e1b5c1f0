"""Messages between synthetic ranks: sends and receives, one by one and in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracelink.samples.generate.communication import (
    Exchange,
    communicate,
    communication_fields,
    parameters,
    shapes_of,
    transfer,
)
from tracelink.samples.generate.job import COMMUNICATION_STREAM, COMPUTE_STREAM, Group
from tracelink.samples.generate.kinds import SEND_RECEIVE_KERNEL, Kind
from tracelink.samples.generate.machine import Machine, Meeting, Program, kernel_shape
from tracelink.samples.generate.recording import Participation, Tensor

Peers = tuple[int, int]
"""Source and destination, as global ranks."""


def point_to_point(machine: Machine, group: Group, tensor: Tensor, peers: Peers) -> Program:
    """A send from the first peer to the second, as seen by either."""
    yield from communicate(machine, exchange_of(machine, group, tensor, peers))


def exchange_of(machine: Machine, group: Group, tensor: Tensor, peers: Peers) -> Exchange:
    """This rank's end of a message."""
    source, destination = (group.ranks.index(peer) for peer in peers)
    if machine.rank == peers[0]:
        kind = Kind("c10d::send", f"send {source}->{destination}", "send", SEND_RECEIVE_KERNEL)
    else:
        kind = Kind("c10d::recv_", f"recv {destination}<-{source}", "recv", SEND_RECEIVE_KERNEL)
    return Exchange(kind, group, tensor, tensor, peers)


def batched(machine: Machine, group: Group, tensor: Tensor, messages: Sequence[Peers]) -> Program:
    """Messages issued as one by all of a group: a record of each, and one kernel that tells nothing."""
    sequence = machine.next_sequence(group, point_to_point=True)
    exchanges = [exchange_of(machine, group, tensor, peers) for peers in messages if machine.rank in peers]
    members = [member(machine, exchange, sequence) for exchange in exchanges]
    with machine.footprint() as footprint, machine.annotation("nccl:coalesced") as noted:
        machine.stream_waits_for_stream(COMMUNICATION_STREAM, COMPUTE_STREAM)
        enqueued = machine.now
        call = machine.call("cudaLaunchKernelExC", kernels=1)
        start = machine.ready(call, COMMUNICATION_STREAM)
        awaited = tuple(peers[0] for peers in messages if machine.rank == peers[1])
        key = (group.number, "batch", sequence)
        end = yield Meeting(key, group.ranks, start, transfer(machine, tensor.elements), awaited)
        shape = kernel_shape(machine.random)
        machine.place(call, "kernel", SEND_RECEIVE_KERNEL, COMMUNICATION_STREAM, (start, end), **shape)
    recorded = machine.recording.participations
    for part in members:
        recorded.append(
            replace(part, record=len(recorded), correlation=call.correlation, started=start, finished=end)
        )
    closing = Participation(
        machine.rank,
        group,
        "coalesced",
        sequence,
        True,
        machine.next_order(group),
        len(recorded),
        noted.external_id,
        noted.record_function,
        call.correlation,
        (),
        *(enqueued, start, end),
        footprint=footprint,
        sequences=machine.sequences_of(group),
        kernel=SEND_RECEIVE_KERNEL,
    )
    recorded.append(closing)


def member(machine: Machine, exchange: Exchange, sequence: int) -> Participation:
    """One message of a batch, issued but not begun."""
    assert exchange.peers
    with (
        machine.footprint() as footprint,
        parameters(machine, exchange, sequence, communication_fields(machine, exchange, sequence)) as noted,
    ):
        enqueued = machine.now
        machine.work(400, 1_200)
    return Participation(
        machine.rank,
        exchange.group,
        exchange.kind.annotation,
        sequence,
        True,
        machine.next_order(exchange.group),
        0,
        noted.external_id,
        noted.record_function,
        0,
        shapes_of(exchange),
        *(enqueued, 0, 0),
        footprint=footprint,
        sequences=machine.sequences_of(exchange.group),
        peers=exchange.peers,
        message=machine.next_message(exchange.group, exchange.peers),
        batched=True,
    )
