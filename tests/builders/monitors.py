"""What monitors of hung jobs print: NCCL's watchdog, gloo, NCCL's RAS, and stacks of processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink._hang.facts.journal import Journal
from tracelink._model.operations import operation_of
from tracelink._model.records import Frame, State

# Logs of jobs that hang: lines of NCCL's watchdog as torch 2.5 and later print them, and of gloo.


GLOO = "/pytorch/third_party/gloo/gloo/transport/tcp"


@dataclass(frozen=True)
class Group:
    """A process group, as lines name it."""

    guid: str = "0"
    description: str = "default_pg"
    number: int = 0

    def prefix(self, member: int) -> str:
        described = f"({self.description})" if self.description else ""
        return f"[PG ID {self.number} PG GUID {self.guid}{described} Rank {member}]"


DEFAULT = Group()


def stamp(second: float, day: str = "1119") -> str:
    """14:00:00 and so many seconds."""
    whole = int(second)
    return f"{day} {14 + whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{round((second - whole) * 1e9):09}"


def c10(rank: int, text: str, second: float = 0, day: str = "1119") -> str:
    """A line of torch's C++ logger."""
    return f"[rank{rank}]:[E{stamp(second, day)} ProcessGroupNCCL.cpp:2271] {text}"


def timed_out(
    rank: int,
    sequence: int,
    *,
    operation: str = "ALLREDUCE",
    elements: int = 1024,
    out: int | None = None,
    second: float = 0,
    timeout_ms: int = 600_000,
    member: int | None = None,
    day: str = "1119",
) -> str:
    work = (
        f"WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn={elements}, "
        f"NumelOut={elements if out is None else out}, Timeout(ms)={timeout_ms})"
    )
    who = rank if member is None else member
    ran = f"ran for {timeout_ms + 61} milliseconds before timing out."
    text = f"[Rank {who}] Watchdog caught collective operation timeout: {work} {ran}"
    return c10(rank, text, second, day)


def status(
    rank: int,
    enqueued: int,
    completed: int,
    *,
    at: int | None = None,
    group: Group = DEFAULT,
    second: float = 0,
    member: int | None = None,
    day: str = "1119",
) -> str:
    """The line after a timeout; of a rank that did not time out itself, the line at the signal of another."""
    prefix = group.prefix(rank if member is None else member)
    failed = (
        f"{prefix}  failure detected by watchdog at work sequence id: {at} PG status: "
        f"last enqueued work: {enqueued}, last completed work: {completed}"
    )
    signalled = (
        f"{prefix} Received a dump signal due to a collective timeout from  rank 0 and we will try our best to "
        f"dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is"
    )
    return c10(rank, signalled if at is None else failed, second, day)


def gave_up(rank: int, sequence: int, *, enqueued: int | None = None, **options: object) -> list[str]:
    """What a rank prints that waits in a collective."""
    known = {key: options[key] for key in ("group", "second", "member", "day") if key in options}
    of_work = {key: value for key, value in options.items() if key != "group"}
    return [
        timed_out(rank, sequence, **of_work),  # type: ignore[arg-type]
        status(rank, enqueued or sequence, sequence - 1, at=sequence, **known),  # type: ignore[arg-type]
    ]


def gloo_timeout(direction: str = "recv", milliseconds: int = 14_000) -> str:
    what = f"Timed out waiting {milliseconds}ms for {direction} operation to complete"
    return f"RuntimeError: [{GLOO}/unbound_buffer.cc:78] {what}"


def gloo_lost() -> str:
    return (
        f"RuntimeError: [{GLOO}/pair.cc:553] Connection closed by peer [127.0.0.1]:17622. This is typically caused by "
        "a remote worker crashing."
    )


def hung(world: int = 4, culprit: int = 2, sequence: int = 21) -> dict[int, list[str]]:
    """By rank the log of a job in which one rank does not join an all-reduce of the group of all ranks."""
    logs = {rank: gave_up(rank, sequence, second=rank / 10) for rank in range(world)}
    logs[culprit] = [status(culprit, sequence - 1, sequence - 1, second=1)]
    return logs


def barrier(*members: int, milliseconds: int = 10_000) -> str:
    """What rank 0 of a group says of those that did not pass a monitored barrier."""
    listed = ", ".join(map(str, members))
    return f"RuntimeError: [Rank 0]: Ranks {listed} failed to pass monitoredBarrier in {milliseconds} ms"


def passed(member: int) -> str:
    return f"RuntimeError: Rank {member} successfully reached monitoredBarrier, but received errors while waiting"


# What the watchdogs of a job would have printed at the time of its dumps.


