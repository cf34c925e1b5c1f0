"""Collectives, sends and receives of a synthetic rank: operators, kernel, and what each tool notes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tracelink.samples.generate.job import COMMUNICATION_STREAM, COMPUTE_STREAM, Group
from tracelink.samples.generate.machine import Machine, Meeting, Program, kernel_shape
from tracelink.samples.generate.recording import Input, Operation, Participation, Tensor

LISTED_RANKS = 30
"""A profile writes no more ranks of a group than this."""

BYTES_PER_US = 20_000
SEND_RECEIVE_KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of collective, as each tool calls it."""

    operator: str
    annotation: str
    parameter_name: str
    kernel: str


ALL_REDUCE = Kind(
    "c10d::allreduce_",
    "all_reduce",
    "allreduce",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
ALL_GATHER = Kind(
    "c10d::_allgather_base_",
    "_all_gather_base",
    "_allgather_base",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One communication to perform: what, in which group, of which tensors; `peers` for a send or receive."""

    kind: Kind
    group: Group
    outgoing: Tensor
    incoming: Tensor
    peers: tuple[int, int] | None = None
    """(source, destination) as global ranks."""

    @property
    def meeting_ranks(self) -> tuple[int, ...]:
        """Who has to be there."""
        return self.peers or self.group.ranks


def collective(machine: Machine, kind: Kind, group: Group, outgoing: Tensor, incoming: Tensor) -> Program:
    """A collective of a whole group."""
    yield from communicate(machine, Exchange(kind, group, outgoing, incoming))


def point_to_point(machine: Machine, group: Group, tensor: Tensor, peers: tuple[int, int]) -> Program:
    """A send from the first peer to the second, as seen by either."""
    verb = "send" if machine.rank == peers[0] else "recv"
    source, destination = (group.ranks.index(peer) for peer in peers)
    arrow = f"{destination}<-{source}" if verb == "recv" else f"{source}->{destination}"
    operator = "c10d::send" if verb == "send" else "c10d::recv_"
    kind = Kind(operator, f"{verb} {arrow}", verb, SEND_RECEIVE_KERNEL)
    yield from communicate(machine, Exchange(kind, group, tensor, tensor, peers))


def communicate(machine: Machine, exchange: Exchange) -> Program:
    """Operator, parameters, annotation, kernel; and what the flight recorder keeps of it."""
    sequence = machine.next_sequence(exchange.group, point_to_point=exchange.peers is not None)
    fields = communication_fields(machine.rank, exchange)
    with parameters(machine, exchange, sequence, fields) as noted:
        machine.stream_waits_for_stream(COMMUNICATION_STREAM, COMPUTE_STREAM)
        with machine.annotation(f"nccl:{exchange.kind.annotation}"):
            enqueued = machine.now
            call = machine.call("cudaLaunchKernelExC", kernels=1)
            start = machine.ready(call, COMMUNICATION_STREAM)
            end = yield meeting(exchange, sequence, start)
            machine.place(
                call,
                "kernel",
                exchange.kind.kernel,
                COMMUNICATION_STREAM,
                (start, end),
                **kernel_shape(machine.random),
                **{name: value for name, value in fields.items() if not name.startswith("Global rank")},
            )
    times = (enqueued, start, end)
    machine.recording.participations.append(
        participation(machine, exchange, sequence, noted, call.correlation, times)
    )


def meeting(exchange: Exchange, sequence: int, ready: int) -> Meeting:
    """Where the ranks of an exchange meet."""
    kind = "collective" if exchange.peers is None else f"from {exchange.peers[0]} to {exchange.peers[1]}"
    transfer = 8_000 + exchange.outgoing.elements * 4 * 1_000 // BYTES_PER_US
    return Meeting((exchange.group.number, kind, sequence), exchange.meeting_ranks, ready, transfer)


def participation(
    machine: Machine,
    exchange: Exchange,
    sequence: int,
    noted: Operation,
    correlation: int,
    times: tuple[int, int, int],
) -> Participation:
    """The part of this rank, as a flight recorder would number it."""
    return Participation(
        machine.rank,
        exchange.group,
        exchange.kind.annotation,
        sequence,
        exchange.peers is not None,
        machine.next_order(exchange.group),
        len(machine.recording.participations),
        noted.external_id,
        noted.record_function,
        correlation,
        (exchange.outgoing.shape, exchange.incoming.shape),
        *times,
    )


@contextmanager
def parameters(
    machine: Machine, exchange: Exchange, sequence: int, fields: dict[str, Any]
) -> Iterator[Operation]:
    """The operator, and in it the operator that holds the parameters of the communication."""
    group = exchange.group
    tensors: list[Input] = [[exchange.outgoing]]
    peer = peer_of(machine.rank, exchange)
    described: list[Input] = [
        *tensors,
        sequence,
        [group.name, group.description],
        machine.rank if peer is None else peer,
        exchange.kind.parameter_name,
        list[int](),
        list[int](),
        fields["Global rank start"],
        fields["Global rank stride"],
        len(group.ranks),
    ]
    with (
        machine.operation(exchange.kind.operator, tensors),
        machine.operation("record_param_comms", described, communication=fields) as noted,
    ):
        yield noted


def communication_fields(rank: int, exchange: Exchange) -> dict[str, Any]:
    """What a profile says of a communication."""
    group = exchange.group
    listed = ", ".join(str(member) for member in group.ranks[:LISTED_RANKS])
    more = ", ..." if len(group.ranks) > LISTED_RANKS else ""
    stride = group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 1
    peer = peer_of(rank, exchange)
    direction = "Dst Rank" if exchange.kind.parameter_name == "send" else "Src Rank"
    peers = {} if peer is None else {direction: peer}
    return {
        "Collective name": exchange.kind.parameter_name,
        "In msg nelems": exchange.outgoing.elements,
        "Out msg nelems": exchange.incoming.elements,
        "Group size": len(group.ranks),
        "dtype": "Float",
        "In split size": "[]",
        "Out split size": "[]",
        "Global rank start": group.ranks[0],
        "Global rank stride": stride,
        "Process Group Name": group.name,
        "Process Group Description": group.description,
        "Process Group Ranks": f"[{listed}{more}]",
    } | peers


def peer_of(rank: int, exchange: Exchange) -> int | None:
    """The other end of a send or receive, by its number in the group."""
    if exchange.peers is None:
        return None
    source, destination = exchange.peers
    return exchange.group.ranks.index(destination if rank == source else source)


def wait(machine: Machine, sequence: int) -> None:
    """The compute stream waits for the communication stream; the record names the collective waited for."""
    described: list[Input] = [sequence, ["", ""], machine.rank, "wait", [], [], -1, -1, 1]
    fields = {
        "Collective name": "wait",
        "In msg nelems": 0,
        "Out msg nelems": 0,
        "Group size": 1,
        "dtype": "Byte",
        "In split size": "[]",
        "Out split size": "[]",
        "Global rank start": -1,
        "Global rank stride": -1,
        "Process Group Name": "",
        "Process Group Description": "",
        "Process Group Ranks": "[]",
    }
    with machine.operation("record_param_comms", described, communication=fields):
        machine.stream_waits_for_stream(COMPUTE_STREAM, COMMUNICATION_STREAM)
