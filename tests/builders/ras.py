"""Answers of NCCL's monitor RAS, as its source writes them: JSON and text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TEXT = """NCCL version 2.27.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  29 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
"""
"""Text of NCCL 2.26 and later."""


def member(rank: int, place: int, **fields: Any) -> dict[str, Any]:
    known = {"rank": rank, "host": "10.0.0.1", "pid": 100 + place, "cuda_dev": place, "nvml_dev": place}
    return known | fields


def communicator(
    counts: Sequence[int | None],
    *,
    places: Sequence[int] | None = None,
    name: str = "0xae94",
    dead: bool = False,
    operation: str = "AllReduce",
    **status: Any,
) -> dict[str, Any]:
    """A communicator whose ranks launched so many of an operation; None is a rank that did not answer."""
    known = list(places or range(len(counts)))
    flags = dict.fromkeys(("finalize_called", "destroy_flag", "abort_flag"), False)
    running = {"init_state": 0, "async_error": 0} | flags | status
    ranks = [
        member(rank, known[rank], status=running, collective_counts={"Broadcast": 1, operation: count})
        for rank, count in enumerate(counts)
        if count is not None
    ]
    gone = {"unresponsive": not dead, "considered_dead": dead}
    missing = [member(rank, known[rank], status=gone) for rank, count in enumerate(counts) if count is None]
    return {
        "hash": name,
        "secondary_hash": "0x1:0x2",
        "size": len(counts),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": ranks,
        "missing_ranks": missing,
    }


def as_json(*communicators: Mapping[str, Any], time: str = "2026-11-19 14:00:00", timeouts: int = 0) -> bytes:
    versions = {"nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000}
    listed = {"communicators_count": len(communicators), "communicators": list(communicators)}
    ras = {"collection_time_sec": 0.0, "timeouts_count": timeouts}
    document = {**versions, "timestamp": time, **listed, "ras": ras}
    return json.dumps(document, indent=2).encode()
