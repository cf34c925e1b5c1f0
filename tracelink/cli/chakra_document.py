"""What `inspect --json` says of a Chakra trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelink.cli.finding_document import Document

if TYPE_CHECKING:
    from tracelink.converters.chakra.census import Census


CYCLE_SHOWN = 100


def census_document(census: Census) -> Document:
    """What is in the trace of one rank."""
    longest = census.longest
    return {
        "nodes": {role.value: count for role, count in census.nodes.items()},
        "communication": [
            {
                "kind": row.kind,
                "group": row.group,
                "count": row.count,
                "bytes": row.bytes,
                "without_size": row.sizeless,
            }
            for row in census.communicated
        ],
        "longest_chain": {
            "ns": longest.total_ns,
            "compute_ns": longest.compute_ns,
            "communication_ns": longest.communication_ns,
            "host_ns": longest.host_ns,
            "nodes": longest.nodes,
        },
        "device_nodes": census.device_nodes,
        "device_nodes_after_device": census.device_nodes_after_device,
        "missing_dependencies": census.missing,
        "nodes_without_order": census.unordered,
        "cycle": list(census.cycle[:CYCLE_SHOWN]),
    }
