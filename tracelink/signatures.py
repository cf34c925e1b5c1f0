"""What the inputs of an operator that communicates say: which are its tensors, its peer and its tag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tracelink.operations import COLLECTIVE_ANNOTATION
from tracelink.statements import Sizes, Statement, elements_of, number_in, rank_in, shape_of, stated_by


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
