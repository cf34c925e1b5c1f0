"""Communication: declared by events of a rank, the calls of a rank, and collectives and messages across ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
import numpy as np
from msgspec import Struct, field

from tracelink._model.columns import (
    UNKNOWN,
    Bools,
    Codes,
    Durations,
    EventRow,
    Float64s,
    Int32s,
    Int64s,
    Rows,
    StringTable,
    Table,
    Times,
    Unknown,
)
from tracelink._model.fields import Doc
from tracelink._model.operations import (
    COLLECTIVE_ANNOTATION,
    POINT_TO_POINT,
    ROOTED,
    Operation,
    operation_of,
    peers_of,
)

if TYPE_CHECKING:
    from tracelink._model.trace import ProcessGroup

# Tables


class RoundTrips(Table, frozen=True):
    """One row for each time that a rank asked rank 0 for its clock."""

    sent: Times
    """By the clock of the rank."""
    answered: Times
    """By the clock of rank 0, between the two others."""
    received: Times
    """By the clock of the rank."""


class CommunicationColumns(Table, frozen=True):
    """What is declared about a communication."""

    operation: Codes
    """As the source writes it: `allreduce`, `nccl:send 1->2`, `c10d::allreduce_`."""
    group: Codes
    """The name of the group."""
    sequence: Int64s
    """The sequence number within the group, of collectives or of messages.

    UNKNOWN for a message that the source counts together with collectives: then its two ends have different numbers.
    """
    point_to_point: Bools
    """Whether this is a message, and `sequence` counts messages."""
    source: Int32s
    """The rank that sends, or the root."""
    target: Int32s
    """The rank that receives. Most sources record only the peer, not the rank itself."""
    global_ranks: Bools
    """Whether `source` and `target` are ranks of the job; else they are ranks within the group."""
    tag: Int64s
    elements_in: Int64s
    elements_out: Int64s
    """Elements of all tensors that the rank sends and receives; UNKNOWN if it sends or receives none."""
    type: Codes
    """The type of the elements: `Float`, `BFloat16`."""
    size: Int32s
    """Number of ranks of the group."""
    members: Codes
    """The ranks of the group as a JSON list; profiles truncate it after 30 ranks, with `...` at the end."""
    shape: Codes
    """The sizes of the input tensors as JSON, to distinguish similar operations."""


class Communications(CommunicationColumns, frozen=True):
    """One row for each event that declares something about communication, as its source recorded it."""

    row: Rows
    """The event."""


class Evidence(IntEnum):
    """What the start and the end of a call are based on, from the weakest to the best."""

    NONE = 0
    """No times, except perhaps when it was enqueued."""
    RECORDER = 1
    """When the flight recorder's watchdog noticed that it started or completed: late by design."""
    ANNOTATION = 2
    """The annotation around the work of a CPU backend such as gloo."""
    KERNEL = 3
    """The kernels on the device."""


Evidences = Annotated[Int32s, Unknown(Evidence.NONE), Evidence]


class Calls(CommunicationColumns, frozen=True):
    """One row for each communication of one rank, joined from all events that describe it.

    `operation` is the common name that `operation_of` returns.
    """

    record: Rows
    """The flight-recorder entry."""
    operator: Rows
    """The operator that issued it: `record_param_comms`, else `c10d::…`."""
    annotation: Rows
    """`nccl:…` or `gloo:…`."""
    node: Rows
    """The node of the execution trace that is the same as the operator."""
    kernel: Rows
    """The first kernel."""
    enqueued: Times
    """When the rank issued it: the creation time of the recorder's entry, else the start of the operator."""
    start: Times
    """When the rank entered it, by `evidence`."""
    end: Times
    """When the rank left it, by `evidence`."""
    evidence: Evidences
    state: Codes
    """The state in the flight recorder: `scheduled`, `started`, `completed`."""


# Statements: what one event declares, collected by readers


LARGEST_RANK = int(np.iinfo(np.int32).max)
LARGEST_NUMBER = int(np.iinfo(np.int64).max)
LONGEST_NUMBER = len(str(LARGEST_NUMBER))

Sizes = list[list[int]]
"""The sizes of several tensors."""


