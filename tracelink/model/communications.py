"""Statement (as a reader says it), Communications, Calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np

from tracelink.model.columns import (
    UNKNOWN,
    Bools,
    Codes,
    Int32s,
    Int64s,
    Rows,
    StringTable,
    Table,
    Times,
    Unknown,
)
from tracelink.model.operations import (
    COLLECTIVE_ANNOTATION,
    POINT_TO_POINT,
    ROOTED,
    Operation,
    operation_of,
    peers_of,
)

# What the events of one rank say of communication, and the calls that they are parts of.


@dataclass(frozen=True, slots=True)
class Communications(Table):
    """One row for each event that says something of communication, as its reader found it.

    `operation`, `group`, `type`, `members` and `shape` are codes of the trace's string table.
    """

    row: Rows
    """The event."""
    operation: Codes
    """As the source spells it: `allreduce`, `nccl:send 1->2`, `c10d::allreduce_`."""
    group: Codes
    """The group's name."""
    sequence: Int64s
    """The number within the group, of collectives or of messages.

    A message has none where the source counts it with the collectives, for then the two ends differ.
    """
    point_to_point: Bools
    """Whether `sequence` counts messages and not collectives."""
    source: Int32s
    """Rank that sends, or that is the root."""
    target: Int32s
    """Rank that receives. Most sources name only the other end, not the rank itself."""
    global_ranks: Bools
    """Whether `source` and `target` are ranks of the job and not of the group."""
    tag: Int64s
    elements_in: Int64s
    elements_out: Int64s
    """How many numbers the rank gives and gets, over all tensors; UNKNOWN for a rank that gives or gets none."""
    type: Codes
    """Of the numbers: `Float`, `BFloat16`."""
    size: Int32s
    """How many ranks the group has."""
    members: Codes
    """The group's ranks as a JSON list; a profile cuts it after 30 of them, with `...` at the end."""
    shape: Codes
    """The sizes of the input tensors as text: tells alike operations apart."""


class Evidence(IntEnum):
    """What the start and the end of a call rest on, from the weakest to the best."""

    NONE = 0
    """There is no time but that of the enqueuing, if that."""
    RECORDER = 1
    """The recorder's watchdog saw it start or complete: late by design."""
    ANNOTATION = 2
    """The annotation around the work of a CPU backend."""
    KERNEL = 3
    """The kernels."""


Evidences = Annotated[Int32s, Unknown(Evidence.NONE)]


@dataclass(frozen=True, slots=True)
class Calls(Table):
    """One row for each communication of one rank, joined from everything that tells of it.

    The columns that end in a kind of event hold its row, or UNKNOWN. `operation`, `group`, `type`, `members`,
    `state` and `shape` are codes of the string table; `operation` is the name that `operation_of` gives.
    """

    operation: Codes
    group: Codes
    sequence: Int64s
    point_to_point: Bools
    source: Int32s
    target: Int32s
    global_ranks: Bools
    tag: Int64s
    elements_in: Int64s
    elements_out: Int64s
    type: Codes
    size: Int32s
    members: Codes
    shape: Codes
    record: Rows
    """The flight-recorder entry."""
    operator: Rows
    """The operator that issued it: `record_param_comms`, else `c10d::…`."""
    annotation: Rows
    """`nccl:…` or `gloo:…`."""
    node: Rows
    """The execution-trace node that is the same as the operator."""
    kernel: Rows
    """The first kernel."""
    enqueued: Times
    """When the rank asked for it: the recorder's creation time, else the operator's start. Or NO_TIME."""
    start: Times
    """When the rank entered it, as far as `evidence` tells. Or NO_TIME."""
    end: Times
    """When the rank left it, as far as `evidence` tells. Or NO_TIME."""
    evidence: Evidences
    state: Codes
    """The recorder's word for how far it got."""


# What one event says of communication, as a reader puts it down while it reads.


LARGEST_RANK = int(np.iinfo(np.int32).max)
LARGEST_NUMBER = int(np.iinfo(np.int64).max)
LONGEST_NUMBER = len(str(LARGEST_NUMBER))

Sizes = list[list[int]]
"""Of several tensors."""


@dataclass(slots=True)
class Statement:
    """One row of `Communications`; a text that is not known is empty, a number is UNKNOWN."""

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
        """Takes in the one rank of the group that a source names: the other end of a message, or the root."""
        operation = operation_of(self.operation)
        if operation == Operation.SEND:
            self.target = rank
        elif operation == Operation.RECV or operation in ROOTED:
            self.source = rank


def stated_by(name: str) -> Statement:
    """What the name of an event says, and nothing more."""
    source, target = peers_of(name) or (UNKNOWN, UNKNOWN)
    return Statement(name, point_to_point=operation_of(name) in POINT_TO_POINT, source=source, target=target)


