"""Collectives and messages of a synthetic rank: operators, kernels, and what each tool records of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from generators.job import COMPUTE_STREAM, Group
from generators.machine import Machine, Meeting, Program, kernel_shape
from generators.recording import Input, Operation, Participation, Tensor

# Kinds of communication, with the names that each tool uses.


SEND_RECEIVE_KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


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
REDUCE_SCATTER = Kind(
    "c10d::_reduce_scatter_base_",
    "_reduce_scatter_base",
    "_reduce_scatter_base",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
BROADCAST = Kind(
    "c10d::broadcast_",
    "broadcast",
    "broadcast",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    from_root=True,
)
ALL_TO_ALL = Kind("c10d::alltoall_base_", "all_to_all", "all_to_allv", SEND_RECEIVE_KERNEL)
BARRIER = replace(
    ALL_REDUCE,
    operator="c10d::barrier",
    annotation="all_reduce_barrier",
    parameter_name="barrier",
    sized=False,
)


# Collectives: operators, kernel, and the records of each tool.


LISTED_NUMBERS = 30
"""A profile writes no more of a list of ranks or of sizes than this."""

BYTES_PER_US = 20_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """One communication to perform: what, in which group, of which tensors; `peers` for a send or receive."""

    kind: Kind
    group: Group
    outgoing: Tensor
    incoming: Tensor
    peers: tuple[int, int] | None = None
    """(source, destination) as global ranks."""
    splits: tuple[Sequence[int], Sequence[int]] = ((), ())
    """How much goes to and comes from each member, where that differs."""

    @property
    def meeting_ranks(self) -> tuple[int, ...]:
        """Who has to be there."""
        return self.peers or self.group.ranks

    def awaited(self, machine: Machine) -> tuple[int, ...]:
        """Whom this rank waits for."""
        if self.kind.from_root:
            return self.group.ranks[:1]
        if self.peers is not None and machine.job.eager:
            return self.peers[:1]
        return self.meeting_ranks


def collective(
    machine: Machine,
    kind: Kind,
    group: Group,
    outgoing: Tensor,
    incoming: Tensor,
    splits: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Program:
    """A collective of a whole group."""
    yield from communicate(machine, Exchange(kind, group, outgoing, incoming, splits=splits))


def communicate(machine: Machine, exchange: Exchange) -> Program:
    """Operator, parameters, annotation, kernel; and what the flight recorder keeps of it."""
    sequence = machine.next_sequence(exchange.group, point_to_point=exchange.peers is not None)
    message = 0 if exchange.peers is None else machine.next_message(exchange.group, exchange.peers)
    fields = communication_fields(machine, exchange, sequence)
    stream = machine.job.communication_stream(exchange.group)
    with machine.footprint() as footprint, parameters(machine, exchange, sequence, fields) as noted:
        machine.stream_waits_for_stream(stream, COMPUTE_STREAM)
        with machine.annotation(f"nccl:{exchange.kind.annotation}", [exchange.outgoing]):
            enqueued = machine.now
            call = machine.call("cudaLaunchKernelExC", kernels=1)
            start = machine.ready(call, stream)
            end = yield meeting(machine, exchange, message or sequence, start)
            machine.place(
                call,
                "kernel",
                exchange.kind.kernel,
                stream,
                (start, end),
                **kernel_arguments(machine, fields),
            )
    part = Participation(
        machine.rank,
        exchange.group,
        exchange.kind.annotation,
        sequence,
        exchange.peers is not None,
        machine.next_order(exchange.group),
        len(machine.recording.participations),
        noted.external_id,
        noted.record_function,
        call.correlation,
        shapes_of(exchange),
        *(enqueued, start, end),
        footprint=footprint,
        sequences=machine.sequences_of(exchange.group),
        kernel=exchange.kind.kernel,
        peers=exchange.peers,
        message=message,
    )
    machine.recording.participations.append(part)


def kernel_arguments(machine: Machine, fields: dict[str, Any]) -> dict[str, Any]:
    """The launch shape of a kernel, and the arguments that describe its communication."""
    told = {name: value for name, value in fields.items() if not name.startswith("Global rank")}
    return kernel_shape(machine.random) | told


def shapes_of(exchange: Exchange) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What goes out and what comes in."""
    return exchange.outgoing.shape, exchange.incoming.shape