class Statement(Struct):
    """One row of `Communications`; unknown strings are empty, unknown numbers UNKNOWN."""

    operation: str
    group: str = ""
    sequence: int = UNKNOWN
    point_to_point: bool = False
    source: int = UNKNOWN
    target: int = UNKNOWN
    global_ranks: bool = False
    tag: int = UNKNOWN
    elements_in: int = UNKNOWN
    elements_out: int = UNKNOWN
    type: str = ""
    size: int = UNKNOWN
    members: str = ""
    shape: str = ""

    def name_peer(self, rank: int) -> None:
        """Sets the only rank of the group that a source names: the peer of a message, or the root."""
        operation = operation_of(self.operation)
        if operation == Operation.SEND:
            self.target = rank
        elif operation == Operation.RECV or operation in ROOTED:
            self.source = rank


def stated_by(name: str) -> Statement:
    """What the name of an event declares."""
    source, target = peers_of(name) or (UNKNOWN, UNKNOWN)
    return Statement(name, point_to_point=operation_of(name) in POINT_TO_POINT, source=source, target=target)


def communications(
    rows: Sequence[int], statements: Sequence[Statement], strings: StringTable
) -> Communications:
    """The table of statements about the events in `rows`; its strings are added to `strings`."""
    texts = Communications.text_columns()
    columns: dict[str, Any] = {"row": rows}
    for name in Statement.__struct_fields__:
        values = [getattr(statement, name) for statement in statements]
        if name in texts:
            values = [strings[text] if text else UNKNOWN for text in values]
        columns[name] = values
    return Communications.of(**columns)


def rank_in(value: Any) -> int:
    """A rank or a number of ranks; UNKNOWN if the value is invalid."""
    return _integer(value, LARGEST_RANK)


def number_in(value: Any) -> int:
    """A sequence number, a tag or a count; UNKNOWN if the value is invalid."""
    return _integer(value, LARGEST_NUMBER)


def text_in(value: Any) -> str:
    """A string that can be written as UTF-8; empty if the value is not a string."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def elements_of(sizes: Sizes | None) -> int:
    """Number of elements of tensors of these sizes together; UNKNOWN if there are no tensors."""
    return number_in(sum(map(math.prod, sizes))) if sizes else UNKNOWN


def shape_of(sizes: Sizes | None) -> str:
    """The sizes as compact JSON."""
    return msgspec.json.encode(sizes).decode() if sizes else ""


def sizes_in(dims: Any) -> Sizes | None:
    """The sizes in lists of tensors, or in lists of such lists; None if anything in them is not a size."""
    try:
        sizes = list(_tensors(dims, 3)) if isinstance(dims, list) else []
    except TypeError:
        return None
    return sizes or None


def _tensors(dims: Any, depth: int) -> Iterator[list[int]]:
    """The size of each tensor; lists of tensors may be nested up to `depth`."""
    if not isinstance(dims, list) or not depth:
        raise TypeError(f"{dims!r} is not the size of a tensor")
    if dims and all(type(dim) is int and dim >= 0 for dim in dims):
        yield dims
        return
    for inner in dims:
        if inner == []:
            yield []
        else:
            yield from _tensors(inner, depth - 1)


def _integer(value: Any, largest: int) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) <= LONGEST_NUMBER:
        value = int(value)
    return value if type(value) is int and 0 <= value <= largest else UNKNOWN


# Statements from the inputs of operators: which of them are the tensors, the peer and the tag


class Inputs(Protocol):
    """The inputs of an operator or an annotation, as far as a source recorded them, by index."""

    def __len__(self) -> int:
        """Number of inputs."""
        ...

    def sizes(self, index: int) -> Sizes | None:
        """The sizes of the tensors in one input; None if they are unknown, or it is not a tensor."""
        ...

    def type(self, index: int) -> str:
        """The type of the elements of one input, by torch's name; empty if unknown."""
        ...

    def value(self, index: int) -> Any:
        """The value of an input that is a number."""
        ...


class Signature(Struct, frozen=True):
    """Indices of inputs; None for what is not an input."""

    given: int | None = 0
    """The tensors that the rank sends."""
    got: int | None = 0
    """The tensors that it receives; those that it sends if the operation is in place."""
    source: int | None = None
    target: int | None = None
    tag: int | None = None
    all_given: bool = False
    """Whether every input from `given` on is a tensor that the rank sends."""


