"""What a backend records of a call."""

from __future__ import annotations

from tracelink.samples.generate.recorded_program import Call, Part


def recorded(call: Call, by_gloo: bool) -> tuple[Part, ...]:
    """The operations of a call, and what ends them if they are several."""
    if by_gloo:
        return (_as_gloo(call),)
    return (*call.parts, Part(call.closing, (), ())) if call.closing else call.parts


def _as_gloo(call: Call) -> Part:
    """The single entry of a call; gloo has fewer operations."""
    part = call.parts[0]
    if call.closing or (len(part.inputs) > 1 and part.operation != "all_to_all"):
        shapes = tuple(shape for each in call.parts for shape in each.inputs)
        return Part("all_reduce", shapes, shapes, part.type)
    match part.operation:
        case "all_reduce_barrier":
            return Part("barrier", (), (), part.type)
        case "_reduce_scatter_base":
            return Part("all_reduce", part.inputs, part.inputs, part.type)
        case "_all_gather_base":
            return Part("all_gather", part.inputs, ((len(call.group.ranks), *part.inputs[0]),), part.type)
    return part
