"""Which inputs of an operator that communicates are its tensors, its peer and its tag."""

from __future__ import annotations

from dataclasses import dataclass

from tracelink.operations import COLLECTIVE_ANNOTATION


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