IN_PLACE = Signature()
OUTPUT_FIRST = Signature(given=1)
NO_NUMBERS = Signature(given=None, got=None)
INPUT_FIRST = Signature(got=None)
INPUTS_ONLY = Signature(got=None, all_given=True)

C10D = "c10d::"
C10D_SIGNATURES = {
    "broadcast_": Signature(source=2),
    "allreduce_": IN_PLACE,
    "allreduce_coalesced_": IN_PLACE,
    "allgather_": OUTPUT_FIRST,
    "_allgather_base_": OUTPUT_FIRST,
    "allgather_coalesced_": OUTPUT_FIRST,
    "allgather_into_tensor_coalesced_": OUTPUT_FIRST,
    "reduce_scatter_": OUTPUT_FIRST,
    "_reduce_scatter_base_": OUTPUT_FIRST,
    "reduce_scatter_tensor_coalesced_": OUTPUT_FIRST,
    "reduce_": Signature(source=3),
    "gather_": Signature(given=1, source=3),
    "scatter_": Signature(given=1, source=3),
    "alltoall_": OUTPUT_FIRST,
    "alltoall_base_": OUTPUT_FIRST,
    "barrier": NO_NUMBERS,
    "monitored_barrier_": NO_NUMBERS,
    "send": Signature(target=2, tag=3),
    "recv_": Signature(source=2, tag=3),
    "recv_any_source_": Signature(tag=2),
}
"""From `torch/csrc/distributed/c10d/Ops.cpp`. The tensor of a barrier only names a device."""


def signature_of(name: str) -> Signature:
    """The signature of `c10d::…`, of an annotation, or of any other operator, whose first input is what it sends."""
    if name.startswith(C10D):
        return C10D_SIGNATURES.get(name.removeprefix(C10D), INPUT_FIRST)
    return INPUTS_ONLY if COLLECTIVE_ANNOTATION.match(name) else INPUT_FIRST


def stated_by_inputs(name: str, inputs: Inputs) -> Statement:
    """What the name and the inputs of an operator or an annotation declare."""
    statement, signature = stated_by(name), signature_of(name)
    tensors = range(len(inputs)) if signature.all_given else _indices(signature.given)
    given = [inputs.sizes(index) for index in tensors]
    sizes = None if None in given else [size for sizes in given if sizes for size in sizes]
    statement.elements_in, statement.shape = elements_of(sizes), shape_of(sizes)
    for index in _indices(signature.got):
        statement.elements_out = elements_of(inputs.sizes(index))
    types = (inputs.type(index) for index in (*tensors, *_indices(signature.got)))
    statement.type = next(filter(None, types), "")
    for index in _indices(signature.source):
        statement.source = rank_in(inputs.value(index))
    for index in _indices(signature.target):
        statement.target = rank_in(inputs.value(index))
    for index in _indices(signature.tag):
        statement.tag = number_in(inputs.value(index))
    return statement


def _indices(index: int | None) -> tuple[int, ...]:
    return () if index is None else (index,)


LONG_NS = 10_000_000_000
"""Unfinished for less than this is no hang: checkpoints and evaluation take seconds."""
LONG_FOR_A_FIRST_NS = 20_000_000_000
"""For the first work of a group, which also sets up connections: no duration to compare with is known."""
TIMES_LONGER = 20
"""A call hangs if it takes longer than the longest finished one of its group by this factor."""


class Verdict(StrEnum):
    """Whether a collective or a message is as it should be."""

    COMPLETE = "complete"
    """Every member of the group takes part."""
    PARTIAL = "partial"
    """Some members have no source, or their sources do not cover the time."""
    MISSING = "missing"
    """Some members take no part although their sources cover the time."""
    MISMATCH = "mismatch"
    """Members call different operations with the same sequence number."""
    UNMATCHED = "unmatched"
    """A call that was not matched with any other."""


class RankCalls(Struct, frozen=True):
    """The calls of one rank with all that is needed to match them; small, and independent of the events."""

    rank: int
    strings: Sequence[str]
    calls: Calls
    groups: Sequence[ProcessGroup] = ()
    host: str = ""
    world_size: int | None = None
    broken_off: bool = False
    """Whether a source is truncated: the rank may have made more calls."""
    round_trips: RoundTrips = field(default_factory=RoundTrips.empty)
    """Times at which the rank asked rank 0 for its clock."""


