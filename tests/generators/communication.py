"""Collectives and messages of a synthetic rank: operators, kernels, and what each tool records of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from generators.job import COMPUTE_STREAM, Group
from generators.machine import Machine, Meeting, Program, kernel_shape
from generators.recording import Footprint, Input, Operation, Participation, Tensor

# Kinds of communication, with the names that each tool uses.


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of communication, as each tool calls it."""

    operator: str
    annotation: str
    parameter_name: str
    kernel: str
    from_root: bool = False
    """Whether it ends for a rank as soon as the first of the group has come."""
    sized: bool = True
    """Whether a profile tells how much is sent."""


def _nccl(function: str) -> str:
    return f"ncclDevKernel_{function}(ncclDevKernelArgsStorage<4096ul>)"


SEND_RECEIVE = _nccl("SendRecv")
ALL_REDUCE = Kind("c10d::allreduce_", "all_reduce", "allreduce", _nccl("AllReduce_Sum_f32_RING_LL"))
ALL_GATHER = Kind("c10d::_allgather_base_", "_all_gather_base", "_allgather_base", _nccl("AllGather_RING_LL"))
REDUCE_SCATTER = Kind(
    *("c10d::_reduce_scatter_base_", "_reduce_scatter_base", "_reduce_scatter_base"),
    _nccl("ReduceScatter_Sum_f32_RING_LL"),
)
BROADCAST = Kind("c10d::broadcast_", "broadcast", "broadcast", _nccl("Broadcast_RING_LL"), from_root=True)
ALL_TO_ALL = Kind("c10d::alltoall_base_", "all_to_all", "all_to_allv", SEND_RECEIVE)
COALESCED = Kind("", "coalesced", "", SEND_RECEIVE)
BARRIER = Kind("c10d::barrier", "all_reduce_barrier", "barrier", ALL_REDUCE.kernel, sized=False)


# Collectives: operators, kernel, and the records of each tool.


LISTED_NUMBERS = 30
"""A profile writes no more of a list of ranks or of sizes than this."""

BYTES_PER_US = 20_000
Peers = tuple[int, int]
"""Source and destination, as global ranks."""
Splits = tuple[Sequence[int], Sequence[int]]
"""How much goes to and comes from each member, where that differs."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One communication to perform: what, in which group, of which tensors; `peers` for a send or receive."""

    kind: Kind
    group: Group
    outgoing: Tensor
    incoming: Tensor
    peers: Peers | None = None
    splits: Splits = ((), ())

    @property
    def meeting_ranks(self) -> tuple[int, ...]:
        return self.peers or self.group.ranks

    def awaited(self, machine: Machine) -> tuple[int, ...]:
        if self.kind.from_root:
            return self.group.ranks[:1]
        if self.peers is not None and machine.job.eager:
            return self.peers[:1]
        return self.meeting_ranks

    def peer_of(self, rank: int) -> int | None:
        """The other end of a send or receive, by its number in the group."""
        if self.peers is None:
            return None
        source, destination = self.peers
        return self.group.ranks.index(destination if rank == source else source)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """What goes out and what comes in."""
        return self.outgoing.shape, self.incoming.shape


def communicate(machine: Machine, exchange: Exchange) -> Program:
    """Operator, parameters, annotation, kernel; and what the flight recorder keeps of it."""
    group, kind, peers = exchange.group, exchange.kind, exchange.peers
    sequence = machine.next_sequence(group, point_to_point=peers is not None)
    message = 0 if peers is None else machine.next_message(group, peers)
    fields = communication_fields(machine, exchange, sequence)
    stream = machine.job.communication_stream(group)
    with machine.footprint() as footprint, parameters(machine, exchange, sequence, fields) as noted:
        machine.stream_waits_for_stream(stream, COMPUTE_STREAM)
        with machine.annotation(f"nccl:{kind.annotation}", [exchange.outgoing]):
            enqueued = machine.now
            call = machine.call("cudaLaunchKernelExC", kernels=1)
            start = machine.ready(call, stream)
            name = "collective" if peers is None else f"from {peers[0]} to {peers[1]}"
            key, lasts = (
                (group.number, name, message or sequence),
                transfer(machine, exchange.outgoing.elements),
            )
            end = yield Meeting(key, exchange.meeting_ranks, start, lasts, exchange.awaited(machine))
            told = {name: value for name, value in fields.items() if not name.startswith("Global rank")}
            shape = kernel_shape(machine.random) | told
            machine.place(call, "kernel", kind.kernel, stream, (start, end), **shape)
    part = _part(machine, exchange, sequence, noted, footprint)
    times: dict[str, Any] = {"enqueued": enqueued, "started": start, "finished": end}
    machine.recording.participations.append(
        replace(part, correlation=call.correlation, kernel=kind.kernel, message=message, **times)
    )