def communications(
    rows: Sequence[int], statements: Sequence[Statement], strings: StringTable
) -> Communications:
    """The table of what was stated of events; its texts are added to `strings`."""
    texts = Communications.text_columns()
    columns: dict[str, Any] = {"row": rows}
    for field in fields(Statement):
        values = [getattr(statement, field.name) for statement in statements]
        if field.name in texts:
            values = [strings[text] if text else UNKNOWN for text in values]
        columns[field.name] = values
    return Communications.of(**columns)


def rank_in(value: Any) -> int:
    """A rank or a count of ranks; UNKNOWN where the value is none."""
    return _whole(value, LARGEST_RANK)


def number_in(value: Any) -> int:
    """A sequence number, a tag or a count; UNKNOWN where the value is none."""
    return _whole(value, LARGEST_NUMBER)


def text_in(value: Any) -> str:
    """A text that can be written as UTF-8; empty where the value is none."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def elements_of(sizes: Sizes | None) -> int:
    """How many numbers tensors of these sizes hold together; UNKNOWN where there are none."""
    return number_in(sum(map(math.prod, sizes))) if sizes else UNKNOWN


def shape_of(sizes: Sizes | None) -> str:
    """The sizes as compact JSON."""
    return msgspec.json.encode(sizes).decode() if sizes else ""


def sizes_in(dims: Any) -> Sizes | None:
    """The sizes in lists of tensors, or in lists of such lists; None where something in them is no size."""
    try:
        sizes = list(_tensors(dims, 3)) if isinstance(dims, list) else []
    except TypeError:
        return None
    return sizes or None


def _tensors(dims: Any, depth: int) -> Iterator[list[int]]:
    """The sizes of each tensor; `depth` is how deep lists of tensors may stand in each other."""
    if not isinstance(dims, list) or not depth:
        raise TypeError(f"{dims!r} is no size of a tensor")
    if dims and all(type(dim) is int and dim >= 0 for dim in dims):
        yield dims
        return
    for inner in dims:
        if inner == []:
            yield []
        else:
            yield from _tensors(inner, depth - 1)


def _whole(value: Any, largest: int) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) <= LONGEST_NUMBER:
        value = int(value)
    return value if type(value) is int and 0 <= value <= largest else UNKNOWN


# What the inputs of an operator that communicates say: which are its tensors, its peer and its tag.


class Inputs(Protocol):
    """The inputs of an operator or an annotation, as far as a source recorded them; each by its place."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def sizes(self, place: int) -> Sizes | None:
        """The sizes of the tensors in one; None where they are not known, or it is none."""
        ...

    def type(self, place: int) -> str:
        """The type of the numbers in one, by torch's name; empty where it is not known."""
        ...

    def value(self, place: int) -> Any:
        """One that is a number."""
        ...


@dataclass(frozen=True, slots=True)
class Signature:
    """Places among the inputs, and None for what is not among them."""

    given: int | None = 0
    """The tensors whose numbers the rank gives."""
    got: int | None = 0
    """The tensors that it gets; those that it gives where the operation is in place."""
    source: int | None = None
    target: int | None = None
    tag: int | None = None
    all_given: bool = False
    """Whether every input from `given` on is a tensor that the rank gives."""


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
"""By `torch/csrc/distributed/c10d/Ops.cpp`. A barrier's tensor only names a device."""


def signature_of(name: str) -> Signature:
    """The signature of `c10d::…`, of an annotation, or of any other operator: what it gives comes first."""
    if name.startswith(C10D):
        return C10D_SIGNATURES.get(name.removeprefix(C10D), INPUT_FIRST)
    return INPUTS_ONLY if COLLECTIVE_ANNOTATION.match(name) else INPUT_FIRST


def stated_by_inputs(name: str, inputs: Inputs) -> Statement:
    """What the name and the inputs of an operator or an annotation say."""
    statement, signature = stated_by(name), signature_of(name)
    tensors = range(len(inputs)) if signature.all_given else _places(signature.given)
    given = [inputs.sizes(place) for place in tensors]
    sizes = None if None in given else [size for sizes in given if sizes for size in sizes]
    statement.elements_in, statement.shape = elements_of(sizes), shape_of(sizes)
    for place in _places(signature.got):
        statement.elements_out = elements_of(inputs.sizes(place))
    types = (inputs.type(place) for place in (*tensors, *_places(signature.got)))
    statement.type = next(filter(None, types), "")
    for place in _places(signature.source):
        statement.source = rank_in(inputs.value(place))
    for place in _places(signature.target):
        statement.target = rank_in(inputs.value(place))
    for place in _places(signature.tag):
        statement.tag = number_in(inputs.value(place))
    return statement


def _places(place: int | None) -> tuple[int, ...]:
    return () if place is None else (place,)