def meeting(machine: Machine, exchange: Exchange, number: int, ready: int) -> Meeting:
    """Where the ranks of an exchange meet."""
    kind = "collective" if exchange.peers is None else f"from {exchange.peers[0]} to {exchange.peers[1]}"
    return Meeting(
        (exchange.group.number, kind, number),
        exchange.meeting_ranks,
        ready,
        transfer(machine, exchange.outgoing.elements),
        exchange.awaited(machine),
    )


def transfer(machine: Machine, elements: int) -> int:
    """How long it takes to bring so many numbers to all, as this rank sees it."""
    jitter = machine.job.end_jitter_ns
    seen = machine.random.randint(0, jitter) if jitter else 0
    return 8_000 + elements * 4 * 1_000 // BYTES_PER_US + seen


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
        list(exchange.splits[0]),
        list(exchange.splits[1]),
        fields["Global rank start"],
        fields["Global rank stride"],
        len(group.ranks),
    ]
    # The operator of a send or receive also gets its group, the peer and the tag.
    given = tensors if peer is None else [*tensors, "", peer, 0]
    with (
        machine.operation(exchange.kind.operator, given),
        machine.operation("record_param_comms", described, communication=fields) as noted,
    ):
        yield noted


def communication_fields(machine: Machine, exchange: Exchange, sequence: int) -> dict[str, Any]:
    """What a profile says of a communication."""
    group, kind = exchange.group, exchange.kind
    stride = group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 1
    peer = peer_of(machine.rank, exchange)
    direction = "Dst Rank" if kind.parameter_name == "send" else "Src Rank"
    # A profile names the peer by its number in the job, though the recorder and the operator do not.
    peers = {} if peer is None else {direction: group.ranks[peer]}
    outgoing, incoming = exchange.outgoing.elements, exchange.incoming.elements
    return {
        "Collective name": kind.parameter_name,
        "In msg nelems": outgoing if kind.sized else 0,
        "Out msg nelems": incoming if kind.sized else 0,
        "Group size": len(group.ranks),
        "dtype": "Float" if kind.sized else "Byte",
        "In split size": listed(exchange.splits[0]),
        "Out split size": listed(exchange.splits[1]),
        "Global rank start": group.ranks[0],
        "Global rank stride": stride,
        "Process Group Name": group.name,
        "Process Group Description": group.description,
        "Process Group Ranks": listed(group.ranks),
        **peers,
        **numbered(machine, group.name, sequence, point_to_point=peer is not None),
    }


def listed(numbers: Sequence[int]) -> str:
    """Numbers as a profile lists them."""
    more = ", ..." if len(numbers) > LISTED_NUMBERS else ""
    return f"[{', '.join(map(str, numbers[:LISTED_NUMBERS]))}{more}]"


def numbered(machine: Machine, group: str, sequence: int, *, point_to_point: bool) -> dict[str, int]:
    """The number of a communication, and a hash of what identifies it, where profiles tell them."""
    if not machine.job.numbered:
        return {}
    digest = sha256(f"{group} {sequence} {point_to_point}".encode()).digest()
    return {"Seq": sequence, "Comms Id": int.from_bytes(digest[:8])}


def peer_of(rank: int, exchange: Exchange) -> int | None:
    """The other end of a send or receive, by its number in the group."""
    if exchange.peers is None:
        return None
    source, destination = exchange.peers
    return exchange.group.ranks.index(destination if rank == source else source)


def wait(machine: Machine, group: Group, sequence: int) -> None:
    """The compute stream waits for the communication of a group; the record names the collective waited for."""
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
        **numbered(machine, "", sequence, point_to_point=False),
    }
    with machine.operation("record_param_comms", described, communication=fields):
        machine.stream_waits_for_stream(COMPUTE_STREAM, machine.job.communication_stream(group))


# Messages: single and batched sends and receives.


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
        machine.place(call, "kernel", SEND_RECEIVE_KERNEL, stream, (start, end), **shape)
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
