"""Communications of a synthetic rank: operators, kernel, and what each tool notes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tracelink.samples.generate.job import COMMUNICATION_STREAM, COMPUTE_STREAM, Group
from tracelink.samples.generate.kinds import Kind
from tracelink.samples.generate.machine import Machine, Meeting, Program, kernel_shape
from tracelink.samples.generate.recording import Input, Operation, Participation, Tensor

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
    with machine.footprint() as footprint, parameters(machine, exchange, sequence, fields) as noted:
        machine.stream_waits_for_stream(COMMUNICATION_STREAM, COMPUTE_STREAM)
        with machine.annotation(f"nccl:{exchange.kind.annotation}", [exchange.outgoing]):
            enqueued = machine.now
            call = machine.call("cudaLaunchKernelExC", kernels=1)
            start = machine.ready(call, COMMUNICATION_STREAM)
            end = yield meeting(machine, exchange, message or sequence, start)
            machine.place(
                call,
                "kernel",
                exchange.kind.kernel,
                COMMUNICATION_STREAM,
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
    """A kernel's shape, and what it is told of its communication."""
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
        **numbered(machine, "", sequence, point_to_point=False),
    }
    with machine.operation("record_param_comms", described, communication=fields):
        machine.stream_waits_for_stream(COMPUTE_STREAM, COMMUNICATION_STREAM)