def _part(
    machine: Machine, exchange: Exchange, sequence: int, noted: Operation, footprint: Footprint
) -> Participation:
    """The part of this rank in a communication, without times."""
    group, peers = exchange.group, exchange.peers
    order, record = machine.next_order(group), len(machine.recording.participations)
    return Participation(
        *(machine.rank, group, exchange.kind.annotation, sequence, peers is not None, order, record),
        *(noted.external_id, noted.record_function, footprint, machine.sequences_of(group)),
        shapes=exchange.shapes,
        peers=peers,
    )


def transfer(machine: Machine, elements: int) -> int:
    """How long it takes to bring so many numbers to all, as this rank sees it."""
    jitter = machine.job.jitter_ns
    seen = machine.random.randint(0, jitter) if jitter else 0
    return 8_000 + elements * 4 * 1_000 // BYTES_PER_US + seen


@contextmanager
def parameters(
    machine: Machine, exchange: Exchange, sequence: int, fields: dict[str, Any]
) -> Iterator[Operation]:
    """The operator, and in it the operator that holds the parameters of the communication."""
    group, peer = exchange.group, exchange.peer_of(machine.rank)
    tensors: list[Input] = [[exchange.outgoing]]
    place = machine.rank if peer is None else peer
    whom: list[Input] = [sequence, [group.name, group.description], place, exchange.kind.parameter_name]
    sizes: list[Input] = [*map(list, exchange.splits)]
    ranks = (fields["Global rank start"], fields["Global rank stride"], len(group.ranks))
    described = [*tensors, *whom, *sizes, *ranks]
    # The operator of a send or receive also gets its group, the peer and the tag.
    given = tensors if peer is None else [*tensors, "", peer, 0]
    with (
        machine.operation(exchange.kind.operator, given),
        machine.operation("record_param_comms", described, communication=fields) as noted,
    ):
        yield noted