class Collectives(Table, frozen=True):
    """One row for each collective of a group."""

    group: Annotated[Int32s, Doc("The group: a row of `groups`.")]
    sequence: Annotated[Int64s, Doc("The sequence number that the sources recorded.")]
    order: Annotated[Int64s, Doc("The position among the collectives of the group, from 0.")]
    operation: Annotated[Codes, Doc("`all_reduce`, ...")]
    type: Annotated[Codes, Doc("The type of the elements.")]
    bytes: Annotated[Int64s, Doc("Size as nccl-tests counts it for this operation.")]
    start: Annotated[Times, Doc("When the first rank entered.")]
    end: Annotated[Times, Doc("When the last rank left.")]
    last_rank: Annotated[Int32s, Doc("The rank that entered last.")]
    skew: Annotated[Durations, Doc("From the first rank's entry to the last one's.")]
    duration: Annotated[Durations, Doc("From the last rank's entry to the last exit.")]
    algorithm_gb_s: Annotated[Float64s, Doc("Algorithm bandwidth as nccl-tests defines it.")]
    bus_gb_s: Annotated[Float64s, Doc("Bus bandwidth as nccl-tests defines it.")]
    verdict: Annotated[Codes, Doc("`complete`, `partial`, `missing`, `mismatch` or `unmatched`.")]
    root: Annotated[Int32s, Doc("The rank that sends to or receives from all others.")]


RankRows = Annotated[Int64s, EventRow("rank")]
SourceRows = Annotated[Int64s, EventRow("source")]
TargetRows = Annotated[Int64s, EventRow("target")]
"""Rows of events of the rank in that column, or UNKNOWN."""


class Participations(Table, frozen=True):
    """One row for each rank's part in a collective, grouped by collective."""

    collective: Annotated[Int64s, Doc("The row of `collectives`.")]
    rank: Annotated[Int32s, Doc("The rank.")]
    record: Annotated[RankRows, Doc("The entry of the flight recorder: a row of `events` of the rank.")]
    operator: Annotated[RankRows, Doc("The operator.")]
    annotation: Annotated[RankRows, Doc("The annotation.")]
    node: Annotated[RankRows, Doc("The node of the execution trace.")]
    kernel: Annotated[RankRows, Doc("The kernel.")]
    enqueued: Annotated[Times, Doc("When the rank enqueued it.")]
    start: Annotated[Times, Doc("When the rank entered, by `evidence`.")]
    end: Annotated[Times, Doc("When the rank left.")]
    evidence: Annotated[Evidences, Doc("What its times are based on.")]
    wait: Annotated[Durations, Doc("From its own entry to that of the last rank.")]
    state: Annotated[Codes, Doc("The state that the flight recorder recorded.")]
    bytes_in: Annotated[Int64s, Doc("Bytes of all tensors that the rank sends.")]
    bytes_out: Annotated[Int64s, Doc("Bytes of all tensors that the rank receives.")]


class Messages(Table, frozen=True):
    """One row for each message from one rank to another."""

    group: Annotated[Int32s, Doc("The group: a row of `groups`.")]
    source: Annotated[Int32s, Doc("The rank that sends.")]
    target: Annotated[Int32s, Doc("The rank that receives.")]
    tag: Annotated[Int64s, Doc("The tag.")]
    order: Annotated[Int64s, Doc("The position among the messages of this pair, group and tag, from 0.")]
    bytes: Annotated[Int64s, Doc("Its size.")]
    send: Annotated[SourceRows, Doc("The event of the send: a row of `events` of `source`.")]
    receive: Annotated[TargetRows, Doc("The event of the receive: a row of `events` of `target`.")]
    send_node: Annotated[SourceRows, Doc("The node of the execution trace that sends.")]
    receive_node: Annotated[TargetRows, Doc("The node of the execution trace that receives.")]
    sent: Annotated[Times, Doc("When the send started.")]
    received: Annotated[Times, Doc("When the receive ended.")]
    verdict: Annotated[Codes, Doc("`complete`, `partial`, `missing`, `mismatch` or `unmatched`.")]