OPERATIONS = {
    "all_reduce": "ALLREDUCE",
    "all_gather": "_ALLGATHER_BASE",
    "reduce_scatter": "_REDUCE_SCATTER_BASE",
    "all_to_all": "ALLTOALL_BASE",
}


def logs_of(journal: Journal, *, all_groups: bool) -> dict[int, list[str]]:
    """By rank its lines. Without `all_groups` the first timeout ends the process before other groups time out."""
    return {rank: _lines(journal, rank, all_groups) for rank in journal.ranks.tolist()}


def _lines(journal: Journal, rank: int, all_groups: bool) -> list[str]:
    records, requests = journal.records, journal.requests
    rows = np.flatnonzero(journal.rank == rank)
    given_up: list[tuple[int, list[str]]] = []
    signalled: list[str] = []
    for number in np.unique(records.group[rows]).tolist():
        own = rows[records.group[rows] == number]
        sequence, done = records.sequence[own], records.state[own] == State.COMPLETED
        last, completed = int(sequence[-1]), int(sequence[done][-1]) if done.any() else -1
        group = journal.groups[number]
        member = group.ranks.index(rank) if rank in group.ranks else 0
        named = Group(group.name, group.description, number)
        if not done.all():
            row = own[~done][0]
            request, at = int(records.request[row]), int(records.sequence[row])
            operation = operation_of(journal.strings[int(requests.operation[request])])
            given, gotten = (
                max(int(column[request]), 0) for column in (requests.elements_in, requests.elements_out)
            )
            known: dict[str, Any] = {"second": rank / 100, "member": member}
            called = OPERATIONS.get(operation, operation.upper())
            lines = [timed_out(rank, at, operation=called, elements=given, out=gotten, **known)]
            if completed <= last:
                lines.append(status(rank, last, completed, at=at, group=named, **known))
            given_up.append((int(records.created[row]), lines))
        if group.description == "default_pg" and completed <= last:
            signalled.append(status(rank, last, completed, group=named, second=rank / 100 + 0.5))
    given_up.sort()
    chosen = given_up if all_groups else given_up[:1]
    return [*(line for _, lines in chosen for line in lines), *signalled]


# Answers of NCCL's monitor RAS, as its source writes them: JSON and text.


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


# Stacks as text: what `py-spy dump` and faulthandler write of a process, for a main thread with given frames.


MAIN = (Frame("step", "train.py", 30), Frame("<module>", "train.py", 200))
COMPILES = (
    Frame("wait", "threading.py", 320),
    Frame("wait", "torch/_inductor/async_compile.py", 512),
    Frame("compile_fx_inner", "torch/_inductor/compile_fx.py", 700),
    Frame("__call__", "torch/_dynamo/convert_frame.py", 1250),
    Frame("compile_wrapper", "torch/_dynamo/eval_frame.py", 736),
    *MAIN,
)
LOADS = (Frame("__next__", "torch/utils/data/dataloader.py", 700), *MAIN)
RUNS = (
    Frame("call", "/tmp/torchinductor_me/ab/cab.py", 60),
    Frame("__call__", "torch/_inductor/output_code.py", 460),
    Frame("runtime_wrapper", "torch/_functorch/_aot_autograd/runtime_wrappers.py", 300),
    Frame("compile_wrapper", "torch/_dynamo/eval_frame.py", 736),
    *MAIN,
)
FAULT = """Fatal Python error: Segmentation fault

Thread 0x00007f12 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f34 [python] (most recent call first):
  File "train.py", line 5 in wait
  File "train.py", line 9 in main
  File "train.py", line 12 in <module>

Extension modules: numpy._core (total: 1)
"""


def py_spy(frames: Sequence[Frame]) -> str:
    """What `py-spy dump --pid 4711` prints."""
    lines = [f"    {frame.name} ({frame.filename}:{frame.line})" for frame in frames]
    head = ["Process 4711: python train.py", "Python v3.11.9 (/usr/bin/python3.11)", ""]
    monitor = ["    wait (threading.py:324)", "    _bootstrap (threading.py:1002)", ""]
    main, other = 'Thread 4711 (idle): "MainThread"', 'Thread 4800 (idle): "Thread-1 (_monitor)"'
    return "\n".join([*head, main, *lines, other, *monitor])


def faults(frames: Sequence[Frame]) -> str:
    lines = [f'  File "{frame.filename}", line {frame.line} in {frame.name}' for frame in frames]
    other = ["Thread 0x00007f01 (most recent call first):", '  File "threading.py", line 324 in wait', ""]
    return "\n".join([*other, "Current thread 0x00007f02 (most recent call first):", *lines, ""])
