"""What attributes must be: of the kinds that both generations of feeders take, and there once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tracelink.converters.chakra.schema import Kind, Name, NodeType
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import Breach, Trace
from tracelink.events import Bools, Int64s

FEEDER_KINDS = {
    "comm_type": Kind.INT64,
    "comm_size": Kind.INT64,
    "num_ops": Kind.INT64,
    "comm_src": Kind.INT32,
    "comm_dst": Kind.INT32,
    "comm_tag": Kind.INT32,
    "comm_priority": Kind.INT32,
    "tensor_size": Kind.UINT64,
    "is_cpu_op": Kind.BOOL,
    "pg_name": Kind.STRING,
    "rf_id": Kind.INT64,
    "fw_parent": Kind.INT64,
    "seq_id": Kind.INT64,
    "scope": Kind.INT64,
    "tid": Kind.INT64,
    "fw_tid": Kind.INT64,
    "stream": Kind.INT64,
    "op_schema": Kind.STRING,
}
"""The older feeder reads exactly these."""


def attribute_kind(trace: Trace) -> Iterator[Breach]:
    """Section 12: a feeder finds the value where it looks for it."""
    for name, kind in FEEDER_KINDS.items():
        yield from _of_other_kind(trace, Rule.ATTRIBUTE_KIND, name, kind)


def involved_dimensions(trace: Trace) -> Iterator[Breach]:
    """M16: involved_dim is a list of truth values."""
    yield from _of_other_kind(trace, Rule.INVOLVED_DIMENSIONS, Name.INVOLVED, Kind.BOOL_LIST)


def attribute_twice(trace: Trace) -> Iterator[Breach]:
    """A node has an attribute once."""
    for name, attribute in trace.nodes.attributes.items():
        rows = attribute.rows[1:][attribute.rows[1:] == attribute.rows[:-1]]
        if len(rows):
            yield trace.breach(Rule.ATTRIBUTE_TWICE, rows, _always(f"has {name} more than once"))


def incomplete_memory(trace: Trace) -> Breach:
    """M14: loads and stores say how much."""
    moves = trace.nodes.of_type(NodeType.MEM_LOAD, NodeType.MEM_STORE)
    wrong = moves & ~trace.number(Name.TENSOR_SIZE).present
    return trace.breach(Rule.INCOMPLETE_MEMORY, np.flatnonzero(wrong), lambda _: "has no tensor_size")


def roofline(trace: Trace) -> Breach:
    """M15: a device node that says how many operations it has says of how many bytes, and neither is 0."""
    operations, size = trace.number(Name.OPERATIONS), trace.number(Name.TENSOR_SIZE)
    told = operations.present & trace.nodes.of_type(NodeType.COMP) & (trace.on_host.values == 0)
    usable = _above_0(operations.known, operations.values) & _above_0(size.known, size.values)
    kinds_wrong = (operations.present & ~operations.known) | (size.present & ~size.known)
    wrong = np.flatnonzero(told & ~usable & ~kinds_wrong)

    def says(row: int) -> str:
        stated = size.values[row] if size.present[row] else "no"
        return f"has {operations.values[row]:,} num_ops and {stated} tensor_size"

    return trace.breach(Rule.ROOFLINE, wrong, says)


def tensor_lists(trace: Trace) -> Iterator[Breach]:
    """M15: inputs and outputs, as attributes, are pairs of texts."""
    for name in ("inputs", "outputs"):
        attribute = trace.nodes.attribute(name)
        good = [
            kind == Kind.STRING_LIST and len(value) % 2 == 0
            for kind, value in zip(attribute.kinds.tolist(), attribute.values, strict=True)
        ]
        rows = attribute.rows[~np.array(good, bool)]
        yield trace.breach(Rule.TENSOR_LISTS, rows, _always(f"has {name} that are no pairs of texts"))


def _of_other_kind(trace: Trace, rule: Rule, name: str, kind: Kind) -> Iterator[Breach]:
    attribute = trace.nodes.attribute(name)
    wrong = np.flatnonzero(attribute.kinds != kind)
    if not len(wrong):
        return
    kinds: Int64s = attribute.kinds[wrong].astype(np.int64)
    rows = attribute.rows[wrong]

    def says(place: int) -> str:
        return f"{trace.called(int(rows[place]))} has {name} as {_called(int(kinds[place]))}, not {_called(kind)}"

    yield Breach(rule, rows, says)


def _above_0(known: Bools, values: Int64s) -> Bools:
    above: Bools = known & (values.view(np.uint64) > 0)
    return above


def _called(kind: int) -> str:
    """The name of a kind's field."""
    if not kind:
        return "nothing"
    name = Kind(kind).name.lower()
    return name if name.endswith("_list") else f"{name}_val"


def _always(text: str) -> Callable[[int], str]:
    """What is said of whichever node."""
    return lambda _: text