WAIT: dict[str, Any] = {
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
"""What a profile says of a wait: no group."""


def communication_fields(machine: Machine, exchange: Exchange, sequence: int) -> dict[str, Any]:
    group, kind, ranks = exchange.group, exchange.kind, exchange.group.ranks
    sized: dict[str, Any] = {
        "In msg nelems": exchange.outgoing.elements,
        "Out msg nelems": exchange.incoming.elements,
        "dtype": "Float",
    }
    peer = exchange.peer_of(machine.rank)
    direction = "Dst Rank" if kind.parameter_name == "send" else "Src Rank"
    return {
        **WAIT,
        **(sized if kind.sized else {}),
        "Collective name": kind.parameter_name,
        "Group size": len(ranks),
        "In split size": listed(exchange.splits[0]),
        "Out split size": listed(exchange.splits[1]),
        "Global rank start": ranks[0],
        "Global rank stride": ranks[1] - ranks[0] if len(ranks) > 1 else 1,
        "Process Group Name": group.name,
        "Process Group Description": group.description,
        "Process Group Ranks": listed(ranks),
        # A profile names the peer by its number in the job, though the recorder and the operator do not.
        **({} if peer is None else {direction: ranks[peer]}),
        **numbered(machine, group.name, sequence, point_to_point=peer is not None),
    }


def listed(numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > LISTED_NUMBERS else ""
    return f"[{', '.join(map(str, numbers[:LISTED_NUMBERS]))}{more}]"


def numbered(machine: Machine, group: str, sequence: int, *, point_to_point: bool) -> dict[str, int]:
    """The number of a communication, and a hash of what identifies it, where profiles tell them."""
    if not machine.job.sequence_numbers:
        return {}
    digest = sha256(f"{group} {sequence} {point_to_point}".encode()).digest()
    return {"Seq": sequence, "Comms Id": int.from_bytes(digest[:8])}


def wait(machine: Machine, group: Group, *, message: bool = False) -> None:
    """The compute stream waits for the last collective, or message, of a group, which the record names."""
    sequence = machine.sequences_of(group)[message]
    described: list[Input] = [sequence, ["", ""], machine.rank, "wait", [], [], -1, -1, 1]
    fields = WAIT | numbered(machine, "", sequence, point_to_point=False)
    with machine.operation("record_param_comms", described, communication=fields):
        machine.stream_waits_for_stream(COMPUTE_STREAM, machine.job.communication_stream(group))


# Messages: single and batched sends and receives.


def exchange_of(machine: Machine, group: Group, tensor: Tensor, peers: Peers) -> Exchange:
    """This rank's end of a message."""
    source, destination = (group.ranks.index(peer) for peer in peers)
    if machine.rank == peers[0]:
        kind = Kind("c10d::send", f"send {source}->{destination}", "send", SEND_RECEIVE)
    else:
        kind = Kind("c10d::recv_", f"recv {destination}<-{source}", "recv", SEND_RECEIVE)
    return Exchange(kind, group, tensor, tensor, peers)


def batched(machine: Machine, group: Group, tensor: Tensor, messages: Sequence[Peers]) -> Program:
    """Messages issued as one by all of a group: a record of each, and one kernel that tells nothing."""
    sequence = machine.next_sequence(group, point_to_point=True)
    exchanges = [exchange_of(machine, group, tensor, peers) for peers in messages if machine.rank in peers]
    members = [_member(machine, exchange, sequence) for exchange in exchanges]
    stream = machine.job.communication_stream(group)
    with machine.footprint() as footprint, machine.annotation("nccl:coalesced") as noted:
        machine.stream_waits_for_stream(stream, COMPUTE_STREAM)
        enqueued = machine.now
        call = machine.call("cudaLaunchKernelExC", kernels=1)
        start = machine.ready(call, stream)
        awaited = tuple(peers[0] for peers in messages if machine.rank == peers[1])
        key = (group.number, "batch", sequence)
        end = yield Meeting(key, group.ranks, start, transfer(machine, tensor.elements), awaited)
        shape = kernel_shape(machine.random)
        machine.place(call, "kernel", SEND_RECEIVE, stream, (start, end), **shape)
    recorded = machine.recording.participations
    ran: dict[str, Any] = {"correlation": call.correlation, "started": start, "finished": end}
    for part in members:
        recorded.append(replace(part, record=len(recorded), **ran))
    whole = Exchange(COALESCED, group, tensor, tensor)
    closing = _part(machine, whole, sequence, noted, footprint)
    more: dict[str, Any] = {"point_to_point": True, "shapes": (), "enqueued": enqueued}
    recorded.append(replace(closing, kernel=SEND_RECEIVE, **more, **ran))


def _member(machine: Machine, exchange: Exchange, sequence: int) -> Participation:
    """One message of a batch, issued but not begun."""
    assert exchange.peers
    group, fields = exchange.group, communication_fields(machine, exchange, sequence)
    with machine.footprint() as footprint, parameters(machine, exchange, sequence, fields) as noted:
        enqueued = machine.now
        machine.work(400, 1_200)
    part, message = (
        _part(machine, exchange, sequence, noted, footprint),
        machine.next_message(group, exchange.peers),
    )
    return replace(part, enqueued=enqueued, batched=True, message=message)
